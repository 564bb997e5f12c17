"""The rule of CLAIMS.md: how lines of runs become differences, intervals and verdicts."""

from functools import cache
from typing import NamedTuple

import mpmath
import numpy as np

from common import pass_at_k
from studies.claims.compare import smooth
from studies.claims.rows import BEST_STATIC, CLAIMS, START, STATIC_WEIGHTS, Row, rows_from, runs_of

LOOKS = (8, 16)  # seeds at which a row is judged
WORDS = "holds", "smaller", "none", "reversed", "unclear"
LEVEL = 0.05  # of an interval that misses the truth
CURVE = "pass@1", "pass@4", "pass@16", "entropy", "answer_entropy", "greedy"  # of evaluations
OF_PROBLEMS = "pass@1", "pass@4", "pass@16", "pass@256", "answer_entropy"  # kept for each problem
WINDOW = 10  # steps of the mean reward that "reach" is about


# ------------------------------------------------------------------------------------ statistics


def below(t: float, freedom: float) -> float:
    """P(T <= t) for Student's t with `freedom` degrees."""
    x = freedom / (freedom + t * t)
    tail = float(mpmath.betainc(freedom / 2, 0.5, 0, x, regularized=True)) / 2  # P(T > |t|)
    return 1 - tail if t > 0 else tail


@cache
def quantile(probability: float, freedom: float) -> float:
    """The t with P(T <= t) = `probability`."""
    return float(mpmath.findroot(lambda t: below(t, freedom) - probability, 2.0))


def standard_error(values) -> tuple[float, float]:
    """The standard error of the mean of paired differences, and its degrees of freedom.

    For [seeds], the usual one. For [seeds, problems], that of a model in which seeds and problems
    have random effects, crossed: d = mean + seed + problem + rest. The problems' effects count
    where they exceed their own standard error: pass@k of few problems has heavy tails, and
    otherwise noise would widen each interval. The degrees of freedom are Satterthwaite's.
    """
    values = np.asarray(values, dtype=float)
    seeds = len(values)
    if values.ndim == 1:
        return float(values.std(ddof=1)) / seeds**0.5, seeds - 1
    problems = values.shape[1]
    of_seeds, of_problems = values.mean(1), values.mean(0)
    rest = values - of_seeds[:, None] - of_problems + values.mean()  # [seeds, problems]
    square_of_seeds = problems * of_seeds.var(ddof=1)
    squares = seeds * (of_problems - values.mean()) ** 2 * problems / (problems - 1)  # [problems]
    rests = (rest**2).sum(0) / (seeds - 1) * problems / (problems - 1)  # [problems]
    excess = squares - rests  # [problems], of the mean square over that of the rest
    if excess.mean() <= excess.std(ddof=1) / problems**0.5:
        return float(square_of_seeds / values.size) ** 0.5, seeds - 1
    total = square_of_seeds + excess.mean()
    parts = square_of_seeds, squares.mean(), rests.mean()
    freedoms = seeds - 1, problems - 1, (seeds - 1) * (problems - 1)
    freedom = total**2 / sum(part**2 / each for part, each in zip(parts, freedoms, strict=True))
    freedom = round(min(max(freedom, seeds - 1), seeds + problems), 1)  # quantiles are kept
    return float(total / values.size) ** 0.5, freedom


def interval(values, level: float = LEVEL) -> tuple[float, float, float]:
    """Mean, and lower and upper end of its interval, which misses the truth with this level."""
    mean, (error, freedom) = float(np.mean(values)), standard_error(values)
    half = quantile(1 - level / 2, freedom) * error
    return mean, mean - half, mean + half


def p_above(values, bound: float) -> float:
    """The p-value of "the mean is not above `bound`"."""
    error, freedom = standard_error(values)
    distance = float(np.mean(values)) - bound
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return below(-distance / error, freedom)


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
    """What the seeds say of one row: its interval, and p-values of the opposite of their names."""

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
    evidence: Evidence | None
    word: str  # of WORDS, or "open" before its first look
    firm: bool  # whether it is the same after Holm's correction for all rows of the paper
    mark: str = ""  # of the study that it is from


def weigh(values, effect: float, looks=LOOKS) -> Evidence | None:
    """The evidence of a row's differences, seed by seed, at its last look; None before the first.

    The level is shared by the looks, so that all of their intervals together hold the truth in 95%
    of cases. P-values are multiplied by the number of looks.
    """
    done = [look for look in looks if look <= len(values)]
    if not done:
        return None
    kept = values[: done[-1]]
    p_values = (
        min(1.0, len(looks) * p_above(sign * kept, sign * bound))
        for sign, bound in ((1, 0.0), (-1, effect), (-1, 0.0))
    )
    return Evidence(len(kept), *interval(kept, LEVEL / len(looks)), *p_values)


def word_of(above: bool, smaller: bool, below: bool) -> str:
    """The word for what is sure: above 0, below the paper's effect, below 0."""
    if above:
        return "smaller" if smaller else "holds"
    if below:
        return "reversed"
    return "none" if smaller else "unclear"


def read_interval(evidence: Evidence | None, effect: float) -> str:
    """Return the verdict of an interval."""
    if evidence is None:
        return "open"
    return word_of(evidence.low > 0, evidence.high < effect, evidence.high < 0)


def corrected(family: list[Evidence | None]) -> list[str]:
    """The words for a paper's rows after Holm's correction for all of their statements.

    Rows before their first look count in the correction, too.
    """
    p_values = [(1.0,) * 3 if evidence is None else evidence[-3:] for evidence in family]
    sure = holm(np.ravel(p_values)).reshape(-1, 3) <= LEVEL
    return [word_of(*of_row) for of_row in sure.tolist()]


def judge_all(found: dict, bases, looks=LOOKS) -> list[Verdict]:
    """The verdict on each row from each base that its runs are made from, paper by paper.

    found[base, run] has the lines of a run, seed by seed.
    """
    verdicts = []
    for paper in CLAIMS:
        for base in bases:
            rows = [row for row in rows_from(base) if row.paper == paper]
            family = [weigh(differences(found, base, row), row.effect, looks) for row in rows]
            for row, evidence, sure in zip(rows, family, corrected(family), strict=True):
                word = read_interval(evidence, row.effect)
                verdicts.append(Verdict(row, base, evidence, word, word == sure))
    return verdicts


# ----------------------------------------------------------------------- the differences of a row


def lines_of(found: dict, base: str, row: Row) -> dict[str, list[dict]]:
    """The lines of a row's runs by their names, for the first seeds that all of them have.

    Empty where that is a single seed, which has no interval.
    """
    lines = {run: found.get((base, run), []) for run in runs_of(row, base)}
    count = min(map(len, lines.values()))
    return {run: of_run[:count] for run, of_run in lines.items()} if count > 1 else {}


def differences(found: dict, base: str, row: Row) -> np.ndarray:
    """The row's difference, [seeds], or [seeds, problems] where it is known for each problem."""
    lines = lines_of(found, base, row)
    if not lines:
        return np.zeros(0)
    if row.metric == "reach":
        return reach_differences(lines)
    above, below = (side_values(lines, row.metric, side) for side in (row.above, row.below))
    return above - below


def side_values(lines: dict, metric: str, side):
    """The metric of one side of a row at the end of its runs, or a number.

    [seeds, problems] where the runs have kept it for each problem, else [seeds].
    """
    if not isinstance(side, str):
        return side
    place = "end"
    if side == START:
        side, place = next(iter(lines)), "start"
    names = [name for name in STATIC_WEIGHTS if name in lines] if side == BEST_STATIC else [side]
    has_counts = all("problems" in line for of_run in lines.values() for line in of_run)
    values_of = of_problems if has_counts and metric in OF_PROBLEMS else of_run_alone
    values = [[values_of(line, metric, place) for line in lines[name]] for name in names]
    return best_of_others(np.array(values))


def of_run_alone(line: dict, metric: str, place: str) -> float:
    """A metric at the start or at the end of a run."""
    return (line["numbers"] if place == "end" else line["evaluations"][0])[metric]


def of_problems(line: dict, metric: str, place: str) -> list[float]:
    """A metric of each problem at the start or at the end of a run."""
    kept = line["problems"][place]
    if metric == "answer_entropy":
        return kept["answer_entropy"]
    samples, k = line["problems"]["samples"], int(metric.removeprefix("pass@"))
    return [pass_at_k(samples, correct, k) for correct in kept["correct"]]


def best_of_others(values: np.ndarray) -> np.ndarray:
    """Return for each seed the values of the run that is best on the other seeds.

    values [runs, seeds, ...] -> [seeds, ...]. So no run is chosen on the seed that it is judged on.
    """
    means = values.reshape(*values.shape[:2], -1).mean(2)  # [runs, seeds]
    others = means.sum(1, keepdims=True) - means
    return values[others.argmax(0), np.arange(values.shape[1])]


def reach_differences(lines: dict) -> np.ndarray:
    """Return how many steps earlier FADE reaches the peak of the best static weight, [seeds].

    For each seed, that weight is the one whose mean curve over the other seeds has the highest
    peak. A run that never reaches the peak counts with all its steps.
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
    """Return the row's difference at equal pass@1, [seeds]; empty if a side is not a run.

    The run with the lower final pass@1 is read at its end, the other one where it first gets there.
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
    """Return a metric where the run has this pass@1; a run that starts above it, at its start."""
    if curve[-1]["pass@1"] == level:
        return curve[-1][metric]
    if curve[0]["pass@1"] >= level:
        return curve[0][metric]
    later = next(i for i, row in enumerate(curve) if row["pass@1"] >= level)
    ends = curve[later - 1 : later + 1]
    return float(np.interp(level, [row["pass@1"] for row in ends], [row[metric] for row in ends]))
