"""The statistics of the output head's change (FADE 4.2, 15) and the fit to pass@k (section 12)."""

import math

import pytest
import torch
from groups import f64

from fade import rank1_statistics
from studies.claims.runs import fit_pass_at_k, measure


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_rank1_statistics_by_hand():
    """s = 80, 20, 16, 4: 120 x 0.99 = 118.8 takes all four."""
    # s = 100, 99, 1: 200 x 0.99 = 198 takes two. 250 equal ones: 248.
    turn, tilt = torch.linalg.qr(random(6, 6)).Q[:, :4], torch.linalg.qr(random(4, 4, seed=1)).Q
    four = turn @ torch.diag(f64([80, 20, 16, 4])) @ tilt
    equal = torch.linalg.qr(random(250, 250)).Q
    tall = torch.zeros(9000, 2)  # with more rows than are added up at once
    tall[0], tall[-1] = torch.tensor([[5000.0, 4999.0], [4999.0, 5000.0]])  # s = 9999, 1
    for weight, r1, ratio, srank in (
        (four, 6400 / 7072, 4, 4),
        (four.T, 6400 / 7072, 4, 4),
        (-four * 1e-200, 6400 / 7072, 4, 4),  # squares of 1e-200 are 0 in float64
        (-torch.diag(torch.tensor([99.0, 1.0, 100.0])), 10000 / 19802, 100 / 99, 2),
        (equal, 1 / 250, 1, 248),
        (torch.diag(torch.tensor([3.0, 0.0])), 1, 1e8, 1),  # what is smaller counts as rounding
        (torch.zeros(6, 7), 0, 1, 0),
        (tall, 99980001 / 99980002, 9999, 1),  # 1e-8 of a square is less than float32 tells apart
    ):
        expected = {"r1": pytest.approx(r1), "ratio": pytest.approx(ratio), "srank": srank}
        assert rank1_statistics(weight) == expected


@pytest.mark.parametrize("a, b, c", [(1.5, 0.6, 0.7), (0.3, 1.2, -0.5), (4.0, 0.3, 20.0)])
def test_fit_pass_at_k_finds_the_curve_again(a, b, c):
    """If there are three points between 0 and 1."""
    ks = [2**i for i in range(9)]
    values = [math.exp(-a * (k + c) ** -b) for k in ks]
    fit = fit_pass_at_k(ks, values)
    assert [fit["fit_a"], fit["fit_b"]] == pytest.approx([a, b], rel=0.05)
    assert fit["fit_c"] == pytest.approx(c, rel=0.05, abs=0.05)
    row = {f"pass@{k}": value for k, value in zip(ks, values, strict=True)}
    numbers = measure([dict(reward=0, all_wrong=0, entropy=0)], row)
    assert (numbers["slope"], numbers["fit error"]) == (fit["fit_b"], pytest.approx(0, abs=2e-3))
    assert fit_pass_at_k(ks[:3], values[:3]).keys() == fit.keys()
    assert fit_pass_at_k([1, 2, 4, 8], [0.0, 0.5, 0.7, 1.0]) == {}


def test_numbers_of_nine_steps():
    rows = [dict(reward=i, all_wrong=0, entropy=8 * (i == 8)) for i in range(9)]
    assert measure(rows, {}) == {"early": 1, "late": 7, "all_wrong": 0, "swing": 1}
