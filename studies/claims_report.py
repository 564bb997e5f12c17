"""What claims.py writes: claims.json, CLAIMS.md and two figures."""

import json
from dataclasses import asdict
from pathlib import Path

import matplotlib
import numpy as np
from compare import draw_pass_at_k, draw_steps
from matplotlib.figure import Figure
from verdicts_rule import interval

SHOWN = "pass@1", "pass@16", "pass@32", "entropy", "answer_entropy", "false steps"
BY_PAPER = {  # whose entropy is drawn together
    "A-GRAE": ("GRPO", "positive-dominant", "negative-dominant", "A-GRAE"),
    "two-stage dynamics": ("GRPO", "GRPO-N", "GSPO", "GSPO-N"),
    "AsymGRPO": ("REINFORCE", "Pos-Only", "Neg-Only", "entropy bonus", "AsymGRPO"),
    "FADE": ("mean", "delta 0.5", "delta 2", "Power 2", "FADE"),
    "CW-GRPO": ("GRPO", "CW-GRPO", "Clip-Cov"),
}


def write_report(
    runs: Path, out: Path, tables: dict[str, dict], results: list[dict], scale
) -> None:
    """Write everything, from the numbers of each base's runs and the verdicts on the claims."""
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    record = dict(scale=asdict(scale), claims=results, runs=tables)
    (out / "claims.json").write_text(json.dumps(record, indent=1))
    (out / "CLAIMS.md").write_text(report_text(record))
    with matplotlib.rc_context({"font.size": 15}):
        folders = folders_to_draw(runs, tables, scale.seeds)
        draw_bases(folders, scale.steps).savefig(figures / "claims_pass_at_k.png", dpi=60)
        first_base = next(iter(folders.values()))
        draw_papers(first_base, scale.steps).savefig(figures / "claims_entropy.png", dpi=60)


def report_text(record: dict) -> str:
    """The text of CLAIMS.md, from the content of claims.json."""
    scale = record["scale"]
    bases = [f"{base} ({flags or 'the defaults'})" for base, flags in scale["bases"].items()]
    lines = [
        "# Which claims hold here?",
        "",
        "**These verdicts are of the former starting policies, which fail by slips in sums.**",
        "`python grpo.py --sft_steps 400` makes the weak one. `python studies/verdicts.py` tries",
        "the claims again from policies whose failures are wrong choices, with another rule and",
        "more seeds. It replaces this page once each of its rows has four seeds.",
        "",
        "`python studies/claims.py` has written this page, and its first lines hold the rule.",
        f"Each run has {scale['seeds']} seeds and {scale['steps']} steps ({scale['flags']}).",
        f"The bases, which are the starting policies: {', '.join(bases)}.",
        "A cell has the verdict, the mean difference and its 95% interval. A claim without a",
        "verdict was not tried from that base. docs/papers.md says how to read the columns.",
        "",
        *claims_table(record["claims"], scale["bases"]),
    ]
    for base, table in record["runs"].items():
        lines += [
            "",
            f"## The runs from the {base} base",
            "",
            "A cell has the mean ± half of the 95% interval. After it stands the same for the",
            "difference to GRPO on the same seeds.",
            "",
            *runs_table(table),
        ]
    return "\n".join(lines) + "\n"


def claims_table(results: list[dict], bases) -> list[str]:
    """A row a claim, a column a base: the verdict, the mean difference and its interval."""
    cells = {}  # of each claim, by base
    for result in results:
        claim = result["paper"], result["claim"], result["metric"]
        mean, low, high = (f"{result[key]:+.2g}" for key in ("mean", "low", "high"))
        cell = f"**{result['verdict']}** {mean} [{low}, {high}]"
        cells.setdefault(claim, {})[result["base"]] = cell
    head = ["paper", "claim", "difference in", *(f"{base} base" for base in bases)]
    rows = [[*claim, *(found.get(base, "") for base in bases)] for claim, found in cells.items()]
    return markdown_table(head, rows)


def runs_table(table: dict[str, list[dict]]) -> list[str]:
    """A row a run: mean and half the interval over the seeds, and of the difference to GRPO."""
    head = ["run"]
    for key in SHOWN:
        head += [key, "less GRPO"]
    rows = []
    for name, seeds in table.items():
        if SHOWN[0] not in seeds[0]:
            continue  # Proposition 1 has other numbers
        row = [name]
        for key in SHOWN:
            own = np.array([seed[key] for seed in seeds])
            grpo = np.array([seed[key] for seed in table["GRPO"]])
            for mean, low, _ in (interval(own), interval(own - grpo)):
                row.append(f"{mean:.3f} ± {mean - low:.3f}")
        rows.append(row)
    return markdown_table(head, rows)


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    ruler = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(row)} |" for row in rows)]


def folders_to_draw(runs: Path, tables: dict[str, dict], seeds: int) -> dict[str, dict]:
    """The run folders of each base and name that have evaluations."""
    folders = {}
    for base, table in tables.items():
        folders[base] = {}
        for name in table:
            found = [runs / base / f"{name}-{seed}" for seed in range(seeds)]
            if (found[0] / "eval.jsonl").exists():
                folders[base][name] = found
    return folders


def draw_bases(folders: dict[str, dict], step: int) -> Figure:
    """pass@k of the runs that every base has, a panel a base."""
    figure = Figure(figsize=(8 * len(folders), 7), layout="constrained")
    axes = figure.subplots(1, len(folders))
    names = [*folders.values()][-1]  # the last base has the runs that all of them have
    for axis, (base, found) in zip(axes, folders.items(), strict=True):
        draw_pass_at_k(axis, {name: found[name] for name in names}, step)
        axis.set(title=f"{base} base", ylabel="held-out pass@k")
    axes[-1].legend(fontsize=13)
    return figure


def draw_papers(folders: dict[str, list[Path]], steps: int) -> Figure:
    """The entropy of one base's runs, a panel a paper."""
    figure = Figure(figsize=(30, 6.5), layout="constrained")
    axes = figure.subplots(1, len(BY_PAPER), sharey=True)
    for axis, (paper, names) in zip(axes, BY_PAPER.items(), strict=True):
        groups = {name: folders[name] for name in names if name in folders}
        draw_steps(axis, groups, "metrics", "entropy", window=10, most_rows=steps)
        axis.set(title=paper)
        if groups:
            axis.legend()
    axes[0].set_ylabel("token entropy, nats")
    return figure
