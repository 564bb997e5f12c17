"""common.ppo_clip_loss on whole minibatches, and single parts of it."""

from typing import NamedTuple

import torch

import common


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
    **given,
):
    """ClipLoss of logprobs, old_logprobs and mask [N, T]; advantages are [N] or [N, T]."""
    weights = common.token_weights(mask, aggregation, max_completion_length)
    advantages = advantages.view(len(mask), -1)
    loss, parts = common.ppo_clip_loss(
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=mask,
        token_weights=weights,
        epsilon=epsilon,
        epsilon_high=epsilon_high,
        importance_sampling_level=importance_sampling_level,
        **given,
    )
    return ClipLoss(loss, (mask * parts["clip_low"]).sum(), (mask * parts["clip_high"]).sum())


def token_losses(logprobs, old_logprobs, advantages, mask, epsilon=0.2, level="token"):
    """The loss of each token, [N, T], before any weight: the derivatives in the weights are it."""
    weights = torch.ones_like(logprobs, requires_grad=True)
    loss, _ = common.ppo_clip_loss(
        logprobs=logprobs.detach(),
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=mask,
        token_weights=weights,
        epsilon=epsilon,
        importance_sampling_level=level,
    )
    return torch.autograd.grad(loss, weights)[0]


def kl_penalty(logprobs, ref_logprobs):
    """The k3 estimate of each token, of log-probs in any shape."""
    zeros, ones = torch.zeros_like(logprobs), torch.ones_like(logprobs)
    _, parts = common.ppo_clip_loss(
        logprobs=logprobs,
        old_logprobs=logprobs,
        advantages=zeros,
        loss_mask=ones,
        token_weights=ones,
        ref_logprobs=ref_logprobs,
        beta=1.0,
    )
    return parts["kl"]
