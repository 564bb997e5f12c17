"""The numbers that claims are about, of what language_model.py has kept of its runs."""

from pathlib import Path

import project

from rlvr.logs import read_rows

from claims_judge import Verdict, judge_all
from claims_measures import measure_evaluation, measure_growth, measure_training
from claims_rows import LANGUAGE_MODEL
from claims_runs import Job

RESULTS = project.STUDIES / "results" / "language_model"
SEEDS = 3  # of each run, which are judged once, when all are there


def measure(result: Path, rows: list[dict]) -> dict[str, float]:
    """The numbers of the folder of one result, whose steps have logged the rows."""
    if rows and "growth" in rows[0]:
        return measure_growth(rows)
    found = measure_evaluation(read_rows(result, "eval")[-1])
    return found | measure_training(rows) if rows else found


def read_lines(results: Path) -> dict[Job, dict]:
    """The numbers of each run that is finished, and the mean reward of each of its steps."""
    found = {}
    for folder in sorted(results.glob("*-[0-9]")):
        name, _, seed = folder.name.rpartition("-")
        rows = read_rows(folder, "metrics")
        rewards = [row["reward"] for row in rows if "reward" in row]
        line = {"numbers": measure(folder, rows), "rewards": rewards}
        found[Job(LANGUAGE_MODEL, name, int(seed))] = line
    return found


def judge_language_model(results: Path) -> list[Verdict]:
    """The language model's verdicts, by the rule of the tiny policies with one look."""
    return judge_all(read_lines(results), [LANGUAGE_MODEL], (SEEDS,))
