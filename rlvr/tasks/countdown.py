"""Countdown: reach a target with given numbers, each used once."""

import ast
import itertools
import operator
import random
import re
import zlib
from fractions import Fraction

from rlvr.records import Problem

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": Fraction}
AST_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
LARGEST_TARGET = 99
TRAINING_PROBLEMS = 4096
CANNOT_BE_READ = (
    TypeError,
    SyntaxError,
    AttributeError,
    KeyError,
    ZeroDivisionError,
    RecursionError,
    MemoryError,
)


def make_countdown(rng: random.Random, size: int, held_out: bool = False) -> tuple[Problem, str]:
    """A problem of `size` numbers from 1 to 9, and a solution whose steps are positive integers.

    A tenth of all (numbers, target), whatever the order of the numbers, is held out for evaluation.
    """
    while True:
        numbers = [rng.randint(1, 9) for _ in range(size)]
        steps, value, expression = join_at_random(rng, numbers)
        if value is None or value > LARGEST_TARGET:
            continue
        key = f"{sorted(numbers)} {value}".encode()
        if (zlib.crc32(key) % 10 == 0) == held_out:
            prompt = f"{' '.join(map(str, numbers))} : {value} "
            problem = Problem(prompt, prompt, level=f"{size} numbers")
            return problem, completion_text(steps, expression)


def exchange_target(rng: random.Random, problem: Problem) -> str:
    """A completion that joins a problem's numbers rightly, to whatever value they give."""
    numbers = [int(number) for number in problem.gold.split(":")[0].split()]
    while True:
        steps, value, expression = join_at_random(rng, numbers)
        if value is not None and value <= LARGEST_TARGET:
            return completion_text(steps, expression)


def completion_text(steps: list[str], expression: str) -> str:
    """A completion in the format that the tiny policy is taught."""
    return f"<think>{' '.join(steps)}</think><answer>{expression}</answer>"


def join_at_random(rng: random.Random, numbers: list[int]) -> tuple[list[str], int | None, str]:
    """Join two numbers at a time until one is left -> the steps, that value, and its expression.

    The value is None where a step gives no positive integer.
    """
    terms = [(number, str(number)) for number in numbers]
    steps = []
    while len(terms) > 1:
        a, left = terms.pop(rng.randrange(len(terms)))
        b, right = terms.pop(rng.randrange(len(terms)))
        sign = rng.choice("+-*/")
        value = OPERATORS[sign](a, b)
        if value < 1 or value != int(value):
            return steps, None, ""
        steps.append(f"{a}{sign}{b}={value}")
        terms.append((int(value), f"({left}{sign}{right})"))
    value, expression = terms[0]
    return steps, value, expression[1:-1]


def draw_countdown(config) -> tuple[list[Problem], list[Problem]]:
    """Different problems to train and to evaluate on, in the sizes of --numbers.

    They are fewer than asked for where so many do not exist.
    """
    rng = random.Random(0)
    sizes = itertools.cycle(map(int, config.numbers.split(",")))
    evaluation = {}
    for _ in range(20 * config.eval_problems):
        evaluation[make_countdown(rng, next(sizes), held_out=True)[0]] = None
    training, drawn = {}, 0
    while len(training) < TRAINING_PROBLEMS and drawn < 20 * len(training) + TRAINING_PROBLEMS:
        training[make_countdown(rng, next(sizes))[0]] = None
        drawn += 1
    return [*training], [*evaluation][: config.eval_problems]


def countdown_text(value) -> str:
    """A problem in a column, such as 3 9 5 : 48, or "" where it is none."""
    text = str(value)
    return text if re.fullmatch(r"\s*\d+(\s+\d+)*\s*:\s*\d+\s*", text, re.A) else ""


def extract_answer(text: str) -> str:
    """The last <answer>...</answer>, or "NA"."""
    before_the_end, _, _ = text.rpartition("</answer>")
    _, opening, answer = before_the_end.rpartition("<answer>")
    return answer.strip() if opening else "NA"


def verify_countdown(text: str, gold: str) -> float:
    """1.0 where the answer uses each number of `gold` once and reaches its target, else 0.0.

    An answer may have + - * / and parentheses, and nothing else.
    """
    answer = extract_answer(text)
    numbers, target = gold.split(":")
    try:
        tree = ast.parse(re.fullmatch(r"[0-9+\-*/() ]{1,100}", answer)[0], mode="eval").body
        used = sorted(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        given = sorted(map(int, numbers.split()))
        return float(used == given and value_of(tree) == int(target))
    except CANNOT_BE_READ:
        return 0.0


def value_of(node: ast.expr):
    """The exact value of an expression tree.

    A unary sign, a call or a tuple has neither an operator of the table nor a value: it is refused.
    """
    if isinstance(node, ast.BinOp):
        sign = AST_OPERATORS[type(node.op)]
        return OPERATORS[sign](value_of(node.left), value_of(node.right))
    return node.value
