"""The five papers' claims, tried in miniature: which hold for a tiny policy on Countdown?

    python studies/claims.py               # until all is decided or at its cap
    python studies/claims.py --quick       # tiny runs, to see that it works
    python studies/claims.py --report      # CLAIMS.md and its figures, from what has been run
    python studies/claims.py --mine my.py  # a script of yours against grpo.py: see claims_mine.py

claims_rule.py has the rule, claims_rows.py the claims and the runs. Each finished run leaves a
line in results/claims.jsonl.gz, and is not made again. So the same command goes on where it was
stopped.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import project

from rlvr.errors import UserError, fail

import claims_mine
from claims_judge import next_jobs
from claims_report import write_report
from claims_runs import FULL, QUICK, Job, read_results, train_all
from language_model_results import RESULTS as MODEL_RESULTS
from language_model_results import judge_language_model

RESULTS = project.STUDIES / "results" / "claims.jsonl.gz"


def run_all(results: Path, runs: Path, processes: int) -> None:
    """Make runs until nothing is left to decide."""
    while jobs := next_jobs(read_results(results), FULL.bases):
        print(f"{len(jobs)} runs from the {jobs[0].base} base, seeds up to {jobs[-1].seed}")
        train_all(jobs, runs, results, FULL, processes)


def run_quick(results: Path, runs: Path, processes: int) -> None:
    """One seed of the few runs of QUICK."""
    jobs = [Job(base, name, 0) for base, names in QUICK.runs.items() for name in names]
    train_all(jobs, runs, results, QUICK, processes)


def report(results: Path, out: Path) -> None:
    """Write the page, with the language model's verdicts beside the tiny policies'."""
    write_report(read_results(results), judge_language_model(MODEL_RESULTS), out)


def check(seeds: int | None, processes: int) -> None:
    """Raise UserError for numbers that give no interval, or no run."""
    if seeds is not None and seeds < 2:
        raise UserError("--seeds must be 2 or more: an interval is one of several differences")
    if processes < 1:
        raise UserError("--processes must be 1 or more")


def main(given) -> None:
    """Do what the command line asks for."""
    check(given.seeds, given.processes)
    if given.mine:
        scale = claims_mine.QUICK if given.quick else claims_mine.Scale()
        scale = replace(scale, seeds=given.seeds or scale.seeds)
        claims_mine.compare(given.mine, given.runs, scale, given.processes)
    elif given.report:
        report(given.results, given.out)
    elif given.quick:
        run_quick(given.runs / "quick.jsonl.gz", given.runs, given.processes)
    else:
        run_all(given.results, given.runs, given.processes)
        report(given.results, given.out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--mine", help='a copy of grpo.py against grpo.py: my.py, "my.py --beta 1"')
    parser.add_argument("--report", action="store_true", help="write the page, and run nothing")
    parser.add_argument("--quick", action="store_true", help="tiny runs: does the program work?")
    parser.add_argument("--seeds", type=int, help="of --mine: how many; 8, with --quick 2")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--runs", type=Path, default="runs/claims", help="folder for the runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file with a line a run")
    parser.add_argument("--out", type=Path, default=project.STUDIES, help="folder for the report")
    try:
        main(parser.parse_args())
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
