"""Problems that are made here: Countdown, and arithmetic in words."""

import functools
import random
import re
from dataclasses import replace

import rlvr.tasks.embedded
from rlvr.flags.config import Config
from rlvr.tasks.embedded import LEVELS, draw_arithmetic, draw_countdown, make_countdown
from rlvr.verify.answers.expressions import verify_countdown

import pytest


def end_of_steps(numbers, solution):
    """Where the steps of a solution lead, each of them right."""
    steps = re.fullmatch("<think>(.*)</think><answer>.*</answer>", solution)[1].split(" ")
    left = numbers.split()
    assert len(steps) == len(left) - 1
    for step in steps:
        # each takes two of the numbers that are left, and puts a positive integer back
        a, b, result = re.fullmatch(r"(\d+)[-+*/](\d+)=(\d+)", step).groups()
        left.remove(a)
        left.remove(b)
        left.append(result)
        assert eval(step.partition("=")[0]) == int(result) >= 1
    return int(left[0])


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_problems_have_a_solution_in_positive_integers(size, held_out):
    for seed in range(100):
        problem, solution = make_countdown(random.Random(seed), size, held_out)
        numbers, target = re.fullmatch(r"([1-9](?: [1-9])*) : (\d+) ", problem.prompt).groups()
        assert len(numbers.split()) == size
        assert (problem.gold, problem.level) == (problem.prompt, f"{size} numbers")
        assert verify_countdown(solution, problem.gold) == 1.0
        assert 1 <= int(target) == end_of_steps(numbers, solution) <= 99


def numbers_and_target(problem):
    """What tells problems apart: the order of the numbers does not."""
    numbers, target = problem.prompt.split(":")
    return tuple(sorted(numbers.split())), int(target)


@pytest.mark.parametrize("numbers, sizes", [("2", {2}), ("2,3,4", {2, 3, 4})])
def test_draw_countdown(numbers, sizes):
    """As many as there are, always the same ones, and no problem for both."""
    config = Config(numbers=numbers, eval_problems=32)
    drawn = draw_countdown(config)
    trained, held_out = ({*map(numbers_and_target, problems)} for problems in drawn)
    assert not trained & held_out
    for problems in drawn:
        assert {len(numbers_and_target(problem)[0]) for problem in problems} == sizes
        assert len(set(problems)) == len(problems)
    if numbers == "2":
        # Another seed gives the same: runs that differ in it are compared on equal problems.
        assert draw_countdown(replace(config, seed=1)) == drawn
        share = len(held_out) / len(trained | held_out)
        assert len(trained) > 100 and 0.05 < share < 0.12  # a tenth
    else:
        assert (len(drawn[0]), len(drawn[1])) == (4096, 32)


def facts_of(problem):
    """What is done with which numbers, whatever the wording and their order; and the result."""
    text = problem.prompt.lower()
    a, b, *c = map(int, re.findall(r"\d+", text))
    if re.search(r"\*|times|multiply", text):
        return ("product", *sorted((a, b))), a * b
    if not re.search("-|minus|subtract", text):
        return ("sum", *sorted((a, b))), a + b
    if c:
        return ("chain", *sorted((a, b)), c[0]), a + b - c[0]
    first, second = (b, a) if "from" in text else (a, b)
    return ("difference", first, second), first - second


@functools.cache
def drawn_once(level):
    """Fewer problems than a run has, in a quarter of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rlvr.tasks.embedded, "TRAINING_PROBLEMS", 1000)
        return draw_arithmetic(level, Config(eval_problems=40))


@pytest.mark.parametrize(
    "level, kinds, smallest, largest",
    [
        ("1", {"sum", "difference"}, 1, 20),
        ("2", {"sum", "difference", "chain"}, 10, 99),
        ("3", {"product"}, 10, 99),
        ("4", {"sum", "difference", "product", "chain"}, 100, 999),
    ],
)
def test_levels(level, kinds, smallest, largest):
    """Every gold is right, and the problems differ."""
    training, held_out = drawn_once(level)
    assert len({*training}) == len(training) and (level in "13" or len(training) == 1000)
    for problem in training + held_out:
        assert facts_of(problem)[1] == int(problem.gold) >= 0, problem
        assert (problem.verifier, problem.level) == ("last_number", f"level {level}")
    assert level != "1" or "0" in {problem.gold for problem in training}
    assert level != "1" or 345 < len({facts_of(each)[0] for each in training}) < 400  # of 420
    found = [facts_of(problem)[0] for problem in training + held_out]
    assert {kind for kind, *_ in found} == kinds
    numbers = [number for kind, *numbers in found for number in numbers[kind == "product" :]]
    assert (min(numbers), max(numbers)) == (smallest, largest)
    factors = {numbers[0] for kind, *numbers in found if kind == "product"}
    assert factors == ({*range(2, 10)} if "product" in kinds else set())


def test_training_and_evaluation_share_no_problem():
    """Not even in other words, in another order or from another level."""
    training = {facts_of(problem)[0] for level in LEVELS for problem in drawn_once(level)[0]}
    for level in LEVELS:
        held_out = [facts_of(problem)[0] for problem in drawn_once(level)[1]]
        assert len({*held_out}) == len(held_out)
        assert not training & {*held_out}
