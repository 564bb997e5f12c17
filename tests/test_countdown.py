"""Countdown: what the verifier accepts and refuses, and the problems."""

import random
import re
import time
from dataclasses import replace

from rlvr.config import Config
from rlvr.tasks.countdown import extract_answer, make_countdown, verify_countdown
from rlvr.tasks.datasets import load_problems

import pytest

# ----------------------------------------------------------------------------------- the verifier

GOLD = "3 9 5 : 48 "
RIGHT = "3+9*5"


def answer(expression):
    return f"<think>9*5=45</think><answer>{expression}</answer>"


@pytest.mark.parametrize(
    "expression, gold",
    [
        (RIGHT, GOLD),
        ("3+(9*5)", GOLD),
        ("(5*9)+3", GOLD),
        ("((3)+((9)*(5)))", GOLD),
        ("3 + 9 * 5", GOLD),
        ("  3+9*5 ", GOLD),
        ("\n3+9*5\n", GOLD),
        ("\t3+9*5\r\n", GOLD),
        ("(" * 30 + "3" + ")" * 30 + "+9*5", GOLD),
        ("9-5-3", "3 5 9 : 1 "),  # from the left: 9-(5-3) would be 7
        ("8/4/2", "2 4 8 : 1 "),  # from the left: 8/(4/2) would be 4
        ("4*4", "4 4 : 16 "),  # a number given twice is used twice
        ("5-9+5", "5 5 9 : 1 "),  # a negative value on the way
        ("5*(3-9)+9*5", "3 5 5 9 9 : 15 "),
        ("1/3*9", "1 3 9 : 3 "),  # a fraction on the way
        ("8/(3-8/3)", "3 3 8 8 : 24 "),  # 23.999999999999989 in floats
        ("(1/3+1/6)*4", "1 3 1 6 4 : 2 "),
        ("1/(1/3-1/4)", "1 1 1 3 4 : 12 "),  # 11.999999999999996 in floats
        ("3+5*9", "3 9 5 : 48"),  # without the space at the end
    ],
)
def test_verifier_accepts(expression, gold):
    assert verify_countdown(answer(expression), gold) == 1.0


@pytest.mark.parametrize(
    "expression, gold",
    [
        # other numbers than the given ones
        ("48", GOLD),
        ("3+45", GOLD),
        ("3+9*5+3-3", GOLD),  # 3 three times
        ("9*5+3*9/9", GOLD),  # 9 three times
        ("5*9", "3 9 5 : 45 "),  # 3 is missing
        ("4+4", "4 4 2 : 8 "),  # 2 is missing
        ("4", "4 4 : 4 "),  # one of two equal numbers is missing
        ("39", "3 9 : 39 "),  # two numbers written as one
        ("39+5", "3 9 5 : 44 "),
        ("3+9*5*1", GOLD),
        ("3+9*5+0", GOLD),
        ("3+9*05", GOLD),
        ("3+9*5/1", GOLD),
        # the given numbers, another value
        ("3*9+5", GOLD),
        ("(3+9)*5", GOLD),
        ("3-9*5", "3 9 5 : 42 "),  # minus the target
        ("9/5+3", "3 5 9 : 4 "),  # 4.8: nothing is rounded
        ("5/9*3", "3 5 9 : 1 "),
        # equal in floats, and a third away from equal
        ("100000000000000000/3*1", "1 3 100000000000000000 : 33333333333333332 "),
        ("5/(3-3)", "3 3 5 : 5 "),  # divisions by zero
        ("(3-3)/(5-5)", "3 3 5 5 : 1 "),
        # other operators and signs
        ("1.5*2", "1 5 2 : 3 "),
        ("1.5*2", "1.5 2 : 3 "),
        ("2**3", "2 3 : 8 "),
        ("2 ** 3", "2 3 : 8 "),
        ("2**2", "2 2 : 4 "),  # the same as 2*2
        ("4//2", "4 2 : 2 "),  # the same as 4/2
        ("9//4", "9 4 : 2 "),
        ("5%3", "3 5 : 2 "),
        ("5^3", "3 5 : 6 "),
        ("5|3", "3 5 : 7 "),
        ("5<<3", "3 5 : 40 "),
        ("-3+5", "3 5 : 2 "),
        ("+3+5", "3 5 : 8 "),
        ("5--3", "3 5 : 8 "),
        ("5-(-3)", "3 5 : 8 "),
        ("5*-(3-9)", "3 5 9 : 30 "),
        ("~3+5", "3 5 : 1 "),
        ("3+9*5==48", GOLD),
        ("3<5", "3 5 : 1 "),
        ("(x:=3+9*5)", GOLD),
        ("3+9*5=48", GOLD),
        # not one expression of these numbers
        ("", GOLD),
        (" ", GOLD),
        ("()", GOLD),
        ("NA", GOLD),
        ("3 9 5", GOLD),
        ("3+9*", GOLD),
        ("(3+9*5", GOLD),
        ("3+9*5)", GOLD),
        (")3+9*5(", GOLD),
        ("3+(9)(5)", GOLD),
        ("3+9(5)", GOLD),
        ("3(9*5)", GOLD),
        ("3*(9,5)", GOLD),
        ("3+9*5,", GOLD),
        ("(3+9*5,)", GOLD),
        ("[3+9*5][0]", GOLD),
        ("3+\n9*5", GOLD),
        ("3+9*5#", GOLD),
        ("3+9*5 # = 48", GOLD),
        ("3+9*5;", GOLD),
        ("x+9*5", GOLD),
        ("3+9*5 if 1 else 0", GOLD),
        ("True+2", "1 2 : 3 "),
        ("lambda:48", GOLD),
        ("(lambda: 3+9*5)()", GOLD),
        ("__import__('os').getpid()", GOLD),
        ("exec('3+9*5')", GOLD),
        ("'3'+'9'", GOLD),
        ("0x3+9*5", GOLD),
        ("0x10", "16 : 16 "),
        ("0b11+9*5", GOLD),
        ("1_0", "10 : 10 "),
        ("1e1", "10 : 10 "),
        ("3j", "3 : 3 "),
        ("03+9*5", GOLD),
        ("３+９*５", GOLD),  # full-width digits, which int() reads
        ("٣+٩*٥", GOLD),  # Arabic digits
        ("3+9×5", GOLD),
        ("3−9", "3 9 : -6 "),  # a minus sign that is not ASCII
        ("3\u00a0+9*5", GOLD),  # no-break space
        # long, deep, huge
        ("(" * 200 + RIGHT + ")" * 200, GOLD),
        ("(" * 5000 + RIGHT + ")" * 5000, GOLD),
        ("(" * 49 + RIGHT, GOLD),
        ("-" * 95 + RIGHT, GOLD),
        ("3+9*5" + "+0" * 5000, GOLD),
        ("9" * 10_000, GOLD),
        ("9" * 100, GOLD),
        ("9**9**9**9**9", GOLD),
        ("9" * 40 + "*" + "9" * 40, GOLD),
    ],
    ids=lambda value: value[:30],
)
def test_verifier_refuses(expression, gold):
    started = time.perf_counter()
    assert verify_countdown(answer(expression), gold) == 0.0
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    "text, reward",
    [
        ("<answer>3+9*5</answer>", 1.0),
        ("3+9*5", 0.0),
        ("", 0.0),
        ("<answer>3+9*5", 0.0),
        ("3+9*5</answer>", 0.0),
        ("</answer>3+9*5<answer>", 0.0),
        ("<Answer>3+9*5</Answer>", 0.0),
        ("<answer>1</answer><answer>3+9*5</answer>", 1.0),  # the last one counts
        ("<answer>3+9*5</answer><answer>1</answer>", 0.0),
        ("<answer>3+9*5</answer><answer></answer>", 0.0),
        ("<answer>3+9*5</answer><answer>1", 1.0),  # the last complete one
        ("<answer>1<answer>3+9*5</answer>", 1.0),
        ("<think><answer>1</answer></think><answer>3+9*5</answer>", 1.0),
        ("<think><answer>3+9*5</answer></think><answer>1</answer>", 0.0),
        ("<think>\n9*5=45\n</think>\n<answer>\n3+9*5\n</answer>\n", 1.0),
        ("<answer>3+<think>9*5</think></answer>", 0.0),
    ],
)
def test_verifier_reads_the_last_answer(text, reward):
    assert verify_countdown(text, GOLD) == reward


@pytest.mark.parametrize(
    "text",
    [
        "<answer>" * 125_000,
        "</answer>" * 110_000,
        "<answer>" * 125_000 + "</answer>",
        "<answer>3" * 110_000,
        "<answer></answer>" * 60_000,
        "<answer>" + "(" * 1_000_000 + "</answer>",
        "<" * 1_000_000,
    ],
    ids=lambda text: text[:30],
)
def test_verifier_is_linear_in_the_text(text):
    """A regular expression such as <answer>(.*?)</answer> takes minutes for the first of these."""
    started = time.perf_counter()
    assert verify_countdown(text, GOLD) == 0.0
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    "text, expected",
    [
        ("<answer> 3+9 </answer>", "3+9"),
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("", "NA"),
        ("<answer>1", "NA"),
        ("1</answer>", "NA"),
        ("<answer></answer>", ""),
    ],
)
def test_extract_answer(text, expected):
    assert extract_answer(text) == expected


# ----------------------------------------------------------------------------------- the problems


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_problems_have_a_solution_in_positive_integers(size, held_out):
    for seed in range(300):
        problem, solution = make_countdown(random.Random(seed), size, held_out)
        numbers, target = re.fullmatch(r"([1-9](?: [1-9])*) : (\d+) ", problem.prompt).groups()
        assert len(numbers.split()) == size
        assert 1 <= int(target) <= 99
        assert problem.gold == problem.prompt
        assert verify_countdown(solution, problem.gold) == 1.0
        steps = re.fullmatch("<think>(.*)</think><answer>.*</answer>", solution)[1].split(" ")
        assert len(steps) == size - 1
        left = [int(number) for number in numbers.split()]
        for step in steps:
            # each takes two of the numbers that are left, and puts a positive integer back
            a, sign, b, result = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", step).groups()
            a, b, result = int(a), int(b), int(result)
            left.remove(a)
            left.remove(b)
            left.append(result)
            exact = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
            assert exact == result >= 1
        assert left == [int(target)]


def numbers_and_target(problem):
    """What makes a problem the same as another one: the order of its numbers does not."""
    numbers, target = problem.prompt.split(":")
    return tuple(sorted(numbers.split())), int(target)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_held_out_problems_are_no_training_problems(size):
    rng = random.Random(0)

    def draw(held_out):
        return {numbers_and_target(make_countdown(rng, size, held_out)[0]) for _ in range(500)}

    held_out, training = draw(True), draw(False)
    assert len(held_out) > 5
    assert len(training) > 50
    assert not held_out & training


def load_countdown(config, tokenizer):
    """Problems to train and to evaluate on."""
    training, sets = load_problems(config, tokenizer)
    assert [*sets] == ["countdown"]
    return training, sets["countdown"]


@pytest.mark.parametrize("numbers, sizes", [("3", {3}), ("2", {2}), ("2,3,4", {2, 3, 4})])
def test_load_problems(tiny, numbers, sizes):
    config = Config(numbers=numbers, eval_problems=32)
    training, evaluation = load_countdown(config, tiny[1])
    assert not {*map(numbers_and_target, training)} & {*map(numbers_and_target, evaluation)}
    for problems in (training, evaluation):
        assert {len(numbers_and_target(problem)[0]) for problem in problems} == sizes
        assert len(set(problems)) == len(problems)
    enough_exist = numbers != "2"
    assert len(evaluation) <= 32
    assert len(training) <= 4096
    if enough_exist:
        assert len(evaluation) == 32
        assert len(training) == 4096
    # Another seed gives the same: runs that differ in their seed are compared on equal problems.
    again = load_countdown(Config(numbers=numbers, eval_problems=32, seed=1), tiny[1])
    assert again == (training, evaluation)
    assert load_countdown(replace(config, max_steps=0), tiny[1]) == ([], evaluation)
