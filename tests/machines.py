"""Other machines, as far as one can be made to look like them: tests and a run of grpo.py on each.

    python tests/machines.py                 # the tests of the README's command on each of them
    python tests/machines.py some            # on each the tests that it may change, as in CI
    python tests/machines.py "one core"      # one of them; `some` may stand before it, too

Each works in a copy of the project. What fails is printed, and the exit code is 1 then. Another
user needs root and Linux.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from mutants import copy_of_project

NUMBERS = "golden logprobs decode bf16"
FILES = "run checkpoints"
RUN = (
    "grpo.py --numbers 2 --sft_steps 5 --max_steps 1 --prompts_per_step 4 --num_generations 4 "
    "--minibatch_size 8 --eval_problems 4 --eval_samples 2 --cache_dir cache"
).split()
# A user that owns nothing but its copy of the project.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@dataclass
class Machine:
    """What differs from this machine."""

    tests: str  # those that `some` runs
    environment: dict = field(default_factory=dict)
    before: list = field(default_factory=list)  # what stands before python in each command
    folder: str = "project"
    umask: int = -1  # -1 leaves it


MACHINES = {
    # for another Python, which has to start this file then
    "this machine": Machine("config errors show stdout code isolation grader"),
    "no bf16 instructions": Machine(
        NUMBERS, dict(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")
    ),
    "one core": Machine("grader run", before=["taskset", "--cpu-list", "0"]),
    "another user": Machine(FILES, before=NOBODY),
    "umask 077": Machine(FILES, umask=0o077),
    "LANG=C, 40 columns": Machine(
        "config stdout report",
        dict(LANG="C", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", COLUMNS="40"),
    ),
    "no home": Machine(FILES, dict(HOME="/dev/null")),
    "spaces and umlauts": Machine(FILES, folder="Müllers großer Ordner"),
}


def python_of_nobody() -> str:
    """A Python that another user may start. Root's own may lie in root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        if subprocess.run([*NOBODY, path, "-c", ""], capture_output=True).returncode == 0:
            return path
    raise SystemExit(f"another user may start no {version} here")


def failures_on(machine: Machine, some: bool) -> list[str]:
    """The ends of what the commands print that fail there."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / machine.folder
        copy_of_project(folder)
        (folder / "temporary").mkdir()
        environment = {**os.environ, "TMPDIR": str(folder / "temporary"), **machine.environment}
        python = sys.executable
        if machine.before == NOBODY:
            python = python_of_nobody()
            environment["HOME"] = environment["TMPDIR"]
            environment["PYTHONPATH"] = sysconfig.get_path("purelib")
            Path(place).chmod(0o755)
            subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
        files = [f"tests/test_{name}.py" for name in machine.tests.split()] if some else []
        tests = ["-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile", *files]
        found = []
        for command in (RUN, tests):
            done = subprocess.run(
                [*machine.before, python, *command],
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
    some = "some" in wanted
    failed = 0
    for name in [name for name in wanted if name != "some"] or MACHINES:
        found = failures_on(MACHINES[name], some)  # each is tried, whatever the others do
        failed += bool(found)
        print(f"{name:22} {'FAILS' if found else 'passes'}", *found, sep="\n", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
