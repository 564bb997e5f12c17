"""Arithmetic expressions, worked out exactly, and the answers of Countdown."""

import ast
import operator
import re
from fractions import Fraction

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": Fraction}
AST_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
CANNOT_BE_READ = (
    TypeError,
    SyntaxError,
    AttributeError,
    KeyError,
    ZeroDivisionError,
    RecursionError,
    MemoryError,
)


def countdown_text(value) -> str:
    """A problem in a column, such as 3 9 5 : 48, or "" where it is none."""
    text = str(value)
    return text if re.fullmatch(r"\s*\d+(\s+\d+)*\s*:\s*\d+\s*", text, re.A) else ""


def extract_answer(text: str) -> str:
    """The last <answer>...</answer>, or "NA"."""
    before_the_end, _, _ = text.rpartition("</answer>")
    _, opening, answer = before_the_end.rpartition("<answer>")
    return answer.strip() if opening else "NA"


def verify_countdown(text: str, gold: str) -> float:
    """1.0 where the answer uses each number of `gold` once and reaches its target, else 0.0.

    An answer may have + - * / and parentheses, and nothing else.
    """
    answer = extract_answer(text)
    numbers, target = gold.split(":")
    try:
        tree = ast.parse(re.fullmatch(r"[0-9+\-*/() ]{1,100}", answer)[0], mode="eval").body
        used = sorted(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        given = sorted(map(int, numbers.split()))
        return float(used == given and value_of(tree) == int(target))
    except CANNOT_BE_READ:
        return 0.0


def value_of(node: ast.expr):
    """The exact value of an expression tree.

    A unary sign, a call or a tuple has neither an operator of the table nor a value: it is refused.
    """
    if isinstance(node, ast.BinOp):
        sign = AST_OPERATORS[type(node.op)]
        return OPERATORS[sign](value_of(node.left), value_of(node.right))
    return node.value
