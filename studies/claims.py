"""The five papers' headline claims, tried in miniature: which hold for a tiny policy on Countdown?

    python studies/claims.py               # every run, then the report; finished runs are kept
    python studies/claims.py --quick       # 2 seeds of tiny runs, to see that it works
    python studies/claims.py --mine my.py  # a script of yours against grpo.py: see claims_mine.py

The report is CLAIMS.md, claims.json and two figures.

A claim is a difference that should be positive, between runs of one seed. These share the starting
policy, the training problems and the held-out problems. THE RULE was fixed before the runs. Take
the 95% interval of the mean difference over the seeds (Student's t):

    the claim HOLDS          where the whole interval is above -margin
    the claim DOES NOT hold  where the whole interval is below -margin
    the claim is UNCLEAR     otherwise

The margin is 0, but 0.02 where a paper claims "no lower" or "no gain". Large k is k = 16, estimated
from 32 samples: k = 32 itself would be one draw a problem.
"""

import argparse
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import project

from rlvr.errors import UserError, fail

import claims_mine
import numpy as np
from claims_measures import STATIC_WEIGHTS, collect
from claims_report import write_report
from claims_training import list_jobs, train_all
from verdicts_rule import interval


@dataclass(frozen=True)
class Scale:
    """How many runs there are, and how large they are."""

    steps: int  # of a run
    long: int  # steps of GRPO from the weak base
    seeds: int
    flags: str  # of every run
    bases: dict[str, str]  # the starting policies, and the flags that make them


FULL = Scale(
    steps=48,
    long=192,
    seeds=5,
    flags="--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --eval_problems 64",
    bases={
        "weak": "--sft_steps 400",
        "middle": "--sft_steps 1600 --numbers 3,4",
        "strong": "--sft_steps 1200",
    },
)
QUICK = Scale(
    steps=2,
    long=3,
    seeds=2,
    flags="--prompts_per_step 4 --num_generations 4 --minibatch_size 8 --eval_problems 2 "
    "--sft_steps 2",
    bases={"weak": "", "middle": "--numbers 2"},
)

FROM_EVERY_BASE = {  # the name of a run, and its script and flags
    "GRPO": "grpo",
    "GRPO-N": "grpo --variant grpo-n",
    "A-GRAE": "agrae",
    "AsymGRPO": "asymgrpo",
    "FADE": "fade",
    "CW-GRPO": "cwgrpo",
    "positive-dominant": "agrae --variant positive-dominant",
    "negative-dominant": "agrae --variant negative-dominant",
    "Proposition 1": "entropy_growth",
}
FROM_THE_WEAK_BASE = {
    **FROM_EVERY_BASE,
    "mean": "fade --weight mean",
    "Power 2": "fade --variant power",
    "delta 0.5": "fade --variant asym",
    "delta 2": "fade --weight asym --weight_args delta=2",
    "GSPO": "grpo --variant gspo",
    "GSPO-N": "grpo --variant gspo-n",
    "hard-focused": "agrae --variant hard-focused",
    "easy-focused": "agrae --variant easy-focused",
    "A-GRAE, Dr.GRPO": "agrae --variant agrae-dr-grpo",
    "sample level": "agrae --variant sample-level",
    "group level": "agrae --variant group-level",
    "REINFORCE": "asymgrpo --variant reinforce",
    "Pos-Only": "asymgrpo --variant pos-only",
    "Neg-Only": "asymgrpo --variant neg-only",
    "EntDecrease": "asymgrpo --variant ent-decrease",
    "entropy bonus": "asymgrpo --variant reinforce-entropy --entropy_coef 0.01",
    "symmetric 0.7": "asymgrpo --variant symmetric",
    "EntIncrease": "asymgrpo --variant ent-increase",
    "Clip-Cov": "cwgrpo --variant clip-cov --clip_cov_fraction 0.01",
}
ALL_RUNS = {"weak": FROM_THE_WEAK_BASE, "middle": FROM_EVERY_BASE, "strong": FROM_EVERY_BASE}
QUICK_RUNS = {
    "weak": {"GRPO": "grpo", "CW-GRPO": "cwgrpo", "Proposition 1": "entropy_growth"},
    "middle": {"GRPO": "grpo"},
}


class Claim(NamedTuple):
    """In a paper's section: the metric of one side is above that of the other.

    A side is a run, "start" (the policy before training), "GRPO, long", "best static", or a number.
    """

    paper: str  # and section
    text: str
    metric: str  # a key of what claims_measures.measure gives
    above: str | float
    below: str | float
    margin: float = 0.0


BY_SECTION = {  # the claims without their first field
    "A-GRAE 4.2": [
        ("positive-dominant loses more entropy than GRPO", "entropy", "GRPO", "positive-dominant"),
        ("positive-dominant ends with a lower pass@16", "pass@16", "GRPO", "positive-dominant"),
        ("negative-dominant has more entropy than GRPO", "entropy", "negative-dominant", "GRPO"),
        ("negative-dominant ends with a higher pass@16", "pass@16", "negative-dominant", "GRPO"),
        (
            "negative-dominant keeps the start's pass@16",
            "pass@16",
            "negative-dominant",
            "start",
            0.02,
        ),
    ],
    "A-GRAE 4.3": [
        ("easy-focused has the higher early reward", "early", "easy-focused", "hard-focused"),
        ("hard-focused has the higher late reward", "late", "hard-focused", "easy-focused"),
    ],
    "A-GRAE 5.3": [
        ("A-GRAE beats GRPO in pass@1", "pass@1", "A-GRAE", "GRPO"),
        ("A-GRAE beats GRPO in pass@16", "pass@16", "A-GRAE", "GRPO"),
        ("on Dr.GRPO it does in pass@1", "pass@1", "A-GRAE, Dr.GRPO", "mean"),
        ("on Dr.GRPO it does in pass@16", "pass@16", "A-GRAE, Dr.GRPO", "mean"),
    ],
    "A-GRAE 5.4": [
        ("its sample level alone raises pass@1", "pass@1", "sample level", "GRPO"),
        ("its group level alone raises pass@16", "pass@16", "group level", "GRPO"),
    ],
    "two-stage dynamics 4.2": [
        ("GRPO raises pass@1", "pass@1", "GRPO", "start"),
        ("GRPO's pass@16 falls below the start's", "pass@16", "start", "GRPO"),
        ("GRPO-N keeps more entropy than GRPO", "entropy", "GRPO-N", "GRPO"),
        ("GRPO-N keeps more pass@16", "pass@16", "GRPO-N", "GRPO"),
        ("GSPO keeps more entropy than GRPO", "entropy", "GSPO", "GRPO"),
        ("GSPO keeps more pass@16", "pass@16", "GSPO", "GRPO"),
        ("GSPO-N keeps more entropy than GRPO", "entropy", "GSPO-N", "GRPO"),
        ("GSPO-N keeps more pass@16", "pass@16", "GSPO-N", "GRPO"),
    ],
    "two-stage dynamics 3.2": [
        ("pass@16 rises again in four times as many steps", "pass@16", "GRPO, long", "GRPO"),
    ],
    "AsymGRPO 2.2": [
        ("kappa is positive at the start", "kappa", "Proposition 1", 0),
        ("kappa is positive over the first 20 steps", "kappa", "AsymGRPO", 0),
        ("(0.1, 0) turns the entropy's growth the way of kappa", "growth", "Proposition 1", 0),
        ("from batch to batch it follows kappa (correlation)", "correlation", "Proposition 1", 0),
        ("successes are surer than failures on easy prompts", "easy gap", "Proposition 1", 0),
        ("failures are surer than successes on hard prompts", "hard gap", 0, "Proposition 1"),
    ],
    "AsymGRPO 3.1": [
        ("entropy: Pos-Only above REINFORCE", "entropy", "Pos-Only", "REINFORCE"),
        ("entropy: REINFORCE above Neg-Only", "entropy", "REINFORCE", "Neg-Only"),
        ("Pos-Only beats REINFORCE in pass@1", "pass@1", "Pos-Only", "REINFORCE"),
        ("Neg-Only beats REINFORCE in pass@1", "pass@1", "Neg-Only", "REINFORCE"),
        ("an entropy bonus raises entropy", "entropy", "entropy bonus", "REINFORCE"),
        ("an entropy bonus stays below Pos-Only in pass@1", "pass@1", "Pos-Only", "entropy bonus"),
        (
            "an entropy bonus gains no pass@1 over REINFORCE",
            "pass@1",
            "REINFORCE",
            "entropy bonus",
            0.02,
        ),
    ],
    "AsymGRPO 3.2": [
        ("EntDecrease hurts pass@1", "pass@1", "GRPO", "EntDecrease"),
        ("EntIncrease hurts pass@1", "pass@1", "GRPO", "EntIncrease"),
    ],
    "AsymGRPO 4.2": [
        ("AsymGRPO (0.9, 0.4) beats GRPO in pass@1", "pass@1", "AsymGRPO", "GRPO"),
        ("AsymGRPO beats the tied 0.7 in pass@1", "pass@1", "AsymGRPO", "symmetric 0.7"),
    ],
    "FADE 4.1": [("delta 2 loses more entropy than delta 1", "entropy", "mean", "delta 2")],
    "FADE 4.2": [("delta 0.5 raises the head's rank-1 share", "r1", "delta 0.5", "mean")],
    "FADE 4.3": [("Power 2 keeps more pass@16 than delta 1", "pass@16", "Power 2", "mean")],
    "FADE 5": [
        ("FADE is first at the best static weight's peak", "reach", "best static", "FADE"),
        ("FADE beats the best static weight in pass@1", "pass@1", "FADE", "best static"),
        ("FADE beats the best static weight in pass@4", "pass@4", "FADE", "best static"),
        ("FADE beats the best static weight in pass@16", "pass@16", "FADE", "best static"),
    ],
    "FADE 12": [("the shifted power law fits pass@k to 0.02", "fit error", 0.02, "GRPO")],
    "CW-GRPO 2.2": [
        ("the top 1% of tokens hold most of the covariance", "top 1% share", "CW-GRPO", 0.5),
    ],
    "CW-GRPO 3.2": [
        ("CW-GRPO's entropy moves less than GRPO's", "swing", "GRPO", "CW-GRPO"),
        ("CW-GRPO's pass@1 is no lower than GRPO's", "pass@1", "CW-GRPO", "GRPO", 0.02),
        ("Clip-Cov's pass@1 is above GRPO's", "pass@1", "Clip-Cov", "GRPO"),
        ("CW-GRPO's pass@1 is above Clip-Cov's", "pass@1", "CW-GRPO", "Clip-Cov"),
    ],
}
CLAIMS = [Claim(paper, *rest) for paper, claims in BY_SECTION.items() for rest in claims]


def judge(table: dict[str, list[dict]], claim: Claim) -> dict | None:
    """The claim's difference and verdict by THE RULE; None where this base lacks one of the runs.

    `table` holds the numbers of each seed of the runs from one base.
    """
    above, below = (best_run(table, claim.metric, side) for side in (claim.above, claim.below))
    if any(isinstance(side, str) and side not in table for side in (above, below)):
        return None
    difference = values_of(table, claim.metric, above) - values_of(table, claim.metric, below)
    mean, low, high = interval(difference)
    verdict = "unclear"
    if low > -claim.margin:
        verdict = "holds"
    elif high < -claim.margin:
        verdict = "does not"
    return dict(mean=mean, low=low, high=high, verdict=verdict)


def best_run(table: dict[str, list[dict]], metric: str, side: str | float) -> str | float:
    """The static weight of the best mean where a side is "best static"; any other side itself."""
    if side != "best static" or not {*STATIC_WEIGHTS} <= {*table}:
        return side
    best = min if metric == "reach" else max  # reach is a number of steps
    return best(STATIC_WEIGHTS, key=lambda name: values_of(table, metric, name).mean())


def values_of(table: dict[str, list[dict]], metric: str, side: str | float):
    """The metric of each seed of a run, [seeds]; a number stays what it is."""
    if not isinstance(side, str):
        return side
    return np.array([row[metric] for row in table[side]])


def judge_all(tables: dict[str, dict[str, list[dict]]]) -> list[dict]:
    """The verdict on each claim from each base that has its runs."""
    results = []
    for claim in CLAIMS:
        for base, table in tables.items():
            found = judge(table, claim)
            if found is not None:
                about = dict(paper=claim.paper, claim=claim.text, metric=claim.metric, base=base)
                results.append(about | found)
    return results


def check(seeds: int, processes: int) -> None:
    """Raise UserError for numbers that give no interval, or no run."""
    if seeds < 2:
        raise UserError("--seeds must be 2 or more: an interval is one of several differences")
    if processes < 1:
        raise UserError("--processes must be 1 or more")


def main(folder: Path, out: Path, scale: Scale, runs: dict[str, dict[str, str]], processes: int):
    """Make the runs that are missing, and write the report."""
    train_all(list_jobs(folder, scale, runs), folder, processes)
    tables = {base: collect(folder, base, scale, runs[base]) for base in scale.bases}
    write_report(folder, out, tables, judge_all(tables), scale)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--mine", help='a copy of grpo.py against grpo.py: my.py, "my.py --beta 1"')
    parser.add_argument("--quick", action="store_true", help="tiny runs: does the program work?")
    parser.add_argument("--seeds", type=int, help="how many; 5, with --mine 8, with --quick 2")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--runs", type=Path, default="runs/claims", help="folder for the runs")
    parser.add_argument("--out", type=Path, default=project.STUDIES, help="folder for the report")
    given = parser.parse_args()
    if given.mine:
        scale = claims_mine.QUICK if given.quick else claims_mine.Scale()
    else:
        scale = QUICK if given.quick else FULL
    if given.seeds is not None:
        scale = replace(scale, seeds=given.seeds)
    try:
        check(scale.seeds, given.processes)
        if given.mine:
            claims_mine.compare(given.mine, given.runs, scale, given.processes)
        else:
            runs = QUICK_RUNS if given.quick else ALL_RUNS
            main(given.runs, given.out, scale, runs, given.processes)
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
