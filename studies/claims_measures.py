"""The numbers that claims are about, from what a run has logged."""

import math
import re

from rlvr.verify.answers.expressions import OPERATORS

import numpy as np
from compare import smooth


def has_false_step(text: str) -> bool:
    """Is an equation of a Countdown completion, such as 9*5=45, wrong?"""
    for left, sign, right, result in re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", text):
        if sign == "/" and int(right) == 0:
            return True
        if OPERATORS[sign](int(left), int(right)) != int(result):
            return True
    return False


def measure_run(rows: list[dict], evaluation: dict, texts: list[dict], steps: int) -> dict:
    """All numbers of a run of `steps` steps, from what it has logged, and its last evaluation.

    `texts` are the completions of Countdown that it has kept.
    """
    if not evaluation:
        return measure_growth(rows)
    found = measure_evaluation(evaluation)
    if rows:
        found |= measure_training(rows)
    if rows and texts:
        found["false steps"] = share_of_false_steps(texts, steps, max(len(rows) // 3, 1))
    return found


def measure_growth(rows: list[dict]) -> dict[str, float]:
    """The numbers of a run of entropy_growth.py, whose rows are batches of one policy."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    kappa = columns["kappa"].mean()
    found = {
        "kappa": kappa,
        "growth": columns["growth"].mean() * np.sign(kappa),
        "correlation": np.corrcoef(columns["kappa"], columns["growth"])[0, 1],
    }
    for name in ("easy", "hard"):  # the mean over the groups of all batches, if there is any
        groups = columns[name]
        if groups.any():
            total = (groups * columns[f"{name}_gap"]).sum()
            found[f"{name} gap"] = total / groups.sum()
    return found


def measure_training(rows: list[dict]) -> dict[str, float]:
    """The numbers of the steps of a run of one of the five scripts, from what each step logs."""
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    third = max(len(rows) // 3, 1)
    found = {
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
        found["delta"] = columns["delta"].mean()
        found["1 - delta"] = 1 - found["delta"]
    return found


def measure_evaluation(row: dict) -> dict[str, float]:
    """The numbers of an evaluation; those of the fitted power law where there is one."""
    found = row | {"entropy": row["token_entropy"]}
    found.pop("all_wrong", None)  # what claims are about is that of the rollouts
    if "fit_a" in row:
        found |= {"slope": row["fit_b"], "fit error": largest_misfit(row)}
    return found


def share_of_false_steps(texts: list[dict], step: int, window: int) -> float:
    """The share of wrong completions with a false equation, in the `window` steps up to `step`."""
    wrong = [
        row["text"] for row in texts if step - window < row["step"] <= step and not row["reward"]
    ]
    return sum(map(has_false_step, wrong)) / max(len(wrong), 1)


def largest_misfit(row: dict) -> float:
    """The largest difference of pass@k and its fitted power law."""
    return max(
        abs(row[f"pass@{k}"] - math.exp(-row["fit_a"] * (k + row["fit_c"]) ** -row["fit_b"]))
        for k in (1, 2, 4, 8, 16, 32)
    )
