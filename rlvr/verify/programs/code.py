"""Judge programs by unit tests of several kinds.

The program runs in a sandbox that does not know the expected outputs. Its answers are judged here,
and assertions in a second sandbox.
"""

import ast
import builtins
import contextlib
import json
import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from rlvr.verify.programs.isolation import OutOfTime, start_sandbox
from rlvr.verify.programs.solution import decode, encode

PYTHON = r"\{?[. ]*(?:python|py|ipython|pypy)[\d.]*\b"
# A block ends at the end of the text, at a fence that is at least as long as the first one and
# indented by at most three more columns, at a fence behind code, and before a block of Python.
BLOCK = re.compile(
    r"^(?P<indent> *)[^`\n]*?(?<!~)(?P<fence>`{3,}+|~{3,}+)[ \t]*(?P<label>[^`\n]*)\n(?P<code>.*?)"
    r"(?:^(?!(?P=indent)    )\s*?(?P=fence)[`~]*[ \t]*$|(?<=[^\s`~])(?P=fence)[`~]*[ \t]*$|\Z"
    rf"|(?=^[ \t]*(?P=fence)[ \t]*(?i:{PYTHON})))",
    re.DOTALL | re.MULTILINE,
)
DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,9})?", re.ASCII)
DEFINED = re.compile(r"^(?:def +|class +|(?=\w+ *=))(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class UnitTests:
    """Unit tests of one of three kinds: inputs and outputs, calls of a function, assertions."""

    pairs: Sequence = ()  # (standard input, output), or (arguments, result) of a call
    function: str = ""  # the function to call, if the pairs are calls
    assertions: str = ""
    head: str = ""  # imports and helpers of a function to complete; runs before the program


def read_tests(gold: str) -> UnitTests:
    """Read unit tests in JSON, in one of the forms of docs/real-models.md, or assertions as text.

    Anything else raises an exception. So do assertions that only define something, those of
    unittest, which may fail silently, and those that import what a sandbox does not have.
    """
    tests = gold
    with contextlib.suppress(json.JSONDecodeError):
        tests = json.loads(gold)
    if isinstance(tests, list) and isinstance(tests[0], dict):
        tests = in_columns(tests)
    if not isinstance(tests, dict):
        tests = dict(head="", assertions=tests)
    if "inputs" in tests:
        pairs = [*zip(tests["inputs"], tests["outputs"], strict=True)]
        # parquet files have a fn_name of null where another task has one
        function = str(tests.get("fn_name") or "")
        if not pairs or function and not all(isinstance(inputs, list) for inputs, _ in pairs):
            raise ValueError("no tests, or arguments that are no list")
        if not function:
            pairs = [(one_text(inputs), one_text(wanted)) for inputs, wanted in pairs]
        return UnitTests(pairs, function)
    head, assertions = one_text(tests["head"]), one_text(tests["assertions"])
    tree = ast.parse(assertions)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [getattr(node, "module", alias.name) for node in imports for alias in node.names]
    packages = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    definitions = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    only_defines = all(isinstance(node, definitions) for node in tree.body)
    if only_defines or packages or "unittest" in assertions:
        raise ValueError("no assertions that can run and fail")
    return UnitTests(assertions=assertions, head=head)


def in_columns(rows: list[dict]) -> dict:
    """Convert LiveCodeBench's list of tests to the form of APPS."""
    inputs, outputs = [row["input"] for row in rows], [row["output"] for row in rows]
    if rows[0].get("testtype") != "functional":
        return dict(inputs=inputs, outputs=outputs)
    inputs = [[json.loads(line) for line in text.strip().split("\n")] for text in inputs]
    return dict(fn_name=rows[0]["fn_name"], inputs=inputs, outputs=[*map(json.loads, outputs)])


def one_text(part) -> str:
    """Join the lines of a text, as APPS lists some inputs; raise a TypeError for other values."""
    return "\n".join(part if isinstance(part, list) else [part])


def tests_text(value) -> str:
    """Return the unit tests in a cell as text for read_tests, or "" if there are none to run."""
    with contextlib.suppress(Exception):  # of every kind, such as those of cells nested too deep
        gold = value if isinstance(value, str) else json.dumps(value)
        read_tests(gold)
        return gold
    return ""


def find_program(text: str, tests: UnitTests) -> str | None:
    """Return the last fenced block of Python that defines what the tests use, or else the last one.

    Without a block of Python, blocks without a language count. Return None without any block.
    """
    blocks = [*BLOCK.finditer(text.replace("\r\n", "\n"))]
    programs = [block for block in blocks if re.match(PYTHON, block["label"], re.IGNORECASE)]
    unlabelled = [block for block in blocks if not block["label"].strip() and block["code"].strip()]
    programs = [textwrap.dedent(block["code"]) for block in programs or unlabelled]
    wanted = {"Solution", tests.function} if tests.function else names_used(tests.assertions)[0]
    defining = [code for code in programs if wanted.intersection(DEFINED.findall(code))]
    return (defining or programs or [None])[-1]


def names_used(assertions: str) -> tuple[set[str], set[str]]:
    """Return the names that assertions ask of the program, and the modules that they use.

    `math` is the module where they use it as in `math.isclose`. A name such as `abs` is Python's
    own, unless they use no other name.
    """
    nodes = [*ast.walk(ast.parse(assertions))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    owners = {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    defined = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined |= {getattr(node, "name", "") for node in nodes}  # of functions, classes, imports
    used = {node.id for node in names} - defined
    modules = used & owners & sys.stdlib_module_names
    return used - modules - {*dir(builtins)} or used - modules, modules


def verify_code(text: str, gold: str, seconds: float, all_seconds: float) -> float | None:
    """Run the program of a completion on the tests of read_tests.

    Return 1.0 if all pass, else 0.0; None without a block of code. Raise a TimeoutError if a test
    takes more than `seconds` or all of them more than `all_seconds`, and a UserError if the machine
    cannot start a sandbox.
    """
    tests = read_tests(gold)
    program = find_program(text, tests)
    if program is None:
        return None
    kind = "calls" if tests.function or tests.assertions else "inputs"
    with contextlib.closing(start_sandbox(kind, all_seconds, tests.head, program)) as sandbox:
        end = time.monotonic() + all_seconds

        def ask(question):
            return sandbox.ask(question, min(seconds, end - time.monotonic()))

        try:
            if tests.assertions:
                return float(judge_assertions(ask, tests, end))
            return float((judge_calls if tests.function else judge_outputs)(ask, tests))
        except WrongProgram:
            return 0.0


class WrongProgram(Exception):
    """The program has raised an exception or ended, or its answer is malformed."""


@contextlib.contextmanager
def by_the_program():
    """Turn an error of the block into a WrongProgram, except for OutOfTime."""
    try:
        yield
    except Exception as error:
        raise error if isinstance(error, OutOfTime) else WrongProgram from error


def judge_outputs(ask: Callable, tests: UnitTests) -> bool:
    """Return whether each input gives its output. Each runs in a process of its own."""
    for inputs, wanted in tests.pairs:
        with by_the_program():
            output, exit_code = ask(inputs)
        same = output.split() == wanted.split() or words(output) == words(wanted)
        if exit_code != 0 or not same:
            return False
    return True


def words(text: str) -> list[Decimal | str]:
    """Return the words of a text, and the values of decimals such as 0.50 or .5 instead of them."""
    return [Decimal(word) if DECIMAL.fullmatch(word) else word for word in text.split()]


def judge_calls(ask: Callable, tests: UnitTests) -> bool:
    """Return whether each call gives its result in JSON, where a tuple is a list."""
    with by_the_program():
        ask("")
    for inputs, wanted in tests.pairs:
        with by_the_program():
            answer = decode(ask([tests.function, encode((inputs, {}))]))
            result = json.loads(json.dumps(answer))
        if result != wanted and [result] != wanted:
            return False
    return True


def judge_assertions(ask: Callable, tests: UnitTests, end: float) -> bool:
    """Return whether the assertions pass in a sandbox of their own, which asks the program."""
    left = end - time.monotonic()
    with contextlib.closing(start_sandbox("tests", left, tests.assertions)) as check:
        answer, was_asked = [*map(list, names_used(tests.assertions))], False
        with by_the_program():
            ask("")
            while not isinstance(said := check.ask(answer, end - time.monotonic()), bool):
                answer, was_asked = ask(said), True
    return said and was_asked
