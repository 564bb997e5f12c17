"""A verifier that errs: what random and systematic errors do to training.

    python studies/claims/noise.py              # the runs that are missing, then the tables
    python studies/claims/noise.py --seconds 0  # the tables alone, from what has been run

Each finished run leaves a line in studies/results/noise.jsonl.gz, and is not made again. The tables
are in CLAIMS.md; docs/lessons/7_verifier.json has the curves that the lesson shows.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, STUDIES, add_result, fill_in, markdown_table, read_results

import numpy as np

from studies.claims.rule import interval

RESULTS = STUDIES / "results" / "noise.jsonl.gz"
CURVES = ROOT / "docs" / "lessons" / "7_verifier.json"
HOLE = ROOT / "docs" / "lessons" / "hole.py"
METHODS = {  # name: script, its variant, and the learning rate that claims.py has found
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
    "random 0.35, 0.35": (dict(reward_noise="0.35,0.35"), 0.3),
    "random 0.5, 0.5": (dict(reward_noise="0.5,0.5"), 0.0),
    "random 0.65, 0.65": (dict(reward_noise="0.65,0.65"), -0.3),
}
STEPS, EVERY, SEEDS = 48, 16, 8
SIZES = dict(prompts_per_step=16, num_generations=8, minibatch_size=64, log_tokens=0, num_threads=1)
EVALUATED = dict(eval_problems=128, eval_samples=16)


def make_run(method: str, verifier: str, seed: int) -> dict:
    """Train, and evaluate each checkpoint with the right verifier -> what is kept of the run."""
    script, variant, rate = METHODS[method]
    module = importlib.import_module(script)
    flags, _ = VERIFIERS[verifier]
    if script == "fade":
        flags = dict(target_entropy=0.2, equalize_learning_rate=True) | flags
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = module.main(
            module.configure(
                variant=variant,
                **(dict(learning_rate=rate, seed=seed, max_steps=STEPS) | flags | SIZES),
                **dict(eval_steps=STEPS, eval_problems=1, eval_samples=1),
                **dict(save_steps=EVERY, save_total_limit=STEPS, output_dir=str(folder / "run")),
            )
        )
        evaluations = []
        for step in range(0, STEPS + 1, EVERY):
            model = str(folder / "run" / f"checkpoint-{step}") if step else "tiny"
            config = importlib.import_module("grpo").configure(
                **dict(model=model, max_steps=0, seed=seed, num_threads=1, **EVALUATED),
                output_dir=str(folder / f"at-{step}"),
            )
            (row,) = importlib.import_module("grpo").main(config).evaluations
            evaluations.append({"step": step, "pass@1": row["pass@1"], "pass@16": row["pass@16"]})
    return dict(evaluations=evaluations, rewards=[round(row["reward"], 4) for row in trained.steps])


def make_missing(seconds: float) -> None:
    """Make the runs that are missing, seed by seed, as far as the time goes."""
    end = time.time() + seconds
    for seed, method, verifier in itertools.product(range(SEEDS), METHODS, VERIFIERS):
        key = verifier, method, seed
        if key in read_results(RESULTS) or time.time() > end:
            continue
        began = time.time()
        with open("/dev/null", "w") as nowhere, contextlib.redirect_stdout(nowhere):
            line = make_run(method, verifier, seed)
        add_result(RESULTS, dict(base=verifier, name=method, seed=seed) | line)
        print(f"{method}, {verifier}, seed {seed}: {time.time() - began:.0f} s", flush=True)


def lines_of(verifier: str, method: str) -> list[dict]:
    """The runs of a method with a verifier, by seed."""
    lines = read_results(RESULTS)
    return [line for key, line in lines.items() if key[:2] == (verifier, method)]


def gain(line: dict, metric: str) -> float:
    """What a run has gained of a metric."""
    first, *_, last = line["evaluations"]
    return last[metric] - first[metric]


def write_tables() -> None:
    """The table of CLAIMS.md and the curves of the lesson."""
    rows, curves = [], {}
    for method, verifier in itertools.product(METHODS, VERIFIERS):
        if not (lines := lines_of(verifier, method)):
            continue
        row = [method, verifier, f"{VERIFIERS[verifier][1]:g}", f"{len(lines)}"]
        row.append(f"{np.mean([np.mean(line['rewards'][-8:]) for line in lines]):.3f}")
        for metric in ("pass@1", "pass@16"):
            gains = [gain(line, metric) for line in lines]
            row.append(f"{np.mean(gains):+.3f}")
            if len(gains) > 1:
                _, low, high = interval(gains)
                row[-1] += f" [{low:+.3f}, {high:+.3f}]"
        rows.append(row)
        if method == "GRPO":
            passes = [[each["pass@1"] for each in line["evaluations"]] for line in lines]
            rewards = np.mean([line["rewards"] for line in lines], 0)
            curves[verifier] = dict(
                J=VERIFIERS[verifier][1],
                seeds=len(lines),
                steps=[*range(0, STEPS + 1, EVERY)],
                pass_at_1=np.mean(passes, 0).round(4).tolist(),
                rewards=rewards.reshape(-1, 8).mean(1).round(4).tolist(),
            )
    head = ["method", "verifier", "J", "seeds", "reward, last 8 steps", "pass@1", "pass@16"]
    fill_in(STUDIES / "CLAIMS.md", {"noise": markdown_table(head, rows)})
    CURVES.write_text(json.dumps(curves, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs with a verifier that errs.")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end")
    options = parser.parse_args()
    make_missing(options.seconds)
    write_tables()
