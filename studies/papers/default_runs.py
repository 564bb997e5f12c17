"""The scripts at their defaults: the table of docs/papers.md, and the figure of the README.

    python studies/papers/default_runs.py    # 3 seeds of all five, 30 minutes

A run is `python <script>.py --num_threads 1 --seed <seed>`. What is finished leaves a line in
studies/results/default_runs.jsonl.gz, and is not run again. The lines of "middle, second CPU" are
runs of grpo.py on another kind of processor.
"""

import sys
from pathlib import Path
from statistics import mean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import (
    FIGURES,
    METHODS,
    ROOT,
    SCRIPTS,
    STUDIES,
    fill_in,
    make_runs,
    markdown_table,
    read_results,
)

from rlvr.show import SETTINGS, read_rows

import matplotlib
from matplotlib.figure import Figure

from studies.claims.compare import band, smooth

RESULTS = STUDIES / "results" / "default_runs.jsonl.gz"
PAGE = ROOT / "docs" / "papers.md"
SEEDS = range(3)
JOBS = {
    ("middle", script, seed): f"{script}.py --num_threads 1 --seed {seed}"
    for seed in SEEDS
    for script in SCRIPTS
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
    return markdown_table([*head, "token entropy after"], rows)


def headline(lines: dict) -> str:
    """Mean and standard deviation of GRPO's first and last evaluations, over all seeds and CPUs."""
    evals = [line["eval"] for (_, name, _), line in lines.items() if name == "grpo"]
    cells = []
    for key in ("pass@1", "pass@16"):
        ends = [[rows[place][key] for rows in evals] for place in (0, -1)]
        cells.append(" -> ".join(f"{mean(of_end):.3f} ± {stdev(of_end):.3f}" for of_end in ends))
    return f"grpo.py, {len(evals)} runs: pass@1 {cells[0]}, pass@16 {cells[1]}"


def draw_story(lines: list[dict]) -> Figure:
    """What RLVR does, in two panels: held-out pass@k, and reward and entropy, of all seeds."""
    figure = Figure(figsize=(15, 5.5), layout="constrained")
    held_out, rollout = figure.subplots(1, 2)
    black = METHODS["GRPO"]
    steps = [row["step"] for row in lines[0]["eval"]]
    for key, dash in (("pass@16", "--"), ("pass@4", ":"), ("pass@1", "-")):
        values = [[row[key] for row in line["eval"]] for line in lines]
        band(held_out, steps, values, key, (black, dash))
    held_out.set(title="held-out problems", xlabel="step", ylim=(0, 1))
    steps = [row["step"] for row in lines[0]["metrics"]]
    for key, label, dash in (("reward", "reward", "-"), ("entropy", "entropy (nats)", "--")):
        values = [smooth([row[key] for row in line["metrics"]], 5) for line in lines]
        band(rollout, steps, values, label, (black, dash))
    rollout.set(title="rollouts, mean of 5 steps", xlabel="step", ylim=(0, 1))
    for axis in (held_out, rollout):
        axis.legend()
    return figure


def logs_of(key: tuple, folder: Path) -> dict:
    """What is kept of a run: all that it has logged."""
    return {log: read_rows(folder, log) for log in ("metrics", "eval")}


def main() -> None:
    make_runs(JOBS, RESULTS, Path("runs/default_runs"), logs_of, processes=1)
    lines = read_results(RESULTS)
    fill_in(PAGE, {"default runs": table(lines)})
    print(headline(lines))
    with matplotlib.rc_context(SETTINGS):
        story = draw_story([lines["middle", "grpo", seed] for seed in SEEDS])
        story.savefig(FIGURES / "grpo.png", dpi=70)


if __name__ == "__main__":
    main()
