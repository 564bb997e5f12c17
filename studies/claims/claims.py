"""The five papers' claims, tried in miniature: which hold for a tiny policy on Countdown?

    python studies/claims/claims.py --report        # pages and figures, from what has been run
    python studies/claims/claims.py --mine my.py    # a script of yours against grpo.py

rows.py has the claims and the runs, runs.py the choice of learning rates, rule.py the rule of the
verdicts, and page.py what CLAIMS.md and claims_tables.md show. many.py makes the runs.

--mine compares copies of grpo.py, in which you have changed a function, with grpo.py. Each script
first tries several learning rates, and keeps the best one. Then all start from the shipped
policies. Runs of one seed have the same problems, so two scripts are compared seed by seed: at the
end, and where both have the same pass@1. A changed file counts as another script. Finished runs are
kept, so the same command continues where it was stopped.
"""

import argparse
import hashlib
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, STUDIES, markdown_table, read_results

from rlvr.errors import UserError, fail, using

import numpy as np

from studies.claims import page
from studies.claims import runs as made
from studies.claims.rows import Row
from studies.claims.rule import differences, matched
from studies.claims.runs import PLAN, run_jobs

METRICS = "pass@1", "pass@16", "entropy"  # of --mine
# how no flag of --mine begins
OF_THE_STUDY = "learning_rate", "seed", "model", "dataset", "numbers", "eval_", "max_steps"
OF_THE_STUDY += "output_dir", "resume"


def read_script(typed: str) -> tuple[str, str]:
    """Return the name of a script's runs and its command. UserError for what cannot be run.

    The command runs a copy of the script, which may change before its runs are made.
    """
    try:
        script, *flags = [typed] if Path(typed).is_file() else shlex.split(typed)
    except ValueError as error:
        raise UserError(f"--mine {typed!r} is not a file and its flags: {error}") from error
    for name in re.findall(r"^--(?:no_)?(\w+)", "\n".join(flags), re.M):
        if name.startswith(OF_THE_STUDY):
            raise UserError(f"--mine takes no --{name}, which the study gives to all scripts alike")
    with using(script):
        path = Path(script).resolve()
        content = path.read_bytes()
    digest = hashlib.sha256(content + shlex.join(flags).encode()).hexdigest()[:8]
    copy = made.FOLDER / f"{path.stem}-{digest}.py"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(content)
    sys.path.append(str(path.parent))  # modules beside the script can be imported
    return copy.stem, shlex.join([str(copy), *flags])


def compare(given) -> None:
    """Make the runs of --mine that are missing, and print the table."""
    labels, commands = {}, {}  # of the runs' names
    for typed in (*given.mine, given.against):
        name, command = read_script(typed or str(ROOT / "grpo.py"))
        if name in labels:
            raise UserError(f"{labels[name]} is there twice: change a copy of it")
        labels[name], commands[name] = typed or "grpo.py", command
    plan = replace(
        PLAN, runs=dict.fromkeys(PLAN.runs, commands), results=made.FOLDER / "mine.jsonl.gz"
    )
    if given.quick:
        plan = replace(
            plan,
            steps=2,
            flags="--prompts_per_step 4 --num_generations 4 --minibatch_size 8",
            evaluated="--eval_problems 2 --eval_samples 16",
            results=made.FOLDER / "mine-quick.jsonl.gz",
            tuned_on=None,
        )
    seeds = range(given.seeds or (2 if given.quick else 8))
    while plan.tuned_on and (jobs := made.tuning_jobs(read_results(plan.results), plan, commands)):
        print(f"First the learning rates, then {len(seeds)} seeds from two policies.", flush=True)
        run_jobs(jobs, plan, given.processes)
    called = made.names_of_lines(read_results(plan.results), plan)
    jobs = [made.Job(base, name, seed) for seed in seeds for (base, _), name in called.items()]
    run_jobs(jobs, plan, given.processes)
    found = made.by_seed(read_results(plan.results), called)
    print(*table(found, called, labels), sep="\n")


def table(found: dict, called: dict, labels: dict[str, str]) -> list[str]:
    """The lines of the table, and one on what it says.

    The last label is that of the run that all others are compared with. Below each of the others
    stand its differences to that run.
    """
    rows, differs = [], False
    *others, theirs = labels
    less = f"less {labels[theirs]}"
    for base in PLAN.runs:
        starts = [line["evaluations"][0] for line in found[base, theirs]]
        rows.append([base, "before training", "", *means(starts)])
        for name in (theirs, *others):
            ends = [line["numbers"] for line in found[base, name]]
            rate = called[base, name].rsplit(" at ", 1)[1]
            rows.append([base, labels[name], rate, *means(ends)])
            if name == theirs:
                continue
            for label, values_of in ((less, differences), (f"{less}, at equal pass@1", matched)):
                found_here = [values_of(found, base, Row(key, name, theirs)) for key in METRICS]
                differs = differs or any(values.any() for values in found_here)
                # none for pass@1 at equal pass@1
                cells = [
                    page.difference_cell(values) if len(values) else "0" for values in found_here
                ]
                rows.append([base, label, "", *cells])
    note = "In brackets are 95% intervals. Where one contains 0, more --seeds may decide."
    if not differs:
        note = "All runs have learned exactly the same: is the function that you changed called?"
    head = ["base", "run", "rate", *METRICS]
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    padded = [[cell.ljust(to) for cell, to in zip(row, wide, strict=True)] for row in (head, *rows)]
    return [*markdown_table(padded[0], padded[1:]), "", note]


def means(numbers: list[dict]) -> list[str]:
    """Return a cell with the mean of each of METRICS."""
    return [f"{np.mean([each[metric] for each in numbers]):.3f}" for metric in METRICS]


def main(given) -> None:
    """Do what the command line asks for. UserError for too few seeds or processes."""
    if given.seeds is not None and given.seeds < 2:
        raise UserError("--seeds must be 2 or more: an interval is one of several differences")
    if given.processes < 1:
        raise UserError("--processes must be 1 or more")
    if given.mine:
        compare(given)
    else:
        page.write_report(STUDIES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--report", action="store_true", help="write the pages, and run nothing")
    what.add_argument("--mine", nargs="+", help='copies of grpo.py: my.py "my.py --beta 1"')
    parser.add_argument("--against", help="what --mine is compared with, instead of grpo.py")
    parser.add_argument("--quick", action="store_true", help="of --mine: tiny runs, to try it out")
    parser.add_argument("--seeds", type=int, help="of --mine: how many; 8, with --quick 2")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    given = parser.parse_args()
    try:
        main(given)
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
