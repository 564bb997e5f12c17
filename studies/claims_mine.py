"""`claims.py --mine my.py`: scripts of yours beside grpo.py, on the same bases and seeds.

A script is a copy of grpo.py in which you have changed a function. It stands anywhere, and may have
flags. Each script gets the learning rate that is best for it, by the same tries as all others (THE
CHOICE of claims_runs.py). Then all start from the shipped policies, with the same training problems
and the same held-out problems for a seed, and are compared seed by seed: at the end, and where both
have the same pass@1.

A finished run leaves a line in mine.jsonl.gz, and is not made again. A changed file is another
script, with runs of its own.
"""

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import project

from rlvr.errors import UserError, reading

import numpy as np
from claims_judge import differences, lines_of, matched
from claims_rows import TINY, Job, plain_row
from claims_runs import PLAN, Plan, command_of, names_of_lines, run_jobs, tuning_jobs
from run_scripts import digest_of, load_script, main_and_config, read_results
from tables import difference_cell, markdown_table

METRICS = "pass@1", "pass@16", "entropy"
NEEDED = "main", "Config", "VARIANTS"  # of a script
SHARED = "seed", "base", "numbers", "eval_"  # flags that all scripts have to share begin so


class Script(NamedTuple):
    """A file that trains, as it is now, and its flags."""

    label: str  # as the user has typed both
    name: str  # of its runs; with another file or other flags they have another name
    command: str  # what run_scripts.load_script takes, and the flags


def plan_of(quick: bool, runs: Path) -> Plan:
    """The runs of a script, and the file of their lines; quick ones only show that all works."""
    if not quick:
        return replace(PLAN, results=runs / "mine.jsonl.gz")
    return replace(
        PLAN,
        steps=2,
        every=1,
        flags="--prompts_per_step 4 --num_generations 4 --minibatch_size 8",
        evaluated="--eval_problems 2 --eval_samples 16",
        results=runs / "mine-quick.jsonl.gz",
    )


def read_script(typed: str) -> Script:
    """A file and its flags, as typed behind --mine; UserError where that is no copy of grpo.py."""
    try:
        name, *flags = [typed] if Path(typed).is_file() else shlex.split(typed)
    except ValueError as error:
        raise UserError(f"--mine {typed!r} is not a file and its flags: {error}") from error
    with reading(name):
        path = Path(name).resolve()
        digest = digest_of(path.read_bytes())
    names = re.findall(r"^--(?:no_)?(\w+)", "\n".join(flags), re.M)
    if "learning_rate" in names:
        raise UserError("--mine takes no --learning_rate: each script gets the one that is best")
    shared = sorted(name for name in names if name.startswith(SHARED))
    if shared:
        raise UserError(f"--mine takes no --{shared[0]}, which has to be the same for all scripts")
    module = load_script(f"{path}@{digest}")
    missing = [needed for needed in NEEDED if not hasattr(module, needed)]
    if missing:
        raise UserError(f"{name} has no {' and no '.join(missing)}: it has to be a copy of grpo.py")
    command = f"{shlex.quote(f'{path}@{digest}')} {shlex.join(flags)}"
    return Script(typed, f"{path.stem}-{digest_of(command.encode())}", command)


def compare(
    typed: list[str], against: str | None, runs: Path, plan: Plan, seeds: int, processes: int
) -> None:
    """Make the runs that are missing, and print the table. UserError for what cannot be run."""
    theirs = read_script(against or str(project.ROOT / "grpo.py"))
    if not against:
        theirs = theirs._replace(label="grpo.py")
    scripts = [theirs, *map(read_script, typed)]
    for script in scripts[1:]:
        if script.name == theirs.name:
            raise UserError(f"{script.label} is what yours is compared with: change a copy of it")
    commands = {script.name: script.command for script in scripts}
    plan = replace(plan, scripts={base: commands for base in plan.bases})
    own = sys.argv
    for name in commands:  # a flag that a script refuses ends the program now, in one line
        main_and_config(command_of(Job(TINY[0], f"{name} at 1e-4", 0), plan, runs))
    sys.argv = own
    while jobs := tuning_jobs(read_results(plan.results), plan, TINY[0], commands):
        run_jobs(jobs, plan, runs, processes)
    lines = read_results(plan.results)
    called = names_of_lines(lines, plan)
    jobs = [Job(base, name, seed) for seed in range(seeds) for (base, _), name in called.items()]
    if missing := [job for job in jobs if job not in lines]:
        run_jobs(missing, plan, runs, processes)
    print(*table(read_results(plan.results), scripts, called, plan.bases), sep="\n")


def table(lines: dict, scripts: list[Script], called: dict, bases) -> list[str]:
    """The lines of the table, of all bases, and a line on what it says."""
    rows, differs = [], False
    theirs, *others = scripts
    for base in bases:
        for script in scripts:
            runs = lines_of(lines, base, called[base, script.name])
            if script is theirs:
                starts = [run["evaluations"][0] for run in runs]
                rows.append([base, "before training", "", *means(starts)])
            rate = called[base, script.name].split(" at ")[1]
            rows.append([base, script.label, rate, *means([run["numbers"] for run in runs])])
        for script in others:
            cells = {differences: [], matched: ["0"]}  # at equal pass@1 that is no difference
            for metric in METRICS:
                row = plain_row(metric, script.name, theirs.name)
                for found, own_cells in cells.items():
                    values = found(lines, base, row, called)
                    if len(values):
                        own_cells.append(difference_cell(values))
                        differs = differs or values.any()
            label = f"{script.label} less {theirs.label}"
            rows.append([base, label, "", *cells[differences]])
            rows.append([base, f"{label}, at equal pass@1", "", *cells[matched]])
    note = "An interval that holds 0 leaves open which is higher. More --seeds make it narrower."
    if not differs:
        labels = ", ".join(script.label for script in others)
        note = f"All have learnt exactly the same: is what you have changed in {labels} called?"
    return [*markdown_table(["base", "run", "rate", *METRICS], rows), "", note]


def means(numbers: list[dict]) -> list[str]:
    """Cells of the mean of each of METRICS."""
    return [f"{np.mean([each[metric] for each in numbers]):.3f}" for metric in METRICS]
