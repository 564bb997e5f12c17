"""Tasks: `grade` judges a completion. The rooms beside hold problems, answers and data sets."""

import json
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlvr import world
from rlvr.tasks.verifiers import VERIFIERS, judge

PROJECT = Path(__file__).parent.parent.parent  # where a grader finds this package
IDLE_GRADERS = queue.SimpleQueue()  # they end with this process, when their standard input closes


def grade(question: tuple[str, str, str], seconds: float = 5.0) -> tuple[float, str]:
    """(verifier, text, gold) -> the reward, and "", "unparsed" or "timeout".

    It may be called by many threads at once. Mathematics and code go to a grader, for at most so
    many seconds; a grader that died of its question is replaced at the next one.
    """
    verifier, text, gold = question
    if not VERIFIERS[verifier].isolated:
        return judge(verifier, text, gold, seconds)
    try:
        process = IDLE_GRADERS.get_nowait()
    except queue.Empty:
        process = start_grader()
    try:
        process.stdin.write(json.dumps([verifier, text, gold, seconds]) + "\n")
        process.stdin.flush()
        reply = tuple(json.loads(process.stdout.readline()))
        IDLE_GRADERS.put(process)
        return reply
    except (OSError, ValueError):  # a closed pipe, an empty line
        process.kill()
        process.wait()
        return 0.0, "timeout"


def start_grader() -> subprocess.Popen:
    """A process of rlvr/tasks/grader.py. It is in a session of its own: Ctrl-C is not for it."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "rlvr.tasks.grader"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def in_threads(function, items: list) -> list:
    """function(item) of each, by a thread a core; the threads wait for graders."""
    workers = os.cpu_count() // world.LOCAL_WORLD_SIZE
    with ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(function, items))
