"""Runs of the scripts, each a process of its own, and the file that keeps a line of each run."""

import gzip
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import project

from rlvr.errors import UserError


def start(command: str, folder: Path) -> subprocess.Popen:
    """Start a script into `folder`, on one thread; what it prints goes into a log beside it."""
    script, *flags = shlex.split(command)
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(project.ROOT), os.environ.get("PYTHONPATH", "")])
    with open(f"{folder}.log", "w") as log:
        return subprocess.Popen(
            [sys.executable, project.ROOT / script, *flags, f"--output_dir={folder}"],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )


def make_runs(runs: dict, processes: int):
    """Yield the key of each run as it ends; key -> its command and its folder.

    UserError for one that fails. None outlives an error or Ctrl-C.
    """
    began, waiting, running = time.time(), [*runs], {}
    try:
        while waiting or running:
            if waiting and len(running) < processes:
                key = waiting.pop(0)
                running[key] = start(*runs[key])
                continue
            time.sleep(0.1)
            for key in [key for key, process in running.items() if process.poll() is not None]:
                if running.pop(key).returncode:
                    command, folder = runs[key]
                    said = Path(f"{folder}.log").read_text().strip().splitlines()
                    raise UserError(f"{command} has failed: {said[-1] if said else 'killed'}")
                yield key
                left = len(waiting) + len(running)
                minutes = (time.time() - began) / 60
                print(f"{len(runs) - left}/{len(runs)} runs in {minutes:.0f} min", flush=True)
    finally:
        for process in running.values():
            process.kill()


def read_results(results: Path) -> dict[tuple, dict]:
    """The line of each finished run by its base, name and seed; none where there is no file."""
    if not results.exists():
        return {}
    with gzip.open(results, "rt") as opened:
        lines = [json.loads(line) for line in opened]
    return {(line["base"], line["name"], line["seed"]): line for line in lines}


def add_result(results: Path, line: dict) -> None:
    """Write the results with one line more; a kill leaves the former file or the new one.

    The same lines give the same bytes, whatever the time and the order of adding them.
    """
    found = read_results(results)
    found[line["base"], line["name"], line["seed"]] = line
    text = "".join(json.dumps(found[key]) + "\n" for key in sorted(found))
    results.parent.mkdir(parents=True, exist_ok=True)
    unfinished = results.with_suffix(".part")
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))
    unfinished.replace(results)
