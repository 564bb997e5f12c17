"""common.py: rollouts and their batch, log-probs, the loss, what is logged, evaluation."""

import contextlib
import copy
import math
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.problems import Problem, ProblemStream, Sample
from rlvr.training import check_advantages
from rlvr.training.checkpoints import check_memory
from rlvr.training.run import read_metrics

import numpy as np
import pytest
import torch
from groups import kl_penalty, near, ppo_clip_loss
from samples import PROMPTS, by_the_logits, writer_of_batch

import common

PROBLEMS = [Problem(prompt, prompt) for prompt in PROMPTS]


class Scripted:
    """A sampler in place of a policy's, and common.sample_groups of it.

    right(problem) is how many completions of a group are right, the first ones; their reward is 1.
    The others have different rewards and answers. `calls` has what common.py asks for: how many
    groups of which size, the temperature, the length, and top_p. `groups` are these.
    """

    devices, gap, cap, is_exact, asleep = (), None, 0.0, False, True

    def __init__(self, policy, tokenizer, right, replies=(), **flags):
        self.policy, self.tokenizer = policy, tokenizer
        self.right, self.replies, self.config = right, replies, Config(**flags)
        self.calls, self.groups = [], []

    def sample_groups(self, problems, size, **how):
        assert not self.asleep
        self.calls.append((len(problems), size, how))
        groups = [self.group_of(problem, size) for problem in problems]
        self.groups += groups
        return groups

    def group_of(self, problem, size):
        prompt, right = self.tokenizer.encode(problem.prompt), self.right(problem)
        group = []
        for i in range(size):
            ids = [*range(3, 11), 1] if i < right else [4, 5 + i % 9, 7, 6, 1]
            text = f"{i} <answer>{'R' if i < right else i}</answer>"
            reward = 1.0 if i < right else 0.5 * (i % 2)
            given = dict(logprobs=[-1.0] * len(ids), success=i < right, replies=self.replies)
            group.append(Sample(prompt, ids, text, reward, **given))
        return group

    @contextlib.contextmanager
    def synced(self):
        self.asleep = False
        yield
        self.asleep = True


@pytest.fixture(autouse=True)
def groups_of_the_script(monkeypatch):
    monkeypatch.setattr(common, "sample_groups", Scripted.sample_groups)


def roll_out(tiny, script, **flags):
    """A rollout of 4 prompts in groups of two, each a letter of the script.

    Both are right in a group of "R", none in one of "W", and of an "M", for mixed, the first one.
    Return the groups of the batch in letters, and how many groups each call drew: from all tokens,
    at the temperature of the loss, whatever the evaluation has.
    """
    how = dict(prompts_per_step=4, num_generations=2, minibatch_size=8, temperature=0.7)
    how |= dict(max_completion_length=50, eval_max_completion_length=9, top_p=0.9)
    letters = iter(script.replace(" ", ""))
    sampler = Scripted(*tiny, lambda _: "WMR".index(next(letters)), **how | flags)
    stream = ProblemStream(PROBLEMS, 0)
    batch = common.roll_out(sampler, stream, sampler.config)
    found, first = (
        "".join("WMR"[int(solved)] for solved in successes.sum(1))
        for successes in (batch.successes, batch.first_successes)
    )
    assert first == script[:4]  # also of groups that were drawn again
    assert batch.rewards.flatten().tolist() == [sample.reward for sample in batch.samples]
    counts = [count for count, *_ in sampler.calls]
    sampled = dict(temperature=0.7, max_tokens=50)
    assert [call[1:] for call in sampler.calls] == [(2, sampled)] * len(sampler.calls)
    assert stream.position == world.WORLD_SIZE * sum(counts)
    assert batch.sampler is sampler and sampler.asleep and batch.seconds > 0
    return found, counts


@pytest.mark.parametrize(
    "script, letters, calls",
    [
        ("MWRM WM M", "MMMM", [4, 2, 1]),
        ("WRWR WWWM RRR MRW", "MMRW", [4, 4, 3, 3]),  # filled up after the last redraw
    ],
)
def test_dynamic_sampling(tiny, script, letters, calls):
    """Groups without contrast are drawn again, and only those; the batch is always whole."""
    assert roll_out(tiny, script, dynamic_sampling=True) == (letters, calls)
    assert roll_out(tiny, script[:4]) == (script[:4], [4])  # without it


def test_a_rank_draws_as_many_groups_as_the_rank_that_lacks_most(tiny, monkeypatch):
    """Drawing is done together. This rank lacks one group, another one lacks three."""
    monkeypatch.setattr(common, "global_max", lambda missing: max(missing, 3))
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(common, "MAX_REDRAWS", 1)
    found = roll_out(tiny, "MMWM RWM", dynamic_sampling=True, prompts_per_step=8)
    assert found == ("MMMM", [4, 3])


@pytest.mark.parametrize("masks", [False, True])
def test_make_batch(masks, monkeypatch):
    """A stop token that is also the padding, here 0, counts; a tool's token, the 9, does not."""
    first = dict(reward=-0.5, logprobs=[-1.0, -2.0, 0.0, -4.0], replies=[range(2, 3)])
    samples = [
        Sample([1], [2, 0, 9, 0], **first),
        Sample([1], [7], reward=1.5, success=True, truncated=True, logprobs=[-0.5]),
    ]
    config = Config(num_generations=2, mask_truncated_completions=masks)
    batch = common.make_batch(samples, config, writer_of_batch(None))
    assert batch.rewards.tolist() == [[-0.5, 1.5]]
    assert batch.successes.tolist() == [[0, 1]]
    assert batch.completion_mask.tolist() == [[1, 1, 0, 1], [1, 0, 0, 0]]
    assert batch.loss_mask.tolist() == [[1, 1, 0, 1], [not masks, 0, 0, 0]]
    assert batch.sampled_logprobs.tolist() == [[-1, -2, 0, -4], [-0.5, 0, 0, 0]]
    near(batch.mean_logprobs(), [[-7 / 3, -0.5]], atol=1e-6)  # also if the loss leaves one out
    batch.sampler.gap = 0.0
    monkeypatch.setattr(common, "global_max", lambda gap: gap + 0.5)  # another rank has more
    batch.old_logprobs[0, 0], batch.old_logprobs[1, 3] = -1.5, 9.0  # which is padding
    logged = batch.metrics()  # by all tokens that the policy wrote
    assert (logged["all_wrong"], logged["sampler_gap"]) == (0, 0.5)
    assert logged["mismatch"] == (0.5 + 2 + 4 + 0.5) / 4
    k3 = sum(math.exp(d) - 1 - d for d in (-0.5, 2, 4, 0.5)) / 4
    assert logged["mismatch_k3"] == pytest.approx(k3)
    assert logged["mismatch_max_ratio"] == pytest.approx(math.exp(4))
    batch.completion_mask[1] = 0
    assert batch.mean_logprobs()[0, 1] == 0  # of a completion without any token
    batch.sampler.policy.device = "meta"
    found = vars(common.make_batch(samples, config, batch.sampler)).values()
    assert {x.device.type for x in found if isinstance(x, torch.Tensor)} == {"meta"}


def test_what_has_no_meaning_is_refused():
    mask = torch.ones(1, 2)
    for aggregation, max_completion_length in (("mean", 10), ("constant", None)):
        with pytest.raises(ValueError, match=f"^{aggregation=} with {max_completion_length=}$"):
            common.token_weights(mask, aggregation, max_completion_length)
    for aggregation in ("sequence", "token", "constant"):  # where all completions are left out
        assert not common.token_weights(0 * mask, aggregation, 10).any()
    with pytest.raises(ValueError, match="neither token nor sequence"):
        ppo_clip_loss(*[mask] * 4, importance_sampling_level="group")
    for n, right, k in ((4, 2, 5), (4, 2, 0), (4, 5, 2), (4, -1, 2)):
        with pytest.raises(ValueError, match=f"^pass@{k} of {n} samples with {right} correct$"):
            common.pass_at_k(n, right, k)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(
    "broken",  # one token of a minibatch
    [
        {},
        dict(old_logprobs=-1e4, advantages=-1.0),  # an infinite ratio that is not clipped
        dict(old_logprobs=math.nan),
        dict(ref_logprobs=1e4),  # an infinite KL
    ],
)
def test_a_loss_that_is_not_finite_has_no_finite_gradient(broken, level):
    """optimizer_step looks at the gradient's norm alone, and leaves such an update out."""
    logprobs, ones = torch.full((2, 3), -1.0, requires_grad=True), torch.ones(2, 3)
    given = dict(old_logprobs=-ones, ref_logprobs=-ones, advantages=ones.clone())
    for part, value in broken.items():
        given[part][1, 2] = value
    given |= dict(logprobs=logprobs, loss_mask=ones, token_weights=ones / 6, beta=0.1)
    loss, _ = common.ppo_clip_loss(**given, importance_sampling_level=level)
    loss.backward()
    assert math.isfinite(logprobs.grad.norm()) == (not broken)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("advantage, expected", [(0.0, 0.0), (2.0, -2 * 1.2)])
def test_an_overflow_that_the_clip_hides_leaves_the_loss_finite(advantage, expected, level):
    """Where A >= 0, the term is min(inf, 1.2) A: a constant, which has no gradient."""
    logprobs, ones = torch.full((1, 2), -1.0, requires_grad=True), torch.ones(1, 2)
    given = dict(old_logprobs=-1e4 * ones, advantages=advantage * ones[:, :1], loss_mask=ones)
    given |= dict(logprobs=logprobs, token_weights=ones / 2, importance_sampling_level=level)
    loss, stats = common.ppo_clip_loss(**given)
    loss.backward()
    assert loss.item() == pytest.approx(expected)
    assert (logprobs.grad == 0).all() and stats["clip_high"].all() == (advantage > 0)


def test_the_kl_penalty_needs_beta_and_a_reference_and_is_exact_near_0():
    """There it is x^2 / 2, where exp(x) - 1 - x in fp32 has nothing left."""
    one = torch.ones(1, 1)
    given = dict(logprobs=one, old_logprobs=one, advantages=one, loss_mask=one, token_weights=one)
    for alone in (dict(ref_logprobs=0 * one), dict(beta=0.1)):
        assert not common.ppo_clip_loss(**given, **alone)[1]["kl"].any()
    assert kl_penalty(torch.zeros(1), torch.tensor([1e-4])).item() == pytest.approx(5e-9, rel=1e-2)


def evaluate(policy, tokenizer, right, sets=None, **flags):
    """The metrics of one problem for each number in `right`, and the sampler.

    The number says how many of the problem's completions are right.
    """
    counts = dict(zip(PROMPTS, right, strict=False))
    sampler = Scripted(policy, tokenizer, lambda problem: counts[problem.prompt], **flags)
    sets = sets or {"one": PROBLEMS[: len(counts)]}
    return common.evaluate(sampler, sets, sampler.config), sampler


def test_pass_at_10_and_100_from_200_samples(tiny):
    """With two right ones of n, k draws miss both with (n-k) (n-k-1) / (n (n-1))."""
    (metrics,), _ = evaluate(*tiny, [2], eval_samples=200)
    ks = [1, 2, 4, 8, 10, 16, 32, 64, 100, 128, 200]
    expected = {f"pass@{k}": 1 - (200 - k) * (199 - k) / (200 * 199) for k in ks}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert math.isnan(metrics["pass@1_se"])  # of one problem
    assert "pass@10" not in evaluate(*tiny, [2], eval_samples=199)[0][0]


def test_evaluate_by_hand(tiny):
    """Three problems, two samples each: all wrong, all right, one right; a set has one of them."""
    # The policy's head is 0, so that each token is as likely as any other. There is
    # a row for each set; levels count where there are several. Completions end with the context. An
    # evaluation has random numbers of its own.
    policy, state = copy.deepcopy(tiny[0]), torch.get_rng_state()
    policy.get_output_embeddings().weight.data.zero_()
    policy.config.max_position_embeddings = 30  # the longest prompt of three has 13 tokens
    levels = ["", "hard", "hard"]
    easy, *hard = [
        replace(p, level=x, id=i) for p, x, i in zip(PROBLEMS, levels, (5, 6, 7), strict=False)
    ]
    sets = {"a": [easy, *hard], "b": hard[:1]}
    flags = dict(eval_samples=2, eval_max_completion_length=500, seed=3)
    (metrics, of_b), sampler = evaluate(policy, tiny[1], [0, 2, 1], sets=sets, **flags)
    expected = {"pass@1": (0 + 1 + 1 / 2) / 3, "pass@1 no level": 0, "pass@1 hard": 3 / 4}
    expected |= {"pass@2": (0 + 1 + 1) / 3, "greedy": 2 / 3}
    # shares 0, 1, 1/2 and 0, 1, 1
    expected |= {"pass@1_se": 1 / 2 / 3**0.5}
    expected |= dict.fromkeys(["pass@2_se", "greedy_se"], (1 / 3) ** 0.5 / 3**0.5)
    # answers 0 and 1; one twice; the right one and 1
    expected |= dict(answer_entropy=(math.log(2) + 0 + math.log(2)) / 3)
    expected |= dict(token_entropy=math.log(policy.config.vocab_size), problems=3, samples=2)
    expected |= dict(reward=(0 + 0.5 + 2 + 1 + 0.5) / 6, all_wrong=1 / 3, all_right=1 / 3)
    expected |= dict(reward_std=((3 * 1 + 2 * 0.5**2) / 6 - (4 / 6) ** 2) ** 0.5)
    expected |= dict(length=(3 * 9 + 3 * 5) / 6, length_max=9, length_right=9, length_wrong=5)
    expected |= dict(truncated=0, unparsed=0, timeout=0)
    by_problem = metrics.pop("by_problem")
    assert (metrics.pop("set"), of_b["set"]) == ("a", "b")
    assert metrics == pytest.approx(expected, abs=1e-6)
    assert of_b["pass@1"] == 1 and "pass@1 hard" not in of_b
    assert [(row["right"], row["samples"]) for row in by_problem] == [(0, 2), (2, 2), (1, 2)]
    found = [(row["id"], row["level"]) for row in by_problem]
    assert found == [*zip((5, 6, 7), levels, strict=True)]
    greedy = [(0, "0 <answer>0</answer>"), *[(1, "0 <answer>R</answer>")] * 2]
    assert [(row["greedy"], row["greedy_text"]) for row in by_problem] == greedy
    assert [how["max_tokens"] for *_, how in sampler.calls[:2]] == [30 - 13] * 2
    assert sampler.asleep and torch.equal(torch.get_rng_state(), state)


def test_an_evaluation_has_a_temperature_of_its_own(sharp):
    """It is the sampler's and the entropy's; greedy completions have none, and no top_p."""
    # The entropy is over the policy's own tokens: a tool has written the second and the third.
    flags = dict(eval_samples=9, temperature=1.5, eval_temperature=0.5, top_p=0.9)
    flags |= dict(eval_max_completion_length=8)
    (metrics,), sampler = evaluate(*sharp, [1], replies=[range(1, 3)], **flags)
    sampled = dict(temperature=0.5, max_tokens=8, top_p=0.9)
    assert sampler.calls == [(1, 9, sampled), (1, 1, dict(temperature=0.0, max_tokens=8))]
    of_samples = [by_the_logits(sharp[0], each, 0.5)[1] for each in sampler.groups[0][:8]]
    entropies = torch.cat([each[[0, *range(3, len(each))]] for each in of_samples])
    assert metrics["token_entropy"] == pytest.approx(entropies.mean().item(), abs=1e-5)


def test_two_ranks_evaluate_as_one(sharp, monkeypatch):
    """Each has three of six problems, and its own random numbers; the metrics are of all six."""
    # The ranks run one after the other here: the second one gathers what the first one has given.
    given = *sharp, [0, 1, 2, 3, 4, 4]
    (expected,), _ = evaluate(*given, eval_samples=4, seed=7)
    by_problem = expected.pop("by_problem")
    assert 0 < expected["pass@1"] < expected["greedy"] == 5 / 6
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    of_first_rank, seeds = [], []

    def gather(mine):
        if world.RANK == 1:
            return of_first_rank.pop(0) + mine
        of_first_rank.append(mine)
        return mine

    for module in ("common", "rlvr.rollout.rollouts", "rlvr.machine.ranks"):
        monkeypatch.setattr(f"{module}.gather", gather)
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    for rank in (0, 1):
        monkeypatch.setattr(world, "RANK", rank)
        (found,), sampler = evaluate(*given, eval_samples=4, seed=7)
        assert [call[:2] for call in sampler.calls] == [(3, 4), (3, 1)]
    assert sorted(found.pop("by_problem"), key=str) == sorted(by_problem, key=str)
    assert found.pop("set") == expected.pop("set")
    assert found == pytest.approx(expected, rel=1e-5)
    assert seeds == [7, 1007]


def test_advantages_of_another_shape_or_with_a_gradient_are_refused():
    """Where m is T, [m] would broadcast along the wrong axis."""
    rewards, mask = torch.zeros(4, 4), torch.ones(16, 8)
    for advantages, says in (
        (torch.zeros(8, 4), r"have the shape \[8, 4\], not \[B, G\] = \[4, 4\]"),
        (torch.zeros(4, 4, requires_grad=True), r"have a gradient of their own: add .detach\(\)"),
        ([[0.0]], "are a list, not a torch.Tensor"),
    ):
        with pytest.raises(UserError, match=says):
            check_advantages(rewards, mask, advantages)
    square, column = torch.zeros(3, 3), torch.zeros(3, 1)
    given = dict(logprobs=square, loss_mask=square, token_weights=square)
    for old, advantages, says in (
        (square, torch.zeros(3), r"are \[3\], not \[3, 1\] or \[3, 3\]"),
        (square, column.T, r"are \[1, 3\], not \[3, 1\] or \[3, 3\]"),
        (torch.zeros(3, 3, requires_grad=True), column, "add .detach"),
    ):
        with pytest.raises(ValueError, match=says):
            common.ppo_clip_loss(old_logprobs=old, advantages=advantages, **given)


def test_metrics_of_your_own_are_numbers():
    """A tensor would be logged as text, and drawn as a category."""
    assert read_metrics({"mine": torch.tensor(0.25), "other": 2}, {}) == {"mine": 0.25, "other": 2}
    for own, says in (
        (None, "beside the advantages are None, not a dict"),
        ({"reward": 1.0}, "logs a metric 'reward' already"),
        ({"mine": torch.ones(2)}, "'mine' is no number, but tensor"),
        ({"mine": "high"}, "'mine' is no number"),
    ):
        with pytest.raises(UserError, match=says):
            read_metrics(own, {"reward": 0.5})


def test_what_a_checkpoint_cannot_hold_is_named():
    """Else no checkpoint of the run could be loaded."""
    check_memory(SimpleNamespace(a=0.5, b=[1, "x"], c={"y": torch.ones(2)}, d=None))
    for value in (np.float64(0.5), deque([1])):
        with pytest.raises(UserError, match="cannot hold average = .*, by float"):
            check_memory(SimpleNamespace(average=value))
