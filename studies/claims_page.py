"""What claims.py writes from the lines of the runs: the tables of CLAIMS.md, and its two figures.

The page is written by hand but for what stands between `<!-- name -->` and `<!-- end -->`.
"""

import statistics
from collections import Counter
from pathlib import Path

from rlvr.errors import UserError

import matplotlib
import numpy as np
from claims_judge import Verdict, differences
from claims_rows import FAR, GROWTH, LANGUAGE_MODEL, LONG, PAPERS, RUNS, START, TINY, Row, runs_of
from claims_rule import __doc__ as RULE
from claims_rule import interval
from matplotlib.figure import Figure
from tables import difference_cell, fill_in, markdown_table

COLORS = {"holds": "#009E73", "does not": "#D55E00", "unclear": "#777777"}
SHOWN = "pass@1", "pass@16", "entropy"  # of each run
GRPO_LINE = "two-stage GRPO", LONG
LABELS = {  # how far a name stands from its point; on the left where the first is below 0
    START: (12, 4),
    "two-stage GRPO": (12, 4),
    LONG: (-12, -8),
    "A-GRAE": (-12, -44),
    "AsymGRPO": (12, 4),
    "CW-GRPO": (-12, -8),
    "EntDecrease": (12, 4),
    "EntIncrease": (12, -12),
    "FADE": (12, -22),
    "delta 0.5": (12, 8),
    "pass@4": (12, 4),
    "two-stage GRPO-N": (-12, -8),
}
# Differences that no claim is about: above, below (or 0), metric, and what a paper says of it.
BESIDE = (
    ("two-stage GRPO-N", "two-stage GRPO", "pass@1", "two-stage dynamics: on a par"),
    ("two-stage GRPO-N", "two-stage GRPO", "greedy", "the same"),
    ("two-stage GRPO-N", "two-stage GRPO", "all_wrong", ""),
    ("positive-dominant", "GRPO", "pass@16", "A-GRAE: below GRPO"),
    ("A-GRAE", "GRPO", "entropy", "A-GRAE: above GRPO"),
    (LONG, "two-stage GRPO", "pass@1", "two-stage dynamics: the first stage goes on"),
    ("EntDecrease", "GRPO, tokens", "pass@1", "AsymGRPO: below GRPO"),
    ("CW-GRPO", "GRPO", "pass@16", ""),
    ("CW-GRPO", "GRPO", "early", ""),
    ("delta 0.5", "mean", "late", "FADE 4.2: early gains go, and GRPO catches up"),
    ("delta 2", "mean", "pass@1", ""),
    ("delta 2, untied", "mean, untied", "r1", "FADE 4.2: both leave rank 1"),
    ("pass@4", "mean", "pass@16", "FADE 4.3: it keeps the slope b"),
    ("pass@4", START, "slope", "the same"),
    ("FADE", "GRPO", "pass@1", "FADE: above GRPO"),
    (GROWTH, 0, "easy gap", "AsymGRPO 2.2: what kappa adds up"),
    (GROWTH, 0, "hard gap", "the same"),
)


def sections(lines: dict, tiny: list[Verdict], of_the_model: list[Verdict], plan) -> dict:
    """The lines of each section of the page."""
    found = {
        "count": [count_text(lines, tiny)],
        "rule": RULE.strip().splitlines()[2:],
        "settings": [
            f"Each run has {plan.steps} steps, and `{LONG}` {plan.long} (`{plan.flags}`).",
            f"It is evaluated on {plan.held_out} held-out problems.",
        ],
    }
    for paper in PAPERS:
        of_paper = [each for each in tiny + of_the_model if each.row.paper == paper]
        found[paper] = [f"Here: {FAR[paper]}.", "", *verdict_table(of_paper)]
    return found


def count_text(lines: dict, verdicts: list[Verdict]) -> str:
    """How many runs and verdicts there are, of each kind."""
    seconds = [line["seconds"] for line in lines.values() if line["base"] in TINY]
    count = Counter(each.verdict for each in verdicts)
    kinds = ", ".join(f'{count[kind]} are "{kind}"' for kind in COLORS)
    return (
        f"{len(seconds)} runs of the tiny policies, half of them under "
        f"{statistics.median(seconds):.0f} s on one core. Of {len(verdicts)} verdicts {kinds}."
    )


def verdict_table(verdicts: list[Verdict]) -> list[str]:
    """A line a row, with a cell for each base."""
    cells = {}  # of each row, by base
    for each in verdicts:
        cells.setdefault(each.row, {})[each.base] = verdict_cell(each)
    bases = [*TINY, LANGUAGE_MODEL]
    table = []
    for row, by_base in cells.items():
        effect = f"{row.metric}, {row.effect:g}" + ("" if row.printed else "*")
        text = f"{row.section}: {row.text}" + (f" ({row.far})" if row.far else "")
        table.append([text, effect, *(by_base.get(base, "") for base in bases)])
    return markdown_table(["section and claim", "difference in, effect", *bases], table)


def verdict_cell(found: Verdict) -> str:
    """The verdict and what it rests on; nothing before the first look."""
    if found.evidence is None:
        return ""
    evidence = found.evidence
    return f"**{found.verdict}** [{evidence.low:+.3g}, {evidence.high:+.3g}] ({evidence.seeds})"


def beside_table(lines: dict) -> list[str]:
    """A line for each of BESIDE, over the seeds that both sides have."""
    table = []
    for above, below, metric, note in BESIDE:
        row = Row("", "", "", metric, above, below, 1.0, True, "", False)
        cells = [""] * len(TINY)
        for i, base in enumerate(TINY):
            if {*runs_of(row)} <= {*RUNS[base]}:
                found = differences(lines, base, row)
                cells[i] = f"{difference_cell(found)} ({len(found)})"
        table.append([f"{above} less {below}" if below else above, metric, *cells, note])
    return markdown_table(["difference", "in", *TINY, "the paper"], table)


def numbers_of(lines: dict, base: str, name: str) -> list[dict]:
    """The numbers of a run, seed by seed, as far as no seed is missing."""
    found = []
    while (base, name, len(found)) in lines:
        found.append(lines[base, name, len(found)]["numbers"])
    return found


def runs_table(lines: dict) -> list[str]:
    """A line a run: the means of SHOWN over its seeds, from each base."""
    table = []
    for name in dict.fromkeys(name for runs in RUNS.values() for name in runs):
        cells = []
        for base in (*TINY, LANGUAGE_MODEL):
            seeds = [each for each in numbers_of(lines, base, name) if SHOWN[0] in each]
            means = [f"{np.mean([each[key] for each in seeds]):.3f}" for key in SHOWN if seeds]
            cells.append(f"{'/'.join(means)} ({len(seeds)})" if seeds else "")
        if any(cells):
            table.append([name, *cells])
    return markdown_table(["run", *TINY, LANGUAGE_MODEL], table)


def above_path(lines: dict, base: str, name: str) -> list[float]:
    """Pass@16 of a run less that of GRPO's path at its pass@1, for the seeds that all of them have.

    The path is the straight line between GRPO's evaluations. Before its first point and behind its
    last it is level.
    """
    path = [START, *(run for run in GRPO_LINE if run in RUNS[base])]
    if name in (*path, GROWTH):
        return []
    found = []
    all_runs = [numbers_of(lines, base, run) for run in (name, *path)]
    for own, *on_path in zip(*all_runs, strict=False):  # the seeds that all of them have
        points = sorted((numbers["pass@1"], numbers["pass@16"]) for numbers in on_path)
        found.append(own["pass@16"] - np.interp(own["pass@1"], *zip(*points, strict=True)))
    return found


def draw_headlines(verdicts: list[Verdict]) -> Figure:
    """The headlines' differences and their intervals, in units of the effect."""
    shown = [found for found in verdicts if found.row.headline]
    figure = Figure(figsize=(18, 0.7 * len(shown) + 2), layout="constrained")
    axis = figure.subplots()
    for height, found in enumerate(reversed(shown)):
        evidence, effect = found.evidence, found.row.effect
        color = COLORS[found.verdict]
        ends = np.array([evidence.low, evidence.high]) / effect
        axis.plot(ends, [height, height], color=color, linewidth=5, solid_capstyle="butt")
        axis.plot(evidence.mean / effect, height, "o", color=color, markersize=14)
    labels = [f"{found.row.paper}: {found.row.text} ({found.base})" for found in reversed(shown)]
    axis.set_yticks(range(len(shown)), labels)
    axis.axvline(0, color="black")
    axis.axvline(1, color="black", linestyle="--")
    axis.set_xlabel("difference, in units of the claimed effect (dashed line)")
    for kind, color in COLORS.items():
        axis.plot([], [], color=color, linewidth=5, label=kind)
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def draw_plane(lines: dict) -> Figure:
    """Held-out pass@1 and pass@16 of all runs, a panel a base; a line leads from the start to GRPO.

    What lies above GRPO's line has more pass@16 than GRPO had when its pass@1 was as high. A bar is
    the 95% interval of the distance to the line.
    """
    figure = Figure(figsize=(11 * len(TINY), 10), layout="constrained")
    for axis, base in zip(figure.subplots(1, len(TINY)), TINY, strict=True):
        points = {}
        for name in [run for run in RUNS[base] if run != GROWTH]:
            seeds = numbers_of(lines, base, name)
            points[name] = [np.mean([each[key] for each in seeds]) for key in ("pass@1", "pass@16")]
        line = [points[name] for name in (START, *GRPO_LINE) if name in points]
        axis.plot(*zip(*line, strict=True), color="black", linewidth=2, zorder=1)
        for name, point in points.items():
            place = LABELS.get(name)
            if place is None:
                axis.scatter(*point, s=50, color="#BBBBBB", zorder=2)
                continue
            color = COLORS["does not"]
            axis.scatter(*point, s=150, color=color, zorder=3)
            if distances := above_path(lines, base, name):
                mean, low, _ = interval(distances)
                axis.errorbar(*point, mean - low, color=color, linewidth=2, zorder=3)
            axis.annotate(
                name,
                point,
                place,
                textcoords="offset points",
                ha="right" if place[0] < 0 else "left",
                bbox={"boxstyle": "round,pad=0.1", "color": "white", "alpha": 0.7},
                arrowprops={"arrowstyle": "-", "color": "#888888"},
                zorder=2.5,
            )
        axis.set(title=f"from the {base} policy", xlabel="held-out pass@1", ylabel="pass@16")
        axis.margins(0.2, 0.12)
    return figure


def write_report(lines: dict, tiny: list[Verdict], of_the_model, plan, out: Path) -> None:
    """CLAIMS.md and its figures; prints the other tables. UserError while a row has had no look."""
    missing = sum(not found.evidence for found in tiny)
    if missing:
        raise UserError(
            f"{missing} of {len(tiny)} verdicts have less than {plan.looks[0]} seeds yet; "
            "CLAIMS.md stays as it is"
        )
    page, figures = out / "CLAIMS.md", out / "figures"
    figures.mkdir(exist_ok=True)
    page.write_text(fill_in(page.read_text(), sections(lines, tiny, of_the_model, plan)))
    with matplotlib.rc_context({"font.size": 20}):
        draw_headlines(tiny).savefig(figures / "claims.png", dpi=60)
        draw_plane(lines).savefig(figures / "claims_plane.png", dpi=60)
    print("Differences that no claim is about:\n", *beside_table(lines), sep="\n")
    print(f"\nMeans of {'/'.join(SHOWN)} (seeds):\n", *runs_table(lines), sep="\n")
