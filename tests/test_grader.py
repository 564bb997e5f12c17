"""Graders: deadlines, ends, a file of answers; verifiers' fields; a reward of one's own."""

import json
import math
import os
import queue
import resource
import select
import signal
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import rlvr.verify.__main__ as command
import rlvr.verify.grader
import rlvr.verify.pool as pool
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import load_problems
from rlvr.verify.answers import boxed, mathematics
from rlvr.verify.pool import grade
from rlvr.verify.programs.isolation import OutOfTime
from rlvr.verify.verifiers import SYSTEM_PROMPTS, VERIFIERS, Verifier, find_verifier, own_verifier

import numpy
import pytest
from grading import ASSERTIONS, block
from runs import real_load_problems, rows

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
    load = partial(happened.append, "loaded")
    entries = dict(
        late=Verifier(Mock(side_effect=OutOfTime), load=load, keeps_time=True),
        large=Verifier(Mock(side_effect=MemoryError)),
        broken=Verifier(Mock(side_effect=UserError("no sandbox"))),
    )
    for name, entry in entries.items():
        monkeypatch.setitem(VERIFIERS, name, entry)
    questions = iter([[name, boxed("5"), "5", 7, 60] for name in ("math", *entries)])
    pipe = Mock(read=lambda: "ready", ask=lambda reply: happened.append(reply) or next(questions))
    monkeypatch.setattr("rlvr.verify.grader.Pipe", lambda: pipe)
    monkeypatch.setattr("rlvr.verify.grader.limit", lambda **_: None)
    monkeypatch.setattr(signal, "setitimer", lambda timer, seconds: happened.append(seconds))
    with pytest.raises(StopIteration):
        rlvr.verify.grader.main()
    assert happened == [
        "ready",
        *(7, 0, (1.0, "")),
        *(30, "loaded"),  # before the time of the answer runs
        *(7 + 60 + 4 * 30, 0, (None, "timeout")),  # it keeps its own time; two sandboxes may start
        *(7, 0, (None, "memory")),
        *(7, 0, ("no sandbox", "error")),
    ]


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


def test_a_grader_that_does_not_start(monkeypatch, tmp_path):
    """An error with its cause, and no endless attempts."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: no sympy' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(pool.sys, "executable", str(broken))
    with pytest.raises(RuntimeError, match="python -m rlvr.verify.grader .* no sympy"):
        grade(FIVE, 60)


def test_a_reward_is_any_finite_number(monkeypatch):
    """Whatever its type, it becomes a float, which the logs can hold. None is no answer."""
    for given, reward in ((0, 0), (0.25, 0.25), (True, 1), (numpy.float32(0.5), 0.5), (None, 0)):
        monkeypatch.setitem(VERIFIERS, "mine", Verifier(Mock(return_value=given)))
        found = grade(("mine", "text", "gold"))
        assert found == (reward, "unparsed" if given is None else "")
        assert type(found[0]) is float
    for reward in (math.nan, math.inf, 10**39):
        monkeypatch.setitem(VERIFIERS, "mine", Verifier(Mock(return_value=reward)))
        with pytest.raises(ValueError, match=f"mine gave {reward!r}, which is no finite"):
            grade(("mine", "text", "gold"))


def test_a_broken_library_is_an_error(monkeypatch, tmp_path):
    """It says what is broken; the other verifiers still judge."""
    (tmp_path / "latex2sympy2_extended.py").write_text("raise ImportError('it has moved')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UserError, match="^the verifier math failed: ImportError: it has moved"):
        grade(("math", boxed("x+1"), "1+x"), 60)
    assert grade(("number", boxed("5"), "5"), 60) == (1.0, "")
    # a text that latex2sympy cannot read is the text's fault, if it can read another
    assert mathematics.parse.__wrapped__("x+") == []
    changed = Mock(side_effect=TypeError("an unexpected keyword argument 'is_real'"))
    monkeypatch.setattr("latex2sympy2_extended.latex2sympy", changed)
    with pytest.raises(TypeError, match="'is_real'"):
        mathematics.parse.__wrapped__("x+1")


def test_graders_are_asked_by_threads_wherever_one_is_needed(monkeypatch):
    """By one thread at least where many ranks share the cores of a machine."""
    threads = Mock(wraps=pool.ThreadPoolExecutor)
    monkeypatch.setattr(pool, "ThreadPoolExecutor", threads)
    monkeypatch.setattr(pool.world, "LOCAL_WORLD_SIZE", 999)
    assert pool.in_threads(abs, [-1, 2], "counting") == [1, 2]
    threads.assert_called_once_with(1)
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


def test_rewards_and_statuses(tmp_path, capsys, monkeypatch):
    """Those that differ from what a run has logged are shown beside it."""
    five = dict(verifier="math", text=boxed("5"), gold=[5, "6"])  # as a data set may have them
    unread = dict(verifier="math", text="five", gold="5")
    passes_one = dict(verifier="code", text=block("def add(a, b): return 3"), gold=ASSERTIONS)
    right, wrong = dict(reward=1.0, verdict="right"), dict(reward=0.0, verdict="wrong")
    judged = [five, unread, five | right, unread | wrong, passes_one | right, passes_one | wrong]
    judged.append(passes_one | dict(reward=0.5))
    file = tmp_path / "answers.jsonl"
    # blank lines and a byte order mark say nothing
    file.write_text("\ufeff" + "\n\n".join(map(json.dumps, judged)))
    monkeypatch.setattr("rlvr.progress.last", 0.0)  # no count is printed of what takes a moment
    command.main([str(file)])
    said = ["line 1: 1", "line 3: 0 unparsed", "line 5: 1", "line 7: 0 unparsed (was 0.0 wrong)"]
    said += ["line 9: 0 (was 1.0 right)", "line 11: 0", "line 13: 0 (was 0.5)"]
    assert capsys.readouterr().out.splitlines() == [*said, "mean reward: 0.286"]
    with pytest.raises(SystemExit, match="2"):
        command.main([str(tmp_path / "absent")])
    assert "cannot use" in capsys.readouterr().err


NO_QUESTIONS = """no JSON => JSONDecodeError
7 => TypeError
{"verifier": "math", "text": ""} => KeyError('gold')
{"verifier": "countdown", "text": "", "gold": "48"} => ValueError
{"verifier": "maths", "text": "", "gold": "5"} => there is no verifier 'maths'; there are countdown
{"verifier": "math", "text": "", "gold": ["5", ""]} => ValueError
{"verifier": "math", "text": 5, "gold": "5"} => ValueError('no text, or no usable gold')"""


@pytest.mark.parametrize("line", NO_QUESTIONS.split("\n"))
def test_what_cannot_work_is_one_line(tmp_path, capsys, monkeypatch, line):
    monkeypatch.setattr("sys.argv", [command.__file__])
    file = tmp_path / "answers.jsonl"
    line, wrong = line.split(" => ")
    file.write_text(f"\n{line}")
    with pytest.raises(SystemExit) as end:
        command.main([str(file)])
    told = capsys.readouterr()
    assert (end.value.code, told.out, told.err.count("\n")) == (2, "", 1)
    where = "" if "maths" in line else f"{file}, line 2: no usable verifier, text and gold: "
    assert told.err.startswith("verify: error: ") and where + wrong in told.err


FILE = """
import helper, json, os, signal, subprocess
def fails(text, gold): return 1 / len(text)
def word(text, gold): return "yes"
def leaves(text, gold): raise SystemExit
def dies(text, gold): os._exit(0)
def large(text, gold): raise MemoryError
def one(text): return 1
def loops(text, gold):
    subprocess.Popen(["sleep", "99"], stdout=open(f"{os.path.dirname(__file__)}/fifo", "w"))
    signal.alarm(0)
    while True: pass
def echo(text, gold): return float(json.dumps(gold) == text) * helper.WORTH
def half(text, gold): return 0.5 if text else None
"""
# What is said of a function on an empty text, also in notes
ERRORS = """
fails => own.py:fails failed: ZeroDivisionError: division by zero => in fails
word => own.py:word gave 'yes', which is no finite number => The completion was ''
leaves => own.py:leaves failed: SystemExit => in leaves
one => takes 1 positional argument but 2 were given => The completion was ''
absent => own.py:absent: there is no function 'absent' in that file =>
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("helper.py").write_text("WORTH = 2")
    Path("own.py").write_text(FILE)
    yield tmp_path / "own.py"
    own_verifier.cache_clear()


def test_what_fails_is_an_error(own):
    for line in ERRORS.strip().splitlines():
        function, message, note = [part.strip() for part in line.split("=>")]
        with pytest.raises(UserError) as error:
            pool.grade((f"{own}:{function}", "", "gold"), 60)
        assert message in str(error.value)
        assert note in "".join(getattr(error.value, "__notes__", [""]))


def test_what_ends_a_grader_is_an_error_at_the_start(own, monkeypatch):
    """Later it is a reward of 0. One function stops the timer, and starts a program that ends."""
    os.mkfifo("fifo")
    fifo = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    for function, status in (("dies", "crash"), ("large", "memory"), ("loops", "timeout")):
        monkeypatch.setattr(pool, "FOREVER", 60.0 if function != "loops" else 3.0)
        with pytest.raises(UserError, match=f":{function}: {status}, already for an empty compl"):
            pool.try_own(f"{own}:{function}", "gold")
    assert select.select([fifo], [], [], 60)[0]  # nobody writes there any more
    os.close(fifo)


@pytest.mark.parametrize("text", [None, "def score(text, gold:", "\0"])
def test_a_file_that_cannot_be_run(own, text):
    if text:
        Path("wrong.py").write_text(f"\n{text}")
    config = Config(verifier="wrong.py:score")
    with pytest.raises(UserError, match="^cannot use /.*/wrong.py: .*(line 2|No such|null bytes)"):
        config.check()


def test_a_changed_file_is_read_again(own):
    for reward in (0.25, 0.75):
        own.write_text(f"def score(text, gold): return {reward}")
        pool.try_own(f"{own}:score", None)
        assert pool.grade((f"{own}:score", "text", None), 60) == (reward, "")


def test_golds_and_prompts(own, tiny):
    """Cells as they are, None without any; of a set of the table, what its verifier would get."""
    cells = [7, "7", [1, {"a": None}], 0.5]
    lines = [json.dumps(dict(prompt=f"{i} + 1 = ", answer=c)) for i, c in enumerate([*cells, ""])]
    Path("own.jsonl").write_text("\n".join(lines))
    config = dict(verifier="own.py:echo", max_steps=0, eval_problems=0)
    for columns, golds in (("prompt,answer", [*cells, None]), ("prompt", [None] * 5)):
        sets = load_problems(Config(dataset="own.jsonl", columns=columns, **config), tiny[1])[1]
        problems = sorted(sets["own.jsonl"], key=lambda problem: problem.prompt)
        assert [problem.gold for problem in problems] == golds
        for problem in problems:
            right, wrong = json.dumps(problem.gold), "wrong"
            asked = [(problem.verifier, text, problem.gold) for text in (right, wrong)]
            assert pool.grade_all(asked) == [(2.0, ""), (0.0, "")]  # helper.py's number
    config["eval_problems"] = 2
    (problem, _) = load_problems(Config(dataset="arithmetic", **config), tiny[1])[1]["arithmetic"]
    assert problem.prompt.startswith(SYSTEM_PROMPTS["number"])
    assert (problem.verifier, problem.gold.isdecimal()) == (f"{own}:echo", True)


def test_a_run_and_a_file_of_answers(own, run, resume, monkeypatch, capsys):
    """A resumed run says that the file has changed, also from another folder."""
    monkeypatch.setattr("rlvr.tasks.datasets.load_problems", real_load_problems)
    assert run("grpo", verifier="own.py:half").code == 0
    assert {row["reward"] for row in rows("run")} == {0.5}
    assert {row["all_wrong"] for row in rows("run")} == {1.0}  # a success has a reward of 1
    os.chdir("/")
    assert "has changed" not in resume("grpo", own.with_name("run"), max_steps=3).out
    own.write_text(FILE + "# ")
    told = f"--verifier {own}:half has changed since {own.with_name('run')}/checkpoint-3 was saved"
    assert told in resume("grpo", own.with_name("run"), max_steps=4).out
    os.chdir(own.parent)
    lines = [dict(verifier="own.py:half", text=text, gold=3) for text in ("text", "")]
    Path("f.jsonl").write_text("\n".join(map(json.dumps, lines)))
    command.main(["f.jsonl"])
    extract = find_verifier(f"{own}:half").extract  # for the entropy of answers
    assert [*map(extract, ("a \\boxed{5}", "<answer>3</answer>", "a"))] == ["5", "3", "a"]
    said = ["line 1: 0.5", "line 2: 0 unparsed", "mean reward: 0.25"]
    assert capsys.readouterr().out.splitlines() == said
