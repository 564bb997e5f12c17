"""Any runs side by side: a table of their numbers, their curves, and what each token was worth.

    python studies/claims/compare.py runs/a runs/b ...   # runs/compare.png and .html, or --out FILE

Runs of a script whose flags differ in nothing but the seed are one line: their mean, in a band from
the lowest to the highest. The table has the first and the last evaluation with standard errors,
over the seeds where there are several, else over the problems. Below it stand the flags in which
the runs differ, and the differences to the first run, problem by problem. The figure has reward,
entropy and pass@k against the step, and pass@k against k, of the first data set. The page is that
of `report.html`, for all runs.
"""

import argparse
import itertools
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import markdown_table

from rlvr.errors import UserError, fail
from rlvr.show import (
    COLORS,
    SETTINGS,
    before_and_after,
    ks_of,
    read_evaluations,
    read_rows,
    write_report,
)

import matplotlib
import numpy as np
from matplotlib.figure import Figure

STYLES = [(color, line) for line in ("-", "--", ":") for color in COLORS]
BEFORE = ("#888888", "-.")  # the style of the policy before training
IGNORED = "seed output_dir resume_from_checkpoint num_threads typed record".split()


def flags_of(folder: Path) -> dict:
    """The script of a run and its flags, without those that two seeds of one run differ in."""
    config = json.loads((folder / "config.json").read_text())
    return {name: value for name, value in config.items() if name not in IGNORED}


def group_runs(folders: list[Path]) -> dict[str, list[Path]]:
    """Runs that differ in the seed alone, by the names of their folders, or what these share."""
    groups = {}
    for folder in folders:
        groups.setdefault(json.dumps(flags_of(folder), sort_keys=True), []).append(folder)
    labels = {}
    for group in groups.values():
        names = [folder.name for folder in group]
        label = os.path.commonprefix(names).rstrip("-_ ") or ", ".join(names)
        labels[str(group[0]) if label in labels else label] = group
    return labels


def table_of(groups: dict[str, list[Path]]) -> list[str]:
    """The lines of a table: each metric before and after, with its standard error."""
    rows = []
    for label, folders in groups.items():
        steps = sorted({read_rows(folder, "eval")[-1]["step"] for folder in folders})
        at = " or ".join(map(str, steps))
        for runs in zip(*map(before_and_after, folders), strict=True):
            metric, *places = zip(*runs, strict=True)
            rows.append([label, str(len(folders)), metric[0], *map(cell_of, places), at])
    return markdown_table(["run", "seeds", "metric", "before", "after", "step"], rows)


def flags_that_differ(groups: dict[str, list[Path]]) -> list[str]:
    """A line for each flag that has not the same value in all groups."""
    configs = {label: flags_of(folders[0]) for label, folders in groups.items()}
    lines = []
    for name in dict.fromkeys(name for config in configs.values() for name in config):
        values = {label: config.get(name, "none") for label, config in configs.items()}
        if len({*map(str, values.values())}) > 1:
            listed = ", ".join(f"{value} in {label}" for label, value in values.items())
            lines.append(f"The runs differ in {name}: {listed}.")
    return lines


def paired_differences(groups: dict[str, list[Path]]) -> list[str]:
    """A line for each group but the first, and data set: its pass@1 less that of the first group.

    It is the mean over the problems that both have evaluated last, with the standard error of these
    differences, and where a group has several seeds, of their mean for each problem.
    """
    (first, theirs), *others = ((label, rates_of(folders)) for label, folders in groups.items())
    lines = []
    for label, mine in others:
        for name in dict.fromkeys(name for name, _ in mine):
            shared = [key for key in mine if key[0] == name and key in theirs]
            if len(shared) > 1:
                apart = np.array([np.mean(mine[key]) - np.mean(theirs[key]) for key in shared])
                error = np.std(apart, ddof=1) / len(apart) ** 0.5
                lines.append(
                    f"{label} less {first}, problem by problem ({len(apart)} of {name}): "
                    f"pass@1 {apart.mean():+.3f} ± {error:.3f}"
                )
    return lines


def rates_of(folders: list[Path]) -> dict[tuple[str, str], list[float]]:
    """The share of right completions in the last evaluation of each seed, by set and problem."""
    rates = {}
    for folder in folders:
        rows = read_rows(folder, "problems")
        for row in rows:
            if row["step"] == rows[-1]["step"]:
                key = row["set"], row["prompt"]
                rates.setdefault(key, []).append(row["right"] / row["samples"])
    return rates


def cell_of(runs: list[tuple]) -> str:
    """A mean over the seeds, from the [value, standard error or None] of each."""
    values, errors = zip(*runs, strict=True)
    if None in values:
        return ""
    if len(values) > 1:
        errors = [np.std(values, ddof=1) / len(values) ** 0.5]
    return f"{np.mean(values):.3f}" + (f" ± {errors[0]:.3f}" if errors[0] is not None else "")


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` steps, or as many as there are, along the last axis."""
    values = np.asarray(values)
    sums = np.cumsum(values, -1)
    late = sums[..., window:] - sums[..., :-window]
    counts = np.arange(1, values.shape[-1] + 1).clip(max=window)
    return np.concatenate([sums[..., :window], late], -1) / counts


def band(axis, x: list, lines, label: str, style: tuple[str, str]) -> None:
    """The mean of the lines [seeds, x] in a band from the lowest to the highest."""
    color, line = style
    lines = np.asarray(lines, dtype=float)
    axis.plot(x, lines.mean(0), color=color, linestyle=line, linewidth=2.5, label=label)
    axis.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.18, linewidth=0)


def evaluations_of(folder: Path) -> list[dict]:
    """The rows of eval.jsonl of a run's first data set."""
    return next(iter(read_evaluations(folder).values()))


def draw_steps(axis, groups: dict, log: str, key: str, window: int = 1) -> None:
    """A metric of metrics.jsonl or eval.jsonl against the step.

    A line has as many rows as all seeds of a group have. A group that does not log the metric is
    left out.
    """
    for style, (label, folders) in zip(itertools.cycle(STYLES), groups.items()):
        runs = [evaluations_of(x) if log == "eval" else read_rows(x, log) for x in folders]
        length = min(map(len, runs))
        runs = [rows[:length] for rows in runs]
        if length and all(key in row for rows in runs for row in rows):
            lines = np.array([[row[key] for row in rows] for rows in runs])
            band(axis, [row["step"] for row in runs[0]], smooth(lines, window), label, style)
    axis.set(xlabel="step", title=f"{key}, mean of {window} steps" if window > 1 else key)


def draw_pass_at_k(axis, groups: dict) -> None:
    """Held-out pass@k against k at the last evaluation of each run.

    The first evaluation of the first group is drawn in grey: the policy before.
    """
    drawn = [("before", next(iter(groups.values())), 0, BEFORE)]
    for style, (label, folders) in zip(itertools.cycle(STYLES), groups.items()):
        drawn.append((label, folders, -1, style))
    for label, folders, place, style in drawn:
        evaluations = [evaluations_of(folder)[place] for folder in folders]
        ks = ks_of(evaluations[0])
        band(axis, ks, [[row[f"pass@{k}"] for k in ks] for row in evaluations], label, style)
    axis.set(xlabel="k", title="held-out pass@k")
    axis.set_xscale("log", base=2)


def draw_runs(folders: list[Path]) -> Figure:
    """The five panels."""
    groups = group_runs(folders)
    figure = Figure(figsize=(18, 11), layout="constrained")
    *axes, legend = figure.subplots(2, 3).flat
    draw_steps(axes[0], groups, "metrics", "reward", window=10)
    draw_steps(axes[1], groups, "metrics", "entropy", window=10)
    draw_steps(axes[2], groups, "eval", "pass@1")
    draw_steps(axes[3], groups, "eval", f"pass@{ks_of(evaluations_of(folders[0])[-1])[-1]}")
    draw_pass_at_k(axes[4], groups)
    for axis in axes[2:]:
        axis.set_ylim(0, 1)
    legend.axis("off")
    legend.legend(*axes[4].get_legend_handles_labels(), loc="center")
    return figure


def main(folders: list[Path], out: Path) -> None:
    folders = [folder for folder in folders if folder.suffix not in (".png", ".html")]  # our own
    missing = [str(folder) for folder in folders if not (folder / "eval.jsonl").exists()]
    if missing:
        fail(f"no run with an evaluation in {', '.join(missing)}")
    groups = group_runs(folders)
    print(*table_of(groups), "", *flags_that_differ(groups), *paired_differences(groups), sep="\n")
    with matplotlib.rc_context(SETTINGS):
        draw_runs(folders).savefig(out, dpi=80)
    print(f"wrote {out}")
    page = out.with_suffix(".html")
    try:
        write_report(page, folders)
        print(f"wrote {page}")
    except UserError as error:
        print(f"no page of the tokens: {error}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", type=Path, help="the figure; compare.png beside the first run")
    given = parser.parse_args()
    main([*dict.fromkeys(given.folders)], given.out or given.folders[0].parent / "compare.png")
