"""`claims.py --mine my.py`: a script of yours beside grpo.py, on the same bases and seeds.

The script is a copy of grpo.py in which you have changed a function. It stands anywhere, and may
have flags. Both scripts start from the shipped policies of `--base`. With the same seed they have
the same training problems and the same held-out problems. So they are compared seed by seed: the
table has the mean of the differences, and its 95% interval.

A finished run is kept, and not made again. A changed file is another script, with runs of its own.
"""

import math
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import project

from rlvr.errors import UserError, reading
from rlvr.flags import names_of
from rlvr.logs import read_rows

import numpy as np
from claims_rows import BASES
from claims_training import digest_of, load_script, main_and_config, missing_runs, train_all
from tables import difference_cell, markdown_table

METRICS = ("pass@1", "pass@16", "token_entropy")
NEEDED = ("main", "Config", "VARIANTS")  # of a script
SHARED = ("seed", "base", "numbers", "eval_")  # flags that both scripts have to share begin so


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
        """What claims_training.load_script takes."""
        return f"{self.path}@{self.digest}"


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
        raise UserError(f"--mine takes no --{shared[0]}, which has to be the same for both scripts")
    script = Script(typed, path, digest, shlex.join(flags))
    missing = [needed for needed in NEEDED if not hasattr(load_script(script.file), needed)]
    if missing:
        raise UserError(f"{name} has no {' and no '.join(missing)}: it has to be a copy of grpo.py")
    return script


def folder_of(runs: Path, base: str, script: Script, scale: Scale, seed: int) -> Path:
    """Where a run is kept, such as runs/weak/my-1f2e3d4c-0; another command has another folder."""
    content = f"{script.file} {script.flags} {scale.steps} {scale.flags}"
    return runs / base / f"{script.path.stem}-{digest_of(content.encode())}-{seed}"


def list_jobs(runs: Path, scripts: Iterable[Script], scale: Scale) -> dict[Path, str]:
    """The command of each run, by its folder; all runs of a seed before the next seed.

    The flags of the script stand last, where they win.
    """
    return {
        folder_of(runs, base, script, scale, seed): (
            f"{shlex.quote(script.file)} {scale.flags} {base_flags} --seed {seed} "
            f"--max_steps {scale.steps} --eval_steps {scale.steps} {script.flags}"
        )
        for seed in range(scale.seeds)
        for base, base_flags in BASES.items()
        for script in scripts
    }


def evaluations(folders: Iterable[Path], row: int) -> np.ndarray:
    """METRICS of an evaluation of each run, the first for row 0, the last for -1: [runs, 3]."""
    rows = [read_rows(folder, "eval")[row] for folder in folders]
    return np.array([[found[metric] for metric in METRICS] for found in rows])


def means(values: np.ndarray) -> list[str]:
    """Cells of the mean of each column."""
    return [f"{mean:.3f}" for mean in values.mean(0)]


def mean_differences(differences: np.ndarray) -> list[str]:
    """Cells of the mean of each column, and of its 95% interval."""
    return [difference_cell(column) for column in differences.T]


def table(runs: Path, mine: Script, grpo: Script, scale: Scale) -> list[str]:
    """The lines of the table, of all bases, and a line on what it says."""
    rows, differs = [], False
    for base in BASES:
        ours, theirs = (
            [folder_of(runs, base, script, scale, seed) for seed in range(scale.seeds)]
            for script in (mine, grpo)
        )
        before, of_grpo = evaluations(theirs, 0), evaluations(theirs, -1)
        of_mine = evaluations(ours, -1)
        differs = differs or (of_mine != of_grpo).any()
        rows += [
            [base, "before training", *means(before)],
            [base, grpo.label, *means(of_grpo)],
            [base, mine.label, *means(of_mine)],
            [base, f"{mine.label} less {grpo.label}", *mean_differences(of_mine - of_grpo)],
        ]
    if differs:
        note = (
            "An interval that holds 0 leaves open which is higher. More --seeds make it narrower."
        )
    else:
        note = (
            f"Both have learnt exactly the same: is what you have changed in {mine.label} called?"
        )
    return [*markdown_table(["base", "run", *METRICS], rows), "", note]


def compare(typed: str, runs: Path, scale: Scale, processes: int) -> None:
    """Make the runs that are missing, and print the table. UserError for what cannot be run."""
    mine = read_script(typed)
    grpo = read_script(str(project.ROOT / "grpo.py"))._replace(label="grpo.py")
    if (mine.path, mine.flags) == (grpo.path, grpo.flags):
        raise UserError(f"{typed} is what yours is compared with: change a copy of it")
    check_flags(next(iter(list_jobs(runs, (mine,), scale).values())))
    jobs = list_jobs(runs, (grpo, mine), scale)
    missing = missing_runs(jobs, runs)
    minutes = math.ceil(len(missing) / processes) * scale.minutes
    print(
        f"{len(missing)} of {len(jobs)} runs are missing, {processes} at a time: about "
        f"{math.ceil(minutes)} min where each has a core to itself. What is finished is kept.",
        flush=True,
    )
    train_all(jobs, runs, processes)
    print(*table(runs, mine, grpo, scale), sep="\n")


def check_flags(command: str) -> None:
    """A flag that the script refuses ends the program now, in one line."""
    own = sys.argv
    main_and_config(command)
    sys.argv = own
