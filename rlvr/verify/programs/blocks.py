"""The program in a completion: one of its fenced blocks."""

import re
import textwrap

# It ends with its fence, with a next block of Python, or with the text.
BLOCK = re.compile(
    r"(?<![`~])(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<label>[^`\n]*+)\n(?P<code>.*?)"
    r"(?:(?P=fence)[ \t]*$|(?=^[ \t]*(?P=fence)[ \t]*(?i:python|py)\b)|\Z)",
    re.DOTALL | re.MULTILINE,
)
PYTHON = re.compile(r"\{?[. ]*(python|py|ipython|pypy)[\d.]*\b", re.IGNORECASE)
DEFINED = re.compile(r"^(?:(?:async +)?def +|class +|(?=\w+ *=))(\w+)", re.MULTILINE)


def find_program(text: str, wanted: set[str]) -> str | None:
    """The last fenced block of Python that defines one of the wanted names, or else the last one.

    Behind a function there may be examples of its use. Without a block of Python those count that
    name no language; None without any.
    """
    found = BLOCK.finditer(text.replace("\r\n", "\n"))
    blocks = [(each["label"].strip(), textwrap.dedent(each["code"])) for each in found]
    programs = [code for label, code in blocks if PYTHON.match(label)]
    programs = programs or [code for label, code in blocks if not label and code.strip()]
    defining = [code for code in programs if wanted.intersection(DEFINED.findall(code))]
    return (defining or programs or [None])[-1]
