"""The runs of the claims, many in one session: modules are imported once, and each run is a fork.

    python studies/claims/many.py                    # tiny policies: the papers' claims
    python studies/claims/many.py --field            # tiny policy: the field's methods
    python studies/claims/many.py --trust            # tiny policy: its trust regions
    python studies/claims/many.py --language_model --seconds 280 --processes 12

Each finished run adds a line to a file of studies/results, or to --out, and the same command
continues where it was stopped. Runs are made seed by seed: whenever the time is up, those that are
finished can be paired. The runs of a seed should share their start, so let a machine finish its
seeds before another one continues. With --language_model, several processes may share one GPU
(docs/gpu.md).
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
# A parent that has touched the GPU cannot fork children that use it.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import FORK, read_results, run_script

from studies.claims import runs as made
from studies.claims.runs import FIELD_PLAN, MODEL_PLAN, PLAN, TRUST_PLAN


def make_start() -> None:
    """Make the policy that the language model's runs start from; SystemExit where that fails."""
    folder = made.FOLDER / "form"
    process = FORK.Process(target=run_script, args=(made.FORM, folder))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"many.py: error: {made.FORM} has failed: see {folder}.log")


def main(given) -> None:
    plan = given.plan
    out = given.out or plan.results
    end = time.time() + given.seconds
    if plan is MODEL_PLAN and not made.START_OF_MODEL.exists():
        make_start()
        print(f"the start is made, {end - time.time():.0f} s are left", flush=True)
    while time.time() < end:
        lines = read_results(plan.results) | read_results(out)
        if plan is PLAN:
            jobs = made.next_jobs(lines, plan)
        else:
            tries = read_results(PLAN.results)  # GRPO's rate is known
            jobs = made.jobs_by_seed(tries | lines, plan, given.seeds)
        jobs = [job for job in jobs if job not in lines]
        if not jobs:
            break
        made.run_jobs(jobs, replace(plan, results=out), given.processes, end, tries=4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.set_defaults(plan=PLAN)
    for flag, plan in dict(field=FIELD_PLAN, trust=TRUST_PLAN, language_model=MODEL_PLAN).items():
        text = f"the runs of {plan.results.name}"
        parser.add_argument(f"--{flag}", action="store_const", dest="plan", const=plan, help=text)
    parser.add_argument("--out", type=Path, help="gets the lines instead of studies/results")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end, with imports")
    parser.add_argument("--seeds", type=int, default=16, help="at most, but for the strong base")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    main(parser.parse_args())
