"""What the tests that grade completions share: new graders, and a look at what they leave."""

import contextlib
import os
import queue
from pathlib import Path

import rlvr.tasks

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
    return rlvr.tasks.in_threads(lambda question: rlvr.tasks.grade(question, seconds), questions)


@contextlib.contextmanager
def new_graders(folder):
    """Graders that keep their temporary folders in `folder`; the first is ready for questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(rlvr.tasks, "IDLE_GRADERS", queue.SimpleQueue())
        assert rlvr.tasks.grade(("math", boxed("5"), "5"), 30) == (1.0, "")
        yield


def solutions_alive(folder):
    """The processes that run a solution in a folder of these graders."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            runs_a_solution = b"run_solution" in (process / "cmdline").read_bytes()
            if runs_a_solution and str(folder) in os.readlink(process / "cwd"):
                found.append(process.name)
        except OSError:  # it has ended by now
            pass
    return found


def traces(folder, marks=()):
    """What solutions have left: processes, temporary folders, and the files that are marks."""
    files = [path for path in (*marks, "marker") if os.path.lexists(path)]
    return [*solutions_alive(folder), *folder.iterdir(), *files]
