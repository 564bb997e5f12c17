"""Graders: what goes to them, deadlines, graders that die, a file of answers; verifiers' fields."""

import json
import math
import os
import queue
import resource
import signal
from functools import partial
from unittest.mock import Mock

import rlvr.verify.__main__ as command
import rlvr.verify.grader
import rlvr.verify.pool as pool
from rlvr.errors import UserError
from rlvr.tasks.datasets import with_golds
from rlvr.tasks.problems import Problem
from rlvr.verify.answers import boxed, mathematics
from rlvr.verify.pool import grade
from rlvr.verify.programs.isolation import OutOfTime
from rlvr.verify.verifiers import VERIFIERS, Verifier

import numpy
import pytest
from grading import ADD, ASSERTIONS, block

FIVE = ("math", boxed("5"), "5")


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    yield pool.IDLE_GRADERS
    while not pool.IDLE_GRADERS.empty():
        process = pool.IDLE_GRADERS.get().process
        process.kill()
        process.wait()


@pytest.fixture
def grader(idle, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    grader = pool.start_grader()
    idle.put(grader)
    return grader


def test_a_deadline_is_kept():
    """Of an answer that takes for ever; what is late is worth as much as no answer."""
    endless = ("math", boxed(r"\sum_{n=1}^{\infty} \frac{\sin n}{n^3+1}"), "5")
    assert grade(endless, 0.2) == (0.0, "timeout")


def test_a_grader_is_a_process_of_its_own(grader, idle):
    """Used again, out of reach of Ctrl-C, of limited memory; it ends with the process that asks."""
    assert grade(FIVE, 60) == grade(FIVE, 60) == (1.0, "")
    assert idle.get_nowait() is grader
    assert os.getsid(grader.process.pid) == grader.process.pid != os.getsid(0)
    assert resource.prlimit(grader.process.pid, resource.RLIMIT_AS) == (2**32, 2**32)
    grader.socket.close()
    assert grader.process.wait(timeout=60) == 0


def test_the_replies_of_a_grader(monkeypatch):
    """The timer is off again before each reply, so that no idle grader dies of it."""
    happened = []
    errors = dict(late=OutOfTime(), large=MemoryError(), broken=UserError("no sandbox"))
    errors["odd"] = NameError("name 'x' is not defined")  # which no text is to blame for
    for name, error in errors.items():
        load = partial(happened.append, "loaded") if name == "odd" else None
        entry = Verifier(Mock(side_effect=error), load=load, keeps_time=name == "late")
        monkeypatch.setitem(VERIFIERS, name, entry)
    questions = iter([[name, boxed("5"), "5", 7, 60] for name in ("math", *errors)])
    pipe = Mock(read=lambda: "ready", ask=lambda reply: happened.append(reply) or next(questions))
    monkeypatch.setattr(rlvr.verify.grader, "Pipe", lambda: pipe)
    monkeypatch.setattr(rlvr.verify.grader, "limit", lambda **_: None)
    monkeypatch.setattr(signal, "setitimer", lambda timer, seconds: happened.append(seconds))
    with pytest.raises(StopIteration):
        rlvr.verify.grader.main()
    replies = [(1.0, ""), (None, "timeout"), (None, "memory"), ("no sandbox", "error")]
    timers = (7, 7 + 60 + 4 * 30, 7, 7)  # one that keeps its own time may start two sandboxes
    timed = zip(timers, (0, 0, 0, 0), replies, strict=True)
    *others, timer, off, (message, status, details) = happened
    # the last verifier is loaded before the time of its answer runs
    assert others == ["ready", *(each for three in timed for each in three), 30, "loaded"]
    assert (timer, off, status) == (7, 0, "error")
    assert message == "the verifier odd failed: NameError: name 'x' is not defined"
    assert details.startswith("Traceback") and details.endswith(f"was {boxed('5')!r}\n")


def test_threads_share_the_cores_of_a_machine_with_other_ranks(monkeypatch):
    """Each rank has one at least."""
    threads = Mock(wraps=pool.ThreadPoolExecutor)
    monkeypatch.setattr(pool, "ThreadPoolExecutor", threads)
    monkeypatch.setattr(pool.world, "LOCAL_WORLD_SIZE", 999)
    assert pool.in_threads(abs, [-1, 2], "counting") == [1, 2]
    threads.assert_called_once_with(1)


ENDS = [("ALRM", "timeout"), ("KILL", "memory"), ("SEGV", "crash")]


@pytest.mark.parametrize("number, status", ENDS)
def test_a_killed_grader_is_replaced(grader, monkeypatch, number, status):
    """With the question that it died of it costs a reward, and none where it died idle."""
    grader.process.send_signal(getattr(signal, f"SIG{number}"))
    with monkeypatch.context() as patch:
        patch.setattr(grader.process, "poll", lambda: None)
        assert grade(FIVE, 60) == (0.0, status)
    pool.IDLE_GRADERS.put(grader)
    assert grade(FIVE, 60) == (1.0, "")


def test_a_grader_that_does_not_start_or_cannot_judge(monkeypatch, tmp_path):
    """An error with its cause, no endless attempts, and no program that is graded as wrong."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: no sympy' >&2\nexit 1\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(pool.sys, "executable", str(broken))
        with pytest.raises(RuntimeError, match="python -m rlvr.verify.grader .* no sympy"):
            grade(FIVE, 60)
    monkeypatch.setattr(pool, "ask_a_grader", lambda *_: ["no sandbox", "error"])
    with pytest.raises(UserError, match="no sandbox"):
        grade(FIVE, 60)


@pytest.fixture
def entry(monkeypatch):
    """entry(...) is a Verifier under the name `mine`."""
    return lambda *rest, **named: monkeypatch.setitem(VERIFIERS, "mine", Verifier(*rest, **named))


def test_a_reward_is_any_finite_number(entry):
    """Whatever its type, it becomes a float, which the logs can hold. None is no answer."""
    for given, reward in ((0, 0), (0.25, 0.25), (True, 1), (numpy.float32(0.5), 0.5), (None, 0)):
        entry(lambda text, gold, given=given: given)
        found = grade(("mine", "text", "gold"))
        assert found == (reward, "unparsed" if given is None else "")
        assert type(found[0]) is float
    for reward in (math.nan, math.inf, "yes"):
        entry(lambda text, gold, reward=reward: reward)
        with pytest.raises(ValueError, match=f"mine gave {reward!r}, which is no finite") as raised:
            grade(("mine", "text", "gold"))
        assert raised.value.__notes__ == ["The completion was 'text'"]


def test_a_broken_library_is_an_error(monkeypatch, tmp_path):
    """It says what is broken; the other verifiers still judge."""
    (tmp_path / "latex2sympy2_extended.py").write_text("raise ImportError('it has moved')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UserError) as error:
        grade(("math", boxed("x+1"), "1+x"), 60)
    assert str(error.value) == "the verifier math failed: ImportError: it has moved"
    assert grade(("number", boxed("5"), "5"), 60) == (1.0, "")


def test_a_library_that_cannot_read_anything_is_an_error(monkeypatch):
    """A text that latex2sympy cannot read is the text's fault, if it can read another."""
    assert mathematics.parse.__wrapped__("x+") == []
    changed = Mock(side_effect=TypeError("an unexpected keyword argument 'is_real'"))
    monkeypatch.setattr("latex2sympy2_extended.latex2sympy", changed)
    with pytest.raises(TypeError, match="'is_real'"):
        mathematics.parse.__wrapped__("x+1")


def test_graders_are_asked_by_threads_wherever_one_is_needed(monkeypatch):
    monkeypatch.setattr(pool, "in_threads", Mock(return_value="graded"))
    countdown = ("countdown", "", "3 9 5 : 48")
    assert pool.grade_all([countdown, FIVE]) == "graded"
    assert pool.grade_all([countdown, countdown]) == [(0.0, "")] * 2


def test_the_answers_that_the_logs_count():
    text, boxless = rf"1 <answer>2</answer> {boxed('3')} 4", "1 <answer>2</answer> 4"
    found = {name: [*map(each.extract, (text, boxless))] for name, each in VERIFIERS.items()}
    of_answers = dict(math=["3", "NA"], number=["3", "2"], choice=["3", "2"], countdown=["2", "2"])
    of_answers |= dict(last_number=["4", "4"], code=[text, boxless], reasoning_gym=[text, boxless])
    assert found == of_answers
    assert [name for name, each in VERIFIERS.items() if not each.isolated] == ["countdown"]


def test_which_problems_are_kept(entry):
    """The example of a gold has to be a success: rewards are 0.5 and 1 here."""
    entry(lambda text, gold: float(text.strip("#")) / 2, example=lambda gold: f"#{gold}#")
    problems = [Problem("What?", gold, "mine") for gold in ("1", "2")]
    assert with_golds("own", problems) == problems[1:]
    programs = [Problem("Why?", "unit tests", "code")]
    assert with_golds("own", programs) == programs


def test_rewards_and_statuses(tmp_path, capsys, monkeypatch):
    judged = [
        ("math", boxed("5"), ["5", "6"]),
        ("math", "five", "5"),
        ("code", block(ADD.replace("+", "-")), json.dumps(ASSERTIONS)),
    ]
    lines = [json.dumps(dict(verifier=v, text=text, gold=gold)) for v, text, gold in judged]
    file = tmp_path / "answers.jsonl"
    file.write_text("\ufeff" + "\n\n".join(lines))  # blank lines and a byte order mark say nothing
    monkeypatch.setattr("rlvr.progress.last", 0.0)  # no count is printed of what takes a moment
    command.main([str(file)])
    said = ["line 1: 1", "line 3: 0 unparsed", "line 5: 0", "mean reward: 0.333"]
    assert capsys.readouterr().out.splitlines() == said
    logged = [(1.0, "right"), (0.0, "wrong"), (1.0, "right"), (0.0, "wrong"), (0.5, None)]
    of_a_run = [dict(reward=reward, verdict=verdict) for reward, verdict in logged]
    graded = [json.loads(line) for line in [*lines, lines[2], lines[2]]]
    file.write_text("\n".join(json.dumps(a | b) for a, b in zip(graded, of_a_run, strict=True)))
    command.main([str(file)])
    said = ["line 1: 1", "line 2: 0 unparsed (was 0.0 wrong)", "line 3: 0 (was 1.0 right)"]
    said += ["line 4: 0", "line 5: 0 (was 0.5)", "mean reward: 0.2"]
    assert capsys.readouterr().out.splitlines() == said
    with pytest.raises(SystemExit, match="2"):
        command.main([str(tmp_path / "absent")])
    assert "cannot use" in capsys.readouterr().err


NO_QUESTIONS = """no JSON => JSONDecodeError
7 => TypeError
{"verifier": "math", "text": ""} => KeyError('gold')
{"verifier": "countdown", "text": "", "gold": "48"} => ValueError
{"verifier": "maths", "text": "", "gold": "5"} => there is no verifier 'maths'; there are countdown
{"verifier": "math", "text": "", "gold": 5} => ValueError
{"verifier": "math", "text": "", "gold": ["5", ""]} => ValueError
{"verifier": "math", "text": 5, "gold": "5"} => ValueError('no text, or no usable gold')"""


@pytest.mark.parametrize("line", NO_QUESTIONS.split("\n"))
def test_what_cannot_work_is_one_line(tmp_path, capsys, line):
    file = tmp_path / "answers.jsonl"
    line, wrong = line.split(" => ")
    file.write_text(f"\n{line}")
    with pytest.raises(SystemExit) as end:
        command.main([str(file)])
    told = capsys.readouterr()
    assert (end.value.code, told.out, told.err.count("\n")) == (2, "", 1)
    where = "" if "maths" in line else f"{file}, line 2: no JSON with verifier, text and gold: "
    assert where + wrong in told.err
