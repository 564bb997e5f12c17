"""What a calculator gives a tiny policy on Countdown: pass@1 with it and without it.

    python studies/calculator.py             # on one thread, in less than 10 minutes
    python studies/calculator.py --quick     # tiny runs, to see that it works

A solution's steps, such as 7*8=56, are calls of the calculator. The policy of the first two rows
was taught to write 7*8= alone, and has the calculator or not. That of the last row was taught to
write the 56, too. All are then trained by GRPO, each with the same seeds. Finished runs are kept,
so the same command goes on where it was stopped.
"""

import argparse
from pathlib import Path

import project  # noqa: F401

import rlvr.tiny
from rlvr.config import Config
from rlvr.logs import read_rows

from claims_training import train_all

SEEDS = 3
FULL = "--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --eval_samples 8"
QUICK = "--prompts_per_step 4 --num_generations 4 --minibatch_size 8 --eval_problems 2"
ROWS = {  # the folder of the runs -> what the row is called
    "calculator": "taught to call, with the calculator",
    "without": "taught to call, without it",
    "computing": "taught to compute, without it",
}


def list_jobs(runs: Path, steps: int, sft_steps: int, flags: str) -> dict[Path, str]:
    """The command of each run, by its folder. The policy that calls is taught here, once."""
    calling = rlvr.tiny.tiny_folder(Config(tool="calculator", sft_steps=sft_steps))
    commands = {
        "calculator": f"grpo --model {calling} --tool calculator",
        "without": f"grpo --model {calling}",
        "computing": f"grpo --sft_steps {sft_steps}",
    }
    return {
        runs / row / f"seed-{seed}": (
            f"{command} {flags} --seed {seed} --max_steps {steps} --eval_steps {steps} "
            "--learning_rate 2e-4"
        )
        for seed in range(SEEDS)
        for row, command in commands.items()
    }


def table(runs: Path) -> list[str]:
    """The lines of the table: held-out pass@1 of each seed before training, and after it."""
    lines = ["| the policy | pass@1 before | after GRPO |", "|---|---|---|"]
    for row, name in ROWS.items():
        evals = [read_rows(runs / row / f"seed-{seed}", "eval") for seed in range(SEEDS)]
        cells = [", ".join(f"{rows[i]['pass@1']:.3f}" for rows in evals) for i in (0, -1)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main(runs: Path, processes: int, quick: bool) -> None:
    scale = (2, 2, QUICK) if quick else (30, 400, FULL)
    train_all(list_jobs(runs, *scale), runs, processes)
    print(*table(runs), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="tiny runs: does the program work?")
    parser.add_argument("--processes", type=int, default=1, help="runs at once, a thread each")
    parser.add_argument("--runs", type=Path, default="runs/calculator", help="folder for the runs")
    given = parser.parse_args()
    main(given.runs, given.processes, given.quick)
