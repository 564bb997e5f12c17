"""Choices: the letter of the option that an answer names, and whether it is the right one."""

import re
import string

from rlvr.tasks.boxes import find_answer

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
