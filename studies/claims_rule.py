"""THE RULE of CLAIMS.md, which was fixed before its runs: how lines of runs become verdicts."""

from functools import cache
from typing import NamedTuple

import mpmath
import numpy as np
from claims_rows import BEST_STATIC, CLAIMS, START, STATIC_WEIGHTS, Row, rows_from, runs_of
from compare import smooth

LOOKS = (4, 8)  # seeds at which a row is judged
WORDS = "holds", "smaller", "none", "reversed", "unclear"
LEVEL = 0.05  # of a wrong decision among all of a paper
CURVE = "pass@1", "pass@4", "pass@16", "entropy", "answer_entropy", "greedy"  # of evaluations
WINDOW = 10  # steps of the mean reward that "reach" is about


# ------------------------------------------------------------------------------------ statistics


def below(t: float, freedom: int) -> float:
    """P(T <= t) for Student's t with `freedom` degrees."""
    x = freedom / (freedom + t * t)
    tail = float(mpmath.betainc(freedom / 2, 0.5, 0, x, regularized=True)) / 2  # P(T > |t|)
    return 1 - tail if t > 0 else tail


@cache
def quantile(probability: float, freedom: int) -> float:
    """The t with P(T <= t) = `probability`."""
    return float(mpmath.findroot(lambda t: below(t, freedom) - probability, 2.0))


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


def holm(p_values) -> np.ndarray:
    """Holm's adjusted p-values, in the order given."""
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(np.minimum(1, factors * p_values[order]))
    return adjusted


# -------------------------------------------------------------------------------------- verdicts


class Evidence(NamedTuple):
    """What the seeds say of one row: p-values, each of the opposite of its name."""

    seeds: int  # of the last look
    mean: float
    low: float
    high: float
    above: float  # of "not above 0"
    smaller: float  # of "not below the paper's effect"
    below: float  # of "not below 0"


class Verdict(NamedTuple):
    """What has come out for a row from one base."""

    row: Row
    base: str
    looks: tuple[int, ...]
    evidence: Evidence | None
    word: str  # of WORDS, or "open" before its first look


def weigh(values, effect: float, looks=LOOKS) -> Evidence | None:
    """The evidence of a row's differences, seed by seed; None before the first look.

    A p-value is the smallest of the looks so far, times the number of looks.
    """
    at_looks = [values[:look] for look in looks if look <= len(values)]
    if not at_looks:
        return None
    p_values = (
        min(p_above(sign * kept, sign * bound) for kept in at_looks)
        for sign, bound in ((1, 0.0), (-1, effect), (-1, 0.0))
    )
    kept = at_looks[-1]
    return Evidence(len(kept), *interval(kept), *(min(1.0, len(looks) * p) for p in p_values))


def decide(family: list[Evidence | None]) -> list[str]:
    """The word for each row of a paper; "open" for one before its first look.

    Rows before their first look count in the correction, too, so that no decision is undone later.
    """
    p_values = [(1.0,) * 3 if evidence is None else evidence[-3:] for evidence in family]
    sure = holm(np.ravel(p_values)).reshape(-1, 3) <= LEVEL
    words = []
    for evidence, (above, smaller, below) in zip(family, sure, strict=True):
        if evidence is None:
            words.append("open")
        elif above:
            words.append("smaller" if smaller else "holds")
        elif below:
            words.append("reversed")
        else:
            words.append("none" if smaller else "unclear")
    return words


def judge_all(found: dict, bases, looks=LOOKS) -> list[Verdict]:
    """The verdict on each row from each base that its runs are made from, paper by paper.

    found[base, run] has the lines of a run, seed by seed.
    """
    verdicts = []
    for paper in CLAIMS:
        for base in bases:  # a family: what is decided of it is all right with probability 95%
            rows = [row for row in rows_from(base) if row.paper == paper]
            family = [weigh(differences(found, base, row), row.effect, looks) for row in rows]
            for row, evidence, word in zip(rows, family, decide(family), strict=True):
                verdicts.append(Verdict(row, base, looks, evidence, word))
    return verdicts


# ----------------------------------------------------------------------- the differences of a row


def lines_of(found: dict, base: str, row: Row) -> dict[str, list[dict]]:
    """The lines of a row's runs by their names, for the first seeds that all of them have.

    Empty where that is a single seed, which has no interval.
    """
    lines = {run: found[base, run] for run in runs_of(row, base)}
    count = min(map(len, lines.values()))
    return {run: of_run[:count] for run, of_run in lines.items()} if count > 1 else {}


def differences(found: dict, base: str, row: Row) -> np.ndarray:
    """The row's difference, [seeds]."""
    lines = lines_of(found, base, row)
    if not lines:
        return np.zeros(0)
    if row.metric == "reach":
        return reach_differences(lines)
    above, below = (side_values(lines, row.metric, side) for side in (row.above, row.below))
    return above - below


def side_values(lines: dict, metric: str, side):
    """The metric of one side of a row at the end of its runs, [seeds], or a number."""
    if not isinstance(side, str):
        return side
    if side == START:
        (other,) = lines.values()
        return np.array([line["evaluations"][0][metric] for line in other])
    names = [name for name in STATIC_WEIGHTS if name in lines] if side == BEST_STATIC else [side]
    values = [[line["numbers"][metric] for line in lines[name]] for name in names]
    return best_of_others(np.array(values))


def best_of_others(values: np.ndarray) -> np.ndarray:
    """Of values [runs, seeds] for each seed that of the run which is best on the other seeds.

    Which one is best is not chosen on the seed that it is compared on.
    """
    others = values.sum(1, keepdims=True) - values  # [runs, seeds]
    return values[others.argmax(0), np.arange(values.shape[1])]


def reach_differences(lines: dict) -> np.ndarray:
    """By how many steps FADE is first at the best static weight's peak, [seeds].

    The target is the peak of the mean curve of the other seeds, and the best static weight is the
    one whose curve that is. A run that does not get there has all its steps.
    """
    curves = {
        name: smooth(np.array([line["rewards"] for line in of_run]), WINDOW)[:, WINDOW - 1 :]
        for name, of_run in lines.items()
    }
    of_fade = curves.pop("FADE")  # [seeds, steps]
    found = []
    for seed, curve in enumerate(of_fade):
        peaks = {name: np.delete(curves[name], seed, 0).mean(0).max() for name in curves}
        best = max(peaks, key=peaks.get)
        steps = [first_at(each, peaks[best]) for each in (curves[best][seed], curve)]
        found.append(steps[0] - steps[1])
    return np.array(found, dtype=float)


def first_at(curve: np.ndarray, level: float) -> int:
    """The first index at which a curve has the level; its length where it never does."""
    return int(np.argmax(curve >= level)) if curve.max() >= level else len(curve)


def matched(found: dict, base: str, row: Row) -> np.ndarray:
    """The row's difference at equal pass@1, [seeds]; none where a side is no run.

    Both runs are read where they first have the pass@1 of the lower of both ends.
    """
    if row.metric not in CURVE[1:] or {row.above, row.below} & {START, BEST_STATIC}:
        return np.zeros(0)
    lines = lines_of(found, base, row)
    values = []
    for pair in zip(*lines.values(), strict=True):
        curves = [line["evaluations"] for line in pair]
        level = min(curve[-1]["pass@1"] for curve in curves)
        above, below = (value_at(curve, level, row.metric) for curve in curves)
        values.append(above - below)
    return np.array(values)


def value_at(curve: list[dict], level: float, metric: str) -> float:
    """A metric where the run has this pass@1: at its end, or on the line that first gets there."""
    if curve[-1]["pass@1"] == level:
        return curve[-1][metric]
    if curve[0]["pass@1"] >= level:
        return curve[0][metric]
    later = next(i for i, row in enumerate(curve) if row["pass@1"] >= level)
    ends = curve[later - 1 : later + 1]
    return float(np.interp(level, [row["pass@1"] for row in ends], [row[metric] for row in ends]))
