"""Do the intervals of rule.py hold the truth as often as they say? Simulated studies tell.

    python studies/claims/coverage.py                   # a table, in some minutes
    python studies/claims/coverage.py --seeds 16 32     # how many rows of SmolLM2 these may decide

Two methods train with several seeds and are evaluated on the same problems. In logits, the success
rate of method m with seed s on problem p is

    difficulty_p + effect_m + gain_mp + luck_ms + luck_msp

where all but the effect are normal. How much problems and runs vary is taken from the results of
SmolLM2 and of the strong policy. `gain` is what a method gains on some problems more than on
others; the results show none for sure. The truth is the mean difference over all problems and seeds
that there could be, of which a study has a few.

With --seeds, the runs of SmolLM2 that there are go on: a row that is unclear after 8 seeds gets a
second look, which shares the level with the first. A run still to come is one of those that there
are, moved by as much as the mean of a row may be off.
"""

import argparse
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import markdown_table, read_results

import numpy as np

from common import pass_at_k
from studies.claims import runs
from studies.claims.rows import LANGUAGE_MODEL, rows_from
from studies.claims.rule import differences, interval, read_interval, weigh
from studies.claims.runs import MODEL_PLAN


class World(NamedTuple):
    """Problems and runs, in logits."""

    mean: float  # of the problems
    difficulty: float  # standard deviation of the problems, and of what follows
    luck: float  # of a run
    luck_on_problem: float  # of a run on one problem


SMOLLM2 = World(0.0, 3.2, 0.25, 1.6)
TINY = World(0.1, 2.0, 0.1, 0.7)
STUDIES = {  # a world, seeds, problems, completions of each
    "SmolLM2": [(SMOLLM2, seeds, 42, 32) for seeds in (8, 12, 16)],
    "tiny policies": [(TINY, seeds, 256, 16) for seeds in (8, 16)],
}
GAINS = 0.0, 0.3
EFFECTS = 0.0, 0.1  # 0.1 is some 0.015 of pass@1
KS = 1, 16
SIMULATED = 1000  # studies of each kind


def draw_counts(rng, studies: int, world: World, seeds, problems, n, effect, gain):
    """How many of n completions are right: for two methods, [studies, seeds, problems] each."""
    difficulty = rng.normal(world.mean, world.difficulty, (studies, 1, problems))
    counts = []
    for moved in (0.0, effect + rng.normal(0, gain, (studies, 1, problems))):
        logits = difficulty + moved + rng.normal(0, world.luck, (studies, seeds, 1))
        logits = logits + rng.normal(0, world.luck_on_problem, (studies, seeds, problems))
        counts.append(rng.binomial(n, 1 / (1 + np.exp(-logits))))
    return counts


def differences_of(counts: list[np.ndarray], n: int, k: int) -> np.ndarray:
    """The differences in pass@k, in the shape of the counts."""
    table = np.array([pass_at_k(n, correct, k) for correct in range(n + 1)])
    return table[counts[1]] - table[counts[0]]


def coverage(rng, study: tuple, effect: float, gain: float, k: int, simulated=SIMULATED):
    """The share of intervals that hold the truth, and their mean half width."""
    world, _, _, n = study
    everything = draw_counts(rng, 100, world, 20, 1000, n, effect, gain)
    truth = differences_of(everything, n, k).mean()
    differences = differences_of(draw_counts(rng, simulated, *study, effect, gain), n, k)
    found = np.array([interval(each) for each in differences])
    held = (found[:, 1] <= truth) & (truth <= found[:, 2])
    return held.mean(), (found[:, 2] - found[:, 1]).mean() / 2


def rows_decided(rng, seeds: int, simulated=60) -> float:
    """The mean number of SmolLM2's rows that are decided after so many seeds."""
    lines = read_results(MODEL_PLAN.results)
    found = runs.by_seed(lines, runs.names_of_lines({}, MODEL_PLAN))
    decided = 0
    for row in rows_from(LANGUAGE_MODEL):
        there = differences(found, LANGUAGE_MODEL, row)  # [seeds], or [seeds, problems]
        error = there.reshape(len(there), -1).mean(1).std(ddof=1) / len(there) ** 0.5
        for _ in range(simulated):
            to_come = there[rng.integers(len(there), size=seeds - len(there))]
            both = np.concatenate([there, to_come + rng.normal(0, error)])
            words = [
                read_interval(weigh(both[:look], row.effect, (8, seeds)), row.effect)
                for look in (8, seeds)
            ]
            decided += words != ["unclear", "unclear"]
    return decided / simulated


def main(seeds: list[int]) -> None:
    for count in seeds:
        decided = rows_decided(np.random.default_rng(0), count)
        print(f"after {count} seeds, {decided:.1f} of SmolLM2's rows are decided", flush=True)
    if seeds:
        return
    rng, rows = np.random.default_rng(0), []
    for policy, studies in STUDIES.items():
        for study, k, effect in itertools.product(studies, KS, EFFECTS):
            cells = []
            for gain in GAINS:
                held, half = coverage(rng, study, effect, gain, k)
                cells.append(f"{held:.1%} ±{half:.3f}")
            _, seeds, problems, n = study
            shape = f"{policy}: {seeds} seeds, {problems} problems x {n}"
            rows.append([shape, f"pass@{k}", f"{effect}", *cells])
    head = ["study", "of", "effect", *(f"gain {gain}" for gain in GAINS)]
    print(*markdown_table(head, rows), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="more than there are")
    main(parser.parse_args().seeds)
