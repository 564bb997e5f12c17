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
    """The advantages [B, G] of these gradient masses [B]: equal successes, and equal failures.

    By FADE 2.1, m_S is the sum of A over a group's successes, and m_F that of -A over its failures,
    over G. Both tell what a prompt weighs.
    """
    n, G = rewards.sum(1, keepdim=True), rewards.shape[1]
    of_success, of_failure = m_S[:, None] / n.clamp(min=1), m_F[:, None] / (G - n).clamp(min=1)
    return G * torch.where(rewards == 1, of_success, -of_failure)


def near(actual, expected, atol=1e-12):
    """Equal in dtype and shape, and to `atol` in every element."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=atol)
