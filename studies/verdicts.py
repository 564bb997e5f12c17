"""The five papers' claims again, from a base whose failures are wrong choices: which hold?

    python studies/verdicts.py run       # seed after seed until all is decided or at its cap
    python studies/verdicts.py run --quick           # tiny runs, to see that it works
    python studies/verdicts.py report    # CLAIMS.md and its figure, from what has been run so far
    python studies/verdicts.py plan      # the power for each row, at the former study's spread

verdicts_rule.py has the rule, verdicts_rows.py the claims and the runs. Each finished run leaves a
line in results/verdicts.jsonl.gz, and is not made again. So `run` goes on where it was stopped.
"""

import argparse
import json
import os
from pathlib import Path

import project

from verdicts_judge import next_jobs
from verdicts_report import plan_text, write_report
from verdicts_runs import FULL, QUICK, Job, read_results, train_all

RESULTS = project.STUDIES / "results" / "verdicts.jsonl.gz"


def run_all(results: Path, runs: Path, processes: int) -> None:
    """Make runs until nothing is left to decide."""
    while jobs := next_jobs(read_results(results), FULL.bases):
        print(f"{len(jobs)} runs from the {jobs[0].base} base, seeds up to {jobs[-1].seed}")
        train_all(jobs, runs, results, FULL, processes)


def run_quick(results: Path, runs: Path, processes: int) -> None:
    """One seed of the few runs of QUICK."""
    jobs = [Job(base, name, 0) for base, names in QUICK.runs.items() for name in names]
    train_all(jobs, runs, results, QUICK, processes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("what", choices=["run", "report", "plan"])
    parser.add_argument("--quick", action="store_true", help="tiny runs, with --results elsewhere")
    parser.add_argument("--runs", type=Path, default="runs/verdicts", help="folder for the runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file with a line a run")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--out", type=Path, default=project.STUDIES, help="folder for the report")
    given = parser.parse_args()
    if given.what == "run":
        make = run_quick if given.quick else run_all
        make(given.results, given.runs, given.processes)
    elif given.what == "report":
        write_report(read_results(given.results), given.out)
    else:
        print(*plan_text(json.loads((project.STUDIES / "claims.json").read_text())), sep="\n")
