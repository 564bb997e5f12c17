"""`grade` judges a completion, by one of the graders that wait for questions."""

import itertools
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
NUMBERS = itertools.count()  # of the questions


def grade(
    question: tuple[str, str, str], seconds: float = 5.0, program_seconds: float = 20.0
) -> tuple[float, str]:
    """(verifier, text, gold) -> the reward, and "", "unparsed" or "timeout".

    It may be called by many threads at once. What can run for ever goes to a grader, for at most so
    many seconds. Of a program, each test may take `seconds`, and all of them `program_seconds`. A
    grader that died of its question is replaced at the next one. UserError for an unknown verifier,
    and where this machine cannot run a program any more.
    """
    verifier, text, gold = question
    if verifier not in VERIFIERS:
        raise UserError(f"there is no verifier {verifier!r}; there are {', '.join(VERIFIERS)}")
    entry = VERIFIERS[verifier]
    limits = seconds, program_seconds
    if not entry.isolated:
        return judge(verifier, text, gold, *limits)
    number = next(NUMBERS)
    process = hand_over([number, verifier, text, gold, *limits], number)
    reply = next(replies_to(number, process), None)
    if reply is None:
        end(process)
        return entry.no_answer, "timeout"
    IDLE_GRADERS.put(process)
    if reply[0] == "error":
        raise UserError(reply[1])
    reward, status = reply
    return reward, status


def hand_over(question: list, number: int) -> subprocess.Popen:
    """A grader that has read the question. One that died while it was idle is passed over."""
    while True:
        try:
            process = IDLE_GRADERS.get_nowait()
            is_new = False
        except queue.Empty:
            process = start_grader()
            is_new = True
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # it has no answer then
        if next(replies_to(number, process), None) == ["read"]:
            return process
        end(process)
        if is_new:
            raise RuntimeError(f"a grader does not start: {' '.join(process.args)}")


def replies_to(number: int, process: subprocess.Popen):
    """What a grader says of a question: ["read"], then [reward, status] or ["error", message].

    Other lines are no replies. It ends with the grader.
    """
    for line in process.stdout:
        try:
            answered, *reply = json.loads(line)
        except (ValueError, TypeError):
            continue
        if answered == number:
            yield reply


def end(process: subprocess.Popen) -> None:
    """End a grader that has failed, and close its pipes."""
    process.kill()
    process.communicate()


def start_grader() -> subprocess.Popen:
    """A process of rlvr/verify/grader.py. It is in a session of its own: Ctrl-C is not for it."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "rlvr.verify.grader"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )


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
