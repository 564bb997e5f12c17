"""curves.png: the curves of a run."""

import math
import os
import re
from pathlib import Path

from rlvr.show.logs import read_rows

MOST_PANELS = 12
COLUMNS = 4
# What a panel shows: its title, the log, and the metrics that are its lines. Before these come the
# panels of each held-out set.
PANELS = [
    ("reward of the rollout", "metrics", ["reward"]),
    ("entropy of the rollout (nats)", "metrics", ["entropy"]),
    ("share of groups", "metrics", ["all_wrong", "all_right"]),
    ("share of tokens that are clipped", "metrics", ["clip_low", "clip_high"]),
    ("gradient norm", "metrics", ["grad_norm"]),
    ("tokens of a completion", "metrics", ["length"]),
    ("seconds", "metrics", ["seconds_rollout", "seconds_update"]),
    ("share of completions", "metrics", ["truncated", "unparsed", "timeout"]),
    ("KL to the starting policy (nats)", "metrics", ["kl"]),
    ("updates left out", "metrics", ["skipped"]),
]
NOT_DRAWN = {"step", "loss", "learning_rate", "mismatch", "mismatch_k3", "mismatch_max_ratio"}


def choose_panels(evals: list[dict], metrics: list[dict]) -> list[tuple[str, list, list[str]]]:
    """(title, rows, keys) of at most MOST_PANELS panels; a line that is 0 throughout is left out.

    After the table above come the metrics that only this algorithm logs, one panel each.
    """
    rows_of = {"eval": evals, "metrics": metrics}
    # A resumed run may have other data sets, and a metric may be absent from a step.
    logged = dict.fromkeys(key for row in metrics for key in row)
    evaluated = dict.fromkeys(key for row in evals for key in row)
    known = NOT_DRAWN.union(*(keys for _, _, keys in PANELS))
    pass_at_k = {}  # of each data set: "" where there is one, else "<name>/"
    for key in evaluated:
        if found := re.fullmatch(r"(.*)pass@\d+", key):
            pass_at_k.setdefault(found[1], []).append(key)
    panels = []
    for data_set, keys in pass_at_k.items():
        entropies = [f"{data_set}answer_entropy", f"{data_set}token_entropy"]
        panels.append((f"held-out {data_set}pass@k", "eval", keys))
        panels.append((f"held-out {data_set}entropy (nats)", "eval", entropies))
    panels += PANELS + [(key, "metrics", [key]) for key in logged if key not in known]
    chosen = []
    for title, log, keys in panels:
        rows = rows_of[log]
        lines = [key for key in keys if any(row.get(key) for row in rows)]
        if lines:
            chosen.append((title, rows, lines))
    return chosen[:MOST_PANELS]


def draw_curves(folder: Path, cache_dir: str) -> None:
    """Draw curves.png from the logs of a run folder."""
    os.environ.setdefault("MPLCONFIGDIR", os.path.expanduser(cache_dir))
    from matplotlib.figure import Figure  # here, because it is slow to import

    panels = choose_panels(read_rows(folder, "eval"), read_rows(folder, "metrics"))
    grid_rows = max(1, math.ceil(len(panels) / COLUMNS))  # where all is 0 there is no panel
    figure = Figure(figsize=(5 * COLUMNS, 3.6 * grid_rows), layout="constrained")
    for i, (title, rows, keys) in enumerate(panels):
        axis = figure.add_subplot(grid_rows, COLUMNS, i + 1)
        axis.set(title=title, xlabel="step")
        axis.locator_params(axis="x", integer=True)
        for key in keys:
            points = [(row["step"], row[key]) for row in rows if key in row]
            axis.plot(*zip(*points, strict=True), ".-", label=key.rpartition("/")[2])
        axis.legend(fontsize="small", ncols=2)
    new = folder / ".curves.png"
    figure.savefig(new)
    new.replace(folder / "curves.png")
