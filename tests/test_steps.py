"""Whole updates of the five scripts, by their definition: a row and a token at a time, in float64.

What the flags and the formulas come to is worked out from the paper's text alone.
"""

import copy
import random
from pathlib import Path

from rlvr.tasks.problems import Sample
from rlvr.training.run import Run

import pytest
import torch
from runs import before_calls, rows, tokenizer_of_tiny
from samples import by_the_logits, writer_of_batch
from test_advantages import plain_weights
from torch.nn.utils.rnn import pad_sequence

import common
import cwgrpo

G, STOP, T = 4, 1, 0.9
LOW, HIGH, BETA, BONUS = 0.01, 0.03, 0.5, 0.05
LOGGED = ("clip_low", "clip_high", "kl", "entropy", "ratio_k3")
# with two minibatches: four updates, of which three are off-policy
FLAGS = dict(max_steps=2, num_iterations=2, learning_rate=1e-3, lr_scheduler_type="linear")
FLAGS |= dict(epsilon=LOW, epsilon_high=HIGH, beta=BETA, entropy_coef=BONUS)
FLAGS |= dict(temperature=T, microbatch_tokens=60, mask_truncated_completions=True)
RATES = [1e-3 * (1 - i / 8) for i in range(4)]  # of the updates of the first step
CAP = 0.8  # of the importance weights
FAR = 1.5  # what the reference's head is multiplied by, or it would be the old policy
ROOT3 = 3**0.5
# p = 1/4, 3/4, 1/4, 3/4: the mean success is 1/2. A success has the reward 0.8, a failure 0.3.
RIGHT = [[1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0], [1, 0, 1, 1]]
EASY, HARD = 1 / 2, ROOT3 / 2  # sqrt(1/4) and sqrt(3/4)
EQ12 = 1 / 4 / EASY + 1 / 4 / HARD  # w/2 / sqrt(p) + (1-w)/2 / sqrt(1-p), the same for both p

# Each: script, flags, and what success and failure are worth at p = 1/4 and at p = 3/4.
GRPO = (ROOT3, -1 / ROOT3, 1 / ROOT3, -ROOT3)
DR_GRPO = (3 / 8, -1 / 8, 1 / 8, -3 / 8)
ODDS = dict(beta_pos=1.0, beta_neg=2.0)
SEQUENCE = dict(importance_sampling_level="sequence")
CASES = [
    (
        "fade",
        # 8/3 of the rate is sqrt(3) over the largest |A|, 0.75^1.5
        dict(**SEQUENCE, equalize_learning_rate=True, learning_rate=3 / 8 * 1e-3, target_entropy=9),
        # alpha 3/2 at a solve rate of 1/2; delta is at its 0.3
        (0.75**1.5, -(0.75**0.5) / 4 / 0.3, 0.25**1.5, -(0.25**0.5) * 0.75 / 0.3),
    ),
    ("grpo", dict(), GRPO),
    ("grpo", dict(**SEQUENCE, negatives_only=True, aggregation="token"), (0, GRPO[1], 0, GRPO[3])),
    ("grpo", dict(scale_rewards=False, aggregation="constant"), DR_GRPO),
    ("agrae", dict(alpha=0.75, sample_level=False), [a * (2 / 3 if a > 0 else 1) for a in GRPO]),
    (
        "agrae",
        dict(**SEQUENCE, group_level=False, scale_rewards=False),
        [EQ12 * a for a in DR_GRPO],
    ),
    ("asymgrpo", ODDS, (3, -1 / 9, 1 / 3, -9)),
    (
        "asymgrpo",
        dict(**SEQUENCE, **ODDS, flip="negative", log_gain=True),  # --log_gain only looks
        (3, -9, 1 / 3, -1 / 9),
    ),
    ("cwgrpo", dict(), GRPO),
    (
        "baselines",
        dict(loss="cispo", advantage="easy_focused", gamma=2.0),
        [2 / HARD * GRPO[0], 2 / HARD * GRPO[1], 2 / EASY * GRPO[2], 2 / EASY * GRPO[3]],
    ),
    (
        "cwgrpo",  # the gradient of the released code goes through the kernel
        dict(means="own", padded_sum=True, detach_weights=False, scale_rewards=False),
        DR_GRPO,
    ),
]


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
            samples.append(Sample(prompt, ids, "", 0.8 if right else 0.3, **given))
    return samples


def batch_of(samples, config):
    """The samples as common.roll_out hands them over."""
    writer = writer_of_batch(tokenizer_of_tiny())
    writer.cap = CAP
    return common.make_batch(samples, config, writer)


def loss_of(policy, old_logprobs, ref_logprobs, samples, rows, worth, script, flags):
    """The loss of a minibatch by its definition, what is logged of it, and CW-GRPO's weights."""
    level = flags.get("importance_sampling_level", "token")
    default = {"fade": "constant", "asymgrpo": "token"}.get(script, "sequence")
    aggregation = flags.get("aggregation", default)
    found = {i: by_the_logits(policy, samples[i], T) for i in rows}
    counted = [i for i in rows if not samples[i].truncated]
    tokens = sum(len(samples[i].completion_ids) for i in counted)
    kernel = {i: torch.ones(len(samples[i].completion_ids)) for i in rows}
    if script == "cwgrpo":
        options = flags.get("means", "tokens"), flags.get("padded_sum", False)
        for first in rows[::G]:
            group = range(first, first + G)
            values = [found[i][0] for i in group]
            counts = [torch.full_like(x, i in counted) for i, x in zip(group, values, strict=True)]
            logprobs, mask = (pad_sequence(x, batch_first=True)[None] for x in (values, counts))
            if flags.get("detach_weights", True):
                logprobs = logprobs.detach()
            advantages = torch.tensor([[advantage_of(samples, i, worth) for i in group]])
            (weights,) = plain_weights(logprobs, advantages, mask, *options)
            kernel |= {i: w[: len(x)] for i, w, x in zip(group, weights, values, strict=True)}
    total, logged = 0.0, dict.fromkeys((*LOGGED, "ratio_max"), 0.0)
    for i in rows:  # what is logged covers those that the loss leaves out, too
        logprobs, entropies = found[i]
        old = old_logprobs[i]
        n = len(old)
        share = {"sequence": n * len(rows), "token": tokens, "constant": 48 * len(rows)}
        log_ratio = logprobs - old
        k3 = log_ratio.expm1() - log_ratio
        logged["ratio_max"] = max(logged["ratio_max"], log_ratio.max().exp().item())
        if level == "sequence":
            log_ratio = log_ratio.mean().expand(n)
        for t in range(n):
            a = advantage_of(samples, i, worth) * kernel[i][t]
            ratio = log_ratio[t].exp()
            # the clip stops a step that goes on in the direction of A
            stopped = ratio > 1 + HIGH if a > 0 else ratio < 1 - LOW
            clipped = min(max(ratio.item(), 1 - LOW), 1 + HIGH)
            gain = a * (clipped if stopped else ratio)
            if flags.get("loss") == "cispo":
                gain, stopped = a * clipped * logprobs[t], False
            to_ref = ref_logprobs[i][t] - logprobs[t]
            back = to_ref.exp() - to_ref - 1
            marked = stopped and (level == "token" or i in counted)
            values = (marked and a < 0, marked and a > 0, back, entropies[t], k3[t])
            for name, value in zip(LOGGED, values, strict=True):
                logged[name] += float(torch.as_tensor(value).detach())
            # for what the sampler drew too often or too seldom
            importance = min((old[t] - samples[i].logprobs[t]).exp().item(), CAP)
            term = importance * gain - BETA * back + BONUS * entropies[t]
            total -= (i in counted) * term / share[aggregation]
    return total, logged, kernel


def advantage_of(samples, i, worth):
    """What `worth` says of a completion, by the success rate of its group."""
    right = sum(samples[k].success for k in range(i // G * G, i // G * G + G))
    return worth[2 * (right == 3) + (not samples[i].success)]


@pytest.fixture
def seen(monkeypatch):
    """The policy, its gradient, its loss and its rate, before each update on given_samples()."""
    found, losses = [], []

    def recorded(policy, optimizer, run):
        gradient = torch.cat([p.grad.flatten().double() for p in policy.parameters()])
        rate = optimizer.param_groups[0]["lr"]
        found.append((copy.deepcopy(policy), gradient, sum(losses), rate))
        losses.clear()

    def prepared(batch, advantages, policy, reference, config):
        reference.get_output_embeddings().weight.data.mul_(FAR)

    before_calls(monkeypatch, Run, "add", lambda run, loss, *_, **__: losses.append(loss.item()))
    before_calls(monkeypatch, common, "optimizer_step", recorded)
    before_calls(monkeypatch, common, "prepare_update", prepared)
    end_step = Run.end_step  # a signal has come
    monkeypatch.setattr(Run, "end_step", lambda run, step: end_step(run, step) or True)
    monkeypatch.setattr(common, "roll_out", lambda *given: batch_of(given_samples(), given[-1]))
    return found


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("script, flags, worth", CASES)
def test_updates_by_their_definition(run, seen, script, flags, worth):
    """The run ends after the first of its two steps."""
    samples = given_samples()
    result = run(script, **FLAGS | flags)
    assert result.code == 0, result.err
    assert Path("run/report.html").exists()
    start, logged, weights = seen[0][0].double(), dict.fromkeys(LOGGED, 0.0), {}
    old = [by_the_logits(start, sample, T)[0].detach() for sample in samples]
    reference = copy.deepcopy(start)
    reference.get_output_embeddings().weight.data.mul_(FAR)
    ref = [by_the_logits(reference, sample, T)[0].detach() for sample in samples]
    losses, norms, ratios = [], [], []
    for k, (policy, got, loss, _) in enumerate(seen):
        policy.double()
        rows_of = [*range(8)] if k % 2 == 0 else [*range(8, 16)]
        given = policy, old, ref, samples, rows_of, worth, script, flags
        expected_loss, found, kernel = loss_of(*given)
        weights |= kernel
        for name in LOGGED:
            logged[name] += found[name]
        expected_loss.backward()
        expected = torch.cat([p.grad.flatten() for p in policy.parameters()])
        assert loss == pytest.approx(expected_loss.item(), rel=1e-3, abs=1e-5)
        assert (got - expected).norm() < 2e-3 * expected.norm(), k
        losses.append(expected_loss.item())
        norms.append(expected.norm().item())
        ratios.append(found["ratio_max"])
    (row,) = rows("run")
    assert row["loss"] == pytest.approx(sum(losses) / 4, rel=1e-3, abs=1e-5)
    assert row["grad_norm"] == pytest.approx(sum(norms) / 4, rel=1e-3)
    assert row["ratio_max"] == pytest.approx(max(ratios), rel=1e-3)
    assert row["learning_rate"] == pytest.approx(RATES[-1])
    tokens = 2 * sum(len(sample.completion_ids) for sample in samples)  # twice over all of them
    assert row["loss_share"] == pytest.approx(1 - 2 * len(samples[5].completion_ids) / tokens)
    for name in LOGGED:
        assert row[name] == pytest.approx(logged[name] / tokens, rel=1e-2), name
    assert (row["clip_low"] + row["clip_high"] > 0.05) == ("loss" not in flags)
    assert ("success_gain" in row) == ("log_gain" in flags)
    # what the report shows of the first group, rounded to three digits
    ((group,),) = (step["groups"] for step in rows("run", "tokens"))
    for i, shown in enumerate(group["completions"]):
        worths = advantage_of(samples, i, worth) * weights[i]
        assert shown["advantage"] == pytest.approx(worths.tolist(), abs=2e-3)
        assert ("weight" in shown) == (script == "cwgrpo")
        assert shown.get("weight", weights[i]) == pytest.approx(weights[i].tolist(), abs=2e-3)
    if script == "cwgrpo":
        shown = [x * (i != 5) for i, x in enumerate(old)], [weights[i] for i in range(16)]
        padded = [pad_sequence(part, True) for part in shown]
        logprobs, w = (part.double().view(4, G, -1) for part in padded)
        advantages = [advantage_of(samples, i, worth) for i in range(16)]
        given = logprobs, torch.tensor(advantages).view(4, G), logprobs.ne(0), w
        expected = cwgrpo.covariance_statistics(*given, flags.get("means", "tokens"))
        assert row["effective_tokens"] == pytest.approx(expected["effective_tokens"])
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert [rate for *_, rate in seen] == pytest.approx(RATES)
