"""FADE's theory (sections 4, 12, 14 and 15) and its statistics, by closed forms and by hand."""

import math

from rlvr.show.statistics import fit_pass_at_k, rank1_statistics

import numpy as np
import pytest
import torch
from baseline_advantages import scaled_power
from groups import binomial, every_group, f64, near

from fade import gradient_mass

RATES = (np.arange(20_000) + 0.5) / 20_000  # solve rates that are all as frequent

# Theorem 12.1: how pass@k nears 1 depends on the density of the solve rates near 0


@pytest.mark.parametrize("b, other", [(0.3, 2.0), (0.7, 1.5), (2.0, 3.0)])
def test_theorem_12_1_power_law(b, other):
    """Solve rates from Beta(b, other): 1 - pass@k = E(1-p)^k is known, and nears C Gamma(b) k^-b.

    C is the density's factor at p^(b-1). The next term is smaller by 1/k: ten times the k, a tenth
    of the error.
    """

    def log_beta(x, y):
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    C = math.exp(-log_beta(b, other))
    errors = []
    for k in (1e3, 1e4, 1e5):
        missed = math.exp(log_beta(b, other + k) - log_beta(b, other))
        errors.append(missed / (C * math.gamma(b) * k**-b) - 1)
    assert abs(errors[0]) < 0.01
    assert [errors[0] / errors[1], errors[1] / errors[2]] == pytest.approx([10, 10], rel=0.01)


def test_theorem_12_1_rapid_decay():
    """With the density exp(-1/p) / Z near 0, k^b (1 - pass@k) falls below any bound, for any b."""
    density = np.exp(-1 / RATES)
    density /= density.mean()
    missed = [((1 - RATES) ** k * density).mean() for k in (100, 1000, 10_000)]
    for b in (1, 2, 4):
        scaled = [k**b * value for k, value in zip((100, 1000, 10_000), missed, strict=True)]
        assert scaled[0] > 10 * scaled[1] > 1000 * scaled[2]


# Section 14: the weight w(p) = C p q^alpha, whose p is estimated from G completions


def weights_of(G, alpha):
    """w(k/G), [G + 1], for all k, as the gradient mass of scaled_power."""
    rewards = every_group(G)
    return gradient_mass(scaled_power(rewards, alpha), rewards)[0]


@pytest.mark.parametrize("p, alpha", [(0.2, 1.0), (0.45, 3.0), (0.7, 2.0)])
def test_equations_28_to_31_the_noise_of_the_weight(p, alpha):
    """Var w(k/G) over the binomial, G times: Eq. 30 to first order in 1/G, and Eq. 31 over w^2."""
    C = (1 + alpha) ** (1 + alpha) / (4 * alpha**alpha)
    printed = C**2 * p * (1 - p) ** (2 * alpha - 1) * (1 - (1 + alpha) * p) ** 2
    gaps = []
    for G in (300, 600):
        weights, chances = weights_of(G, alpha), binomial(G, p)
        mean = chances @ weights
        gaps.append(G * (chances @ (weights - mean) ** 2).item() - printed)
    assert abs(gaps[1]) < 0.05 * printed + 5e-4
    assert gaps[0] / gaps[1] == pytest.approx(2, abs=0.1)
    w = C * p * (1 - p) ** alpha
    assert printed / w**2 == pytest.approx((1 - (1 + alpha) * p) ** 2 / (p * (1 - p)))


@pytest.mark.parametrize("p, least", [(0.5, 1.0), (0.25, 2.25)])
def test_table_8_the_signal_that_alpha_3_needs(p, least):
    """[2 (1-p)]^2: the squared ratio of the weights p q^3 and p q, relative to that at p = 1/2."""
    ratio = weights_of(4, 3.0) / weights_of(4, 1.0)  # at k / 4
    found = (ratio[int(4 * p)] / ratio[2]).item()
    assert found == pytest.approx((2 * (1 - p)) ** 2)
    assert found == pytest.approx(least)


@pytest.mark.parametrize("c, expected", [(0.0, 0.5), (0.5, 0.38), (1.0, 0.29)])
def test_section_14_1_the_sweet_spot(c, expected):
    """s^2 p q with s = e^(-c p) is largest at the smaller root of 2 c p^2 - 2 (c + 1) p + 1.

    The paper puts it into [0.3, 0.5] for c of 0.5 to 1, which is so to one decimal.
    """
    best = RATES[np.argmax(np.exp(-2 * c * RATES) * RATES * (1 - RATES))]
    assert best == pytest.approx(min(np.roots([2 * c, -2 * (c + 1), 1])), abs=1e-3)
    assert best == pytest.approx(expected, abs=0.01)


def signal_to_noise(weight, signal, noise):
    """(E[w s])^2 / E[w^2 v]."""
    return (weight * signal).mean() ** 2 / (weight**2 * noise).mean()


def best_alpha(G, c, share_of_noise=1):
    """The alpha of the largest signal to noise for s = e^(-c p); a known weight if G is None.

    With G completions v_0 is 1 / (G p q), and the estimate of w adds Eq. 31 times (s^2 + v_0), as
    section 14 says. Eq. 9 has s^2 alone there, which is a share of 0.
    """
    p, signal = RATES, np.exp(-c * RATES)
    alphas = np.linspace(0.8, 2, 241)
    found = []
    for alpha in alphas:
        noise = 1 / ((G or 1) * p * (1 - p))
        if G:
            of_the_weight = (1 - (1 + alpha) * p) ** 2 / (G * p * (1 - p))
            noise = noise + of_the_weight * (signal**2 + share_of_noise * noise)
        found.append(signal_to_noise(p * (1 - p) ** alpha, signal, noise))
    return alphas[np.argmax(found)]


KNOWN = [(None, 0.0, 1.0), (None, 0.5, 1.2), (None, 1.0, 1.45)]
ESTIMATED = [(8, 0.5, 1.05), (8, 1.0, 1.25), (16, 0.5, 1.05), (16, 1.0, 1.25)]


@pytest.mark.parametrize("G, c, printed", [*KNOWN, *ESTIMATED])
def test_section_14_1_the_best_alpha(G, c, printed):
    """The alphas that the paper prints, with known and with estimated weights."""
    assert best_alpha(G, c) == pytest.approx(printed, abs=0.03)


def test_equation_9_does_not_give_the_alphas_of_section_14_1():
    """For a slope of 1 its alpha is 1.31, above the printed 1.05 to 1.25."""
    assert best_alpha(8, 1.0, share_of_noise=0) == pytest.approx(1.305, abs=0.005)


def effective(weight):
    """Kish's effective sample size N_eff / M = (E w)^2 / E w^2."""
    return weight.mean() ** 2 / (weight**2).mean()


def test_kishs_effective_sample_size():
    """For w = p q it is (1/6)^2 / (1/30) = 5/6. For alpha 3, w = p q^3, less of it counts.

    It is B(2, 4)^2 / B(3, 7) = (1/20)^2 / (1/252) = 0.63.
    """
    for alpha, expected in ((1, 5 / 6), (3, 0.63)):
        assert effective(RATES * (1 - RATES) ** alpha) == pytest.approx(expected, abs=1e-8)


def quality(weight, noise):
    """Q(w) = N_eff E[s / Var(w g)] of Eq. 10 for a signal of 1."""
    return effective(weight) * (1 / (weight**2 * noise)).mean()


def test_equation_10_has_no_maximum_but_its_conclusion_has():
    """As printed, half the weight has four times the quality, since N_eff does not see the scale.

    What the text concludes, that w = 1 / v_0 is best for a flat signal, is so for the ratio that
    its alphas come from.
    """
    p, noise = RATES, 1 / (RATES * (1 - RATES))  # v_0
    best = 1 / noise
    assert quality(best / 2, noise) == pytest.approx(4 * quality(best, noise))
    assert signal_to_noise(best / 2, 1, noise) == pytest.approx(signal_to_noise(best, 1, noise))
    others = [p * (1 - p) ** alpha for alpha in (0.5, 2.0, 3.0)]
    others += [p**alpha * (1 - p) for alpha in (0.5, 2.0, 3.0)]
    ratios = [signal_to_noise(other, 1, noise) for other in others]
    assert signal_to_noise(best, 1, noise) > max(ratios)


# The change of the output head (4.2 and 15), and the fit to pass@k (section 12)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def decomposition(atoms=6, V=9, d=7, seed=0):
    """Equally likely atoms (A, v, h), with G = E[A v h^T], its u_1, alpha and h_perp as in 15.1."""
    A, v = random(atoms, seed=seed), random(atoms, V, seed=seed + 1)
    h = random(atoms, d, seed=seed + 2)
    G = torch.einsum("i,iv,id->vd", A, v, h) / atoms
    u1 = torch.linalg.svd(G).Vh[0]
    alpha = h @ u1
    return A, v, h, G, u1, alpha, h - alpha.unsqueeze(1) * u1


@pytest.mark.parametrize("seed", range(2))
def test_proposition_15_1(seed):
    A, v, h, G, u1, alpha, h_perp = decomposition(seed=100 * seed)
    signal = (A * alpha).unsqueeze(1) * v  # [atoms, V]
    residual = torch.einsum("i,iv,id->ivd", A, v, h_perp)  # [atoms, V, d]
    near(h_perp @ u1, torch.zeros(6), atol=1e-13)
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
        W = torch.einsum("i,i,iv,id->vd", drawn.bincount(minlength=6).double() / N, A, v, h)
        assert rank1_statistics(W)["r1"] == pytest.approx(limit, abs=tolerance)
        assert (torch.linalg.svdvals(W)[0] - torch.linalg.svdvals(G)[0]).abs() <= (W - G).norm()


def test_proposition_15_1_without_a_residual():
    """r_1 = 1 exactly if R = 0: each atom meets its twin with the opposite perpendicular part."""
    A, v, _, _, u1, alpha, h_perp = decomposition()
    h = alpha.unsqueeze(1) * u1 + torch.stack([h_perp, -h_perp])  # [2, atoms, d]
    both, one = (torch.einsum("i,iv,sid->vd", A, v, each) for each in (h, h[:1]))
    assert rank1_statistics(both)["r1"] == pytest.approx(1, abs=1e-12)
    assert rank1_statistics(one)["r1"] < 0.95


def test_corollary_15_2_more_failure_modes_leave_a_smaller_residual():
    """||R_F||^2 = c^2 mu^2 / K, K equally likely modes with orthogonal means; c = 3, mu = 2."""
    for K in (2, 5, 8):
        means = 2 * torch.linalg.qr(random(8, 8)).Q[:K]  # [K, d]
        pushes = 3 * torch.nn.functional.normalize(random(K, 11, seed=1), dim=1)  # [K, V]
        near((pushes.T @ means / K).square().sum(), 36 / K)


def test_corollary_15_3_a_shared_direction_accumulates_to_rank_one():
    steps = torch.einsum("tv,d->tvd", random(30, 9), random(7, seed=1))
    assert rank1_statistics(steps.sum(0))["r1"] == pytest.approx(1, abs=1e-12)


def test_rank1_statistics_by_hand():
    """s = 80, 20, 16, 4: 120 x 0.99 = 118.8 takes all four.

    s = 100, 99, 1: 200 x 0.99 = 198 takes two. 250 equal ones: 248.
    """
    turn, tilt = torch.linalg.qr(random(6, 6)).Q[:, :4], torch.linalg.qr(random(4, 4, seed=1)).Q
    four = turn @ torch.diag(f64([80, 20, 16, 4])) @ tilt
    equal = torch.linalg.qr(random(250, 250)).Q
    for weight, r1, ratio, srank in (
        (four, 6400 / 7072, 4, 4),
        (four.T, 6400 / 7072, 4, 4),
        (-four * 1e-200, 6400 / 7072, 4, 4),  # squares of 1e-200 are 0 in float64
        (torch.diag(torch.tensor([99.0, 1.0, 100.0])), 10000 / 19802, 100 / 99, 2),
        (equal, 1 / 250, 1, 248),
    ):
        expected = {"r1": pytest.approx(r1), "ratio": pytest.approx(ratio), "srank": srank}
        assert rank1_statistics(weight) == expected


@pytest.mark.parametrize("scale", [1.0, 1e-25], ids=["as large", "squares underflow in float32"])
def test_rank1_statistics_of_a_large_head(monkeypatch, scale):
    """They are those of svdvals in float64, and svdvals itself is never called.

    The head's change is one strong direction, some weaker ones and noise, in float32 as in a run.
    """
    left, right = torch.linalg.qr(random(9000, 4)).Q, torch.linalg.qr(random(512, 4, seed=1)).Q
    strong = left * f64([10, 3, 2, 1]) @ right.T
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


@pytest.mark.parametrize("a, b, c", [(1.5, 0.6, 0.7), (0.3, 1.2, -0.5), (4.0, 0.3, 20.0)])
def test_fit_pass_at_k_finds_the_curve_again(a, b, c):
    """If there are three points between 0 and 1."""
    ks = [2**i for i in range(9)]
    fit = fit_pass_at_k(ks, [math.exp(-a * (k + c) ** -b) for k in ks])
    assert [fit["fit_a"], fit["fit_b"]] == pytest.approx([a, b], rel=0.05)
    assert fit["fit_c"] == pytest.approx(c, rel=0.05, abs=0.05)
    assert fit_pass_at_k([1, 2, 4, 8], [0.0, 0.5, 0.7, 1.0]) == {}
