"""`grade` judges a completion with the help of a pool of graders."""

import contextlib
import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rlvr import world
from rlvr.errors import UserError
from rlvr.status import clear_line, progress
from rlvr.verify.programs.isolation import PROJECT
from rlvr.verify.verifiers import VERIFIERS, find_verifier, judge

IDLE_GRADERS = queue.SimpleQueue()  # they end when this process ends and closes their input


def grade(
    question: tuple[str, str, str], seconds: float = 5.0, program_seconds: float = 20.0
) -> tuple[float, str]:
    """Grade (verifier, text, gold) -> the reward, and "", "unparsed" or "timeout".

    Verifiers that could run forever run in a grader, for at most `seconds`. Each test of a program
    may take `seconds`, and all of them together `program_seconds`. Raise a UserError for an unknown
    verifier, and if this machine can no longer run programs. Threads may call it.
    """
    entry = find_verifier(question[0])
    ask = ask_a_grader if entry.isolated else judge
    reward, status = ask(*question, seconds, program_seconds)
    if status == "error":
        raise UserError(reward)
    return float(entry.no_answer if reward is None else reward), status


def grade_all(questions: list[tuple]) -> list[tuple[float, str]]:
    """Return what `grade` gives for each question."""
    if questions and VERIFIERS[questions[0][0]].isolated:  # by graders, which threads wait for
        return in_threads(grade, questions, "grading")
    return [*map(grade, questions)]


def ask_a_grader(*question) -> list:
    """Return the reply of a grader: [reward, status], or [message, "error"]."""
    process = None
    while process is None or process.poll() is not None:  # it may have died while idle
        try:
            process = IDLE_GRADERS.get_nowait()
        except queue.Empty:
            process = start_grader()
    assert process.stdin and process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    reply = process.stdout.readline()
    if not reply:  # it was killed at its deadline
        process.communicate()  # closes its pipes
        return [None, "timeout"]
    IDLE_GRADERS.put(process)
    return json.loads(reply)


def start_grader() -> subprocess.Popen:
    """Start rlvr/verify/grader.py, in a session of its own so that Ctrl-C does not reach it."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-P", "-m", "rlvr.verify.grader"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    if process.stdout is None or process.stdout.readline() != '"ready"\n':
        raise RuntimeError(f"a grader does not start: {' '.join(command)}")
    return process


def in_threads(function: Callable, items: list, doing: str = "") -> list:
    """Return function(item) for each item, computed by one thread per core of this rank.

    The threads mostly wait for graders. If `doing` names the work, progress is shown.
    """
    # macOS does not tell which cores this process may use
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    workers = max(1, cores // world.LOCAL_WORLD_SIZE)
    results = []
    with ThreadPoolExecutor(workers) as pool:
        for result in pool.map(function, items):
            if doing:
                progress(doing, len(results), len(items))
            results.append(result)
    if doing:
        clear_line()
    return results
