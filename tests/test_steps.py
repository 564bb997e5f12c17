"""Whole updates of the five scripts, by their definition: a row and a token at a time, in float64.

The other tests of runs compare a script with itself (ranks, microbatches, resuming) or with another
script. Here what the flags and the formulas come to is worked out from the paper's text alone.
"""

import copy
import math
import random

import rlvr.training.run
from rlvr.show import covariance_statistics
from rlvr.tasks.problems import Sample

import pytest
import torch
from runs import rows, tokenizer_of_tiny
from samples import writer_of_batch
from test_cwgrpo import plain_weights
from torch.nn.utils.rnn import pad_sequence

import common

G, STOP, T = 4, 1, 0.9
LOW, HIGH, BETA, BONUS = 0.02, 0.1, 0.5, 0.05
LOGGED = ("clip_low", "clip_high", "kl", "entropy")
FLAGS = dict(
    max_steps=1,
    num_iterations=2,  # with two minibatches: four updates, of which three are off-policy
    learning_rate=1e-3,
    lr_scheduler_type="linear",
    temperature=T,
    epsilon=LOW,
    epsilon_high=HIGH,
    beta=BETA,
    entropy_coef=BONUS,
    microbatch_tokens=60,
    mask_truncated_completions=True,
)
RATES = [1e-3, 0.75e-3, 0.5e-3, 0.25e-3]  # of the four updates
CAP = 0.8  # of the importance weights
FAR = 1.1  # what the reference's log-probs are multiplied by, or it would be the old policy
ROOT3 = 3**0.5
# p = 1/4, 3/4, 1/4, 3/4: the mean success is 1/2
RIGHT = [[1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0], [1, 0, 1, 1]]
EASY, HARD = 1 / 2, ROOT3 / 2  # sqrt(1/4) and sqrt(3/4)
EQ12 = 1 / 4 / EASY + 1 / 4 / HARD  # w/2 / sqrt(p) + (1-w)/2 / sqrt(1-p), the same for both p

# Each: script, flags, and what success and failure are worth at p = 1/4 and at p = 3/4.
GRPO = (ROOT3, -1 / ROOT3, 1 / ROOT3, -ROOT3)
CASES = [
    (
        "fade",
        dict(  # which has 8/3 of the rate: sqrt(3) over the largest |A|, 0.75^1.5
            target_entropy=9,
            importance_sampling_level="sequence",
            equalize_learning_rate=True,
            learning_rate=3 / 8 * 1e-3,
        ),
        (  # alpha 3/2 at a solve rate of 1/2; delta is at its 0.3
            0.75**1.5,
            -(0.75**0.5) / 4 / 0.3,
            0.25**1.5,
            -(0.25**0.5) * 0.75 / 0.3,
        ),
    ),
    ("grpo", dict(), GRPO),
    (
        "grpo",
        dict(negatives_only=True, importance_sampling_level="sequence", aggregation="token"),
        (0, GRPO[1], 0, GRPO[3]),
    ),
    ("grpo", dict(scale_rewards=False, aggregation="constant"), (3 / 4, -1 / 4, 1 / 4, -3 / 4)),
    ("agrae", dict(alpha=0.75), [EQ12 * a * (2 / 3 if a > 0 else 1) for a in GRPO]),
    (
        "agrae",
        dict(
            group_level=False,
            scale_rewards=False,
            importance_sampling_level="sequence",
        ),
        [EQ12 * a for a in (3 / 4, -1 / 4, 1 / 4, -3 / 4)],
    ),
    ("asymgrpo", dict(beta_pos=1.0, beta_neg=2.0), (3, -1 / 9, 1 / 3, -9)),
    (
        "asymgrpo",  # --log_gain only looks
        dict(
            beta_pos=1.0,
            beta_neg=2.0,
            flip="negative",
            log_gain=True,
            importance_sampling_level="sequence",
        ),
        (3, -9, 1 / 3, -1 / 9),
    ),
    ("cwgrpo", dict(), GRPO),
    (
        "baselines",
        dict(loss="cispo", advantage="easy_focused", gamma=2.0),
        [2 / HARD * GRPO[0], 2 / HARD * GRPO[1], 2 / EASY * GRPO[2], 2 / EASY * GRPO[3]],
    ),
    (
        "cwgrpo",
        dict(means="own", padded_sum=True, scale_rewards=False),
        (3 / 4, -1 / 4, 1 / 4, -3 / 4),
    ),
]
CASES = [(script, flags, tuple(worth)) for script, flags, worth in CASES]


def given_samples():
    """Four groups with completions of 1 to 20 tokens, of which the sixth is truncated."""
    rng = random.Random(0)
    samples = []
    for group in RIGHT:
        prompt = rng.choices(range(13, 23), k=rng.randint(3, 9))
        for right in group:
            ids = [*rng.choices(range(3, 24), k=rng.randint(0, 19)), STOP]
            logprobs = [rng.uniform(-6, -1) for _ in ids]  # the sampler's; the policy has others
            given = dict(logprobs=logprobs, success=right == 1, truncated=len(samples) == 5)
            samples.append(Sample(prompt, ids, "", float(right), **given))
    return samples


class Grouped:
    num_generations, mask_truncated_completions = G, False


def batch_of(samples, config=Grouped):
    """The samples as common.roll_out hands them over."""
    writer = writer_of_batch(tokenizer_of_tiny())
    writer.cap = CAP
    return common.make_batch(samples, config, writer)


def by_the_logits(policy, samples):
    """Log-probs and entropies, [T of the sample] each, at the sampling temperature."""
    ids = [torch.tensor(sample.prompt_ids + sample.completion_ids) for sample in samples]
    found = []
    logits = policy(pad_sequence(ids, batch_first=True)).logits  # what follows a token is not seen
    for sample, of_sample in zip(samples, logits, strict=True):
        first, count = len(sample.prompt_ids) - 1, len(sample.completion_ids)
        logp = (of_sample[first : first + count] / T).log_softmax(-1)
        found.append((logp[range(count), sample.completion_ids], -(logp.exp() * logp).sum(-1)))
    return found


def loss_of(policy, old_logprobs, samples, rows, worth, script, flags):
    """The loss of a minibatch by its definition, what is logged of it, and CW-GRPO's weights."""
    level = flags.get("importance_sampling_level", "token")
    default = {"fade": "constant", "asymgrpo": "token"}.get(script, "sequence")
    aggregation = flags.get("aggregation", default)
    found = dict(zip(rows, by_the_logits(policy, [samples[i] for i in rows]), strict=True))
    counted = [i for i in rows if not samples[i].truncated]
    tokens = sum(len(samples[i].completion_ids) for i in counted)
    kernel = {i: torch.ones(len(samples[i].completion_ids)) for i in rows}
    if script == "cwgrpo":
        longest = max(len(sample.completion_ids) for sample in samples)
        for first in rows[::G]:
            group = range(first, first + G)
            logprobs, mask = torch.zeros(2, 1, G, longest)
            for k, i in enumerate(group):
                n = len(samples[i].completion_ids)
                logprobs[0, k, :n], mask[0, k, :n] = found[i][0].detach(), i in counted
            advantages = torch.tensor([[advantage_of(samples, i, worth) for i in group]])
            weights = plain_weights(logprobs, advantages, mask, flags.get("means", "tokens"))
            if flags.get("padded_sum"):
                weights = weights * G * mask.sum(2).max() / mask.sum()
            for k, i in enumerate(group):
                kernel[i] = weights[0, k, : len(samples[i].completion_ids)]
    total, logged = 0.0, dict.fromkeys(LOGGED, 0.0)
    for i in counted:
        logprobs, entropies = found[i]
        old = old_logprobs[i]
        n = len(old)
        share = {"sequence": n * len(rows), "token": tokens, "constant": 48 * len(rows)}
        log_ratio = logprobs - old
        if level == "sequence":
            log_ratio = log_ratio.mean().expand(n)
        for t in range(n):
            a = advantage_of(samples, i, worth) * kernel[i][t].item()
            ratio = log_ratio[t].exp()
            # the clip stops a step that goes on in the direction of A
            stopped = ratio > 1 + HIGH if a > 0 else ratio < 1 - LOW
            clipped = min(max(ratio.item(), 1 - LOW), 1 + HIGH)
            gain = a * (clipped if stopped else ratio)
            if flags.get("loss") == "cispo":
                gain, stopped = a * clipped * logprobs[t], False
            to_ref = FAR * old[t] - logprobs[t]
            back = to_ref.exp() - to_ref - 1
            values = (stopped and a < 0, stopped and a > 0, back, entropies[t])
            for name, value in zip(LOGGED, values, strict=True):
                logged[name] += float(torch.as_tensor(value).detach())
            # for what the sampler drew too often or too seldom
            importance = min((old[t] - samples[i].logprobs[t]).exp().item(), CAP)
            term = importance * (gain - BETA * back + BONUS * entropies[t])
            total -= term / share[aggregation]
    return total, logged, kernel


def advantage_of(samples, i, worth):
    """What `worth` says of a completion, by the success rate of its group."""
    right = sum(samples[k].success for k in range(i // G * G, i // G * G + G))
    return worth[2 * (right == 3) + (not samples[i].success)]


@pytest.fixture
def seen(monkeypatch):
    """The policy, its gradient, its loss and its rate, before each update on given_samples()."""
    found, losses = [], []
    prepare = common.prepare_update
    step, add = rlvr.training.run.Run.optimizer_step, rlvr.training.run.Run.add

    def noted(self, loss, *given, **per_token):
        losses.append(loss.item())
        add(self, loss, *given, **per_token)

    def recorded(self, policy, optimizer):
        gradient = torch.cat([p.grad.flatten().double() for p in policy.parameters()])
        rate = optimizer.param_groups[0]["lr"]
        found.append((copy.deepcopy(policy), gradient, sum(losses), rate))
        losses.clear()
        return step(self, policy, optimizer)

    def prepared(batch, *given):
        prepare(batch, *given)
        batch.ref_logprobs *= FAR

    monkeypatch.setattr(rlvr.training.run.Run, "add", noted)
    monkeypatch.setattr(rlvr.training.run.Run, "optimizer_step", recorded)
    monkeypatch.setattr(common, "prepare_update", prepared)
    monkeypatch.setattr(common, "roll_out", lambda *given: batch_of(given_samples(), given[-1]))
    return found


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("script, flags, worth", CASES)
def test_updates_by_their_definition(run, seen, script, flags, worth):
    samples = given_samples()
    result = run(script, **FLAGS | flags)
    assert result.code == 0, result.err
    assert [rate for *_, rate in seen] == pytest.approx(RATES)
    start, logged, weights = seen[0][0].double(), dict.fromkeys(LOGGED, 0.0), {}
    old = [logprobs.detach() for logprobs, _ in by_the_logits(start, samples)]
    for k, (policy, got, loss, _) in enumerate(seen):
        policy.double()
        rows_of = [*range(8)] if k % 2 == 0 else [*range(8, 16)]
        expected_loss, found, kernel = loss_of(policy, old, samples, rows_of, worth, script, flags)
        weights |= kernel
        for name in LOGGED:
            logged[name] += found[name]
        expected_loss.backward()
        expected = torch.cat([p.grad.flatten() for p in policy.parameters()])
        assert loss == pytest.approx(expected_loss.item(), rel=1e-3, abs=1e-5)
        assert (got - expected).norm() < 2e-3 * expected.norm(), k
    (row,) = rows("run")
    assert row["learning_rate"] == pytest.approx(RATES[-1])
    counted = [i for i in range(16) if not samples[i].truncated]
    tokens = 2 * sum(len(samples[i].completion_ids) for i in counted)  # twice over all of them
    for name in LOGGED:
        assert row[name] == pytest.approx(logged[name] / tokens, rel=1e-2), name
    assert (row["clip_low"] + row["clip_high"] > 0.05) == ("loss" not in flags)
    pairs = zip(torch.cat(old).tolist(), sum((s.logprobs for s in samples), []), strict=True)
    gaps = [mine - of_sampler for mine, of_sampler in pairs]  # also where the loss does not count
    expected = sum(math.expm1(gap) - gap for gap in gaps) / len(gaps)
    assert row["mismatch_k3"] == pytest.approx(expected, rel=1e-3)
    # what the report shows of the first group, rounded to three digits
    ((group,),) = (step["groups"] for step in rows("run", "tokens"))
    for i, shown in enumerate(group["completions"]):
        worths = advantage_of(samples, i, worth) * weights[i]
        assert shown["advantage"] == pytest.approx(worths.tolist(), abs=2e-3)
        assert ("weight" in shown) == (script == "cwgrpo")
        assert shown.get("weight", weights[i]) == pytest.approx(weights[i].tolist(), abs=2e-3)
    if script == "cwgrpo":
        shown = [x * (i in counted) for i, x in enumerate(old)], [weights[i] for i in range(16)]
        padded = [pad_sequence(part, True) for part in shown]
        logprobs, w = (part.double().view(4, G, -1) for part in padded)
        advantages = [advantage_of(samples, i, worth) for i in range(16)]
        given = logprobs, torch.tensor(advantages).view(4, G), logprobs.ne(0), w
        expected = covariance_statistics(*given, flags.get("means", "tokens"))
        assert row["effective_tokens"] == pytest.approx(expected["effective_tokens"])
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.usefixtures("no_evaluation")
def test_released_gradient_goes_through_the_kernel(run, seen):
    """That of - sum_t ratio w A / (N |o|) with w = S k / sum k, k = exp(-c^2 / 2 var c), S padded.

    No token is clipped, and the loss is differentiated as it stands, in float64.
    """
    samples = given_samples()
    flags = dict(variant="released", beta=0, warmup_ratio=0, epsilon=0.9, epsilon_high=9)
    flags |= dict(learning_rate=1e-5, mask_truncated_completions=False)  # ratios of 0.7 to 2.6
    assert run("cwgrpo", **FLAGS | dict(entropy_coef=0) | flags).code == 0
    start = copy.deepcopy(seen[0][0]).double()
    for k, (policy, got, *_) in enumerate(seen):
        policy.double()
        loss = 0.0
        for first in (0, G) if k % 2 == 0 else (2 * G, 3 * G):
            group = range(first, first + G)
            of_group = [samples[i] for i in group]
            logp = [logprobs for logprobs, _ in by_the_logits(policy, of_group)]
            old = [logprobs.detach() for logprobs, _ in by_the_logits(start, of_group)]
            a = [advantage_of(samples, i, GRPO) for i in group]  # whose mean over responses is 0
            c = torch.cat([(x - x.mean()) * y for x, y in zip(logp, a, strict=True)])
            kernel = (-(c**2) / (2 * c.var(correction=0))).exp()
            weights = G * max(map(len, logp)) * kernel / kernel.sum()
            of_rows = weights.split([*map(len, logp)])
            for i, w, x, y, z in zip(group, of_rows, logp, old, a, strict=True):
                importance = (y - torch.tensor(samples[i].logprobs)).exp().clamp(max=CAP)
                loss = loss - (importance * (x - y).exp() * w * z).mean() / (2 * G)
        loss.backward()
        expected = torch.cat([p.grad.flatten() for p in policy.parameters()])
        assert (got - expected).norm() < 2e-3 * expected.norm(), k
