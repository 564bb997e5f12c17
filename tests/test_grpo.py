"""grpo.py: its advantages, and which gradients make no update."""

import copy
import math
from types import SimpleNamespace

from rlvr.tasks.problems import own_tokens
from rlvr.training.run import Run
from rlvr.training.updates import UpdateMetrics

import pytest
import torch
from groups import f64, near
from samples import some_samples

import common
import grpo

# ------------------------------------------------------------------------------------ advantages


@pytest.mark.parametrize(
    "rewards, scaled, unscaled",
    [
        # G = 2: the population's std is 1/2; Bessel's would give 1/sqrt(2)
        ([1, 0], [1, -1], [1 / 2, -1 / 2]),
        # p = 1/4: sqrt(q / p), -sqrt(p / q)
        ([1, 0, 0, 0], [3**0.5, *[-1 / 3**0.5] * 3], [3 / 4, *[-1 / 4] * 3]),
        ([1, 1, 0, 1], [*[1 / 3**0.5] * 2, -(3**0.5), 1 / 3**0.5], [1 / 4, 1 / 4, -3 / 4, 1 / 4]),
        ([0, 1, 2], [-(1.5**0.5), 0, 1.5**0.5], [-1, 0, 1]),  # rewards beside 0 and 1: variance 2/3
    ],
)
def test_grpo_advantage(rewards, scaled, unscaled):
    near(grpo.grpo_advantage(f64([rewards])), [scaled])
    near(grpo.grpo_advantage(f64([rewards]).float()), [scaled], atol=1e-6)
    near(grpo.grpo_advantage(f64([rewards]), scale_rewards=False), [unscaled])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.7, 0.1, 1 / 3, -2.3, 1e-8, 12345.678])
def test_equal_rewards_get_exactly_zero(reward, dtype):
    """Their mean and std can be off by rounding errors, whose quotient is of order 1."""
    for size in range(1, 65):
        rewards = torch.full((2, size), reward, dtype=dtype)
        assert (grpo.grpo_advantage(rewards) == 0).all()
        assert (grpo.grpo_advantage(rewards, scale_rewards=False) == 0).all()


# ----------------------------------------------------------------------------- optimizer updates

# What is wrong with one token of a minibatch.
BROKEN = {
    "ratio infinite, A = 0": dict(old=-1e4, advantage=0.0),
    "ratio infinite, A = 1, which the clip would hide": dict(old=-1e4, advantage=1.0),
    "ratio NaN": dict(old=math.nan),
    "A NaN": dict(advantage=math.nan),
    "A infinite and clipped": dict(advantage=-math.inf, old=9.0),
    "KL infinite": dict(ref=1e4),
    "all too large for fp32": dict(advantage=-1e30, old=-60.0),
}


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("name", [None, *BROKEN])
def test_a_loss_that_is_not_finite_has_no_finite_gradient(sharp, name, level):
    """The optimizer step looks at the gradient's norm alone, and leaves such an update out."""
    policy, samples = copy.deepcopy(sharp[0]), some_samples(sharp[1])
    mask, advantages = 1.0 * own_tokens(samples), torch.tensor([[1.0], [-1.0]] * 3)
    logprobs, entropy = common.token_logprobs(policy, samples, range(6))
    wrong = BROKEN.get(name, {})
    given = {"old": logprobs.detach().clone(), "ref": logprobs.detach().clone()}
    given["advantage"] = advantages.expand_as(mask).clone()
    for part in given.keys() & wrong.keys():
        given[part][1, 2] = wrong[part]  # of a token that counts
    loss, _ = common.ppo_clip_loss(
        logprobs=logprobs,
        old_logprobs=given["old"],
        advantages=given["advantage"],
        loss_mask=mask,
        token_weights=common.token_weights(mask, "sequence"),
        importance_sampling_level=level,
        ref_logprobs=given["ref"],
        beta=0.1,
        entropy=entropy,
    )
    loss.backward()
    before = copy.deepcopy(policy.state_dict())
    run = SimpleNamespace(skipped=0, skipped_in_a_row=0, updates=UpdateMetrics())
    Run.optimizer_step(run, policy, torch.optim.AdamW(policy.parameters(), lr=0.1))
    (norm,) = run.updates.grad_norms
    moved = any(not torch.equal(after, before[key]) for key, after in policy.state_dict().items())
    assert math.isfinite(norm) == moved == (name is None)
