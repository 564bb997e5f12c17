"""Seconds from the command to the first step of grpo.py, part by part, and of --help and a wrong flag.

    python studies/startup.py             # 2 minutes; medians of 3, each in a new process
    python studies/startup.py --quick
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, capture_output=True)
    return time.perf_counter() - started


def first_step(arguments: list[str]):
    """Runs in a process of its own: prints a line `part seconds` for each, in the order in which they end."""
    last = time.perf_counter()

    def lap(part: str):
        nonlocal last
        print("lap", part, time.perf_counter() - last, sep="\t", flush=True)
        last = time.perf_counter()

    sys.path.insert(0, str(ROOT))
    import tasks
    lap("python's own modules, flags")
    import torch  # noqa: F401
    lap("import torch")
    import common
    lap("import transformers and the rest")
    import grpo

    def after(owner, name: str, part: str):
        function = getattr(owner, name)

        def lapped(*args, **kwargs):
            result = function(*args, **kwargs)
            lap(part)
            return result
        setattr(owner, name, lapped)

    after(common, "load_policy", "load the policy")
    after(common, "load_problems", "make the problems")
    after(common.Run, "begin", "optimizer, run folder")
    after(common, "evaluate", "evaluation before training")
    after(common, "roll_out_step", "first rollout")
    sys.argv = ["grpo.py", *arguments]
    common.Run.end_step = lambda *_: lap("first update") or os._exit(0)
    common.launch(grpo.main, tasks.parse_flags(grpo.Config, grpo.VARIANTS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first_step", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.first_step is not None:
        return first_step(flags.first_step)
    repeats = 1 if flags.quick else 3
    small = ["--eval_problems", "2", "--eval_samples", "2", "--sft_steps", "2"] if flags.quick else []
    for name, option in (("--help", "--help"), ("a wrong flag", "--nothing")):
        median = statistics.median(seconds([sys.executable, "grpo.py", option]) for _ in range(repeats))
        print(f"| `grpo.py`, {name} | {median:.2f} |", flush=True)
    laps = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--first_step", *small, "--output_dir", folder]
            output = subprocess.run(command, capture_output=True, text=True).stdout
        for line in output.splitlines():
            if line.startswith("lap\t"):
                _, part, took = line.split("\t")
                laps.setdefault(part, []).append(float(took))
    for part, took in laps.items():
        print(f"| {part} | {statistics.median(took):.2f} |")
    print(f"| the first step is done after | {sum(map(statistics.median, laps.values())):.2f} |")


if __name__ == "__main__":
    main()
