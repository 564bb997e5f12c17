"""The runs of the claims: their learning rates, which come next, and what is kept of each.

CLAIMS.md says under "The learning rates" how a rate is found.
"""

import itertools
import json
import math
import shlex
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from studies.project import STUDIES, make_runs

from rlvr.errors import UserError
from rlvr.show import ks_of, read_rows
from rlvr.training import checkpoints_of

import numpy as np

from studies.claims import rows as table
from studies.claims.compare import smooth
from studies.claims.rows import EQUAL, FIELD, GROWTH, LANGUAGE_MODEL, LONG, MIDDLE, RUNS, TRUST
from studies.claims.rule import CURVE, LOOKS, judge_all

RESULTS = STUDIES / "results"
FOLDER = Path("runs/claims").absolute()  # of the runs
RATES = "1e-6", "3e-6", "1e-5", "3e-5", "1e-4", "3e-4", "1e-3", "3e-3", "1e-2"
TUNING = 1000, 1001  # seeds that choose learning rates, and no verdict uses
MODEL_LOOKS = 8, 12, 16  # numbers of seeds, of which the largest that is finished is looked at
LAST = 8  # steps whose mean reward chooses a rate
# The language model starts where eight steps of GRPO have taught it the form of an answer.
FORM = (
    f"grpo.py --model {table.MODEL} --dataset arithmetic --learning_rate 1e-5 --max_steps 8 "
    "--save_steps 8 --seed 1000"
)
START_OF_MODEL = FOLDER / "form" / "checkpoint-8"


class Job(NamedTuple):
    """A run: from which base, what its lines are called, and with which seed."""

    base: str
    name: str
    seed: int


@dataclass(frozen=True)
class Plan:
    """Which runs there are, how large they are, and where a line of each is kept."""

    runs: dict[str, dict[str, str]]  # of a base and a name the script and its own flags
    results: Path = RESULTS / "claims.jsonl.gz"
    start: str = "--model {base}"  # flags of the policy that trains, and of its problems
    steps: int = 48
    flags: str = "--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --log_tokens 0"
    evaluated: str = "--eval_steps 16 --eval_problems 256 --eval_samples 16"
    tuned_on: str | None = MIDDLE  # the base that learning rates are found on
    tuning: tuple[int, ...] = TUNING  # with these seeds
    rate: str = "1e-4"
    equal_rate: str = "3e-5"  # of runs with EQUAL; lr max|A| of FADE's `mean` is GRPO's then


PLAN = Plan({base: RUNS[base] for base in (MIDDLE, "strong")})
FIELD_PLAN = replace(
    PLAN,
    runs={MIDDLE: FIELD},
    results=RESULTS / "claims_field.jsonl.gz",
    evaluated="--eval_steps 16 --eval_problems 128 --eval_samples 16",
    tuning=TUNING[:1],
)
TRUST_PLAN = replace(  # at the rate that the field's tries have chosen for all methods
    FIELD_PLAN,
    runs={MIDDLE: TRUST},
    results=RESULTS / "claims_trust.jsonl.gz",
    steps=20,
    evaluated="--eval_steps 10 --eval_problems 64 --eval_samples 16",
    tuned_on=None,
)
MODEL_PLAN = Plan(
    {LANGUAGE_MODEL: RUNS[LANGUAGE_MODEL]},
    results=RESULTS / "claims_model.jsonl.gz",
    start=f"--model {shlex.quote(str(START_OF_MODEL))} --dataset arithmetic",
    steps=16,
    flags="--log_tokens 0 --microbatch_tokens 2048 --decode_batch_size 1024",
    # All 42 expressions that are held out. What a run is worth varies by 0.026 of pass@1 from seed
    # to seed, which more than 32 completions of each would not change.
    evaluated="--eval_steps 8 --eval_problems 42 --eval_samples 32",
    tuned_on=None,
    rate="1e-5",
    equal_rate="3.3e-6",
)


# ------------------------------------------------------------------------------ the learning rate


def first_rate(plan: Plan, base: str, name: str) -> str:
    """Return the rate of a run that is not tuned, and the first one to try of a run that is."""
    return plan.equal_rate if EQUAL in plan.runs[base][name] else plan.rate


def rates_to_try(lines: dict, plan: Plan, name: str) -> tuple[list[str], dict[str, float]]:
    """Return the rates that a run has still to try, and the pass@1 of those that it has tried.

    Once none is left, the best rate is the choice.
    """
    found = {}
    for rate in RATES:
        jobs = [Job(plan.tuned_on, f"{name} at {rate}", seed) for seed in plan.tuning]
        if all(job in lines for job in jobs):
            found[rate] = float(np.mean([lines[job]["rewards"][-LAST:] for job in jobs]))
    best = max(found, key=found.get) if found else first_rate(plan, plan.tuned_on, name)
    place = RATES.index(best)
    wanted = RATES[max(place - 1, 0) : place + 2]
    return [rate for rate in wanted if rate not in found], found


def rate_of(lines: dict, plan: Plan, base: str, name: str) -> str:
    """The learning rate of a run; "open" as long as it is not found.

    LONG has that of the run that it prolongs, and GROWTH needs none.
    """
    if name == GROWTH or not plan.tuned_on:
        return first_rate(plan, base, name)
    missing, found = rates_to_try(lines, plan, "two-stage GRPO" if name == LONG else name)
    return "open" if missing else max(found, key=found.get)


def names_of_lines(lines: dict, plan: Plan) -> dict[tuple[str, str], str]:
    """What the lines of each base's runs are called, at the chosen rates."""
    called = {}
    for base, runs in plan.runs.items():
        for name in runs:
            called[base, name] = f"{name} at {rate_of(lines, plan, base, name)}"
        for alias, name in table.ALIASES.get(base, {}).items():
            called[base, alias] = called[base, name]
    return called


def by_seed(lines: dict, called: dict) -> dict[tuple[str, str], list[dict]]:
    """The lines of each base's runs, seed by seed, as far as no seed is missing."""
    found = {}
    for (base, run), name in called.items():
        kept = found[base, run] = []
        while (job := Job(base, name, len(kept))) in lines:
            kept.append(lines[job])
    return found


# ------------------------------------------------------------------------------------ which runs


def look_at_the_model(found: dict) -> tuple[int]:
    """The one look at the language model's runs: the first 8, 12 or 16 seeds that all have.

    Their number was not chosen by results, but by the time that was there.
    """
    seeds = min(map(len, found.values()))
    return (max((look for look in MODEL_LOOKS if look <= seeds), default=MODEL_LOOKS[0]),)


def next_jobs(lines: dict, plan: Plan) -> list[Job]:
    """Return the runs to make next: look by look and base by base, those that choose rates first.

    Only undecided rows have a next look.
    """
    for look, base in itertools.product(LOOKS, plan.runs):
        rows = table.rows_from(base)
        names = dict.fromkeys(name for row in rows for name in table.runs_of(row, base))
        if base == plan.tuned_on and (jobs := tuning_jobs(lines, plan, names)):
            return jobs
        called = names_of_lines(lines, plan)
        verdicts = judge_all(by_seed(lines, called), [base])
        jobs = dict.fromkeys(
            Job(base, called[base, run], seed)
            for seed in range(look)
            for each in verdicts
            if each.word in ("open", "unclear")
            if each.evidence is None or each.evidence.seeds < look
            for run in table.runs_of(each.row, base)
            if run != GROWTH
        )
        if jobs:
            return [*jobs]
    return []


def jobs_by_seed(lines: dict, plan: Plan, seeds: int) -> list[Job]:
    """Return the runs that choose a plan's rates or, if none is missing, its runs seed by seed."""
    ((base, runs),) = plan.runs.items()
    if plan.tuned_on and (jobs := tuning_jobs(lines, plan, runs)):
        return jobs
    called = dict.fromkeys(names_of_lines(lines, plan).values())
    return [Job(base, name, seed) for seed in range(seeds) for name in called]


def tuning_jobs(lines: dict, plan: Plan, names) -> list[Job]:
    """Return the runs that are still needed to choose the rates of these runs."""
    return [
        Job(plan.tuned_on, f"{name} at {rate}", seed)
        for name in names
        if name not in (GROWTH, LONG)
        for rate in rates_to_try(lines, plan, name)[0]
        for seed in plan.tuning
    ]


# --------------------------------------------------------------------------------- making the runs


def command_of(job: Job, plan: Plan) -> str:
    """The script and flags of a run. Its own flags are the last, and so win."""
    name, rate = job.name.rsplit(" at ", 1)
    script, *own = shlex.split(plan.runs[job.base][name])
    steps = f"--max_steps {plan.steps} --save_steps {plan.steps}"
    of_tuning = f"--eval_steps {plan.steps} --eval_problems 2"
    evaluated = of_tuning if job.seed in TUNING else plan.evaluated
    start = plan.start.format(base=job.base)
    shared = f"{start} --learning_rate {rate} --seed {job.seed} {steps} {evaluated} {plan.flags}"
    return f"{shlex.quote(script)} {shared} {shlex.join(own)}".strip()


def run_jobs(jobs: list[Job], plan: Plan, processes: int, end=math.inf, tries=1) -> None:
    """Make those of these runs that are missing; see project.make_runs."""
    commands = {job: command_of(job, plan) for job in jobs}
    make_runs(commands, plan.results, FOLDER, partial(line_of, plan), processes, end, tries)


def line_of(plan: Plan, job: Job, folder: Path) -> dict:
    """What is kept of a finished run: its rewards, evaluations and numbers.

    UserError if it was stopped before its last step: a script then ends without an error.
    """
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)
    rows, evaluations = read_rows(folder, "metrics"), read_rows(folder, "eval")
    if len(rows) < json.loads((folder / "config.json").read_text())["max_steps"]:
        raise UserError(f"{folder} was stopped after {len(rows)} steps")
    line = {"rewards": [shorter(row["reward"]) for row in rows]}
    if "dropped" in rows[0]:
        line["dropped"] = shorter(float(np.mean([row["dropped"] for row in rows])))
    if job.seed in TUNING:
        return line
    for row in evaluations:
        row["entropy"] = row["token_entropy"]
    curve = [key for key in (*CURVE, "pass@256") if key in evaluations[-1]]
    line["evaluations"] = [
        {"step": row["step"]} | {key: shorter(row[key]) for key in curve} for row in evaluations
    ]
    if "pass@256" in curve:
        line["mechanism"] = mechanism(rows)
    numbers = measure(rows[: plan.steps], evaluations[-1])
    kept = {row.metric for row in table.ROWS} & {*numbers}
    line["numbers"] = {key: shorter(numbers[key]) for key in sorted(kept)}
    return line | {"problems": read_counts(folder)}


def read_counts(folder: Path) -> dict:
    """Return {"samples": n, "start": counts, "end": counts} of a run's problems.

    counts are {"correct": [problems], "answer_entropy": [problems]}, of the first evaluation and of
    the last one.
    """
    rows = read_rows(folder, "problems")
    counts = {"samples": rows[0]["samples"]}
    for place, step in (("start", rows[0]["step"]), ("end", rows[-1]["step"])):
        of_step = [row for row in rows if row["step"] == step]
        counts[place] = {
            "correct": [row["right"] for row in of_step],
            "answer_entropy": [round(row["answer_entropy"], 3) for row in of_step],
        }
    return counts


def shorter(number: float) -> float:
    """A number as it is kept."""
    return float(f"{number:.5g}")


def columns_of(rows: list[dict]) -> dict[str, np.ndarray]:
    """The metrics of the steps, [steps] each."""
    # a metric such as length_right is absent where nothing is right
    return {key: np.array([row.get(key, np.nan) for row in rows]) for key in rows[0]}


def fit_pass_at_k(ks: list[int], values: list[float]) -> dict[str, float]:
    """Return fit_a, fit_b, fit_c of pass@k = exp(-a (k + c)^-b) (FADE, section 12).

    For each c on a grid, log(-log pass@k) = log a - b log(k + c) is a line; the best c has the
    least squared error. {} for fewer than 3 values strictly between 0 and 1.
    """
    points = [(k, value) for k, value in zip(ks, values, strict=True) if 0 < value < 1]
    if len(points) < 3:
        return {}
    k, value = np.array(points).T
    fits = []
    for c in np.geomspace(0.01, 101, 1000) - 1:
        slope, intercept = np.polyfit(np.log(k + c), np.log(-np.log(value)), 1)
        fitted = np.exp(-np.exp(intercept + slope * np.log(k + c)))
        fits.append((np.square(fitted - value).sum(), intercept, slope, c))
    _, intercept, slope, c = min(fits)
    return {"fit_a": float(np.exp(intercept)), "fit_b": float(-slope), "fit_c": float(c)}


def mechanism(rows: list[dict]) -> dict[str, list[float]]:
    """Means over each tenth of a run: shares of groups and of tokens, entropy and length."""
    columns = columns_of(rows)
    columns["clipped"] = columns["clip_low"] + columns["clip_high"]
    names = ("all_wrong", "all_right", "clipped", "entropy", "length", "truncated", "reward")
    return {
        name: [shorter(float(part.mean())) for part in np.array_split(columns[name], 10)]
        for name in names
    }


def measure(rows: list[dict], evaluation: dict) -> dict[str, float]:
    """All numbers of a run, from what its steps have logged, and its last evaluation."""
    columns = columns_of(rows)
    third = max(len(rows) // 3, 1)
    found = evaluation | {
        "early": columns["reward"][:third].mean(),
        "late": columns["reward"][-third:].mean(),
        "all_wrong": columns["all_wrong"][-third:].mean(),
        "swing": np.ptp(smooth(columns["entropy"], 8)),
    }
    if "kappa" in columns:
        found["kappa"] = columns["kappa"][:20].mean()
    if "covariance_top_1%_share" in columns:
        found["top 1% share"] = columns["covariance_top_1%_share"].mean()
    if "success_gain_completion" in columns:
        found["gain"] = columns["success_gain_completion"].mean()
    if "delta" in columns:
        found["1 - delta"] = 1 - columns["delta"].mean()
    ks = ks_of(evaluation)
    if fit := fit_pass_at_k(ks, [evaluation[f"pass@{k}"] for k in ks]):
        a, b, c = fit.values()
        misfits = (evaluation[f"pass@{k}"] - math.exp(-a * (k + c) ** -b) for k in (1, 2, 4, 8, 16))
        found |= {"slope": b, "fit error": max(map(abs, misfits))}
    return found
