"""What the studies share: where the project lies, colours, tables, and runs of its scripts.

A study imports this module or rlvr before torch: rlvr sets how torch's threads wait.
"""

import gzip
import importlib
import json
import math
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

FORK = multiprocessing.get_context("fork")
IMPORTED = (  # once, before the processes of runs are forked
    *("common", "grpo", "agrae", "asymgrpo", "fade", "cwgrpo", "studies.baselines.advantages"),
    *("transformers.models.llama.modeling_llama", "transformers.models.auto.tokenization_auto"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg"),
)


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
    """Run a script into a folder, on one thread; what it prints goes into a log beside the folder.

    It needs a process of its own, since it redirects standard output and standard error.
    """
    import torch

    torch.set_num_threads(1)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout = sys.stderr = open(f"{folder}.log", "w", buffering=1)
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    script, *flags = shlex.split(command)
    sys.argv = [str(ROOT / script), *flags, f"--output_dir={folder}"]
    runpy.run_path(sys.argv[0], run_name="__main__")


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
    compressed = results.suffix == ".gz"
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0) if compressed else text.encode())
    unfinished.replace(results)


def make_runs(
    commands: dict, results: Path, folder: Path, line_of, processes: int, end=math.inf, tries=1
) -> None:
    """Make the runs that have no line in the results yet, below a folder, each in a fork.

    commands has the command of each run by its base, name and seed. line_of(key, folder of the run)
    returns the rest of its line. A run that fails is tried again. UserError after as many failures
    in a row as there are tries. Then, after Ctrl-C, and at `end`, a value of time.time(), the runs
    in progress are killed.
    """
    found, began = read_results(results), time.time()
    waiting = [key for key in commands if key not in found][::-1]
    running, count, failures = {}, len(waiting), 0
    if waiting:
        print(f"{count} runs to make, {processes} at a time; each is kept once it is done")
        for name in IMPORTED:
            importlib.import_module(name)
    try:
        while (waiting or running) and time.time() < end:
            while waiting and len(running) < processes:
                key = waiting.pop()
                run = folder / key[0] / re.sub(r"[^\w.]+", "-", f"{key[1]}-{key[2]}")
                process = FORK.Process(target=run_script, args=(commands[key], run))
                process.start()
                running[process.sentinel] = key, run, process, time.time()
            for ended in wait(running, timeout=1):
                key, run, process, started = running.pop(ended)
                process.join()
                if process.exitcode:
                    waiting.append(key)  # it may have found no memory
                    failures += 1
                    if failures == tries:
                        said = Path(f"{run}.log").read_text().strip().splitlines()
                        why = said[-1] if said else "killed"
                        raise UserError(f"{commands[key]} has failed, see {run}.log: {why}")
                    continue
                line: dict = dict(zip(("base", "name", "seed"), key, strict=True))
                line["command"] = commands[key].replace(str(folder), "RUNS")
                line |= line_of(key, run) | {"seconds": round(time.time() - started, 1)}
                add_result(results, line)
                failures = 0
                minutes, done = (time.time() - began) / 60, count - len(waiting) - len(running)
                left = f"{minutes * (count / done - 1):.1f} min left"
                progress.write(f"{done}/{count} runs in {minutes:.1f} min, {left}: {key[1]}")
    except KeyboardInterrupt:
        progress.write("stopped: finished runs are kept, and the same command continues")
        raise
    finally:
        for *_, process, _ in running.values():
            process.kill()
            process.join()
