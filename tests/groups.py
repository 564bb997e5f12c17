"""Groups of rewards, and how near two tensors have to be."""

import math

import torch


def f64(values):
    """A tensor of float64."""
    return torch.tensor(values, dtype=torch.float64)


def every_group(G, dtype=torch.float64):
    """[G + 1, G]: row k has k successes, so that every success rate of a group of G is there."""
    return torch.ones(G + 1, G, dtype=dtype).tril(-1)


def binomial(G, p):
    """[G + 1]: the probability of k successes among G rollouts."""
    return f64([math.comb(G, k) * p**k * (1 - p) ** (G - k) for k in range(G + 1)])


def near(actual, expected, atol=1e-12):
    """Equal in dtype and shape, and to `atol` in every element."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=atol)
