"""The numbers of a run, and from those of all runs the verdicts on the rows of claims_rows.py."""

import math
from typing import NamedTuple

import numpy as np
from claims_rows import (
    BEST_STATIC,
    PAPERS,
    START,
    Job,
    Row,
    rows_from,
    run_of,
    runs_of,
    static_weights,
)
from claims_rule import LOOKS, Evidence, decide, weigh
from compare import smooth

WINDOW = 10  # steps of the mean reward that "reach" is about
CURVE = "pass@1", "pass@4", "pass@16", "entropy", "answer_entropy", "greedy"  # kept of evaluations


class Verdict(NamedTuple):
    """What has come out for a row from one base."""

    row: Row
    base: str
    evidence: Evidence | None
    verdict: str  # a word of claims_rule.WORDS, or "open" before its first look
    earlier: bool = False  # whether its runs are those of claims_page.EARLIER


# ------------------------------------------------------------------------------ numbers of a run


def measure_run(rows: list[dict], evaluation: dict) -> dict[str, float]:
    """All numbers of a run, from what its steps have logged, and its last evaluation."""
    if not evaluation:
        return measure_growth(rows)
    return measure_evaluation(evaluation) | (measure_training(rows) if rows else {})


def measure_growth(rows: list[dict]) -> dict[str, float]:
    """The numbers of a run of entropy_growth.py, whose rows are batches of one policy."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    kappa = columns["kappa"].mean()
    return {
        "kappa": kappa,
        "growth": columns["growth"].mean() * np.sign(kappa),
        "correlation": np.corrcoef(columns["kappa"], columns["growth"])[0, 1],
    }


def measure_training(rows: list[dict]) -> dict[str, float]:
    """The numbers of the steps of a run of one of the five scripts, from what each step logs."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    third = max(len(rows) // 3, 1)
    found = {
        "early": columns["reward"][:third].mean(),
        "late": columns["reward"][-third:].mean(),
        "all_wrong": columns["all_wrong"][-third:].mean(),
        "swing": np.ptp(smooth(columns["entropy"], 8)),
    }
    if "kappa" in columns:
        found["kappa"] = columns["kappa"][:20].mean()
    if "covariance_top_1%_share" in columns:
        found["top 1% share"] = columns["covariance_top_1%_share"].mean()
    if "success_gain_completion" in columns:
        found["gain"] = columns["success_gain_completion"].mean()
    if "delta" in columns:
        found["1 - delta"] = 1 - columns["delta"].mean()
    return found


def measure_evaluation(row: dict) -> dict[str, float]:
    """The numbers of an evaluation; those of the fitted power law where there is one."""
    found = dict(row)
    found.pop("all_wrong", None)  # what claims are about is that of the rollouts
    if "fit_a" in row:
        found |= {"slope": row["fit_b"], "fit error": largest_misfit(row)}
    return found


def largest_misfit(row: dict) -> float:
    """The largest difference of pass@k and its fitted power law."""
    return max(
        abs(row[f"pass@{k}"] - math.exp(-row["fit_a"] * (k + row["fit_c"]) ** -row["fit_b"]))
        for k in (1, 2, 4, 8, 16)
    )


# -------------------------------------------------------------------------- verdicts on the rows


def judge_all(lines: dict, bases, names, looks=LOOKS) -> list[Verdict]:
    """The verdict on each row from each base that its runs are made from, paper by paper.

    names[base, run] is what the lines of a run are called, at the rate that was chosen for it.
    """
    verdicts = []
    for paper in PAPERS:
        for base in bases:  # a family: what is decided of it is all right with probability 95%
            rows = [row for row in rows_from(base) if row.paper == paper]
            found = [differences(lines, base, row, names) for row in rows]
            family = [
                weigh([values[:look] for look in looks if look <= len(values)], row.effect, looks)
                for values, row in zip(found, rows, strict=True)
            ]
            for row, evidence, verdict in zip(rows, family, decide(family), strict=True):
                verdicts.append(Verdict(row, base, evidence, verdict))
    return verdicts


def lines_of(lines: dict, base: str, name: str) -> list[dict]:
    """The lines of a run, seed by seed, as far as no seed is missing."""
    found = []
    while (job := Job(base, name, len(found))) in lines:
        found.append(lines[job])
    return found


def seeds_of(lines: dict, base: str, row: Row, names) -> list[dict[str, dict]]:
    """The lines of a row's runs by their names, for each of the first seeds that all have."""
    found = []
    while True:
        wanted = {run: Job(base, names[base, run], len(found)) for run in runs_of(row, base)}
        if any(job not in lines for job in wanted.values()):
            return found
        found.append({run: lines[job] for run, job in wanted.items()})


def differences(lines: dict, base: str, row: Row, names) -> np.ndarray:
    """The row's difference for each of the first seeds that all its runs have, [seeds]."""
    seeds = seeds_of(lines, base, row, names)
    if BEST_STATIC in (row.above, row.below) and len(seeds) < 2:
        return np.zeros(0)
    if row.metric == "reach":
        return reach_differences(seeds, static_weights(base))
    above, below = (
        side_values(seeds, base, row, side, other)
        for side, other in ((row.above, row.below), (row.below, row.above))
    )
    return above - below


def side_values(seeds: list[dict], base: str, row: Row, side, other) -> np.ndarray:
    """The metric of one side of a row, [seeds]."""
    if not isinstance(side, str):
        return np.full(len(seeds), side)
    if side == START:
        return np.array([runs[run_of(base, other)]["evaluations"][0][row.metric] for runs in seeds])
    if side == BEST_STATIC:
        return best_static(seeds, row.metric, static_weights(base))
    return np.array([runs[run_of(base, side)]["numbers"][row.metric] for runs in seeds])


def matched(lines: dict, base: str, row: Row, names) -> np.ndarray:
    """The row's difference at equal pass@1, [seeds]; none where a side is no run.

    Both runs are read where they first have the pass@1 of the lower of both ends.
    """
    sides = (row.above, row.below)
    if row.metric not in CURVE[1:] or any(side in (START, BEST_STATIC) for side in sides):
        return np.zeros(0)
    found = []
    for runs in seeds_of(lines, base, row, names):
        curves = [runs[run_of(base, side)]["evaluations"] for side in sides]
        level = min(curve[-1]["pass@1"] for curve in curves)
        above, below = (value_at(curve, level, row.metric) for curve in curves)
        found.append(above - below)
    return np.array(found)


def value_at(curve: list[dict], level: float, metric: str) -> float:
    """A metric where the run has this pass@1: at its end, or on the line that first gets there."""
    if curve[-1]["pass@1"] == level:
        return curve[-1][metric]
    if curve[0]["pass@1"] >= level:
        return curve[0][metric]
    later = next(i for i, row in enumerate(curve) if row["pass@1"] >= level)
    ends = curve[later - 1 : later + 1]
    return float(np.interp(level, [row["pass@1"] for row in ends], [row[metric] for row in ends]))


def best_static(seeds: list[dict], metric: str, weights: list[str]) -> np.ndarray:
    """For each seed the value of the static weight that is best on the mean of the other seeds.

    Which one is best is not chosen on the seed that it is compared on.
    """
    values = {name: np.array([runs[name]["numbers"][metric] for runs in seeds]) for name in weights}
    found = []
    for seed in range(len(seeds)):
        best = max(weights, key=lambda name: np.delete(values[name], seed).mean())
        found.append(values[best][seed])
    return np.array(found)


def reach_differences(seeds: list[dict], weights: list[str]) -> np.ndarray:
    """By how many steps FADE is first at the best static weight's peak, for each seed.

    The target is the peak of the mean curve of the other seeds, and the best static weight is the
    one whose curve that is. A run that does not get there has all its steps.
    """
    curves = {
        name: smooth(np.array([runs[name]["rewards"] for runs in seeds]), WINDOW)[:, WINDOW - 1 :]
        for name in ("FADE", *weights)
    }
    found = []
    for seed in range(len(seeds)):
        means = {name: np.delete(curves[name], seed, 0).mean(0) for name in weights}
        best = max(weights, key=lambda name: means[name].max())
        steps = [first_at(curves[name][seed], means[best].max()) for name in (best, "FADE")]
        found.append(steps[0] - steps[1])
    return np.array(found, dtype=float)


def first_at(curve: np.ndarray, level: float) -> int:
    """The first index at which a curve has the level; its length where it never does."""
    return int(np.argmax(curve >= level)) if curve.max() >= level else len(curve)
