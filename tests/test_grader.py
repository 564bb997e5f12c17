"""`grade`: which answers go to a grader, deadlines, hostile answers, and graders that die."""

import contextlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import rlvr.tasks.pool
from rlvr import world
from rlvr.errors import UserError
from rlvr.tasks.verifiers import VERIFIERS

import pytest
from grading import ADD, ASSERTIONS, block, boxed, grade_all, new_graders
from runs import first_fast

FIVE = ("math", boxed("5"), "5")
TOWERS = ["(x+y+z+1)^{200}", "9^{9^{9^9}}", "10^8!", "(10^8)!", "2^{2^{2^{2^{2^{2}}}}}"]
ENDLESS = ("code", block("while True: pass"), json.dumps(ASSERTIONS))


@pytest.fixture(autouse=True, scope="module")
def graders(tmp_path_factory):
    with new_graders(tmp_path_factory.mktemp("scratch")):
        yield


@pytest.fixture
def grader(monkeypatch):
    """The only idle grader, ready for questions. The tests after take it over if it is unharmed."""
    shared, own = rlvr.tasks.pool.IDLE_GRADERS, queue.SimpleQueue()
    process = rlvr.tasks.pool.start_grader() if shared.empty() else shared.get()
    own.put(process)
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", own)
    assert rlvr.tasks.pool.grade(FIVE, 30) == (1.0, "")
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
    assert rlvr.tasks.pool.grade(("countdown", text, "3 9 5 : 48 ")) == (reward, "")


def test_countdown_takes_whole_numbers_only():
    question = "countdown", "<answer>1.5*2</answer>", "1 5 2 : 3 "
    assert rlvr.tasks.pool.grade(question) == (0.0, "")


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_only_what_can_run_for_ever_goes_to_a_grader(monkeypatch, verifier):
    started = []

    def start_grader():
        started.append(verifier)
        raise RuntimeError("no grader here")

    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    monkeypatch.setattr(rlvr.tasks.pool, "start_grader", start_grader)
    with contextlib.suppress(RuntimeError):
        rlvr.tasks.pool.grade((verifier, "nothing", "1 2 : 3 "))
    assert started == ([verifier] if VERIFIERS[verifier].isolated else [])


@pytest.mark.parametrize("cores, ranks, threads", [(8, 1, 8), (8, 4, 2), (2, 4, 1)])
def test_the_ranks_of_a_machine_share_its_cores(monkeypatch, cores, ranks, threads):
    made = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers):
            made.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(rlvr.tasks.pool, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(cores))
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", ranks)
    assert rlvr.tasks.pool.in_threads(lambda number: 2 * number, [3, 1, 2]) == [6, 2, 4]
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
    assert rlvr.tasks.pool.grade(("math", f"\\boxed{{{answer}}}", gold), 1)[0] == 0
    assert time.monotonic() - start < 2.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "tower", [TOWERS[0], *(pytest.param(tower, marks=pytest.mark.slow) for tower in TOWERS[1:])]
)
def test_towers_end_in_time(tower):
    start = time.monotonic()
    assert rlvr.tasks.pool.grade(("math", boxed(tower), "5"), 1)[0] == 0
    assert time.monotonic() - start < 2.5


def test_a_deadline_is_kept(grader):
    start = time.monotonic()
    assert rlvr.tasks.pool.grade(("math", boxed(TOWERS[0]), "5"), 0.2) == (0.0, "timeout")
    assert 0.1 < time.monotonic() - start < 2


@pytest.mark.slow
@pytest.mark.parametrize("towers", [TOWERS[:1], TOWERS])
def test_towers_do_not_harm_their_batch(towers):
    good = [("math", boxed(n), str(n % 3)) for n in range(9)]
    bad = [("math", boxed(tower), "5") for tower in towers]
    code = [
        ("code", block(program), json.dumps(ASSERTIONS)) for program in (ADD, "while True: pass")
    ]
    questions = [*good[:3], *bad, *code, *good[3:]]
    found = grade_all(questions, 1)
    assert [reward for reward, _ in found] == [1, 1, 1, *[0] * len(towers), 1, 0, *[0] * 6]
    assert found[len(towers) + 4] == (0.0, "timeout")


# -------------------------------------------------------------------------------- the processes


def test_a_killed_grader_is_replaced(grader):
    killer = threading.Timer(0.5, os.kill, (grader.pid, signal.SIGKILL))
    start = time.monotonic()
    killer.start()
    assert rlvr.tasks.pool.grade(ENDLESS, 30, 30) == (0.0, "timeout")
    assert time.monotonic() - start < 5
    assert grader.poll() is not None
    assert rlvr.tasks.pool.grade(FIVE, 30) == (1.0, "")
    assert rlvr.tasks.pool.IDLE_GRADERS.get().pid != grader.pid


@pytest.mark.parametrize("count", [1, 3])
def test_graders_that_died_while_idle_cost_no_reward(monkeypatch, count):
    """Killed, and found dead at the next questions, whose answers are right."""
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    dead = [rlvr.tasks.pool.start_grader() for _ in range(count)]
    for process in dead:
        process.kill()
        rlvr.tasks.pool.IDLE_GRADERS.put(process)
    assert [rlvr.tasks.pool.grade(FIVE, 30) for _ in range(2)] == [(1.0, "")] * 2
    assert all(process.stdin.closed for process in dead)


def talking(program):
    """A process in a grader's place: Python that reads questions and writes what it likes."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import json, sys\nfor line in sys.stdin:\n    {program}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )


SAY = "number = json.loads(line)[0]; say = lambda *each: print(*each, sep='\\n', flush=True); "
READ = SAY + "say(json.dumps([number, 'read']))"


@pytest.mark.parametrize(
    "reply",
    [
        *("5", "null", "[]", "{}", '"ab"', "no JSON", "", "\ud800", "[1.0, 2.0, 3.0]"),
        *("[NUMBER]", "[NUMBER, null]", "[NUMBER, 1, 2]", '[NUMBER, 1.0, "right"]'),
        *('[NUMBER, NaN, ""]', '[NUMBER, "1", ""]', '[NUMBER, 1.0, "", ""]', '[0.5, 1.0, ""]'),
    ],
)
def test_a_reply_of_the_wrong_form_is_passed_over(monkeypatch, reply):
    """Whatever it is, and the right one after it counts."""
    wrong = repr(reply.encode(errors="replace").decode())
    program = READ + f"; say({wrong}.replace('NUMBER', str(number)), json.dumps([number, 0.5, '']))"
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    rlvr.tasks.pool.IDLE_GRADERS.put(process := talking(program))
    assert rlvr.tasks.pool.grade(FIVE, 30) == (0.5, "")
    assert rlvr.tasks.pool.IDLE_GRADERS.get() is process
    rlvr.tasks.pool.end(process)


@pytest.mark.parametrize("last", ["say('[1.0]')", "say(json.dumps([number - 1, 1.0, '']))"])
def test_a_grader_without_a_reply_is_replaced(monkeypatch, last):
    """It has read the question, says something else, and ends."""
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    rlvr.tasks.pool.IDLE_GRADERS.put(talking(f"{READ}; {last}; sys.exit()"))
    assert rlvr.tasks.pool.grade(FIVE, 30) == (0.0, "timeout")
    assert rlvr.tasks.pool.grade(FIVE, 30) == (1.0, "")


def test_what_a_library_prints_is_no_reply(monkeypatch, tmp_path):
    """Here all that reads JSON prints. Replies have a pipe that print does not reach."""
    noisy = "import json\nreal = json.loads\n"
    noisy += "def loads(text):\n    print('noise', flush=True)\n    return real(text)\n"
    (tmp_path / "sitecustomize.py").write_text(f"{noisy}json.loads = loads\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = rlvr.tasks.pool.start_grader()
    question = json.dumps([7, "math", boxed("5"), "5", 30, 30])
    said, _ = process.communicate(f"{question}\n", timeout=60)
    assert said == '[7, "read"]\n[7, 1.0, ""]\n'


def test_a_machine_that_runs_no_program_is_an_error(monkeypatch):
    """It is told by the grader, which goes on."""
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    says = "say(json.dumps([number, 'error', 'no sandbox starts']))"
    process = talking(f"{READ}; {says}; sys.stdin.read()")
    rlvr.tasks.pool.IDLE_GRADERS.put(process)
    with pytest.raises(UserError, match="^no sandbox starts$"):
        rlvr.tasks.pool.grade(FIVE, 30)
    assert rlvr.tasks.pool.IDLE_GRADERS.get_nowait() is process
    rlvr.tasks.pool.end(process)


def test_a_grader_says_that_no_program_can_be_run(monkeypatch, tmp_path):
    """Where the system refuses every new process, no program is graded as wrong."""
    full = "import subprocess\ndef refuse(*_, **__):\n    raise BlockingIOError(11, 'try again')\n"
    (tmp_path / "sitecustomize.py").write_text(f"{full}subprocess.Popen = refuse\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = rlvr.tasks.pool.start_grader()
    question = json.dumps([7, "code", block(ADD), json.dumps(ASSERTIONS), 30, 30])
    said, _ = process.communicate(f"{question}\n", timeout=60)
    read, reply = (json.loads(line) for line in said.splitlines())
    assert read == [7, "read"]
    assert reply[:2] == [7, "error"]
    assert reply[2].startswith("programs cannot be run here: ")


def test_a_grader_that_does_not_start(monkeypatch):
    """An error, and no endless attempts."""
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    monkeypatch.setattr(rlvr.tasks.pool, "start_grader", lambda: talking("sys.exit()"))
    with pytest.raises(RuntimeError, match="a grader does not start"):
        rlvr.tasks.pool.grade(FIVE, 30)


def test_an_unknown_verifier_is_an_error():
    with pytest.raises(UserError, match="there is no verifier 'maths'; there are .*math"):
        rlvr.tasks.pool.grade(("maths", boxed("5"), "5"))


@pytest.mark.parametrize("verifier", first_fast(["math", "number", "choice"]))
def test_long_texts_have_a_deadline(grader, verifier):
    start = time.monotonic()
    text = "\\boxed{" * 1_000_000
    assert rlvr.tasks.pool.grade((verifier, text, "5"), 0.05) == (0.0, "timeout")
    assert time.monotonic() - start < 10
    assert rlvr.tasks.pool.grade(FIVE, 30) == (1.0, "")


def test_long_lists_say_how_far_they_are(monkeypatch, capsys):
    """Only where they take long, where they are named, and by one rank."""
    rlvr.tasks.pool.in_threads(str, [1, 2, 3], "golds")
    monkeypatch.setattr(rlvr.tasks.pool, "SECONDS_BETWEEN_NEWS", 0.0)
    rlvr.tasks.pool.in_threads(str, [1, 2, 3])
    assert capsys.readouterr().out == ""
    assert rlvr.tasks.pool.in_threads(str, [1, 2, 3], "golds") == ["1", "2", "3"]
    assert capsys.readouterr().out == "golds: 1 of 3\ngolds: 2 of 3\ngolds: 3 of 3\n"
    monkeypatch.setattr(world, "RANK", 1)
    rlvr.tasks.pool.in_threads(str, [1, 2, 3], "golds")
    assert capsys.readouterr().out == ""


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
    assert rlvr.tasks.pool.grade(("math", text, gold), 30) == reply
    assert rlvr.tasks.pool.IDLE_GRADERS.get_nowait() is grader
    assert grader.poll() is None


def test_a_grader_ends_with_the_process_that_asks(grader):
    """Its standard input closes then, even where that process was killed."""
    rlvr.tasks.pool.IDLE_GRADERS.get()
    grader.stdin.close()
    assert grader.wait(timeout=10) == 0


def test_ctrl_c_does_not_reach_a_grader(grader):
    assert os.getsid(grader.pid) == grader.pid != os.getsid(0)


def test_the_memory_of_a_grader_is_limited(grader):
    assert resource.prlimit(grader.pid, resource.RLIMIT_AS) == (2**32, 2**32)


def test_a_grader_starts_in_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(rlvr.tasks.pool, "IDLE_GRADERS", queue.SimpleQueue())
    assert rlvr.tasks.pool.grade(FIVE, 30) == (1.0, "")
