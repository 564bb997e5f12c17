"""The entries of the table of verifiers: what each field of an entry does, and its defaults."""

import json
import math
import os
import resource
import sys
import time
from dataclasses import replace
from fractions import Fraction

from rlvr.config import Config
from rlvr.tasks import grader, pool
from rlvr.tasks.datasets import load_problems
from rlvr.tasks.pool import grade
from rlvr.tasks.verifiers import VERIFIERS, Verifier

import numpy
import pytest
from grading import new_graders

TOWER = "\\boxed{(x+y+z+1)^{200}}"  # takes for ever


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


def test_the_reward_of_no_answer(entry):
    """None is worth that, and by default 0."""
    entry(lambda text, gold: None, no_answer=-0.5)
    assert grade(("mine", "text", "gold")) == (-0.5, "unparsed")
    entry(lambda text, gold: None)
    assert grade(("mine", "text", "gold")) == (0.0, "unparsed")


def test_what_is_late_is_worth_as_much_as_no_answer(monkeypatch, tmp_path):
    with new_graders(tmp_path):
        monkeypatch.setitem(VERIFIERS, "math", replace(VERIFIERS["math"], no_answer=-1))
        start = time.monotonic()
        reward, status = grade(("math", TOWER, "5"), 0.5)
        assert (reward, status) == (-1.0, "timeout")
        assert type(reward) is float
        assert time.monotonic() - start < 10


def test_what_no_answer_is_worth_may_be_an_integer(entry):
    """A batch of integers would have no mean."""
    entry(lambda text, gold: None, no_answer=0)
    reward, status = grade(("mine", "text", "gold"))
    assert (reward, status) == (0.0, "unparsed")
    assert type(reward) is float


def test_a_grader_takes_an_integer_for_no_answer(monkeypatch, capfd):
    """It would wait for ever for a reply that is no grade."""
    monkeypatch.setitem(VERIFIERS, "number", replace(VERIFIERS["number"], no_answer=-1))
    monkeypatch.setattr(sys, "stdin", [json.dumps([7, "number", "no number", "5", 5.0, 5.0])])
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    grader.main()
    replies = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert replies == [[7, "read"], [7, -1.0, "unparsed"]]
    assert pool.is_grade(replies[1][1:])


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
