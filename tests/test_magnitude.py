"""Expressions that no computer can work out are told before one tries."""

import math
import time

from rlvr.tasks.boxes import boxed
from rlvr.tasks.magnitude import LARGEST, digits, is_too_large
from rlvr.tasks.mathematics import verify_math

import pytest
import sympy

NEVER_WORKED_OUT = [
    "9^{9^{9^{9}}}",
    "(10^{9})!",
    "((((10!)!)!)!)",
    r"\binom{10^{9}}{10^{8}}",
    "123456789^{987654321}",
    "2^{2^{2^{2^{2^{2}}}}}",
    r"\frac{1}{9^{9^{9}}}",
    "(x+1)^{99999}",
    "e^{e^{e^{79}}}",
    r"\prod_{k=1}^{10^9} k",
    r"\{1, 9^{9^{9}}\}",
    r"\sqrt{2}^{\sqrt{2}^{99999999}}",
]


def unevaluated(kind, *arguments):
    return kind(*arguments, evaluate=False)


@pytest.mark.parametrize(
    "expression, expected",
    [
        (sympy.Integer(1024), 10),
        (sympy.Integer(-8), 3),
        (sympy.Rational(3, 16), 4),
        (sympy.Integer(0), 0),
        (unevaluated(sympy.Pow, sympy.Integer(2), sympy.Integer(2024)), 2024),
        (unevaluated(sympy.Pow, sympy.Integer(4), sympy.Integer(16)), 32),
        (unevaluated(sympy.factorial, sympy.Integer(64)), 64 * 6),  # 64! < 64^64
        (unevaluated(sympy.binomial, sympy.Integer(64), sympy.Integer(2)), 2 * 6),  # < 64^2
        (unevaluated(sympy.Mul, sympy.Integer(8), sympy.Integer(16)), 7),
    ],
)
def test_digits_by_hand(expression, expected):
    assert digits(expression) == pytest.approx(expected)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_they_are_enough(n):
    """The estimate is no less than the digits of the number itself."""
    for kind, value in [
        (unevaluated(sympy.factorial, sympy.Integer(n)), math.factorial(n)),
        (unevaluated(sympy.Pow, sympy.Integer(7), sympy.Integer(n)), 7**n),
        (
            unevaluated(sympy.binomial, sympy.Integer(2 * n), sympy.Integer(n)),
            math.comb(2 * n, n),
        ),
    ]:
        assert math.log2(value) <= digits(kind) * (1 + 1e-9)
        assert not is_too_large(kind)


def test_the_limit():
    for exponent, too_large in ((LARGEST - 1, False), (LARGEST + 1, True)):
        power = unevaluated(sympy.Pow, sympy.Integer(2), sympy.Integer(exponent))
        assert is_too_large(power) == too_large


@pytest.mark.parametrize("answer", NEVER_WORKED_OUT)
def test_they_are_wrong_at_once(answer):
    """In this process, which nothing would end; most would take longer than anyone waits."""
    started = time.monotonic()
    assert not verify_math(boxed(answer), "5")
    assert time.monotonic() - started < 30


def test_the_same_expression_is_right():
    tower = NEVER_WORKED_OUT[0]
    assert verify_math(boxed(tower), tower) == 1.0
    assert verify_math(boxed(tower), "8^{9^{9^{9}}}") == 0.0


@pytest.mark.parametrize(
    "answer, gold",
    [
        ("2^{2024}", "4^{1012}"),
        (r"2^{2024}+1", r"4^{1012}+1"),
        (r"\sqrt{2} \cdot 2^{2024}", r"\sqrt{2} \cdot 4^{1012}"),
        (r"\binom{100}{50}", r"\frac{100!}{50! \cdot 50!}"),
        (r"\sum_{n=1}^{100} n", "5050"),
        ("(x+1)^{3}", "x^3 + 3x^2 + 3x + 1"),
        (r"\frac{10^{100}-1}{9}", "1" * 100),
    ],
)
def test_large_numbers_are_still_worked_out(answer, gold):
    assert verify_math(boxed(answer), gold) == 1.0
