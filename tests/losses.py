"""The PPO-clip loss of a whole minibatch, put together as the scripts do."""

from typing import NamedTuple

import torch

from common import importance_ratio, ppo_clip, token_weights


class ClipLoss(NamedTuple):
    loss: torch.Tensor
    clipped_low: torch.Tensor  # how many tokens
    clipped_high: torch.Tensor  # how many tokens


def ppo_clip_loss(
    logprobs,
    old_logprobs,
    advantages,
    mask,
    epsilon=0.2,
    epsilon_high=None,
    importance_sampling_level="token",
    aggregation="sequence",
    max_completion_length=None,
):
    """ClipLoss of logprobs, old_logprobs and mask [N, T]; advantages are [N] or [N, T]."""
    weights = token_weights(mask, aggregation, max_completion_length)
    ratio = importance_ratio(logprobs, old_logprobs, mask, importance_sampling_level)
    clipped = ppo_clip(ratio, advantages.view(len(mask), -1), epsilon, epsilon_high)
    loss = -(weights * clipped.objective).sum()
    return ClipLoss(loss, (mask * clipped.low).sum(), (mask * clipped.high).sum())
