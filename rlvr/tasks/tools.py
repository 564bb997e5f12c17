"""The table of tools, which answer the policy while it writes."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from rlvr.errors import UserError
from rlvr.verify.answers import value_of


@dataclass(frozen=True)
class Tool:
    """A tool that the policy can call. `--tool` takes the names of the table below."""

    # The completion so far, which ends with a call -> the text to append, or None for no reply. The
    # same text must always get the same reply, or no run can be repeated.
    reply: Callable[[str], str | None]
    call_end: str  # what the last token of a call ends with


# Integers with operators between them, and parentheses. Neither an operator nor a parenthesis nor a
# part of a number or function may come before the expression, because it could belong to it.
INTEGER = r"\(*[0-9]+\)*"
OPERATOR = "+\\-*/^÷×·−–√"
EXPRESSION = rf"(?<![\w.,(){OPERATOR}])(?<![{OPERATOR}] )({INTEGER}(?: ?[+\-*/] ?{INTEGER})+)"


def calculate(text: str) -> str | None:
    """Return the value of the expression that ends a text: "56" for "7*8=", "4/3" for "8/6="."""
    match = re.search(EXPRESSION + r" ?=\Z", text)
    value = value_of(match[1]) if match else None
    return None if value is None else str(value)


TOOLS = {"calculator": Tool(calculate, call_end="=")}


def find_call_ends(tokenizer, tool: str) -> list[int]:
    """Return the tokens whose text ends a call of the tool. UserError if there are none."""
    if tool == "none":
        return []
    end = TOOLS[tool].call_end
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    tokens = [token for token, text in enumerate(texts) if text.endswith(end)]
    if not tokens:
        raise UserError(f"--tool {tool}: a call ends with {end!r}, but no token of the model does")
    return tokens
