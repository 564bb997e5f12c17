"""Programs against unit tests: each kind of test, and how the answers to it are judged.

The program runs in a sandbox that knows no expected output. What it answers is judged here, and
assertions are judged in a sandbox of their own.
"""

import ast
import contextlib
import json
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlvr.errors import UserError
from rlvr.verify.programs.isolation import OutOfTime, start_sandbox
from rlvr.verify.programs.values import Program

# A fenced block. It ends with its fence, with a next block of Python, or with the text.
BLOCK = re.compile(
    r"(?<![`~])(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<label>[^`\n]*+)\n(?P<code>.*?)"
    r"(?:(?P=fence)[ \t]*$|(?=^[ \t]*(?P=fence)[ \t]*(?i:python|py)\b)|\Z)",
    re.DOTALL | re.MULTILINE,
)
PYTHON = re.compile(r"\{?[. ]*(python|py|ipython|pypy)[\d.]*\b", re.IGNORECASE)
DEFINED = re.compile(r"^(?:(?:async +)?def +|class +|(?=\w+ *=))(\w+)", re.MULTILINE)
# What LeetCode's own editor has imported for a solution.
USUAL_IMPORTS = "import copy, datetime, json, operator, random, re, statistics, string, sys\n"
USUAL_IMPORTS += "".join(
    f"import {name}\nfrom {name} import *\n"
    for name in ("bisect", "collections", "functools", "heapq", "itertools", "math", "typing")
)


@dataclass(frozen=True)
class UnitTests:
    """Unit tests, of one of three kinds: inputs and outputs, calls of a function, assertions."""

    pairs: Sequence = ()  # of standard input and output; of the arguments and the result of a call
    function: str | None = None  # that is called, where the pairs are calls
    assertions: str = ""
    head: str = ""  # of a function to complete: its imports and helpers, for the program to use


def read_tests(gold: str) -> UnitTests:
    """Unit tests in JSON -> the tests; what is no JSON is assertions.

    The forms are {"inputs": [...], "outputs": [...]}, [{"input": ..., "output": ...}, ...], and
    assertions as a string or a list, by themselves or as {"head": ..., "assertions": ...}. With
    "fn_name", as in APPS, an input is a list of arguments. With "testtype": "functional", as in
    LiveCodeBench, it has an argument a line, in JSON.

    What is none of them raises an exception. So do assertions that only define something, since
    they test nothing, and those of unittest, which may fail in silence.
    """
    try:
        tests = json.loads(gold)
    except json.JSONDecodeError:
        tests = gold
    if isinstance(tests, list) and isinstance(tests[0], dict):
        tests = in_columns(tests)
    if isinstance(tests, dict) and "inputs" in tests:
        pairs = [*zip(tests["inputs"], tests["outputs"], strict=True)]
        # parquet files have a fn_name of null where another task has one
        function = tests.get("fn_name")
        if not function:
            pairs = [(one_text(given), one_text(wanted)) for given, wanted in pairs]
        elif not all(isinstance(given, list) for given, _ in pairs):
            raise ValueError("arguments that are no list")
        if not pairs:
            raise ValueError("no tests")
        return UnitTests(pairs, function)
    if not isinstance(tests, dict):
        tests = dict(head="", assertions=tests)
    head, assertions = one_text(tests["head"]), one_text(tests["assertions"])
    definitions = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = ast.parse(assertions).body
    if all(isinstance(node, definitions) for node in nodes) or "unittest" in assertions:
        raise ValueError("no assertions that can fail")
    return UnitTests(assertions=assertions, head=head)


def in_columns(rows: list[dict]) -> dict:
    """LiveCodeBench's list of tests in the form of APPS."""
    inputs, outputs = [row["input"] for row in rows], [row["output"] for row in rows]
    if rows[0].get("testtype") != "functional":
        return dict(inputs=inputs, outputs=outputs)
    inputs = [[json.loads(line) for line in text.splitlines()] for text in inputs]
    outputs = [json.loads(text) for text in outputs]
    return dict(fn_name=rows[0]["fn_name"], inputs=inputs, outputs=outputs)


def one_text(part) -> str:
    """A text, or a list of its lines, as APPS has some inputs; TypeError for what is neither."""
    return "\n".join(part if isinstance(part, list) else [part])


def tests_text(value) -> str:
    """Unit tests in a column, as the text that read_tests takes; "" if there is none to run."""
    try:
        gold = value if isinstance(value, str) else json.dumps(value)
        read_tests(gold)
    except Exception:  # odd cells raise of every kind, those that are nested too deep among them
        return ""
    return gold


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


def verify_code(text: str, gold: str, seconds: float, all_seconds: float) -> float | None:
    """The program of a completion against the tests of read_tests.

    1.0 where all pass, else 0.0; None without a block of code. Output is compared word by word.
    TimeoutError where a test takes more than `seconds`, or all of them more than `all_seconds`;
    UserError where the machine starts no sandbox.
    """
    tests = read_tests(gold)
    program = find_program(text, wanted_names(tests))
    if program is None:
        return None
    job = dict(
        head=tests.head,
        program=program,
        once=bool(tests.function or tests.assertions),
        usual=USUAL_IMPORTS if tests.function else "",
        seconds=all_seconds,
    )
    with contextlib.closing(start_sandbox("solution", **job)) as sandbox:
        end = time.monotonic() + all_seconds

        def ask(question):
            return sandbox.ask(question, min(seconds, end - time.monotonic()))

        try:
            if tests.function:
                return float(judge_calls(ask, tests))
            if tests.assertions:
                return float(judge_assertions(ask, tests, end))
            return float(judge_outputs(ask, tests))
        except (OutOfTime, UserError):
            raise
        except Exception:  # the program has raised it or ended, or its answer is none
            return 0.0


def wanted_names(tests: UnitTests) -> set[str]:
    """The names that the tests look for in a program."""
    if tests.function:
        return {"Solution", tests.function}
    nodes = [*ast.walk(ast.parse(tests.assertions))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in names} - own


def judge_outputs(ask: Callable, tests: UnitTests) -> bool:
    """Whether every input gives its output, word by word, in a process of its own."""
    for given, wanted in tests.pairs:
        output, exit_code = ask(given)
        if exit_code != 0 or output.split() != wanted.split():
            return False
    return True


def judge_calls(ask: Callable, tests: UnitTests) -> bool:
    """Whether every call gives its result, as a plain value; a tuple counts as a list."""
    solution = Program(ask).module()
    is_method = hasattr(getattr(solution, "Solution", None), tests.function)
    for given, wanted in tests.pairs:
        owner = solution.Solution() if is_method else solution
        result = as_lists(getattr(owner, tests.function)(*given))
        if result != wanted and [result] != wanted:
            return False
    return True


def as_lists(value):
    """A value with lists for its tuples, and texts for the keys of its dicts, as in JSON."""
    if isinstance(value, (list, tuple)):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_lists(item) for key, item in value.items()}
    return value


def judge_assertions(ask: Callable, tests: UnitTests, end: float) -> bool:
    """Whether the assertions pass in their own sandbox, whose questions the program answers."""
    with contextlib.closing(start_sandbox("check")) as check:
        said = check.ask(tests.assertions, end - time.monotonic())
        while said not in ("passed", "failed"):
            said = check.ask(ask(said), end - time.monotonic())
    return said == "passed"
