"""`grade`: which answers go to a grader, deadlines, hostile answers, and graders that die."""

import contextlib
import json
import os
import queue
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import rlvr.tasks
from rlvr import world
from rlvr.tasks.verifiers import VERIFIERS

import pytest
from grading import ADD, ASSERTIONS, block, boxed, grade_all, new_graders

FIVE = ("math", boxed("5"), "5")
TOWERS = ["9^{9^{9^9}}", "10^8!", "(10^8)!", "(x+y+z+1)^{200}", "2^{2^{2^{2^{2^{2}}}}}"]


@pytest.fixture(autouse=True, scope="module")
def graders(tmp_path_factory):
    with new_graders(tmp_path_factory.mktemp("scratch")):
        yield


@pytest.fixture
def grader(monkeypatch):
    """The only idle grader, ready for questions. The tests after take it over if it is unharmed."""
    shared, own = rlvr.tasks.IDLE_GRADERS, queue.SimpleQueue()
    process = rlvr.tasks.start_grader() if shared.empty() else shared.get()
    own.put(process)
    monkeypatch.setattr(rlvr.tasks, "IDLE_GRADERS", own)
    assert rlvr.tasks.grade(FIVE, 30) == (1.0, "")
    yield process
    if process.poll() is None and not process.stdin.closed:
        shared.put(process)


# ------------------------------------------------------------------------- without a grader


@pytest.mark.parametrize(
    "text, reward",
    [
        ("<answer>3+9*5</answer>", 1.0),
        ("<answer>(5*9)+3</answer>", 1.0),
        ("<answer>1+1</answer><answer>3+9*5</answer>", 1.0),
        ("<answer>3+9*5</answer><answer>1+1</answer>", 0.0),
        ("<answer>48</answer>", 0.0),
        ("<answer>3*9+5</answer>", 0.0),
        ("3+9*5", 0.0),
        (r"\boxed{3+9*5}", 0.0),
        ("<answer>3+9*5=48</answer>", 0.0),
        ("<answer>9**9**9**9</answer>", 0.0),
    ],
)
def test_countdown(text, reward):
    assert rlvr.tasks.grade(("countdown", text, "3 9 5 : 48 ")) == (reward, "")


def test_countdown_takes_whole_numbers_only():
    question = "countdown", "<answer>1.5*2</answer>", "1 5 2 : 3 "
    assert rlvr.tasks.grade(question) == (0.0, "")


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_only_what_can_run_for_ever_goes_to_a_grader(monkeypatch, verifier):
    started = []

    def start_grader():
        started.append(verifier)
        raise RuntimeError("no grader here")

    monkeypatch.setattr(rlvr.tasks, "IDLE_GRADERS", queue.SimpleQueue())
    monkeypatch.setattr(rlvr.tasks, "start_grader", start_grader)
    with contextlib.suppress(RuntimeError):
        rlvr.tasks.grade((verifier, "nothing", "1 2 : 3 "))
    assert started == ([verifier] if verifier in ("math", "code") else [])


@pytest.mark.parametrize("cores, ranks, threads", [(8, 1, 8), (8, 4, 2), (2, 4, 1)])
def test_the_ranks_of_a_machine_share_its_cores(monkeypatch, cores, ranks, threads):
    made = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers):
            made.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(rlvr.tasks, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", ranks)
    assert rlvr.tasks.in_threads(lambda number: 2 * number, [3, 1, 2]) == [6, 2, 4]
    assert made == [threads]


# ---------------------------------------------------------------------------- hostile answers


@pytest.mark.parametrize(
    "answer, gold",
    [
        ("1" * 5000, "5"),
        ("9" * 100_000, "5"),
        ("(" * 3000 + "5" + ")" * 3000, "6"),
        # each of these takes as long
        pytest.param("1+" * 3000 + "1", "5", marks=pytest.mark.slow),
        pytest.param(r"\frac{1}{" * 300 + "2" + "}" * 300, "5", marks=pytest.mark.slow),
        pytest.param(r"\left(" * 100, "5", marks=pytest.mark.slow),
        ("x" * 5000 + "=5", "6"),
        (r"\text{" + "a" * 9999, "b"),
        ("\ud800", "5"),
        ("\0", "5"),
        (r"\input{/etc/passwd}", "5"),
        (r"\undefined\command", "5"),
        ("_^_^", "5"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_odd_answers_score_0(answer, gold):
    start = time.monotonic()
    assert rlvr.tasks.grade(("math", f"\\boxed{{{answer}}}", gold), 1)[0] == 0
    assert time.monotonic() - start < 2.5


@pytest.mark.parametrize(
    "tower", [TOWERS[0], *(pytest.param(tower, marks=pytest.mark.slow) for tower in TOWERS[1:])]
)
def test_towers_time_out(tower, grader):
    start = time.monotonic()
    assert rlvr.tasks.grade(("math", boxed(tower), "5"), 1) == (0.0, "timeout")
    assert 0.9 < time.monotonic() - start < 2.5


@pytest.mark.parametrize("towers", [TOWERS[:1], pytest.param(TOWERS, marks=pytest.mark.slow)])
def test_towers_do_not_harm_their_batch(towers):
    good = [("math", boxed(n), str(n % 3)) for n in range(9)]
    bad = [("math", boxed(tower), "5") for tower in towers]
    code = [
        ("code", block(program), json.dumps(ASSERTIONS)) for program in (ADD, "while True: pass")
    ]
    questions = [*good[:3], *bad, *code, *good[3:]]
    right, wrong, late = (1.0, ""), (0.0, ""), (0.0, "timeout")
    expected = [*[right] * 3, *[late] * len(towers), right, late, *[wrong] * 6]
    assert grade_all(questions, 1) == expected


# -------------------------------------------------------------------------------- the processes


def test_a_killed_grader_is_replaced(grader):
    killer = threading.Timer(0.5, os.kill, (grader.pid, signal.SIGKILL))
    start = time.monotonic()
    killer.start()
    assert rlvr.tasks.grade(("math", boxed(TOWERS[0]), "5"), 30) == (0.0, "timeout")
    assert time.monotonic() - start < 5
    assert grader.poll() is not None
    assert rlvr.tasks.grade(FIVE, 30) == (1.0, "")
    assert rlvr.tasks.IDLE_GRADERS.get().pid != grader.pid


@pytest.mark.parametrize(
    "text, gold, reply",
    [
        (boxed("5"), "5", (1.0, "")),
        (boxed("6"), "5", (0.0, "")),
        ("no box", "5", (0.0, "unparsed")),
        (boxed("5"), None, (0.0, "unparsed")),  # no text, so that the verifier raises a TypeError
    ],
)
def test_a_grader_is_used_again(grader, text, gold, reply):
    assert rlvr.tasks.grade(("math", text, gold), 30) == reply
    assert rlvr.tasks.IDLE_GRADERS.get_nowait() is grader
    assert grader.poll() is None


def test_a_grader_ends_with_the_process_that_asks(grader):
    """Its standard input closes then, even where that process was killed."""
    rlvr.tasks.IDLE_GRADERS.get()
    grader.stdin.close()
    assert grader.wait(timeout=10) == 0


def test_ctrl_c_does_not_reach_a_grader(grader):
    assert os.getsid(grader.pid) == grader.pid != os.getsid(0)


def test_the_memory_of_a_grader_is_limited(grader):
    assert resource.prlimit(grader.pid, resource.RLIMIT_AS) == (2**32, 2**32)


def test_a_grader_starts_in_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(rlvr.tasks, "IDLE_GRADERS", queue.SimpleQueue())
    assert rlvr.tasks.grade(FIVE, 30) == (1.0, "")
