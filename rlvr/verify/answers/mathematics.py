r"""Mathematics: LaTeX in the last box against the gold, compared by math-verify.

math-verify is the judge. This room settles what it is given:

- An answer is a list of items, divided by commas, "and" and "or" outside of brackets. Two or more
  are a set. Where the gold has several, they may stand in several boxes, too.
- Words are compared as texts: math-verify takes their letters for factors, which commute.
- A unit behind a number is dropped, or multiplies it, as million does. So is a percent sign, since
  data sets write 50 and 50\% for the same thing.
- Of an equation such as x = 5, 5 = x or A = 2\pi r = 6\pi, unless the gold is one, the value is
  taken. An equation between numbers that does not hold, as 2 + 2 = 3, is wrong.
- What math-verify does not read as LaTeX is not read at all: there is no falling back to the last
  number of it.
"""

import re
from dataclasses import replace
from functools import lru_cache

from rlvr.verify.answers.boxes import boxed, last_boxed, last_boxes, read_choice
from rlvr.verify.answers.latex import TEXT, plain, split
from rlvr.verify.answers.numbers import digits, scale_of

LONGEST = 2000  # characters of an answer
LARGEST = 10**6  # binary digits of a number that is worked out; 2^1000000 has as many
MOST_DIFFERENCE = 1e-3  # of two small numbers that count as equal, as a share of the right one
ZERO = 1e-100  # sympy computes 2 - 2 to so many digits that some 1e-123 is left of it
AND = rf"{TEXT}\s*(?:,|,?\s*(?:and|or)\s*,?)\s*\}}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
DIVIDER = rf"{AND}|\\\\(?![A-Za-z]{{2}})|,"  # of items; a line's end, but not \\sqrt for \sqrt
EQUALS = r"(?<![<>:])(?<![^\d)}]!)=|\\equiv(?![a-z])"  # of 4!=24, too, but not of x!=4
# A number of several groups, as in 1,000, and not a beginning of 1,200,3.
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)")
WORDS = re.compile(r"(?!inf$|infinity$)(?=.*[A-Za-z]{2})[A-Za-z][A-Za-z'. -]*")
PROSE = re.compile(r"[A-Za-z]{3,}\s+[A-Za-z]{2,}")
TWO_NUMBERS = re.compile(r"(?<![_^\d.])[\d.]+ \d")
POWER = r"(?:\^\{?-?\d\}?)?"
# and what they are written together with, as in sinx
FUNCTIONS = r"(?:(?:(?:arc)?(?:sin|cos|tan|cot|csc|log|ln)h?|exp|max|min|mod)[abcnuxyz]?"
FUNCTIONS += r"|(?:co)?sec[abcnuxyz])"
UNITS = [  # behind a value
    rf"(?<![\^_\s])\s*((?:{TEXT}[^{{}}]*\}}{POWER}(?:[\s/]|\\cdot)*)+)",
    rf"(?:(?<=[\d}}])|(?<=\\pi))\s+((?!{FUNCTIONS}(?![A-Za-z]))"
    rf"(?:[A-Za-z]{{3,}}|in|hr|lb|oz|sq)[A-Za-z\s/]*){POWER}",
    rf"(?:(?<=[\d}}])|(?<=\\pi))\s*([ckm]m|[km]g|ml|ft|(?:km|cm|ft|\smi?)/(?:hr|h|min|s)){POWER}",
    r"(?<=\d)\s*\^\{?\\circ\}?\s*([CF])",
]
WITH_UNIT = re.compile(rf"(.+?)(?:{'|'.join(UNITS)})")
# the option whose value follows, as in \textbf{(A) }204
OF_AN_OPTION = re.compile(
    rf"^(?:{TEXT}\s*\([A-E]\)\s*\}}|\([A-E]\)(?=\s))\s*(?=\S)(?!{AND}|[,;]|\\c[au]p)"
)
OF_A_BASE = re.compile(r"-?\d+\s*_\s*\{?\s*(\d+)\s*\}?")
# what stands for an unknown, and functions of degrees, which math-verify drops
UNKNOWN = r"\\(?i:angle|hat|vec|alpha|beta|gamma|delta|(?:var)?epsilon|theta|kappa|lambda|mu|nu"
UNKNOWN += r"|rho|sigma|tau|(?:var)?phi|psi|omega)(?![a-z])|∠"
UNKNOWN += r"|\\(?:sin|cos|tan|cot|sec|csc)(?![a-z]).*\\circ"


def verify_math(text: str, gold: str) -> float | None:
    """The answer in the last box, or in the last boxes where the gold has several parts.

    It has no time limit of its own: for what a policy wrote, use `rlvr.verify.grade`.
    """
    import math_verify  # takes a second

    answer = last_boxed(text)
    if answer == "NA" or max(len(answer), len(gold)) > LONGEST:
        return None
    option, chosen = re.fullmatch(r"\(?([A-J])\)?", plain(gold)), plain(answer)
    if option and len(chosen) > 1 and not re.match(r"[A-J] ?[_^']|\\mathbb", chosen):
        letter = read_choice(chosen)
        if letter:
            return float(letter == option[1])  # as in B. Paris
    # Equations are compared where the gold is one, if math-verify reads it.
    right = [] if len(split(plain(gold), EQUALS)) == 1 else read(gold, values=False)
    values = not right
    right, given = right or read(gold, values), read(answer, values)
    parts = count_parts(right)
    if parts > 1 and count_parts(given) < 2:
        given = read(last_boxes(text, parts), values)
    if not right or not given:
        return None
    letters = {plain(gold), plain(answer)}
    if letters & {"e", "i"} and all(map(re.compile("[A-Za-z]").fullmatch, letters)):
        return float(len(letters) == 1)  # the numbers e and i are not E and I
    bases = bases_in(answer)
    if bases and bases != (bases_in(gold) or ["10"] * len(bases)):
        return 0.0  # math-verify drops the base of 52_8
    if any(one == other for one in right for other in given):
        return 1.0  # without working them out
    if any(digits(value) > LARGEST for value in right + given):
        return 0.0
    is_equal = math_verify.verify(right, given, timeout_seconds=None)
    return float(is_equal and not is_equal_by_rounding(right, given))


def is_equal_by_rounding(right: list, given: list) -> bool:
    """Whether numbers are equal to math-verify only because it rounds to six decimals.

    To it 3.89e-10 is 0.
    """
    try:
        right, given = ([complex(value) for value in values] for values in (right, given))
        # The difference of two infinite ones is nan, which is not larger than anything.
        return all(
            abs(one - other) > max(MOST_DIFFERENCE * abs(one), ZERO)
            for one in right
            for other in given
        )
    except (TypeError, ValueError, AttributeError, OverflowError):
        return False  # something else than numbers, or too large a one


def bases_in(text: str) -> list[str]:
    """The bases of the numbers in a list, as of 52_8; equations count with their last side."""
    items = [split(item, EQUALS)[-1].strip() for item in split(plain(text), DIVIDER)]
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
    import sympy

    if len(text) > LONGEST:
        return []
    text = OF_AN_OPTION.sub("", plain(text))
    readings = [THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)]
    if readings[0] != text and ",0" not in text:
        readings.append(text.replace(",", ", "))
    found, is_false = [], False
    for reading in readings:
        groups = [read_group(group, values) for group in split(reading, ";")]
        if None in groups:
            is_false = True
        elif all(groups):
            found += parse("; ".join(groups))
    # nan equals nothing
    return found or ([sympy.nan] if is_false else [])


def read_group(group: str, values: bool) -> str | None:
    """A list as math-verify is to have it; "" where it cannot be read, None for what is false."""
    items = split(group, DIVIDER)
    items = [settle(item) for item in items] if values else items
    if None in items:
        return None
    signs = [item.replace(r"\pm", "+").replace(r"\mp", "-") for item in items]
    others = [item.replace(r"\pm", "-").replace(r"\mp", "+") for item in items]
    cleaned = [clean(item) for item in dict.fromkeys([*signs, *others])]
    return ", ".join(cleaned) if all(cleaned) else ""


def clean(item: str) -> str:
    """One item of a list, as math-verify is to have it; "" where it cannot be read."""
    item = plain(re.sub(r"\\?%", "", item))
    if WORDS.fullmatch(item):
        return rf"\text{{{item}}}"
    unit = WITH_UNIT.fullmatch(item)
    if not unit:
        return item
    words = re.sub(TEXT, " ", next(filter(None, unit.groups()[1:])))
    scale = scale_of(re.sub(r"\\cdot|[(){}]|\^\{?-?\d\}?|(?<=[a-z])\d", "", words))
    return {None: "", 1: unit[1]}.get(scale, rf"({unit[1]}) \cdot {scale}")


def settle(item: str) -> str | None:
    """The value of an equation, or the item if it is none; None where the equation is false.

    The value is the last side without letters, or else the last side. Sides without letters have to
    agree.
    """
    sides = split(item, EQUALS)
    if len(sides) == 1:
        return item
    numbers = [side for side in sides if is_number(side)]
    if not all(agree(side, numbers[-1]) for side in numbers[:-1]):
        return None
    return (numbers or sides)[-1]


def is_number(side: str) -> bool:
    """Whether a side of an equation has no letters but those of its unit."""
    side = re.sub(r"_(?:\{[^{}]*\}|.)", "", re.sub(UNKNOWN, "x", without_unit(side)))
    return not re.search(r"[A-Za-z]", re.sub(r"\\[a-z]+", "", side))


def without_unit(side: str) -> str:
    """A side of an equation without the unit behind it; a percent sign stays."""
    return side if "%" in side else clean(side) or side


def agree(side: str, other: str) -> bool:
    """Whether math-verify takes two sides of an equation for equal, or without their units.

    25\\% is 25 to it, and is tried as 25/100, too.
    """
    import math_verify

    sides = side, other
    bare = tuple(map(without_unit, sides))
    in_hundredths = tuple(re.sub(r"\\?%", "/100", each) for each in sides)
    return any(
        math_verify.verify(parse(one), parse(another), timeout_seconds=None)
        for one, another in dict.fromkeys([sides, bare, in_hundredths])
    )


def parse(text: str) -> list:
    """The values that math-verify reads in LaTeX; [] for what it does not read.

    It reads LaTeX alone, without its units, which take the t of 2t for one.
    """
    import math_verify

    outside_of_text = re.sub(rf"{TEXT}[^{{}}]*\}}|\\[A-Za-z]+", "", text)
    if PROSE.search(outside_of_text) or TWO_NUMBERS.search(text):
        return []
    latex = math_verify.LatexExtractionConfig(boxed_match_priority=0)
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    found = math_verify.parse(boxed(text), [latex], parsing_timeout=None)
    return [value for value in found if not isinstance(value, str)]
