"""The five scripts at their defaults, three seeds each: a table and the figures of the runs.

    python studies/default_runs.py      # 45 minutes on one CPU core

A run is `python <script>.py --num_threads 1 --seed <seed>`. What is finished is kept in
studies/results/default_runs and not run again. Then the table of docs/papers.md is written, and
figures/<script>.png is drawn of the run with seed 0.
"""

import argparse
import shlex
import shutil
import tempfile
from pathlib import Path

import project

from rlvr.logs import read_rows
from rlvr.plots import draw_curves

from script_runs import keep, run_script
from tables import fill_in, markdown_table

RESULTS = project.STUDIES / "results" / "default_runs"
PAGE = project.ROOT / "docs" / "papers.md"
SCRIPTS = "grpo", "agrae", "asymgrpo", "fade", "cwgrpo"
SEEDS = range(3)


def one_run(script: str, seed: int, runs: Path) -> None:
    """Make a run, unless it has been made, and keep its numbers."""
    name = f"{script}-{seed}"
    result, run, unfinished = RESULTS / name, runs / name, runs / f"{name}.result"
    if result.exists():
        return
    for folder in (run, unfinished):
        shutil.rmtree(folder, ignore_errors=True)
    flags = f"--num_threads 1 --seed {seed} --output_dir {shlex.quote(str(run))}"
    run_script(f"{script} {flags}", runs / f"{name}.log", {})
    keep(run, unfinished)
    RESULTS.mkdir(parents=True, exist_ok=True)
    shutil.move(unfinished, result)


def table(results: Path) -> list[str]:
    """The lines of the table: the first and the last evaluation of each script's runs."""
    head = ["script"]
    head += ["pass@1 before", "pass@1 after", "pass@32 before", "pass@32 after"]
    head += ["token entropy after"]
    rows = []
    for script in SCRIPTS:
        evals = [read_rows(results / f"{script}-{seed}", "eval") for seed in SEEDS]
        columns = [
            [f"{rows_of_run[place][key]:.2f}" for rows_of_run in evals]
            for key in ("pass@1", "pass@32")
            for place in (0, -1)
        ]
        columns.append([f"{rows_of_run[-1]['token_entropy']:.3f}" for rows_of_run in evals])
        rows.append([f"`{script}.py`", *map(", ".join, columns)])
    return markdown_table(head, rows)


def write_report(results: Path, figures: Path) -> None:
    """Fill in the page's table, and draw a figure of each script."""
    PAGE.write_text(fill_in(PAGE.read_text(), {"default runs": table(results)}))
    for script in SCRIPTS:
        folder = results / f"{script}-0"
        draw_curves(folder, tempfile.gettempdir())
        (folder / "curves.png").rename(figures / f"{script}.png")


def main(runs: Path) -> None:
    for seed in SEEDS:
        for script in SCRIPTS:
            one_run(script, seed, runs)
    write_report(RESULTS, project.FIGURES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--runs", type=Path, default="runs/default_runs", help="run folders")
    main(parser.parse_args().runs)
