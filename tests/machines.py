"""Other machines, as far as one can be made to look like them: tests and a run of grpo.py on each.

    python tests/machines.py                 # the tests of the README's command on each of them
    python tests/machines.py some            # on each the tests that it may change, as in CI
    python tests/machines.py "one core"      # one of them; `some` may stand before it, too

Each works in a copy of the project. What fails is printed, and the exit code is 1 then. The user,
the mounts and the lack of /dev/shm need root and Linux.
"""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from mutants import copy_of_project

NUMBERS = "golden logprobs decode bf16"
FILES = "run checkpoints"
RUN = (
    "grpo.py --numbers 2 --sft_steps 5 --max_steps 1 --prompts_per_step 4 --num_generations 4 "
    "--minibatch_size 8 --eval_problems 4 --eval_samples 2 --cache_dir cache"
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

    tests: str  # those that `some` runs
    environment: dict = field(default_factory=dict)
    before: list = field(default_factory=list)  # what stands before python in each command
    folder: str = "project"
    place: str | None = None  # where the copy stands; by default a folder for temporary files
    busy: bool = False  # a process that computes on every core
    umask: int = -1  # -1 leaves it
    options: tuple = ()  # of pytest


# A user that owns nothing but its copy of the project.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
WITHOUT_SHM = [
    *("unshare", "--mount", "bash", "-c"),
    'mount -t tmpfs -o ro,size=4k none /dev/shm && exec "$@"',
    "bash",
]
MACHINES = {
    # for another Python, which has to start this file then
    "this machine": Machine("config errors show stdout code isolation grader"),
    "no bf16 instructions": Machine(
        NUMBERS, dict(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")
    ),
    "an old core": Machine(
        NUMBERS, dict(ATEN_CPU_CAPABILITY="default", ONEDNN_MAX_CPU_ISA="SSE41")
    ),
    "one core": Machine("grader run", before=["taskset", "--cpu-list", "0"]),
    "64 cores": Machine(
        "grader run", dict(PYTHONPATH="sites", OMP_NUM_THREADS="", OMP_THREAD_LIMIT="64")
    ),
    "busy": Machine("grader run", busy=True),
    "another user": Machine(FILES, before=NOBODY),
    "umask 077": Machine(FILES, umask=0o077),
    "LANG=C, 40 columns": Machine(
        "config stdout report",
        dict(LANG="C", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", COLUMNS="40"),
    ),
    "no home": Machine(FILES, dict(HOME="/dev/null")),
    "spaces and umlauts": Machine(FILES, folder="Müllers großer Ordner"),
    "no shared memory": Machine("grader decode", before=WITHOUT_SHM),
    "another file system": Machine(FILES, place="/dev/shm"),
}
for seed in (1, 2, 3):
    MACHINES[f"random order {seed}"] = Machine(
        "common grpo run prompts", options=("-p", "randomly", f"--randomly-seed={seed}")
    )


def python_of_nobody() -> tuple[str, dict]:
    """A Python that another user may start, and what makes it find this one's packages.

    Root's own may lie in root's home, which nobody else can read.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    starts_itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for path in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        tried = subprocess.run([*NOBODY, path, "-c", starts_itself], capture_output=True)
        if tried.returncode == 0:
            return path, dict(PYTHONPATH=sysconfig.get_path("purelib"))
    raise SystemExit(f"another user may start no {version} here")


def compute_for_ever() -> None:
    while True:
        pass


@contextlib.contextmanager
def all_cores_busy():
    """As many processes that compute as there are cores, until the block ends."""
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=compute_for_ever, daemon=True) for _ in os.sched_getaffinity(0)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()


def failures_on(machine: Machine, some: bool) -> list[str]:
    """The ends of what the commands print that fail there."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir=machine.place))
        folder = Path(place) / machine.folder
        copy_of_project(folder)
        (folder / "sites").mkdir()
        (folder / "sites" / "sitecustomize.py").write_text(SIXTY_FOUR_CORES)
        (folder / "temporary").mkdir()
        environment = {**os.environ, "TMPDIR": str(folder / "temporary"), **machine.environment}
        python = sys.executable
        environment = {name: value for name, value in environment.items() if value != ""}
        if "PYTHONPATH" in machine.environment:
            environment["PYTHONPATH"] = str(folder / "sites")
        if machine.before == NOBODY:
            python, packages = python_of_nobody()
            environment |= dict(HOME=str(folder / "temporary"), **packages)
            Path(place).chmod(0o755)
            subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
        if machine.busy:
            stack.enter_context(all_cores_busy())
        files = [f"tests/test_{name}.py" for name in machine.tests.split()] if some else []
        plugins = machine.options or ("-p", "no:randomly")
        tests = ["-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile", *plugins, *files]
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
    names = [name for name in wanted if name != "some"] or list(MACHINES)
    failed = []
    for name in names:  # each is tried, whatever the others do
        started = time.monotonic()
        found = failures_on(MACHINES[name], some)
        failed += [name] * bool(found)
        state = "FAILS" if found else "passes"
        print(f"{name:22} {state:7} {time.monotonic() - started:5.0f} s", flush=True)
        print(*found, sep="\n", end="\n" * bool(found))
    print(f"{len(names) - len(failed)} of {len(names)} machines pass")
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
