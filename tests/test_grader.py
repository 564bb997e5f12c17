"""Graders: what goes to them, deadlines, graders that die, a file of answers; verifiers' fields."""

import contextlib
import json
import math
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import rlvr.verify.__main__ as command
import rlvr.verify.pool as pool
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import load_problems
from rlvr.verify.pool import grade
from rlvr.verify.verifiers import VERIFIERS, Verifier

import numpy
import pytest
from grading import ADD, ASSERTIONS, block, boxed, grade_all, new_graders
from runs import ENVIRONMENT, ROOT

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
    shared, own = pool.IDLE_GRADERS, queue.SimpleQueue()
    process = pool.start_grader() if shared.empty() else shared.get()
    own.put(process)
    monkeypatch.setattr(pool, "IDLE_GRADERS", own)
    assert grade(FIVE, 30) == (1.0, "")
    yield process
    if process.poll() is None and not process.stdin.closed:
        shared.put(process)


# ------------------------------------------------------------------------- without a grader


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_only_what_can_run_for_ever_goes_to_a_grader(monkeypatch, verifier):
    started = []

    def start_grader():
        started.append(verifier)
        raise RuntimeError("no grader here")

    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    monkeypatch.setattr(pool, "start_grader", start_grader)
    with contextlib.suppress(RuntimeError):
        grade((verifier, "nothing", "1 2 : 3 "))
    assert started == ([verifier] if VERIFIERS[verifier].isolated else [])


@pytest.mark.parametrize("cores, ranks, threads", [(8, 1, 8), (8, 4, 2), (2, 4, 1)])
def test_the_ranks_of_a_machine_share_its_cores(monkeypatch, cores, ranks, threads):
    made = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers):
            made.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(pool, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(cores))
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", ranks)
    assert pool.in_threads(lambda number: 2 * number, [3, 1, 2]) == [6, 2, 4]
    assert made == [threads]


# ---------------------------------------------------------------------------- hostile answers


@pytest.mark.parametrize(
    "answer",
    [
        *("1" * 5000, "9" * 100_000, "(" * 3000 + "5" + ")" * 3000, "x" * 5000 + "=6"),
        # each of these takes as long as it may
        pytest.param("1+" * 3000 + "1", marks=pytest.mark.slow),
        pytest.param(r"\frac{1}{" * 300 + "2" + "}" * 300, marks=pytest.mark.slow),
        pytest.param(r"\left(" * 100, marks=pytest.mark.slow),
        *(
            r"\text{" + "a" * 9999,
            "\ud800",
            "\0",
            r"\input{/etc/passwd}",
            r"\undefined\command",
            "_^_^",
        ),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_odd_answers_score_0(answer):
    assert grade(("math", boxed(answer), "5"), 1)[0] == 0


def test_a_deadline_is_kept(monkeypatch):
    """Of an answer that takes for ever; what is late is worth as much as no answer."""
    assert grade(("math", boxed(TOWERS[0]), "5"), 0.2) == (0.0, "timeout")
    monkeypatch.setitem(VERIFIERS, "math", replace(VERIFIERS["math"], no_answer=-1))
    reward, status = grade(("math", boxed(TOWERS[0]), "5"), 0.2)
    assert (reward, status) == (-1.0, "timeout")
    assert type(reward) is float


@pytest.mark.slow
def test_towers_do_not_harm_their_batch():
    good = [("math", boxed(n), str(n % 3)) for n in range(9)]
    bad = [("math", boxed(tower), "5") for tower in TOWERS]
    code = [
        ("code", block(program), json.dumps(ASSERTIONS)) for program in (ADD, "while True: pass")
    ]
    found = grade_all([*good[:3], *bad, *code, *good[3:]], 1)
    assert [reward for reward, _ in found] == [1, 1, 1, *[0] * len(TOWERS), 1, 0, *[0] * 6]
    assert found[len(TOWERS) + 4] == (0.0, "timeout")


# -------------------------------------------------------------------------------- the processes


def test_a_killed_grader_is_replaced(grader):
    killer = threading.Timer(0.5, os.kill, (grader.pid, signal.SIGKILL))
    start = time.monotonic()
    killer.start()
    assert grade(ENDLESS, 600, 600) == (0.0, "timeout")
    assert time.monotonic() - start < 300
    assert grader.poll() is not None
    assert grade(FIVE, 30) == (1.0, "")
    assert pool.IDLE_GRADERS.get().pid != grader.pid


def test_graders_that_died_while_idle_cost_no_reward(monkeypatch):
    """Killed, and found dead at the next questions, whose answers are right."""
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    dead = [pool.start_grader() for _ in range(2)]
    for process in dead:
        process.kill()
        pool.IDLE_GRADERS.put(process)
    assert [grade(FIVE, 30) for _ in range(2)] == [(1.0, "")] * 2
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


def test_other_lines_are_no_replies(monkeypatch):
    """They are passed over, and the right one after them counts."""
    lines = ["5", "null", "[]", "{}", '"ab"', "no JSON", "", "[1.0, 2.0, 3.0]", '[0.5, 1.0, ""]']
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    process = talking(f"{READ}; say(*{lines!r}, json.dumps([number, 0.5, '']))")
    pool.IDLE_GRADERS.put(process)
    assert grade(FIVE, 30) == (0.5, "")
    assert pool.IDLE_GRADERS.get() is process
    pool.end(process)


@pytest.mark.parametrize("last", ["say('[1.0]')", "say(json.dumps([number - 1, 1.0, '']))"])
def test_a_grader_without_a_reply_is_replaced(monkeypatch, last):
    """It has read the question, says something else, and ends."""
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    pool.IDLE_GRADERS.put(talking(f"{READ}; {last}; sys.exit()"))
    assert grade(FIVE, 30) == (0.0, "timeout")
    assert grade(FIVE, 30) == (1.0, "")


def test_what_a_library_prints_is_no_reply(monkeypatch, tmp_path):
    """Here all that reads JSON prints. Replies have a pipe that print does not reach."""
    noisy = "import json\nreal = json.loads\n"
    noisy += "def loads(text):\n    print('noise', flush=True)\n    return real(text)\n"
    (tmp_path / "sitecustomize.py").write_text(f"{noisy}json.loads = loads\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = pool.start_grader()
    question = json.dumps([7, "math", boxed("5"), "5", 30, 30])
    said, _ = process.communicate(f"{question}\n", timeout=60)
    assert said == '[7, "read"]\n[7, 1.0, ""]\n'


def test_a_machine_that_runs_no_program_is_an_error(monkeypatch):
    """It is told by the grader, which goes on."""
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    says = "say(json.dumps([number, 'error', 'no sandbox starts']))"
    process = talking(f"{READ}; {says}; sys.stdin.read()")
    pool.IDLE_GRADERS.put(process)
    with pytest.raises(UserError, match="^no sandbox starts$"):
        grade(FIVE, 30)
    assert pool.IDLE_GRADERS.get_nowait() is process
    pool.end(process)


def test_a_grader_says_that_no_program_can_be_run(monkeypatch, tmp_path):
    """Where the system refuses every new process, no program is graded as wrong."""
    full = "import subprocess\ndef refuse(*_, **__):\n    raise BlockingIOError(11, 'try again')\n"
    (tmp_path / "sitecustomize.py").write_text(f"{full}subprocess.Popen = refuse\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = pool.start_grader()
    question = json.dumps([7, "code", block(ADD), json.dumps(ASSERTIONS), 30, 30])
    said, _ = process.communicate(f"{question}\n", timeout=60)
    read, reply = (json.loads(line) for line in said.splitlines())
    assert read == [7, "read"]
    assert reply[:2] == [7, "error"]
    assert reply[2].startswith("programs cannot be run here: ")


def test_a_grader_that_does_not_start(monkeypatch):
    """An error, and no endless attempts."""
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    monkeypatch.setattr(pool, "start_grader", lambda: talking("sys.exit()"))
    with pytest.raises(RuntimeError, match="a grader does not start"):
        grade(FIVE, 30)


def test_an_unknown_verifier_is_an_error():
    with pytest.raises(UserError, match="there is no verifier 'maths'; there are .*math"):
        grade(("maths", boxed("5"), "5"))


@pytest.mark.parametrize("verifier", ["math", "number", "choice"])
def test_long_texts_have_a_deadline(grader, verifier):
    """Also within the search for the answer."""
    text = "\\boxed{" * 1_000_000
    assert grade((verifier, text, "5"), 0.05) == (0.0, "timeout")
    assert grade(FIVE, 30) == (1.0, "")


def test_long_lists_say_how_far_they_are(monkeypatch, capsys):
    """Only where they take long, where they are named, and by one rank."""
    pool.in_threads(str, [1, 2, 3], "golds")
    monkeypatch.setattr(pool, "SECONDS_BETWEEN_NEWS", 0.0)
    pool.in_threads(str, [1, 2, 3])
    assert capsys.readouterr().out == ""
    assert pool.in_threads(str, [1, 2, 3], "golds") == ["1", "2", "3"]
    assert capsys.readouterr().out == "golds: 1 of 3\ngolds: 2 of 3\ngolds: 3 of 3\n"
    monkeypatch.setattr(world, "RANK", 1)
    pool.in_threads(str, [1, 2, 3], "golds")
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
    assert grade(("math", text, gold), 30) == reply
    assert pool.IDLE_GRADERS.get_nowait() is grader
    assert grader.poll() is None


def test_a_grader_ends_with_the_process_that_asks(grader):
    """Its standard input closes then, even where that process was killed."""
    pool.IDLE_GRADERS.get()
    grader.stdin.close()
    assert grader.wait(timeout=10) == 0


def test_ctrl_c_does_not_reach_a_grader(grader):
    assert os.getsid(grader.pid) == grader.pid != os.getsid(0)


def test_the_memory_of_a_grader_is_limited(grader):
    assert resource.prlimit(grader.pid, resource.RLIMIT_AS) == (2**32, 2**32)


def test_a_grader_starts_in_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
    assert grade(FIVE, 30) == (1.0, "")


# ------------------------------------------------------------------------ the fields of a verifier


@pytest.fixture
def entry(monkeypatch):
    """entry(...) is a Verifier under the name `mine`."""
    return lambda *fields, **named: monkeypatch.setitem(
        VERIFIERS, "mine", Verifier(*fields, **named)
    )


@pytest.mark.parametrize("given", [0.25, -1, True, numpy.float32(0.5), Fraction(1, 4)], ids=repr)
def test_a_reward_is_any_finite_number(entry, given):
    """Whatever its type, it becomes a float, which the logs can hold."""
    entry(lambda text, gold: given)
    reward, status = grade(("mine", "text", "gold"))
    assert type(reward) is float
    assert (reward, status) == (given, "")


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_finite_number(entry, given):
    entry(lambda text, gold: given)
    with pytest.raises(ValueError, match="the verifier mine gave the reward"):
        grade(("mine", "text", "gold"))


def test_a_mistake_in_a_verifier_is_not_hidden(entry):
    entry(lambda text, gold: text.no_such_name)
    with pytest.raises(AttributeError):
        grade(("mine", "text", "gold"))


@pytest.mark.parametrize("given", [{}, dict(no_answer=-0.5), dict(no_answer=-1)], ids=str)
def test_the_reward_of_no_answer(entry, given):
    """None is worth that, and by default 0. A batch of integers would have no mean."""
    entry(lambda text, gold: None, **given)
    reward, status = grade(("mine", "text", "gold"))
    assert (reward, status) == (given.get("no_answer", 0), "unparsed")
    assert type(reward) is float


@pytest.mark.parametrize("chat_only, told", [(False, "Be brief.\nWhat?\n"), (True, "What?")])
def test_what_a_policy_is_told(entry, tiny, tmp_path, chat_only, told):
    """The tiny policy has no chat template."""
    entry(lambda text, gold: 1.0, system_prompt="Be brief.", chat_only=chat_only)
    assert [problem.prompt for problem in problems_of(tiny, tmp_path)] == [told] * 2


def test_how_a_gold_answer_is_read(entry, tiny, tmp_path):
    """An empty one drops the problem."""
    entry(lambda text, gold: 1.0, gold=lambda cell: "" if cell == 1 else f"<{cell}>")
    assert [problem.gold for problem in problems_of(tiny, tmp_path)] == ["<2>"]


@pytest.mark.parametrize("threshold, kept", [(1.0, ["2"]), (0.5, ["1", "2"])])
def test_the_example_of_a_gold_has_to_be_a_success(entry, tiny, tmp_path, threshold, kept):
    """Its rewards are 0.5 and 1 here."""
    entry(lambda text, gold: float(text.strip("#")) / 2, example=lambda gold: f"#{gold}#")
    found = problems_of(tiny, tmp_path, success_threshold=threshold)
    assert sorted(problem.gold for problem in found) == kept


def problems_of(tiny, folder, **flags):
    """What is left of two problems that `mine` judges, with the golds 1 and 2."""
    file = folder / "own.jsonl"
    file.write_text("".join(f'{{"prompt": "What?", "answer": {gold}}}\n' for gold in (1, 2)))
    config = Config(verifier="mine", eval_dataset=str(file), max_steps=0, **flags)
    return load_problems(config, tiny[1])[1][str(file)]


@pytest.mark.parametrize(
    "cell, gold",
    [
        ("3 9 5 : 48", "3 9 5 : 48"),
        ("3 9 5 : 48 ", "3 9 5 : 48 "),
        ("3:3", "3:3"),
        ("3 9 5", ""),
        ("a b : 3", ""),
        (": 3", ""),
        ("3 : ", ""),
        ("3.5 2 : 7", ""),
        (None, ""),
        (48, ""),
    ],
)
def test_a_countdown_problem_in_a_column(cell, gold):
    """What is none cannot be judged."""
    assert VERIFIERS["countdown"].gold(cell) == gold


# --------------------------------------------------------------- `python -m rlvr.verify FILE.jsonl`


def test_rewards_statuses_and_summary(tmp_path):
    rows = [
        ("math", boxed("5"), "5"),
        ("math", "five", "5"),
        ("number", boxed("6"), "5"),
        ("code", block(ADD), json.dumps(ASSERTIONS)),
    ]
    names = ("verifier", "text", "gold")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join([*lines, ""]))
    done = subprocess.run(
        [sys.executable, "-m", "rlvr.verify", file],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    out = done.stdout.splitlines()
    assert out[0].startswith("programs run ")
    assert out[1:] == [
        "line 1: 1",
        "line 2: 0 unparsed",
        "line 3: 0",
        "line 4: 1",
        "4 lines: mean reward 0.5; 3 judged, 1 unparsed, 0 timeout",
    ]


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "give one .jsonl file with the columns verifier, text and gold"),
        ('{"verifier": "math", "text": ""}', "line 1: no JSON with texts for verifier, text, g"),
        (
            '{"verifier": "countdown", "text": null, "gold": "1 2 : 3"}',
            "line 1: no JSON with texts for",
        ),
        ('{"verifier": "countdown", "text": "<answer>1</answer>", "gold": "5"}', "line 1: no JSON"),
        ('{"verifier": ["math"], "text": "", "gold": ""}', "line 1: no JSON with texts for"),
        ('{"verifier": "number", "text": "", "gold": 5}', "line 1: no JSON with texts for"),
        ('{"verifier": "math", "text": "", "gold": ["1", 2]}', "line 1: no JSON with texts for"),
        ("5", "line 1: no JSON"),
        ('{"verifier": "maths", "text": "", "gold": ""}', "there is no verifier 'maths'"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path, capsys, content, message):
    file = tmp_path / "answers.jsonl"
    file.write_text(content or "")
    with pytest.raises(SystemExit) as end:
        command.main([str(file)] if content else [])
    told = capsys.readouterr()
    assert (end.value.code, told.out) == (2, "")
    assert message in told.err
    assert told.err.count("\n") == 1
