"""THE RULE of claims.py, which was fixed before its runs.

A row is a difference between two runs of one seed, which share the starting policy, the problems
and the random numbers. Each run has the learning rate that was best for its method. Three
statements are tried to be refuted over the seeds, by one-sided t-tests: the mean difference is "not
above 0", "not below the paper's effect", "not below 0". Refuted is what has p <= 0.05 after Holm's
correction, which is for all statements of a paper from one starting policy, and after a factor of 2
for two looks: after 4 seeds, and after 8. Then the claim

- HOLDS: above 0, and not surely below the paper's effect;
- is SMALLER: above 0, and below the paper's effect;
- has NONE of the effect: below the paper's effect, and on neither side of 0;
- is REVERSED: below 0;
- is UNCLEAR otherwise, and its 95% interval is what is known.

Where a paper prints no number, the effect is ours: the least that would matter.
"""

import math
from typing import NamedTuple

import numpy as np

LOOKS = (4, 8)  # seeds at which a row is judged
WORDS = "holds", "smaller", "none", "reversed", "unclear"
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
    """What the seeds say of one row: p-values, each of the opposite of its name."""

    seeds: int  # of the last look
    mean: float
    low: float
    high: float
    above: float  # of "not above 0"
    smaller: float  # of "not below the paper's effect"
    below: float  # of "not below 0"


def weigh(at_looks: list[np.ndarray], effect: float, looks=LOOKS) -> Evidence | None:
    """The evidence of a row's differences at each look so far; None before the first look.

    A p-value is the smallest of the looks so far, times the number of looks.
    """
    if not at_looks:
        return None
    p_values = (
        min(p_above(sign * values, sign * bound) for values in at_looks)
        for sign, bound in ((1, 0.0), (-1, effect), (-1, 0.0))
    )
    kept = at_looks[-1]
    return Evidence(len(kept), *interval(kept), *(min(1.0, len(looks) * p) for p in p_values))


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
        p_values += [1.0] * 3 if evidence is None else evidence[-3:]
    sure = holm(p_values).reshape(-1, 3) <= LEVEL
    verdicts = []
    for evidence, (above, smaller, below) in zip(family, sure, strict=True):
        if evidence is None:
            verdicts.append("open")
        elif above:
            verdicts.append("smaller" if smaller else "holds")
        elif below:
            verdicts.append("reversed")
        else:
            verdicts.append("none" if smaller else "unclear")
    return verdicts
