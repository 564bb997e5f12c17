"""Any runs side by side: a table of their numbers, their curves, and what each token was worth.

    python studies/claims/compare.py runs/a runs/b ...   # runs/compare.png and .html, or --out FILE

Runs of a script whose flags differ in nothing but the seed are one line: their mean, in a band from
the lowest to the highest. The table has the first and the last evaluation with standard errors,
over the seeds where there are several, else over the problems, and the step of the last one. The
figure has reward, entropy and pass@k against the step, and pass@k against k. The page is that of
`report.html`, for all runs.
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
from rlvr.show import COLORS, SETTINGS, before_and_after, read_rows, write_report

import matplotlib
import numpy as np
from matplotlib.figure import Figure

STYLES = [(color, line) for line in ("-", "--", ":") for color in COLORS]
BEFORE = ("#888888", "-.")  # the style of the policy before training
NOT_TELLING = ("seed", "output_dir", "resume_from_checkpoint", "num_threads")


def group_runs(folders: list[Path]) -> dict[str, list[Path]]:
    """Runs that differ in the seed alone, by the names of their folders, or what these share."""
    groups = {}
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        for name in NOT_TELLING:
            config.pop(name, None)
        groups.setdefault(json.dumps(config, sort_keys=True), []).append(folder)
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
            rows.append([label, metric[0], *map(cell_of, places), at])
    return markdown_table(["run", "metric", "before", "after", "step"], rows)


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


def ks_of(row: dict) -> list[int]:
    """The k of each pass@k that an evaluation has logged, rising."""
    names = [key.removeprefix("pass@") for key in row if key.startswith("pass@")]
    return sorted(int(name) for name in names if name.isdigit())


def band(axis, x: list, lines, label: str, style: tuple[str, str]) -> None:
    """The mean of the lines [seeds, x] in a band from the lowest to the highest."""
    color, line = style
    lines = np.asarray(lines, dtype=float)
    axis.plot(x, lines.mean(0), color=color, linestyle=line, linewidth=2.5, label=label)
    axis.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.18, linewidth=0)


def draw_steps(axis, groups: dict, log: str, key: str, window: int = 1) -> None:
    """A metric of metrics.jsonl or eval.jsonl against the step.

    A line has as many rows as all seeds of a group have. A group that does not log the metric is
    left out.
    """
    for style, (label, folders) in zip(itertools.cycle(STYLES), groups.items()):
        runs = [read_rows(folder, log) for folder in folders]
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
        evaluations = [read_rows(folder, "eval")[place] for folder in folders]
        ks = ks_of(evaluations[0])
        band(axis, ks, [[row[f"pass@{k}"] for k in ks] for row in evaluations], label, style)
    axis.set(xlabel="k", title="held-out pass@k")
    axis.set_xscale("log", base=2)


def draw_runs(folders: list[Path]) -> Figure:
    """The five panels."""
    groups = group_runs(folders)
    figure = Figure(figsize=(18, 11), layout="constrained")
    *axes, legend = figure.subplots(2, 3).flat
    largest_k = ks_of(read_rows(folders[0], "eval")[-1])[-1]
    draw_steps(axes[0], groups, "metrics", "reward", window=10)
    draw_steps(axes[1], groups, "metrics", "entropy", window=10)
    draw_steps(axes[2], groups, "eval", "pass@1")
    draw_steps(axes[3], groups, "eval", f"pass@{largest_k}")
    draw_pass_at_k(axes[4], groups)
    for axis in axes[2:]:
        axis.set_ylim(0, 1)
    legend.axis("off")
    legend.legend(*axes[4].get_legend_handles_labels(), loc="center")
    return figure


def main(folders: list[Path], out: Path) -> None:
    missing = [str(folder) for folder in folders if not (folder / "eval.jsonl").exists()]
    if missing:
        fail(f"no run with an evaluation in {', '.join(missing)}")
    print(*table_of(group_runs(folders)), "", sep="\n")
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
