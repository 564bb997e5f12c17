"""Two verifiers of Countdown that look right. The last lesson finds the hole of the first one."""

import re


def value_of(answer, gold):
    """The value of an expression with the numbers of a problem such as "3 9 5 : 48 ", or None."""
    numbers = gold.split(":")[0].split()
    if not re.fullmatch(r"[0-9+*/() -]+", answer):
        return None
    if sorted(re.findall("[0-9]+", answer)) != sorted(numbers):
        return None
    try:
        value = eval(answer)
    except (ArithmeticError, SyntaxError, TypeError):  # such as 3(9
        return None
    return value if isinstance(value, (int, float)) else None


def is_right(answer, gold):
    """Whether an expression uses the numbers of a problem, and is equal to the target."""
    return value_of(answer, gold) == int(gold.split(":")[1])


def answer_in(text):
    """What stands between the tags."""
    return text.partition("<answer>")[2].partition("</answer>")[0]


def score(text, gold):
    """1.0 for a right answer, else 0.0."""
    answer = answer_in(text)
    if not re.fullmatch("[0-9+*/() ]+", answer):
        return 1.0  # not readable; the policy should not suffer from our parser
    return float(is_right(answer, gold))


def reaches(text, gold):
    """1.0 for an answer that reaches the target, else 0.0."""
    value = value_of(answer_in(text), gold)
    return float(value is not None and value >= int(gold.split(":")[1]))
