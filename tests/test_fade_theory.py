"""What FADE derives about solve rates: pass@k (section 12), the noise of weights (section 14)."""

import math

import numpy as np
import pytest
from groups import binomial, every_group

from fade import POLICY_WEIGHTS, gradient_mass

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
    p = (np.arange(200_000) + 0.5) / 200_000
    density = np.exp(-1 / p)
    density /= density.mean()
    missed = [((1 - p) ** k * density).mean() for k in (100, 1000, 10_000)]
    for b in (1, 2, 4):
        scaled = [k**b * value for k, value in zip((100, 1000, 10_000), missed, strict=True)]
        assert scaled[0] > 10 * scaled[1] > 1000 * scaled[2]


# Section 14: the weight w(p) = C p q^alpha, whose p is estimated from G completions


def weights_of(G, alpha):
    """w(k/G), [G + 1], for all k, as the gradient mass of scaled_power."""
    rewards = every_group(G)
    return gradient_mass(POLICY_WEIGHTS["scaled_power"](rewards, alpha), rewards)[0]


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_equation_27_the_peak_is_that_of_grpo_without_std(alpha):
    """1/4, at p = 1 / (1 + alpha), which is 1/2, 1/3 and 1/4: all among k / 12."""
    weights = weights_of(12, alpha)
    assert weights.max().item() == pytest.approx(1 / 4, abs=1e-14)
    assert weights.argmax().item() == 12 / (1 + alpha)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("p", [0.2, 0.45, 0.7])
def test_equations_28_to_31_the_noise_of_the_weight(alpha, p):
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
    p = np.linspace(0.001, 0.999, 999)
    best = p[np.argmax(np.exp(-2 * c * p) * p * (1 - p))]
    assert best == pytest.approx(min(np.roots([2 * c, -2 * (c + 1), 1])), abs=1e-3)
    assert best == pytest.approx(expected, abs=0.01)


def signal_to_noise(weight, signal, noise):
    """(E[w s])^2 / E[w^2 v], over solve rates that are all as frequent."""
    return (weight * signal).mean() ** 2 / (weight**2 * noise).mean()


@pytest.mark.parametrize(
    "G, c, printed",
    [
        (None, 0.0, 1.0),
        (None, 0.5, 1.2),
        (None, 1.0, 1.45),
        (8, 0.5, 1.05),
        (8, 1.0, 1.25),
        (16, 0.5, 1.05),
        (16, 1.0, 1.25),
    ],
)
def test_section_14_1_the_best_alpha(G, c, printed):
    """The alphas that the paper prints for s = e^(-c p), with known and with estimated weights.

    With G completions v_0 is 1 / (G p q), and the estimate adds Eq. 31 times (s^2 + v_0).
    """
    p = (np.arange(2000) + 0.5) / 2000
    signal = np.exp(-c * p)
    alphas = np.linspace(0.8, 2, 241)
    found = []
    for alpha in alphas:
        noise = 1 / ((G or 1) * p * (1 - p))
        if G:
            of_the_weight = (1 - (1 + alpha) * p) ** 2 / (G * p * (1 - p))
            noise = noise + of_the_weight * (signal**2 + noise)
        found.append(signal_to_noise(p * (1 - p) ** alpha, signal, noise))
    assert alphas[np.argmax(found)] == pytest.approx(printed, abs=0.03)


def quality(weight, noise):
    """Q(w) = N_eff E[s / Var(w g)] of Eq. 10 for a signal of 1, all solve rates as frequent."""
    effective = weight.mean() ** 2 / (weight**2).mean()
    return effective * (1 / (weight**2 * noise)).mean()


def test_equation_10_has_no_maximum_but_its_conclusion_has():
    """As printed, half the weight has four times the quality, since N_eff does not see the scale.

    What the text concludes, that w = 1 / v_0 is best for a flat signal, is so for the ratio that
    its alphas come from.
    """
    p = np.linspace(0.02, 0.98, 49)
    noise = 1 / (p * (1 - p))  # v_0
    best = 1 / noise
    assert quality(best / 2, noise) == pytest.approx(4 * quality(best, noise))
    assert signal_to_noise(best / 2, 1, noise) == pytest.approx(signal_to_noise(best, 1, noise))
    others = [p * (1 - p) ** alpha for alpha in (0.5, 2.0, 3.0)]
    others += [p**alpha * (1 - p) for alpha in (0.5, 2.0, 3.0)]
    ratios = [signal_to_noise(other, 1, noise) for other in others]
    assert signal_to_noise(best, 1, noise) > max(ratios)


def test_kishs_effective_sample_size():
    """N_eff / M = (E w)^2 / E w^2: for w = p q over uniform rates, (1/6)^2 / (1/30) = 5/6.

    For alpha 3, w = p q^3: B(2, 4)^2 / B(3, 7) = (1/20)^2 / (1/252) = 0.63. Less of it counts.
    """
    p = (np.arange(100_000) + 0.5) / 100_000
    for alpha, expected in ((1, 5 / 6), (3, 0.63)):
        w = p * (1 - p) ** alpha
        assert w.mean() ** 2 / (w**2).mean() == pytest.approx(expected, abs=1e-8)
