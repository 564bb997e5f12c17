"""Graders: what goes to them, deadlines, graders that die, a file of answers; verifiers' fields."""

import contextlib
import json
import math
import os
import queue
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import rlvr.verify.__main__ as command
import rlvr.verify.pool as pool
from rlvr import status, world
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
        yield pool.IDLE_GRADERS


@pytest.fixture
def idle(monkeypatch):
    """The queue of idle graders, with none in it."""
    own = queue.SimpleQueue()
    monkeypatch.setattr(pool, "IDLE_GRADERS", own)
    return own


@pytest.fixture
def grader(graders, idle):
    """The only idle grader, ready for questions. The tests after take it over if it is unharmed."""
    process = pool.start_grader() if graders.empty() else graders.get()
    idle.put(process)
    assert grade(FIVE, 60) == (1.0, "")
    yield process
    if process.poll() is None and not process.stdin.closed:
        graders.put(process)


# ------------------------------------------------------------------------- without a grader


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_only_what_can_run_for_ever_goes_to_a_grader(idle, monkeypatch, verifier):
    started = []

    def start_grader():
        started.append(verifier)
        raise RuntimeError("no grader here")

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


SLOW = ["1+" * 3000 + "1", r"\frac{1}{" * 300 + "2" + "}" * 300, r"\left(" * 100]
ODD = ["1" * 5000, "(" * 3000 + "5" + ")" * 3000, "x" * 5000 + "=6", r"\text{" + "a" * 9999]
ODD += ["\ud800", "\0", r"\input{/etc/passwd}", r"\undefined\command", "_^_^"]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(ODD, id="odd"),
        pytest.param(SLOW, id="as long as they may", marks=pytest.mark.slow),
    ],
)
def test_odd_answers_score_0(answers):
    found = grade_all([("math", boxed(answer), "5") for answer in answers], 1)
    assert [reward for reward, _ in found] == [0] * len(answers)


def test_a_deadline_is_kept(monkeypatch):
    """Of an answer that takes for ever; what is late is worth as much as no answer."""
    assert grade(("math", boxed(TOWERS[0]), "5"), 0.2) == (0.0, "timeout")
    monkeypatch.setitem(VERIFIERS, "math", replace(VERIFIERS["math"], no_answer=-1))
    reward, status = grade(("math", boxed(TOWERS[0]), "5"), 0.2)
    assert (reward, status) == (-1.0, "timeout")
    assert type(reward) is float


@pytest.mark.slow
def test_towers_do_not_harm_their_batch():
    good = [("math", boxed(n), str(n % 3)) for n in range(6)]
    good.append(("code", block(ADD), json.dumps(ASSERTIONS)))
    bad = [*(("math", boxed(tower), "5") for tower in TOWERS), ENDLESS]
    questions = [*((each, 60) for each in good[:3]), *((each, 1) for each in bad)]
    questions += [(each, 60) for each in good[3:]]
    found = pool.in_threads(lambda each: grade(each[0], each[1], each[1]), questions)
    assert [reward for reward, _ in found] == [1, 1, 1, *[0] * len(bad), 0, 0, 0, 1]
    assert found[len(bad) + 2] == (0.0, "timeout")


# -------------------------------------------------------------------------------- the processes


def test_a_killed_grader_is_replaced(grader, monkeypatch):
    """It is killed in the middle of an endless program."""
    hand_over = pool.hand_over

    def kill(*question):
        process = hand_over(*question)
        process.kill()
        return process

    with monkeypatch.context() as patch:
        patch.setattr(pool, "hand_over", kill)
        assert grade(ENDLESS, 600, 600) == (0.0, "timeout")
    assert grader.poll() is not None
    assert grade(FIVE, 60) == (1.0, "")
    assert pool.IDLE_GRADERS.get() is not grader


def test_graders_that_died_while_idle_cost_no_reward(idle):
    """Killed, and found dead at the next questions, whose answers are right."""
    dead = [pool.start_grader() for _ in range(2)]
    for process in dead:
        process.kill()
        idle.put(process)
    assert [grade(FIVE, 60) for _ in range(2)] == [(1.0, "")] * 2
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
OTHER_LINES = ["5", "null", "[]", "{}", '"ab"', "no JSON", "", "[1.0, 2.0]", '[0.5, 1.0, ""]']


def test_other_lines_are_no_replies(idle):
    """They are passed over, and the right one after them counts."""
    process = talking(f"{READ}; say(*{OTHER_LINES!r}, json.dumps([number, 0.5, '']))")
    idle.put(process)
    assert grade(FIVE, 60) == (0.5, "")
    assert idle.get() is process
    pool.end(process)


@pytest.mark.parametrize("last", ["say('[1.0]')", "say(json.dumps([number - 1, 1.0, '']))"])
def test_a_grader_without_a_reply_is_replaced(idle, last):
    """It has read the question, says something else, and ends."""
    idle.put(talking(f"{READ}; {last}; sys.exit()"))
    assert grade(FIVE, 60) == (0.0, "timeout")
    assert grade(FIVE, 60) == (1.0, "")


def replies(monkeypatch, folder, customized, question):
    """What a new grader writes whose interpreter starts with these lines."""
    (folder / "sitecustomize.py").write_text(customized)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    said, _ = pool.start_grader().communicate(json.dumps([7, *question, 60, 60]) + "\n")
    return [json.loads(line) for line in said.splitlines()]


def test_what_a_library_prints_is_no_reply(monkeypatch, tmp_path):
    """Here all that reads JSON prints. Replies have a pipe that print does not reach."""
    noisy = """
import json
real = json.loads
def loads(text):
    print("noise", flush=True)
    return real(text)
json.loads = loads
"""
    assert replies(monkeypatch, tmp_path, noisy, FIVE) == [[7, "read"], [7, 1.0, ""]]


def test_a_machine_that_runs_no_program_is_an_error(idle):
    """It is told by the grader, which goes on."""
    process = talking(f"{READ}; say(json.dumps([number, 'error', 'no sandbox starts']))")
    idle.put(process)
    with pytest.raises(UserError, match="^no sandbox starts$"):
        grade(FIVE, 60)
    assert idle.get() is process
    pool.end(process)


def test_a_grader_says_that_no_program_can_be_run(monkeypatch, tmp_path):
    """Where the system refuses every new process, no program is graded as wrong."""
    full = """
import subprocess
def refuse(*_, **__):
    raise BlockingIOError(11, "try again")
subprocess.Popen = refuse
"""
    read, reply = replies(monkeypatch, tmp_path, full, ENDLESS)
    assert read == [7, "read"]
    assert reply[:2] == [7, "error"]
    assert reply[2].startswith("programs cannot be run here: ")


def test_a_grader_that_does_not_start(idle, monkeypatch):
    """An error, and no endless attempts."""
    monkeypatch.setattr(pool, "start_grader", lambda: talking("sys.exit()"))
    with pytest.raises(RuntimeError, match="a grader does not start"):
        grade(FIVE, 60)


def test_an_unknown_verifier_is_an_error():
    with pytest.raises(UserError, match="there is no verifier 'maths'; there are .*math"):
        grade(("maths", boxed("5"), "5"))


@pytest.mark.parametrize("verifier", ["math", "number", "choice"])
def test_long_texts_have_a_deadline(grader, verifier):
    """Also within the search for the answer."""
    text = "\\boxed{" * 1_000_000
    assert grade((verifier, text, "5"), 0.05) == (0.0, "timeout")
    assert grade(FIVE, 60) == (1.0, "")


def test_long_lists_say_how_far_they_are(monkeypatch, capsys):
    """Only where they take long, where they are named, and by one rank."""
    pool.in_threads(str, [1, 2, 3], "golds")
    monkeypatch.setattr(status, "SECONDS_BETWEEN_LINES", 0.0)
    pool.in_threads(str, [1, 2, 3])
    assert capsys.readouterr().out == ""
    assert pool.in_threads(str, [1, 2, 3], "golds") == ["1", "2", "3"]
    assert capsys.readouterr().out == "golds: 1 of 3\ngolds: 2 of 3\n"
    monkeypatch.setattr(world, "RANK", 1)
    pool.in_threads(str, [1, 2, 3], "golds")
    assert capsys.readouterr().out == ""


def test_a_grader_is_used_again(grader, idle):
    for text, gold, reply in [
        (boxed("5"), "5", (1.0, "")),
        (boxed("6"), "5", (0.0, "")),
        ("no box", "5", (0.0, "unparsed")),
        (boxed("5"), None, (0.0, "unparsed")),  # no text, so that the verifier raises a TypeError
    ]:
        assert grade(("math", text, gold), 60) == reply
    assert idle.get_nowait() is grader
    assert grader.poll() is None


def test_a_grader_is_a_process_of_its_own(grader):
    """Ctrl-C does not reach it, and its memory is limited.

    It ends with the process that asks: its standard input closes then, even where that was killed.
    """
    assert os.getsid(grader.pid) == grader.pid != os.getsid(0)
    assert resource.prlimit(grader.pid, resource.RLIMIT_AS) == (2**32, 2**32)
    pool.IDLE_GRADERS.get()
    grader.stdin.close()
    assert grader.wait(timeout=60) == 0


def test_a_grader_starts_in_any_folder(idle, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert grade(FIVE, 60) == (1.0, "")


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


@pytest.mark.parametrize("given", [math.nan, -math.inf])
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


def test_a_countdown_problem_in_a_column():
    """What is none cannot be judged."""
    read = VERIFIERS["countdown"].gold
    assert [read(cell) for cell in ("3 9 5 : 48 ", "3:3")] == ["3 9 5 : 48 ", "3:3"]
    for cell in ("3 9 5", "a b : 3", ": 3", "3 : ", "3.5 2 : 7", None, 48):
        assert read(cell) == ""


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
        ('{"verifier": "math", "text": ""}', "line 1: no JSON with texts for verifier, text, gold"),
        ('{"verifier": "countdown", "text": null, "gold": "1 2 : 3"}', "line 1: no JSON"),
        ('{"verifier": "countdown", "text": "<answer>1</answer>", "gold": "5"}', "line 1: no JSON"),
        ('{"verifier": "math", "text": "", "gold": ["1", 2]}', "line 1: no JSON"),
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
