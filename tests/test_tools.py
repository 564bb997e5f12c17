"""The calculator, by hand."""

from rlvr.tasks.tools import calculate

import pytest

REPLIES = {
    "<think>7*8=": "56",
    "<think>7*8=56 56+1=": "57",
    "(2+3)*4=": "20",
    "2+3*4=": "14",
    "3-9=": "-6",
    "8/2=": "4",
    "8/3=": "8/3",  # no rounding
    "8/3*3=": "8",
    "7 * 8 =": "56",
    "1 7*8=": "56",  # numbers without an operator between them are two
    "is 7*(1+8)=": "63",
    "1, 7*8=": "56",
    "$7*8=": "56",
}
NO_REPLY = [
    "7*8",  # no call
    *("7*8=56", "7*8=\n"),  # one that has been answered
    *("7=", "x=", "=", ""),
    "-7*8=",  # an expression that has begun before
    *("2.5*2=", "9**2*3=", "2 ** 3*4=", "8//3*2=", "1,000+5=", "1e3+1=", "x2*3="),
    *("sqrt(4)+1=", "f(2)*3=", "f(7*8=", "(2)(3)+4=", "(7*8=", "7*8)=", "7*="),
    *("6 ÷ 3+1=", "20 − 5+3=", "5×3+2=", "8/0="),
    *("(" * 9999 + "7*8=", "(" * 99_999 + "=", "(" * 9999 + "7*8" + ")" * 9999 + "="),
    *("9" * 4000 + "*" + "9" * 4000 + "=", "9" * 5000 + "*9="),
]


@pytest.mark.parametrize("text, reply", [*REPLIES.items(), *((text, None) for text in NO_REPLY)])
def test_calculate(text, reply):
    assert calculate(text) == reply
