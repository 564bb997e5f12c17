"""The change of the output head (FADE, 4.2 and 15), and the fit to pass@k (section 12)."""

import math

from rlvr.baselines.statistics import fit_pass_at_k, rank1_statistics

import pytest
import torch
from groups import near

F64 = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def decomposition(atoms=6, V=9, d=7, seed=0):
    """Equally likely atoms (A, v, h), with G = E[A v h^T], its u_1, alpha and h_perp as in 15.1."""
    A, v, h = (
        random(atoms, seed=seed),
        random(atoms, V, seed=seed + 1),
        random(atoms, d, seed=seed + 2),
    )
    G = torch.einsum("i,iv,id->vd", A, v, h) / atoms
    u1 = torch.linalg.svd(G).Vh[0]
    alpha = h @ u1
    return A, v, h, G, u1, alpha, h - alpha.unsqueeze(1) * u1


@pytest.mark.parametrize("seed", range(5))
def test_proposition_15_1(seed):
    A, v, h, G, u1, alpha, h_perp = decomposition(seed=100 * seed)
    signal = (A * alpha).unsqueeze(1) * v  # [atoms, V]
    residual = torch.einsum("i,iv,id->ivd", A, v, h_perp)  # [atoms, V, d]
    near((h_perp @ u1), torch.zeros(6), atol=1e-13)
    # M_1 and M_2 of any sample are orthogonal, so that their energies add up: here 20 draws
    drawn = torch.randint(6, (20,), generator=torch.Generator().manual_seed(seed))
    M1, M2 = torch.outer(signal[drawn].sum(0), u1), residual[drawn].sum(0)
    W = torch.einsum("i,iv,id->vd", A[drawn], v[drawn], h[drawn])
    near(M1 + M2, W, atol=1e-11)
    near((M1 * M2).sum() / (M1.norm() * M2.norm()), 0.0)
    near(W.square().sum() / (M1.square().sum() + M2.square().sum()), 1.0)
    # Eq. 33 is exact for the expectation itself
    signal_energy, residual_energy = signal.mean(0).square().sum(), residual.mean(0).square().sum()
    limit = (signal_energy / (signal_energy + residual_energy)).item()
    assert 0.2 < limit < 0.95
    assert rank1_statistics(G)["r1"] == pytest.approx(limit, abs=1e-12)
    # larger and larger samples come near it, under the bound of Weyl's inequality at any size
    for N, tolerance in ((1_000, 0.1), (100_000, 0.01), (4_000_000, 0.0015)):
        drawn = torch.randint(6, (N,), generator=torch.Generator().manual_seed(seed))
        W = torch.einsum("i,i,iv,id->vd", drawn.bincount(minlength=6).to(F64) / N, A, v, h)
        assert rank1_statistics(W)["r1"] == pytest.approx(limit, abs=tolerance)
        assert (torch.linalg.svdvals(W)[0] - torch.linalg.svdvals(G)[0]).abs() <= (W - G).norm()


def test_proposition_15_1_without_a_residual():
    """r_1 = 1 exactly if R = 0: each atom meets its twin with the opposite perpendicular part."""
    A, v, _, _, u1, alpha, h_perp = decomposition()
    h = alpha.unsqueeze(1) * u1 + torch.stack([h_perp, -h_perp])  # [2, atoms, d]
    assert rank1_statistics(torch.einsum("i,iv,sid->vd", A, v, h))["r1"] == pytest.approx(
        1, abs=1e-12
    )
    assert rank1_statistics(torch.einsum("i,iv,id->vd", A, v, h[0]))["r1"] < 0.95


@pytest.mark.parametrize("K", [2, 5, 8])
def test_corollary_15_2_more_failure_modes_leave_a_smaller_residual(K):
    """||R_F||^2 = c^2 mu^2 / K for K equally likely modes with orthogonal means.

    Here c = 3 and mu = 2.
    """
    means = 2 * torch.linalg.qr(random(8, 8)).Q[:K]  # [K, d]
    pushes = 3 * torch.nn.functional.normalize(random(K, 11, seed=1), dim=1)  # [K, V]
    R_F = torch.einsum("kv,kd->vd", pushes, means) / K
    assert R_F.square().sum().item() == pytest.approx(36 / K, abs=1e-12)


def test_corollary_15_3_a_shared_direction_accumulates_to_rank_one():
    steps = torch.einsum("tv,d->tvd", random(30, 9), random(7, seed=1))
    assert rank1_statistics(steps.sum(0))["r1"] == pytest.approx(1, abs=1e-12)


def test_rank1_statistics_of_rank_one():
    out = rank1_statistics(torch.outer(random(12), random(5, seed=1)))
    assert out["r1"] == pytest.approx(1, abs=1e-12) and out["srank"] == 1 and out["ratio"] > 1e12


@pytest.mark.parametrize("n, srank", [(3, 3), (10, 10), (150, 149), (250, 248)])
def test_rank1_statistics_of_an_orthogonal_matrix(n, srank):
    """All singular values are equal: r1 = 1 / n, ratio 1, srank = ceil(0.99 n)."""
    out = rank1_statistics(torch.linalg.qr(random(n, n)).Q)
    assert out == {"r1": pytest.approx(1 / n), "ratio": pytest.approx(1), "srank": srank}


def test_rank1_statistics_by_hand():
    """s = 80, 20, 16, 4: 120 x 0.99 = 118.8 takes all four.

    s = 100, 99, 1: 200 x 0.99 = 198 takes two.
    """
    turn, tilt = torch.linalg.qr(random(6, 6)).Q[:, :4], torch.linalg.qr(random(4, 4, seed=1)).Q
    weight = turn @ torch.diag(torch.tensor([80.0, 20.0, 16.0, 4.0], dtype=F64)) @ tilt
    four = {
        "r1": pytest.approx(6400 / 7072, abs=1e-12),
        "ratio": pytest.approx(4, abs=1e-12),
        "srank": 4,
    }
    assert rank1_statistics(weight) == four and rank1_statistics(weight.T) == four
    assert rank1_statistics(-weight * 1e-200) == four  # squares of 1e-200 are 0 in float64
    out = rank1_statistics(torch.diag(torch.tensor([99.0, 1.0, 100.0])))
    assert out == {"r1": pytest.approx(10000 / 19802), "ratio": pytest.approx(100 / 99), "srank": 2}
    assert type(out["r1"]) is float and type(out["ratio"]) is float and type(out["srank"]) is int


@pytest.mark.parametrize("scale", [1.0, 1e-25], ids=["as large", "squares underflow in float32"])
def test_rank1_statistics_of_a_large_head(monkeypatch, scale):
    """They are those of svdvals in float64, and svdvals itself is never called.

    The head's change is one strong direction, some weaker ones and noise, in float32 as in a run.
    """
    sizes = torch.tensor([10.0, 3.0, 2.0, 1.0], dtype=F64)
    strong = (
        torch.linalg.qr(random(9000, 4)).Q * sizes @ torch.linalg.qr(random(512, 4, seed=1)).Q.T
    )
    weight = ((strong + 1e-4 * random(9000, 512, seed=2)) * scale).float()
    s = torch.linalg.svdvals(weight.double())
    srank = next(k for k in range(1, 513) if s[:k].sum() >= 0.99 * s.sum())
    expected = {
        "r1": pytest.approx((s[0] ** 2 / s.square().sum()).item(), rel=1e-9),
        "ratio": pytest.approx((s[0] / s[1]).item(), rel=1e-9),
        "srank": srank,
    }
    assert 4 < srank < 500
    monkeypatch.setattr(torch.linalg, "svdvals", None)
    assert rank1_statistics(weight) == expected
    assert rank1_statistics(weight.T) == expected
    assert rank1_statistics(torch.zeros(600, 600)) == {"r1": 0.0, "ratio": 1.0, "srank": 0}
    exact = rank1_statistics(torch.outer(random(600), random(600, seed=1)))
    assert exact["r1"] == pytest.approx(1) and exact["srank"] == 1 and 1e7 < exact["ratio"] < 1e9


def test_rank1_statistics_before_anything_is_learned():
    assert rank1_statistics(torch.zeros(5, 4)) == {"r1": 0.0, "ratio": 1.0, "srank": 0}


@pytest.mark.parametrize("a, b, c", [(1.5, 0.6, 0.7), (0.3, 1.2, -0.5), (4.0, 0.3, 20.0)])
def test_it_finds_the_curve_again(a, b, c):
    ks = [2**i for i in range(9)]
    fit = fit_pass_at_k(ks, [math.exp(-a * (k + c) ** -b) for k in ks])
    assert [fit["fit_a"], fit["fit_b"]] == pytest.approx([a, b], rel=0.05)
    assert fit["fit_c"] == pytest.approx(c, rel=0.05, abs=0.05)


def test_it_needs_three_points_between_0_and_1():
    assert fit_pass_at_k([1, 2, 4, 8], [0.0, 0.5, 0.7, 1.0]) == {}
