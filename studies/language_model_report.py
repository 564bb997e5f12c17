"""What language_model.py writes: the sections of docs/language-model.md and its figures.

The page is written by hand but for what stands between `<!-- name -->` and `<!-- end -->`, which is
made from studies/results/language_model.
"""

import itertools
import json
import re
import tempfile
import textwrap
from collections import Counter
from pathlib import Path

import project

from rlvr.logs import read_rows
from rlvr.plots import draw_curves
from rlvr.tasks.numbers import last_number, read_number

import matplotlib
import numpy as np
from claims_judge import Verdict
from claims_report import verdict_cell
from claims_rows import LANGUAGE_MODEL, PAPERS, START, rows_from, runs_of
from compare import BEFORE, STYLES, draw_evaluations, draw_steps
from language_model_results import judge_language_model, read_lines
from matplotlib.figure import Figure
from tables import fill_in, markdown_table, mean_cell

CLAIMS_FIGURE = "../studies/figures/language_model_claims.png"
PAGE = project.ROOT / "docs" / "language-model.md"
SHOWN = "pass@1", "pass@4", "pass@16", "greedy", "token_entropy", "answer_entropy"
LOGGED = "early", "late", "all_wrong", "swing", "kappa", "top 1% share", "delta"
LOGGED += "growth", "correlation", "easy gap", "hard gap"
BASELINES = "GRPO", "GRPO, tokens", "two-stage GRPO"  # of the papers
FAILURES = "no number", "a number of the question", "off by 1", "off by 10", "another number"


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
    """How many of a run's wrong completions, of all seeds, are of which kind.

    The model before training has no seed: what it writes is the same each time, and counts once.
    """
    found = Counter()
    seeds = "0" if name == START else "[0-9]"
    for path in sorted(results.glob(f"{name}-{seeds}/completions.jsonl")):
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
    lines = read_lines(results)
    table = by_name(lines, SHOWN)
    if table:
        figure = f"![pass@k and entropy]({CLAIMS_FIGURE})"
        found["runs"] = [*runs_table(table, SHOWN), "", *told_numbers(results, table), "", figure]
        found["training"] = runs_table(by_name(lines, LOGGED), LOGGED)
        found["claims"] = claims_table(judge_language_model(results))
        found["failures"] = failures_table(results, table)
    return found


def by_name(lines: dict, keys) -> dict[str, dict[int, dict]]:
    """The numbers of each run that has any of the keys, by its name and its seed."""
    found = {}
    for job, line in lines.items():
        if {*keys} & {*line["numbers"]}:
            found.setdefault(job.name, {})[job.seed] = line["numbers"]
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


def runs_table(table: dict[str, dict[int, dict]], keys) -> list[str]:
    """A row a run: the mean of each number over its seeds, with half the 95% interval."""
    rows = []
    for name, seeds in table.items():
        cells = [mean_cell([seed[key] for seed in seeds.values() if key in seed]) for key in keys]
        rows.append([name, str(len(seeds)), *cells])
    return markdown_table(["run", "seeds", *keys], rows)


def told_numbers(results: Path, table: dict[str, dict[int, dict]]) -> list[str]:
    """The lines that say which runs had which numbers in their forward passes."""
    in_fp32 = [
        f"{name}, seed {seed}"
        for name, seeds in table.items()
        for seed in seeds
        if "--bf16" not in (results / f"{name}-{seed}" / "command.txt").read_text()
    ]
    if not in_fp32:
        return ["All forward passes were in bf16."]
    named = "; ".join(in_fp32)
    told = f"Forward passes were in fp32 in these runs: {named}. They were in bf16 in the others."
    return textwrap.wrap(told, 120, break_on_hyphens=False)


def claims_table(verdicts: list[Verdict]) -> list[str]:
    """A row a claim of which all runs are there."""
    rows = [
        [found.row.paper, found.row.text, found.row.metric, verdict_cell(found)]
        for found in verdicts
        if found.evidence
    ]
    return markdown_table(["paper", "claim", "difference in", LANGUAGE_MODEL], rows)


def failures_table(results: Path, names) -> list[str]:
    """A row a run: what share of its wrong completions is of which kind."""
    rows = []
    for name in names:
        found = count_failures(results, name)
        if total := sum(found.values()):
            shares = [f"{found[kind] / total:.0%}" for kind in FAILURES]
            rows.append([name, str(total), *shares])
    return markdown_table(["run", "wrong", *FAILURES], rows)


def names_by_paper(names) -> dict[str, list[str]]:
    """Those of the trained runs that the claims of a paper compare, its GRPO first."""
    found = {paper: [] for paper in PAPERS}
    for claim in rows_from(LANGUAGE_MODEL):
        found[claim.paper] += runs_of(claim)
    trained = {*names} - {START}
    return {
        paper: sorted(trained & {*runs}, key=lambda name: (name not in BASELINES, name))
        for paper, runs in found.items()
    }


def draw_runs(results: Path, table: dict[str, dict[int, dict]]) -> Figure:
    """A column a paper: held-out pass@k against k, and below it the entropy of the rollouts."""
    figure = Figure(figsize=(26, 13), layout="constrained")
    upper, lower = figure.subplots(2, len(PAPERS), sharey="row")
    folders = {
        name: [results / f"{name}-{seed}" for seed in seeds] for name, seeds in table.items()
    }
    ends = {  # the last evaluation of each seed
        name: [read_rows(folder, "eval")[-1] for folder in each] for name, each in folders.items()
    }
    for above, below, (paper, names) in zip(
        upper, lower, names_by_paper(table).items(), strict=True
    ):
        if START in ends:
            draw_evaluations(above, ends[START], START, BEFORE)
        for name, style in zip(names, itertools.cycle(STYLES)):
            draw_evaluations(above, ends[name], name, style)
        draw_steps(below, {name: folders[name] for name in names}, "metrics", "entropy", window=4)
        above.set(xlabel="k", title=paper)
        above.set_xscale("log", base=2)
        below.set(title="")
        below.legend(
            *above.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -0.17)
        )
    upper[0].set(ylabel="held-out pass@k")
    lower[0].set(ylabel="token entropy of the rollout, nats")
    return figure


def write_report(results: Path) -> None:
    """Fill in the page, and draw the figures, from all that has been run so far."""
    PAGE.write_text(fill_in(PAGE.read_text(), sections(results)))
    if (results / "headline").exists():
        draw_curves(results / "headline", tempfile.gettempdir())
        (results / "headline" / "curves.png").rename(project.FIGURES / "language_model.png")
    table = by_name(read_lines(results), SHOWN)
    if table:
        with matplotlib.rc_context({"font.size": 15}):
            figure = draw_runs(results, table)
            figure.savefig(PAGE.parent / CLAIMS_FIGURE, dpi=60)
