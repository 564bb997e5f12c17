"""Numbers: the one number of an answer, exactly, and whether it is the right one.

A tower of powers is read in no time, and can never be worked out. So the size of an expression is
estimated from how it is written, before anything is computed.
"""

import ast
import math
import re
from fractions import Fraction

from rlvr.verify.answers.boxes import find_answer
from rlvr.verify.answers.expressions import CANNOT_BE_READ, value_of

LONGEST = 300  # characters of an answer
# Words behind a number that multiply it, as in 3 million.
MULTIPLES = dict(dozen=12, hundred=10**2, thousand=10**3)
MULTIPLES |= dict(million=10**6, mn=10**6, billion=10**9, bn=10**9, trillion=10**12)
# Words behind a number that make another one of it, as in 3 and a half, or leave it open.
NUMBER_WORDS = set(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "half halves third thirds quarter quarters fourth fourths fifth fifths tenth tenths hundredth "
    "hundredths thousandth thousandths point plus minus or squared cubed".split()
)
PLAIN = [  # how the same thing is written without LaTeX, in this order
    (r"\\(?:text|math|operatorname|boldsymbol|bm|mbox)[a-z]*", " "),
    (r"\\[()\[\]]|\\[!,;: ]|\\q?quad|\\(?:left|right|displaystyle)|\\?[$%]|[€£¥~]|\*\*", ""),
    (r"\^?\s*\{?\s*\\circ\s*\}?|\\degree", "°"),
    ("[\u2212\u2013]", "-"),
    (r"\\times|\\cdot|×|·", "*"),
    (r"\\div|÷", "/"),
    (r"\\approx|≈", "="),
    (r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}|\\[dtc]?frac\s*(\d)\s*(\d)", r" \1\3/\2\4"),
    ("½", " 1/2"),
    (r"[{}]", ""),
    (r"^[^\d=:]*(?::|\bis\b)", "="),  # the answer is 5
]
WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
NUMBER = re.compile(
    rf"(?P<sign>[-+]?) *(?:(?P<whole>{WHOLE}) +(?=\d+/))?(?P<top>-?{WHOLE}?(?:\.\d*)?)"
    rf"(?:/(?P<bottom>-?{WHOLE}))?(?: *\* *10\^(?P<power>-?\d\d?))?"
    r"(?P<thousands>[kK]\b)?(?P<unit>.*)",
    re.A,
)
UNIT = re.compile(r"[ °.]*(?:[-/(]?\s*(?![²³])[^\W\d_](?:[^\W\d_]|[ °²³/*.()'’-]|\^-?\d)*)?")


def verify_number(text: str, gold: str) -> float | None:
    """The number of an answer against that of the gold."""
    return compare(find_answer(text), gold)


def last_number(text: str) -> str:
    """The last number that stands in a text, for policies that mark no answer, or "NA"."""
    text = re.sub("[\u2212\u2013]", "-", text)  # a minus sign and a dash
    numbers = re.findall(r"(?<![\w.)])-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)", text, re.A)
    return numbers[-1].rstrip(",") if numbers else "NA"


def verify_last_number(text: str, gold: str) -> float | None:
    """The last number of a text, wherever it stands, as lm-eval's flexible-extract reads it."""
    return compare(last_number(text), gold)


def compare(answer: str, gold: str) -> float | None:
    """Whether two texts are the same number; None where one of them is none."""
    number, right = read_number(answer), read_number(gold)
    return None if number is None or right is None else float(number == right)


def read_number(text: str) -> Fraction | None:
    r"""The one number of an answer such as "$1,234.50", "18 eggs", "1\frac{1}{2}" or "x = 3/4".

    None where there is none, or more than one. Sides of an equation without letters have to agree,
    and one of them has to be a number.
    """
    if len(text) > LONGEST:
        return None
    text = " ".join(text.split())
    for written, plain in PLAIN:
        text = re.sub(written, plain, text)
    sides = [re.sub(r"^\(([^()]*)\)\.?$", r"\1", side.strip(" *_")) for side in text.split("=")]
    found = {side: read_plain(side) for side in sides if side}
    numbers = {number for number in found.values() if number is not None}
    sums = [side for side in found if found[side] is None and not re.search(r"[^\W\d_]", side)]
    numbers |= {calculate(side) for side in sums} if numbers else set()
    return numbers.pop() if len(numbers) == 1 else None


def read_plain(text: str) -> Fraction | None:
    """A number with its unit, as in -1,000.5 m^2, 1 1/2 cups or 3 million."""
    found = NUMBER.fullmatch(text)
    scale = scale_of(found["unit"]) if found else None
    if scale is None:
        return None
    try:
        value = Fraction(found["top"].replace(",", ""))
        value /= Fraction((found["bottom"] or "1").replace(",", ""))
    except (ValueError, ZeroDivisionError):  # no digits, and 1/0
        return None
    value += Fraction((found["whole"] or "0").replace(",", ""))
    value *= Fraction(10) ** int(found["power"] or 0)
    value *= 1000 if found["thousands"] else 1
    return value * scale * (-1 if found["sign"] == "-" else 1)


def scale_of(unit: str) -> int | None:
    """What the words behind a number multiply it by: mostly 1. None where they are no unit."""
    words = re.findall(r"[^\W\d_]+", unit.lower())
    if not UNIT.fullmatch(unit) or NUMBER_WORDS.intersection(words):
        return None
    return math.prod(MULTIPLES.get(word.removesuffix("s"), 1) for word in words)


def calculate(text: str) -> Fraction | None:
    """The exact value of a sum such as 6 * 7 or 0.5 * (3 + 1); None for other text."""
    text = re.sub(r"\d*\.\d+", lambda part: f"({Fraction(part[0])})", text.replace(",", ""))
    if not re.fullmatch(r"[0-9+\-*/() ]+", text):
        return None
    try:
        return Fraction(value_of(ast.parse(text.strip(), mode="eval").body))
    except CANNOT_BE_READ:
        return None


def digits(expression) -> float:
    """About the binary digits of the largest number in working out a sympy expression, or more."""
    import sympy

    if isinstance(expression, sympy.Rational):
        return math.log2(max(abs(expression.p), expression.q))
    is_matrix = isinstance(expression, sympy.MatrixBase)
    inside = [digits(part) for part in (expression if is_matrix else expression.args)]
    if not inside:
        return 10.0  # a letter: powers of a sum with one are multiplied out
    grows = sympy.Pow, sympy.exp, sympy.factorial, sympy.factorial2, sympy.binomial
    if isinstance(expression, (*grows, sympy.Sum, sympy.Product)):
        times = 2.0 ** min(inside[-1], 1000.0)  # the exponent, the last argument, the bounds
        return inside[0] * times
    return sum(inside) if isinstance(expression, sympy.Mul) else max(inside) + 1
