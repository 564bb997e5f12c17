r"""Mathematics: compare the LaTeX in the last box with the gold.

latex2sympy parses LaTeX, and equality.py compares what it returns. This file prepares the text by
the rules of docs/real-models.md, "What an answer may look like". Words are compared as texts,
because latex2sympy would read their letters as factors, which commute. Percent signs are dropped,
because data sets write 50 and 50\% for the same value.
"""

import itertools
from functools import lru_cache, partial
from typing import Any

from rlvr.verify.answers.boxes import LONGEST, boxed, last_boxed, last_boxes, read_choice
from rlvr.verify.answers.latex import (
    ABBREVIATED,
    ARGUMENT,
    IN_BRACES,
    POWER,
    TEXT,
    in_words,
    plain,
    split,
    without_commas,
)
from rlvr.verify.answers.numbers import differ_in_unit, same_time, scale_of

import regex as re

IN_ORDER = re.compile(r"\d+(?:-\d+)+|\d+(?:/\d+){2}|[A-Z](?:-[A-Z]){2,}")  # dates, ranges, paths
# or of a transpose: (AB)^T = B^T A^T
OF_AN_INVERSE = r"\(([A-Z]) ?([A-Z])\)\^\{(-1|\\variable\{T\})\}"
OF_MATRICES = re.compile(r"(?=.*\^)(?:[A-Z](?:\^\{(?:-1|\\variable\{T\})\})? ?){2,}")
AND, OR = (
    rf"{TEXT}\s*,?\s*(?:{word}|[{signs}])\s*,?\s*\}}|(?<![A-Za-z\\]){word}(?![A-Za-z])|[{signs}]"
    for word, signs in (("and", "和且"), ("or", "或"))
)
LISTED = rf"{TEXT}\s*,\s*\}}|\\\\(?![A-Za-z]{{2}})|[,;]"  # also a line's end, but not \\sqrt
DIVIDER = f"{AND}|{OR}|{LISTED}"  # of items
EQUALS = r"(?<![<>])(?<![^\d)}]!)=|\\equiv(?![a-z])"  # also in 4!=24, but not in x!=4
WORDS = re.compile(r"(?!inf$|infinity$)(?=.*[A-Za-z]{2})[A-Za-z][A-Za-z'. -]*")
UNREADABLE = re.compile(  # prose, 5 6, dots, and gcd(m, n), which sympy takes for 1
    r"\\[lc]?dots|[A-Za-z]{3,}\s+[A-Za-z]{2,}"
    r"|(?<![_^\d.])[\d.]+ \d|\) \d|!!|(?:gcd|lcm)\}? ?\([^()]*[A-Za-z]"
)
WITH_UNIT = re.compile(  # a value, followed by \text{...}, words, or an abbreviation
    rf"(.+?)(?:(?<![\^_\s])\s*((?:(?:\\mu *)?{TEXT}{IN_BRACES}\}}{POWER}(?:[\s/]|\\cdot)*)+)"
    r"|(?:(?<=[\d}])|(?<=\\pi))"
    r"(\s+(?:[A-Za-z]{3,}|in|hr|lb|oz|sq)[A-Za-z\s/]*|\s*[\u4e00-\u9fff]+"
    rf"|\s*(?:[ckm]m|[km]g|ml|ft|(?:km|cm|ft|\smi?)/(?:hr|h|min|s))){POWER})"
)
# letters behind a number that are a unit if the gold has no letters: 5 N
OF_A_NUMBER = rf"(?<=[\d}}])(?: [mgshNJWVALKCFTH]| ?\\(?:Omega|mu ?(?:\w|{TEXT}\w\}})))$"
MODULUS = re.compile(rf"\s*(?:\(?\\[pb]?mod|\(?{TEXT}mod\}})\W*(\w+)\W*$")
# an option before its value, as in \textbf{(A) }204
OF_AN_OPTION = rf"^(?:{TEXT}\s*\([A-E]\)\s*\}}|\([A-E]\)(?=\s))\s*(?=\S)(?!{DIVIDER})"
OF_A_POINT = r"^[A-Z](?=\([^()]*,[^()]*\)$)"
OF_A_DISTRIBUTION = re.compile(rf"(?=[NUB]){OF_A_POINT}")  # as in N(0,1)
OF_OPTIONS = re.compile(r"\(?[A-J]\)?")
NO_OPTION = re.compile(r"[ei]$|[A-J] ?[_^']|\\mathbb")  # e and i are numbers
# words in braces, with letters and numbers around them but no signs
SENTENCE = re.compile(r"(?:[^\W_]|[\s.,;'{}])*\{[^{}]*[A-Za-z]{2}(?:[^\W_]|[\s.,;'{}])*")
A_LETTER = re.compile(r"\s*(?:\\[A-Za-z]+|[A-Za-z])\s*(?:_(?:\w|\{\w+\}))?\s*")
OF_A_BASE = re.compile(r"(?:^|[,=])\s*-?\d+_\{?(\d+)\}?(?=\s*(?:,|$))")
BRACKET = re.compile(r"[(\[]|\\\{")
# where latex2sympy would read a mixed number: 3(4), (3)(4), (3)\frac12, but not x_2(3)
JUXTAPOSED = re.compile(
    rf"(?<=(?<![\w.\\^])\d+|\\binom{ARGUMENT}{ARGUMENT}|[)\]]) ?(?=[(\[]|\\binom)"
    r"|(?<=[)\]])(?=\d| ?\\frac)"
)
INDEX = r"(?:_\w|_\{[^{}]*\})"
# letters that latex2sympy misreads, and before them what must not be searched for letters
LETTERS = re.compile(
    rf"{TEXT}[^{{}}]*\}}|(?P<primed>\\[A-Za-z]+|[A-Za-z])(?P<index>{INDEX}?'+{INDEX}?)"
    rf"|(?P<name>\\[gG]amma(?![a-z])|(?<![A-Za-z\\])[EeI](?=_)){INDEX}?"
    r"|\\(?:begin|end|hat)\{\w+\}|\\[A-Za-z]+|[A-Za-z]{3,}|_\w|_\{[^{}]*\}|i|I(?!\(\w+\))"
)


def verify_math(text: str, gold: str) -> float | None:
    """Judge the last box, or the last boxes if the gold has several parts.

    There is no time limit here. For completions of a policy, use `rlvr.verify.pool.grade`.
    """
    from rlvr.verify.answers.equality import are_equal, limited  # sympy takes a second

    from sympy import FiniteSet

    answer = last_boxed(text)
    if answer == "NA" or max(len(answer), len(gold)) > LONGEST:
        return None
    chosen, wanted = plain(answer), plain(gold)
    # products of matrices do not commute
    matrices = [re.sub(OF_AN_INVERSE, r"\2^{\3}\1^{\3}", side) for side in (wanted, chosen)]
    if all(map(OF_MATRICES.fullmatch, matrices)) or IN_ORDER.fullmatch(wanted):
        return float(matrices[0].replace(" ", "") == matrices[1].replace(" ", ""))
    items = itertools.zip_longest(split(wanted, DIVIDER), split(chosen, DIVIDER), fillvalue="")
    times = [same_time(*pair) for pair in items]
    if None not in times:
        return float(all(times))
    if OF_OPTIONS.fullmatch(wanted) and not NO_OPTION.match(chosen):
        chosen = read_choice(chosen) or chosen  # as in B. Paris
    for pattern in (MODULUS, OF_A_DISTRIBUTION):
        found = pattern.findall(chosen), pattern.findall(wanted)
        if all(found) and found[0] != found[1]:
            return 0.0
    written = [re.sub(r"\\[^A-Za-z\\{}]|~", " ", side) for side in (gold, answer)]
    if differ_in_unit(*written) or rearranged(*written):
        return 0.0
    # solutions for several letters, as in x = 1, y = 2 or x = 2, y = 1
    solutions, others = split(wanted, f"{OR}|;"), split(chosen, f"{OR}|;")
    sizes = {len(split(solution, DIVIDER)) for solution in solutions}
    if 1 < len(solutions) == len(others) < 9 and len(sizes) == 1 and sizes != {1}:
        equal = [[verify_math(boxed(x), y) == 1 for x in others] for y in solutions]
        return float(all(map(any, [*equal, *zip(*equal, strict=True)])))
    chosen, wanted = MODULUS.sub("", chosen), MODULUS.sub("", wanted)
    if bool(BRACKET.match(chosen)) != bool(BRACKET.match(wanted)):  # 1,234 is no (1,234)
        chosen, wanted = without_commas(chosen), without_commas(wanted)
    # A gold that is an equation is compared as one, if it can be read as such.
    sides, other_sides = split(wanted, EQUALS), split(chosen, EQUALS)
    values = len(sides) == 1 or not read(wanted, values=False)
    gold_values = read(wanted, values)
    if not any(value.free_symbols for value in gold_values):
        chosen = re.sub(OF_A_NUMBER, "", re.sub(ABBREVIATED, in_words, chosen))
    values_read = read(chosen, values)
    parts = len(gold_values[0]) if gold_values and isinstance(gold_values[0], FiniteSet) else 1
    if parts > 1 and not any(
        isinstance(value, FiniteSet) and len(value) > 1 for value in values_read
    ):
        values_read = read(plain(last_boxes(text, parts)[:LONGEST]), values)
    if not gold_values or not values_read:
        return None
    are_equations = len(sides) > 1 and len(other_sides) > 1
    if values and are_equations and have_other_names(sides[0], other_sides[0]):
        return 0.0
    bases = OF_A_BASE.findall(chosen)
    if bases and bases != (OF_A_BASE.findall(wanted) or ["10"] * len(bases)):
        return 0.0  # latex2sympy drops the base of 52_8
    if any(one == other for one in gold_values for other in values_read):
        return 1.0  # without evaluating them
    with limited():
        return float(any(are_equal(one, other) for one in gold_values for other in values_read))


def rearranged(gold: str, answer: str) -> bool:
    """Return whether two texts have the same words and numbers, but not the same phrases.

    3 red, 4 blue is not 4 red, 3 blue, and p implies q is not q implies p.
    """
    # the order of the words in a sentence counts, and that of factors in a formula does not
    in_order = list if SENTENCE.fullmatch(re.sub(TEXT, "{", gold)) else sorted
    phrases = []
    for text in (gold, answer):
        text = text.replace(r"\{", "[").replace(r"\}", "]")
        text = re.sub(r"\\[A-Za-z]+|\\[^A-Za-z\\]|[{}]|(?<=\d),(?=\d{3})", " ", text)
        parts = [re.findall(r"[A-Za-z]+|[\d.]+", part) for part in split(text, DIVIDER)]
        phrases.append({tuple(in_order(part)) for part in parts})
    names = {tuple(filter(str.isalpha, phrase)) for phrase in phrases[0]} - {()}
    words = [sorted(itertools.chain(*of_text)) for of_text in phrases]
    is_alike = len(phrases[0]) == len(phrases[1]) and words[0] == words[1]
    is_one = in_order is list and len(phrases[0]) == 1
    return is_alike and (is_one or len(names) > 1) and phrases[0] != phrases[1]


def have_other_names(gold: str, answer: str) -> bool:
    """Return whether two left sides name different values: P(A|B) and P(B|A), or Re z and z.

    The values differ if the sides are one function with different arguments, different functions
    of one argument, or a function and its argument. Any other name may stand for the same value.
    """
    looks = r"\\(?:operatorname|text|math[a-z]+)|[\\{}]|(?<=P)r(?![a-z])|f_(?=\{E)"
    sides = [re.sub(looks, " ", side) for side in (gold, answer)]
    heads = [[*re.findall("[A-Za-z]+", side), ""][0] for side in sides]
    wanted, other = (re.sub(r"[\s()\[\]]", "", side) for side in sides)
    if A_LETTER.fullmatch(answer):
        return wanted != other and wanted.endswith(other)
    takes = wanted.removeprefix(heads[0]), other.removeprefix(heads[1])
    return (heads[0] == heads[1]) != (takes[0] == takes[1])


@lru_cache(maxsize=1000)  # completions of a problem share the gold, and often the answer
def read(text: str, values: bool) -> list:
    """Return the values of plain LaTeX, one for each way to read it, or [].

    100,200 is a number or a list of two. `values` replaces each equation by its value.
    """
    import sympy

    conditions = sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge, sympy.Ne, sympy.And
    text = re.sub(OF_AN_OPTION, "", text)
    # also in a list, such as x = 0 or x > 1
    inequality = r"(?:<|>|\\[lg]eq?(?![a-z]))(?:[^\]})]*$|.*(?:\bor\b|或))"
    values = values and not re.search(inequality, text)
    readings = [without_commas(text)]
    if readings[0] != text and not re.search(r",0|(?<!\d)(\d{3}),\1(?!\d)", text):
        readings.append(text.replace(",", ", "))
    words: Any = [way for way, word in ((sympy.Or, OR), (sympy.And, AND)) if re.search(word, text)]
    is_joined = len(words) == 1 and not re.search(LISTED, text)
    results = []
    for reading in readings:
        items = dict.fromkeys(itertools.chain(*map(signed, split(reading, DIVIDER))))
        cleaned = [clean(settle(re.sub(OF_A_POINT, "", item.strip()), values)) for item in items]
        parts = [value for item in cleaned for value in parse(item)] if is_joined else []
        has_inequality = any(isinstance(part, conditions) for part in parts)
        names = {part.lhs for part in parts if isinstance(part, sympy.Eq) and part.lhs.is_Symbol}
        of_relations = all(isinstance(part, (*conditions, sympy.Eq)) for part in parts)
        has_names = words == [sympy.Or] and 1 < len(names) == len(parts)
        if of_relations and (has_inequality or has_names):  # x < 1 or x > 2; x = 0 or y = 0
            results.append(words[0](*parts, evaluate=False))
        elif not has_inequality:
            results += parse(", ".join(cleaned)) if all(cleaned) else []
    return results


def signed(item: str) -> list[str]:
    r"""Return an item with each sign: \pm 1\pm i is four; (\pm 1,\pm 2) and \pm a\mp b are two."""
    # the signs for the first \pm, for later ones, and for \mp
    ways = [("+", "+", "-"), ("-", "-", "+"), ("+", "-", ""), ("-", "+", "")]
    return [
        item.replace(r"\pm", first, 1).replace(r"\pm", other).replace(r"\mp", opposite)
        for first, other, opposite in ways[: 2 if re.search(r",|\\mp|\\begin", item) else 4]
    ]


def clean(item: str) -> str:
    """Remove percent sign and unit from an item; return "" if something else follows the value.

    A unit such as million becomes a factor, and a ratio such as 2:4:6 a matrix with a first 1.
    """
    item = plain(re.sub(r"\\?%", "", item))
    if WORDS.fullmatch(item):
        return rf"\text{{{item.replace('inf', 'in f')}}}"  # latex2sympy takes inf for \infty
    terms = split(item, ":")
    if len(terms) > 3 and "=" in item:  # a:b:c = 2:3:4 is read as its value
        return ""
    if len(terms) > 2 and "=" not in item:
        row = "&".join(rf"\frac{{{term}}}{{{terms[0]}}}" for term in terms)
        return rf"\begin{{pmatrix}}{row}\end{{pmatrix}}"
    match = WITH_UNIT.fullmatch(item)
    if not match or match[1].isalpha():  # n \text{ even} is no amount
        return item
    if same_time(item, item):  # 5 AM is not 5 PM
        return ""
    value, unit = match[1], re.sub(TEXT, " ", match[2] or match[3])
    unit = re.sub(r"\\(?:cdot|frac|circ|mu|Omega)|[(){}]|\^\{?-?\d\}?|(?<=[a-z])\d", "", unit)
    scale = scale_of(re.sub(r"\^", "", unit))
    return {None: "", 1: value}.get(scale, rf"({value}) \cdot {scale}")


def settle(item: str, values: bool) -> str:
    """Return the value of an equation, or else its two ends; "" if its numbers do not agree.

    For x = y = 1, and if each side has a letter of its own, return all equations.
    The value is the last side without letters, preferably an exact one, or else the last side.
    """
    from rlvr.verify.answers.equality import same

    before, approximately, after = item.partition(r"\approx")
    if approximately:
        has_number = before.strip() and is_number(split(before, EQUALS)[-1])
        return settle(before if has_number else after, values)
    sides = split(item, EQUALS)
    if len(sides) == 1:
        return sides[0]
    numbers = sorted(filter(is_number, sides), key=lambda side: "." not in side)
    # a side as written, where 25\% is a quarter, and without its unit
    ways = [sum(map(parse, {side, clean(side)}), []) for side in numbers]
    for one in ways[:-1]:
        if not any(same(*pair) for pair in itertools.product(one, ways[-1])):
            return ""
    if values:
        return (numbers or sides)[-1]
    pairs, others = [(sides[0], sides[-1])], [side for side in sides if side not in numbers]
    if numbers and others and all(map(A_LETTER.fullmatch, others)):  # x = y = 1
        pairs = [(name, numbers[-1]) for name in others]
    elif not numbers and r"\frac{d" not in item:  # dx/dt is no side of its own
        letters = [value.free_symbols for side in sides for value in parse(side)[:1]]
        if sum(map(len, letters)) == len(set().union(*letters)) == len(sides) < 5:
            pairs = [*itertools.combinations(sides, 2)]  # of a/2 = b/3 = c/4
    return ", ".join(map("=".join, pairs))


def is_number(side: str) -> bool:
    """Return whether a side of an equation has no letters other than those of its unit."""
    return any(not value.free_symbols for value in parse(clean(side) or side))


@lru_cache(maxsize=1000)  # settle needs each side of an equation twice
def parse(text: str) -> list:
    """Return [value] as latex2sympy reads it, or [].

    Letters keep their case. i is the imaginary unit unless it is an index; I and gamma are letters.
    """
    import sympy
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig
    from sympy.core.function import AppliedUndef

    if re.fullmatch(r"-?\d{1,300}(\.\d{1,300})?", text):  # a decimal keeps its last zeros
        return [sympy.Float(text, "") if "." in text else sympy.Integer(text)]
    if UNREADABLE.search(
        re.sub(rf"{TEXT}(?!lcm|gcd)[^{{}}]*\}}|\\(?!gcd|lcm|[lc]?dots)[A-Za-z]+", ";", text)
    ):
        return []
    text = JUXTAPOSED.sub(r"\\cdot ", text)
    i = "i" if re.search(r"_\{?i(?![a-z])", text) else "{I}"
    text = LETTERS.sub(lambda match: letter(match, i), text)
    read = partial(
        latex2sympy,
        is_real=True,
        normalization_config=NormalizationConfig(malformed_operators=True, boxed="none"),
        conversion_config=ConversionConfig(lowercase_symbols=False),
    )
    try:
        value = read(text)
    except Exception:  # it raises errors of every kind
        read("x")  # raises again if the text is not to blame
        return []
    if isinstance(value, sympy.MatrixBase):
        value = sympy.ImmutableMatrix(value)
    if not isinstance(value, sympy.Basic):
        return []
    # f(x) and dy/dx are letters; sympy would take the second for 0
    of_it = [*value.atoms(AppliedUndef), *value.atoms(sympy.Derivative, sympy.Integral)]
    return [value.xreplace({atom: as_letter(atom) for atom in of_it})]


def as_letter(value):
    """Return a letter for an unknown function, for its derivative, and for one such as dy/dx."""
    import sympy
    from sympy.core.function import AppliedUndef

    is_slope = isinstance(value, sympy.Derivative) and value.args[0].is_Symbol
    is_letter = is_slope or value.has(AppliedUndef)
    return sympy.Symbol(str(value), real=True) if is_letter else value


def letter(match: re.Match[str], i: str) -> str:
    """Rewrite a match of LETTERS for latex2sympy."""
    if match["name"]:
        name = re.sub(r"[{}\\]", "", match[0])
        return rf"\variable{{{name}}}"
    if match["primed"]:
        index = re.sub("[_{}']", "", match["index"]) + "prime" * match["index"].count("'")
        return f"{match['primed']}_{{{index}}}"
    return {"_e": "_{e}", "_E": "_{E}", "i": i, "I": r"\variable{I}"}.get(match[0], match[0])
