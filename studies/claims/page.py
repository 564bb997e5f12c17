"""What claims.py writes from the lines of the runs: tables of two pages, and two figures.

Both pages are written by hand, except between `<!-- name -->` and `<!-- end -->`.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from studies.project import GREY, METHODS, fill_in, markdown_table, read_results

from rlvr.show import SETTINGS

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from studies.claims import runs as made
from studies.claims.rows import (
    CLAIMS,
    EQUAL,
    GROWTH,
    LANGUAGE_MODEL,
    MIDDLE,
    OF_HEADLINES,
    ROWS,
    RUNS,
    Row,
)
from studies.claims.rule import (
    LEVEL,
    LOOKS,
    WORDS,
    Verdict,
    differences,
    interval,
    judge_all,
    matched,
)
from studies.claims.runs import FIELD_PLAN, MODEL_PLAN, PLAN, TRUST_PLAN, rates_to_try

COLORS = dict(zip(WORDS, ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#777777"), strict=True))
HIGHLIGHTED = "GRPO", "A-GRAE", "AsymGRPO", "FADE"
BASES = [*RUNS]
PAGES = CLAIMS_PAGE, TABLES_PAGE = "CLAIMS.md", "claims_tables.md"
NAMES = {
    MIDDLE: "On the tiny policy",
    "strong": "on the strong one",
    LANGUAGE_MODEL: "with SmolLM2",
}
ANSWERS = {
    "holds": "**yes**",
    "smaller": "**yes, but by less**",
    "none": "**no**",
    "reversed": "**no, the opposite**",
    "unclear": "**undecided**",
}
SHORT = made.RESULTS / "claims_short.jsonl.gz"  # of 8 steps, with the tokens that were dropped
FIELD_METRICS = "pass@1", "pass@16", "entropy"
UNITS = {"reach": (" steps", 1), "swing": (" nats", 3)}  # and decimal places


class Study(NamedTuple):
    """Runs that are judged together."""

    results: Path
    plan: made.Plan
    looks: tuple[int, ...]
    mark: str  # of its verdicts


# Earlier studies. All 752 runs of the first one have one rate, and 256 problems x 32 samples at the
# end alone. Those of the second one have 128 problems x 16, and with SmolLM2 24 problems.
EARLIEST = Study(made.RESULTS / "claims_earlier.jsonl.gz", PLAN, (4, 8, 16), "†")
EARLIER = (
    Study(made.RESULTS / "claims_128.jsonl.gz", PLAN, (4, 8), "‡"),
    Study(made.RESULTS / "language_model.jsonl.gz", MODEL_PLAN, (4, 8), "‡"),
    EARLIEST,
)


def sections(tuning: dict, counted: Counter, found: dict, verdicts: list[Verdict]) -> dict:
    """The lines of each section of each page."""
    of_claims = {
        "headlines": headline_sentences(verdicts),
        "count": count_lines(counted, verdicts),
        "path": path_table(found),
        "field": field_table(tuning, FIELD_PLAN),
        "trust": field_table(tuning, TRUST_PLAN),
    }
    of_tables = {paper: verdict_table(found, verdicts, paper) for paper in CLAIMS}
    of_tables["rates"] = rates_table(tuning)
    return {CLAIMS_PAGE: of_claims, TABLES_PAGE: of_tables}


def headline_sentences(verdicts: list[Verdict]) -> list[str]:
    """A sentence for each headline: what the paper says, and what comes out here."""
    sentences = []
    for row in dict.fromkeys(each.row for each in verdicts if each.row.headline):
        unit, digits = UNITS.get(row.metric, ("", 3))
        found = []
        for base, where in NAMES.items():
            for each in (each for each in verdicts if (each.row, each.base) == (row, base)):
                mean, low, high = (f"{end:+.{digits}f}" for end in each.evidence[1:4])
                found.append(f"{where} {ANSWERS[each.word]} ({mean}{unit}, from {low} to {high})")
        paper, claim = row.paper[0].upper() + row.paper[1:], row.text.partition(" (")[0]
        sentences.append(f"{len(sentences) + 1}. {paper} claims: {claim}. {'; '.join(found)}.")
    return sentences


def count_lines(counted: Counter, verdicts: list[Verdict]) -> list[str]:
    """How many runs and verdicts there are, of each kind and from each base, and of all bases."""
    sentences = []
    for base in BASES:
        of_base = [each for each in verdicts if each.base == base]
        sentences.append(f"- {base}, {counted[base]} runs: {count_words(of_base)}.")
    return [*sentences, f"- In all: {count_words(verdicts)}."]


def count_words(verdicts: list[Verdict]) -> str:
    """How many verdicts there are of each kind, how many are decided, and how many firmly."""
    count = Counter(each.word for each in verdicts)
    kinds = ", ".join(f"{count[word]} {word}" for word in WORDS if count[word])
    firm = [each.firm for each in verdicts if each.word != "unclear"]
    decided = f"{len(firm)} of {len(verdicts)} verdicts are decided, {sum(firm)} of them firmly"
    return f"{decided} ({kinds})"


def verdict_table(found: dict, verdicts: list[Verdict], paper: str) -> list[str]:
    """One line for each row, with a cell for each base; the middle one has equal pass@1, too."""
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
    """The verdict, in bold where it is firm, with its interval and the number of seeds."""
    evidence = each.evidence
    word = f"**{each.word}**" if each.firm and each.word != "unclear" else each.word
    interval_of_it = short_interval(evidence.low, evidence.high)
    return f"{word}{each.mark} {interval_of_it} ({evidence.seeds})"


def short_interval(low: float, high: float) -> str:
    """An interval, as narrow as a table needs it."""
    return f"[{low:+.2g},{high:+.2g}]"


def difference_cell(values, level: float = LEVEL) -> str:
    """A mean difference with its interval."""
    mean, low, high = interval(values, level)
    return f"{mean:+.3f} {short_interval(low, high)}"


def rates_table(lines: dict) -> list[str]:
    """One line for each run: its pass@1 at each rate, with the chosen rate in bold."""
    tried = {name: rates_to_try(lines, PLAN, name)[1] for name in OF_HEADLINES}
    rates = [rate for rate in made.RATES if any(rate in found for found in tried.values())]
    table = []
    for name, found in tried.items():
        cells = {rate: f"{value:.3f}" for rate, value in found.items()}
        best = max(found, key=found.get)
        cells[best] = f"**{cells[best]}**"
        table.append([name, *(cells.get(rate, "") for rate in rates)])
    return markdown_table(["run", *rates], table)


def path_table(found: dict) -> list[str]:
    """One line for each run: pass@1 at the end, and pass@16 minus GRPO's at equal pass@1."""
    table = []
    for name in OF_HEADLINES:
        cells = []
        for base in BASES:
            runs = found.get((base, name), [])
            ends, apart = [run["numbers"]["pass@1"] for run in runs], ""
            if runs and name != "GRPO":
                apart = difference_cell(matched(found, base, Row("pass@16", name, "GRPO")))
            cells += [f"{np.mean(ends):.3f}" if runs else "", apart]
        table.append([name, *cells])
    head = [text for base in BASES for text in (f"{base}: pass@1", "pass@16 minus GRPO's")]
    return markdown_table(["run", *head], table)


def field_table(tuning: dict, plan: made.Plan) -> list[str]:
    """One line for each method of the field, over the seeds that all of them have finished."""
    kept = read_results(plan.results)
    called = made.names_of_lines(tuning | kept, plan)
    found = made.by_seed(kept, called)
    seeds = min(map(len, found.values()))
    found = {key: of_run[:seeds] for key, of_run in found.items()}
    short = read_results(SHORT)
    table = []
    for (base, name), of_run in found.items():
        ends = [np.mean([run["numbers"][key] for run in of_run]) for key in FIELD_METRICS]
        apart = ["", ""]
        if name != "GRPO":
            at_end = differences(found, base, Row("pass@1", name, "GRPO"))
            at_equal = matched(found, base, Row("pass@16", name, "GRPO"))
            apart = [difference_cell(at_end), difference_cell(at_equal)]
        line = called[base, name]
        dropped = [run["dropped"] for run in of_run if "dropped" in run]
        dropped = dropped or [short[base, line, made.TUNING[0]]["dropped"]]
        rate = line.rsplit(" at ", 1)[1]
        cells = [name, rate, f"{np.mean(dropped):.1%}", *(f"{end:.3f}" for end in ends)]
        table.append([*cells, *apart])
    head = ["method", "rate", "tokens clipped or masked", *FIELD_METRICS]
    head += ["pass@1 minus GRPO's", "pass@16 at equal pass@1"]
    tries = sum(seed in plan.tuning for _, _, seed in kept)
    count = f"{seeds} seeds of each method, {seeds * len(found)} runs"
    count += f"; {tries} more chose the rates." if tries else "."
    return [count, "", *markdown_table(head, table)]


def draw_headlines(verdicts: list[Verdict]) -> Figure:
    """The headlines' differences and intervals, in units of the effect: one panel for each base."""
    rows = list(dict.fromkeys(each.row for each in verdicts if each.row.headline))[::-1]
    figure = Figure(figsize=(10 + 7 * len(BASES), 0.8 * len(rows) + 2.5), layout="constrained")
    axes = dict(zip(BASES, figure.subplots(1, len(BASES), sharey=True), strict=True))
    for row, base, evidence, word, *_ in verdicts:
        if row.headline:
            height, color = rows.index(row), COLORS[word]
            ends = np.array([evidence.low, evidence.high]) / row.effect
            axes[base].plot(ends, [height] * 2, color=color, linewidth=6, solid_capstyle="butt")
            axes[base].plot(evidence.mean / row.effect, height, "o", color=color, markersize=10)
    for base, axis in axes.items():
        axis.axvline(0, color="black")
        axis.axvline(1, color="black", linestyle="--")
        axis.set(title=base, xlabel="difference / claimed effect")
    labels = [f"{row.paper}: {row.text.partition(' (')[0]}" for row in rows]
    axes[MIDDLE].set_yticks(range(len(rows)), labels)
    for word, color in COLORS.items():
        axes[MIDDLE].plot([], [], color=color, linewidth=6, label=word)
    figure.legend(loc="outside upper center", ncols=len(WORDS))
    return figure


def draw_plane(found: dict) -> Figure:
    """Held-out pass@16 against pass@1, a line for each run of the headlines, a panel for each base.

    A line is the mean over the seeds, evaluation by evaluation. GRPO and the HIGHLIGHTED methods
    have a colour and a band of their standard error; the others are grey.
    """
    figure = Figure(figsize=(10 * len(BASES), 9.5), layout="constrained")
    for axis, base in zip(figure.subplots(1, len(BASES)), BASES, strict=True):
        for name in sorted(OF_HEADLINES, key=HIGHLIGHTED.__contains__):  # the grey lines are below
            if name not in RUNS[base]:
                continue
            color = METHODS[name] if name in HIGHLIGHTED else GREY
            x, y = (
                np.array([[row[key] for row in run["evaluations"]] for run in found[base, name]])
                for key in ("pass@1", "pass@16")
            )  # [seeds, evaluations]
            half = y.std(0, ddof=1) / len(y) ** 0.5
            x, y = x.mean(0), y.mean(0)
            if name not in HIGHLIGHTED:
                axis.plot(x, y, color=color, linewidth=1.5)
                continue
            axis.plot(x, y, color=color, linewidth=4, label=name)
            axis.plot(x[-1], y[-1], "o", color=color, markersize=14)
            axis.fill_between(x, y - half, y + half, color=color, alpha=0.15, linewidth=0)
        axis.set(title=base, xlabel="held-out pass@1", ylabel="pass@16")
    figure.axes[0].plot([], [], color=GREY, label="the other runs of the headlines")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    return figure


def names_in(study: Study, tuning: dict) -> dict[tuple[str, str], str]:
    """What the lines of a study's runs are called; without runs that had another rate then."""
    called = made.names_of_lines(tuning, study.plan)
    if study is not EARLIEST:
        return called
    names = {}
    for name, command in RUNS[MIDDLE].items():
        rate = "none" if name == GROWTH else "3.3e-5" if EQUAL in command else "1e-4"
        same = "3e-5" if rate == "3.3e-5" else rate  # is taken for the same
        if name == GROWTH or called[MIDDLE, name] in (f"{name} at {same}", f"{name} at open"):
            names[MIDDLE, name] = f"{name} at {rate}"
    return names


def write_report(out: Path) -> None:
    """CLAIMS.md and its figures, from the lines of all runs."""
    tuning = read_results(PLAN.results)
    counted = Counter()  # runs of each base
    best, shown = {}, {}  # of a row and base the verdict, of a base the lines, of most seeds
    model = made.by_seed(read_results(MODEL_PLAN.results), made.names_of_lines({}, MODEL_PLAN))
    looks = made.look_at_the_model(model)
    new = Study(PLAN.results, PLAN, LOOKS, ""), Study(MODEL_PLAN.results, MODEL_PLAN, looks, "")
    for study in (*new, *EARLIER):
        lines = read_results(study.results)
        counted.update(line["base"] for line in lines.values())
        found = made.by_seed(lines, names_in(study, tuning))
        for each in judge_all(found, study.plan.runs, study.looks):
            other = best.get((each.row, each.base))
            if each.evidence and (not other or each.evidence.seeds > other.evidence.seeds):
                best[each.row, each.base] = each._replace(mark=study.mark)
        for base in study.plan.runs if study is not EARLIEST else ():
            headlines = [name for name in OF_HEADLINES if name in RUNS[base]]
            seeds = min(len(found[base, name]) for name in headlines)
            if seeds > shown.get(base, (1,))[0]:
                shown[base] = seeds, {key: found[key] for key in found if key[0] == base}
    curves = {key: of_run for _, of_base in shown.values() for key, of_run in of_base.items()}
    verdicts = [*best.values()]
    figures = out / "figures"
    figures.mkdir(exist_ok=True)
    for page, found in sections(tuning, counted, curves, verdicts).items():
        fill_in(out / page, found)
    with matplotlib.rc_context(SETTINGS | {"font.size": 22}):
        draw_headlines(verdicts).savefig(figures / "claims.png", dpi=50)
        draw_plane(curves).savefig(figures / "claims_plane.png", dpi=50)
    print(f"wrote {' and '.join(PAGES)} in {out}, and claims.png and claims_plane.png in {figures}")
