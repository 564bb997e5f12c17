"""What claims.py writes from the lines of the runs: the tables of CLAIMS.md, and its two figures.

The page is written by hand but for what stands between `<!-- name -->` and `<!-- end -->`.
"""

from collections import Counter
from pathlib import Path

import project

import matplotlib
import numpy as np
from claims_judge import Verdict, judge_all, lines_of, matched
from claims_rows import (
    EQUAL,
    FAR,
    GROWTH,
    LANGUAGE_MODEL,
    OF_HEADLINES,
    PAPERS,
    ROWS,
    RUNS,
    TINY,
    plain_row,
    rows_from,
    runs_of,
)
from claims_rule import LOOKS, WORDS, interval
from claims_rule import __doc__ as RULE
from claims_runs import MODEL_PLAN, PLAN, RATES, at, names_of_lines, rates_to_try
from claims_runs import __doc__ as CHOICE
from compare import STYLES
from matplotlib.figure import Figure
from run_scripts import read_results
from tables import fill_in, markdown_table

COLORS = dict(zip(WORDS, ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#777777"), strict=True))
BASES = (*TINY, LANGUAGE_MODEL)
# Runs of an earlier study, all at one rate, with 256 problems x 32 samples at the end alone.
EARLIER = project.STUDIES / "results" / "claims_earlier.jsonl.gz"
EARLIER_RATES, EARLIER_EQUAL_RATES = ("1e-4",), ("3.3e-5", "3e-5")  # taken for the same
EARLIER_LOOKS = 4, 8, 16
GRPO = "GRPO"  # whose path the others are compared with


def sections(lines: dict, verdicts: list[Verdict], called: dict) -> dict:
    """The lines of each section of the page."""
    found = {
        "count": count_lines(lines, verdicts),
        "rule": RULE.strip().splitlines()[2:],
        "choice": CHOICE.strip().splitlines()[2:],
        "rates": rates_table(lines),
        "dependence": dependence_table(lines),
        "path": path_table(lines, called),
    }
    for paper in PAPERS:
        table = verdict_table(lines, verdicts, called, paper)
        found[paper] = [f"Here: {FAR[paper]}.", "", *table]
    return found


def count_lines(lines: dict, verdicts: list[Verdict]) -> list[str]:
    """How many runs and verdicts there are, of each kind and from each base."""
    sentences = []
    for base in BASES:
        runs = sum(line["base"] == base for line in lines.values())
        count = Counter(each.verdict for each in verdicts if each.base == base)
        kinds = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
        if count:
            sentences.append(f"- {base}, {runs} runs: of {count.total()} verdicts {kinds}.")
    return sentences


def verdict_table(lines: dict, verdicts: list[Verdict], called: dict, paper: str) -> list[str]:
    """A line a row, with a cell for each base; that of the middle one has equal pass@1, too."""
    table = []
    for row in (row for row in ROWS if row.paper == paper):
        by_base = {each.base: verdict_cell(each) for each in verdicts if each.row == row}
        effect = f"{row.metric}, {row.effect:g}" + ("" if row.printed else "*")
        text = f"{row.section}: {row.text}" + (f" ({row.far})" if row.far else "")
        at_equal = matched(lines, TINY[0], row, called) if row in rows_from(TINY[0]) else ()
        if len(at_equal) > 1:
            by_base[TINY[0]] += f"; equal {short_interval(*interval(at_equal)[1:])}"
        table.append([text, effect, *(by_base.get(base, "") for base in BASES)])
    head = ["section and claim", "difference in, effect", *BASES]
    return narrow_table(head, table)


def narrow_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table without the columns that are empty."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    return markdown_table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def verdict_cell(found: Verdict) -> str:
    """The verdict and what it rests on."""
    evidence = found.evidence
    usual = EARLIER_LOOKS[-1] if found.earlier else LOOKS[-1]
    seeds = "" if evidence.seeds == usual else f" ({evidence.seeds})"
    mark = "†" if found.earlier else ""
    return f"**{found.verdict}**{mark} {short_interval(evidence.low, evidence.high)}{seeds}"


def short_interval(low: float, high: float) -> str:
    """An interval, as narrow as a table needs it."""
    return f"[{low:+.2g},{high:+.2g}]"


def rates_table(lines: dict) -> list[str]:
    """A line a run: the pass@1 at each rate that it was tried at, and in bold the choice."""
    tried = {}
    for name in OF_HEADLINES:
        missing, found = rates_to_try(lines, PLAN, TINY[0], name)
        if not missing:
            tried[name] = found
    rates = [rate for rate in RATES if any(rate in found for found in tried.values())]
    table = []
    for name, found in tried.items():
        best = max(found, key=found.get)
        cells = {rate: f"{value:.3f}" for rate, value in found.items()}
        cells[best] = f"**{cells[best]}**"
        table.append([name, *(cells.get(rate, "") for rate in rates)])
    return markdown_table(["run", *rates], table)


def dependence_table(lines: dict) -> list[str]:
    """The headlines in pass@1 by the tries alone: each at its best rate, and all at one rate."""
    table = []
    one_rate = "3e-5", "1e-4", "3e-4"
    for row in rows_from(TINY[0]):
        sides = (row.above, row.below)
        if not row.headline or row.metric != "pass@1" or not {*sides} <= {*OF_HEADLINES}:
            continue
        tries = [rates_to_try(lines, PLAN, TINY[0], side) for side in sides]
        if any(missing for missing, _ in tries):
            continue
        (_, above), (_, below) = tries
        cells = [f"{max(above.values()) - max(below.values()):+.3f}"]
        for rate in one_rate:
            both = rate in above and rate in below
            cells.append(f"{above[rate] - below[rate]:+.3f}" if both else "")
        table.append([f"{row.paper}: {row.text}", *cells])
    return markdown_table(["claim", "each at its best", *one_rate], table)


def path_table(lines: dict, called: dict) -> list[str]:
    """A line a run: its pass@1 at the end, and its pass@16 less GRPO's at equal pass@1."""
    table = []
    for name in OF_HEADLINES:
        cells = []
        for base in BASES:
            runs = lines_of(lines, base, called.get((base, name)))
            if len(runs) < 2:
                cells += ["", ""]
                continue
            cells.append(f"{np.mean([run['numbers']['pass@1'] for run in runs]):.3f}")
            values = matched(lines, base, plain_row("pass@16", name, GRPO), called)
            mean, low, high = interval(values)
            apart = f"{mean:+.3f} {short_interval(low, high)}"
            cells.append("" if name == GRPO else apart)
        if any(cells):
            table.append([name, *cells])
    head = [text for base in BASES for text in (f"{base}: pass@1", "pass@16 less GRPO's")]
    return narrow_table(["run", *head], table)


def draw_headlines(verdicts: list[Verdict]) -> Figure:
    """The headlines' differences and their intervals, in units of the effect; a panel a base."""
    rows = list(dict.fromkeys(found.row for found in verdicts if found.row.headline))[::-1]
    bases = [base for base in BASES if any(found.base == base for found in verdicts)]
    figure = Figure(figsize=(10 + 7 * len(bases), 0.8 * len(rows) + 2.5), layout="constrained")
    axes = figure.subplots(1, len(bases), sharey=True, squeeze=False)[0]
    for axis, base in zip(axes, bases, strict=True):
        for found in verdicts:
            if found.base == base and found.row.headline:
                height, evidence = rows.index(found.row), found.evidence
                color = COLORS[found.verdict]
                ends = np.array([evidence.low, evidence.high]) / found.row.effect
                axis.plot(ends, [height, height], color=color, linewidth=6)
                axis.plot(evidence.mean / found.row.effect, height, "o", color=color, markersize=14)
        axis.axvline(0, color="black")
        axis.axvline(1, color="black", linestyle="--")
        axis.set(title=base, xlabel="difference / claimed effect", xlim=(-6, 6))
    axes[0].set_yticks(range(len(rows)), [f"{row.paper}: {row.text}" for row in rows])
    for word, color in COLORS.items():
        axes[0].plot([], [], color=color, linewidth=6, label=word)
    figure.legend(loc="outside upper center", ncols=len(WORDS))
    return figure


def draw_plane(lines: dict, called: dict) -> Figure:
    """Held-out pass@16 against pass@1, a line a run of the headlines and a panel a base.

    A line is the mean over the seeds, evaluation by evaluation, in a band of its standard error.
    """
    bases = [base for base in BASES if any(line["base"] == base for line in lines.values())]
    figure = Figure(figsize=(14 * len(bases), 13), layout="constrained")
    for axis, base in zip(figure.subplots(1, len(bases), squeeze=False)[0], bases, strict=True):
        for name, (color, line) in zip(OF_HEADLINES, STYLES, strict=False):
            runs = lines_of(lines, base, called.get((base, name)))
            if len(runs) < 2:
                continue
            x, y = (
                np.array([[row[key] for row in run["evaluations"]] for run in runs])
                for key in ("pass@1", "pass@16")
            )  # [seeds, evaluations]
            half = y.std(0, ddof=1) / len(y) ** 0.5
            axis.plot(x.mean(0), y.mean(0), line, color=color, linewidth=3, label=name)
            axis.plot(x.mean(0)[-1], y.mean(0)[-1], "o", color=color, markersize=12)
            axis.fill_between(
                x.mean(0), y.mean(0) - half, y.mean(0) + half, color=color, alpha=0.06
            )
        axis.set(title=base, xlabel="held-out pass@1", ylabel="pass@16")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    return figure


def earlier_verdicts(called: dict) -> list[Verdict]:
    """What the runs of the earlier study say, by the same rule.

    From the middle base these are the rows whose runs had the rate there that has been chosen
    since, or that have not been tuned yet.
    """
    lines = read_results(EARLIER)
    names, chosen = {}, set()
    for base in ("middle", "weak"):
        for name in RUNS[base]:
            rates = EARLIER_EQUAL_RATES if EQUAL in RUNS["middle"][name] else EARLIER_RATES
            names[base, name] = at(name, "none" if name == GROWTH else rates[0])
            if called["middle", name] in (at(name, rate) for rate in (*rates, "none", "open")):
                chosen.add(name)
    found = judge_all(lines, ("middle", "weak"), names, EARLIER_LOOKS)
    return [
        each._replace(earlier=True)
        for each in found
        if each.evidence and (each.base == "weak" or {*runs_of(each.row, each.base)} <= chosen)
    ]


def with_most_seeds(verdicts: list[Verdict]) -> list[Verdict]:
    """Of each row and base the verdict that rests on the most seeds."""
    best = {}
    for each in (each for each in verdicts if each.evidence):
        other = best.setdefault((each.row, each.base), each)
        if each.evidence.seeds > other.evidence.seeds:
            best[each.row, each.base] = each
    return [*best.values()]


def write_report(out: Path) -> None:
    """CLAIMS.md and its figures, from the lines of all runs."""
    lines, called, verdicts = {}, {}, []
    for plan in (PLAN, MODEL_PLAN):
        of_plan = read_results(plan.results)
        names = names_of_lines(of_plan, plan)
        verdicts += judge_all(of_plan, plan.bases, names)
        lines |= of_plan
        called |= names
    earlier = earlier_verdicts(called)
    verdicts = with_most_seeds(verdicts + earlier)
    page, figures = out / "CLAIMS.md", out / "figures"
    figures.mkdir(exist_ok=True)
    page.write_text(fill_in(page.read_text(), sections(lines, verdicts, called)))
    with matplotlib.rc_context({"font.size": 22}):
        draw_headlines(verdicts).savefig(figures / "claims.png", dpi=50)
        draw_plane(lines, called).savefig(figures / "claims_plane.png", dpi=50)
    print("From the weak policy, by the earlier runs:")
    for each in earlier:
        if each.base == "weak":
            print(f"{each.row.paper} {each.row.section}: {each.row.text}: {verdict_cell(each)}")
    print(f"wrote {page}, {figures / 'claims.png'} and {figures / 'claims_plane.png'}")
