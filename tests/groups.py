"""Groups of rewards, and how near two tensors have to be."""

import math

import torch


def every_group(G, dtype=torch.float64):
    """[G + 1, G]: row k has k successes, so that every success rate of a group of G is there."""
    return (torch.arange(G) < torch.arange(G + 1).unsqueeze(1)).to(dtype)


def binomial(G, p):
    """[G + 1]: the probability of k successes among G rollouts."""
    chances = [math.comb(G, k) * p**k * (1 - p) ** (G - k) for k in range(G + 1)]
    return torch.tensor(chances, dtype=torch.float64)


def near(actual, expected, atol=1e-12):
    """Equal in dtype and shape, and to `atol` in every element."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=atol)
