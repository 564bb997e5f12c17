"""curves.png: the curves of a run. And how all figures look."""

import math
import re
from pathlib import Path

from rlvr.show.logs import read_evaluations, read_rows

# of lines; the colour-blind can tell them apart (Okabe and Ito)
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000"]
SETTINGS: dict = {  # for matplotlib.rc_context
    "font.size": 15,
    "axes.prop_cycle": f"cycler('color', {COLORS})",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "lines.linewidth": 2.5,
    "legend.frameon": False,
}

MOST_PANELS = 15
MOST_POINTS = 1000  # of a line; more take seconds to draw, and cannot be told apart
COLUMNS = 3
# What a panel shows: its title, the log, and the pattern of the metrics that are its lines. Each
# held-out set has panels of its own.
PANELS = [
    ("held-out pass@k", "eval", r"pass@\d+"),
    ("reward of the rollout", "metrics", "reward"),
    ("held-out entropy of tokens (nats)", "eval", "token_entropy"),
    ("held-out entropy of answers (nats)", "eval", "answer_entropy"),
    ("entropy of the rollout (nats)", "metrics", "entropy"),
    ("groups (%)", "metrics", "all_wrong|all_right"),
    ("clipped tokens (%)", "metrics", "clip_low|clip_high"),
    ("gradient norm", "metrics", "grad_norm"),
    ("tokens of a completion", "metrics", "length|length_max|length_right|length_wrong"),
    ("seconds", "metrics", "seconds_rollout|seconds_update"),
    ("completions (%)", "metrics", "truncated|unparsed|timeout"),
    ("KL to the starting policy (nats)", "metrics", "kl"),
    ("updates left out", "metrics", "skipped"),
]
NOT_DRAWN = {"step", "loss", "learning_rate", "mismatch", "mismatch_k3", "mismatch_max_ratio"}
NOT_DRAWN |= {*"reward_std advantage_max ratio_max ratio_k3 loss_share".split()}
NOT_DRAWN |= {*"tokens time peak_memory_gb".split()}


def choose_panels(evaluations: dict, metrics: list[dict]) -> list[tuple[str, list, list[str]]]:
    """(title, rows, keys) of at most MOST_PANELS panels; a line that is 0 throughout is left out.

    evaluations holds the rows of each held-out set. The metrics that only this algorithm logs come
    third, one panel each.
    """
    known = "|".join(pattern for *_, pattern in PANELS)
    # A resumed run may have other data sets, and a metric may be absent from a step.
    own = [
        key
        for key in dict.fromkeys(key for row in metrics for key in row)
        if not re.fullmatch(known, key)
    ]
    own_panels = [(key, "metrics", re.escape(key)) for key in own]
    chosen = []
    for title, log, pattern in PANELS[:2] + own_panels + PANELS[2:]:
        for name, rows in evaluations.items() if log == "eval" else [("", metrics)]:
            named = f"{title}: {name}" if name and len(evaluations) > 1 else title
            keys = dict.fromkeys(key for row in rows for key in row if re.fullmatch(pattern, key))
            drawn = [
                key for key in keys if key not in NOT_DRAWN and any(row.get(key) for row in rows)
            ]
            if drawn:
                chosen.append((named, rows, drawn))
    return chosen[:MOST_PANELS]


def draw_curves(folder: Path) -> None:
    """Draw curves.png from the logs of a run folder."""
    import matplotlib  # here, because it is slow to import
    from matplotlib.figure import Figure

    panels = choose_panels(read_evaluations(folder), read_rows(folder, "metrics"))
    grid_rows = max(1, math.ceil(len(panels) / COLUMNS))  # if all is 0 there is no panel
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(16, 4 * grid_rows), layout="constrained")
        for i, panel in enumerate(panels, 1):
            draw_panel(figure.add_subplot(grid_rows, COLUMNS, i), *panel)
        figure.savefig(folder / "curves.png")


def draw_panel(axis, title: str, rows: list[dict], keys: list[str]) -> None:
    """Draw metrics against the step, each by at most MOST_POINTS points."""
    legend_rows = math.ceil(len(keys) / 5) if keys != [title] else 0
    axis.set_title(title, loc="left", pad=8 + 18 * legend_rows)  # the legend goes below the title
    axis.set_xlabel("step")
    axis.locator_params(axis="x", integer=True)
    scale = 100 if "(%)" in title else 1
    for key in keys:
        points = [(row["step"], scale * row[key]) for row in rows if key in row]
        shown = points[:: math.ceil(len(points) / MOST_POINTS)]
        axis.plot(*zip(*shown, strict=True), ".-", label=key)
    if legend_rows:
        place = dict(loc="lower left", bbox_to_anchor=(-0.02, 1), borderaxespad=0.2)
        narrow = dict(fontsize="x-small", ncols=5, handlelength=0.6, columnspacing=0.9)
        axis.legend(**place, **narrow)
