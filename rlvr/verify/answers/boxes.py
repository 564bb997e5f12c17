r"""Where an answer stands, in a completion and in a data set's solution: mostly in \boxed{}.

Choices: the letter of the option that an answer names, and whether it is the right one.
"""

import re
import string
from decimal import Decimal

from rlvr.verify.answers.expressions import extract_answer
from rlvr.verify.answers.latex import IN_BRACES

import regex

COMMAND = r"\\f?box(?:ed)?(?![A-Za-z])"
# A box around one digit needs no braces.
BOX = regex.compile(rf"{COMMAND}\s*(?:\{{({IN_BRACES})\}}|(\d)(?!\w))", regex.S)
# What stands between the boxes of one answer, as in \boxed{1} \text{ and } \boxed{2}.
JOINT = r"(?:[\W_]|(?<![A-Za-z])(?:and|or|text|q?quad)(?![A-Za-z]))*?"
TOGETHER = regex.compile(rf"{BOX.pattern}(?:{JOINT}{BOX.pattern})*", regex.S)


def boxed(answer: str) -> str:
    r"""An answer in \boxed{}, where a completion is to have it."""
    return f"\\boxed{{{answer}}}"


def find_boxes(text: str) -> list[str]:
    r"""What the complete boxes hold.

    A box in a box is a part of the outer one: \boxed{x = \boxed{3}} holds x = {3}.
    """
    return [re.sub(COMMAND, "", box[1] or box[2] or "").strip() for box in BOX.finditer(text)]


def last_boxed(text: str) -> str:
    """What the last box holds, or "NA"."""
    boxes = find_boxes(text)
    return boxes[-1] or "NA" if boxes else "NA"


def last_boxes(text: str, parts: int = 1) -> str:
    """The last so many different boxes, joined by commas, for an answer of so many parts; or "NA".

    Boxes that stand together are one answer, so there can be more of them.
    """
    kept = {}  # the last one first
    for answer in reversed([*TOGETHER.finditer(text)]):
        if len(kept) < parts:
            kept |= dict.fromkeys(reversed(find_boxes(answer[0])))
    return ", ".join(reversed(kept)) or "NA"


def find_answer(text: str) -> str:
    """The last box, or else the line behind the last ####, or else the last <answer>, or "NA".

    That line ends with the next sentence or tag.
    """
    answer = last_boxed(text)
    if answer != "NA":
        return answer
    if "####" in text:
        rest = text.rpartition("####")[2].strip()
        return re.split(r"\n|<|[.!]\s+(?=[^\W\d])", rest, maxsplit=1)[0]
    return extract_answer(text)


def answer_text(value) -> str:
    """The gold answer in a cell, "" where there is none, as in a dict or a list in a list.

    The items of a list are the parts of one answer. After #### stands the answer; 27.0 and 027 are
    27; of a solution it is the last box, with those that stand together with it.
    """
    if isinstance(value, list):
        parts = ["" if isinstance(item, list) else answer_text(item) for item in value]
        return "" if "" in parts else ", ".join(parts)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        number = Decimal(str(value))
        value = f"{number:f}" if number.is_finite() else ""  # NaN is some tables' empty cell
    if not isinstance(value, str):
        return ""
    text = value.rpartition("####")[2].strip()
    whole = re.fullmatch(r"(-?\d{1,1000})(\.0*)?", text)
    if whole:
        return str(int(whole[1]))
    return last_boxes(text) if "\\boxed" in text else text


LONGEST = 2000  # characters of an answer; an option can be a sentence
# of LaTeX and Markdown
LOOKS = r"\\(?:text|math|operatorname|boldsymbol|bm|mbox|q?quad|left|right)[a-z]*"
LOOKS += r"|\\[()\[\]!,;: ]|[$*_`{}\"'“”‘’]"
LEAD = r"(?i)^(?:the )?(?:(?:correct|right|best|final) )?(?:answer|option|choice)(?: is)?\b[ :]*"
# (B) and B. Paris, with the option's text
OPTION = re.compile(r"[(\[]? ?([A-Za-z]) ?(?:[.:)\]]*|(?:[:)\]]+|\.(?= |\w\w|\d)| [-–—] ) ?(.*))")
A_NAME = re.compile(r"([A-Z]) (?=[A-Z0-9]\w)(.*)")  # B Paris, but not "A dog"
# In the option's text: another option that is offered, too.
MARKED = r"[(\[]?[A-Za-z][.:)\]]"
AND = r"(?:(?i:or|and)\b|[,;/&|])"
ANOTHER = re.compile(rf"^{AND}|(?:(?<!\w){AND}|[,;/&|]) ?{MARKED}|^({MARKED}( |$))+$")


def verify_choice(text: str, gold: str) -> float | None:
    """The letter of an answer against the gold, a letter or an option's index counted from 0."""
    answer, right = find_answer(text), gold.strip()
    if right.isdecimal():
        if answer.isdecimal():  # of options that are numbered themselves
            return float(answer == right)
        right = string.ascii_uppercase[int(right) :][:1]
    chosen, right = read_choice(answer), read_choice(right)
    return float(chosen == right) if chosen and right else None


def read_choice(text: str) -> str | None:
    """The one letter of a choice, in upper case, as in B, (b), [B], "Option B" or "B. Paris".

    None for none, and for more than one, as in "A or B" and "(A), (B)". What follows the letter is
    the option's own text, so "D. A and B" is D.
    """
    if len(text) > LONGEST:
        return None
    text = re.sub(LEAD, "", " ".join(re.sub(LOOKS, " ", text).split()))
    found = OPTION.fullmatch(text) or A_NAME.fullmatch(text)
    return found[1].upper() if found and not ANOTHER.search(found[2] or "") else None
