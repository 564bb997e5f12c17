"""The runs of the claims: at which learning rate, which come next, and what is kept of each.

THE CHOICE of a learning rate was fixed before the runs, like THE RULE. A method is tried at rates
half a decade apart, on two seeds that no verdict uses. The best is the one with the highest pass@1
in the rollouts of its last eight steps, whose problems are new to it. A best rate needs a neighbour
on both sides; where it has none, the grid grows. GRPO and the baselines are tuned like the others.
"""

import shlex
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import project

from rlvr.flags.run_folders import checkpoints_of
from rlvr.show.logs import read_rows

import numpy as np
import torch
from claims_judge import CURVE, judge_all, measure_run
from claims_rows import (
    BASES,
    EQUAL,
    FORM,
    GROWTH,
    LANGUAGE_MODEL,
    LONG,
    ROWS,
    RUNS,
    TINY,
    Job,
    Row,
    rows_from,
    runs_of,
)
from claims_rule import LOOKS
from processes import in_workers
from run_scripts import add_result, launch_quietly, read_results

RATES = "1e-6", "3e-6", "1e-5", "3e-5", "1e-4", "3e-4", "1e-3", "3e-3", "1e-2"
TUNING = 1000, 1001  # seeds that no verdict uses
LAST = 8  # steps whose mean reward chooses a rate
DIGITS = 5  # of each number that is kept


@dataclass(frozen=True)
class Plan:
    """Which runs there are, how large they are, and where a line of each is kept."""

    bases: tuple[str, ...] = TINY
    scripts: dict = field(default_factory=lambda: RUNS)  # of each base and name, script and flags
    steps: int = 48
    every: int = 8  # steps from an evaluation to the next
    long: int = 192  # steps of LONG
    growth: int = 48  # batches of GROWTH
    flags: str = "--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --log_tokens 0"
    evaluated: str = "--eval_problems 128 --eval_samples 16"
    results: Path = project.STUDIES / "results" / "claims.jsonl.gz"

    def steps_of(self, name: str) -> int:
        """The training steps of a run."""
        return {LONG: self.long, GROWTH: self.growth}.get(name, self.steps)


PLAN = Plan()
MODEL_PLAN = Plan(
    bases=(LANGUAGE_MODEL,),
    steps=16,
    flags="--log_tokens 0",
    evaluated="--eval_problems 24 --eval_samples 16",
    results=project.STUDIES / "results" / "language_model.jsonl.gz",
)


# ------------------------------------------------------------------------------ the learning rate


def at(name: str, rate: str) -> str:
    """What the lines of a run at a learning rate are called."""
    return f"{name} at {rate}"


def first_rate(plan: Plan, base: str, name: str) -> str:
    """The rate of a run that is not tuned, and where the grid begins for one that is."""
    equal = EQUAL in plan.scripts[base][name]
    return BASES[base].equal_rate if equal else BASES[base].rate


def rates_to_try(
    lines: dict, plan: Plan, base: str, name: str
) -> tuple[list[str], dict[str, float]]:
    """The rates that a run has still to be tried at, and the pass@1 of those that it has been.

    Where none is left, the best one is the choice.
    """
    found = {}
    for rate in RATES:
        jobs = [Job(base, at(name, rate), seed) for seed in TUNING]
        if all(job in lines for job in jobs):
            found[rate] = float(np.mean([lines[job]["rewards"][-LAST:] for job in jobs]))
    best = RATES.index(max(found, key=found.get) if found else first_rate(plan, base, name))
    wanted = RATES[max(best - 1, 0) : best + 2]
    return [rate for rate in wanted if rate not in found], found


def rate_of(lines: dict, plan: Plan, base: str, name: str) -> str:
    """The learning rate of a run; "open" as long as it is not found, "none" if nothing is trained.

    LONG has that of the run that it prolongs.
    """
    if name == GROWTH:
        return "none"
    name = "two-stage GRPO" if name == LONG else name
    tuned_on = BASES[base].tuned_on
    if not tuned_on:
        return first_rate(plan, base, name)
    missing, found = rates_to_try(lines, plan, tuned_on, name)
    return "open" if missing else max(found, key=found.get)


def names_of_lines(lines: dict, plan: Plan) -> dict[tuple[str, str], str]:
    """What the lines of each run are called, at its rate."""
    return {
        (base, name): at(name, rate_of(lines, plan, base, name))
        for base in plan.bases
        for name in plan.scripts[base]
    }


# ------------------------------------------------------------------------------------ which runs


def next_jobs(lines: dict, plan: Plan) -> list[Job]:
    """The runs to make next: the headlines' first, then those of all rows.

    Of each part first those that find the rates, then those for a look, and only rows that are not
    decided get to the next look.
    """
    for headlines in (True, False):
        for base in plan.bases:
            rows = [row for row in rows_from(base) if row.headline or not headlines]
            names = [*dict.fromkeys(name for row in rows for name in runs_of(row, base))]
            if jobs := tuning_jobs(lines, plan, base, names):
                return jobs
            called = names_of_lines(lines, plan)
            for look in LOOKS:
                left = undecided_rows(lines, base, called, look)
                undecided = [row for row in rows if row in left]
                names = dict.fromkeys(name for row in undecided for name in runs_of(row, base))
                jobs = [Job(base, called[base, run], seed) for seed in range(look) for run in names]
                if missing := [job for job in jobs if job not in lines]:
                    return missing
    return []


def tuning_jobs(lines: dict, plan: Plan, base: str, names) -> list[Job]:
    """The runs that the choice of these runs' rates still needs."""
    if BASES[base].tuned_on != base:
        return []
    found = []
    for name in names:
        if name not in (GROWTH, LONG):
            rates, _ = rates_to_try(lines, plan, base, name)
            found += [Job(base, at(name, rate), seed) for rate in rates for seed in TUNING]
    return [job for job in found if job not in lines]


def undecided_rows(lines: dict, base: str, called: dict, look: int) -> list[Row]:
    """The rows that have not come to this look, and have no verdict that is sure."""
    return [
        found.row
        for found in judge_all(lines, [base], called)
        if found.verdict in ("open", "unclear")
        and (found.evidence is None or found.evidence.seeds < look)
    ]


def run_all(plan: Plan, runs: Path, processes: int) -> None:
    """Make runs until nothing is left to decide; each finished one is added to the results."""
    if plan is MODEL_PLAN:
        teach_the_form(runs)
    while jobs := next_jobs(read_results(plan.results), plan):
        run_jobs(jobs, plan, runs, processes)


def run_jobs(jobs: list[Job], plan: Plan, runs: Path, processes: int) -> None:
    """Make these runs, and add each to the results as it ends."""
    print(f"{len(jobs)} runs from the {jobs[0].base} base, {jobs[0].name} first", flush=True)
    for line in in_workers(train, [(runs, job, plan) for job in jobs], processes):
        add_result(plan.results, line)


# --------------------------------------------------------------------------------- making one run


def in_bf16() -> str:
    """The flag for the language model, whose steps take half as long so where the CPU has bf16."""
    return "--bf16" if torch.cpu.get_capabilities().get("avx512_bf16") else ""


def form_of(runs: Path) -> Path:
    """The policy that the language model's runs start from."""
    return runs / "form" / "checkpoint-8"


def teach_the_form(runs: Path) -> None:
    """Make the policy that the language model's runs start from, where it is missing."""
    if not form_of(runs).exists():
        print(f"first the start of all runs: {FORM}", flush=True)
        launch_quietly(f"{FORM} {in_bf16()} --save_steps 8 --num_threads 1", runs / "form")


def command_of(job: Job, plan: Plan, runs: Path) -> str:
    """The script and flags of a run."""
    base, (name, rate) = BASES[job.base], job.name.split(" at ")
    steps = plan.steps_of(name)
    start = base.model.format(form=shlex.quote(str(form_of(runs).absolute())))
    script, *own = shlex.split(plan.scripts[job.base][name])
    flags = [shlex.quote(script), plan.flags, start, base.problems]
    if name == GROWTH:
        flags += ["--eval_problems 2"]
    elif job.seed in TUNING:
        flags += [f"--learning_rate {rate} --eval_steps {steps} --eval_problems 2"]
    else:
        flags += [f"--learning_rate {rate} --eval_steps {plan.every} {plan.evaluated}"]
    if job.base == LANGUAGE_MODEL:
        flags += [in_bf16()]
    flags += [f"--seed {job.seed} --max_steps {steps} --save_steps {steps}", shlex.join(own)]
    return " ".join(filter(None, flags))


def train(runs: Path, job: Job, plan: Plan) -> dict:
    """Make a run -> the line to keep of it: its command, rewards, evaluations and numbers."""
    folder = runs / job.base / f"{job.name}-{job.seed}".replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    command, started = command_of(job, plan, runs), time.time()
    launch_quietly(f"{command} --num_threads 1", folder)
    rows = read_rows(folder, "metrics")
    line = dict(**job._asdict(), command=command.replace(str(runs.absolute()), "RUNS"))
    name = job.name.split(" at ")[0]
    if name != GROWTH:
        line["rewards"] = [shorter(row["reward"]) for row in rows]
    if job.seed not in TUNING:
        evaluations = [] if name == GROWTH else read_rows(folder, "eval")
        for row in evaluations:
            row["entropy"] = row["token_entropy"]
        line["evaluations"] = [
            {"step": row["step"], **{key: shorter(row[key]) for key in CURVE}}
            for row in evaluations
        ]
        numbers = measure_run(rows[: plan.steps], evaluations[-1] if evaluations else {})
        kept = {row.metric for row in ROWS}
        line["numbers"] = {key: shorter(numbers[key]) for key in sorted(kept & {*numbers})}
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)
    return line | {"seconds": round(time.time() - started)}


def shorter(number: float) -> float:
    """A number as it is kept."""
    return float(f"{number:.{DIGITS}g}")
