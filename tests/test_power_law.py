"""The fit of a shifted power law to pass@k."""

import math

from rlvr.baselines.statistics import fit_pass_at_k

import pytest


@pytest.mark.parametrize("a, b, c", [(1.5, 0.6, 0.7), (0.3, 1.2, -0.5), (4.0, 0.3, 20.0)])
def test_it_finds_the_curve_again(a, b, c):
    ks = [2**i for i in range(9)]
    fit = fit_pass_at_k(ks, [math.exp(-a * (k + c) ** -b) for k in ks])
    assert [fit["fit_a"], fit["fit_b"]] == pytest.approx([a, b], rel=0.05)
    assert fit["fit_c"] == pytest.approx(c, rel=0.05, abs=0.05)


def test_it_needs_three_points_between_0_and_1():
    assert fit_pass_at_k([1, 2, 4, 8], [0.0, 0.5, 0.7, 1.0]) == {}
