"""grpo.py: its advantages, and which gradients make no update."""

import math

import pytest
import torch

import common
import grpo


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_get_exactly_zero(dtype):
    """Their mean and std can be off by rounding errors, whose quotient is of order 1."""
    for size in range(1, 65):
        assert not grpo.grpo_advantage(torch.full((1, size), 0.1, dtype=dtype)).any()


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(
    "broken",  # one token of a minibatch
    [
        {},
        dict(old_logprobs=-1e4),  # the clip would hide an infinite ratio
        dict(old_logprobs=math.nan),
        dict(advantages=-math.inf, old_logprobs=9.0),  # clipped
        dict(ref_logprobs=1e4),  # an infinite KL
        dict(advantages=-1e30, old_logprobs=-60.0),  # all too large for fp32
    ],
)
def test_a_loss_that_is_not_finite_has_no_finite_gradient(broken, level):
    """Run.optimizer_step looks at the gradient's norm alone, and leaves such an update out."""
    logprobs, ones = torch.full((2, 3), -1.0, requires_grad=True), torch.ones(2, 3)
    given = dict(old_logprobs=-ones, ref_logprobs=-ones, advantages=ones.clone())
    for part, value in broken.items():
        given[part][1, 2] = value
    given |= dict(logprobs=logprobs, loss_mask=ones, token_weights=ones / 6, beta=0.1)
    loss, _ = common.ppo_clip_loss(**given, importance_sampling_level=level)
    loss.backward()
    assert math.isfinite(logprobs.grad.norm()) == (not broken)
