"""What claims.py writes from the lines of the runs: the tables of CLAIMS.md, and its two figures.

The page is written by hand but for what stands between `<!-- name -->` and `<!-- end -->`.
"""

from collections import Counter
from pathlib import Path

import project
from project import markdown_table, read_results

import claims_runs as made
import matplotlib
import numpy as np
from claims_rows import CLAIMS, EQUAL, GROWTH, MIDDLE, OF_HEADLINES, ROWS, RUNS, Row, runs_of
from claims_rule import WORDS, Verdict, interval, judge_all, matched
from claims_runs import PLAN, rates_to_try
from compare import STYLES
from matplotlib.figure import Figure

COLORS = dict(zip(WORDS, ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#777777"), strict=True))
BASES = [*RUNS]
# Runs of an earlier study from the middle policy, all at one rate, with 256 problems x 32 samples
# at the end alone.
EARLIER = made.RESULTS / "claims_earlier.jsonl.gz"
EARLIER_LOOKS = 4, 8, 16


def sections(lines: dict, found: dict, verdicts: list[Verdict]) -> dict[str, list[str]]:
    """The lines of each section of the page."""
    return {paper: verdict_table(found, verdicts, paper) for paper in CLAIMS} | {
        "count": count_lines(lines, verdicts),
        "rates": rates_table(lines),
        "dependence": dependence_table(lines),
        "path": path_table(found),
    }


def count_lines(lines: dict, verdicts: list[Verdict]) -> list[str]:
    """How many runs and verdicts there are, of each kind and from each base."""
    sentences = []
    for base in BASES:
        runs = sum(line["base"] == base for line in lines.values())
        count = Counter(each.word for each in verdicts if each.base == base)
        kinds = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
        sentences.append(f"- {base}, {runs} runs: of {count.total()} verdicts {kinds}.")
    return sentences


def verdict_table(found: dict, verdicts: list[Verdict], paper: str) -> list[str]:
    """A line a row, with a cell for each base; that of the middle one has equal pass@1, too."""
    of_paper = [each for each in verdicts if each.row.paper == paper]
    bases = [base for base in BASES if any(each.base == base for each in of_paper)]
    table = []
    for row in (row for row in ROWS if row.paper == paper):
        cells = {each.base: verdict_cell(each) for each in of_paper if each.row == row}
        if MIDDLE in cells and len(at_equal := matched(found, MIDDLE, row)):
            cells[MIDDLE] += f"; equal {short_interval(*interval(at_equal)[1:])}"
        effect = f"{row.metric}, {row.effect:g}" + ("" if row.printed else "*")
        text = f"{row.section}: {row.text}"
        table.append([text, effect, *(cells.get(base, "") for base in bases)])
    return markdown_table(["section and claim", "difference in, effect", *bases], table)


def verdict_cell(each: Verdict) -> str:
    """The verdict and what it rests on."""
    evidence = each.evidence
    seeds = "" if evidence.seeds == each.looks[-1] else f" ({evidence.seeds})"
    mark = "†" if each.looks == EARLIER_LOOKS else ""
    return f"**{each.word}**{mark} {short_interval(evidence.low, evidence.high)}{seeds}"


def short_interval(low: float, high: float) -> str:
    """An interval, as narrow as a table needs it."""
    return f"[{low:+.2g},{high:+.2g}]"


def rates_table(lines: dict) -> list[str]:
    """A line a run: the pass@1 at each rate that it was tried at, and in bold the choice."""
    tried = {name: rates_to_try(lines, PLAN, name)[1] for name in OF_HEADLINES}
    rates = [rate for rate in made.RATES if any(rate in found for found in tried.values())]
    table = []
    for name, found in tried.items():
        cells = {rate: f"{value:.3f}" for rate, value in found.items()}
        best = max(found, key=found.get)
        cells[best] = f"**{cells[best]}**"
        table.append([name, *(cells.get(rate, "") for rate in rates)])
    return markdown_table(["run", *rates], table)


def dependence_table(lines: dict) -> list[str]:
    """The headlines in pass@1 by the tries alone: each at its best rate, and all at one rate."""
    table = []
    one_rate = "3e-5", "1e-4", "3e-4"
    for row in ROWS:
        if row.headline and row.metric == "pass@1" and {row.above, row.below} <= {*OF_HEADLINES}:
            above, below = (rates_to_try(lines, PLAN, side)[1] for side in (row.above, row.below))
            cells = [max(above.values()) - max(below.values())]
            cells += [above[rate] - below[rate] for rate in one_rate]
            table.append([f"{row.paper}: {row.text}", *(f"{cell:+.3f}" for cell in cells)])
    return markdown_table(["claim", "each at its best", *one_rate], table)


def path_table(found: dict) -> list[str]:
    """A line a run: its pass@1 at the end, and its pass@16 less GRPO's at equal pass@1."""
    table = []
    for name in OF_HEADLINES:
        cells = []
        for base in BASES:
            runs = found[base, name] if name in RUNS[base] else []
            ends, apart = [run["numbers"]["pass@1"] for run in runs], ""
            if runs and name != "GRPO":
                mean, low, high = interval(matched(found, base, Row("pass@16", name, "GRPO")))
                apart = f"{mean:+.3f} {short_interval(low, high)}"
            cells += [f"{np.mean(ends):.3f}" if runs else "", apart]
        table.append([name, *cells])
    head = [text for base in BASES for text in (f"{base}: pass@1", "pass@16 less GRPO's")]
    return markdown_table(["run", *head], table)


def draw_headlines(verdicts: list[Verdict]) -> Figure:
    """The headlines' differences and their intervals, in units of the effect; a panel a base."""
    rows = list(dict.fromkeys(each.row for each in verdicts if each.row.headline))[::-1]
    figure = Figure(figsize=(10 + 7 * len(BASES), 0.8 * len(rows) + 2.5), layout="constrained")
    axes = dict(zip(BASES, figure.subplots(1, len(BASES), sharey=True), strict=True))
    for row, base, _, evidence, word in verdicts:
        if row.headline:
            height, color = rows.index(row), COLORS[word]
            ends = np.array([evidence.low, evidence.high]) / row.effect
            axes[base].plot(ends, [height, height], color=color, linewidth=6)
            axes[base].plot(evidence.mean / row.effect, height, "o", color=color, markersize=14)
    for base, axis in axes.items():
        axis.axvline(0, color="black")
        axis.axvline(1, color="black", linestyle="--")
        axis.set(title=base, xlabel="difference / claimed effect", xlim=(-6, 6))
    labels = [f"{row.paper}: {row.text.partition(' (')[0]}" for row in rows]
    axes[MIDDLE].set_yticks(range(len(rows)), labels)
    for word, color in COLORS.items():
        axes[MIDDLE].plot([], [], color=color, linewidth=6, label=word)
    figure.legend(loc="outside upper center", ncols=len(WORDS))
    return figure


def draw_plane(found: dict) -> Figure:
    """Held-out pass@16 against pass@1, a line a run of the headlines and a panel a base.

    A line is the mean over the seeds, evaluation by evaluation, in a band of its standard error.
    """
    figure = Figure(figsize=(14 * len(BASES), 13), layout="constrained")
    for axis, base in zip(figure.subplots(1, len(BASES)), BASES, strict=True):
        for name, (color, line) in zip(OF_HEADLINES, STYLES, strict=False):
            if name not in RUNS[base]:
                continue
            x, y = (
                np.array([[row[key] for row in run["evaluations"]] for run in found[base, name]])
                for key in ("pass@1", "pass@16")
            )  # [seeds, evaluations]
            half = y.std(0, ddof=1) / len(y) ** 0.5
            x, y = x.mean(0), y.mean(0)
            axis.plot(x, y, line, color=color, linewidth=3, label=name)
            axis.plot(x[-1], y[-1], "o", color=color, markersize=12)
            axis.fill_between(x, y - half, y + half, color=color, alpha=0.06)
        axis.set(title=base, xlabel="held-out pass@1", ylabel="pass@16")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    return figure


def earlier_verdicts(called: dict) -> list[Verdict]:
    """What the runs of the earlier study say, by the same rule.

    These are the rows whose runs had the rate there that has been chosen since, or that have not
    been tuned yet.
    """
    names, kept = {}, set()
    for name, command in RUNS[MIDDLE].items():
        rate = "none" if name == GROWTH else "3.3e-5" if EQUAL in command else "1e-4"
        names[MIDDLE, name] = f"{name} at {rate}"
        same = "3e-5" if rate == "3.3e-5" else rate  # is taken for the same
        if name == GROWTH or called[MIDDLE, name] in (f"{name} at {same}", f"{name} at open"):
            kept.add(name)
    found = made.by_seed(read_results(EARLIER), names)
    verdicts = judge_all(found, [MIDDLE], EARLIER_LOOKS)
    return [each for each in verdicts if {*runs_of(each.row, MIDDLE)} <= kept]


def write_report(out: Path) -> None:
    """CLAIMS.md and its figures, from the lines of all runs."""
    lines, called = {}, {}
    for plan in (PLAN, made.MODEL_PLAN):
        of_plan = read_results(plan.results)
        lines |= of_plan
        called |= made.names_of_lines(of_plan, plan)
    found = made.by_seed(lines, called)
    best = {}  # of a row and base the verdict that rests on the most seeds
    for each in judge_all(found, BASES) + earlier_verdicts(called):
        other = best.get((each.row, each.base))
        if each.evidence and (not other or each.evidence.seeds > other.evidence.seeds):
            best[each.row, each.base] = each
    verdicts = [*best.values()]
    figures = out / "figures"
    figures.mkdir(exist_ok=True)
    project.fill_in(out / "CLAIMS.md", sections(lines, found, verdicts))
    with matplotlib.rc_context({"font.size": 22}):
        draw_headlines(verdicts).savefig(figures / "claims.png", dpi=50)
        draw_plane(found).savefig(figures / "claims_plane.png", dpi=50)
    print(f"wrote {out / 'CLAIMS.md'}, and claims.png and claims_plane.png in {figures}")
