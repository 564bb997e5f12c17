"""The text of a script as a tour needs it: lines in colour, statements, loops, shape comments."""

import ast
import io
import re
import tokenize
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

SHAPE = re.compile(r"\[((?:[A-Za-z]|\d+)(?:, (?:[A-Za-z]|\d+))*)\]")
LOOPS = ast.For | ast.While
UNCOLOURED = re.compile(r'<span class="(?!c1|sd|k|ow|s1|s2|sa|mi|mf|nf|nc)\w+">([^<]*)</span>')


class Source:
    """A file's text: its lines in colour, its statements, loops, functions and shape comments."""

    def __init__(self, path: Path):
        self.name = path.name
        text = path.read_text()
        coloured = highlight(text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
        self.lines = ["", *UNCOLOURED.sub(r"\1", coloured).split("\n")]  # the first line is 1
        self.comments = {}  # line -> the shapes that its comment begins with
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and token.string.startswith("# ["):
                self.comments[token.start[0]] = SHAPE.findall(token.string)
        self.statements = {}  # line -> the innermost statement that it belongs to
        self.loops = {}  # line -> the loops around it, the outermost first
        self.functions = {}  # first line of a function -> its node
        self.fields = {}  # (class, field) -> line
        self.tree = ast.parse(text)
        self.read(self.tree, ())

    def read(self, node, loops) -> None:
        """Enter the statements below a node. Those inside overwrite those around them."""
        for child in ast.iter_child_nodes(node):
            inner = loops + (child,) * isinstance(child, LOOPS)
            if isinstance(child, ast.stmt):
                for line in range(child.lineno, child.end_lineno + 1):
                    self.statements[line], self.loops[line] = child, inner
            if isinstance(child, ast.FunctionDef):
                inner = ()
                self.functions[min(part.lineno for part in [child, *child.decorator_list])] = child
            if isinstance(child, ast.AnnAssign) and isinstance(node, ast.ClassDef):
                self.fields[node.name, child.target.id] = child.lineno
            self.read(child, inner)

    def describe(self, first: int, name: str) -> dict:
        """A function as the page shows it: blocks of lines that belong together."""
        node = self.functions[first]
        body, end = node.body[0].lineno, node.end_lineno
        blocks = []  # [first line, last line, the line that its values belong to]
        for line in range(first, end + 1):
            statement = self.statements.get(line, node)  # a decorator is none
            is_code = line >= body and statement is not node and line <= last_line(statement)
            key = statement.lineno if is_code else line if line < body else "comment"
            if blocks and blocks[-1][2] == key:
                blocks[-1][1] = line
            else:
                blocks.append([line, line, key])
        loops = {part.lineno: part.end_lineno for part in ast.walk(node) if isinstance(part, LOOPS)}
        place = dict(name=name, file=self.name, first=first, body=body)
        return dict(**place, lines=self.lines[first : end + 1], blocks=blocks, loops=loops)


def last_line(statement) -> int:
    """The last line of a statement, without the statements in it."""
    inside = getattr(statement, "body", None)
    return inside[0].lineno - 1 if inside else statement.end_lineno


def bound_by(statement) -> set[str]:
    """The names and attributes that a statement binds, be it to the value that they have."""
    if isinstance(statement, ast.For):
        statement = statement.target
    elif not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return set()
    parts = [part for part in ast.walk(statement) if isinstance(part, ast.Name | ast.Attribute)]
    return {ast.unparse(part) for part in parts if isinstance(part.ctx, ast.Store)}
