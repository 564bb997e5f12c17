r"""Mathematics: LaTeX in the last box against the gold, compared by math-verify.

math-verify is the judge. This file settles what it is given, by the rules of docs/real-models.md,
"What an answer may look like". Some reasons for them:

- Words are compared as texts: math-verify takes their letters for factors, which commute.
- A percent sign is dropped, since data sets write 50 and 50\% for the same thing.
- A tower of powers is read in no time, and can never be worked out. So the size of an expression is
  estimated from how it is written, before anything is computed.
"""

import math
import re
from dataclasses import replace
from functools import lru_cache

from rlvr.verify.answers.boxes import LONGEST, boxed, last_boxed, last_boxes, read_choice
from rlvr.verify.answers.latex import TEXT, plain, split, without_commas
from rlvr.verify.answers.numbers import scale_of

LARGEST = 10**6  # binary digits of a number that is worked out; 2^1000000 has as many
AND = rf"{TEXT}\s*(?:,|,?\s*(?:and|or)\s*,?)\s*\}}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
DIVIDER = rf"{AND}|\\\\(?![A-Za-z]{{2}})|,"  # of items; a line's end, but not \\sqrt for \sqrt
EQUALS = r"(?<![<>:])(?<![^\d)}]!)=|\\equiv(?![a-z])"  # of 4!=24, too, but not of x!=4
WORDS = re.compile(r"(?!inf$|infinity$)(?=.*[A-Za-z]{2})[A-Za-z][A-Za-z'. -]*")
UNREADABLE = re.compile(r"[A-Za-z]{3,}\s+[A-Za-z]{2,}|(?<![_^\d.])[\d.]+ \d")  # prose, 5 6
# and what they are written together with, as in sinx
FUNCTIONS = r"(?:(?:arc)?(?:sin|cos|tan|cot|csc|log|ln|exp)h?|(?:co)?sec(?=[a-z]))[a-cnu-z]?"
POWER = r"(?:\^\{?-?\d\}?)?"
WITH_UNIT = re.compile(  # a value, and behind it \text{...}, words, or an abbreviation
    rf"(.+?)(?:(?<![\^_\s])\s*((?:{TEXT}[^{{}}]*\}}{POWER}(?:[\s/]|\\cdot)*)+)"
    r"|(?:(?<=[\d}])|(?<=\\pi))"
    rf"(\s+(?!{FUNCTIONS}(?![A-Za-z]))(?:[A-Za-z]{{3,}}|in|hr|lb|oz|sq)[A-Za-z\s/]*"
    rf"|\s*(?:[ckm]m|[km]g|ml|ft|(?:km|cm|ft|\smi?)/(?:hr|h|min|s))){POWER})"
)
# the option whose value follows, as in \textbf{(A) }204
OF_AN_OPTION = rf"^(?:{TEXT}\s*\([A-E]\)\s*\}}|\([A-E]\)(?=\s))\s*(?=\S)(?!{AND}|[,;]|\\c[au]p)"
OF_A_BASE = re.compile(r"-?\d+\s*_\s*\{?\s*(\d+)\s*\}?")
# what a number is written with, but not functions of degrees, which math-verify drops
OF_NUMBERS = r"_(?:\{[^{}]*\}|.)|\\(?:[dtc]?frac|binom|sqrt|cdot|times|div|pi|circ|infty|log|ln"
OF_NUMBERS += r"|exp|left|right|(?:sin|cos|tan|cot|sec|csc)(?!.*\\circ))(?![a-z])"


def verify_math(text: str, gold: str) -> float | None:
    """The answer in the last box, or in the last boxes where the gold has several parts.

    It has no time limit of its own: for what a policy wrote, use `rlvr.verify.grade`.
    """
    import math_verify  # takes a second

    answer = last_boxed(text)
    if answer == "NA" or max(len(answer), len(gold)) > LONGEST:
        return None
    chosen, wanted = plain(answer), plain(gold)
    if len(chosen + wanted) == 2 and {chosen, wanted} & {"e", "i"}:
        return float(chosen == wanted)  # the numbers e and i are not E and I
    if re.fullmatch(r"\(?[A-J]\)?", wanted) and not re.match(r"[A-J] ?[_^']|\\mathbb", chosen):
        answer = read_choice(chosen) or answer  # as in B. Paris
    # Equations are compared where the gold is one, if math-verify reads it.
    right = read(gold, values=False) if len(split(wanted, EQUALS)) > 1 else []
    values = not right
    right, given = right or read(gold, values), read(answer, values)
    parts = count_parts(right)
    if parts > 1 and count_parts(given) < 2:
        given = read(last_boxes(text, parts), values)
    if not right or not given:
        return None
    bases = bases_in(chosen)
    if bases and bases != (bases_in(wanted) or ["10"] * len(bases)):
        return 0.0  # math-verify drops the base of 52_8
    if any(one == other for one in right for other in given):
        return 1.0  # without working them out
    if any(digits(value) > LARGEST for value in right + given):
        return 0.0
    places = max(map(decimals, right))
    return float(math_verify.verify(right, given, places, timeout_seconds=None))


def decimals(value) -> int:
    """In how many decimals numbers have to equal a right one: six, or its first three digits."""
    try:
        size = min(max(abs(complex(value)), 1e-100), 1)  # 2 - 2 is some 1e-123 to sympy
        return max(6, 3 - math.floor(math.log10(size)))
    except (TypeError, ValueError, AttributeError, OverflowError):
        return 6  # something else than a number, or too large a one


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
        # by the exponent, the last argument, the bounds
        return inside[0] * 2.0 ** min(inside[-1], 1000.0)
    return sum(inside) if isinstance(expression, sympy.Mul) else max(inside) + 1


def bases_in(text: str) -> list[str]:
    """The bases of the numbers in a list, as of 52_8; equations count with their last side."""
    items = [split(item, EQUALS)[-1].strip() for item in split(text, DIVIDER)]
    return [number[1] for item in items if (number := OF_A_BASE.fullmatch(item))]


def count_parts(values: list) -> int:
    """How many elements the first of these values has, if it is a finite set; 1 for others."""
    from sympy import FiniteSet

    return len(values[0]) if values and isinstance(values[0], FiniteSet) else 1


@lru_cache(maxsize=1000)  # the completions of a problem share its gold, and often an answer
def read(text: str, values: bool) -> list:
    """What math-verify reads in an answer, in all ways that the answer can be read; [] for none.

    1,000 is a number; 100,200 is a number or a list of two. With `values` each equation is replaced
    by its value.
    """
    if len(text) > LONGEST:
        return []
    text = re.sub(OF_AN_OPTION, "", plain(text))
    readings = [without_commas(text)]
    if readings[0] != text and ",0" not in text:
        readings.append(text.replace(",", ", "))
    found = []
    for reading in readings:
        groups = [read_group(group, values) for group in split(reading, ";")]
        found += parse("; ".join(groups)) if all(groups) else []
    return found


def read_group(group: str, values: bool) -> str:
    """A list as math-verify is to have it; "" where it cannot be read."""
    plus = group.replace(r"\pm", "+").replace(r"\mp", "-")
    minus = group.replace(r"\pm", "-").replace(r"\mp", "+")
    items = dict.fromkeys(split(plus, DIVIDER) + split(minus, DIVIDER))
    cleaned = [clean(settle(item) if values else item) for item in items]
    return ", ".join(cleaned) if all(cleaned) else ""


def clean(item: str) -> str:
    """An item of a list, or a side of an equation, without percent sign and unit.

    A unit such as million multiplies it. "" where what stands behind a value is no unit.
    """
    item = plain(re.sub(r"\\?%", "", item))
    if WORDS.fullmatch(item):
        return rf"\text{{{item}}}"
    found = WITH_UNIT.fullmatch(item)
    if not found:
        return item
    value, unit = found[1], re.sub(TEXT, " ", found[2] or found[3])
    scale = scale_of(re.sub(r"\\cdot|[(){}]|\^\{?-?\d\}?|(?<=[a-z])\d", "", unit))
    return {None: "", 1: value}.get(scale, rf"({value}) \cdot {scale}")


def settle(item: str) -> str:
    """The value of an equation, or the item if it is none.

    The value is the last side without letters, or else the last side. Sides without letters have to
    agree; where they do not, it is a text that equals no answer.
    """
    import math_verify

    sides = split(item, EQUALS)
    if len(sides) == 1:
        return item
    numbers = [side for side in sides if is_number(side)]
    for side in numbers[:-1]:
        if not math_verify.verify(ways(side), ways(numbers[-1]), timeout_seconds=None):
            return "a false equation"
    return (numbers or sides)[-1]


def is_number(side: str) -> bool:
    """Whether a side of an equation has no letters but those of its unit."""
    return not re.search("[A-Za-z∠]", re.sub(OF_NUMBERS, "", clean(side) or side))


def ways(side: str) -> list:
    """The values of a side of an equation: as it is, without its unit, and 25\\% as 25/100."""
    texts = {side, clean(side), re.sub(r"\\?%", "/100", side)}
    return [value for text in texts for value in parse(text)]


def parse(text: str) -> list:
    """The values that math-verify reads in LaTeX; [] for what it does not read.

    It reads LaTeX alone, without its units, which take the t of 2t for one.
    """
    import math_verify

    if UNREADABLE.search(re.sub(rf"{TEXT}[^{{}}]*\}}|\\[A-Za-z]+", ";", text)):
        return []
    latex = math_verify.LatexExtractionConfig(boxed_match_priority=0)
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    found = math_verify.parse(boxed(text), [latex], parsing_timeout=None)
    return [value for value in found if not isinstance(value, str)]
