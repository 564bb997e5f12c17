"""What claims.py writes: CLAIMS.md and its figures, from the lines of the runs alone."""

import statistics
from collections import Counter
from pathlib import Path

from rlvr.errors import UserError

import matplotlib
import numpy as np
from claims_judge import Verdict, differences, judge_all
from claims_rows import BASES, FAR, GROWTH, LANGUAGE_MODEL, PAPERS, RUNS, START, Row, runs_of
from claims_rule import LOOKS, interval
from claims_rule import __doc__ as RULE
from claims_runs import FULL, LONG, SHOWN, Job
from language_model_results import SEEDS as MODEL_SEEDS
from matplotlib.figure import Figure
from tables import difference_cell, markdown_table, mean_cell

COLORS = {"holds": "#009E73", "does not": "#D55E00", "unclear": "#777777"}
GRPO_LINE = "two-stage GRPO", LONG
IN_THE_FIGURE = {START, *GRPO_LINE}
IN_THE_FIGURE |= {"A-GRAE", "AsymGRPO", "FADE", "CW-GRPO", "two-stage GRPO-N", "pass@4"}
IN_THE_FIGURE |= {"EntDecrease", "EntIncrease", "delta 0.5"}
LABELS = {  # how far a name stands from its point; on the left where the first is below 0
    "A-GRAE": (-12, -44),
    "CW-GRPO": (-12, -8),
    "EntIncrease": (12, -12),
    "FADE": (12, -22),
    "delta 0.5": (12, 8),
    "two-stage GRPO-N": (-12, -8),
    LONG: (-12, -8),
}
WORDS = {"holds": "holds", "does not": "does not hold", "unclear": "is unclear"}
METRIC_WORDS = {"reach": "steps to that peak", "swing": "the range of the entropy, in nats"}
PATH = "pass@16 above the path"
# Differences that no claim is about: above, below (or 0), metric, and what a paper says of it.
BESIDE = (
    ("two-stage GRPO-N", "two-stage GRPO", "pass@1", "two-stage dynamics: on a par"),
    ("two-stage GRPO-N", "two-stage GRPO", "greedy", "the same"),
    ("two-stage GRPO-N", "two-stage GRPO", "all_wrong", ""),
    ("positive-dominant", "GRPO", "pass@16", "A-GRAE: below GRPO"),
    ("A-GRAE", "GRPO", "entropy", "A-GRAE: above GRPO"),
    ("GRPO, long", "two-stage GRPO", "pass@1", "two-stage dynamics: the first stage goes on"),
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


def report_text(lines: dict[Job, dict], of_the_model: list[Verdict]) -> str:
    """The text of CLAIMS.md; `of_the_model` are the language model's verdicts."""
    verdicts = judge_all(lines, BASES)
    text = [
        "# Which claims hold here?",
        "",
        *(f"{i}. {sentence}" for i, sentence in enumerate(sentences(verdicts), 1)),
        "",
        "![the headlines' differences, in units of the claimed effect](figures/claims.png)",
        "",
        "`python studies/claims.py --report` has written this page from",
        f"`studies/results/claims.jsonl.gz`, which has {len(lines)} runs. Half of them took under",
        f"{statistics.median(line['seconds'] for line in lines.values()):.0f} s on one core. "
        + count_text(verdicts),
        "[docs/papers.md](../docs/papers.md#which-claims-hold-and-what-differs-where-one-fails)",
        "says how to read it, and what it does not settle.",
        "",
        "## The rule",
        "",
        *RULE.strip().splitlines()[2:],
        "",
        f"Each run has {FULL.steps} steps, and `{LONG}` {FULL.long} ({FULL.flags}).",
        f"It is evaluated on {FULL.held_out} held-out problems.",
        "The starting policies are those of `studies/make_bases.py`: "
        + ", ".join(f"{base} (`{flags}`)" for base, flags in BASES.items())
        + ".",
        "`studies/claims_rows.py` has the command of each run by its name.",
        "A cell has the verdict, the mean difference with its 95% interval, the seeds, and the",
        "power. Above 0 a difference speaks for the claim. Where a claim is a number, it is the",
        "distance to it: 0.02 less the error of the fit, and the share less 0.12. The",
        f"power is the chance that the cap's look alone, after {LOOKS[-1]} seeds, or {MODEL_SEEDS}",
        f"for {LANGUAGE_MODEL}, decides for an",
        "effect of that size, at the spread that was measured, if all other rows of the paper stay",
        "undecided. It is a lower bound. The interval is that of these seeds alone. The verdict",
        "pays for the looks and for the other rows, too, so that a row can be unclear though its",
        "interval leaves out 0. A claim that holds may hold with less than the paper's effect. A",
        "small difference can turn from does not into holds with more seeds.",
        f"An effect with a star is ours. {LANGUAGE_MODEL} is a family of its own, with one look",
        f"after {MODEL_SEEDS} seeds. Its runs have 40 steps of 8 x 8, on sums in words;",
        "[docs/language-model.md](../docs/language-model.md) has them.",
    ]
    for paper in PAPERS:
        of_paper = [found for found in verdicts + of_the_model if found.row.paper == paper]
        far = f"How far the tiny policies are from the paper: {FAR[paper]}."
        text += ["", f"## {paper}", "", far, ""]
        text += verdict_table(of_paper)
    text += ["", "## Differences beside the claims", "", *table_beside(lines)]
    for base in BASES:
        text += ["", f"## The runs from the {base} base", "", "Mean ± half the 95% interval.", ""]
        text += runs_table(lines, base)
    text += [
        "",
        f"*{PATH}*: pass@16 of a run less that of GRPO at the same pass@1, seed by seed.",
        "GRPO's path is the straight line between its evaluations: before training, after",
        f"{FULL.steps} steps, and from the middle policy after {FULL.long} steps.",
        "",
        "![pass@16 against pass@1 of all runs](figures/claims_plane.png)",
    ]
    return "\n".join(text) + "\n"


def sentences(verdicts: list[Verdict]) -> list[str]:
    """Ten sentences to quote: the first base's verdicts on the two headlines of each paper."""
    first_base = next(iter(BASES))
    found = []
    for verdict in verdicts:
        row, evidence = verdict.row, verdict.evidence
        if not row.headline or verdict.base != first_base:
            continue
        size = f"the paper has {row.effect:g}" if row.printed else f"{row.effect:g} would matter"
        found.append(
            f"{row.paper} says: {row.text}. From the {first_base} policy this "
            f"**{WORDS[verdict.verdict]}**: over {evidence.seeds} seeds {row.above} less "
            f"{row.below} is {evidence.mean:+.3f} [{evidence.low:+.3f}, {evidence.high:+.3f}] in "
            f"{METRIC_WORDS.get(row.metric, row.metric)}, and {size}."
        )
    return found


def count_text(verdicts: list[Verdict]) -> str:
    """How many verdicts there are of each kind."""
    count = Counter(found.verdict for found in verdicts)
    kinds = ", ".join(f'{count[kind]} are "{kind}"' for kind in COLORS)
    return f"Of {len(verdicts)} verdicts {kinds}."


def verdict_table(verdicts: list[Verdict]) -> list[str]:
    """A line a row, with a cell for each base."""
    cells = {}  # of each row, by base
    for found in verdicts:
        cells.setdefault(found.row, {})[found.base] = verdict_cell(found)
    head = ["section", "claim", "difference in", "effect", *BASES, LANGUAGE_MODEL]
    lines = []
    for row, by_base in cells.items():
        effect = f"{row.effect:g}" + ("" if row.printed else "*")
        text = row.text + (f" ({row.far})" if row.far else "")
        places = [by_base.get(base, "") for base in (*BASES, LANGUAGE_MODEL)]
        lines.append([row.section, text, row.metric, effect, *places])
    return markdown_table(head, lines)


def verdict_cell(found: Verdict) -> str:
    """The verdict and what it rests on; nothing before the first look."""
    if found.evidence is None:
        return ""
    mean, low, high = (f"{number:+.3g}" for number in found.evidence[1:4])
    return (
        f"**{found.verdict}** {mean} [{low}, {high}], {found.evidence.seeds} seeds, "
        f"power {found.power:.2f}"
    )


def table_beside(lines: dict[Job, dict]) -> list[str]:
    """A line for each of BESIDE and each base, over the seeds that both sides have."""
    table = []
    for above, below, metric, note in BESIDE:
        row = Row("", "", "", metric, above, below, 1.0, True, "", False)
        for base in BASES:
            if {*runs_of(row)} <= {*RUNS[base]}:
                found = differences(lines, base, row)
                name = f"{above} less {below}" if below else above
                cells = [name, metric, base, difference_cell(found)]
                table.append([*cells, str(len(found)), note])
    return markdown_table(
        ["difference", "in", "base", "mean and interval", "seeds", "the paper"], table
    )


def numbers_of(lines: dict[Job, dict], base: str, name: str) -> list[dict]:
    """The numbers of a run, seed by seed, as far as no seed is missing."""
    found = []
    while (job := Job(base, name, len(found))) in lines:
        found.append(lines[job]["numbers"])
    return found


def runs_table(lines: dict[Job, dict], base: str) -> list[str]:
    """A line a run: its numbers over its seeds."""
    names = dict.fromkeys(job.name for job in sorted(lines) if job.base == base)
    table = []
    for name in names:
        seeds = numbers_of(lines, base, name)
        columns = [[numbers[key] for numbers in seeds if key in numbers] for key in SHOWN]
        columns.append(above_path(lines, base, name))
        table.append([name, str(len(seeds)), *map(mean_cell, columns)])
    return markdown_table(["run", "seeds", *SHOWN, PATH], table)


def above_path(lines: dict[Job, dict], base: str, name: str) -> list[float]:
    """Pass@16 of a run less that of GRPO's path at its pass@1, for the seeds that all of them have.

    Before the path's first point and behind its last it is level.
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
        axis.plot([], [], color=color, linewidth=5, label=WORDS[kind])
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def draw_plane(lines: dict[Job, dict]) -> Figure:
    """Held-out pass@1 and pass@16 of all runs, a panel a base; a line leads from the start to GRPO.

    What lies above GRPO's line has more pass@16 than GRPO had when its pass@1 was as high. A bar is
    the 95% interval of the distance to the line.
    """
    figure = Figure(figsize=(11 * len(BASES), 10), layout="constrained")
    for axis, base in zip(figure.subplots(1, len(BASES)), BASES, strict=True):
        points = {name: point_of(lines, base, name) for name in RUNS[base] if name != GROWTH}
        line = [points[name] for name in (START, *GRPO_LINE) if name in points]
        axis.plot(*zip(*line, strict=True), color="black", linewidth=2, zorder=1)
        for name, point in points.items():
            shown = name in IN_THE_FIGURE
            color = COLORS["does not"] if shown else "#BBBBBB"
            axis.scatter(*point, s=150 if shown else 50, color=color, zorder=3 if shown else 2)
            distances = above_path(lines, base, name)
            if shown and distances:
                mean, low, _ = interval(distances)
                axis.errorbar(*point, mean - low, color=color, linewidth=2, zorder=3)
            if shown:
                place = LABELS.get(name, (12, 4))
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


def point_of(lines: dict[Job, dict], base: str, name: str) -> tuple[float, float]:
    """Mean pass@1 and pass@16 of a run, over its seeds."""
    seeds = numbers_of(lines, base, name)
    first, second = (np.mean([numbers[key] for numbers in seeds]) for key in ("pass@1", "pass@16"))
    return float(first), float(second)


def write_report(lines: dict[Job, dict], of_the_model: list[Verdict], out: Path) -> None:
    """CLAIMS.md and its two figures. UserError while a row has had no look."""
    verdicts = judge_all(lines, BASES)
    missing = sum(not found.evidence for found in verdicts)
    if missing:
        raise UserError(
            f"{missing} of {len(verdicts)} verdicts have less than {LOOKS[0]} seeds yet; "
            "CLAIMS.md stays as it is"
        )
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    (out / "CLAIMS.md").write_text(report_text(lines, of_the_model))
    with matplotlib.rc_context({"font.size": 20}):
        draw_headlines(verdicts).savefig(figures / "claims.png", dpi=60)
        draw_plane(lines).savefig(figures / "claims_plane.png", dpi=60)
