"""Any runs side by side: reward, entropy and pass@k against the step, and pass@k against k.

    python studies/compare.py runs/a runs/b ...          # writes runs/compare.png; --out for another file

Runs whose flags differ in nothing but the seed are one line: their mean, in a band from the lowest to the highest.
"""
import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot

STYLES = [(color, line) for line in ("-", "--", ":") for color in (  # Okabe and Ito's, which the colour-blind can tell
    "#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")]


def read_rows(folder: Path, name: str) -> list[dict]:
    """The rows of <name>.jsonl; none where the run has not written it."""
    file = folder / f"{name}.jsonl"
    return [json.loads(line) for line in file.open()] if file.exists() else []


def group_runs(folders: list[Path]) -> dict[str, list[Path]]:
    """Runs that differ in the seed alone, under their variant and, where two groups share it, the flags that differ."""
    configs, groups = {}, {}
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        for name in ("seed", "output_dir", "resume_from_checkpoint"):
            del config[name]
        key = json.dumps(config, sort_keys=True)
        configs[key] = config
        groups.setdefault(key, []).append(folder)
    labels = {}
    for key, config in configs.items():
        rivals = [other for other in configs.values() if other["variant"] == config["variant"]]
        telling = [name for name in config if any(other.get(name) != config[name] for other in rivals)]
        labels[key] = " ".join([config["variant"], *(f"{name}={config[name]}" for name in telling)])
    return {labels[key]: members for key, members in groups.items()}


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` steps, or over as many as there are, along the last axis."""
    sums = np.cumsum(values, -1)
    late = sums[..., window:] - sums[..., :-window]
    counts = np.arange(1, values.shape[-1] + 1).clip(max=window)
    return np.concatenate([sums[..., :window], late], -1) / counts


def band(axis, x, lines, label, style):
    """The mean of the lines [seeds, x] in a band from the lowest to the highest."""
    color, line = style
    lines = np.asarray(lines, dtype=float)
    axis.plot(x, lines.mean(0), color=color, linestyle=line, linewidth=2.5, label=label)
    axis.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.12, linewidth=0)


def draw_steps(axis, groups: dict[str, list[Path]], name: str, key: str, window: int = 1, most: int = 10**9):
    """A metric of metrics.jsonl or eval.jsonl against the step, for as many steps as all seeds of a group have, and
    at most `most` rows."""
    for style, (label, folders) in zip(STYLES, groups.items()):
        rows = [read_rows(folder, name) for folder in folders]
        length = min(most, *map(len, rows))
        if length and all(key in row for run in rows for row in run):
            lines = np.array([[row[key] for row in run[:length]] for run in rows])
            band(axis, [row["step"] for row in rows[0][:length]], smooth(lines, window), label, style)
    axis.set(xlabel="step", title=key)


def draw_pass_at_k(axis, groups: dict[str, list[Path]], step: int | None = None):
    """Held-out pass@k against k at the last evaluation of each run, or that of `step`; in grey, at the first one."""
    curves = [*zip(STYLES, groups, groups.values(), [-1] * len(groups)),
              (("#888888", "-."), "before", next(iter(groups.values())), 0)]
    for style, label, folders, which in curves:
        rows = [[row for row in read_rows(folder, "eval") if which == 0 or step in (None, row["step"])][which]
                for folder in folders]
        ks = sorted(int(key[5:]) for key in rows[0] if key.startswith("pass@") and key[5:].isdigit())
        band(axis, ks, [[row[f"pass@{k}"] for k in ks] for row in rows], label, style)
    axis.set(xlabel="k", title="held-out pass@k")
    axis.set_xscale("log", base=2)


def main(folders: list[Path], out: Path):
    missing = [str(folder) for folder in folders if not (folder / "eval.jsonl").exists()]
    if missing:
        raise SystemExit(f"compare.py: error: no finished evaluation in {', '.join(missing)}")
    groups = group_runs(folders)
    pyplot.rcParams["font.size"] = 20
    figure, axes = pyplot.subplots(1, 5, figsize=(30, 8), layout="constrained")
    draw_steps(axes[0], groups, "metrics", "reward", window=10)
    draw_steps(axes[1], groups, "metrics", "entropy", window=10)
    largest = max((key for key in read_rows(folders[0], "eval")[-1] if key.startswith("pass@") and key[5:].isdigit()),
                  key=lambda key: int(key[5:]))
    draw_steps(axes[2], groups, "eval", "pass@1")
    draw_steps(axes[3], groups, "eval", largest)
    draw_pass_at_k(axes[4], groups)
    figure.legend(*axes[4].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(out, dpi=70)
    print(f"wrote {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", type=Path, help="file of the figure; compare.png beside the first run by default")
    given = parser.parse_args()
    main(given.folders, given.out or given.folders[0].parent / "compare.png")
