"""The runs of the claims, many in one session: modules are imported once, and each run is a fork.

    python studies/claims/many.py                    # tiny policies: the papers' claims
    python studies/claims/many.py --field            # tiny policy: the field's methods
    python studies/claims/many.py --trust            # tiny policy: its trust regions
    python studies/claims/many.py --language_model --seconds 280 --processes 12

Each finished run adds a line to --out, and the same command continues where it was stopped. With
--collect, it only takes the lines into studies/results. Runs are made seed by seed: whenever the
time is up, those that are finished can be paired. The runs of a seed should share their start, so
collect whole seeds before another machine continues. With --language_model, several processes may
share one GPU (docs/gpu.md).
"""

import argparse
import importlib
import json
import multiprocessing
import os
import re
import runpy
import shlex
import shutil
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
# A parent that has touched the GPU cannot fork children that use it.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, add_result, read_results

from studies.claims import runs as made
from studies.claims.runs import FIELD_PLAN, MODEL_PLAN, PLAN, TRUST_PLAN, Job

FORK = multiprocessing.get_context("fork")
IMPORTED = (  # before the processes are forked
    *("common", "grpo", "agrae", "asymgrpo", "fade", "cwgrpo", "studies.baselines.advantages"),
    *("transformers.models.llama.modeling_llama", "transformers.models.auto.tokenization_auto"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg"),
)


def jobs_by_seed(lines: dict, plan, seeds: int) -> list[Job]:
    """Return the runs that choose a plan's rates or, if none is missing, its runs seed by seed."""
    ((base, runs),) = plan.runs.items()
    if plan.tuned_on and (jobs := made.tuning_jobs(lines, plan, runs)):
        return jobs
    called = dict.fromkeys(made.names_of_lines(lines, plan).values())
    return [Job(base, name, seed) for seed in range(seeds) for name in called]


def run_in(command: str, folder: Path) -> None:
    """Run a script into a folder. What it prints goes into a log beside the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    script, *flags = shlex.split(command)
    sys.argv = [str(ROOT / script), *flags, f"--output_dir={folder}"]
    runpy.run_path(sys.argv[0], run_name="__main__")


def folder_of(job: Job) -> Path:
    """Where a run is made."""
    return made.FOLDER / job.base / re.sub(r"\W+", "-", f"{job.name}-{job.seed}")


def make_run(job: Job, plan, out: Path) -> None:
    """Make a run, and append its line to the file in one write: other processes append, too."""
    began = time.time()
    folder = folder_of(job)
    command = made.command_of(job, plan)
    run_in(command, folder)
    line = {**job._asdict(), "command": command.replace(str(made.FOLDER), "RUNS")}
    line |= made.line_of(plan, job, folder) | {"seconds": round(time.time() - began, 1)}
    appended = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(appended, (json.dumps(line) + "\n").encode())
    os.fsync(appended)
    shutil.rmtree(folder)


def make_runs(jobs: list[Job], plan, given) -> None:
    """Make the runs until all are made or the time is up; SystemExit if four fail in a row."""
    began, waiting, running, failures = time.time(), jobs[::-1], {}, 0
    try:
        while (waiting or running) and time.time() < given.end:
            while waiting and len(running) < given.processes:
                job = waiting.pop()
                process = FORK.Process(target=make_run, args=(job, plan, given.out))
                process.start()
                running[process.sentinel] = job, process
            for ended in wait(running, timeout=1):
                job, process = running.pop(ended)
                process.join()
                failures = failures + 1 if process.exitcode else 0
                if failures == 4:
                    raise SystemExit(f"many.py: error: four runs failed: see {folder_of(job)}.log")
                if process.exitcode:
                    waiting.append(job)  # again, because it may have found no memory
                word = "failed" if process.exitcode else "made"
                left = f"{len(waiting) + len(running)} left"
                seconds = f"{time.time() - began:.0f} s"
                print(f"{seconds}: {word} {job.name}, seed {job.seed}; {left}", flush=True)
    finally:
        for _, process in running.values():
            process.kill()
            process.join()


def make_start() -> None:
    """Make the policy that the language model's runs start from; SystemExit where that fails."""
    folder = made.FOLDER / "form"
    process = FORK.Process(target=run_in, args=(made.FORM, folder))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"many.py: error: {made.FORM} has failed: see {folder}.log")


def main(given) -> None:
    plan = given.plan
    if given.collect:
        for line in read_results(given.out).values():
            add_result(plan.results, line)
        return
    given.end = time.time() + given.seconds
    for name in IMPORTED:
        importlib.import_module(name)
    if plan is MODEL_PLAN and not made.START_OF_MODEL.exists():
        make_start()
        print(f"the start is made, {given.end - time.time():.0f} s are left", flush=True)
    while time.time() < given.end:
        lines = read_results(plan.results) | read_results(given.out)
        if plan is PLAN:
            jobs = made.next_jobs(lines, plan)
        else:
            tries = read_results(PLAN.results)  # GRPO's rate is known
            jobs = jobs_by_seed(tries | lines, plan, given.seeds)
        jobs = [job for job in jobs if job not in lines]
        if not jobs:
            break
        make_runs(jobs, plan, given)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.set_defaults(plan=PLAN)
    for flag, plan in dict(field=FIELD_PLAN, trust=TRUST_PLAN, language_model=MODEL_PLAN).items():
        parser.add_argument(f"--{flag}", action="store_const", dest="plan", const=plan)
    parser.add_argument("--out", type=Path, default="runs.jsonl", help="gets a line for each run")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to end, with imports")
    parser.add_argument("--seeds", type=int, default=16, help="at most, but for the strong base")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--collect", action="store_true", help="only take lines into the results")
    main(parser.parse_args())
