"""Groups of rewards, how near two tensors have to be, and common.ppo_clip_loss on minibatches."""

from types import SimpleNamespace

import torch

import common


def f64(values):
    """A tensor of float64."""
    return torch.tensor(values, dtype=torch.float64)


def every_group(G, dtype=torch.float64):
    """[G + 1, G]: row k has k successes, so that every success rate of a group of G is there."""
    return torch.ones(G + 1, G, dtype=dtype).tril(-1)


def rollout_of(successes, **known):
    """A batch of which only this is known; the rewards are the successes if nothing is said."""
    groups = dict(rewards=successes, successes=successes, first_successes=successes)
    return SimpleNamespace(**groups | known)


def near(actual, expected, atol=1e-12):
    """Equal in dtype and shape, and to `atol` in every element."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=atol)


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
    given = dict(logprobs=logprobs, old_logprobs=logprobs, ref_logprobs=ref_logprobs)
    given |= dict(advantages=zeros, loss_mask=ones, token_weights=ones)
    return common.ppo_clip_loss(**given, beta=1.0)[1]["kl"]
