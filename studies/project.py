"""What the studies share: where the project lies, colours, tables, and runs of its scripts.

A study imports this module or rlvr before torch: rlvr sets how torch's threads wait.
"""

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

STUDIES = Path(__file__).resolve().parent
ROOT = STUDIES.parent
FIGURES = STUDIES / "figures"
SCRIPTS = ("grpo", "agrae", "asymgrpo", "fade", "cwgrpo")
# Colours that the colour-blind can tell apart (Okabe and Ito).
METHODS = {
    "GRPO": "#000000",
    "A-GRAE": "#0072B2",
    "AsymGRPO": "#E69F00",
    "FADE": "#CC79A7",
}
GREY = "#AAAAAA"

from rlvr import progress
from rlvr.errors import UserError

RUNNING = set()  # processes of run_script


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table, from the cells of its head and of each row."""
    ruler = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(row)} |" for row in rows)]


def fill_in(page: Path, found: dict[str, list[str]]) -> None:
    """Write the lines of each section between its marks, `<!-- name -->` and `<!-- end -->`."""
    text = page.read_text()
    for name, lines in found.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        text = before + begin + "\n".join(["", *lines, "", ""]) + end + after
    page.write_text(text)


def run_script(command: str, folder: Path) -> None:
    """Run a script into `folder`, on one thread; what it prints goes into a log beside it.

    UserError where it fails.
    """
    script, *flags = shlex.split(command)
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    log = Path(f"{folder}.log")
    with open(log, "w") as opened:
        process = subprocess.Popen(
            [sys.executable, ROOT / script, *flags, f"--output_dir={folder}"],
            stdout=opened,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
    RUNNING.add(process)
    code = process.wait()
    RUNNING.discard(process)
    if code:
        said = log.read_text().strip().splitlines()
        raise UserError(f"{command} has failed: {said[-1] if said else 'killed'}")


def read_results(results: Path) -> dict[tuple, dict]:
    """Return the line of each finished run by its base, name and seed; {} if there is no file.

    The last line of a plain file may be incomplete, and is left out then.
    """
    if not results.exists():
        return {}
    with (gzip.open if results.suffix == ".gz" else open)(results, "rt") as opened:
        lines = [json.loads(line) for line in opened if line.endswith("\n")]
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


def make_runs(commands: dict, results: Path, folder: Path, line_of, processes: int) -> None:
    """Make the runs that have no line in the results yet, below a folder.

    commands has the command of each run by its base, name and seed. line_of(key, folder of the run)
    returns the rest of its line. When a run fails, which raises UserError, or after Ctrl-C, no
    other run begins, and those in progress are killed.
    """
    found, began, tasks = read_results(results), time.time(), {}
    pool = ThreadPoolExecutor(processes)
    try:
        for key in commands:
            if key not in found:
                run = folder / key[0] / f"{key[1]}-{key[2]}".replace(" ", "-")
                shutil.rmtree(run, ignore_errors=True)
                tasks[pool.submit(run_script, commands[key], run)] = key, run
        if tasks:
            print(f"{len(tasks)} runs to make, {processes} at a time; each is kept once it is done")
        for count, task in enumerate(as_completed(tasks), 1):
            task.result()
            key, run = tasks[task]
            line = dict(zip(("base", "name", "seed"), key, strict=True))
            line["command"] = commands[key].replace(str(folder), "RUNS")
            add_result(results, line | line_of(key, run))
            minutes = (time.time() - began) / 60
            left = minutes * (len(tasks) / count - 1)
            progress.write(
                f"{count}/{len(tasks)} runs in {minutes:.1f} min, {left:.1f} min left: {key[1]}"
            )
    except KeyboardInterrupt:
        progress.write("stopped: finished runs are kept, and the same command continues")
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in [*RUNNING]:  # none but after an error or Ctrl-C
            process.kill()
        pool.shutdown()
