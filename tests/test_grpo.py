"""grpo.py: its advantages, and which gradients make no update."""

import math

import pytest
import torch
from groups import f64, near

import agrae
import common
import cwgrpo
import grpo


@pytest.mark.parametrize(
    "rewards, scaled, unscaled",
    [
        # G = 2: the population's std is 1/2; Bessel's would give 1/sqrt(2)
        ([1, 0], [1, -1], [1 / 2, -1 / 2]),
        # p = 3/4: sqrt(q / p), -sqrt(p / q)
        ([1, 1, 0, 1], [*[1 / 3**0.5] * 2, -(3**0.5), 1 / 3**0.5], [1 / 4, 1 / 4, -3 / 4, 1 / 4]),
        ([0, 1, 2], [-(1.5**0.5), 0, 1.5**0.5], [-1, 0, 1]),  # rewards beside 0 and 1: variance 2/3
    ],
)
def test_grpo_advantage(rewards, scaled, unscaled):
    """Beside a group whose rewards are equal, which gets 0."""
    groups, zeros = f64([rewards, [0.7] * len(rewards)]), [0] * len(rewards)
    for script in (grpo, agrae, cwgrpo):  # each has a copy
        near(script.grpo_advantage(groups), [scaled, zeros])
        near(script.grpo_advantage(groups.float()), [scaled, zeros], atol=1e-6)
        near(script.grpo_advantage(groups, scale_rewards=False), [unscaled, zeros])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.7, 0.1, -2.3, 1e-8])
def test_equal_rewards_get_exactly_zero(reward, dtype):
    """Their mean and std can be off by rounding errors, whose quotient is of order 1."""
    for size in range(1, 65):
        rewards = torch.full((2, size), reward, dtype=dtype)
        assert (grpo.grpo_advantage(rewards) == 0).all()
        assert (grpo.grpo_advantage(rewards, scale_rewards=False) == 0).all()


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(
    "broken",  # one token of a minibatch
    [
        {},
        dict(old=-1e4, advantage=1.0),  # the clip would hide an infinite ratio
        dict(old=math.nan),
        dict(advantage=-math.inf, old=9.0),  # clipped
        dict(ref=1e4),  # an infinite KL
        dict(advantage=-1e30, old=-60.0),  # all too large for fp32
    ],
)
def test_a_loss_that_is_not_finite_has_no_finite_gradient(broken, level):
    """Run.optimizer_step looks at the gradient's norm alone, and leaves such an update out."""
    logprobs, ones = torch.full((2, 3), -1.0, requires_grad=True), torch.ones(2, 3)
    given = {"old": -ones, "ref": -ones, "advantage": ones.clone()}
    for part, value in broken.items():
        given[part][1, 2] = value
    loss, _ = common.ppo_clip_loss(
        logprobs=logprobs,
        old_logprobs=given["old"],
        advantages=given["advantage"],
        loss_mask=ones,
        token_weights=ones / 6,
        importance_sampling_level=level,
        ref_logprobs=given["ref"],
        beta=0.1,
    )
    loss.backward()
    assert math.isfinite(logprobs.grad.norm()) == (not broken)
