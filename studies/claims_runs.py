"""The runs of claims.py: their commands, making them, and the one line that is kept of each."""

import gzip
import json
import shlex
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rlvr.logs import read_rows
from rlvr.run_folders import checkpoints_of

from claims_measures import (
    measure_evaluation,
    measure_growth,
    measure_training,
    share_of_false_steps,
)
from claims_rows import BASES, COOL, ROWS, RUNS, START, runs_of
from claims_training import launch_quietly
from processes import in_workers

LONG = "GRPO, long"
COOL_FLAGS = {  # how the papers evaluate that do not at temperature 1, by the script of a run
    "grpo": "--eval_temperature 0.6 --top_p 0.95",
    "agrae": "--eval_temperature 0.6 --top_p 0.95",
    "cwgrpo": "--eval_temperature 0.6 --top_p 0.95",
    "asymgrpo": "--eval_temperature 0.4",
}
# The defaults for the tiny policy, which a model from a checkpoint folder does not have.
AS_TINY = (
    "--dataset countdown --max_completion_length 48 --eval_samples 32 --rollout_batch_size 512"
)
SHOWN = "pass@1", "pass@4", "pass@16", "pass@32", "greedy", "entropy", "false steps", "delta"
KEPT = {*SHOWN, "easy gap", "hard gap", *(claim.metric for claim in ROWS)}
COOL_RUNS = {name for claim in ROWS if claim.metric.startswith(COOL) for name in runs_of(claim)}
DIGITS = 5  # of each number that is kept


@dataclass(frozen=True)
class Scale:
    """How large the runs are."""

    steps: int = 48
    long: int = 192  # of LONG
    flags: str = "--prompts_per_step 16 --num_generations 8 --minibatch_size 64"
    held_out: int = 256  # problems of the evaluations before and after training
    bases: dict[str, str] = field(default_factory=lambda: BASES)
    runs: dict[str, dict[str, str]] = field(default_factory=lambda: RUNS)

    def steps_of(self, name: str) -> int:
        """The training steps of a run."""
        return {START: 0, LONG: self.long}.get(name, self.steps)


FULL = Scale()
QUICK = Scale(
    steps=2,
    long=3,
    flags="--prompts_per_step 4 --num_generations 4 --minibatch_size 8",
    held_out=2,
    bases={"weak": BASES["weak"]},
    runs={"weak": {name: RUNS["weak"][name] for name in (START, "CW-GRPO", "GRPO")}},
)


class Job(NamedTuple):
    """A run: from which base, by which name of `Scale.runs`, and with which seed."""

    base: str
    name: str
    seed: int


def command_of(job: Job, scale: Scale) -> str:
    """The script and flags of a run; what is asked of its policy is asked afterwards."""
    steps = scale.steps_of(job.name)
    return (
        f"{scale.runs[job.base][job.name]} {scale.flags} {scale.bases[job.base]} "
        f"--seed {job.seed} --max_steps {steps} --eval_steps {max(steps, 1)} --eval_problems 2"
    )


def train(folder: Path, job: Job, scale: Scale) -> dict:
    """Make a run and evaluate its last policy -> the line to keep of it."""
    shutil.rmtree(folder, ignore_errors=True)
    command, steps = command_of(job, scale), scale.steps_of(job.name)
    started = time.time()
    found = {"script": command.split()[0], "command": command}
    launch_quietly(f"{command} --num_threads 1", folder)
    if found["script"] == "entropy_growth":
        numbers = measure_growth(read_rows(folder, "metrics"))
    else:
        own = read_rows(folder, "eval")[-1]  # has what other scripts do not log, such as r1
        numbers = measure_evaluation(own | evaluate(folder, "plain", "", job, scale))
        if steps:
            rows = read_rows(folder, "metrics")[: scale.steps]
            texts = read_rows(folder, "samples")
            numbers |= measure_training(rows)
            numbers["false steps"] = share_of_false_steps(texts, steps, max(scale.steps // 3, 1))
            found["rewards"] = [float(f"{row['reward']:.{DIGITS}g}") for row in rows]
    if job.name in COOL_RUNS:
        cool = evaluate(folder, "cool", COOL_FLAGS[found["script"]], job, scale)
        numbers |= {COOL + key: value for key, value in cool.items()}
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)
    kept = {key: float(f"{numbers[key]:.{DIGITS}g}") for key in sorted(KEPT & {*numbers})}
    return {**job._asdict(), **found, "seconds": round(time.time() - started), "numbers": kept}


def evaluate(folder: Path, name: str, sampling: str, job: Job, scale: Scale) -> dict[str, float]:
    """An evaluation of a run's last policy, or of the starting policy where none is saved."""
    start = scale.bases[job.base]
    if scale.steps_of(job.name):
        trained = shlex.quote(str(checkpoints_of(folder)[0].absolute()))
        start = start.replace(f"--base {job.base}", f"--model {trained} {AS_TINY}")
    launch_quietly(
        f"grpo --max_steps 0 {scale.flags} {start} --seed {job.seed} "
        f"--eval_problems {scale.held_out} {sampling} --num_threads 1",
        folder / name,
    )
    return read_rows(folder / name, "eval")[-1]


def train_all(jobs: list[Job], runs: Path, results: Path, scale: Scale, processes: int) -> None:
    """Make the runs, and add the line of each to the results as soon as it is finished."""
    tasks = [(runs / job.base / f"{job.name}-{job.seed}", job, scale) for job in jobs]
    for line in in_workers(train, tasks, processes):
        add_result(results, line)


def read_results(results: Path) -> dict[Job, dict]:
    """The line of each run that is finished."""
    if not results.exists():
        return {}
    with gzip.open(results, "rt") as opened:
        lines = [json.loads(line) for line in opened]
    return {Job(line["base"], line["name"], line["seed"]): line for line in lines}


def add_result(results: Path, line: dict) -> None:
    """Write the results with one line more; a kill leaves the former file or the new one."""
    found = read_results(results)
    found[Job(line["base"], line["name"], line["seed"])] = line
    text = "".join(json.dumps(found[job]) + "\n" for job in sorted(found))
    results.parent.mkdir(parents=True, exist_ok=True)
    unfinished = results.with_suffix(".part")
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))
    unfinished.replace(results)
