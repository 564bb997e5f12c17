"""Any commands side by side on Countdown: what each adds to the first one, over several seeds.

    python studies/sweep.py "grpo" "agrae" "agrae --variant released"
    python studies/sweep.py "asymgrpo" "asymgrpo --beta_pos 0.5|0.7|0.9 --beta_neg 0.3|0.4|0.5"
    python studies/sweep.py "grpo" "agrae" --quick     # tiny runs, to see that it works

A command is a script and its flags. Values with | between them stand for a command each. Each has 5
seeds of 48 steps, from the shipped policy `middle`. Those that are finished are kept, so the same
command goes on where it was stopped. The table has held-out pass@1, pass@16 and entropy of the
first command, and the difference of each other one to it, with the 95% interval of its mean.
"""

import argparse
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

import project  # noqa: F401

from claims_mine import METRICS, evaluations, mean_differences, means
from claims_training import train_all


@dataclass(frozen=True)
class Scale:
    """How many runs each command has, and how large they are."""

    seeds: int = 5
    steps: int = 48
    flags: str = "--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --eval_problems 128"


QUICK = Scale(
    seeds=2,
    steps=2,
    flags="--prompts_per_step 4 --num_generations 4 --minibatch_size 8 --eval_problems 2",
)


def expand(command: str) -> list[str]:
    """The commands that one with `a|b` values stands for, in the order of the values."""
    choices = [word.split("|") for word in command.split()]
    return [" ".join(words) for words in itertools.product(*choices)]


def folder_of(runs: Path, command: str, seed: int) -> Path:
    """Where the run of a command is kept, such as runs/agrae-variant-released/seed-0."""
    return runs / re.sub(r"[^\w.]+", "-", command) / f"seed-{seed}"


def list_jobs(runs: Path, commands: list[str], scale: Scale) -> dict[Path, str]:
    """The whole command of each run, by its folder; all commands of a seed before the next seed."""
    return {
        folder_of(runs, command, seed): (
            f"{command} {scale.flags} --seed {seed} "
            f"--max_steps {scale.steps} --eval_steps {scale.steps}"
        )
        for seed in range(scale.seeds)
        for command in commands
    }


def table(runs: Path, commands: list[str], seeds: int) -> list[str]:
    """The lines of the table, by the last evaluation of each run."""
    found = {}
    for command in commands:
        folders = [folder_of(runs, command, seed) for seed in range(seeds)]
        found[command] = evaluations(folders, -1)
    first = found.pop(commands[0])  # [seeds, 3], as are the others
    lines = [
        f"| less the first | {' | '.join(METRICS)} |",
        "|---|---|---|---|",
        f"| {commands[0]} | {' | '.join(means(first))} |",
    ]
    for command, values in found.items():
        lines.append(f"| {command} | {' | '.join(mean_differences(values - first))} |")
    return lines


def main(runs: Path, commands: list[str], scale: Scale) -> None:
    train_all(list_jobs(runs, commands, scale), runs, os.cpu_count())
    print(*table(runs, commands, scale.seeds), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("commands", nargs="+", help='such as "agrae --variant released"')
    parser.add_argument("--quick", action="store_true", help="tiny runs: does the program work?")
    parser.add_argument("--runs", type=Path, default="runs/sweep", help="folder for the runs")
    given = parser.parse_args()
    expanded = [command for pattern in given.commands for command in expand(pattern)]
    main(given.runs, [*dict.fromkeys(expanded)], QUICK if given.quick else Scale())
