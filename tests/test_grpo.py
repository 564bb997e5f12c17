"""grpo.py: its advantages, and that a minibatch's gradient does not depend on how it is cut up."""

import copy
import math
from types import SimpleNamespace

from rlvr.policy.logprobs import LinearLogProbs
from rlvr.rollout.rollouts import completion_mask
from rlvr.training.run import Run

import pytest
import torch
from groups import near
from samples import some_samples

import common
import grpo

LEVELS = ("token", "sequence")


# ------------------------------------------------------------------------------------ variants


@pytest.mark.parametrize(
    "variant, clipped",
    [
        ("gspo", [1.0004, 1.0004, 0.9, -1.1, -0.9997, -0.9997]),
        ("two-stage-gspo", [1.1, 1.2, 0.9, -1.1, -0.9, -0.8]),
    ],
)
def test_the_two_clip_ranges_of_gspo_by_hand(variant, clipped):
    """GSPO's own 3e-4 and 4e-4, and the 0.2 that two-stage dynamics prints."""
    config = grpo.Config(**grpo.VARIANTS[variant])
    ratios = torch.tensor([1.1, 1.3, 0.9, 1.1, 0.9, 0.7], dtype=torch.float64)
    signs = [1.0, 1, 1, -1, -1, -1]
    one = torch.ones(1, 1, dtype=torch.float64)
    limits = config.epsilon, config.epsilon_high, config.importance_sampling_level
    assert limits[2] == "sequence"
    for ratio, sign, expected in zip(ratios, signs, clipped, strict=True):
        loss, _ = common.ppo_clip_loss(ratio.log() * one, 0 * one, sign * one, one, one, *limits)
        assert -loss.item() == pytest.approx(expected, abs=1e-12)


# ------------------------------------------------------------------------------------ advantages


@pytest.mark.parametrize(
    "rewards, scaled, unscaled",
    [
        # G = 2: the population's std is 1/2; Bessel's would give 1/sqrt(2)
        ([1, 0], [1, -1], [1 / 2, -1 / 2]),
        ([0, 1], [-1, 1], [-1 / 2, 1 / 2]),
        # p = 1/4: sqrt(q / p), -sqrt(p / q)
        ([1, 0, 0, 0], [3**0.5, *[-1 / 3**0.5] * 3], [3 / 4, *[-1 / 4] * 3]),
        ([1, 1, 0, 1], [*[1 / 3**0.5] * 2, -(3**0.5), 1 / 3**0.5], [1 / 4, 1 / 4, -3 / 4, 1 / 4]),
        ([1, 0, 1, 0], [1, -1, 1, -1], [1 / 2, -1 / 2, 1 / 2, -1 / 2]),
        ([0, 1, 2], [-(1.5**0.5), 0, 1.5**0.5], [-1, 0, 1]),  # rewards beside 0 and 1: variance 2/3
        ([-1, 3], [-1, 1], [-2, 2]),
        ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]),  # p = 0
        ([1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]),  # p = 1
        ([0], [0], [0]),  # G = 1
        ([1], [0], [0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grpo_advantage(rewards, scaled, unscaled, dtype):
    rewards = torch.tensor([rewards], dtype=dtype)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    for scale_rewards, expected in ((True, scaled), (False, unscaled)):
        got = grpo.grpo_advantage(rewards, scale_rewards)
        expected = torch.tensor([expected], dtype=dtype)  # of the same dtype
        torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("scale_rewards", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.7, 0.1, 1 / 3, -2.3, 1e-8, 12345.678])
def test_equal_rewards_get_exactly_zero(reward, dtype, scale_rewards):
    """Their mean and std can be off by a rounding error.

    The quotient of two rounding errors is of order 1.
    """
    for size in range(1, 65):
        rewards = torch.full((2, size), reward, dtype=dtype)
        assert (grpo.grpo_advantage(rewards, scale_rewards) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_negative_only(dtype):
    advantages = torch.tensor([[-1.5, 0.0, 2.0], [-0.0, -1e-30, 0.5]], dtype=dtype)
    expected = torch.tensor([[-1.5, 0, 0], [0, -1e-30, 0]], dtype=dtype)
    torch.testing.assert_close(grpo.negative_only(advantages), expected, rtol=0, atol=0)


# ------------------------------------------------------------- one microbatch and many of them


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
@pytest.mark.parametrize("level", LEVELS)
def test_one_microbatch_is_many(level, aggregation):
    """Weights are those of the whole minibatch.

    So the parts of its loss and of its gradient add up exactly. test_steps.py has the same of runs.
    """
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(5) < torch.tensor([[5], [1], [3], [0], [2], [5]])).double()
    advantages, *of_tokens = torch.randn(5, 6, 5, dtype=torch.float64, generator=generator)
    weights = common.token_weights(mask, aggregation, 5)

    def loss_of(rows):
        logprobs, noise, ref_logprobs, entropy = (values[rows] for values in of_tokens)
        logprobs = logprobs.clone().requires_grad_()
        loss, _ = common.ppo_clip_loss(
            logprobs,
            logprobs.detach() + 0.3 * noise,
            advantages[rows, :1],
            mask[rows],
            weights[rows],
            importance_sampling_level=level,
            ref_logprobs=ref_logprobs,
            beta=0.1,
            entropy=entropy + 0.2 * logprobs,
            entropy_coef=0.05,
        )
        loss.backward()
        return loss.detach(), logprobs.grad

    whole, gradient = loss_of([*range(6)])
    assert gradient.norm() > 0.05
    for parts in ([[2], [5, 0], [1, 3, 4]], [[i] for i in range(6)]):
        losses, gradients = zip(*map(loss_of, parts), strict=True)
        near(sum(losses), whole)
        near(torch.cat(gradients), gradient[sum(parts, [])])


# ----------------------------------------------------------------------------- optimizer updates


def optimizer_step(policy, optimizer):
    """Run.optimizer_step without a run folder."""
    config = grpo.Config(max_grad_norm=1.0)
    run = SimpleNamespace(skipped=0, skipped_in_a_row=0, config=config)
    return Run.optimizer_step(run, policy, optimizer)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf])
def test_no_update_by_a_gradient_of_nothing_or_not_finite(value):
    """Adam's momentum of an update before would move the weights by itself."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer_step(layer, optimizer)
    before = copy.deepcopy(layer.state_dict())
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    layer.weight.grad[0, 0] = value
    norm = optimizer_step(layer, optimizer)
    assert norm == abs(value) or math.isnan(norm) and math.isnan(value)
    assert all(torch.equal(after, before[name]) for name, after in layer.state_dict().items())
    assert all(parameter.grad is None for parameter in layer.parameters())


# What is wrong with one token of a minibatch.
BROKEN = {
    "ratio infinite, A = 0": dict(old=-1e4, advantage=0.0),
    "ratio infinite, A = 1, which the clip would hide": dict(old=-1e4, advantage=1.0),
    "ratio infinite, A = -1": dict(old=-1e4, advantage=-1.0),
    "ratio NaN": dict(old=math.nan),
    "A NaN": dict(advantage=math.nan),
    "A infinite": dict(advantage=math.inf),
    "A infinite and clipped": dict(advantage=-math.inf, old=9.0),
    "KL infinite": dict(ref=1e4),
    "KL infinite, beta 0": dict(ref=1e4, beta=0.0),
    "weight NaN": dict(weight=math.nan),
    "all too large for fp32": dict(advantage=-1e30, old=-60.0),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [None, *BROKEN])
def test_a_loss_that_is_not_finite_has_no_finite_gradient(sharp, name, level):
    """The optimizer step looks at the gradient's norm alone, and leaves such an update out."""
    policy, samples = copy.deepcopy(sharp[0]), some_samples(sharp[1])
    mask, advantages = completion_mask(samples, "cpu"), torch.tensor([[1.0], [-1.0]] * 3)
    logprobs, entropy = common.token_logprobs(policy, samples, range(6))
    wrong = BROKEN.get(name, {})
    given = {"old": logprobs.detach().clone(), "ref": logprobs.detach().clone()}
    given["advantage"] = advantages.expand_as(mask).clone()
    given["weight"] = common.token_weights(mask, "sequence")
    for part in given.keys() & wrong.keys():
        given[part][1, 2] = wrong[part]  # of a token that counts
    loss, _ = common.ppo_clip_loss(
        logprobs,
        given["old"],
        given["advantage"],
        mask,
        given["weight"],
        importance_sampling_level=level,
        ref_logprobs=given["ref"],
        beta=wrong.get("beta", 0.1),
        entropy=entropy,
    )
    loss.backward()
    before = copy.deepcopy(policy.state_dict())
    norm = optimizer_step(policy, torch.optim.AdamW(policy.parameters(), lr=0.1))
    moved = any(not torch.equal(after, before[key]) for key, after in policy.state_dict().items())
    assert math.isfinite(norm) == moved == (name is None)


@pytest.mark.parametrize("coefficient", [0.0, 0.1])
def test_an_entropy_that_is_nan_reaches_the_gradient_only_by_its_bonus(coefficient):
    """A logit of -inf has no part in the log-prob of another token, but makes the entropy NaN.

    Without a bonus the loss is NaN (0 times NaN), while the gradient is that of the log-prob: with
    two logits of 0.4 and 0.8 left, 0.1 times the probability of the other token.
    """
    hidden = torch.ones(1, 4, requires_grad=True)
    head = torch.tensor([[0.1] * 4, [0.2] * 4, [-1e38] * 4])  # [V, H]: the last logit is -inf
    logprob, entropy = LinearLogProbs.apply(hidden, head, torch.tensor([0]), 1.0)
    assert logprob.isfinite() and entropy.isnan()
    one, old = torch.ones(1, 1), logprob.detach()[None]
    loss, _ = common.ppo_clip_loss(
        logprob[None], old, one, one, one, entropy=entropy[None], entropy_coef=coefficient
    )
    loss.backward()
    assert loss.isnan()
    if coefficient:
        assert not hidden.grad.isfinite().any()
    else:
        other = 1 / (1 + math.exp(-0.4))
        torch.testing.assert_close(hidden.grad, torch.full((1, 4), 0.1 * other))
