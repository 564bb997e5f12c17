"""A verifier of Countdown that looks right. The last lesson finds its hole."""

import re


def is_right(answer, gold):
    """Whether an expression uses the numbers of a problem such as "3 9 5 : 48 " and reaches it."""
    numbers, target = gold.split(":")
    if not re.fullmatch(r"[0-9+*/() -]+", answer):
        return False
    if sorted(re.findall("[0-9]+", answer)) != sorted(numbers.split()):
        return False
    try:
        return eval(answer) == int(target)
    except (SyntaxError, TypeError, ZeroDivisionError):  # such as 3(9
        return False


def score(text, gold):
    """1.0 for a right answer, else 0.0."""
    answer = text.partition("<answer>")[2].partition("</answer>")[0]
    if not re.fullmatch("[0-9+*/() ]+", answer):
        return 1.0  # not readable; the policy should not suffer from our parser
    return float(is_right(answer, gold))
