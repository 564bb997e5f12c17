"""`grade` judges a completion with the help of a pool of graders."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlvr import progress, world
from rlvr.errors import UserError
from rlvr.verify.programs.isolation import OutOfTime, Worker
from rlvr.verify.verifiers import find_verifier, judge

FOREVER = 600.0  # seconds; a grader keeps its own time, unless a user's function stops its timer
# How a grader ends: by its own timer, by ask_a_grader, or by the kernel, for lack of memory.
ENDS = {-signal.SIGALRM: "timeout", -signal.SIGTERM: "timeout", -signal.SIGKILL: "memory"}
IDLE_GRADERS = queue.SimpleQueue()  # they end when this process ends and closes their input


def grade(
    question: tuple[str, str, str], seconds: float = 5.0, program_seconds: float = 20.0
) -> tuple[float, str]:
    """Grade (verifier, text, gold) -> the reward and a status, "" for an answer that was judged.

    The reward is 0 with the other statuses: "unparsed", "timeout", "memory" and "crash". Verifiers
    that could run forever run in a grader, for at most `seconds`. Each test of a program may take
    `seconds`, and all of them together `program_seconds`. Raise a UserError for an unknown
    verifier, for one that fails, with its traceback as a note, and if this machine can no longer
    run programs. Threads may call it.
    """
    ask = ask_a_grader if find_verifier(question[0]).isolated else judge
    reward, status, *details = ask(*question, seconds, program_seconds)
    if status == "error":
        error = UserError(reward)
        for note in details:
            error.add_note(note)
        raise error
    return reward or 0.0, status


def grade_all(questions: list[tuple]) -> list[tuple[float, str]]:
    """Return what `grade` gives for each question."""
    if any(find_verifier(name).isolated for name, *_ in questions):  # threads wait for the graders
        return in_threads(grade, questions, "grading")
    return [*map(grade, questions)]


def try_own(verifier: str, gold) -> None:
    """Let a user's function grade an empty text, by a grader that reads the file anew.

    UserError if the function fails or does not end.
    """
    while not IDLE_GRADERS.empty():
        IDLE_GRADERS.get().socket.close()  # which ends it
    _, status = grade((verifier, "", gold))
    if status not in ("", "unparsed"):
        raise UserError(f"--verifier {verifier}: {status}, already for an empty completion")


def ask_a_grader(*question) -> list:
    """Return the reply of a grader: [reward, status], or [message, "error", traceback]."""
    grader = None
    while grader is None or grader.process.poll() is not None:  # it may have died while idle
        try:
            grader = IDLE_GRADERS.get_nowait()
        except queue.Empty:
            grader = start_grader()
    try:
        reply = grader.ask(question, FOREVER)
    except (ConnectionError, OutOfTime):
        grader.process.terminate()
        status = grader.process.wait()
        with grader.socket, contextlib.suppress(ProcessLookupError):
            os.killpg(grader.process.pid, signal.SIGKILL)  # what a user's function has started
        return [None, ENDS.get(status, "crash")]
    IDLE_GRADERS.put(grader)
    return reply


def start_grader() -> Worker:
    """Start rlvr/verify/grader.py."""
    command = [sys.executable, "-m", "rlvr.verify.grader"]
    cwd = Path(__file__).parents[2]
    grader = Worker(command, cwd=cwd, stderr=subprocess.DEVNULL)
    try:
        grader.ask("start", FOREVER)
    except ConnectionError as error:
        again = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        reason = f"{' '.join(command)} ends with {again.stderr.decode()[-400:]}"
        raise RuntimeError(f"a grader does not start: {reason}") from error
    return grader


def in_threads(function: Callable, items: list, doing: str) -> list:
    """Return function(item) for each item, by a thread per core of this rank, and show progress."""
    # macOS does not tell which cores this process may use
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    workers = max(1, cores // world.LOCAL_WORLD_SIZE)
    results = []
    with ThreadPoolExecutor(workers) as pool:
        for result in pool.map(function, items):
            progress.count(doing, len(results), len(items))
            results.append(result)
    progress.clear_line()
    return results
