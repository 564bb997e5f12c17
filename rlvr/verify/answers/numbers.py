"""Numbers: the one number of an answer, exactly, and whether it is the right one."""

import math
import re
from collections.abc import Callable
from fractions import Fraction

from rlvr.verify.answers.boxes import find_answer
from rlvr.verify.answers.expressions import LONGEST, value_of
from rlvr.verify.answers.latex import plain, without_commas

# Words behind a number that multiply it, as in 3 million.
MULTIPLES = dict(dozen=12, hundred=10**2, thousand=10**3)
MULTIPLES |= dict(million=10**6, mn=10**6, billion=10**9, bn=10**9, trillion=10**12)
# Words behind a number that make another one of it, as in 3 and a half, or leave it open.
NUMBER_WORDS = set(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety or "
    "half halve third quarter fourth fifth tenth hundredth thousandth point squared cubed".split()
)
ARITHMETIC = [  # plain LaTeX as arithmetic, in this order
    (r"\\(?:text|math|operatorname)[a-z]*|\\(?:left|right)|\\?%|\*\*|\^\\circ", " "),
    (r"\\times|\\cdot|×|·", "*"),
    (r"\\div|÷", "/"),
    (r"\\approx|≈", "="),
    (r"\\[dtc]?frac\{([^{}]*)\}\{([^{}]*)\}", r" \1/\2"),
    (r"[{}]", ""),
    (r"(?<=\d)[kK]\b", "*10^3"),
    (r"^[^\d=:]*(?::|\bis\b)", "="),  # the answer is 5
]
NUMBER = re.compile(
    r"(?P<sign>[-+]?) *(?:(?P<whole>\d+) +(?=\d+/))?(?P<top>-?(?:\d+\.?\d*|\.\d+))"
    r"(?:/(?P<bottom>-?0*[1-9]\d*))?(?: *\* *10\^(?P<power>-?\d\d?))?(?P<unit>.*)",
    re.A,
)
UNIT = re.compile(r"[ °.]*(?:[-/(]?\s*(?![²³])[^\W\d_](?:[^\W\d_]|[ °²³/*.()'’-]|\^-?\d)*)?")


def last_number(text: str) -> str:
    """The last number that stands in a text, for policies that mark no answer, or "NA"."""
    text = re.sub("[\u2212\u2013]", "-", text)  # a minus sign and a dash
    numbers = re.findall(r"(?<![\w.)])-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)", text, re.A)
    return numbers[-1].rstrip(",") if numbers else "NA"


def verify_number(text: str, gold: str, find: Callable = find_answer) -> float | None:
    """Whether the number of an answer is that of the gold; None where one of them has none.

    With `last_number` it is found as lm-eval's flexible-extract does, wherever it stands.
    """
    number, right = read_number(find(text)), read_number(gold)
    return None if number is None or right is None else float(number == right)


def read_number(text: str) -> Fraction | None:
    r"""The one number of an answer such as "$1,234.50", "18 eggs", "1\frac{1}{2}" or "x = 3/4".

    None where there is none, or more than one. Sides of an equation without letters have to agree,
    and one of them has to be a number.
    """
    if len(text) > LONGEST or re.search(r"\d[eE][-+]?\d", text):
        return None
    text = plain(text)
    for written, meant in ARITHMETIC:
        text = re.sub(written, meant, text)
    sides = without_commas(text).split("=")
    sides = [re.sub(r"^\(([^()]*)\)\.?$", r"\1", side.strip(" *_")) for side in sides]
    found = {side: read_plain(side) for side in sides if side}
    numbers = {number for number in found.values() if number is not None}
    sums = [side for side in found if found[side] is None and not re.search(r"[^\W\d_]", side)]
    numbers |= {value_of(side) for side in sums} if numbers else set()
    return numbers.pop() if len(numbers) == 1 else None


def read_plain(text: str) -> Fraction | None:
    """A number with its unit, as in -1000.5 m^2, 1 1/2 cups or 3 million."""
    found = NUMBER.fullmatch(text)
    scale = scale_of(found["unit"]) if found else None
    if scale is None:
        return None
    value = Fraction(found["top"]) / Fraction(found["bottom"] or 1)
    value += Fraction(found["whole"] or 0)
    value *= Fraction(10) ** int(found["power"] or 0)
    return value * scale * (-1 if found["sign"] == "-" else 1)


def scale_of(unit: str) -> int | None:
    """What the words behind a number multiply it by: mostly 1. None where they are no unit."""
    words = re.findall(r"([^\W\d_]+?)s?(?![^\W\d_])", unit.lower())
    if not UNIT.fullmatch(unit) or NUMBER_WORDS.intersection(words):
        return None
    return math.prod(MULTIPLES.get(word, 1) for word in words)
