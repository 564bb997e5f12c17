"""A reward of one's own: a function in a file, named by --verifier path/to/my_reward.py:score."""

import json
import os
import queue
from pathlib import Path

import rlvr.tasks.datasets
import rlvr.verify.__main__ as command
import rlvr.verify.pool as pool
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import load_problems
from rlvr.verify.verifiers import SYSTEM_PROMPTS, find_verifier, own_verifier

import pytest
from runs import real_load_problems, rows

FILE = """
import helper, json, os, signal
def fails(text, gold): return 1 / len(text)
def word(text, gold): return "yes"
def leaves(text, gold): raise SystemExit
def dies(text, gold): os._exit(0)
def large(text, gold): raise MemoryError
def one(text): return 1
def loops(text, gold):
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


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
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
    """Later it is a reward of 0. One function stops the grader's timer."""
    for function, status in (("dies", "crash"), ("large", "memory"), ("loops", "timeout")):
        monkeypatch.setattr(pool, "FOREVER", 60.0 if function != "loops" else 3.0)
        with pytest.raises(UserError, match=f":{function}: {status}, already for an empty compl"):
            pool.try_own(f"{own}:{function}", "gold")


@pytest.mark.parametrize("text", [None, "def score(text, gold:", "\0"])
def test_a_file_that_cannot_be_run(text):
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
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
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
