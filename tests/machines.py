"""Other machines, as far as one can be made to look like them: a run and some tests on each.

    python tests/machines.py                 # all of them
    python tests/machines.py "one core"      # one of them

Each works in a copy of the project. What fails is printed, and the exit code is 1 then.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from mutants import copy_of_project

RUN = (
    "grpo.py --max_steps 1 --prompts_per_step 4 --num_generations 4 --minibatch_size 8 "
    "--eval_problems 4 --eval_samples 2"
).split()
# What Python reads when it starts: a machine of 64 cores, most of which this one does not have.
SIXTY_FOUR_CORES = """
import os

os.cpu_count = lambda: 64
os.sched_getaffinity = lambda pid: set(range(64))
"""


@dataclass
class Machine:
    """What differs from this machine."""

    tests: str  # those that it may change
    environment: dict = field(default_factory=dict)
    before: list = field(default_factory=list)  # what stands before python in each command
    folder: str = "project"
    umask: int = -1  # -1 leaves it
    options: tuple = ()  # of pytest


MACHINES = {
    # for another Python, which has to start this file then
    "this machine": Machine(
        "config errors show code isolation grader prompts decode logprobs models"
    ),
    "no bf16 instructions": Machine(
        "golden logprobs decode bf16", dict(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")
    ),
    "one core": Machine("grader run", before=["taskset", "--cpu-list", "0"]),
    "64 cores": Machine(
        "grader run", dict(PYTHONPATH="sites", OMP_NUM_THREADS="", OMP_THREAD_LIMIT="64")
    ),
    "LANG=C, 40 columns": Machine(
        "config show report",
        dict(LANG="C", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", COLUMNS="40"),
    ),
    "umask 077, no home, umlauts": Machine(
        "run checkpoints", dict(HOME="/dev/null"), folder="Müllers großer Ordner", umask=0o077
    ),
    "random order": Machine("common grpo run prompts", options=("-p", "randomly")),
}


def failures_on(machine: Machine) -> list[str]:
    """The ends of what the commands print that fail there."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / machine.folder
        copy_of_project(folder)
        (folder / "sites").mkdir()
        (folder / "sites" / "sitecustomize.py").write_text(SIXTY_FOUR_CORES)
        (folder / "temporary").mkdir()
        environment = {**os.environ, "TMPDIR": str(folder / "temporary"), **machine.environment}
        environment = {name: value for name, value in environment.items() if value != ""}
        if "PYTHONPATH" in machine.environment:
            packages = os.environ.get("PYTHONPATH", "")
            environment["PYTHONPATH"] = f"{folder / 'sites'}{os.pathsep}{packages}"
        files = [f"tests/test_{name}.py" for name in machine.tests.split()]
        plugins = machine.options or ("-p", "no:randomly")
        tests = ["-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile", *plugins, *files]
        found = []
        for command in (RUN, tests):
            done = subprocess.run(
                [*machine.before, sys.executable, *command],
                cwd=folder,
                env=environment,
                umask=machine.umask,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
            )
            if done.returncode:
                found.append((done.stdout + done.stderr)[-4000:])
        return found


def main(wanted: list[str]) -> int:
    """Try the machines -> how many of them have failures."""
    names = wanted or list(MACHINES)
    failed = []
    for name in names:  # each is tried, whatever the others do
        started = time.monotonic()
        found = failures_on(MACHINES[name])
        failed += [name] * bool(found)
        state = "FAILS" if found else "passes"
        print(f"{name:27} {state:7} {time.monotonic() - started:5.0f} s", flush=True)
        print(*found, sep="\n", end="\n" * bool(found))
    print(f"{len(names) - len(failed)} of {len(names)} machines pass")
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
