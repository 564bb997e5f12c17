"""The table of tools: what answers the policy while it writes."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from rlvr.errors import UserError
from rlvr.verify.answers import value_of


@dataclass(frozen=True)
class Tool:
    """A tool that the policy can call. `--tool` takes the names of the table below."""

    # The completion so far, which ends with a call -> what is written behind it, or None where
    # there is nothing to say. The same text has to get the same reply, or no run can be repeated.
    reply: Callable[[str], str | None]
    call_end: str  # what the last token of a call ends with


# Integers with an operator between each two, and parentheses. What stands before an expression
# could belong to it: no operator may stand there, no parenthesis, no part of a number or of a
# function.
INTEGER = r"\(*[0-9]+\)*"
OPERATOR = "+\\-*/^÷×·−–√"
EXPRESSION = rf"(?<![\w.,(){OPERATOR}])(?<![{OPERATOR}] )({INTEGER}(?: ?[+\-*/] ?{INTEGER})+)"


def calculate(text: str) -> str | None:
    """The exact value of the expression at the end of a text: "56" for "... 7*8=".

    A value that is no integer is a fraction, such as "8/3".
    """
    found = re.search(EXPRESSION + r" ?=\Z", text)
    value = value_of(found[1]) if found else None
    return None if value is None else str(value)


TOOLS = {"calculator": Tool(calculate, call_end="=")}


def find_call_ends(tokenizer, tool: str) -> list[int]:
    """The tokens that end a call of the tool, by their texts; UserError where there are none."""
    if tool == "none":
        return []
    end = TOOLS[tool].call_end
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    found = [token for token, text in enumerate(texts) if text.endswith(end)]
    if not found:
        raise UserError(f"--tool {tool}: a call ends with {end!r}, and no token of the model does")
    return found


def find_replies(tokenizer, tool: str, call_ends: list[int], ids: list[int]) -> list[range]:
    """Where the tool's replies stand in a text that was written with them, such as a solution."""
    replies = []
    for place, token in enumerate(ids, 1):
        if token in call_ends:
            reply = TOOLS[tool].reply(tokenizer.decode(ids[:place]))
            length = len(tokenizer.encode(reply or "", add_special_tokens=False))
            replies.append(range(place, place + length))
    return replies
