"""`claims.py --mine my.py`: scripts of yours beside grpo.py, on the same bases and seeds.

A script is a copy of grpo.py in which you have changed a function. It stands anywhere, and may have
flags. All scripts start from the shipped policies. With the same seed they have the same training
problems and the same held-out problems. So they are compared seed by seed: the table has the mean
of the differences, and its 95% interval.

A finished run leaves a line in mine.jsonl.gz, and is not made again. A changed file is another
script, with runs of its own.
"""

import math
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import project

from rlvr.errors import UserError, reading
from rlvr.flags.command_line import names_of
from rlvr.flags.run_folders import checkpoints_of
from rlvr.show.logs import read_rows

import numpy as np
from claims_rows import BASES, TINY
from processes import in_workers
from run_scripts import (
    add_result,
    digest_of,
    launch_quietly,
    load_script,
    main_and_config,
    read_results,
)
from tables import difference_cell, markdown_table

METRICS = ("pass@1", "pass@16", "token_entropy")
NEEDED = ("main", "Config", "VARIANTS")  # of a script
SHARED = ("seed", "base", "numbers", "eval_")  # flags that all scripts have to share begin so


@dataclass(frozen=True)
class Scale:
    """How many runs each script has from each base, and how large they are."""

    seeds: int = 8
    steps: int = 48
    flags: str = (
        "--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --eval_problems 128 "
        "--log_tokens 0"
    )
    minutes: float = 1.0  # of a run, on a core that does nothing else


QUICK = Scale(
    seeds=2,
    steps=2,
    flags="--prompts_per_step 4 --num_generations 4 --minibatch_size 8 --eval_problems 2 "
    "--learning_rate 1e-3",  # so that a difference shows after two steps
    minutes=0.1,
)


class Script(NamedTuple):
    """A file that trains, as it is now, and its flags."""

    label: str  # as the user has typed both
    path: Path
    digest: str  # of the file
    flags: str

    @property
    def file(self) -> str:
        """What run_scripts.load_script takes."""
        return f"{self.path}@{self.digest}"

    def name_of_runs(self, scale: Scale) -> str:
        """What its lines are called; with another file, flags or scale they have another name."""
        content = f"{self.file} {self.flags} {scale.steps} {scale.flags}"
        return f"{self.path.stem}-{digest_of(content.encode())}"

    def command(self, base: str, seed: int, scale: Scale) -> str:
        """The command of a run. The script's own flags stand last, where they win."""
        of_base = f"{BASES[base].model} {BASES[base].problems}"
        return (
            f"{shlex.quote(self.file)} {scale.flags} {of_base} --seed {seed} "
            f"--max_steps {scale.steps} --eval_steps {scale.steps} --num_threads 1 {self.flags}"
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
    names = names_of([flag for flag in flags if flag.startswith("--")])
    shared = sorted(name for name in names if name.startswith(SHARED))
    if shared:
        raise UserError(f"--mine takes no --{shared[0]}, which has to be the same for all scripts")
    script = Script(typed, path, digest, shlex.join(flags))
    missing = [needed for needed in NEEDED if not hasattr(load_script(script.file), needed)]
    if missing:
        raise UserError(f"{name} has no {' and no '.join(missing)}: it has to be a copy of grpo.py")
    return script


def train(folder: Path, base: str, script: Script, seed: int, scale: Scale) -> dict:
    """Make a run -> the line to keep of it: its evaluations before and after training."""
    shutil.rmtree(folder, ignore_errors=True)
    launch_quietly(script.command(base, seed, scale), folder)
    before, after = (read_rows(folder, "eval")[row] for row in (0, -1))
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)
    name = script.name_of_runs(scale)
    return dict(base=base, name=name, seed=seed, label=script.label, before=before, after=after)


def table(lines: dict, scripts: list[Script], scale: Scale) -> list[str]:
    """The lines of the table, of all bases, and a line on what it says."""
    rows, differs = [], False
    theirs, *others = scripts
    for base in TINY:
        before, after = {}, {}  # of each script, [seeds, METRICS]
        for script in scripts:
            keys = [(base, script.name_of_runs(scale), seed) for seed in range(scale.seeds)]
            before[script], after[script] = (
                np.array([[lines[key][when][metric] for metric in METRICS] for key in keys])
                for when in ("before", "after")
            )
        rows.append([base, "before training", *means(before[theirs])])
        rows.append([base, theirs.label, *means(after[theirs])])
        for script in others:
            apart = after[script] - after[theirs]
            differs = differs or apart.any()
            rows.append([base, script.label, *means(after[script])])
            cells = [difference_cell(column) for column in apart.T]
            rows.append([base, f"{script.label} less {theirs.label}", *cells])
    labels = ", ".join(script.label for script in others)
    note = "An interval that holds 0 leaves open which is higher. More --seeds make it narrower."
    if not differs:
        note = f"All have learnt exactly the same: is what you have changed in {labels} called?"
    return [*markdown_table(["base", "run", *METRICS], rows), "", note]


def means(values: np.ndarray) -> list[str]:
    """Cells of the mean of each column."""
    return [f"{mean:.3f}" for mean in values.mean(0)]


def compare(typed: list[str], against: str, runs: Path, scale: Scale, processes: int) -> None:
    """Make the runs that are missing, and print the table. UserError for what cannot be run."""
    theirs = read_script(against or str(project.ROOT / "grpo.py"))
    if not against:
        theirs = theirs._replace(label="grpo.py")
    scripts = [theirs, *map(read_script, typed)]
    for script in scripts[1:]:
        if (script.path, script.flags) == (theirs.path, theirs.flags):
            raise UserError(f"{script.label} is what yours is compared with: change a copy of it")
    own = sys.argv
    for script in scripts:  # a flag that a script refuses ends the program now, in one line
        main_and_config(script.command(TINY[0], 0, scale))
    sys.argv = own
    results = runs / "mine.jsonl.gz"
    jobs = [
        (base, script, seed) for seed in range(scale.seeds) for base in TINY for script in scripts
    ]
    lines = read_results(results)
    tasks = [
        (runs / base / f"{script.name_of_runs(scale)}-{seed}", base, script, seed, scale)
        for base, script, seed in jobs
        if (base, script.name_of_runs(scale), seed) not in lines
    ]
    minutes = math.ceil(len(tasks) / processes) * scale.minutes
    print(
        f"{len(tasks)} of {len(jobs)} runs are missing, {processes} at a time: about "
        f"{math.ceil(minutes)} min where each has a core to itself. What is finished is kept.",
        flush=True,
    )
    for line in in_workers(train, tasks, processes):
        add_result(results, line)
    print(*table(read_results(results), scripts, scale), sep="\n")
