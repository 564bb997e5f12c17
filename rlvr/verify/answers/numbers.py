"""Read the one number of an answer exactly, and compare numbers by one rule for all verifiers."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from rlvr.verify.answers.boxes import find_answer
from rlvr.verify.answers.expressions import LONGEST, value_of
from rlvr.verify.answers.latex import ABBREVIATED, TEXT, in_words, normal, plain, without_commas

import regex as re

LEAST_DIGITS = 3  # to which a gold with a decimal counts
EXACT, ROUNDED, NOISE = Fraction(1, 10**40), Fraction(1, 10**6), Fraction(1, 10**12)
# Words that multiply the number before them, as in 3 million.
MULTIPLES = dict(dozen=12, hundred=10**2, thousand=10**3, lakh=10**5, crore=10**7, cr=10**7)
MULTIPLES |= dict(million=10**6, mn=10**6, billion=10**9, bn=10**9, trillion=10**12, tn=10**12)
MULTIPLES |= dict(quadrillion=10**15, 百=100, 千=1000, 万=10**4, 萬=10**4, 亿=10**8, 億=10**8)
# Words that make another number of the one before them, as in 3 and a half, or leave it open.
NUMBER_WORDS = set(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety or "
    "half halve third quarter fifth eighth ninth twelfth recurring repeating "
    "squared cubed factorial below i rejected extraneous 以上 半".split()
)
NUMBER_WORDS |= {f"{word}th".replace("yth", "ieth") for word in (*NUMBER_WORDS, *MULTIPLES)}
# One text per kind: 5 cm is not 5 m. Other units are dropped, because golds often leave them out.
UNITS = [
    "pm nm|nanometer micrometer|micron mm|millimeter cm|centimeter m|meter km|kilometer inch|in "
    "foot|feet|ft yard|yd mile|mi",
    "ns|nanosecond microsecond ms|millisecond second|sec|s minute|min hour|hr|h day week fortnight "
    "month year decade century|centuries",
    "mg|milligram g|gram kg|kilogram ounce|oz pound|lb ton|tonne",
    "cent dollar euro yen rupee",
    "degree radian|rad",
]
OPPOSITES = [  # like UNITS, but either side may leave them out
    "north south east west",
    "left right up|upward down|downward",
    "more less|fewer",
    "increase decrease",
    "profit|gain loss|losses",
    "noon midnight",
    "ad|ce bc|bce",
    "morning evening|night",
    "january february march april may june july august september october november december",
]
UNIT_OF = {
    name: (kind, unit)
    for kind, units in enumerate(UNITS + OPPOSITES)
    for unit in units.split()
    for name in unit.split("|")
}
# Units that take prefixes: 5 kJ is not 5 J. Long names take long prefixes, and symbols short ones.
# Different ones are not compared, since N m is J.
PREFIXES = "pico nano micro milli centi kilo mega giga".split(), [*"pnumckMG"]
DERIVED = "joule|J watt|W volt|V newton|N pascal|Pa hertz|Hz liter|L|l calorie|cal mole|mol "
DERIVED += "ampere|A electronvolt|eV"
UNIT_OF |= {
    (long if len(name) > 3 else short) + name: (kind, short)
    for kind, names in enumerate(DERIVED.split(), len(UNIT_OF))
    for name in names.split("|")
    for long, short in [("", ""), *zip(*PREFIXES, strict=True)]
}
ARITHMETIC = [  # rewrites of plain LaTeX to arithmetic, applied in this order
    (ABBREVIATED, in_words),
    (r"(\d)([kKMB])(?= (?!gold)[a-z])", in_words),
    (r"\\(?:text|math|operatorname)[a-z]*|\\(?:left|right)|\\?%|\*\*|\^\\circ", " "),
    (r"\\times|\\cdot|(?<=\d) ?x ?(?=\d)", "*"),
    (r"\\div", "/"),
    (r"\\approx", "="),
    (r"\\[dtc]?frac\{([^{}]*)\}\{([^{}]*)\}", r" \1/\2"),
    (r"[{}]", ""),
    (r"(?:^|(?<==)) *10\^", "1*10^"),
    (r"^[^\d=:]*(?<!\b(?i:not|least|most|than|except) ?)(?::|\bis\b)", "="),  # the answer is 5
    # a sign that no number has, for what has no value: x >= 5, and x = 5, y = 6
    (r"[<>]=|(?<!\d)!=|(?<==[^=]*\d[\w ]*)(?:[,;]|\\\\|\b(?:and|or)\b) ?[^\W\d]\w* ?=", "<"),
]
NUMBER = re.compile(
    r"(?P<sign>[-+]?) *(?:(?P<whole>\d+) +(?=\d+/))?(?P<top>\d*\.?\d+)"
    r"(?:/(?P<bottom>-?0*[1-9]\d*))?(?: *\* *10\^(?P<power>[-+]?\d\d?))?(?P<unit>.*)",
    re.A,
)
UNIT = re.compile(r"[ .]*|(?! *and\b|.*[(]wrong) *[-/(]? *[^\W\d_](?:[^\W\d_]|[ /*.()'-]|\^-?\d)*")
# A letter that is no unit is a factor: 5x, 5 more than x, but not 5 x-rays or 5 a day.
FACTOR = re.compile(r"(?<![\w'-])[abefjnqrw-zXYZα-λν-ωΑ-Ψ](?! ?[\w'-])")
# A time of day such as 5 PM, 10:30 a.m., 17:00, or an hour alone.
TIME = re.compile(r"(\d\d?)(:[0-5]\d(?::[0-5]\d)?)? *(?:([ap])\.?m\.?)?", re.I)


class Number(NamedTuple):
    """A real or complex number, and how it was written."""

    real: Fraction
    imaginary: Fraction = Fraction(0)
    digits: int = 0  # significant digits of its shortest decimal; 0 without a decimal
    is_rational: bool = True  # an irrational number is known to 60 digits


def is_near(gold: Number, answer: Number) -> bool:
    """Return whether an answer equals a gold by the rule of docs/real-models.md for decimals.

    Irrational numbers are compared to 40 digits. If an exact gold is a finite decimal, such as 1/8,
    a decimal answer must be right to one part in 10^12: 0.30000000000000004 equals 3/10.
    """
    size = max(abs(gold.real), abs(gold.imaginary))
    if gold.digits and size:
        exponent = (Decimal(size.numerator) / size.denominator).adjusted()
        limit = Fraction(10) ** (exponent + 1 - max(LEAST_DIGITS, gold.digits)) / 2
    elif answer.digits:
        bottom = gold.real.denominator
        ends = gold.is_rational and pow(10, bottom.bit_length(), bottom) == 0
        limit = size * (NOISE if ends else ROUNDED)
    else:
        limit = 0 if gold.is_rational and answer.is_rational else size * EXACT
    parts = zip(gold[:2], answer[:2], strict=True)
    return all(abs(wanted - part) <= limit for wanted, part in parts)


def digits_of(decimal: str) -> int:
    """Count the significant digits of a decimal as it is written: 12.30 has four."""
    number = Decimal(decimal)
    if len(number.as_tuple().digits) == 15:  # sympy fills most decimals up with zeros
        number = number.normalize()
    return max(len(number.as_tuple().digits), number.adjusted() + 2 if number else 0)


def same_time(gold: str, answer: str) -> bool | None:
    """Return whether two times of day in plain LaTeX are equal, or None if they are no times.

    An hour alone is a time if the other text is one.
    """
    wanted, times = times_of(gold), times_of(answer)
    are_times = wanted and times and not (gold + answer).replace(" ", "").isdecimal()
    return not wanted.isdisjoint(times) if are_times else None


def times_of(text: str) -> set[tuple]:
    """Return the times of day that a text can mean: two for 5:30, and none for 100 pm, a length."""
    match = TIME.fullmatch(" ".join(re.sub(rf"{TEXT}|\}}", " ", text).split()))
    if not match:
        return set()
    hour, minutes, half = int(match[1]), match[2] or ":00", match[3]
    if half is None and not 0 < hour < 13:
        return {(hour % 24, minutes)} if hour < 25 else set()
    starts = {"a": [0], "p": [12]}[half.lower()] if half else [0, 12]
    return {(hour % 12 + start, minutes) for start in starts if 0 < hour < 13}


def last_number(text: str) -> str:
    """Return the last number of a text, for policies that do not mark an answer, or "NA"."""
    number = r"(?<![\w.)^])(?<!\^\{)-?(?:\d[\d,]*(?: 000)*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
    return ["NA", *re.findall(number, normal(text), re.A)][-1].rstrip(",")


def verify_number(text: str, gold: str, find: Callable = find_answer) -> float | None:
    """Compare the number of an answer with that of the gold; None if one of them has none.

    With `last_number` the answer is found anywhere in the text, as by lm-eval's flexible-extract.
    """
    answer = re.sub("~~.*?~~", "", find(text))  # struck out
    if max(len(answer), len(gold)) > LONGEST:
        return None
    answer, gold = plain(answer), plain(gold)
    if (same := same_time(gold, answer)) is not None:
        return float(same)
    number, right = read_number(answer), read_number(gold)
    if number is None or right is None:
        return None
    return float(is_near(right, number) and not differ_in_unit(gold, answer))


def read_number(text: str) -> Number | None:
    r"""Read the one number of plain LaTeX such as "1,234.50", "18 eggs" or "x = 3/4".

    Return None without a number, or with several. Those sides of an equation that have no letters
    must agree, and one of them must be a number.
    """
    for written, meant in ARITHMETIC:
        text = re.sub(written, meant, text)
    sides = without_commas(text).split("=")
    sides = [re.sub(r"^\(([^()]*)\)$", r"\1", side.strip(" *_")) for side in sides]
    read = {side: read_plain(side) for side in sides if side}
    sums = [side for side in read if read[side] is None and not re.search(r"[^\W\d_]", side)]
    numbers = {*read.values()} - {None}
    numbers |= {value_of(side) for side in sums} if numbers else set()
    number = numbers.pop() if len(numbers) == 1 else None
    digits = max(map(digits_of, re.findall(r"\d*\.\d+", without_commas(text))), default=0)
    return None if number is None else Number(number, digits=digits)


def read_plain(text: str) -> Fraction | None:
    """Read a number with its unit, as in -1000.5 m^2, 1 1/2 cups, 1.2M or 3 million."""
    match = NUMBER.fullmatch(text)
    if match is None or (scale := scale_of(match["unit"])) is None:
        return None
    value = Fraction(match["top"]) / Fraction(match["bottom"] or 1) + int(match["whole"] or 0)
    value *= Fraction(10) ** int(match["power"] or 0) * scale
    return -value if match["sign"] == "-" else value


def differ_in_unit(gold: str, answer: str) -> bool:
    """Return whether both texts name units, and those of one kind differ."""
    wanted, units = units_of(gold), units_of(answer)
    shared = wanted.keys() & units.keys()
    # in their order, as in 2 hours 5 minutes, or north of east, unless they are a list
    order = sorted if re.search(r"[,;]|\b(?:and|or)\b", gold) else list
    differ = any(
        len(wanted[kind]) == len(units[kind]) and order(wanted[kind]) != order(units[kind])
        for kind in shared
    )
    is_rate = re.search(r"/|\bper\b", gold + answer)  # 3 per pound is a price, without its dollars
    measured = [any(kind < len(UNITS) for kind in kinds) for kinds in (wanted, units)]
    return differ or bool(all(measured) and not shared and not is_rate)


def units_of(text: str) -> dict[int, list[str]]:
    """Return the units of each kind that a text names, in their order.

    A single letter is a unit where an amount ends, and "in" where the text does.
    """
    at_the_end = r"(?=(?:\^\{?-?\d\}?)?(?:/|$))"
    in_text = rf"(?<={TEXT}(?:[^{{}}]*[^A-Za-z{{}}])?)[A-Za-z](?![A-Za-z])"
    words = re.findall(
        rf"(?<![A-Za-z\\])[A-Za-z]{{2,}}|(?<=\d ?)[A-Za-z]{at_the_end}|{in_text}", text
    )
    words += ["degree"] * bool(re.search(r"\^\{?\\circ *\}?$", text))
    if not re.search(r"\bin\.? ?\}?(?:\^\{?\d\}?)?$", text):
        words = [word for word in words if word != "in"]
    # mW is not MW, and K is no k
    words = [word if len(word) == 1 or word in UNIT_OF else word.lower() for word in words]
    words = [word.replace("metre", "meter").replace("inches", "inch") for word in words]
    units = {}
    for word in words:
        kind, unit = UNIT_OF.get(word) or UNIT_OF.get(word.removesuffix("s")) or (None, "")
        if kind is not None and unit not in units.setdefault(kind, []):
            units[kind].append(unit)
    return units


def scale_of(unit: str) -> int | None:
    """Return the factor that a unit stands for, mostly 1, or None for what is not a unit."""
    # 3 a dozen and 1,200 (nearest hundred) are no multiples; 万元 is 10,000 of a unit, 千克 is one
    counted = re.sub(r"nearest \w+|\w+ decimal|(/|\b(per|an?)\b(?![ -]half)).*", "", unit.lower())
    apart = re.sub("[百万萬亿億半]|千(?![克米瓦卡焦])", r" \g<0> ", counted)
    words = re.findall(r"([^\W\d_]+?)s?(?![^\W\d_])", apart)
    if not UNIT.fullmatch(unit) or FACTOR.search(unit) or NUMBER_WORDS.intersection(words):
        return None
    return math.prod(MULTIPLES.get(word, 1) for word in words)
