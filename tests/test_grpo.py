"""The loss of grpo.py where numbers overflow, and which gradients make no update."""

import math

import pytest
import torch

import common


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(
    "broken",  # one token of a minibatch
    [
        {},
        dict(old_logprobs=-1e4, advantages=-1.0),  # an infinite ratio that is not clipped
        dict(old_logprobs=math.nan),
        dict(advantages=-math.inf, old_logprobs=9.0),  # clipped
        dict(ref_logprobs=1e4),  # an infinite KL
        dict(advantages=-1e30, old_logprobs=-60.0),  # all too large for fp32
    ],
)
def test_a_loss_that_is_not_finite_has_no_finite_gradient(broken, level):
    """common.optimizer_step looks at the gradient's norm alone, and leaves such an update out."""
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
