"""The program in a completion: its fenced blocks, and those that belong together."""

import ast
import builtins
import importlib
import re
import symtable
import textwrap
from collections.abc import Iterator

FENCE = re.compile(r"(?P<before>.*?)(?<![`~])(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<label>[^`]*+)")
# modules of which programs take all names, as by `from math import *`
STARRED = "bisect collections functools heapq itertools math string typing".split()
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
    """The last block, and before it those earlier ones whose names it or the tests need.

    A session of the interpreter (>>>), or comments alone, are examples, and not the last block.
    """
    program, needed = "", {*wanted}
    for block in reversed(blocks):
        if block.lstrip().startswith(">>>"):
            continue
        try:
            tree = ast.parse(block)
            bound, used = global_names(block, tree)
        except SyntaxError:
            if not program:
                return block
            continue
        if not tree.body or (program and not bound & needed):
            continue
        needed = (needed | used) - bound - {*dir(builtins)}
        program = f"{block}\n{program}"
    return with_futures_first(program)


def global_names(code: str, tree: ast.Module) -> tuple[set[str], set[str]]:
    """The names of the module that code gives a value, and those that it reads."""
    bound, used = set(), set()
    tables = [symtable.symtable(code, "program.py", "exec")]
    for table in tables:
        tables += table.get_children()
        for name in table.get_symbols():
            if name.is_global() or table.get_type() == "module":
                if name.is_assigned() or name.is_imported():
                    bound.add(name.get_name())
                if name.is_referenced():
                    used.add(name.get_name())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            if node.module in STARRED:
                bound.update(dir(importlib.import_module(node.module)))
    return bound, used


def with_futures_first(program: str) -> str:
    """The program with its `from __future__ import`, which Python allows at the top alone."""
    lines = program.split("\n")
    moved = []
    for node in ast.parse(program).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            where = slice(node.lineno - 1, node.end_lineno)
            moved += lines[where]
            lines[where] = [""] * len(lines[where])
    return "\n".join(moved + lines)
