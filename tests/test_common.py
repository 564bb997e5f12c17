"""common.py: rollouts and their batch, log-probs, the loss, what is logged, evaluation."""

import copy
import inspect
import itertools
import math
import random
from collections import Counter
from dataclasses import replace

import rlvr.flags.command_line
import rlvr.machine.ranks
import rlvr.policy.logprobs
import rlvr.rollout.rollouts
from rlvr import world
from rlvr.flags.config import Config
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Problem, ProblemStream, Sample
from rlvr.verify.verifiers import VERIFIERS

import pytest
import torch
from groups import f64, near
from losses import ppo_clip_loss
from samples import some_samples, writer_of_batch

import common
import grpo

# ------------------------------------------------------------------------------------- roll out


class ScriptedSampler:
    """Instead of a policy: write(prompts) gives the completions' texts, with log-probs of 0."""

    complete, call_ends = Sampler.complete, ()

    def __init__(self, policy, tokenizer, write, **flags):
        self.policy, self.tokenizer, self.write = policy, tokenizer, write
        self.stops, self.devices = [tokenizer.eos_token_id], []
        self.gap, self.cap, self.is_exact = None, 0.0, False
        self.config = Config(**flags)
        self.calls, self.completions = [], []
        self.asleep = True

    def generate(self, prompt_ids, *how):
        assert not self.asleep
        texts = self.write([self.tokenizer.decode(ids) for ids in prompt_ids])
        completions = [self.tokenizer.encode(text + "<eos>") for text in texts]
        self.calls.append((len(prompt_ids), *how[:3]))  # temperature, top_p, max_tokens
        self.completions.append(completions)
        return completions, [[0.0] * len(completion) for completion in completions]

    def sync(self):
        self.asleep = False

    def sleep(self):
        self.asleep = True


@pytest.fixture(scope="module")
def solutions():
    """Prompt -> solution, of 64 problems."""
    rng, found = random.Random(0), {}
    while len(found) < 64:
        problem, solution = make_countdown(rng, 3)
        found[problem.prompt] = solution
    return found


def problems_of(prompts):
    return [Problem(prompt, prompt) for prompt in prompts]


def writer(solutions, script):
    """It writes groups of two; a letter a group says whether its completions are right.

    Both are in a group of "R", none in one of "W", and of an "M", for mixed, the first one is.
    """
    letters = iter(script.replace(" ", ""))

    def write(prompts):
        texts = []
        for first, second in zip(prompts[::2], prompts[1::2], strict=True):
            assert first == second  # the completions of a prompt stand together
            right = "WMR".index(next(letters))
            texts += [solutions[first]] * right
            texts += [f"<answer>{i}</answer>" for i in range(right, 2)]
        return texts

    return write


def roll_out_scripted(tiny, solutions, script, **flags):
    """The groups of a rollout of 4 prompts, in letters, and how many groups each call drew."""
    config = dict(prompts_per_step=4, num_generations=2, minibatch_size=8) | flags
    sampler = ScriptedSampler(*tiny, writer(solutions, script), **config)
    stream = ProblemStream(problems_of(solutions), 0)
    batch = common.roll_out(sampler, stream, sampler.config)
    letters, first = (
        "".join("WMR"[int(solved)] for solved in successes.sum(1))
        for successes in (batch.successes, batch.first_successes)
    )
    assert first == script[:4]  # also of groups that were drawn again
    for i in range(0, len(batch.samples), 2):
        assert batch.samples[i].prompt_ids == batch.samples[i + 1].prompt_ids
    assert batch.rewards.flatten().tolist() == [sample.reward for sample in batch.samples]
    groups = [count // 2 for count, *_ in sampler.calls]
    assert stream.position == world.WORLD_SIZE * sum(groups)
    assert sampler.asleep
    return letters, [count for count in groups if count]


@pytest.mark.parametrize(
    "script, max_redraws, letters, calls",
    [
        ("MMMM", 3, "MMMM", [4]),  # nothing to draw again
        ("MWRM MM", 3, "MMMM", [4, 2]),
        ("MWRM WM M", 3, "MMMM", [4, 2, 1]),
        ("WRWR WWWM RRR MRW", 3, "MMRW", [4, 4, 3, 3]),  # filled up after the last redraw
        ("WRMM", 0, "WRMM", [4]),
    ],
)
def test_dynamic_sampling(tiny, solutions, monkeypatch, script, max_redraws, letters, calls):
    """Groups without contrast are drawn again, and only those; the batch is always whole."""
    monkeypatch.setattr(common, "MAX_REDRAWS", max_redraws)
    assert roll_out_scripted(tiny, solutions, script, dynamic_sampling=True) == (letters, calls)
    assert roll_out_scripted(tiny, solutions, script[:4]) == (script[:4], [4])  # without it


def test_dynamic_sampling_goes_by_success(tiny, solutions, monkeypatch):
    """Right is 0.75 here, and what is wrong has different rewards below that."""
    honest = VERIFIERS["countdown"].verify

    def graded(text, gold):
        return 0.75 if honest(text, gold) else 0.5 * text.count("1")

    entry = replace(VERIFIERS["countdown"], verify=graded)
    monkeypatch.setitem(VERIFIERS, "countdown", entry)
    monkeypatch.setattr(common, "SUCCESS", 0.75)
    assert roll_out_scripted(tiny, solutions, "MWRM MM", dynamic_sampling=True) == ("MMMM", [4, 2])


@pytest.mark.parametrize("drawn", ["MRR", "RWM"])
def test_a_rank_draws_as_many_groups_as_the_rank_that_lacks_most(
    tiny, solutions, monkeypatch, drawn
):
    """Drawing is done together. This rank lacks one group, another one lacks three."""
    monkeypatch.setattr(common, "global_max", lambda missing: max(missing, 3))
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(common, "MAX_REDRAWS", 1)
    flags = dict(dynamic_sampling=True, prompts_per_step=8)
    assert roll_out_scripted(tiny, solutions, "MMWM" + drawn, **flags) == ("MMMM", [4, 3])


def test_rollouts_are_drawn_at_the_temperature_of_the_loss_from_all_tokens(tiny, solutions):
    """The evaluation's own temperature, top_p and length are not theirs, nor are the defaults."""
    sizes = dict(prompts_per_step=2, num_generations=2, dynamic_sampling=True)
    own = dict(temperature=0.7, max_completion_length=50)
    of_evaluation = dict(eval_temperature=0.6, top_p=0.9, eval_max_completion_length=9)
    write = writer(solutions, "WMM")
    sampler = ScriptedSampler(*tiny, write, **sizes, **own, **of_evaluation)
    batch = common.roll_out(sampler, ProblemStream(problems_of(solutions), 0), sampler.config)
    assert batch.sampler is sampler and batch.seconds > 0
    assert sampler.calls == [(4, 0.7, 1.0, 50), (2, 0.7, 1.0, 50)]  # the second draws one again


# ------------------------------------------------------------------------------------ the batch


@pytest.fixture
def batch(sharp):
    """Six samples in groups of two, of which the sampler's log-probs are all -1."""
    samples = [
        replace(sample, logprobs=[-1.0] * len(sample.completion_ids))
        for sample in some_samples(sharp[1])
    ]
    return common.make_batch(samples, Config(num_generations=2), writer_of_batch(sharp[1]))


@pytest.mark.parametrize("masks", [False, True])
def test_make_batch(masks):
    """A stop token that is also the padding, here 0, counts: `ids != pad` would drop it."""
    samples = [
        Sample([1], [2, 0, 0], reward=-0.5, logprobs=[-1.0, -2.0, -4.0]),
        Sample([1], [7], reward=1.5, success=True, truncated=True, logprobs=[-0.5]),
    ]
    config = Config(num_generations=2, mask_truncated_completions=masks)
    batch = common.make_batch(samples, config, writer_of_batch(None))
    assert batch.rewards.tolist() == [[-0.5, 1.5]]
    assert batch.successes.tolist() == [[0, 1]]
    assert batch.completion_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.loss_mask.tolist() == [[1, 1, 1], [not masks, 0, 0]]
    assert batch.sampled_logprobs.tolist() == [[-1, -2, -4], [-0.5, 0, 0]]
    for zeros in (batch.old_logprobs, batch.ref_logprobs, batch.token_weights):
        assert torch.equal(zeros, torch.zeros(2, 3))


def test_minibatches(batch, monkeypatch):
    """Their size is that over all ranks, and --num_iterations repeats them.

    The microbatches hold each row once; one with whole groups holds more than a pass may.
    """
    config = Config(num_generations=2, minibatch_size=4, num_iterations=2, microbatch_tokens=1)

    def updates(**how):
        return [sorted(sum(update, [])) for update in batch.minibatches(config, **how)]

    assert updates() == updates(whole_groups=True) == 2 * [[0, 1, 2, 3], [4, 5]]
    assert [len(update) for update in batch.minibatches(config)] == [4, 2, 4, 2]
    assert batch.minibatches(config, whole_groups=True)[1] == [[4, 5]]
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda mine: mine)
    assert updates() == 2 * [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("cap, factors", [(0.0, [1.0, 1.0]), (2.0, [1.5, 2.0])])
def test_old_logprobs_correct_the_weights_of_their_rows(batch, cap, factors):
    """The sampler's are -1, and the old policy's 1.5 and 2.5 times as likely."""
    batch.sampler.cap = cap
    batch.token_weights[:] = 0.25
    first = (f64([1.5, 2.5]).log().float() - 1)[:, None].expand(2, batch.loss_mask.shape[1])
    own = batch.completion_mask[[1, 4]]  # elsewhere the sampler's log-probs are 0
    batch.set_old_logprobs([1, 4], first)
    assert torch.equal(batch.old_logprobs[[1, 4]], first)
    near(own * batch.token_weights[[1, 4]], own * 0.25 * torch.tensor(factors)[:, None], atol=1e-6)
    others = [0, 2, 3, 5]
    assert (batch.old_logprobs[others] == 0).all() and (batch.token_weights[others] == 0.25).all()


def test_prepare_update_leaves_the_first_minibatch_to_its_own_pass(sharp, batch):
    policy, reference = sharp[0], copy.deepcopy(sharp[0])
    reference.get_output_embeddings().weight.data.mul_(0.5)
    config = Config(num_generations=2, prompts_per_step=3, minibatch_size=2, temperature=0.7)
    with torch.no_grad():
        expected, _ = common.token_logprobs(policy, batch.samples, range(6), 0.7)
        expected_ref, _ = common.token_logprobs(reference, batch.samples, range(6), 0.7)
    common.prepare_update(batch, torch.zeros(6, 1), policy, None, config)
    assert (batch.ref_logprobs == 0).all()
    weights = [common.token_weights(mask, "sequence") for mask in batch.loss_mask.split(2)]
    assert torch.equal(batch.token_weights, torch.cat(weights))
    assert (batch.old_logprobs[:2] == 0).all()
    near(batch.old_logprobs[2:], expected[2:], atol=1e-5)
    common.prepare_update(batch, torch.zeros(6, 1), policy, reference, config)
    near(batch.ref_logprobs, expected_ref, atol=1e-5)
    assert not torch.allclose(expected_ref, expected)


def test_an_exact_samplers_logprobs_are_the_old_ones(batch, monkeypatch):
    """They cost no pass: there is no policy here that could make one.

    Of the first minibatch, whose size is that over both ranks, half is this rank's.
    """
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda mine: mine)
    batch.sampler.is_exact = True
    batch.sampled_logprobs[4] = -3.0
    config = Config(num_generations=2, prompts_per_step=6, minibatch_size=4)
    common.prepare_update(batch, torch.zeros(6, 1), None, None, config)
    assert (batch.old_logprobs[:2] == 0).all()
    assert torch.equal(batch.old_logprobs[2:], batch.sampled_logprobs[2:])


def test_the_mean_logprob_of_a_completion_is_over_its_own_tokens(batch):
    """Also where it is left out of the loss; one without any token has 0."""
    batch.sampled_logprobs[2, 0] = -4.0
    batch.loss_mask[2] = 0
    batch.completion_mask[5] = 0
    lengths = [len(sample.completion_ids) for sample in batch.samples]
    expected = [[-1.0, -1.0], [-(lengths[2] + 3) / lengths[2], -1.0], [-1.0, 0.0]]
    near(batch.mean_logprobs(), expected, atol=1e-6)


# -------------------------------------------------------------------------------- token weights

# N = 3, 6 tokens
MASK = f64([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])


@pytest.mark.parametrize(
    "aggregation, others, first, second",
    [
        # N counts the row without tokens, too: a masked completion still is one of them
        ("sequence", [], 1 / 6, 1 / 12),
        ("token", [], 1 / 6, 1 / 6),
        ("constant", [], 1 / 30, 1 / 30),
        # another rank has 2 more completions, with 5 tokens in all
        ("sequence", [[2.0, 5.0]], 1 / 10, 1 / 20),
        ("token", [[2.0, 5.0]], 1 / 11, 1 / 11),
        ("constant", [[2.0, 5.0]], 1 / 50, 1 / 50),
    ],
)
def test_token_weights(monkeypatch, aggregation, others, first, second):
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda mine: [*mine, *others])
    weights = common.token_weights(MASK, aggregation, 10)
    near(weights, f64([[first], [second], [0]]) * MASK, atol=1e-15)
    assert (common.token_weights(0 * MASK, aggregation, 10) == 0).all()
    if not others:  # of a single token
        assert common.token_weights(torch.ones(1, 1), aggregation, 1) == 1


@pytest.mark.parametrize("aggregation, length", [("mean", 10), ("constant", None), ("constant", 0)])
def test_token_weights_errors(aggregation, length):
    with pytest.raises(ValueError):
        common.token_weights(MASK, aggregation, length)
    with pytest.raises(ValueError, match="neither token nor sequence"):
        ppo_clip_loss(*[MASK] * 4, importance_sampling_level="group")


# ------------------------------------------------------------------------------------- the loss


def test_the_loss_and_the_advantage_run_pasted_beside_torch_alone():
    """Two completions of 2 and 1 tokens, A = 1 and -1, each token with 1 / (n |o|).

    The ratios 1.5 and 1.1 give min(1.5, 1.28) and 1.1, and 0.5 is clipped at 0.8, where A < 0. The
    reference is twice as likely at the first token: k3 = 2 - log 2 - 1. All entropies are 2.
    """
    pasted = {"torch": torch}
    for function in (grpo.grpo_advantage, common.ppo_clip_loss):
        exec(inspect.getsource(function), pasted)
    advantages = pasted["grpo_advantage"](torch.tensor([[1.0, 0.0]])).view(-1, 1)
    old_logprobs = torch.tensor([[-2.0, -1.0], [-3.0, 5.0]])
    logprobs = old_logprobs + torch.tensor([[1.5, 1.1], [0.5, 9.0]]).log()  # 9.0 is padding
    loss, stats = pasted["ppo_clip_loss"](
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        token_weights=torch.tensor([[0.25, 0.25], [0.5, 0.0]]),
        epsilon_high=0.28,
        ref_logprobs=logprobs + torch.tensor([[math.log(2), 0.0], [0.0, 1e4]]),
        beta=0.1,
        entropy=torch.full((2, 2), 2.0),
        entropy_coef=0.01,
    )
    objective = (1.28 + 1.1) / 4 - 0.8 / 2
    kl = (1 - math.log(2)) / 4
    assert loss.item() == pytest.approx(-(objective - 0.1 * kl + 0.01 * 2), abs=1e-6)
    assert stats["kl"].flatten().tolist() == pytest.approx([1 - math.log(2), 0, 0, 0], abs=1e-6)
    assert stats["clip_low"].tolist() == [[False, False], [True, False]]
    assert stats["clip_high"].tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("limits, low, high", [((0.2,), 0.8, 1.2), ((0.3, 0.1), 0.7, 1.1)])
def test_the_clip_stops_a_step_that_has_gone_far_enough(limits, low, high, level):
    """A success that is likelier by enough, or a failure that is less likely: no gradient is left.

    A token that has gone the other way must come back: that is never clipped.
    """
    for ratio in (0.5, 0.75, 0.9, 1.05, 1.15, 1.5):
        for advantage in (2.0, 0.0, -2.0):
            logprob = f64([[math.log(ratio) - 1.0]]).requires_grad_()
            given = logprob, f64([[-1]]), f64([advantage]), torch.ones(1, 1), *limits
            found = ppo_clip_loss(*given, importance_sampling_level=level)
            found.loss.backward()
            above, below = advantage > 0 and ratio > high, advantage < 0 and ratio < low
            assert (found.clipped_low, found.clipped_high) == (below, above)
            expected = -advantage * (high if above else low if below else ratio)
            assert found.loss.item() == pytest.approx(expected, abs=1e-12)
            slope = 0 if above or below else -advantage * ratio  # d ratio / d logp is the ratio
            assert logprob.grad.item() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_padding_does_not_leak(bad, level):
    """Whatever stands beyond a row's end, loss and gradient are those with zeros there."""
    torch.manual_seed(0)
    clean, old = torch.randn(2, 3, 4, dtype=torch.float64) * MASK
    dirty, dirty_old = (values.masked_fill(MASK == 0, bad) for values in (clean, old))
    results = []
    for logprobs, old_logprobs in ((clean, old), (dirty, dirty_old), (dirty, old)):
        logprobs = logprobs.clone().requires_grad_()
        given = logprobs, old_logprobs, f64([1, -1, 2]), MASK
        result = ppo_clip_loss(*given, importance_sampling_level=level)
        result.loss.backward()
        results.append((*result, logprobs.grad))
    assert (results[0][-1] != 0).any()
    assert (results[0][-1][MASK == 0] == 0).all()
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0, atol=0)


# ------------------------------------------------------------------------------------ evaluation


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_counts_the_subsets_with_a_success(n):
    for correct, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = [*itertools.combinations([1] * correct + [0] * (n - correct), k)]
        share = sum(map(any, subsets)) / len(subsets)
        assert common.pass_at_k(n, correct, k) == pytest.approx(share, abs=1e-15)


@pytest.mark.parametrize("n, correct, k", [(4, 2, 5), (4, 2, 0), (4, 5, 2), (4, -1, 2), (0, 0, 1)])
def test_pass_at_k_errors(n, correct, k):
    with pytest.raises(ValueError):
        common.pass_at_k(n, correct, k)


def evaluator(policy, tokenizer, solutions, right, **flags):
    """A sampler of which so many of each prompt's completions are right, the first ones of a call.

    Also the problems, as many as there are numbers in `right`.
    """
    prompts = [*solutions][: len(right)]

    def write(given):
        counts, texts = Counter(), []
        for prompt in given:
            is_right = counts[prompt] < right[prompts.index(prompt)]
            texts.append(solutions[prompt] if is_right else f"<answer>{counts[prompt]}</answer>")
            counts[prompt] += 1
        return texts

    return ScriptedSampler(policy, tokenizer, write, **flags), problems_of(prompts)


def test_pass_at_10_and_100_from_200_samples(tiny, solutions):
    """With two right ones of n, k draws miss both with (n-k) (n-k-1) / (n (n-1))."""
    sampler, problems = evaluator(*tiny, solutions, [2], eval_samples=200)
    metrics = common.evaluate(sampler, {"countdown": problems}, sampler.config)
    assert metrics["pass@10"] == pytest.approx(1 - 190 * 189 / (200 * 199))
    assert metrics["pass@100"] == pytest.approx(1 - 100 * 99 / (200 * 199))


def test_evaluate_by_hand(tiny, solutions):
    """Three problems, two samples each: all wrong, all right, one right.

    The policy's head is 0, so that each token is as likely as any other.
    """
    policy, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    policy.get_output_embeddings().weight.data.zero_()
    sampler, problems = evaluator(policy, tokenizer, solutions, [0, 2, 1], eval_samples=2)
    metrics = common.evaluate(sampler, {"countdown": problems}, sampler.config)
    texts = [solutions[problem.prompt] for problem in problems]
    _, second, third, wrong = [
        len(text) for text in tokenizer([*texts, "<answer>0</answer>"]).input_ids
    ]
    expected = {
        "pass@1": (0 + 1 + 1 / 2) / 3,
        "pass@2": (0 + 1 + 1) / 3,
        "avg@2": 1 / 2,
        "greedy": 2 / 3,
        # answers 0 and 1; one twice; the solution and 1
        "answer_entropy": (math.log(2) + 0 + math.log(2)) / 3,
        "token_entropy": math.log(policy.config.vocab_size),
        "reward": 3 / 6,
        "all_wrong": 1 / 3,
        "all_right": 1 / 3,
        "length": (2 * second + third + 3 * wrong) / 6 + 1,
        "truncated": 0,
        "unparsed": 0,
        "timeout": 0,
    }
    assert metrics == pytest.approx(expected, abs=1e-6)
    assert sampler.asleep


def test_an_evaluation_has_a_temperature_of_its_own(sharp, solutions):
    """It is the sampler's and the entropy's; greedy completions have none, and no top_p."""
    policy, tokenizer = sharp
    flags = dict(eval_samples=9, temperature=1.5, eval_temperature=0.5, top_p=0.9)
    sampler, problems = evaluator(*sharp, solutions, [1], **flags)
    metrics = common.evaluate(sampler, {"countdown": problems}, sampler.config)
    assert [call[1:3] for call in sampler.calls] == [(0.5, 0.9), (0.0, 1.0)]
    prompt = tokenizer.encode(problems[0].prompt)
    entropies = []
    for completion in sampler.completions[0][:8]:  # of more it tells as much
        with torch.no_grad():
            (logits,) = policy(torch.tensor([prompt + completion])).logits
        for row in logits[len(prompt) - 1 : -1]:
            entropies.append(torch.distributions.Categorical(logits=row / 0.5).entropy().item())
    expected = sum(entropies) / len(entropies)
    assert metrics["token_entropy"] == pytest.approx(expected, abs=1e-5)


def test_the_entropy_of_an_evaluation_is_over_the_policys_own_tokens(tiny, solutions, monkeypatch):
    """A tool has written all tokens but the first of each completion. The policy is uniform."""
    policy, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    policy.get_output_embeddings().weight.data.zero_()
    sampler, problems = evaluator(policy, tokenizer, solutions, [2], eval_samples=2)
    plain = common.sample_groups

    def with_a_tool(*given):
        groups = plain(*given)
        for sample in sum(groups, []):
            sample.replies.append(range(1, len(sample.completion_ids)))
        return groups

    monkeypatch.setattr(common, "sample_groups", with_a_tool)
    metrics = common.evaluate(sampler, {"countdown": problems}, sampler.config)
    assert metrics["length"] == 1
    assert metrics["token_entropy"] == pytest.approx(math.log(policy.config.vocab_size), abs=1e-5)


def test_two_ranks_evaluate_as_one(sharp, solutions, monkeypatch):
    """Each has three of six problems, and its own random numbers; the metrics are of all six.

    The ranks run one after the other here: the second one gathers what the first one has given.
    """
    right, flags = [0, 1, 2, 3, 4, 4], dict(eval_samples=4, seed=7)
    sampler, problems = evaluator(*sharp, solutions, right, **flags)
    expected = common.evaluate(sampler, {"countdown": problems}, sampler.config)
    assert 0 < expected["pass@1"] < expected["greedy"] == 5 / 6
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    given, seeds = {0: [], 1: []}, []

    def gather(mine):
        number = len(given[world.RANK])
        given[world.RANK].append(mine)
        others = given[0][number] if world.RANK == 1 else []
        return others + mine

    monkeypatch.setattr(rlvr.machine.ranks, "gather", gather)
    for module in (common, rlvr.rollout.rollouts):
        monkeypatch.setattr(module, "gather", gather)
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    for rank in (0, 1):
        monkeypatch.setattr(world, "RANK", rank)
        sampler, _ = evaluator(*sharp, solutions, right, **flags)
        found = common.evaluate(sampler, {"countdown": problems}, sampler.config)
        assert [call[0] for call in sampler.calls] == [12, 3]
    assert found == pytest.approx(expected, rel=1e-5)
    assert seeds == [7, 1007]


@pytest.mark.parametrize("asked, given", [(8, 8), (500, 30 - 10)])
def test_evaluation_stays_within_the_context(tiny, asked, given):
    """The protocols' completions of 4,096 tokens are longer than some policies' contexts allow."""
    policy = copy.deepcopy(tiny[0])
    policy.config.max_position_embeddings = 30
    prompts = ("3 9 : 12 ", "11 9 : 20 ")  # the longer one has 10 tokens
    flags = dict(eval_samples=2, eval_max_completion_length=asked)
    sampler = ScriptedSampler(policy, tiny[1], lambda given: ["1"] * len(given), **flags)
    common.evaluate(sampler, {"countdown": problems_of(prompts)}, sampler.config)
    assert [call[-1] for call in sampler.calls] == [given, given]


def test_evaluate_several_sets_and_levels(tiny, solutions):
    """Names stand before the metrics of several sets; levels count where there are several."""
    sampler, problems = evaluator(*tiny, solutions, [2, 1, 0], eval_samples=2)
    easy, *hard = [
        replace(problem, level=level)
        for problem, level in zip(problems, ["easy", "hard", "hard"], strict=True)
    ]
    metrics = common.evaluate(sampler, {"a": [easy, *hard], "b": hard[:1]}, sampler.config)
    found = [metrics[name] for name in ("a/pass@1 easy", "a/pass@1 hard", "a/pass@1")]
    assert found == pytest.approx([1, 1 / 4, 1 / 2])
    assert metrics["a/greedy"] == 2 / 3
    assert (metrics["b/pass@1"], metrics["b/greedy"]) == (1 / 2, 1)
    assert "b/pass@1 hard" not in metrics
    assert "pass@1" not in metrics


def test_evaluate_has_a_random_stream_of_its_own(sharp, solutions):
    sampler = Sampler(*sharp, Config(rollout_batch_size=16), common.decode)
    problems = {"countdown": problems_of([*solutions][:4])}
    config = Config(eval_samples=4, max_completion_length=12, seed=3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = common.evaluate(sampler, problems, config)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert common.evaluate(sampler, problems, config) == first
    other = common.evaluate(sampler, problems, replace(config, seed=4))
    assert other["token_entropy"] != first["token_entropy"]
