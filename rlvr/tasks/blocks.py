"""The program in a completion: its fenced blocks, and those that belong together."""

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator

FENCE = re.compile(r"(?P<before>.*?)(?<![`~])(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<label>[^`]*+)")
PYTHON = re.compile(r"\{?[. ]*(python|py|ipython|pypy)[\d.]*\b", re.IGNORECASE)


def find_blocks(text: str) -> list[str]:
    """The fenced blocks of Python in a completion; without any, those that name no language."""
    blocks = [(label, textwrap.dedent("\n".join(lines))) for label, lines in fenced(text)]
    named = [code for label, code in blocks if PYTHON.match(label)]
    return named or [code for label, code in blocks if not label and code.strip()]


def fenced(text: str) -> Iterator[tuple[str, list[str]]]:
    """The label and the lines of each fenced block.

    A block may be indented, as in a list. It ends with a fence that is at least as long and not
    indented much deeper, or with a line of code that ends so; else with the next block of Python,
    or with the text.
    """
    label, lines, indent, ending = "", [], 0, None
    for line in text.replace("\r\n", "\n").split("\n"):
        opening = FENCE.fullmatch(line)
        is_python = opening and PYTHON.match(opening["label"])
        starts_alone = opening and not opening["before"].strip()
        if ending:
            end = ending.fullmatch(line)
            starts_anew = is_python and starts_alone and len(opening["before"]) <= indent
            if not end and not starts_anew:
                lines.append(line)
                continue
            yield label, [*lines, end["code"]] if end and end["code"] else lines
            ending = None
            if end:
                continue
        if is_python or starts_alone:
            label, lines = opening["label"].strip(), []
            indent = len(opening["before"]) - len(opening["before"].lstrip())
            mark = opening["fence"][0]
            fence = rf"{mark}{{{len(opening['fence'])},}}"
            alone = rf"[ \t]{{0,{indent + 3}}}{fence}[ \t]*"
            ending = re.compile(rf"{alone}|(?P<code>.*[^ \t{mark}]){fence}")
    if ending:
        yield label, lines


def join_blocks(blocks: list[str], wanted: list[str]) -> str:
    """The last block, and before it those earlier ones whose names it or the tests need."""
    program, needed = "", {*wanted}
    for block in reversed(blocks):
        try:
            names = [node for node in ast.walk(ast.parse(block))]
        except SyntaxError:
            if not program:
                return block
            continue
        stored = {node.id for node in names if isinstance(node, ast.Name) and is_stored(node)}
        for node in names:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                stored.add(node.name)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                stored |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            if isinstance(node, ast.arg):
                stored.add(node.arg)
        if program and not stored & needed:
            continue
        loaded = {node.id for node in names if isinstance(node, ast.Name)}
        needed = (needed | loaded) - stored - {*dir(builtins)}
        program = f"{block}\n{program}"
    return program


def is_stored(name) -> bool:
    """Whether a name of a syntax tree is assigned to there."""
    return type(name.ctx).__name__ == "Store"
