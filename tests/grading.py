"""What the tests that grade completions share: new graders, and a look at what they leave."""

import contextlib
import json
import os
import queue
import time
from pathlib import Path

import rlvr.verify.pool as pool

import pytest

ADD = "def add(a, b):\n    return a + b"  # what the assertions below ask for
ASSERTIONS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]


def block(program):
    return f"So\n```python\n{program}\n```"


def grade(program, tests, seconds=60, all_seconds=60):
    return pool.grade(("code", block(program), json.dumps(tests)), seconds, all_seconds)


def grade_all(questions, seconds):
    return pool.in_threads(lambda question: pool.grade(question, seconds, seconds), questions, "")


@contextlib.contextmanager
def new_graders(folder):
    """Graders that keep their temporary folders in `folder`; the first is ready for questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
        assert pool.grade(("math", r"\boxed{5}", "5"), 30) == (1.0, "")
        yield


def solutions_alive():
    """The processes that run a solution of these graders."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended by now
            if b"programs/solution.py" in (process / "cmdline").read_bytes():
                found += [process.name] * (os.environ["TMPDIR"] in os.readlink(process / "cwd"))
    return found


def traces(*marks):
    """What solutions have left: processes, temporary folders, and the files that are marks."""
    end = time.monotonic() + 60  # the system may take a moment to end what has been killed
    while (alive := solutions_alive()) and time.monotonic() < end:
        time.sleep(0.02)
    return [*alive, *Path(os.environ["TMPDIR"]).iterdir(), *filter(os.path.lexists, marks)]
