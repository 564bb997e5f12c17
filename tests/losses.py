"""common.ppo_clip_loss on whole minibatches, and its KL penalty alone."""

import torch

import common


def ppo_clip_loss(logprobs, old_logprobs, advantages, mask, **given):
    """The loss, and the tokens clipped below and above; advantages [N] or [N, T], others [N, T]."""
    aggregation = given.pop("aggregation", "sequence")
    weights = common.token_weights(mask, aggregation, given.pop("max_completion_length", None))
    given |= dict(logprobs=logprobs, old_logprobs=old_logprobs, loss_mask=mask)
    given |= dict(advantages=advantages.view(len(mask), -1), token_weights=weights)
    loss, parts = common.ppo_clip_loss(**given)
    return loss, (mask * parts["clip_low"]).sum(), (mask * parts["clip_high"]).sum()


def clip_loss(**given):
    return ppo_clip_loss(**given)[0]


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
