"""studies/baselines/: each method by its flags, and its losses by hand, by loops, and by verl."""

import ast
import copy
import importlib.util
import math
import statistics
from pathlib import Path
from types import SimpleNamespace

from rlvr.policy import load_policies
from rlvr.training import Run

import numpy as np
import pytest
import torch
from groups import f64, kl_penalty, near, rollout_of
from runs import before_calls, refused, rows
from samples import by_the_logits
from test_steps import T, batch_of, given_samples
from torch.nn.functional import pad
from torch.nn.utils import parameters_to_vector

import common
import grpo
from studies.baselines import baselines
from studies.baselines.baselines import Config
from studies.baselines.losses import LOSSES, high_entropy_mask, icepop, loss_with, otb


def test_list_has_a_line_for_each_method(capsys):
    baselines.list_methods()
    assert len({*capsys.readouterr().out.splitlines()}) == len(baselines.METHODS)


@pytest.mark.usefixtures("no_evaluation")
def test_a_teacher_and_a_stale_rollout(run, monkeypatch):
    """The second rollout is by the first weights, and so is pi_old; the update has its own.

    Each token's advantage is log pi_teacher - log pi of the policy that wrote it.
    """
    teacher, _, _ = load_policies(grpo.configure(model="strong"))
    batches, terms, ends = [], [], []

    def prepared(batch, advantages, policy, *_):
        batches.append((batch.samples, advantages.flatten(0, 1), copy.deepcopy(policy)))

    def at_end(run, step):
        ends.append(parameters_to_vector(run.training.policy.parameters()).clone())

    before_calls(monkeypatch, common, "prepare_update", prepared)
    before_calls(monkeypatch, baselines, "dropped_tokens", lambda _, **given: terms.append(given))
    before_calls(monkeypatch, Run, "end_step", at_end)
    flags = dict(staleness=1, num_iterations=2, learning_rate=1e-3, microbatch_tokens=10**4)
    assert run("baselines", teacher="strong", **flags).code == 0
    (*_, first), (samples, advantages, second) = batches
    assert torch.equal(parameters_to_vector(second.parameters()), ends[0])
    for sample, of_tokens in zip(samples, advantages, strict=True):
        by_teacher, by_first, by_second = (
            by_the_logits(policy, sample)[0].detach() for policy in (teacher, first, second)
        )
        near(torch.tensor(sample.logprobs), by_first, atol=1e-4)
        near(of_tokens[: len(by_first)], by_teacher - by_first, atol=1e-4)
        assert (by_first - by_second).abs().max() > 1e-3
    apart = [(each["logprobs"] - each["old_logprobs"]).abs().max() for each in terms]
    assert len(apart) == 8 and apart[0] < 1e-4 < 1e-2 < min(apart[2:])  # two minibatches, twice
    assert all(each["old_logprobs"].equal(each["sampled_logprobs"]) for each in terms)


@pytest.mark.usefixtures("no_evaluation")
def test_what_a_run_does_with_its_method(run, monkeypatch):
    """IcePop needs weights. 80/20 leaves some four fifths of the tokens without a gradient."""
    # In groups of 4 the largest |A| of the plain mean is 3/4, where one is right.
    assert refused(run("baselines", importance="icepop"), "baselines", "--importance icepop")
    called = []
    before_calls(monkeypatch, baselines.losses, "icepop", lambda *given: called.append(given))
    flags = dict(token="high_entropy", importance="icepop", vllm_importance_sampling_cap=2.0)
    flags |= dict(advantage="mean", equalize_learning_rate=True, learning_rate=1e-3)
    assert run("baselines", max_steps=1, **flags).code == 0
    (row,) = rows("run")
    assert called and 0.7 < row["dropped"] < 0.9
    assert row["learning_rate"] == pytest.approx(1e-3 * math.sqrt(3) / (3 / 4))
    start, *_, end = rows("run", "eval")
    assert start["r1"] == 0 < end["r1"]  # of the head's change


def computed(successes, lengths=2, texts=(), worth=1.0, beta=None, step=1, **flags):
    """compute_advantages of one rollout of 12 tokens at most; a success has the reward `worth`."""
    lengths = torch.as_tensor(lengths).expand(successes.shape).reshape(-1, 1)
    written = (torch.arange(12) < lengths).double()
    known = dict(rewards=worth * successes, completion_mask=written, texts=lambda: texts)
    known["loss_mask"] = 0 * written  # what a completion's length is does not depend on it
    batch = rollout_of(successes, **known)
    config = Config(max_completion_length=12, advantage_beta=beta, **flags)
    config.check()
    return baselines.compute_advantages(batch, config, step)


def advantages_of(*given, **flags):
    return computed(*given, **flags)[0]


def test_the_log_schedule_of_fade():
    """Eqs. 17-18: it starts at alpha 2 and delta 1, and ends at 1.917 and 0.802."""
    # At a third of 3 x 8500 steps alpha has log 2 / log 4 of its way.
    flags = dict(advantage="power", log_schedule=True, max_steps=25500)
    way = math.log(1 + 8500 / 12264) / math.log(1 + 25500 / 12264)
    points = (0, 2.0, 1.0), (8500, 2 - 0.083 / 2, 1 - 0.198 * way), (25500, 1.917, 0.802)
    for step, alpha, delta in points:
        success, failure = 0.75 ** (alpha - 1) * 0.75, 0.75 ** (alpha - 1) * -0.25 / delta
        found = advantages_of(f64([[1, 0, 0, 0]]), step=step, **flags)
        near(found, f64([[success] + [failure] * 3]))


def test_flags_of_an_advantage_and_the_masses_logged():
    """By hand at p = 1/4. The masses (section 8) are p A of a success, and q |A| of a failure."""
    successes, root3 = f64([[1, 0, 0, 0]]), math.sqrt(3)
    advantages, logged = computed(successes, worth=2.0, advantage="w_reinforce")
    near(advantages, [[0.1, -1, -1, -1]])
    assert logged == pytest.approx(dict(m_S=0.1 / 4, m_F=3 / 4))
    near(advantages_of(successes, negatives_only=True), [[0, *[-1 / root3] * 3]], atol=1e-7)
    near(advantages_of(successes, advantage="quantile", tau=0.25), successes)  # less 0 up to tau
    # gamma is 1/2, and sqrt(p), too
    flags = dict(worth=2.0, advantage="hard_focused", scale_rewards=False)
    near(advantages_of(successes, **flags), [[1.5, -0.5, -0.5, -0.5]])


def test_what_is_added_to_a_reward():
    """RLOO's advantage is 4/3 of the distance to the mean of four rewards."""
    texts = [f"<think>1+1</think>{answer}" for answer in ("\\boxed{2}", "<answer>2</answer>")]
    given = f64([[1, 0, 1, 0]]), 2, [texts[0]] * 2 + [texts[1]] * 2
    for flags, rewards in (
        (dict(format_share=0.9), [1.0, 0.9, 0.1, 0.0]),  # boxed and thought, as in agrae.py
        (dict(format_weight=0.5), [1.0, 0.0, 1.5, 0.5]),  # the answer in tags, as in cwgrpo.py
        (dict(format_weight=0.5, format_tags="think"), [1.5, 0.5, 1.5, 0.5]),
    ):
        expected = 4 / 3 * (f64([rewards]) - sum(rewards) / 4)
        near(advantages_of(*given, advantage="rloo", **flags), expected, atol=1e-6)


COMPLETIONS, LONGEST = 32, 12  # N, T


def random_batch(seed: int) -> SimpleNamespace:
    """What a loss takes, in float64 and [N, T], of a minibatch with two masked completions.

    Ratios to the old policy are some 0.2 to 5, and to the reference below verl's limit of the KL.
    """
    random = torch.Generator().manual_seed(seed)
    shape = (COMPLETIONS, LONGEST)

    def normal(scale):
        return scale * torch.randn(shape, generator=random, dtype=torch.float64)

    lengths = torch.randint(1, LONGEST + 1, (shape[0], 1), generator=random)
    mask = (torch.arange(LONGEST) < lengths).double()
    mask[[1, 6]] = 0  # truncated
    logprobs = -normal(1).abs()
    advantages = 1 + normal(1)  # of both signs, and the loss is no small difference of large sums
    return SimpleNamespace(
        advantages=advantages,
        loss_mask=mask,
        logprobs=logprobs,
        old_logprobs=logprobs + normal(0.6),
        sampled_logprobs=logprobs.clamp(min=-3) - 0.5,
        ref_logprobs=logprobs + normal(0.5).clamp(-2, 2),
        entropy=normal(1).abs(),
    )


def value_and_slope(name, pi, old, advantages, **given):
    """What a loss maximises, and its derivative in log pi: [2, tokens]."""
    logprobs = f64([pi]).log().requires_grad_()
    log_ratio = logprobs - f64([old]).log()
    shared = dict(log_ratio=log_ratio, ratio=log_ratio.exp(), logprobs=logprobs)
    value = LOSSES[name](**shared, advantages=f64([advantages]), **given)
    return torch.cat([value.detach(), *torch.autograd.grad(value.sum(), logprobs)])


def test_dppo_ipo_up_dro_and_sapo_by_hand():
    """Three successes and two failures."""
    pi, old = [0.05, 0.75, 0.40, 0.10, 0.90], [0.01, 0.50, 0.40, 0.50, 0.60]
    sampled = f64([[0.01, 0.50, 0.75, 0.45, 0.61]]).log()
    advantages, ratios = [2.0, 2.0, 2.0, -3.0, -3.0], [5.0, 1.5, 1.0, 0.2, 1.5]
    # DPPO drops what has moved far along A: by 0.25 and by -0.4, but not by 0.3 against it.
    expected = [5.0 * 2, 0.0, 1.0 * 2, 0.0, 1.5 * -3]
    found = value_and_slope("dppo", pi, old, advantages, epsilon=0.28, epsilon_high=0.2)
    near(found, [expected] * 2)
    # IPO drops whatever has moved by more than 0.3 from the sampler's policy.
    kept = [1, 1, 0, 0, 1]  # the third would rise, and the fourth fell
    expected = [k * r * a for k, r, a in zip(kept, ratios, advantages, strict=True)]
    near(value_and_slope("ipo", pi, old, advantages, sampled_logprobs=sampled), [expected] * 2)
    # Of UP's failures the fourth is clipped, at 0.8, and the fifth is not.
    logs = [math.log(p) for p in pi]
    values = [*(2 * x for x in logs[:3]), 0.8 * -3, 1.5 * -3]
    near(value_and_slope("up", pi, old, advantages, epsilon=0.2), [values, [2, 2, 2, 0, -4.5]])
    penalties = [math.log(r) for r in ratios]
    terms = [*zip(logs, advantages, penalties, strict=True)]
    values = [a * x - 0.2 * d**2 for x, a, d in terms]
    slopes = [a - 0.4 * d for _, a, d in terms]
    near(value_and_slope("dro", pi, old, advantages, coef=0.4), [values, slopes])
    # SAPO's tau is 1 for a success, and 1.05 for a failure.
    terms = [*zip([1, 1, 1, 1.05, 1.05], ratios, advantages, strict=True)]
    gates = [1 / (1 + math.exp(-tau * (r - 1))) for tau, r, _ in terms]
    values = [4 / tau * gate * a for gate, (tau, _, a) in zip(gates, terms, strict=True)]
    slopes = [4 * gate * (1 - gate) * r * a for gate, (_, r, a) in zip(gates, terms, strict=True)]
    near(value_and_slope("sapo", pi, old, advantages), [values, slopes])


def test_dropped_tokens():
    """PPO-clip loses what is clipped, CISPO nothing, and a mask of responses whole ones, too."""
    batch = random_batch(2)
    batch.advantages = a = batch.advantages[:, :1]
    rho, mask = (batch.logprobs - batch.old_logprobs).exp(), batch.loss_mask
    mean = (rho.log() * mask).sum(1, True) / mask.sum(1, True).clamp(min=1)
    rules = {
        "ppo_clip": torch.where(a > 0, rho > 1.2, rho < 0.8),
        "cispo": a.isnan(),
        "sequence mask": torch.where(a > 0, rho > 1.2, (rho < 0.8) | (mean < -0.1)),
    }
    given = vars(batch) | dict(token_weights=mask, epsilon=0.2, epsilon_high=None)
    given |= dict(beta=0.1, entropy_coef=0.1)
    for name, rule in rules.items():
        threshold = 0.1 if name == "sequence mask" else None
        found = baselines.dropped_tokens(loss_with(LOSSES.get(name), threshold), **given)
        found, rule = found[mask > 0], rule.expand_as(rho)[mask > 0]
        assert torch.equal(found > 0, rule), name
        assert name == "cispo" or 0 < found.mean() < 1, name


def test_kl_cov_holds_back_the_highest_covariance():
    """Of five tokens the third and the fifth, a failure; the sixth is off the mask."""
    # The mean of log2 pi is -2.6, that of A is 0, and their products are -1.4, -0.6, 3.2, 0.6, 4.2.
    given = [1 / 16, 1 / 4, 1 / 2, 1 / 4, 1 / 16, 1], [1 / 8, 1 / 4, 1 / 4, 1 / 8, 1 / 8, 0.1]
    given = "kl_cov", *given, [1.0, -1.0, 2.0, 1.0, -3.0, 9.0]
    mask, half = f64([[1, 1, 1, 1, 1, 0]]), 0.5 * math.log(2)
    values = [0.5, -1, 4 - half, 2, -1.5 - half, 90]
    slopes = [0.5, -1, 4 - 0.5, 2, -1.5 + 0.5, 90]
    near(value_and_slope(*given, loss_mask=mask, fraction=0.4, coef=0.5), [values, slopes])
    near(value_and_slope(*given, loss_mask=mask)[1], [0.5, -1, 4, 2, -1.5 + 1, 90])


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
@pytest.mark.parametrize("name", LOSSES)
def test_a_ratio_that_overflows_or_vanishes_leaves_the_loss_finite(name, log_ratio):
    """In fp32, with A = 0, as in ppo_clip_loss (tests/test_common.py)."""
    logprobs, ones = torch.full((1, 2), -2.0, requires_grad=True), torch.ones(1, 2)
    old = logprobs.detach() - log_ratio
    terms = dict(logprobs=logprobs, old_logprobs=old, sampled_logprobs=old, loss_mask=ones)
    terms |= dict(advantages=0 * ones[:, :1], token_weights=ones, epsilon=0.2, epsilon_high=None)
    loss, _ = loss_with(LOSSES[name])(**terms)
    loss.backward()
    assert loss.isfinite() and logprobs.grad.isfinite().all()


def test_the_unbiased_kl():
    """Over all actions by pi_old it is KL(pi || pi_ref), and so is its gradient.

    The mask of responses drops everything else here. The seventh token is padding.
    """
    random = torch.Generator().manual_seed(3)
    logits, old, ref = torch.randn(3, 6, generator=random, dtype=torch.float64).log_softmax(1)
    logits.requires_grad_()
    logprobs = logits.log_softmax(0)
    kl = (logprobs.exp() * (logprobs - ref)).sum()
    given = dict(logprobs=(logprobs, 0.0), old_logprobs=(old, -1e4), ref_logprobs=(ref, 1e4))
    given |= dict(loss_mask=(torch.ones(6), 0.0), token_weights=(old.exp(), 0.0))
    given = {name: pad(x, (0, 1), value=value)[None] for name, (x, value) in given.items()}
    given |= dict(advantages=f64([[-1]]), sampled_logprobs=None, epsilon=0.2, epsilon_high=None)
    loss, _ = loss_with(None, off_policy_threshold=-9.0, bias_correction_kl=True)(**given, beta=0.5)
    near(loss.detach(), 0.5 * kl.detach())
    slopes = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (kl, loss)]
    near(slopes[1], 0.5 * slopes[0])


def test_tokens_of_high_entropy():
    """3 of 10 tokens reach the quantile 3/4, which is 0.675."""
    entropies = f64([[[0.1, 0.9, 0.2, 0.8, 7], [0.3, 0, 0.5, 0.4, 0.6], [0.7, 8, 9, 9, 9]]])
    mask = f64([[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]])
    expected = f64([[[0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]])
    near(high_entropy_mask(entropies, mask, 0.25), expected)
    near(high_entropy_mask(entropies, mask), expected * (entropies != 0.7))  # 0.2: above 0.72
    near(high_entropy_mask(0 * entropies, mask), mask)  # all are at the quantile
    near(high_entropy_mask(entropies, 0 * mask), 0 * mask)


def loss_of(batch, *options, aggregation="sequence", **given):
    """What loss_with(*options) gives for a minibatch."""
    weights = common.token_weights(batch.loss_mask, aggregation, LONGEST)
    known = vars(batch) | dict(token_weights=weights, epsilon=0.2, epsilon_high=None)
    return loss_with(*options)(**known | given)


@pytest.mark.parametrize("name", ["batch_std", "gdpo"])
def test_a_batch_is_whitened(name):
    """By loops: 0.75 of the success and 0.25 of the format."""
    # Where all rewards of a group are equal, as 0.75 in six completions, it gets exactly 0. What
    # several ranks have is whitened together (tests/test_ranks.py).
    successes = f64([[1] + [0] * 5, [1, 1, 0, 0, 1, 1], [1] * 3 + [0] * 3, [1] * 6])
    formats = f64([[1, 0, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]])

    def scores(group):  # GDPO divides each reward by its own deviation
        std = statistics.pstdev(group) if name == "gdpo" else 1.0
        return [(r - statistics.mean(group)) / std if std else 0.0 for r in group]

    centred = [f64([*map(scores, part.tolist())]) for part in (successes, formats)]
    expected = 0.75 * centred[0] + 0.25 * centred[1]
    expected /= statistics.pstdev(expected.flatten().tolist())
    texts = ["<think>1</think>\\boxed{1}" if good else "1" for good in formats.flatten()]
    flags = dict(advantage=name, format_share=0.25, num_generations=6, minibatch_size=192)
    near(advantages_of(successes, texts=texts, **flags), expected)
    assert not advantages_of(successes[3:], texts=texts[18:], **flags).any()


def test_otb_by_loops():
    """W by the squared slope of log pi in the logits; a response that is left alone gets 0."""
    random = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(2, 3, 4, 6, generator=random, dtype=torch.float64)  # [B, G, T, V]
    drawn = torch.randint(6, (2, 3, 4, 1), generator=random)
    lengths, advantages = [[2, 3, 1], [4, 1, 4]], f64([[1, 0, -2], [0.5, -1, 3]])
    mask = (torch.arange(4) < torch.tensor(lengths)[..., None]).double()
    plain, sharper = (x.log_softmax(-1).gather(-1, drawn)[..., 0] for x in (logits, 2 * logits))
    slopes = torch.eye(6, dtype=torch.float64)[drawn[..., 0]] - logits.softmax(-1)
    W = slopes.square().sum(-1).cumsum(2)
    expected = torch.zeros_like(mask)
    for b, i, t in np.ndindex(2, 3, 4):
        alive = [j for j in range(3) if lengths[b][j] > t]
        if i in alive:
            weighed = sum(W[b, j, t] * advantages[b, j] for j in alive)
            expected[b, i, t] = advantages[b, i] - weighed / sum(W[b, j, t] for j in alive)
    assert expected[0, 1, 2] == 0
    for constant in (0, 7):
        near(otb(advantages + constant, plain, sharper, mask), expected)


def test_icepop_drops_what_is_far_off():
    """Between 0.5 and 5 the ratio itself, else 0."""
    sampled = f64([-3.0] * 5)
    near(icepop(sampled + f64([0.45, 0.6, 1, 4.9, 5.1]).log(), sampled), [0, 0.6, 1, 4.9, 0])


def test_each_flag_makes_another_loss():
    """Each flag changes what the others leave alone, so no two values are equal."""
    batch, values = random_batch(0), []
    given = vars(batch) | dict(token_weights=batch.loss_mask, epsilon=0.2, beta=0.1)

    def loss(importance=1.0, epsilon_high=None, **flags):
        of = baselines.make_loss(baselines.Config(**flags))
        return of(**given | dict(importance=importance, epsilon_high=epsilon_high))[0].item()

    named = [dict(), *(dict(loss=name) for name in LOSSES)]
    others = [dict(off_policy_mask_threshold=threshold) for threshold in (0.0, 0.1)]
    others += [dict(loss="kl_cov", kl_cov_fraction=0.5), dict(use_bias_correction_kl=True, beta=1)]
    for flags in (*named, *(flags | dict(importance=0.5) for flags in named), *others):
        values.append(loss(**flags))
    assert len({f"{value:.6g}" for value in values}) == len(values)
    assert loss(loss="cispo", epsilon_high=0.2) == loss(loss="cispo")


def test_tokens_by_the_policy(sharp):
    """OTB by log-probs at half the temperature, too; of each minibatch 15% have most entropy."""
    flags = dict(token="otb", num_generations=4, minibatch_size=8, temperature=T)
    config = baselines.Config(**flags, top_entropy_quantile=0.15, microbatch_tokens=60)
    batch = batch_of(given_samples(), config)
    batch.sampler.policy = sharp[0]
    advantages, mask = grpo.grpo_advantage(batch.rewards), batch.loss_mask
    with torch.no_grad():
        logprobs, entropies = common.token_logprobs(sharp[0], batch.samples, range(16), T)
        sharper, _ = common.token_logprobs(sharp[0], batch.samples, range(16), T / 2)
    found, _ = baselines.compute_advantages(batch, config, 1)
    tokens = (x.view(4, 4, -1) for x in (logprobs, sharper, mask))
    near(found, otb(advantages, *tokens), atol=1e-5)
    config.token = "high_entropy"
    for part in ([*range(8)], [*range(8, 16)]):
        of_tokens = entropies[part][mask[part] > 0]
        assert (of_tokens - of_tokens.quantile(0.85)).abs().min() > 1e-3  # rounding decides nothing
        keep = baselines.token_mask(batch, part, advantages.view(16, 1), config, 0)
        near(keep, high_entropy_mask(entropies[part], mask[part], 0.15))


def functions_of(file: Path, names, **given) -> SimpleNamespace:
    """Some functions of a file, without their decorators and without what the file imports."""
    tree = ast.parse(file.read_text())
    wanted = [node for node in tree.body if getattr(node, "name", None) in names]
    for node in wanted:
        node.decorator_list = []
    future = ast.parse("from __future__ import annotations").body
    namespace = {"torch": torch, **given}
    module = ast.Module(body=[*future, *wanted], type_ignores=[])
    exec(compile(module, str(file), "exec"), namespace)
    return SimpleNamespace(**{name: namespace[name] for name in names})


class VerlConfig(SimpleNamespace):
    """What verl's losses read of its ActorConfig."""

    def get(self, name, default):
        return getattr(self, name, default)


def of_verl(name):
    """A function of verl's core_algos.py, without the package around it."""
    verl = Path(importlib.util.find_spec("verl").origin).parent
    sums = functions_of(verl / "utils/torch_functional.py", ["masked_sum", "masked_mean"])
    names = [name, "agg_loss", "kl_penalty_forward"]
    given = dict(verl_F=sums, ActorConfig=VerlConfig, AlgoConfig=type(None))
    return getattr(functions_of(verl / "trainer/ppo/core_algos.py", names, **given), name)


OF_VERL = ("cispo", "dppo", "sapo", "kl_cov")
MODES = dict(sequence="seq-mean-token-mean", token="token-mean", constant="seq-mean-token-sum-norm")


@pytest.mark.trl
@pytest.mark.parametrize(
    "name, aggregation",
    [*(("vanilla", mode) for mode in MODES), *((x, "sequence") for x in OF_VERL)],
)
def test_losses_of_verl(name, aggregation):
    """The derivative of the loss in each token's log-prob, with advantages of both signs."""
    # verl adds 1e-8 to the number of tokens.
    divisors = dict(global_batch_size=COMPLETIONS, loss_scale_factor=LONGEST)
    config = VerlConfig(clip_ratio=0.2, clip_ratio_low=0.1, clip_ratio_high=0.3, clip_ratio_c=1e9)
    config.tau_pos, config.tau_neg = 1.0, 1.05
    config.policy_loss = SimpleNamespace(kl_cov_ratio=None, ppo_kl_coef=None)
    config.global_batch_info = divisors
    theirs = of_verl(f"compute_policy_loss_{'dppo_tv' if name == 'dppo' else name}")
    for seed in range(4):
        batch = random_batch(seed)
        new = batch.logprobs.requires_grad_()
        how = dict(aggregation=aggregation, epsilon=0.1, epsilon_high=0.3)
        ours, _ = loss_of(batch, LOSSES.get(name), **how)
        given = (
            batch.old_logprobs,
            new,
            batch.advantages,
            batch.loss_mask,
            MODES[aggregation],
            config,
        )
        slopes = [torch.autograd.grad(loss, new)[0] for loss in (ours, theirs(*given)[0])]
        near(slopes[0], slopes[1], atol=1e-8)
        kl = of_verl("kl_penalty")(new.detach(), batch.ref_logprobs, "low_var_kl")
        near(kl_penalty(new.detach(), batch.ref_logprobs), kl)
