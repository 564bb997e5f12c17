"""The five papers' claims, tried in miniature: which hold for a tiny policy on Countdown?

    python studies/claims.py                     # until all is decided or at its last look
    python studies/claims.py --language_model    # the same claims with SmolLM2-135M
    python studies/claims.py --report            # CLAIMS.md and its figures, from what has been run
    python studies/claims.py --mine my.py        # a script of yours against grpo.py: claims_mine.py

claims_rows.py has the claims and the runs, claims_runs.py the choice of learning rates, and
claims_rule.py the rule of the verdicts. Each finished run leaves a line in studies/results, and is
not made again. So the same command goes on where it was stopped.
"""

import argparse
import os
import sys
from pathlib import Path

import project

from rlvr.errors import UserError, fail

import claims_mine
import claims_page
import claims_runs


def main(given) -> None:
    """Do what the command line asks for. UserError for numbers that give no interval, or no run."""
    if given.seeds is not None and given.seeds < 2:
        raise UserError("--seeds must be 2 or more: an interval is one of several differences")
    if given.processes < 1:
        raise UserError("--processes must be 1 or more")
    if given.mine:
        plan = claims_mine.plan_of(given.quick, given.runs)
        seeds = given.seeds or (2 if given.quick else 8)
        claims_mine.compare(given.mine, given.against, given.runs, plan, seeds, given.processes)
        return
    if not given.report:
        plan = claims_runs.MODEL_PLAN if given.language_model else claims_runs.PLAN
        claims_runs.run_all(plan, given.runs, given.processes)
    claims_page.write_report(given.out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--language_model", action="store_true", help="the runs of SmolLM2-135M")
    parser.add_argument("--report", action="store_true", help="write the page, and run nothing")
    parser.add_argument("--quick", action="store_true", help="of --mine: tiny runs, to try it out")
    parser.add_argument("--mine", nargs="+", help='copies of grpo.py: my.py "my.py --beta 1"')
    parser.add_argument("--against", help="what --mine is compared with, instead of grpo.py")
    parser.add_argument("--seeds", type=int, help="of --mine: how many; 8, with --quick 2")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--runs", type=Path, default="runs/claims", help="folder for the runs")
    parser.add_argument("--out", type=Path, default=project.STUDIES, help="folder for the report")
    try:
        main(parser.parse_args())
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
