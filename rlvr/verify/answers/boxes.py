r"""Find the answer in a completion or a data set's solution, mostly in \boxed{}; judge choices."""

import string
from decimal import Decimal

from rlvr.verify.answers.expressions import extract_answer
from rlvr.verify.answers.latex import IN_BRACES, MEANING, TEXT, normal

import regex as re

COMMAND = r"\\f?(?:rame)?box(?:ed)?"
# A box around one digit needs no braces.
BOX = re.compile(rf"{COMMAND}\s*(?:\{{({IN_BRACES})\}}|(\d)(?!\w))", re.S)
# Adjacent boxes are one answer, as in \boxed{1} \text{ and } \boxed{2}.
TOGETHER = re.compile(rf"{BOX.pattern}(?:(?:[\W_]|and|or|text|q?quad)*?{BOX.pattern})*", re.S)


def boxed(answer: str) -> str:
    r"""Return an answer in \boxed{}, as a completion should give it."""
    return f"\\boxed{{{answer}}}"


def find_boxes(text: str) -> list[str]:
    r"""Return what complete boxes hold, if anything; \boxed{x = \boxed{3}} holds x = {3}."""
    contents = (re.sub(COMMAND, "", box[1] or box[2] or "").strip() for box in BOX.finditer(text))
    return [*filter(None, contents)]


def last_boxed(text: str) -> str:
    """Return the contents of the last complete box, or "NA"."""
    return ["NA", *find_boxes(text)][-1]


def last_boxes(text: str, parts: int = 1) -> str:
    """Return the last `parts` different boxes with commas between them; adjacent ones are one."""
    kept = {}  # the last one first
    for answer in reversed([*TOGETHER.finditer(text)]):
        if len(kept) < parts:
            kept |= dict.fromkeys(reversed(find_boxes(answer[0])))
    return ", ".join(reversed(kept)) or "NA"


def find_answer(text: str) -> str:
    """Return the last box, or the line after the last ####, or the last <answer>, or "NA".

    The line ends where another sentence or a tag begins.
    """
    boxes = find_boxes(text)
    if "####" in text and not boxes:
        rest = text.rpartition("####")[2]
        rest = re.sub(r"(?i)^[*_ ]*(?:final )?answer[*_: ]*\n", "", rest).strip()  # a heading
        line = re.split(r"\n|<", rest, maxsplit=1)[0]
        if re.search(r"$(?<=[.!?]\W*)", line):  # not a heading such as #### 3. Find the total
            line = re.split(r"(?<!(?<!\w)[A-Z])[.!] +(?=\p{Lu})", line, maxsplit=1)[0]
        return line
    return boxes[-1] if boxes else extract_answer(text)


def answer_text(value) -> str:
    """Return the gold answer in a cell, or "" for a dict, a nested list or an empty cell.

    The items of a list are the parts of one answer. In a text the answer follows ####, or it is the
    last box with its adjacent boxes. 27.0 and 027 become 27.
    """
    if isinstance(value, list):
        parts = ["" if isinstance(item, list) else answer_text(item) for item in value]
        return "" if "" in parts else ", ".join(parts)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        # 0.3 for 0.1 + 0.2, which is 0.30000000000000004
        number = Decimal(f"{value:.15g}" if isinstance(value, float) and value % 1 else str(value))
        value = f"{number:f}" if number.is_finite() else ""  # NaN is some tables' empty cell
    if not isinstance(value, str):
        return ""
    text = value.rpartition("####")[2].strip()
    whole = re.fullmatch(r"(-?\d{1,1000})(\.0*)?", text)
    if whole:
        return str(int(whole[1]))
    return last_boxes(text) if "\\boxed" in text else text


LONGEST = 2000  # characters of an answer; an option can be a sentence
STYLES = "|".join(name[1:] for name, meaning in MEANING.items() if not meaning.strip())
# LaTeX and Markdown that change only how letters look: not B_2, B' or C#
LOOKS = rf"\\(?:[^A-Za-z]|(?:{STYLES})(?![A-Za-z]))|{TEXT}|[$*`{{}}\"<✓✅]|(?<!-)>"
LOOKS += r"|(?<![^\W_])[#_']|_(?![^\W_]|\{)|(?<='.*)'"
ANSWER = r"(?:the |my )?(?:(?:correct|right|best|final) )?(?:answer|option|choice)(?: is)?[ :]*"
# what stands around an option and names no other: the answer is B, B is right
AROUND = rf"(?i)^(?:{ANSWER}|(?:正确|答案|选项|[故应]?选择?|[是为])[ :]*)+|选项$"
AROUND += r"| is (?:the )?(?:correct|right)(?: (?:answer|option|choice))?\.?$"
# (B) and B. Paris, with the option's text
OPTION = re.compile(
    r"([(\[]?) ?([A-Za-z]|\d\d?(?![:.]\d)) ?(?:([.:)\]]*)"
    r"|([:)\]]+|\.(?= |\w\w|\d)|, ?(?=[a-z]{2}|[\u4e00-\u9fff])| - | (?=\()) ?(.*))"
)
A_NAME = re.compile(r"()([B-HJ-Z])()( )(?=[A-Z0-9]\w)(.*)")  # B Paris, but not "A Dog"
# An option's text may speak of options, as in "Both A and B", and of letters: Vitamins A, D.
OF_OPTIONS = r"(?i)(?:both|all|none|neither)\b"
AND = r"(?<!(?<!\w)[A-Z][.)\]]* ?)(?:(?<!\w)(?i:or|and)\b|[,;&|或和]|(?:^| )/)"


def names_another(opening: str, letter: str, mark: str, text: str) -> bool:
    """Return whether what follows an option names another option as well, as in A) 1 B) 2."""
    one = "[A-J]" if letter.isupper() else "[a-j]" if letter.islower() else r"\d\d?"
    marked = rf"[(\[]?{one}[.:)\]]+(?: |$)"
    # B. C. elegans is B, and so behind a dot only the next letter counts; behind Z comes a bracket
    following = str(int(letter) + 1) if letter.isdecimal() else chr(ord(letter) + 1)
    other = re.escape(following) if mark == "." else rf"(?!{letter}){one}"
    end = {"": r" (?=\(|[A-Z0-9]\w)", "-": " - "}.get(mark, re.escape(mark) + r" (?=\S)")
    alike = rf"(?<=\S )(?<!\([^()]*){re.escape(opening)}{other}{end}"
    ways = [
        rf"^(?:{marked})+$",  # A) B)
        rf"{AND} ?(?:{marked}|{one}$)",  # A or B
        alike,  # A) 1 B) 2
        rf"(?<=\S )\({one}\) (?=\S)",  # A. cat (B) dog
        rf"^\((?:(?:or|and|no|also|maybe|possibly),? )+{one}",  # A (or B)
        r"^(?:is |\()(?:not correct|incorrect|wrong|false)\b",
    ]
    if opening:
        ways.append(rf"(?<!\w)\((?!{letter}){one}\)$")  # (A) plus (B)
    if mark == ",":
        ways.append(rf"(?<!\w)(?![aAI{letter}]){one}(?!\w)")  # A, or maybe B
    return not re.match(OF_OPTIONS, text) and any(re.search(way, text) for way in ways)


def verify_choice(text: str, gold: str) -> float | None:
    """Compare the letter of an answer with the gold, a letter or an index counted from 0."""
    chosen, right = read_choice(find_answer(text)), gold.strip()
    if right.isdecimal() and not (chosen or "").isdecimal():  # options may be numbered themselves
        right = string.ascii_uppercase[int(right) :][:1]
    right = read_choice(right)
    return float(chosen == right) if chosen and right else None


def read_choice(text: str) -> str | None:
    """Return the letter or number of a choice, as in B, (b), "Option B" or "B. Paris".

    Return None without one, and for several, as in "A or B". "D. A and B" is D.
    """
    if len(text) > LONGEST:
        return None
    text = re.sub(AROUND, "", " ".join(re.sub(LOOKS, " ", normal(text)).split()))
    match = OPTION.fullmatch(text) or A_NAME.fullmatch(text)
    if not match or match[5] and names_another(match[1], match[2], match[4].strip(), match[5]):
        return None
    return match[2].upper()
