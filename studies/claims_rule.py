"""THE RULE of claims.py, which was fixed before its runs.

A row is a difference between two runs of one seed, which share the starting policy, the problems
and the random numbers. Over the seeds it has two hypotheses to refute, by one-sided t-tests: "not
above 0" (refuted, the claim HOLDS) and "not below the paper's effect" (refuted, and the other is
not, the claim DOES NOT HOLD). Otherwise it is UNCLEAR, and its 95% interval is what is known. There
is a look after 4, 8, 16 and 32 seeds, and only rows that are unclear get more seeds. A p-value is
the smallest of the looks so far, times the number of looks. Holm's correction is for all hypotheses
of one paper, so that with probability 95% all that is decided of a paper is right. Where a paper
prints no number, the effect is ours: the least that would matter.
"""

import math
from typing import NamedTuple

import numpy as np

LOOKS = (4, 8, 16, 32)  # seeds at which a row is judged; the last is the cap
LEVEL = 0.05  # of a wrong decision among all of a paper


def below(t: float, freedom: int) -> float:
    """P(T <= t) for Student's t with `freedom` degrees, by the finite series for whole degrees."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    term, total = (cosine, cosine) if freedom % 2 else (1.0, 1.0)
    for k in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total  # P(-t < T < t) for an even number of degrees
    if freedom % 2:
        inside = 2 / math.pi * (angle + (inside if freedom > 1 else 0))
    return (1 + inside) / 2


def quantile(probability: float, freedom: int) -> float:
    """The t with P(T <= t) = `probability`, by bisection."""
    low, high = -1e6, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle, freedom) < probability else (low, middle)
    return middle


def interval(values) -> tuple[float, float, float]:
    """Mean, and lower and upper end of its 95% interval."""
    mean = float(np.mean(values))
    half = quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def p_above(values, bound: float) -> float:
    """The p-value of "the mean is not above `bound`"."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    distance = float(np.mean(values)) - bound
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return below(-distance / error, len(values) - 1)


class Evidence(NamedTuple):
    """What the seeds say of one row."""

    seeds: int  # of the last look
    mean: float
    low: float
    high: float
    p_holds: float  # of "not above 0"
    p_fails: float  # of "not below the paper's effect"


def weigh(at_looks: list[np.ndarray], effect: float, looks) -> Evidence | None:
    """The evidence of a row's differences at each look so far; None before the first look.

    Each look has its own differences, [seeds] each, because some of them depend on the other seeds.
    Those that come later must not change a look that has been taken.
    """
    if not at_looks:
        return None
    p_holds = min(p_above(values, 0.0) for values in at_looks)
    p_fails = min(p_above(-values, -effect) for values in at_looks)
    kept = at_looks[-1]
    return Evidence(
        len(kept),
        *interval(kept),
        min(1.0, len(looks) * p_holds),
        min(1.0, len(looks) * p_fails),
    )


def holm(p_values) -> np.ndarray:
    """Holm's adjusted p-values, in the order given."""
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(np.minimum(1, factors * p_values[order]))
    return adjusted


def decide(family: list[Evidence | None]) -> list[str]:
    """The verdict on each row of a paper; "open" for one before its first look.

    Rows before their first look count in the correction, too, so that no decision is undone later.
    """
    p_values = []
    for evidence in family:
        p_values += [1.0, 1.0] if evidence is None else [evidence.p_holds, evidence.p_fails]
    adjusted = holm(p_values).reshape(-1, 2)
    verdicts = []
    for evidence, (holds, fails) in zip(family, adjusted, strict=True):
        if evidence is None:
            verdicts.append("open")
        elif holds <= LEVEL:
            verdicts.append("holds")
        else:
            verdicts.append("does not" if fails <= LEVEL else "unclear")
    return verdicts
