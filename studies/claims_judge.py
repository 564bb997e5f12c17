"""The numbers of a run, and from those of all runs the verdicts on the rows of claims_rows.py."""

import math
from typing import NamedTuple

import numpy as np
from claims_rows import BEST_STATIC, PAPERS, ROWS, STATIC_WEIGHTS, Job, Row, rows_from, runs_of
from claims_rule import Evidence, decide, weigh
from compare import smooth

WINDOW = 10  # steps of the mean reward that "reach" is about


class Verdict(NamedTuple):
    """What has come out for a row from one base."""

    row: Row
    base: str
    evidence: Evidence | None
    verdict: str  # holds, does not, unclear, or open before its first look


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
    found = {
        "kappa": kappa,
        "growth": columns["growth"].mean() * np.sign(kappa),
        "correlation": np.corrcoef(columns["kappa"], columns["growth"])[0, 1],
    }
    for name in ("easy", "hard"):  # the mean over the groups of all batches, if there is any
        groups = columns[name]
        if groups.any():
            total = (groups * columns[f"{name}_gap"]).sum()
            found[f"{name} gap"] = total / groups.sum()
    return found


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
        found["delta"] = columns["delta"].mean()
        found["1 - delta"] = 1 - found["delta"]
    return found


def measure_evaluation(row: dict) -> dict[str, float]:
    """The numbers of an evaluation; those of the fitted power law where there is one."""
    found = row | {"entropy": row["token_entropy"]}
    found.pop("all_wrong", None)  # what claims are about is that of the rollouts
    if "fit_a" in row:
        found |= {"slope": row["fit_b"], "fit error": largest_misfit(row)}
    return found


def largest_misfit(row: dict) -> float:
    """The largest difference of pass@k and its fitted power law."""
    return max(
        abs(row[f"pass@{k}"] - math.exp(-row["fit_a"] * (k + row["fit_c"]) ** -row["fit_b"]))
        for k in (1, 2, 4, 8, 16, 32)
    )


# -------------------------------------------------------------------------- verdicts on the rows


def judge_all(lines: dict[Job, dict], bases, looks) -> list[Verdict]:
    """The verdict on each row from each base that its runs are made from, paper by paper."""
    verdicts = []
    for paper in PAPERS:
        rows = [row for row in ROWS if row.paper == paper]
        places = [(row, base) for row in rows for base in bases if row in rows_from(base)]
        family = [
            weigh(at_looks(lines, base, row, looks), row.effect, looks) for row, base in places
        ]
        for place, evidence, verdict in zip(places, family, decide(family), strict=True):
            verdicts.append(Verdict(*place, evidence, verdict))
    return verdicts


def at_looks(lines: dict[Job, dict], base: str, row: Row, looks) -> list[np.ndarray]:
    """The row's differences at each look that it has reached, by the seeds of that look alone."""
    found = [differences(lines, base, row, look) for look in looks]
    return [values for look, values in zip(looks, found, strict=True) if len(values) == look]


def differences(
    lines: dict[Job, dict], base: str, row: Row, most_seeds: float = math.inf
) -> np.ndarray:
    """The row's difference for each of the first seeds that all its runs have, [seeds]."""
    names = runs_of(row)
    seeds = 0
    while seeds < most_seeds and all(Job(base, name, seeds) in lines for name in names):
        seeds += 1
    runs = {name: [lines[Job(base, name, seed)] for seed in range(seeds)] for name in names}
    if row.metric == "reach":
        return reach_differences(runs) if seeds > 1 else np.zeros(0)
    values = {
        name: np.array([line["numbers"][row.metric] for line in found])
        for name, found in runs.items()
    }
    if BEST_STATIC in (row.above, row.below):
        if seeds < 2:
            return np.zeros(0)
        values[BEST_STATIC] = best_static(values)
    above, below = (
        values[side] if isinstance(side, str) else np.full(seeds, side)
        for side in (row.above, row.below)
    )
    return above - below


def best_static(values: dict[str, np.ndarray]) -> np.ndarray:
    """For each seed the value of the static weight that is best on the mean of the other seeds.

    Which one is best is not chosen on the seed that it is compared on.
    """
    found = []
    for seed in range(len(values[STATIC_WEIGHTS[0]])):
        best = max(STATIC_WEIGHTS, key=lambda name: np.delete(values[name], seed).mean())
        found.append(values[best][seed])
    return np.array(found)


def reach_differences(runs: dict[str, list[dict]]) -> np.ndarray:
    """By how many steps FADE is first at the best static weight's peak, for each seed.

    The target is the peak of the mean curve of the other seeds, and the best static weight is the
    one whose curve that is. A run that does not get there has all its steps.
    """
    curves = {
        name: smooth(np.array([line["rewards"] for line in found]), WINDOW)[:, WINDOW - 1 :]
        for name, found in runs.items()
    }
    found = []
    for seed in range(len(curves["FADE"])):
        means = {name: np.delete(curves[name], seed, 0).mean(0) for name in STATIC_WEIGHTS}
        best = max(STATIC_WEIGHTS, key=lambda name: means[name].max())
        steps = [first_at(curves[name][seed], means[best].max()) for name in (best, "FADE")]
        found.append(steps[0] - steps[1])
    return np.array(found, dtype=float)


def first_at(curve: np.ndarray, level: float) -> int:
    """The first index at which a curve has the level; its length where it never does."""
    return int(np.argmax(curve >= level)) if curve.max() >= level else len(curve)


def next_jobs(lines: dict[Job, dict], bases, looks) -> list[Job]:
    """The runs to make next: of all rows for the first look, then of those that are unclear.

    Headlines come first, and a run's seeds one after another, so that rows are decided on the way.
    """
    for look in looks:
        undecided = [
            verdict
            for verdict in judge_all(lines, bases, looks)
            if verdict.verdict in ("open", "unclear")
            and (verdict.evidence is None or verdict.evidence.seeds < look)
        ]
        undecided.sort(key=lambda verdict: not verdict.row.headline)
        for base in bases:
            names = dict.fromkeys(
                name for found in undecided if found.base == base for name in runs_of(found.row)
            )
            jobs = [Job(base, name, seed) for name in names for seed in range(look)]
            missing = [job for job in jobs if job not in lines]
            if missing:
                return missing
    return []
