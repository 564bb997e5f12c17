"""What verdicts.py writes: CLAIMS.md and its figure, from the lines of the runs alone."""

from collections import Counter
from pathlib import Path

import matplotlib
import numpy as np
from claims_report import markdown_table
from matplotlib.figure import Figure
from verdicts_judge import Verdict, judge_all
from verdicts_rows import BASES, FAR, PAPERS
from verdicts_rule import LOOKS, interval, power
from verdicts_rule import __doc__ as RULE
from verdicts_runs import FULL, SHOWN, Job

COLORS = {"holds": "#009E73", "does not": "#D55E00", "unclear": "#777777"}
WORDS = {"holds": "holds", "does not": "does not hold", "unclear": "is unclear"}


def is_whole(verdicts: list[Verdict]) -> bool:
    """Whether every row has had its first look."""
    return all(found.evidence for found in verdicts)


def report_text(lines: dict[Job, dict]) -> str:
    """The text of CLAIMS.md."""
    verdicts = judge_all(lines, BASES)
    text = [
        "# Which claims hold here?",
        "",
        *(f"{i}. {sentence}" for i, sentence in enumerate(sentences(verdicts), 1)),
        "",
        "![the headlines' differences, in units of the claimed effect](figures/verdicts.png)",
        "",
        "`python studies/verdicts.py report` has written this page from",
        f"`studies/results/verdicts.jsonl.gz`, which has {len(lines)} runs. {count_text(verdicts)}",
        "",
        "## The rule",
        "",
        *RULE.strip().splitlines()[2:],
        "",
        f"Each run has {FULL.steps} steps ({FULL.flags}), and {FULL.held_out} held-out problems.",
        "The starting policies are those of `studies/make_bases.py`: "
        + ", ".join(f"{base} (`{flags}`)" for base, flags in BASES.items())
        + ".",
        "The column *effect* has a star where the number is ours. *Power* is the chance that the",
        "cap's look alone decides for an effect of that size, at the spread that was measured, if",
        "all other rows of the paper stay undecided: a lower bound.",
    ]
    for paper in PAPERS:
        of_paper = [found for found in verdicts if found.row.paper == paper]
        text += ["", f"## {paper}", "", f"How far from the paper: {FAR[paper]}.", ""]
        text += verdict_table(of_paper)
    for base in BASES:
        text += ["", f"## The runs from the {base} base", "", "Mean ± half the 95% interval.", ""]
        text += runs_table(lines, base)
    return "\n".join(text) + "\n"


def sentences(verdicts: list[Verdict]) -> list[str]:
    """Ten sentences to quote: the first base's verdicts on the two headlines of each paper."""
    first_base = next(iter(BASES))
    found = []
    for verdict in verdicts:
        row, evidence = verdict.row, verdict.evidence
        if not row.headline or verdict.base != first_base:
            continue
        size = f"the paper's {row.effect:g}" if row.printed else f"an effect of {row.effect:g}"
        found.append(
            f'{row.paper}, "{row.text}": this **{WORDS[verdict.verdict]}** from the {first_base} '
            f"policy, where the difference in {row.metric} is {evidence.mean:+.3f} "
            f"[{evidence.low:+.3f}, {evidence.high:+.3f}] over {evidence.seeds} seeds, beside "
            f"{size}."
        )
    return found


def count_text(verdicts: list[Verdict]) -> str:
    """How many verdicts there are of each kind."""
    count = Counter(found.verdict for found in verdicts)
    kinds = ", ".join(f'{count[kind]} are "{kind}"' for kind in COLORS)
    return f"Of {len(verdicts)} verdicts {kinds}."


def verdict_table(verdicts: list[Verdict]) -> list[str]:
    """A line a row and base."""
    head = ["section", "claim", "base", "verdict", "difference in", "mean and interval", "effect"]
    head += ["seeds", "power", "further from the paper"]
    lines = []
    for found in verdicts:
        row, evidence = found.row, found.evidence
        bound = f"{evidence.mean:+.3g} [{evidence.low:+.3g}, {evidence.high:+.3g}]"
        effect = f"{row.effect:g}" + ("" if row.printed else "*")
        lines.append(
            [row.section, row.text, found.base, f"**{found.verdict}**", row.metric, bound, effect]
            + [str(evidence.seeds), f"{found.power:.2f}", row.far]
        )
    return markdown_table(head, lines)


def runs_table(lines: dict[Job, dict], base: str) -> list[str]:
    """A line a run: its numbers over the seeds of the first look."""
    names = dict.fromkeys(job.name for job in sorted(lines) if job.base == base)
    table = []
    for name in names:
        seeds = [lines[Job(base, name, seed)]["numbers"] for seed in range(LOOKS[0])]
        cells = []
        for key in SHOWN:
            if all(key in numbers for numbers in seeds):
                mean, low, _ = interval([numbers[key] for numbers in seeds])
                cells.append(f"{mean:.3f} ± {mean - low:.3f}")
            else:
                cells.append("")
        table.append([name, *cells])
    return markdown_table(["run", *SHOWN], table)


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


def plan_text(pilot: dict) -> list[str]:
    """The power for each row's effect, at the spread of the former study's runs.

    `pilot` is claims.json, whose differences have 5 seeds.
    """
    spreads = {}
    for claim in pilot["claims"]:
        half = claim["high"] - claim["mean"]
        spreads.setdefault(claim["metric"], []).append(half * 5**0.5 / 2.776)
    verdicts = judge_all({}, BASES)
    table = []
    for paper in PAPERS:
        of_paper = [found.row for found in verdicts if found.row.paper == paper]
        for row in dict.fromkeys(of_paper):
            if row.metric in spreads:
                spread = float(np.median(spreads[row.metric]))
                chance = power(row.effect, spread, len(of_paper))
                table.append([paper, row.text, f"{row.effect:g}", f"{spread:.3f}", f"{chance:.2f}"])
    return markdown_table(["paper", "claim", "effect", "spread", "power"], table)


def write_report(lines: dict[Job, dict], out: Path) -> None:
    """CLAIMS.md and figures/verdicts.png. SystemExit while a row has had no look."""
    verdicts = judge_all(lines, BASES)
    if not is_whole(verdicts):
        open_rows = sum(not found.evidence for found in verdicts)
        raise SystemExit(
            f"verdicts.py: {open_rows} of {len(verdicts)} verdicts have less than {LOOKS[0]} "
            "seeds yet; CLAIMS.md stays as it is"
        )
    (out / "figures").mkdir(parents=True, exist_ok=True)
    (out / "CLAIMS.md").write_text(report_text(lines))
    with matplotlib.rc_context({"font.size": 20}):
        draw_headlines(verdicts).savefig(out / "figures" / "verdicts.png", dpi=60)
