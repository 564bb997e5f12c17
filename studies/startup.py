"""Seconds from the command to the first step of grpo.py, part by part.

    python studies/startup.py             # 2 minutes; medians of 3, each in a new process
    python studies/startup.py --quick

And the seconds of `--help` and of a wrong flag.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

import project

from processes import alone, ending_children

QUICK_FLAGS = "--eval_problems", "2", "--eval_samples", "2", "--sft_steps", "2"


class FirstStepIsDone(Exception):
    """Ends a run after its first step."""


def seconds_of(command: list[str]) -> float:
    """Wall time of a command; its output is dropped."""
    started = time.perf_counter()
    subprocess.run(command, cwd=project.ROOT, capture_output=True)
    return time.perf_counter() - started


def first_step(started: float, flags: list[str]) -> dict[str, float]:
    """Run grpo.py in this process to the end of its first step -> seconds by part.

    The parts stand in the order in which they end. The first one began at the time `started`.
    """
    seconds = {}
    last = started

    def lap(part: str) -> None:
        nonlocal last
        seconds[part] = time.time() - last
        last = time.time()

    def lap_after(owner, name: str, part: str) -> None:
        """From now on a call of owner.name ends that part."""
        function = getattr(owner, name)

        def lapped(*args, **kwargs):
            result = function(*args, **kwargs)
            lap(part)
            return result

        setattr(owner, name, lapped)

    def end_of_step(*_):
        lap("first update")
        raise FirstStepIsDone

    lap("start Python")
    import torch  # noqa: F401  (here, because importing it is what is measured)

    lap("import torch")
    import grpo

    lap("import transformers and the rest")
    import rlvr  # its modules have been imported by grpo

    lap_after(rlvr.models, "load_policy", "load the policy")
    lap_after(rlvr.tasks.datasets, "load_problems", "make the problems")
    lap_after(rlvr.run.Run, "resume", "optimizer, run folder")
    lap_after(grpo.common, "evaluate", "evaluation before training")
    lap_after(grpo.common, "roll_out", "first rollout")
    rlvr.run.Run.end_step = end_of_step
    sys.argv = ["grpo.py", *flags]
    with contextlib.suppress(FirstStepIsDone), contextlib.redirect_stdout(open(os.devnull, "w")):
        config = rlvr.flags.parse_flags(grpo.Config, grpo.VARIANTS)
        lap("read the flags")
        rlvr.run.launch(grpo.main, config)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    repeats = 1 if quick else 3
    for name, option in (("--help", "--help"), ("a wrong flag", "--nothing")):
        with ending_children():
            command = [sys.executable, "grpo.py", option]
            median = statistics.median(seconds_of(command) for _ in range(repeats))
        print(f"| `grpo.py`, {name} | {median:.2f} |", flush=True)

    runs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            flags = [*(QUICK_FLAGS if quick else ()), "--output_dir", folder]
            runs.append(alone(first_step, time.time(), flags))
    medians = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
    for part, seconds in medians.items():
        print(f"| {part} | {seconds:.2f} |")
    print(f"| the first step is done after | {sum(medians.values()):.2f} |")


if __name__ == "__main__":
    main()
