"""What the tests that grade completions share: new graders, and a look at what they leave."""

import contextlib
import os
import queue
import time
from pathlib import Path

import rlvr.verify.pool as pool

import pytest

ADD = "def add(a, b):\n    return a + b"  # what the assertions below ask for
ASSERTIONS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]


def block(program):
    """A completion with a program."""
    return f"So\n```python\n{program}\n```"


def boxed(answer):
    r"""A completion with an answer in \boxed{}."""
    return f"So \\boxed{{{answer}}}."


def grade_all(questions, seconds):
    """What `grade` says of each question, by several threads."""
    return pool.in_threads(lambda question: pool.grade(question, seconds, seconds), questions)


@contextlib.contextmanager
def new_graders(folder):
    """Graders that keep their temporary folders in `folder`; the first is ready for questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
        assert pool.grade(("math", boxed("5"), "5"), 30) == (1.0, "")
        yield


def solutions_alive(folder):
    """The processes that run a solution in a folder of these graders, or for this process."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended by now
            if b"solution.main" in (process / "cmdline").read_bytes():
                if str(folder) in os.readlink(process / "cwd") or is_of_this_process(process):
                    found.append(process.name)
    return found


def is_of_this_process(process):
    """Whether a folder of /proc is that of a descendant of this process."""
    while process.name not in ("0", "1", str(os.getpid())):
        status = (process / "stat").read_text()
        process = process.parent / status.rpartition(")")[2].split()[1]
    return process.name == str(os.getpid())


def wait_until(condition, seconds=60):
    """Whether it is so within so many seconds; only what hangs takes that long."""
    end = time.monotonic() + seconds
    while not (is_so := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return is_so


def traces(folder, marks=()):
    """What solutions have left: processes, temporary folders, and the files that are marks.

    The system may take a moment to end processes that have been killed.
    """
    wait_until(lambda: not solutions_alive(folder))
    files = [path for path in (*marks, "marker") if os.path.lexists(path)]
    return [*solutions_alive(folder), *folder.iterdir(), *files]
