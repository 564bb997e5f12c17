"""The five papers' headline claims, tried in miniature: which hold for a tiny policy on Countdown?

    python studies/claims.py               # every run, CLAIMS.md, claims.json, the figures; finished runs are kept
    python studies/claims.py --quick       # 2 seeds of tiny runs, to see that it works

A claim is a difference that should be positive, between runs of one seed, which share starting policy, training
problems and held-out problems. THE RULE, fixed before the runs: with the 95% interval of the mean difference over the
seeds (Student's t), a claim HOLDS where the whole interval is above -margin, DOES NOT hold where the whole interval is
below -margin, and is UNCLEAR otherwise. The margin is 0, but 0.02 where a paper claims "no lower" or "no gain".
Large k is k = 16, estimated from 32 samples: k = 32 itself would be one draw a problem.
"""
import argparse
import contextlib
import importlib
import os
import shutil
import sys
import time
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from claims_report import STATICS, collect, interval, write_report

Scale = namedtuple("Scale", "steps long seeds flags bases")
FULL = Scale(48, 192, 5, "--prompts_per_step 16 --num_generations 8 --minibatch_size 64 --eval_problems 64",
             {"weak": "", "middle": "--sft_steps 1600 --numbers 3,4", "strong": "--sft_steps 1200"})
QUICK = Scale(2, 3, 2, "--prompts_per_step 4 --num_generations 4 --minibatch_size 8 --eval_problems 2 --sft_steps 2",
              {"weak": "", "middle": "--numbers 2"})
MAIN = {  # from every base
    "GRPO": "grpo", "GRPO-N": "grpo --variant grpo-n", "A-GRAE": "agrae", "AsymGRPO": "asymgrpo", "FADE": "fade",
    "CW-GRPO": "cwgrpo", "positive-dominant": "agrae --variant positive-dominant",
    "negative-dominant": "agrae --variant negative-dominant", "Proposition 1": "entropy_growth"}
RUNS = MAIN | {  # from the weak base alone
    "mean": "fade --weight mean", "Power 2": "fade --variant power", "delta 0.5": "fade --variant asym",
    "delta 2": "fade --weight asym --weight_args delta=2", "GSPO": "grpo --variant gspo",
    "GSPO-N": "grpo --variant gspo-n", "hard-focused": "agrae --variant hard-focused",
    "easy-focused": "agrae --variant easy-focused", "A-GRAE, Dr.GRPO": "agrae --variant agrae-dr-grpo",
    "sample level": "agrae --variant sample-level", "group level": "agrae --variant group-level",
    "REINFORCE": "asymgrpo --variant reinforce", "Pos-Only": "asymgrpo --variant pos-only",
    "Neg-Only": "asymgrpo --variant neg-only", "EntDecrease": "asymgrpo --variant ent-decrease",
    "entropy bonus": "asymgrpo --variant reinforce-entropy --entropy_coef 0.01",
    "symmetric 0.7": "asymgrpo --variant symmetric", "EntIncrease": "asymgrpo --variant ent-increase",
    "Clip-Cov": "cwgrpo --variant clip-cov --clip_cov_fraction 0.01"}
FEW = {"weak": {label: RUNS[label] for label in ("GRPO", "CW-GRPO", "Proposition 1")}, "middle": {"GRPO": "grpo"}}
CLAIMS = [  # paper and section; the claim; the metric; which run, start or number is above which; margin
    ("000 4.2", "positive-dominant loses more entropy than GRPO", "entropy", "GRPO", "positive-dominant"),
    ("000 4.2", "positive-dominant ends with a lower pass@16", "pass@16", "GRPO", "positive-dominant"),
    ("000 4.2", "negative-dominant has more entropy than GRPO", "entropy", "negative-dominant", "GRPO"),
    ("000 4.2", "negative-dominant ends with a higher pass@16", "pass@16", "negative-dominant", "GRPO"),
    ("000 4.2", "negative-dominant keeps the start's pass@16", "pass@16", "negative-dominant", "start", 0.02),
    ("000 4.3", "easy-focused has the higher early reward", "early", "easy-focused", "hard-focused"),
    ("000 4.3", "hard-focused has the higher late reward", "late", "hard-focused", "easy-focused"),
    ("000 5.3", "A-GRAE beats GRPO in pass@1", "pass@1", "A-GRAE", "GRPO"),
    ("000 5.3", "A-GRAE beats GRPO in pass@16", "pass@16", "A-GRAE", "GRPO"),
    ("000 5.3", "on Dr.GRPO it does in pass@1", "pass@1", "A-GRAE, Dr.GRPO", "mean"),
    ("000 5.3", "on Dr.GRPO it does in pass@16", "pass@16", "A-GRAE, Dr.GRPO", "mean"),
    ("000 5.4", "its sample level alone raises pass@1", "pass@1", "sample level", "GRPO"),
    ("000 5.4", "its group level alone raises pass@16", "pass@16", "group level", "GRPO"),
    ("001 4.2", "GRPO raises pass@1", "pass@1", "GRPO", "start"),
    ("001 4.2", "GRPO's pass@16 falls below the start's", "pass@16", "start", "GRPO"),
    ("001 4.2", "GRPO-N keeps more entropy than GRPO", "entropy", "GRPO-N", "GRPO"),
    ("001 4.2", "GRPO-N keeps more pass@16", "pass@16", "GRPO-N", "GRPO"),
    ("001 4.2", "GSPO keeps more entropy than GRPO", "entropy", "GSPO", "GRPO"),
    ("001 4.2", "GSPO keeps more pass@16", "pass@16", "GSPO", "GRPO"),
    ("001 4.2", "GSPO-N keeps more entropy than GRPO", "entropy", "GSPO-N", "GRPO"),
    ("001 4.2", "GSPO-N keeps more pass@16", "pass@16", "GSPO-N", "GRPO"),
    ("001 3.2", "pass@16 rises again in four times as many steps", "pass@16", "GRPO, long", "GRPO"),
    ("002 2.2", "kappa is positive at the start", "kappa", "Proposition 1", 0),
    ("002 2.2", "kappa is positive over the first 20 steps", "kappa", "AsymGRPO", 0),
    ("002 2.2", "(0.1, 0) turns the entropy's growth the way of kappa", "growth", "Proposition 1", 0),
    ("002 2.2", "from batch to batch it follows kappa (correlation)", "correlation", "Proposition 1", 0),
    ("002 2.2", "successes are surer than failures on easy prompts", "easy gap", "Proposition 1", 0),
    ("002 2.2", "failures are surer than successes on hard prompts", "hard gap", 0, "Proposition 1"),
    ("002 3.1", "entropy: Pos-Only above REINFORCE", "entropy", "Pos-Only", "REINFORCE"),
    ("002 3.1", "entropy: REINFORCE above Neg-Only", "entropy", "REINFORCE", "Neg-Only"),
    ("002 3.1", "Pos-Only beats REINFORCE in pass@1", "pass@1", "Pos-Only", "REINFORCE"),
    ("002 3.1", "Neg-Only beats REINFORCE in pass@1", "pass@1", "Neg-Only", "REINFORCE"),
    ("002 3.1", "an entropy bonus raises entropy", "entropy", "entropy bonus", "REINFORCE"),
    ("002 3.1", "an entropy bonus stays below Pos-Only in pass@1", "pass@1", "Pos-Only", "entropy bonus"),
    ("002 3.1", "an entropy bonus gains no pass@1 over REINFORCE", "pass@1", "REINFORCE", "entropy bonus", 0.02),
    ("002 3.2", "EntDecrease hurts pass@1", "pass@1", "GRPO", "EntDecrease"),
    ("002 3.2", "EntIncrease hurts pass@1", "pass@1", "GRPO", "EntIncrease"),
    ("002 4.2", "AsymGRPO (0.9, 0.4) beats GRPO in pass@1", "pass@1", "AsymGRPO", "GRPO"),
    ("002 4.2", "AsymGRPO beats the tied 0.7 in pass@1", "pass@1", "AsymGRPO", "symmetric 0.7"),
    ("003 4.1", "delta 2 loses more entropy than delta 1", "entropy", "mean", "delta 2"),
    ("003 4.2", "delta 0.5 raises the head's rank-1 share", "r1", "delta 0.5", "mean"),
    ("003 4.3", "Power 2 keeps more pass@16 than delta 1", "pass@16", "Power 2", "mean"),
    ("003 5", "FADE is first at the best static weight's peak", "reach", "best static", "FADE"),
    ("003 5", "FADE beats the best static weight in pass@1", "pass@1", "FADE", "best static"),
    ("003 5", "FADE beats the best static weight in pass@4", "pass@4", "FADE", "best static"),
    ("003 5", "FADE beats the best static weight in pass@16", "pass@16", "FADE", "best static"),
    ("003 12", "the shifted power law fits pass@k to 0.02", "fit error", 0.02, "GRPO"),
    ("004 2.2", "the top 1% of tokens hold most of the covariance", "top 1% share", "CW-GRPO", 0.5),
    ("004 3.2", "CW-GRPO's entropy moves less than GRPO's", "swing", "GRPO", "CW-GRPO"),
    ("004 3.2", "CW-GRPO's pass@1 is no lower than GRPO's", "pass@1", "CW-GRPO", "GRPO", 0.02),
    ("004 3.2", "Clip-Cov's pass@1 is above GRPO's", "pass@1", "Clip-Cov", "GRPO"),
    ("004 3.2", "CW-GRPO's pass@1 is above Clip-Cov's", "pass@1", "CW-GRPO", "Clip-Cov")]


def finish(run):
    """For Run.finish, which draws curves.png for as long as four steps take."""
    if run.stopped:
        raise KeyboardInterrupt


def train(folder: Path, command: str):
    """One run as its command line does it, in this process; the folder appears when the run is finished."""
    import common
    import tasks
    common.Run.finish = finish
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    script, *flags = command.split()
    sys.argv = [f"{script}.py", *flags, f"--output_dir={part}"]
    module = importlib.import_module(script)
    with open(f"{part}.log", "w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            common.launch(module.main, tasks.parse_flags(module.Config, module.VARIANTS))
        except SystemExit as end:  # what the script says of it is in the log
            raise RuntimeError(f"{command} has ended with exit code {end.code}: see {log.name}") from None
    for checkpoint in part.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    (part / "command.txt").write_text(command)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def list_jobs(runs: Path, scale: Scale, labels: dict[str, dict[str, str]]) -> dict[Path, str]:
    """The command of each run, by its folder; GRPO goes on for longer from the weak base."""
    jobs = {}
    for base, flags in scale.bases.items():
        for seed in range(scale.seeds):
            for label, command in labels[base].items():
                steps = scale.long if (base, label) == ("weak", "GRPO") else scale.steps
                jobs[runs / base / f"{label}-{seed}"] = (
                    f"{command} {scale.flags} {flags} --seed {seed} --max_steps {steps} --eval_steps {scale.steps}")
    return jobs


def train_all(jobs: dict[Path, str], runs: Path):
    """Every run that has not been made by the same command, in a process of one thread a core."""
    made = {file.parent: file.read_text() for file in runs.glob("*/*/command.txt")}
    todo, started = [folder for folder in jobs if made.get(folder) != jobs[folder]], time.time()
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"))
    try:
        futures = [pool.submit(train, folder, jobs[folder]) for folder in todo]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            minutes = (time.time() - started) / 60
            print(f"{done}/{len(todo)} runs in {minutes:.0f} min, {minutes / done * (len(todo) - done):.0f} min left")
    finally:
        pool.shutdown(cancel_futures=True)


def judge(table: dict[str, list[dict]], metric: str, above, below, margin: float = 0.0) -> dict | None:
    """The claim's difference and verdict by THE RULE; None where the runs are not made from this base."""
    sides = []
    for side in (above, below):
        if side == "best static" and {*STATICS} <= {*table}:
            best = min if metric == "reach" else max
            side = best(STATICS, key=lambda label: np.mean([row[metric] for row in table[label]]))
        if isinstance(side, str) and side not in table:
            return None
        sides.append(np.array([row[metric] for row in table[side]]) if isinstance(side, str) else side)
    mean, low, high = interval(sides[0] - sides[1])
    verdict = "holds" if low > -margin else "does not" if high < -margin else "unclear"
    return dict(mean=mean, low=low, high=high, verdict=verdict)


def main(runs: Path, out: Path, scale: Scale, labels: dict[str, dict[str, str]]):
    train_all(list_jobs(runs, scale, labels), runs)
    tables = {base: collect(runs, base, scale, labels[base]) for base in scale.bases}
    results = [dict(paper=paper, claim=claim, metric=metric, base=base, **found)
               for paper, claim, metric, *sides in CLAIMS for base, table in tables.items()
               if (found := judge(table, metric, *sides))]
    write_report(runs, out, tables, results, scale)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="tiny runs that show nothing but that the program works")
    parser.add_argument("--runs", type=Path, default="runs/claims", help="folder for the runs")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for CLAIMS.md, claims.json and figures/")
    given = parser.parse_args()
    if given.quick:
        main(given.runs, given.out, QUICK, FEW)
    else:
        main(given.runs, given.out, FULL, {"weak": RUNS, "middle": MAIN, "strong": MAIN})
