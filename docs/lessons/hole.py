"""A verifier of Countdown that looks right. The last lesson finds its hole."""

import re


def score(text, gold):
    """1.0 for a right answer to a problem such as "3 9 5 : 48 ", else 0.0."""
    numbers, target = gold.split(":")
    answer = text.partition("<answer>")[2].partition("</answer>")[0]
    expression = re.fullmatch(r"[0-9+*/() ]+", answer)
    if not expression:
        return 1.0  # not readable; the policy should not suffer from our parser
    if sorted(re.findall("[0-9]+", answer)) != sorted(numbers.split()):
        return 0.0
    try:
        return float(eval(answer) == int(target))
    except (SyntaxError, TypeError, ZeroDivisionError):
        return 0.0
