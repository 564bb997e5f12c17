"""Evaluate arithmetic expressions exactly, and judge answers of Countdown."""

import re
from fractions import Fraction

LONGEST = 300  # characters of an expression
NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
# Signs stand only between two numbers, so that neither -3 nor 3**9 matches.
EXPRESSION = rf"[( ]*{NUMBER}[) ]*(?:[-+*/][( ]*{NUMBER}[) ]*)*"


def countdown_text(value) -> str:
    """Return the problem in a cell, such as 3 9 5 : 48, or "" if there is none."""
    text = str(value)
    return text if re.fullmatch(r"\s*\d+(\s+\d+)*\s*:\s*\d+\s*", text, re.A) else ""


def extract_answer(text: str) -> str:
    """Return the contents of the last <answer>...</answer>, or "NA"."""
    before_the_end, _, _ = text.rpartition("</answer>")
    _, opening, answer = before_the_end.rpartition("<answer>")
    return answer.strip() if opening else "NA"


def verify_countdown(text: str, gold: str) -> float:
    """Return 1.0 if the answer uses each number of `gold` once and reaches its target, else 0.0.

    An answer may hold + - * / and parentheses, and nothing else.
    """
    answer = extract_answer(text)
    numbers, target = gold.split(":")
    used = re.findall(NUMBER, answer)
    return float(sorted(used) == sorted(numbers.split()) and value_of(answer) == int(target))


def value_of(text: str) -> Fraction | None:
    """Return the exact value of an expression with + - * / and parentheses, or None."""
    if len(text) > LONGEST or not re.fullmatch(EXPRESSION, text):
        return None
    try:
        # Nothing but numbers, signs and parentheses gets here.
        return eval(re.sub(NUMBER, r"Fraction('\g<0>')", text.strip()))
    except (SyntaxError, ZeroDivisionError, MemoryError, RecursionError):
        return None
