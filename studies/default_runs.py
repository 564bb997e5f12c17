"""The scripts at their defaults: the table and the figures of docs/papers.md.

    python studies/default_runs.py                    # 3 seeds of all five, 30 minutes on one core
    python studies/default_runs.py --language_model   # SmolLM2-135M, too: figure of the README

A run is `python <script>.py --num_threads 1 --seed <seed>`. What is finished leaves a line in
studies/results/default_runs.jsonl.gz, and is not run again.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import project
from project import read_results

from rlvr.show import append_row, draw_curves, read_rows

from claims_rows import LANGUAGE_MODEL, MODEL

RESULTS = project.STUDIES / "results" / "default_runs.jsonl.gz"
PAGE = project.ROOT / "docs" / "papers.md"
SCRIPTS = "grpo", "agrae", "asymgrpo", "fade", "cwgrpo"
SEEDS = range(3)
JOBS = {
    ("middle", script, seed): f"{script}.py --num_threads 1 --seed {seed}"
    for seed in SEEDS
    for script in SCRIPTS
}
OF_THE_MODEL = {
    (LANGUAGE_MODEL, "headline", 0): (
        f"grpo.py --num_threads 1 --model {MODEL} --dataset arithmetic"
    )
}


def table(lines: dict) -> list[str]:
    """The lines of the table: the first and the last evaluation of each script's runs."""
    head = ["script", "pass@1 before", "pass@1 after", "pass@16 before", "pass@16 after"]
    rows = []
    for script in SCRIPTS:
        evals = [lines["middle", script, seed]["eval"] for seed in SEEDS]
        columns = [
            [f"{rows_of_run[place][key]:.2f}" for rows_of_run in evals]
            for key in ("pass@1", "pass@16")
            for place in (0, -1)
        ]
        columns.append([f"{rows_of_run[-1]['token_entropy']:.3f}" for rows_of_run in evals])
        rows.append([f"`{script}.py`", *map(", ".join, columns)])
    return project.markdown_table([*head, "token entropy after"], rows)


def draw(line: dict, figure: Path) -> None:
    """The curves of a run."""
    with tempfile.TemporaryDirectory() as scratch:
        for log in ("metrics", "eval"):
            for row in line[log]:
                append_row(Path(scratch), log, row)
        draw_curves(Path(scratch), scratch)
        shutil.move(Path(scratch) / "curves.png", figure)


def logs_of(key: tuple, folder: Path) -> dict:
    """What is kept of a run: all that it has logged."""
    return {log: read_rows(folder, log) for log in ("metrics", "eval")}


def main(given) -> None:
    jobs = JOBS | OF_THE_MODEL if given.language_model else JOBS
    project.make_runs(jobs, RESULTS, Path("runs/default_runs"), logs_of, processes=1)
    lines = read_results(RESULTS)
    project.fill_in(PAGE, {"default runs": table(lines)})
    for script in SCRIPTS:
        draw(lines["middle", script, 0], project.FIGURES / f"{script}.png")
    for job in OF_THE_MODEL:
        draw(lines[job], project.FIGURES / "language_model.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--language_model", action="store_true", help="the run of SmolLM2, too")
    main(parser.parse_args())
