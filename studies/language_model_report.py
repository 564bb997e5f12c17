"""What language_model.py writes: the sections of docs/language-model.md and its figures.

The page is written by hand but for what stands between `<!-- name -->` and `<!-- end -->`, which is
made from studies/results/language_model.
"""

import itertools
import json
import re
import tempfile
from collections import Counter
from pathlib import Path

import project

from rlvr.logs import read_rows
from rlvr.plots import draw_curves
from rlvr.tasks.numbers import last_number, read_number

import matplotlib
import numpy as np
from claims import CLAIMS, judge
from claims_measures import largest_misfit, measure_growth
from claims_report import markdown_table
from compare import BEFORE, STYLES, draw_evaluations, draw_steps, smooth
from matplotlib.figure import Figure
from verdicts_rule import interval

CLAIMS_FIGURE = "../studies/figures/language_model_claims.png"
PAGE = project.ROOT / "docs" / "language-model.md"
SHOWN = "pass@1", "pass@4", "pass@16", "greedy", "token_entropy", "answer_entropy"
FAILURES = "no number", "a number of the question", "off by 1", "off by 10", "another number"


def measure(result: Path) -> dict[str, float]:
    """The numbers that claims are about, of the folder of one result."""
    rows = read_rows(result, "metrics")
    columns = {key: np.array([row[key] for row in rows]) for key in (rows or [{}])[0]}
    if "growth" in columns:
        return measure_growth(columns)
    evaluations = read_rows(result, "eval")
    found = evaluations[-1] | {"fit error": largest_misfit(evaluations)}
    found["entropy"] = found["token_entropy"]
    if columns:
        found["swing"] = np.ptp(smooth(columns["entropy"], 8))
    if "kappa" in columns:
        found["kappa"] = columns["kappa"][:20].mean()
    if "covariance_top_1%_share" in columns:
        found["top 1% share"] = columns["covariance_top_1%_share"].mean()
    return found


def read_results(results: Path) -> dict[str, dict[int, dict]]:
    """The numbers of each run by its name in claims.py and its seed."""
    found = {}
    for folder in sorted(results.glob("*-[0-9]")):
        name, _, seed = folder.name.rpartition("-")
        found.setdefault(name, {})[int(seed)] = measure(folder)
    return found


def judge_claims(found: dict[str, dict[int, dict]]) -> list[tuple]:
    """(claim, number of seeds, what `judge` gives) of each claim whose runs have two seeds or more.

    Only seeds count that both sides have.
    """
    verdicts = []
    for claim in CLAIMS:
        sides = [side for side in (claim.above, claim.below) if isinstance(side, str)]
        if not all(side in found for side in sides):
            continue
        seeds = sorted(set.intersection(*(set(found[side]) for side in sides)))
        if len(seeds) < 2:
            continue
        table = {side: [found[side][seed] for seed in seeds] for side in sides}
        if all(claim.metric in row for rows in table.values() for row in rows):
            verdicts.append((claim, len(seeds), judge(table, claim)))
    return verdicts


def kind_of_failure(question: str, gold: str, text: str) -> str:
    """Which of FAILURES a wrong completion is."""
    number = read_number(last_number(text))
    if number is None:
        return "no number"
    if str(number) in re.findall(r"\d+", question):
        return "a number of the question"
    off = abs(number - int(gold))
    return f"off by {off}" if off in (1, 10) else "another number"


def read_completions(path: Path) -> list[dict]:
    """Completions of held-out problems: question, gold, text and reward of each."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def count_failures(results: Path, name: str) -> Counter:
    """How many of a run's wrong completions, of all seeds, are of which kind."""
    found = Counter()
    for path in sorted(results.glob(f"{name}-[0-9]/completions.jsonl")):
        for row in read_completions(path):
            if row["reward"] < 1:
                found[kind_of_failure(row["question"], row["gold"], row["text"])] += 1
    return found


def sections(results: Path) -> dict[str, list[str]]:
    """The lines of each section of the page that what has been run so far gives."""
    found = {}
    first_run = results / "headline"
    if first_run.exists():
        transcript = (first_run / "transcript.txt").read_text().splitlines()
        found["transcript"] = ["```", *transcript, "```"]
        found["estimate"] = estimate_and_measured(first_run)
        found["completions"] = completions_table(first_run)
    table = read_results(results)
    if table:
        found["runs"] = [*runs_table(table), "", f"![pass@k and entropy]({CLAIMS_FIGURE})"]
        found["claims"] = claims_table(judge_claims(table))
        found["failures"] = failures_table(results, table)
    return found


def estimate_and_measured(result: Path) -> list[str]:
    """A table of what the script has said before it loaded the model, and what came of it."""
    transcript = (result / "transcript.txt").read_text()
    memory = float(re.search(r"([\d.]+) GB an update", transcript)[1])
    step = float(re.search(r"about (\d+) s a step", transcript)[1])
    rows = read_rows(result, "metrics")
    took = np.mean([row["seconds_rollout"] + row["seconds_update"] for row in rows])
    largest = json.loads((result / "memory.json").read_text())["GB"]
    head = ["", "estimate", "measured", "estimate / measured"]
    table = [
        ["memory, GB", f"{memory:.1f}", f"{largest:.1f}", f"{memory / largest:.2f}"],
        ["seconds a step", f"{step:.0f}", f"{took:.0f}", f"{step / took:.2f}"],
    ]
    return markdown_table(head, table)


def completions_table(result: Path) -> list[str]:
    """Held-out problems, each with a completion before training and one after."""
    rows = [
        [before["question"], before["gold"], as_cell(before), as_cell(after)]
        for before, after in zip(
            read_completions(result / "before.jsonl"),
            read_completions(result / "after.jsonl"),
            strict=True,
        )
    ]
    return markdown_table(["problem", "answer", "before", "after"], rows)


def as_cell(row: dict) -> str:
    """A completion in a cell of a table, and whether it is right."""
    text = " ".join(row["text"].split()).replace("|", "\\|").replace("`", "'")
    return f"`{text}` {'right' if row['reward'] == 1 else 'wrong'}"


def runs_table(table: dict[str, dict[int, dict]]) -> list[str]:
    """A row a run: the mean of each number over its seeds, with half the 95% interval."""
    rows = []
    for name, seeds in table.items():
        if SHOWN[0] in next(iter(seeds.values())):
            cells = [mean_of([seed[key] for seed in seeds.values()]) for key in SHOWN]
            rows.append([name, str(len(seeds)), *cells])
    return markdown_table(["run", "seeds", *SHOWN], rows)


def mean_of(values: list[float]) -> str:
    """The mean, with half the 95% interval where there is more than one value."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    mean, low, _ = interval(values)
    return f"{mean:.3f} ± {mean - low:.3f}"


def claims_table(verdicts: list[tuple]) -> list[str]:
    """A row a claim: the verdict here, and beside it those of the tiny policies."""
    tiny = json.loads((project.STUDIES / "claims.json").read_text())["claims"]
    rows = []
    for claim, seeds, found in verdicts:
        low, high = (f"{found[end]:+.2g}" for end in ("low", "high"))
        cell = f"**{found['verdict']}** {found['mean']:+.2g} [{low}, {high}]"
        there = [
            f"{each['base']}: {each['verdict']}"
            for each in tiny
            if (each["paper"], each["claim"], each["metric"]) == claim[:3]
        ]
        rows.append([claim.paper, claim.text, claim.metric, str(seeds), cell, "; ".join(there)])
    head = ["paper", "claim", "difference in", "seeds", "SmolLM2-135M", "tiny policies"]
    return markdown_table(head, rows)


def failures_table(results: Path, names) -> list[str]:
    """A row a run: what share of its wrong completions is of which kind."""
    rows = []
    for name in names:
        found = count_failures(results, name)
        if total := sum(found.values()):
            shares = [f"{found[kind] / total:.0%}" for kind in FAILURES]
            rows.append([name, str(total), *shares])
    return markdown_table(["run", "wrong", *FAILURES], rows)


def fill_in(page: str, found: dict[str, list[str]]) -> str:
    """The page with each section's lines between its marks."""
    for name, lines in found.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = before + begin + "\n".join(["", *lines, "", ""]) + end + after
    return page


def draw_runs(results: Path, table: dict[str, dict[int, dict]]) -> Figure:
    """Held-out pass@k against k, and the entropy of the rollouts, of the runs there are."""
    figure = Figure(figsize=(16, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    groups = {
        name: [results / f"{name}-{seed}" for seed in seeds]
        for name, seeds in table.items()
        if SHOWN[0] in next(iter(seeds.values()))
    }
    for style, (name, folders) in zip(itertools.cycle(STYLES), groups.items()):
        rows = [read_rows(folder, "eval")[-1] for folder in folders]
        draw_evaluations(left, rows, name, BEFORE if name == "start" else style)
    trained = {name: folders for name, folders in groups.items() if name != "start"}
    draw_steps(right, trained, "metrics", "entropy", window=4)
    left.set(xlabel="k", title="held-out pass@k")
    left.set_xscale("log", base=2)
    right.set(title="token entropy of the rollout, nats")
    left.legend(fontsize=11)
    return figure


def write_report(results: Path) -> None:
    """Fill in the page, and draw the figures, from all that has been run so far."""
    PAGE.write_text(fill_in(PAGE.read_text(), sections(results)))
    if (results / "headline").exists():
        draw_curves(results / "headline", tempfile.gettempdir())
        (results / "headline" / "curves.png").rename(project.FIGURES / "language_model.png")
    table = read_results(results)
    if table:
        with matplotlib.rc_context({"font.size": 15}):
            figure = draw_runs(results, table)
            figure.savefig(PAGE.parent / CLAIMS_FIGURE, dpi=60)
