r"""Where an answer stands, in a completion and in a data set's solution: mostly in \boxed{}.

Choices: the letter of the option that an answer names, and whether it is the right one.
"""

import math
import re
import string
from decimal import Decimal

from rlvr.verify.answers.expressions import extract_answer

# \\. so that \{ is no brace. A box around one digit needs no braces.
TOKEN = re.compile(r"(\\f?box(?:ed)?\s*)(?:\{|(\d)(?!\w))|\\.|[{}]", re.S)
# What may stand between the boxes of one answer, as in \boxed{1} \text{ and } \boxed{2}.
JOINT = re.compile(r"(?:[\W_]|(?<![A-Za-z])(?:and|or|text|q?quad)(?![A-Za-z]))*")


def boxed(answer: str) -> str:
    r"""An answer in \boxed{}, where a completion is to have it."""
    return f"\\boxed{{{answer}}}"


def find_boxes(text: str) -> list[tuple[int, int, str]]:
    r"""The complete boxes, as beginning, end and content, by matching braces.

    A box in a box is a part of the outer one: \boxed{x = \boxed{3}} holds x = {3}.
    """
    opened = []  # the token of each open brace
    boxes = []
    for token in TOKEN.finditer(text):
        if token[2]:
            boxes.append((token.start(), token.end(), token[2]))
        elif token[1] or token[0] == "{":
            opened.append(token)
        elif token[0] == "}" and opened:
            first = opened.pop()
            if first[1]:
                while boxes and boxes[-1][0] > first.start():
                    boxes.pop()
                boxes.append((first.start(), token.end(), text[first.end() : token.start()]))
    return [
        (start, end, TOKEN.sub(lambda box: box[0].removeprefix(box[1] or ""), inside).strip())
        for start, end, inside in boxes
    ]


def last_boxed(text: str) -> str:
    """What the last box holds, or "NA"."""
    boxes = find_boxes(text)
    return boxes[-1][2] or "NA" if boxes else "NA"


def last_boxes(text: str, parts: int = 1) -> str:
    """The last so many different boxes, joined by commas, for an answer of so many parts; or "NA".

    Boxes that stand together are one answer, so there can be more of them.
    """
    kept = []
    begins = None
    for start, end, content in reversed(find_boxes(text)):
        together = begins is not None and JOINT.fullmatch(text, end, begins)
        if content not in kept:
            if len(kept) >= parts and not together:
                break
            kept.append(content)
        begins = start
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
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return ""
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        return ""  # NaN is some tables' empty cell
    if isinstance(value, float):
        value = f"{Decimal(str(value)):f}"  # and no 1e+16
    text = str(value).rpartition("####")[2].strip()
    whole = re.fullmatch(r"(-?\d{1,1000})(\.0*)?", text)
    if whole:
        return str(int(whole[1]))
    return last_boxes(text) if "\\boxed" in text else text


LONGEST = 2000  # characters of an answer; an option can be a sentence
PLAIN = [  # how the same thing is written without LaTeX and Markdown
    (r"\\(?:text|math|operatorname|boldsymbol|bm|mbox)[a-z]*", " "),
    (r"\\[()\[\]]|\\[!,;: ]|\\q?quad|\\(?:left|right)|[$*_`{}\"'“”‘’]", " "),
    (r"^\s*(?:the )?(?:(?:correct|right|best|final) )?(?:answer|option|choice)(?: is)?\b[ :]*", ""),
]
LABEL = r"[(\[]?\s*([A-Za-z])\s*"
A_LETTER = re.compile(rf"{LABEL}[.:)\]]*")
AN_OPTION = re.compile(rf"{LABEL}(?:[:)\]]+|\.(?= |\w\w|\d)|\s[-–—]\s)\s*(.*)")  # B. Paris
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
    for written, plain in PLAIN:
        text = " ".join(re.sub(written, plain, text, flags=re.I).split())
    found = A_LETTER.fullmatch(text)
    if found:
        return found[1].upper()
    found = AN_OPTION.fullmatch(text) or A_NAME.fullmatch(text)
    if not found or ANOTHER.search(found[2]):
        return None
    return found[1].upper()
