"""Runs of the scripts as a user makes them, and what the project keeps of one."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import project

KEPT = "metrics.jsonl", "eval.jsonl"  # of a run folder


def run_script(command: str, log: Path, environment: dict[str, str]) -> None:
    """Run one of the scripts, with its flags, in a process of its own.

    `environment` adds to this process's own. SystemExit, in one line, where the script ends with an
    error, which the log tells.
    """
    script, *flags = shlex.split(command)
    path = next(
        folder / f"{script}.py"
        for folder in (project.ROOT, project.STUDIES)
        if (folder / f"{script}.py").exists()
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as output:
        print("$", shlex.join(["python", path.name, *flags]), file=output, flush=True)
        ended = subprocess.run(
            [sys.executable, path, *flags],
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if ended.returncode:
        study = Path(sys.argv[0]).name
        raise SystemExit(f"{study}: error: {command} has failed: see {log}")


def keep(run: Path, result: Path) -> None:
    """Copy the small files of a run into the folder of a result."""
    result.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (run / name).exists():
            shutil.copy(run / name, result / name)
