"""The five papers' claims, tried in miniature: which hold for a tiny policy on Countdown?

    python studies/claims.py                     # until all is decided or at its cap
    python studies/claims.py --language_model    # the same claims with SmolLM2-135M
    python studies/claims.py --report            # CLAIMS.md and its figures, from what has been run
    python studies/claims.py --mine my.py        # a script of yours against grpo.py: claims_mine.py

claims_rule.py has the rule, claims_rows.py the claims and the runs. Each finished run leaves a line
in studies/results, and is not made again. So the same command goes on where it was stopped.
"""

import argparse
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import project

from rlvr.errors import UserError, fail
from rlvr.flags.run_folders import checkpoints_of
from rlvr.show.logs import read_rows

import claims_mine
from claims_judge import judge_all, measure_run, next_jobs
from claims_page import BESIDE, SHOWN, write_report
from claims_rows import (
    BASES,
    COOL,
    GROWTH,
    LANGUAGE_MODEL,
    LONG,
    ROWS,
    RUNS,
    START,
    TINY,
    Job,
    runs_of,
)
from claims_rule import LOOKS
from processes import in_workers
from run_scripts import add_result, launch_quietly, read_results

COOL_FLAGS = {  # how the papers evaluate that do not at temperature 1, by the script of a run
    "grpo": "--eval_temperature 0.6 --top_p 0.95",
    "agrae": "--eval_temperature 0.6 --top_p 0.95",
    "cwgrpo": "--eval_temperature 0.6 --top_p 0.95",
    "asymgrpo": "--eval_temperature 0.4",
}
COOL_RUNS = {name for row in ROWS if row.metric.startswith(COOL) for name in runs_of(row)}
KEPT = {*SHOWN, "pass@4", "pass@32", "greedy", "delta"}
KEPT |= {row.metric for row in ROWS} | {metric for _, _, metric, _ in BESIDE}
DIGITS = 5  # of each number that is kept


@dataclass(frozen=True)
class Plan:
    """Which runs there are, how large they are, and where a line of each is kept."""

    bases: tuple[str, ...] = TINY
    looks: tuple[int, ...] = LOOKS  # seeds at which a row is judged
    steps: int = 48
    long: int = 192  # of LONG
    growth: int = 48  # batches of GROWTH
    flags: str = "--prompts_per_step 16 --num_generations 8 --minibatch_size 64"
    held_out: int = 256  # problems of the evaluations before and after training
    cool: bool = True  # whether the runs of COOL_RUNS are evaluated at the papers' temperature, too
    results: Path = project.STUDIES / "results" / "claims.jsonl.gz"

    def steps_of(self, name: str) -> int:
        """The training steps of a run."""
        return {START: 0, LONG: self.long, GROWTH: self.growth}.get(name, self.steps)


PLAN = Plan()
MODEL_PLAN = Plan(
    bases=(LANGUAGE_MODEL,),
    looks=(3,),  # judged once, when all seeds are there
    steps=40,
    growth=16,
    flags="",
    held_out=128,
    cool=False,
    results=project.STUDIES / "results" / "language_model.jsonl.gz",
)


def command_of(job: Job, plan: Plan) -> str:
    """The script and flags of a run; what is asked of its policy is asked afterwards."""
    base, steps = BASES[job.base], plan.steps_of(job.name)
    return (
        f"{RUNS[job.base][job.name]} {plan.flags} {base.model} {base.problems} "
        f"--seed {job.seed} --max_steps {steps} --eval_steps {max(steps, 1)} --eval_problems 2"
    )


def train(folder: Path, job: Job, plan: Plan) -> dict:
    """Make a run and evaluate its last policy -> the line to keep of it."""
    shutil.rmtree(folder, ignore_errors=True)
    command = command_of(job, plan)
    script, started = command.split()[0], time.time()
    launch_quietly(f"{command} --num_threads 1", folder)
    rows = read_rows(folder, "metrics")[: plan.steps]
    evaluation, cool = {}, {}
    if job.name != GROWTH:
        own = read_rows(folder, "eval")[-1]  # has what other scripts do not log, such as r1
        evaluation = own | evaluate(folder, "plain", "", job, plan)
    if plan.cool and job.name in COOL_RUNS:
        cool = evaluate(folder, "cool", COOL_FLAGS[script], job, plan)
    numbers = measure_run(rows, evaluation)
    numbers |= {COOL + key: value for key, value in cool.items()}
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)
    line = {**job._asdict(), "script": script, "command": command}
    if rows and "reward" in rows[0]:
        line["rewards"] = [float(f"{row['reward']:.{DIGITS}g}") for row in rows]
    line["seconds"] = round(time.time() - started)
    line["numbers"] = {k: float(f"{numbers[k]:.{DIGITS}g}") for k in sorted(KEPT & {*numbers})}
    return line


def evaluate(folder: Path, name: str, sampling: str, job: Job, plan: Plan) -> dict[str, float]:
    """An evaluation of a run's last policy, or of the starting policy where none is saved."""
    base = BASES[job.base]
    model = base.model
    if plan.steps_of(job.name):
        trained = shlex.quote(str(checkpoints_of(folder)[0].absolute()))
        model = f"--model {trained} {base.of_checkpoint}"
    launch_quietly(
        f"grpo --max_steps 0 {plan.flags} {model} {base.problems} --seed {job.seed} "
        f"--eval_problems {plan.held_out} --eval_samples 32 {sampling} --num_threads 1",
        folder / name,
    )
    return read_rows(folder / name, "eval")[-1]


def run_all(plan: Plan, runs: Path, processes: int) -> None:
    """Make runs until nothing is left to decide; each finished one is added to the results."""
    while jobs := next_jobs(read_results(plan.results), plan.bases, plan.looks):
        print(f"{len(jobs)} runs from the {jobs[0].base} base, seeds up to {jobs[-1].seed}")
        tasks = [(runs / job.base / f"{job.name}-{job.seed}", job, plan) for job in jobs]
        for line in in_workers(train, tasks, processes):
            add_result(plan.results, line)


def report(out: Path) -> None:
    """Write the page, and print the tables of all runs that stand behind it."""
    lines = read_results(PLAN.results) | read_results(MODEL_PLAN.results)
    verdicts = [judge_all(lines, plan.bases, plan.looks) for plan in (PLAN, MODEL_PLAN)]
    write_report(lines, *verdicts, PLAN, out)


def main(given) -> None:
    """Do what the command line asks for. UserError for numbers that give no interval, or no run."""
    if given.seeds is not None and given.seeds < 2:
        raise UserError("--seeds must be 2 or more: an interval is one of several differences")
    if given.processes < 1:
        raise UserError("--processes must be 1 or more")
    if given.mine:
        scale = claims_mine.QUICK if given.quick else claims_mine.Scale()
        scale = replace(scale, seeds=given.seeds or scale.seeds)
        claims_mine.compare(given.mine, given.against, given.runs, scale, given.processes)
    else:
        if not given.report:
            run_all(MODEL_PLAN if given.language_model else PLAN, given.runs, given.processes)
        report(given.out)


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
