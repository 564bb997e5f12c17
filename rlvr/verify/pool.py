"""`grade` judges a completion, by one of the graders that wait for questions."""

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
from rlvr.verify.programs import PROJECT
from rlvr.verify.verifiers import VERIFIERS, judge

IDLE_GRADERS = queue.SimpleQueue()  # they end with this process, when their standard input closes


def grade(
    question: tuple[str, str, str], seconds: float = 5.0, program_seconds: float = 20.0
) -> tuple[float, str]:
    """(verifier, text, gold) -> the reward, and "", "unparsed" or "timeout".

    It may be called by many threads at once. What can run for ever goes to a grader, for at most so
    many seconds. Of a program, each test may take `seconds`, and all of them `program_seconds`.
    UserError for an unknown verifier, and where this machine cannot run a program any more.
    """
    verifier = question[0]
    if verifier not in VERIFIERS:
        raise UserError(f"there is no verifier {verifier!r}; there are {', '.join(VERIFIERS)}")
    entry = VERIFIERS[verifier]
    ask = ask_a_grader if entry.isolated else judge
    reward, status = ask(*question, seconds, program_seconds)
    if status == "error":
        raise UserError(reward)
    return float(entry.no_answer if reward is None else reward), status


def ask_a_grader(*question) -> list:
    """What a grader replies: [reward, status], or [message, "error"].

    One that dies of the question, at its deadline, has no reply and is replaced at the next one.
    """
    process = idle_grader()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    reply = process.stdout.readline()
    if not reply:
        process.communicate()  # closes its pipes
        return [None, "timeout"]
    IDLE_GRADERS.put(process)
    return json.loads(reply)


def idle_grader() -> subprocess.Popen:
    """A grader that waits for a question; those that died while they were idle are passed over."""
    while True:
        try:
            process = IDLE_GRADERS.get_nowait()
        except queue.Empty:
            return start_grader()
        if process.poll() is None:
            return process
        process.communicate()


def start_grader() -> subprocess.Popen:
    """A process of rlvr/verify/grader.py. It is in a session of its own: Ctrl-C is not for it."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rlvr.verify.grader"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    if process.stdout.readline() != '"ready"\n':
        raise RuntimeError(f"a grader does not start: {' '.join(process.args)}")
    return process


def in_threads(function: Callable, items: list, doing: str = "") -> list:
    """function(item) of each, by a thread a core that is ours; the threads wait for graders.

    Where it takes long and is named, how many are done is told now and then.
    """
    # macOS does not tell which cores are ours
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
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
