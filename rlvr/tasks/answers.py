"""Mathematical answers, numbers and choices: where an answer stands, and whether it is right.

A verifier gives 1.0 or 0.0, or None where a completion has no answer that can be read.
"""

import re
from fractions import Fraction

from rlvr.tasks.countdown import extract_answer


def last_boxed(text: str) -> str:
    r"""What the last complete \boxed{...} holds, by matching braces, or "NA"."""
    opened = []  # where each open brace begins; None for one that is not a box's
    found = "NA"
    for token in re.finditer(r"\\f?box(?:ed)?\s*\{|\\.|[{}]", text, re.S):  # \\. so \{ is no brace
        if "box" in token[0]:
            opened.append(token.end())
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None:
                found = text[start : token.start()].strip() or "NA"
    return found


def read_number(text: str) -> Fraction | None:
    """The one number of an answer such as "$1,234.50", "18 eggs" or "3/4".

    None where there is none, or more than one.
    """
    text = re.sub(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}", r" \1", text.replace("{,}", ","))
    text = re.sub(r"\\[!,;: ]|\\?[$%]|[€£*]", "", text)
    text = re.sub(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", text).strip()
    whole = r"(?:\d{1,3}(?:,\d{3})+|\d{1,30})?"
    number = rf"([-+]?{whole}(?:\.\d{{0,30}})?(?:/0*[1-9]\d{{0,29}})?)"
    unit = r"(?:\s*[A-Za-z][A-Za-z ]*)?\.?"
    found = re.fullmatch(number + unit, text, re.A) if len(text) <= 100 else None
    if found is None:
        return None
    top, _, bottom = found[1].replace(",", "").partition("/")
    try:
        return Fraction(top) / Fraction(bottom or 1)
    except ValueError:  # a match without digits
        return None


def verify_number(text: str, gold: str) -> float | None:
    """The number in the last box, or else after the last ####, or else in the last <answer>."""
    answer = last_boxed(text)
    if answer == "NA":
        answer = text.rpartition("####")[2] if "####" in text else extract_answer(text)
    number = read_number(answer)
    return None if number is None else float(number == read_number(gold))


def verify_choice(text: str, gold: str) -> float | None:
    """The letter in the last box, or else in the last <answer>, as in B, (B), B. or "B) 12"."""
    boxed = last_boxed(text)
    answer = read_choice(extract_answer(text) if boxed == "NA" else boxed)
    gold = read_choice(gold)
    return float(answer == gold) if answer and gold else None


def read_choice(text: str) -> str | None:
    """The one letter of a choice; None for two of them, as in "(A) or (B)", and for none."""
    text = re.sub(r"\\(?:text|math)(?:rm|bf)?|[{}\s*]", "", text)
    found = re.fullmatch(r"\(?([A-Z])(?:[.:)](?!.*[A-Z][.:)]).*)?", text)
    return found[1] if found else None


def verify_math(text: str, gold: str) -> float | None:
    """LaTeX in the last box, compared by math-verify.

    It has no time limit of its own: for what a policy wrote, use `rlvr.tasks.grade`.
    """
    import math_verify  # takes a second

    answer = last_boxed(text)
    if answer == "NA":
        return None
    equals = r"(?<![<>!:])="
    if not re.search(equals, gold):
        # math-verify looks at the right side alone then, in 4=3 as in x=3
        *names, answer = re.split(equals, answer)
        name = r"\\?[A-Za-z]+(_?\{?\w+\}?)?(\([\w,]+\))?"
        if not all(re.fullmatch(name, re.sub(r"\s", "", part)) for part in names):
            return 0.0
    # A percent sign would divide by 100, while data sets write 50 and 50\% for the same thing.
    parsed_gold, parsed = (
        math_verify.parse("$" + re.sub(r"\\?[$%]|[.]$", "", part) + "$", parsing_timeout=None)
        for part in (gold, answer)
    )
    if not parsed_gold or not parsed:
        return None
    return float(math_verify.verify(parsed_gold, parsed, timeout_seconds=None))
