"""A verifier that errs: what random and systematic errors do to training.

    python studies/claims/noise.py              # the runs that are missing, then the tables
    python studies/claims/noise.py --seconds 0  # the tables alone, from what has been run

Each finished run leaves a line in studies/results/noise.jsonl.gz, and is not made again. The table
and the figure are in CLAIMS.md; docs/lessons/7_verifier.json has the curves that the lesson shows.
"""

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import (
    FIGURES,
    ROOT,
    STUDIES,
    add_result,
    fill_in,
    markdown_table,
    read_results,
)

import numpy as np
from matplotlib.figure import Figure

import grpo
from studies.claims.page import difference_cell

RESULTS = STUDIES / "results" / "noise.jsonl.gz"
CURVES = ROOT / "docs" / "lessons" / "7_verifier.json"
HOLE = ROOT / "docs" / "lessons" / "hole.py"
METHODS = {  # name: script, its variant, and its learning rate in claims_tables.md
    "GRPO": ("grpo", "grpo", 1e-4),
    "GRPO-N": ("grpo", "grpo-n", 1e-4),
    "A-GRAE": ("agrae", "agrae", 1e-4),
    "FADE": ("fade", "fade", 3e-5),
}
VERIFIERS = {  # name: flags, and J = TPR - FPR before training
    "right": (dict(), 1.0),
    "random 0.15, 0.15": (dict(reward_noise="0.15,0.15"), 0.7),
    "random 0, 0.35": (dict(reward_noise="0,0.35"), 0.65),
    "hole": (dict(verifier=f"{HOLE}:score"), 0.65),
    "a bound": (dict(verifier=f"{HOLE}:reaches"), 0.51),  # of GRPO alone
    "random 0.35, 0.35": (dict(reward_noise="0.35,0.35"), 0.3),
    "random 0.5, 0.5": (dict(reward_noise="0.5,0.5"), 0.0),
    "random 0.65, 0.65": (dict(reward_noise="0.65,0.65"), -0.3),
}
METRICS = "pass@1", "pass@16"
STEPS, EVERY, SEEDS = 48, 16, 8
SIZES = dict(prompts_per_step=16, num_generations=8, minibatch_size=64, log_tokens=0, num_threads=1)
EVALUATED = dict(eval_problems=128, eval_samples=16)


@functools.cache
def evaluate(model: str, seed: int) -> dict[str, float]:
    """The accuracies of a policy, with the right verifier. All runs of a seed share their start."""
    with tempfile.TemporaryDirectory() as folder:
        config = grpo.configure(
            **dict(model=model, max_steps=0, seed=seed, num_threads=1, **EVALUATED),
            output_dir=f"{folder}/run",
        )
        (row,) = grpo.main(config).evaluations
    return {metric: row[metric] for metric in METRICS}


def make_run(method: str, verifier: str, seed: int) -> dict:
    """Train, and evaluate each checkpoint with the right verifier -> what is kept of the run."""
    script, variant, rate = METHODS[method]
    module = importlib.import_module(script)
    flags, _ = VERIFIERS[verifier]
    every = EVERY if method == "GRPO" else STEPS  # only GRPO's curves are shown
    if script == "fade":
        flags = dict(target_entropy=0.2, equalize_learning_rate=True) | flags
    with tempfile.TemporaryDirectory() as folder:
        trained = module.main(
            module.configure(
                variant=variant,
                **(dict(learning_rate=rate, seed=seed, max_steps=STEPS) | flags | SIZES),
                **dict(eval_steps=STEPS, eval_problems=1, eval_samples=1),
                **dict(save_steps=every, save_total_limit=STEPS, output_dir=f"{folder}/run"),
            )
        )
        evaluations = [{"step": 0, **evaluate("tiny", seed)}]
        for step in range(every, STEPS + 1, every):
            evaluations.append({"step": step, **evaluate(f"{folder}/run/checkpoint-{step}", seed)})
    return dict(evaluations=evaluations, rewards=[round(row["reward"], 4) for row in trained.steps])


def make_missing(seconds: float) -> None:
    """Make the runs that are missing, seed by seed, as far as the time goes."""
    end, finished = time.time() + seconds, read_results(RESULTS)
    for seed, method, verifier in itertools.product(range(SEEDS), METHODS, VERIFIERS):
        if (verifier, method, seed) in finished or time.time() > end:
            continue
        if verifier == "a bound" and method != "GRPO":
            continue
        began = time.time()
        with open("/dev/null", "w") as nowhere, contextlib.redirect_stdout(nowhere):
            line = make_run(method, verifier, seed)
        add_result(RESULTS, dict(base=verifier, name=method, seed=seed) | line)
        print(f"{method}, {verifier}, seed {seed}: {time.time() - began:.0f} s", flush=True)


def lines_of(finished: dict, verifier: str, method: str) -> list[dict]:
    """The runs of a method with a verifier, seed by seed."""
    return [line for key, line in finished.items() if key[:2] == (verifier, method)]


def gain(line: dict, metric: str) -> float:
    """What a run has gained of a metric."""
    first, *_, last = line["evaluations"]
    return last[metric] - first[metric]


def write_tables() -> None:
    """Write the table and the figure of CLAIMS.md, and the curves of the lesson."""
    rows, curves, finished = [], {}, read_results(RESULTS)
    for method, verifier in itertools.product(METHODS, VERIFIERS):
        lines = lines_of(finished, verifier, method)
        if not lines:
            continue
        row = [method, verifier, f"{VERIFIERS[verifier][1]:g}", f"{len(lines)}"]
        row.append(f"{np.mean([np.mean(line['rewards'][-8:]) for line in lines]):.3f}")
        row += [difference_cell([gain(line, metric) for line in lines]) for metric in METRICS]
        pairs = [(line, finished.get((verifier, "GRPO", line["seed"]))) for line in lines]
        apart = [gain(line, "pass@1") - gain(other, "pass@1") for line, other in pairs if other]
        row.append("" if method == "GRPO" else difference_cell(apart))
        rows.append(row)
        if method == "GRPO" and verifier != "a bound":
            passes = [[row["pass@1"] for row in line["evaluations"]] for line in lines]
            rewards = np.mean([line["rewards"] for line in lines], 0)
            curves[verifier] = dict(
                J=VERIFIERS[verifier][1],
                seeds=len(lines),
                steps=[*range(0, STEPS + 1, EVERY)],
                pass_at_1=np.mean(passes, 0).round(4).tolist(),
                rewards=rewards.reshape(-1, 8).mean(1).round(4).tolist(),
            )
    head = ["method", "verifier", "J", "seeds", "reward, last 8 steps", *METRICS]
    head += ["pass@1 minus GRPO's"]
    fill_in(STUDIES / "CLAIMS.md", {"noise": markdown_table(head, rows)})
    CURVES.write_text(json.dumps(curves, indent=1) + "\n")
    draw(finished)


def draw(finished: dict) -> None:
    """Draw the reward by two verifiers with a hole, and pass@1 by the right one."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, verifier in zip(axes, ("hole", "a bound"), strict=True):
        lines = lines_of(finished, verifier, "GRPO")
        rewards = np.mean([line["rewards"] for line in lines], 0)  # [steps]
        axis.plot(range(1, STEPS + 1), rewards, label="reward by this verifier")
        passes = [[row["pass@1"] for row in line["evaluations"]] for line in lines]
        steps = range(0, STEPS + 1, EVERY)
        axis.plot(steps, np.mean(passes, 0), "o-", label="pass@1 by the right one")
        axis.set(title=verifier, xlabel="step", ylim=(0, 1))
    axes[0].legend()
    figure.savefig(FIGURES / "verifiers.png", dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Runs with a verifier that errs.", allow_abbrev=False
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end")
    options = parser.parse_args()
    make_missing(options.seconds)
    write_tables()
