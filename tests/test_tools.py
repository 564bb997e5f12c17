"""The calculator, by hand."""

from rlvr.tasks.tools import calculate

import pytest


@pytest.mark.parametrize(
    "text, reply",
    [
        ("<think>7*8=", "56"),
        ("<think>7*8=56 56+1=", "57"),
        ("(2+3)*4=", "20"),
        ("2+3*4=", "14"),
        ("3-9=", "-6"),
        ("8/2=", "4"),
        ("8/3=", "8/3"),  # no rounding
        ("8/3*3=", "8"),
        ("7 * 8 =", "56"),
        ("1 7*8=", "56"),  # numbers without an operator between them are two
        ("is 7*(1+8)=", "63"),
        ("7*8", None),  # no call
        ("7*8=56", None),  # one that has been answered
        ("7*8=\n", None),
        ("7=", None),
        ("-7*8=", None),  # an expression that has begun before
        ("2.5*2=", None),
        ("9**2*3=", None),
        ("8//3*2=", None),
        ("2 ** 3*4=", None),
        ("1,000+5=", None),
        ("sqrt(4)+1=", None),
        ("f(2)*3=", None),
        ("(2)(3)+4=", None),
        ("1e3+1=", None),
        ("x2*3=", None),
        ("6 ÷ 3+1=", None),
        ("20 − 5+3=", None),
        ("5×3+2=", None),
        ("1, 7*8=", "56"),
        ("$7*8=", "56"),
        ("8/0=", None),
        ("7*=", None),
        ("(7*8=", None),
        ("7*8)=", None),
        ("x=", None),
        ("=", None),
        ("", None),
        ("f(7*8=", None),
        ("(" * 9999 + "7*8=", None),
        ("(" * 99_999 + "=", None),
        ("(" * 9999 + "7*8" + ")" * 9999 + "=", None),
        ("9" * 4000 + "*" + "9" * 4000 + "=", None),
        ("9" * 5000 + "*9=", None),
    ],
)
def test_calculate(text, reply):
    assert calculate(text) == reply
