"""The runs that claims.py is about: what is to be run, and running it on all cores."""

import contextlib
import importlib
import os
import shutil
import sys
import time
from concurrent.futures import as_completed
from pathlib import Path

import rlvr.flags
import rlvr.run

from processes import workers


def list_jobs(folder: Path, scale, runs: dict[str, dict[str, str]]) -> dict[Path, str]:
    """The command of each run, by its folder; GRPO goes on for longer from the weak base."""
    jobs = {}
    for base, base_flags in scale.bases.items():
        for seed in range(scale.seeds):
            for name, command in runs[base].items():
                steps = scale.long if (base, name) == ("weak", "GRPO") else scale.steps
                jobs[folder / base / f"{name}-{seed}"] = (
                    f"{command} {scale.flags} {base_flags} --seed {seed} --max_steps {steps} "
                    f"--eval_steps {scale.steps}"
                )
    return jobs


def train_all(jobs: dict[Path, str], folder: Path) -> None:
    """Make every run that has not been made by the same command, each by one thread."""
    made = {file.parent: file.read_text() for file in folder.glob("*/*/command.txt")}
    missing = [job for job in jobs if made.get(job) != jobs[job]]
    started = time.time()
    os.environ["OMP_NUM_THREADS"] = "1"
    with workers(os.cpu_count()) as pool:
        futures = [pool.submit(train, job, jobs[job]) for job in missing]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            minutes = (time.time() - started) / 60
            left = minutes / done * (len(missing) - done)
            print(f"{done}/{len(missing)} runs in {minutes:.0f} min, {left:.0f} min left")


def train(folder: Path, command: str) -> None:
    """One run in this process, as its command line does it.

    The folder appears when the run is finished. RuntimeError where the script ends with an error.
    """
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    launch_quietly(command, unfinished)
    for checkpoint in unfinished.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    (unfinished / "command.txt").write_text(command)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def launch_quietly(command: str, folder: Path) -> None:
    """Run a script in this process, into `folder`; what it prints goes into a log beside it.

    RuntimeError where the script ends with an error.
    """
    rlvr.run.Run.finish = finish
    folder.parent.mkdir(parents=True, exist_ok=True)
    script, *flags = command.split()
    sys.argv = [f"{script}.py", *flags, f"--output_dir={folder}"]
    module = importlib.import_module(script)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(f"{folder}.log", "w"))
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        try:
            rlvr.run.launch(module.main, rlvr.flags.parse_flags(module.Config, module.VARIANTS))
        except SystemExit as end:  # what the script says of it is in the log
            raise RuntimeError(
                f"{command} has ended with exit code {end.code}: see {log.name}"
            ) from None


def finish(run) -> None:
    """In place of Run.finish, which draws curves.png for as long as four steps take.

    A run that a signal has stopped is not finished.
    """
    if run.stopped:
        raise KeyboardInterrupt
