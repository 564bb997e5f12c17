"""Groups of rewards, and how near two tensors have to be."""

from types import SimpleNamespace

import torch


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


def shared(rewards, m_S, m_F):
    """The advantages [B, G] of gradient masses [B]: equal successes, equal failures (FADE 2.1)."""
    n, G = rewards.sum(1), rewards.shape[1]
    of_success, of_failure = m_S / n.clamp(min=1), m_F / (G - n).clamp(min=1)
    return G * torch.where(rewards == 1, of_success[:, None], -of_failure[:, None])


def near(actual, expected, atol=1e-12):
    """Equal in dtype and shape, and to `atol` in every element."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=atol)
