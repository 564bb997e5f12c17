"""The numbers that claims are about, read from the run folders."""

import math
import re
from pathlib import Path

from rlvr.logs import read_rows
from rlvr.tasks.countdown import OPERATORS

import numpy as np
from compare import smooth

STATIC_WEIGHTS = "mean", "Power 2", "delta 0.5"  # policy weights without feedback, FADE's rivals


def has_false_step(text: str) -> bool:
    """Is an equation of a Countdown completion, such as 9*5=45, wrong?"""
    for left, sign, right, result in re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", text):
        if sign == "/" and int(right) == 0:
            return True
        if OPERATORS[sign](int(left), int(right)) != int(result):
            return True
    return False


def measure(folder: Path, scale, step: int) -> dict[str, float]:
    """The numbers that claims are about, of a run at a step."""
    rows = read_rows(folder, "metrics")[: scale.steps]
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    if "growth" in columns:
        return measure_growth(columns)
    return measure_training(folder, scale, step, columns)


def measure_growth(columns: dict[str, np.ndarray]) -> dict[str, float]:
    """The numbers of a run of entropy_growth.py, whose rows are batches of one policy."""
    kappa = columns["kappa"].mean()
    found = {
        "kappa": kappa,
        "growth": columns["growth"].mean() * np.sign(kappa),
        "correlation": np.corrcoef(columns["kappa"], columns["growth"])[0, 1],
    }
    for name in ("easy", "hard"):  # the mean over the groups of all batches
        groups = columns[name]
        total = (groups * columns[f"{name}_gap"]).sum()
        found[f"{name} gap"] = total / max(groups.sum(), 1)
    return found


def measure_training(folder: Path, scale, step: int, columns: dict[str, np.ndarray]) -> dict:
    """The numbers of a run of one of the five scripts, with what it has logged at `step`."""
    evaluations = read_rows(folder, "eval")
    found = next(row for row in evaluations if row["step"] == step)
    third = max(scale.steps // 3, 1)
    found |= {
        "false steps": share_of_false_steps(read_rows(folder, "samples"), step, third),
        "entropy": found["token_entropy"],
        "early": columns["reward"][:third].mean(),
        "late": columns["reward"][-third:].mean(),
        "swing": np.ptp(smooth(columns["entropy"], 8)),
        "fit error": largest_misfit(evaluations),
    }
    if "kappa" in columns:
        found["kappa"] = columns["kappa"][:20].mean()
    if "covariance_top_1%_share" in columns:
        found["top 1% share"] = columns["covariance_top_1%_share"].mean()
    return found


def share_of_false_steps(texts: list[dict], step: int, window: int) -> float:
    """The share of false equations among the wrong completions of the last steps up to `step`.

    There are two texts a step. For the policy before training they are those of the first steps.
    """
    first, last = max(step - window, 0), max(step, 4)
    wrong = [row["text"] for row in texts if first < row["step"] <= last and not row["reward"]]
    return sum(map(has_false_step, wrong)) / max(len(wrong), 1)


def largest_misfit(evaluations: list[dict]) -> float:
    """The largest difference of pass@k and its fitted power law; NaN where nothing was fitted."""
    misfits = []
    for row in evaluations:
        if "fit_a" not in row:
            continue
        for k in (1, 2, 4, 8, 16, 32):
            fitted = math.exp(-row["fit_a"] * (k + row["fit_c"]) ** -row["fit_b"])
            misfits.append(abs(row[f"pass@{k}"] - fitted))
    return max(misfits, default=math.nan)


def collect(folder: Path, base: str, scale, names) -> dict[str, list[dict]]:
    """For each run of a base the numbers of its seeds.

    "start" is the policy before training, and "GRPO, long" is GRPO at its last step.
    """

    def all_seeds(name: str, step: int) -> list[dict]:
        folders = [folder / base / f"{name}-{seed}" for seed in range(scale.seeds)]
        return [measure(run, scale, step) for run in folders]

    table = {name: all_seeds(name, scale.steps) for name in names}
    table["start"] = all_seeds("GRPO", 0)
    if base == "weak":
        table["GRPO, long"] = all_seeds("GRPO", scale.long)
    if {*STATIC_WEIGHTS} <= {*names}:
        for seed in range(scale.seeds):
            for name, steps in steps_to_the_peak(folder / base, seed, scale).items():
                table[name][seed]["reach"] = steps
    return table


def steps_to_the_peak(folder: Path, seed: int, scale) -> dict[str, int]:
    """When FADE and the static weights first get as far as any static weight does with that seed.

    What is compared is the mean reward of ten steps. A run that does not get there has all steps.
    """
    curves = {}
    for name in (*STATIC_WEIGHTS, "FADE"):
        rows = read_rows(folder / f"{name}-{seed}", "metrics")
        rewards = np.array([row["reward"] for row in rows])
        curves[name] = smooth(rewards, 10)[min(9, scale.steps - 1) :]
    peak = max(curves[name].max() for name in STATIC_WEIGHTS)
    reach = {}
    for name, curve in curves.items():
        reach[name] = int(np.argmax(curve >= peak)) if curve.max() >= peak else len(curve)
    return reach
