"""When does each method help? A map: hard starts, long runs, large groups, reused rollouts.

    python studies/claims/regimes.py                 # the runs that are missing, then the page
    python studies/claims/regimes.py long reuse      # of these regimes alone
    python studies/claims/regimes.py --seconds 0     # the page and the figure, from what there is

CLAIMS.md has the plan, which was written before the runs, and what came out. A finished run leaves
a line in studies/results/regimes.jsonl.gz, and the same command continues where it was stopped.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import FIGURES, STUDIES, fill_in, markdown_table, read_results

import numpy as np
from matplotlib.figure import Figure

from studies.claims import runs
from studies.claims.page import difference_cell
from studies.claims.rows import MIDDLE, OF_HEADLINES
from studies.claims.rule import LEVEL, interval, side_values
from studies.claims.runs import PLAN, RESULTS, Job, Plan

METHODS = "GRPO", "A-GRAE", "AsymGRPO", "FADE", "CW-GRPO", "two-stage GRPO", "two-stage GRPO-N"
HARD = "hard start"  # whose learning rates the other regimes from this start take
NOVICE = Path("runs/bases/novice")
# A run beside those of a regime: GRPO at the rate of the method that seems to help there.
BESIDE = {"hard start, long": "GRPO at 3e-5"}
METRICS = "pass@1", "pass@16", "pass@256"
SEEDS, MORE_SEEDS = 4, 12  # more from the hard start, where intervals lie above 0


def regime(name: str, start: str, steps: int, own="", evaluations=1, methods=METHODS) -> Plan:
    """The plan of a regime's runs; `own` are its flags beside those of all runs."""
    model = f"{NOVICE.absolute()} --numbers 4" if start == HARD else start
    return Plan(
        {name: {method: f"{OF_HEADLINES[method]} {own}" for method in methods}},
        results=RESULTS / "regimes.jsonl.gz",
        start=f"--model {model}",
        steps=steps,
        evaluated=f"--eval_problems 32 --eval_samples 512 --eval_steps {steps // evaluations}",
        tuned_on=HARD if start == HARD else MIDDLE,
        tuning=PLAN.tuning[:1] if start == HARD else PLAN.tuning,
    )


HARD_START = regime(HARD, HARD, 48)
REGIMES = [
    regime("long", MIDDLE, 480, evaluations=3),
    regime("reuse", MIDDLE, 48, "--num_iterations 4"),
    HARD_START,
    regime("hard start, large groups", HARD, 48, "--num_generations 32 --minibatch_size 256"),
    regime("hard start, long", HARD, 480),
    regime("long, strong", "strong", 480),
    regime("second stage", MIDDLE, 2000, evaluations=4, methods=METHODS[-2:]),
]


def name_of(plan: Plan) -> str:
    """The name of a regime."""
    (name,) = plan.runs
    return name


def make_missing(plan: Plan, processes: int, end: float) -> None:
    """Make the runs of a regime that are missing, as far as the time goes."""
    seeds = MORE_SEEDS if plan.tuned_on == HARD else SEEDS
    while time.time() < end:
        lines = read_results(PLAN.results) | read_results(plan.results)
        jobs = runs.jobs_by_seed(lines, plan, seeds)
        if other := BESIDE.get(name_of(plan)):
            jobs += [Job(name_of(plan), other, seed) for seed in range(seeds)]
        if not (jobs := [job for job in jobs if job not in lines]):
            return
        runs.run_jobs(jobs, plan, processes, end)


def cells_of(plan: Plan, results: dict) -> dict[str, list[dict]]:
    """The lines of each method's runs in a regime, for the seeds that all methods have finished."""
    called, name = runs.names_of_lines(results, plan), name_of(plan)
    if name in BESIDE and (name, BESIDE[name], 0) in results:
        called[name, BESIDE[name]] = BESIDE[name]
    by_name = runs.by_seed(results, called)
    seeds = min(map(len, by_name.values()))
    return {method: lines[:seeds] for (_, method), lines in by_name.items()}


def last(line: dict, metric: str) -> float:
    """A metric of a run's last evaluation."""
    return line["evaluations"][-1][metric]


def differences(cells: dict, method: str, other: str, metric: str) -> np.ndarray:
    """What a method's last evaluation has more of a metric than another's, [seeds, problems]."""
    return side_values(cells, metric, method) - side_values(cells, metric, other)


def level_of(apart: np.ndarray) -> float:
    """The level of an interval; after a second look, at more seeds, it is shared by both."""
    return LEVEL / 2 if len(apart) > SEEDS else LEVEL


def tokens_of(line: dict, plan: Plan) -> float:
    """The tokens that a run was trained on, in millions."""
    group = 32 if "--num_generations 32" in line["command"] else 8
    return 16 * group * plan.steps * float(np.mean(line["mechanism"]["length"])) / 1e6


def row_of(plan: Plan, method: str, cells: dict) -> list[str]:
    """The row of a method in a regime: its numbers, and its differences to the first method's."""
    first, *_ = cells
    lines = cells[method]
    row = [name_of(plan), method, f"{np.mean([tokens_of(line, plan) for line in lines]):.2f}"]
    row += [f"{np.mean([last(line, metric) for line in lines]):.3f}" for metric in METRICS]
    for metric in METRICS:
        apart = differences(cells, method, first, metric)
        cell = difference_cell(apart, level_of(apart)) if len(apart) > 1 else f"{apart.mean():+.3f}"
        row.append("" if method == first else cell)
    of = {
        key: np.mean([line["mechanism"][key] for line in lines], 0)
        for key in ("entropy", "all_wrong", "clipped")
    }
    entropy, failing = of["entropy"], of["all_wrong"]
    row += [f"{entropy[0]:.3f} to {entropy[-1]:.3f}", f"{failing[0]:.0%} to {failing[-1]:.0%}"]
    return [*row, f"{of['clipped'].mean():.2%}"]


def draw(cells: dict[str, dict]) -> None:
    """The map: each method's difference to GRPO in each regime, with half its interval's width.

    A single seed has no interval. A regime without GRPO is left out.
    """
    cells = {name: of_regime for name, of_regime in cells.items() if "GRPO" in of_regime}
    figure = Figure(figsize=(15, 1.5 + len(cells)), layout="constrained")
    axes = figure.subplots(1, len(METRICS), sharey=True, squeeze=False)[0]
    for axis, metric in zip(axes, METRICS, strict=True):
        table = np.full((len(cells), len(METHODS) - 1), np.nan)
        for i, of_regime in enumerate(cells.values()):
            for j, method in enumerate(METHODS[1:]):
                apart = differences(of_regime, method, "GRPO", metric)
                table[i, j] = mean = np.mean(apart)
                text = f"{mean:+.3f}"
                if len(apart) > 1:
                    _, _, high = interval(apart, level_of(apart))
                    text += f"\n±{high - mean:.3f}"
                color = "black" if -0.07 < mean < 0.06 else "white"
                axis.text(j, i, text, ha="center", va="center", color=color, fontsize=9)
        image = axis.imshow(table, cmap="PuOr", vmin=-0.1, vmax=0.1, aspect="auto")
        axis.set(title=f"{metric} minus GRPO's", yticks=range(len(cells)), yticklabels=[*cells])
        axis.set_xticks(range(len(METHODS) - 1), METHODS[1:], rotation=45, ha="right")
    figure.colorbar(image, ax=axes, extend="both", pad=0.01, label="difference")
    figure.savefig(FIGURES / "regimes.png", dpi=110)


def write_page() -> None:
    """The section of CLAIMS.md and the figure, from the runs that there are."""
    lines = read_results(PLAN.results) | read_results(REGIMES[0].results)
    rows, cells = [], {}
    for plan in REGIMES:
        if plan.tuned_on == HARD and runs.tuning_jobs(lines, HARD_START, METHODS):
            continue  # its rates are not found yet
        of_regime = cells_of(plan, lines)
        if lines_of_first := next(iter(of_regime.values())):  # all methods have the same start
            count = len(lines_of_first)
            cells[f"{name_of(plan)}\n{count} seed{'s' * (count > 1)}"] = of_regime
            starts = [line["evaluations"][0] for line in lines_of_first]
            numbers = [f"{np.mean([start[key] for start in starts]):.3f}" for key in METRICS]
            rows.append([name_of(plan), "the start", "", *numbers, *[""] * 6])
            rows += [row_of(plan, method, of_regime) for method in of_regime]
    head = ["regime", "method", "M tokens", *METRICS]
    head += [f"{metric} minus GRPO's" for metric in METRICS]
    head += ["entropy, first to last tenth", "failing groups", "tokens clipped"]
    fill_in(STUDIES / "CLAIMS.md", {"regimes": markdown_table(head, rows)})
    if cells:
        draw(cells)


def main(options) -> None:
    end = time.time() + options.seconds
    for plan in REGIMES:
        if name_of(plan) in (options.regimes or [name_of(plan)]):
            make_missing(plan, options.processes, end)
    write_page()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("regimes", nargs="*", help="their names; all if none is given")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    main(parser.parse_args())
