"""Any runs side by side: reward, entropy and pass@k against the step, and pass@k against k.

    python studies/compare.py runs/a runs/b ...    # runs/compare.png, or --out FILE

Runs of a script whose flags differ in nothing but the seed are one line: their mean, in a band from
the lowest to the highest.
"""

import argparse
import itertools
import json
from pathlib import Path

import project

from rlvr.show.logs import read_rows

import matplotlib
import numpy as np
from matplotlib.figure import Figure

COLORS = [  # Okabe and Ito's, which the colour-blind can tell apart
    "#000000",
    "#D55E00",
    "#0072B2",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
]
STYLES = [(color, line) for line in ("-", "--", ":") for color in COLORS]
BEFORE = ("#888888", "-.")  # the style of the policy before training
NOT_TELLING = ("seed", "output_dir", "resume_from_checkpoint", "num_threads")


def group_runs(folders: list[Path]) -> dict[str, list[Path]]:
    """Runs that differ in the seed alone, by their variant.

    Where two groups share a variant, what differs stands behind it: flags, or the script.
    """
    configs, groups = {}, {}
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        for name in NOT_TELLING:
            config.pop(name, None)
        key = json.dumps(config, sort_keys=True)
        configs[key] = config
        groups.setdefault(key, []).append(folder)
    return {label_of(configs[key], [*configs.values()]): groups[key] for key in groups}


def label_of(config: dict, all_configs: list[dict]) -> str:
    """The variant, and the flags that differ from those of another group of the same variant."""
    rivals = [other for other in all_configs if other["variant"] == config["variant"]]
    telling = [
        f"{name}={value}"
        for name, value in config.items()
        if any(other.get(name) != value for other in rivals)
    ]
    return " ".join([config["variant"], *telling])


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` steps, or as many as there are, along the last axis."""
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
    axis.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.12, linewidth=0)


def draw_steps(
    axis,
    groups: dict[str, list[Path]],
    log: str,
    key: str,
    window: int = 1,
    most_rows: int | None = None,
) -> None:
    """A metric of metrics.jsonl or eval.jsonl against the step.

    A line has as many rows as all seeds of a group have, and at most `most_rows`. A group that does
    not log the metric is left out.
    """
    for style, (label, folders) in zip(itertools.cycle(STYLES), groups.items()):
        runs = [read_rows(folder, log) for folder in folders]
        length = min(map(len, runs))
        runs = [rows[:length][:most_rows] for rows in runs]
        if length and all(key in row for rows in runs for row in rows):
            steps = [row["step"] for row in runs[0]]
            lines = np.array([[row[key] for row in rows] for rows in runs])
            band(axis, steps, smooth(lines, window), label, style)
    axis.set(xlabel="step", title=f"{key}, mean of {window} steps" if window > 1 else key)


def draw_pass_at_k(axis, groups: dict[str, list[Path]], step: int | None = None) -> None:
    """Held-out pass@k against k at the last evaluation of each run, or at that of `step`.

    The first evaluation of the first group is drawn in grey: the policy before.
    """
    for style, (label, folders) in zip(itertools.cycle(STYLES), groups.items()):
        runs = [read_rows(folder, "eval") for folder in folders]
        if step is not None:
            runs = [[row for row in rows if row["step"] == step] for rows in runs]
        draw_evaluations(axis, [rows[-1] for rows in runs], label, style)
    first_group = next(iter(groups.values()))
    before = [read_rows(folder, "eval")[0] for folder in first_group]
    draw_evaluations(axis, before, "before", BEFORE)
    axis.set(xlabel="k", title="held-out pass@k")
    axis.set_xscale("log", base=2)


def draw_evaluations(axis, evaluations: list[dict], label: str, style: tuple[str, str]) -> None:
    """pass@k against k of one evaluation a seed."""
    ks = ks_of(evaluations[0])
    lines = [[evaluation[f"pass@{k}"] for k in ks] for evaluation in evaluations]
    band(axis, ks, lines, label, style)


def draw_runs(folders: list[Path]) -> Figure:
    """The five panels."""
    groups = group_runs(folders)
    figure = Figure(figsize=(30, 8), layout="constrained")
    axes = figure.subplots(1, 5)
    largest_k = ks_of(read_rows(folders[0], "eval")[-1])[-1]
    draw_steps(axes[0], groups, "metrics", "reward", window=10)
    draw_steps(axes[1], groups, "metrics", "entropy", window=10)
    draw_steps(axes[2], groups, "eval", "pass@1")
    draw_steps(axes[3], groups, "eval", f"pass@{largest_k}")
    draw_pass_at_k(axes[4], groups)
    figure.legend(*axes[4].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def main(folders: list[Path], out: Path) -> None:
    missing = [str(folder) for folder in folders if not (folder / "eval.jsonl").exists()]
    if missing:
        raise SystemExit(f"compare.py: error: no finished evaluation in {', '.join(missing)}")
    with matplotlib.rc_context({"font.size": 20}):
        draw_runs(folders).savefig(out, dpi=70)
    print(f"wrote {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", type=Path, help="the figure; compare.png beside the first run")
    given = parser.parse_args()
    main(given.folders, given.out or given.folders[0].parent / "compare.png")
