"""Gradient masses (FADE, section 8; A-GRAE, Table 1) of the advantages in studies/, by formulas."""

import math

from groups import f64


def analytic_mass(n, G, k):
    """p sqrt((1 - R) / R): R is the chance that k of the G, n of them right, hold a right one."""
    missed = math.comb(G - n, k) / math.comb(G, k)
    return n / G * math.sqrt(missed / (1 - missed)) if n else 0.0


def left_out(n, G, beta, own):
    """Log-mean-exp of a group less that without the member whose reward is `own`, by Z of 8.9."""
    Z = n * math.exp(beta) + G - n
    return math.log(Z / G * (G - 1) / (Z - math.exp(beta * own))) / beta


# What each weight is called with, and its mass for a group with n successes of G, p = n / G and
# q = 1 - p; m_S and m_F where they differ.
MASSES = {
    "reinforce": ({}, lambda p, q, n, G: (p, q)),
    "mean": ({}, lambda p, q, n, G: p * q),
    "grpo": ({}, lambda p, q, n, G: math.sqrt(p * q)),
    "asym_norm": (
        {},
        lambda p, q, n, G: p * q and [math.sqrt(p * q) * (1 + x) for x in (-0.01 / q, 0.01 / p)],
    ),
    "reinforce_offset": (dict(delta=0.25), lambda p, q, n, G, delta: (p * 0.75, q * 0.25)),
    "minimum": ({}, lambda p, q, n, G: (p if q else 0.0, 0.0)),  # q = 0: the minimum is 1
    "skew_r": ({}, lambda p, q, n, G: p * q * math.sqrt(p * q)),
    # lengths that are all the same leave GRPO: the rewards are 1 - alpha p L and alpha q L
    "t2t": (dict(shares=0.3, alpha=0.5), lambda p, q, n, G, **_: math.sqrt(p * q)),
    "maxrl": ({}, lambda p, q, n, G: q if p else 0.0),  # p = 0: 0 by definition
    "pass_k": ({}, lambda p, q, n, G: ((n == 1) / G, 0.0)),
    "analytic_pass_k": (dict(k=3), lambda p, q, n, G, k: analytic_mass(n, G, k)),
    # p (p A_S(k) + q A_S(1)), A_S(j) = (1 - R_j) / sigma_j = sqrt((1 - R_j) / R_j) (8.4.3)
    "mix_pass_k": (
        dict(k=3),
        lambda p, q, n, G, k: p * analytic_mass(n, G, k) + q * analytic_mass(n, G, 1),
    ),
    "power": ({}, lambda p, q, n, G: p * q**2),
    "scaled_power": ({}, lambda p, q, n, G: p * q**2 * 27 / 16),  # p q^2 is 4/27 at most
    # sqrt(p) q is (2/3) / sqrt(3) at most
    "easy_power": (dict(alpha=0.5), lambda p, q, n, G, alpha: math.sqrt(3 * p) * q * 3 / 8),
    "asym_power": (
        dict(alpha_s=2.0, alpha_f=1.5),
        lambda p, q, n, G, **_: (p * q**2, p**1.5 * q),
    ),
    "asym": ({}, lambda p, q, n, G: (p * q, 2 * p * q)),
    "shifted": ({}, lambda p, q, n, G: (p * (q - 0.01), q * (p + 0.01))),
    "quantile": (dict(tau=0.25), lambda p, q, n, G, tau: (p * (p <= tau), q * (p > tau))),
    "median": ({}, lambda p, q, n, G: (p * (p <= 0.5), q * (p > 0.5))),
    "binary_contrastive": ({}, lambda p, q, n, G: (p, p if q else 0.0)),  # p = 1: no failures
    # 0 by definition where successes or failures are missing
    "power_norm": (dict(gamma=0.25), lambda p, q, n, G, gamma: (p * q) ** 0.75),
    # c p q / (1 + c p) / G with c = e^beta - 1 (8.9)
    "softmax": (
        dict(beta=5.0),
        lambda p, q, n, G, beta: math.expm1(beta) * p * q / (1 + math.expm1(beta) * p) / G,
    ),
    # for a finite G, from the definition; the printed masses are another matter
    "logmeanexp": (
        dict(beta=2.0),
        lambda p, q, n, G, beta: [
            p and p * left_out(n, G, beta, 1),
            q and -q * left_out(n, G, beta, 0),
        ],
    ),
    "ha_dw": (
        dict(baseline=0.5, scale=1.5),
        lambda p, q, n, G, baseline, scale: [
            1.5 * p * q * math.exp(x) for x in (baseline - p, p - baseline)
        ],
    ),
    "relu": ({}, lambda p, q, n, G: (p * q, 0.0)),
    "w_reinforce": ({}, lambda p, q, n, G: (0.1 * p, q)),
    # GRPO's, as all are as long, times w(p) for successes and w(q) for failures
    "grpo_lead": (
        dict(lengths=7),
        lambda p, q, n, G, **_: [
            math.sqrt(p * q) * (0.4 + 1.1 / (1 + math.exp(10 * (x - 0.75)))) for x in (p, q)
        ],
    ),
    "rloo": ({}, lambda p, q, n, G: p * q * G / (G - 1)),
    # of the groups with 0, 1 ... G successes, whose variances p q have the mean (G - 1) / (6 G)
    "batch_std": ({}, lambda p, q, n, G: p * q / math.sqrt((G - 1) / (6 * G))),
    "gdpo": ({}, lambda p, q, n, G: math.sqrt(p * q * (G + 1) / (G - 1))),  # of one reward
    "positive_dominant": (
        dict(beta=3),
        lambda p, q, n, G, beta: (beta * math.sqrt(p * q), math.sqrt(p * q)),
    ),
    "negative_dominant": ({}, lambda p, q, n, G: (math.sqrt(p * q) / 10, math.sqrt(p * q))),
    "hard_focused": ({}, lambda p, q, n, G: math.sqrt(q) / 2 if p else 0.0),
    "easy_focused": (
        dict(gamma=2),
        lambda p, q, n, G, gamma: gamma * math.sqrt(p) if q else 0.0,
    ),
}


def masses_of(name, G, counts):
    """What an advantage is called with, and its m_S and m_F for counts of successes: [2, n]."""
    given, mass = MASSES[name]
    found = [mass(n / G, 1 - n / G, n, G, **given) for n in counts]
    return given, f64(
        [each if isinstance(each, tuple | list) else (each, each) for each in found]
    ).T
