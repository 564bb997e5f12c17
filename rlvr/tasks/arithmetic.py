"""Arithmetic in words, for a small language model: sums, differences, products and chains.

The problems are generated, so there is nothing to download.
"""

import itertools
import random
import zlib
from dataclasses import dataclass

from rlvr.records import Problem

TRAINING_PROBLEMS = 4096
WORDINGS = {
    "sum": ("What is {a}+{b}?", "What is {a} plus {b}?", "What is the sum of {a} and {b}?"),
    "difference": ("What is {a}-{b}?", "What is {a} minus {b}?", "Subtract {b} from {a}."),
    "product": ("What is {a}*{b}?", "What is {a} times {b}?", "Multiply {a} by {b}."),
    "chain": (
        "What is {a}+{b}-{c}?",
        "What is {a} plus {b} minus {c}?",
        "Add {a} and {b}, then subtract {c}.",
    ),
}


@dataclass(frozen=True)
class Level:
    """What the problems of a level are."""

    kinds: tuple[str, ...]  # of WORDINGS
    smallest: int  # of the numbers; the first factor of a product has one digit
    largest: int


LEVELS = {  # the names that --arithmetic_levels takes
    "1": Level(("sum", "difference"), 1, 20),
    "2": Level(("sum", "difference", "chain"), 10, 99),
    "3": Level(("product",), 10, 99),
    "4": Level(("sum", "difference", "product", "chain"), 100, 999),
}


def make_arithmetic(rng: random.Random, level: str, held_out: bool = False) -> tuple[Problem, str]:
    """A problem of a level, whose answer is an integer of 0 or more, and its expression.

    The expression is the same for all wordings and for all orders of what is added or multiplied. A
    tenth of all expressions, whatever their level, is held out for evaluation.
    """
    kinds, smallest, largest = LEVELS[level].kinds, LEVELS[level].smallest, LEVELS[level].largest
    while True:
        kind = rng.choice(kinds)
        a, b, c = (rng.randint(smallest, largest) for _ in range(3))
        if kind == "product":
            a = rng.randint(2, 9)
        expression, value = calculate(kind, a, b, c)
        is_held_out = zlib.crc32(expression.encode()) % 10 == 0
        if value >= 0 and is_held_out == held_out:
            text = rng.choice(WORDINGS[kind]).format(a=a, b=b, c=c)
            return Problem(text, str(value), "last_number", f"level {level}"), expression


def calculate(kind: str, a: int, b: int, c: int) -> tuple[str, int]:
    """The expression that tells a problem from others, and its value."""
    low, high = sorted((a, b))
    if kind == "sum":
        return f"{high}+{low}", a + b
    if kind == "difference":
        return f"{a}-{b}", a - b
    if kind == "product":
        return f"{high}*{low}", a * b
    return f"{high}+{low}-{c}", a + b - c


def draw_arithmetic(config) -> tuple[list[Problem], list[Problem]]:
    """Problems to train and to evaluate on, drawn from the --arithmetic_levels in turn.

    Those to train on differ in their text, those to evaluate on in their expression. So a level of
    few problems has fewer than the others, and there may be fewer than asked for.
    """
    rng = random.Random(0)
    levels = itertools.cycle(config.arithmetic_levels.split(","))
    evaluation = {}
    for _ in range(20 * config.eval_problems):
        problem, expression = make_arithmetic(rng, next(levels), held_out=True)
        evaluation.setdefault(expression, problem)
    training = {}
    for _ in range(2 * TRAINING_PROBLEMS):
        problem, _ = make_arithmetic(rng, next(levels))
        training[problem] = None
    return [*training][:TRAINING_PROBLEMS], [*evaluation.values()][: config.eval_problems]
