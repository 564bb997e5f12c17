"""LaTeX as text: what only changes how it looks is taken away, and lists are divided."""

import re

import regex


def within(opening: str, closing: str) -> str:
    r"""The pattern of what can stand between two brackets that belong together, ten levels deep.

    \\. so that \{ is no brace. *+ gives nothing back: what does not fit is given up in no time. It
    is for `regex`, since Python's own `re` before 3.11.5 mistakes a *+ that stands in another one.
    """
    inside = ""
    for _ in range(10):
        inside = rf"(?:{opening}{inside}{closing}|(?!{opening}|{closing})(?:\\.|[^\\]))*+"
    return inside


IN_BRACES = within(r"\{", r"\}")
OPENING, CLOSING = r"(?:\\?[(\[{]|\\begin)", r"(?:\\?[)\]}]|\\end)"
IN_BRACKETS = rf"{OPENING}{within(OPENING, CLOSING)}{CLOSING}"
TEXT = r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mbox)\s*\{"
WHOLE = regex.compile(rf"(?:{TEXT}|\{{)({IN_BRACES})\}}|\*\*(.*)\*\*")
# How the same thing is written in LaTeX that math-verify reads, to be replaced in this order.
PLAIN = [
    # delimiters, currencies, styles
    (rf"{TEXT}\s*([ei])\s*\}}", r" \1 "),  # two numbers, and no units
    (r"\\\\\[[\d.]+[a-z]+\]", r"\\\\"),  # \\[4pt]: how far the next line is
    (r"(?<!\\)\\[()\[\]]|\\?\$|[£€¥]|\\(?:display|text)style(?![a-z])|\\(?:bf|large)(?![a-z])", ""),
    (r"\s*(?<!\\)\\!\s*|\\(?:text)?color\s*\{\w+\}", ""),
    (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-z])", " "),
    (r"\\langle(?![a-z])", "("),
    (r"\\rangle(?![a-z])", ")"),
    # blanks that do not part words, numbers or items
    (r"(?<=[^\w\s\\,;})\]])\s+(?=\S)|\s+(?=[^\w\s\\])", ""),
    (r"\\(?:begin|end)\{aligned\}|&(?==)", ""),
    (r"\\(?:math(?:bf|it|sf)|boldsymbol|bm|underline)(?![a-z])", ""),
    # other ways to write the same
    (r"\\[dtc]?(frac|binom)\s*(\\[a-z]+|\w)\s*(\\[a-z]+|\w)", r"\\\1{\2}{\3}"),
    (r"^(?:\\approx|≈)", ""),
    (r"(?<=[\d)}])i(?![A-Za-z])", " i"),  # the constant to math-verify, where it stands by itself
    (r"\\varnothing", r"\\emptyset"),
    (r"(?:\\degree|\^\\circ|\^\{\\circ *\})(?![a-z])(?:\s*[CF](?![A-Za-z]))?", r"^\\circ "),
    (r"(\d*)\.(\d*)\\(?:overline|bar)\{(\d+)\}", lambda digits: repeating(*digits.groups())),
    (r"(?<=\d):00(?!\d)", ""),  # 3:00 is no 3/0
    (r"(?<=\d)\.(?=[-+*/)])", ""),  # 1./3
    (r"(?<![\w.])(\d+) (\d+)/(\d+)(?![\w.])", r"\1\\frac{\2}{\3}"),  # 1 1/2
    (r"(?<=\d)[eE]([-+]?\d+)(?![\w.])", r"\\cdot 10^{\1}"),  # 1e3
    (r"(?<![\d.] )(?<![\d.])(\d{1,3}(?: \d{3})+)(?! ?\d)", lambda found: found[1].replace(" ", "")),
]
SIGNS = str.maketrans(
    {"−": "-", "–": "-", "°": r"^\circ ", "√": r"\sqrt ", "∞": r"\infty ", "½": r"\frac12 "}
)


def plain(text: str) -> str:
    """LaTeX without what only changes how it looks."""
    text = " ".join(text.translate(SIGNS).split())
    for written, meant in PLAIN:
        text = re.sub(written, meant, text)
    text = re.sub(r"(?<!\\right)[\s.,;:\\]+$", "", " ".join(text.split()))
    whole = WHOLE.fullmatch(text)
    return plain(whole[1] or whole[2] or "") if whole else text


def repeating(whole: str, fixed: str, repeated: str) -> str:
    """A repeating decimal as a fraction."""
    top = int(whole + fixed + repeated) - int(whole + fixed or 0)
    return rf"\frac{{{top}}}{{{10 ** len(fixed + repeated) - 10 ** len(fixed)}}}"


def without_commas(text: str) -> str:
    """1000 for 1,000, but nothing of 1,200,3."""
    groups = r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\d)"
    return re.sub(groups, lambda number: number[0].replace(",", ""), text)


def split(text: str, divider: str) -> list[str]:
    """The parts of a text between dividers that stand outside of all brackets; no empty ones."""
    divided = regex.sub(rf"({IN_BRACKETS})|{divider}", lambda found: found[1] or "\0", text)
    return [part for part in divided.split("\0") if part.strip()] or [text]
