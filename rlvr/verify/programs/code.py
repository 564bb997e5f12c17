"""Judge programs by unit tests of several kinds.

The program runs in a sandbox that does not know the expected outputs. Its answers are judged here;
assertions are judged in a second sandbox.
"""

import ast
import contextlib
import json
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from rlvr.errors import UserError
from rlvr.verify.programs.isolation import OutOfTime, start_sandbox
from rlvr.verify.programs.values import Program

# A line with a Markdown fence, which opens or closes a block.
FENCE = re.compile(r"(?P<before>[^`]*?)(?P<fence>`{3,}|~{3,})[ \t]*(?P<label>[^`]*)")
PYTHON = re.compile(r"\{?[. ]*(python|py|ipython|pypy)[\d.]*\b", re.IGNORECASE)
DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,9})?", re.ASCII)
DEFINED = re.compile(r"^(?:(?:async +)?def +|class +|(?=\w+ *=))(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class UnitTests:
    """Unit tests of one of three kinds: inputs and outputs, calls of a function, assertions."""

    pairs: Sequence = ()  # (standard input, output), or (arguments, result) of a call
    function: str | None = None  # the function to call, if the pairs are calls
    assertions: str = ""
    head: str = ""  # imports and helpers of a function to complete; runs before the program


def read_tests(gold: str) -> UnitTests:
    """Read unit tests in JSON. Text that is not JSON holds assertions.

    The forms are {"inputs": [...], "outputs": [...]}, [{"input": ..., "output": ...}, ...], and
    assertions as a string or a list, by themselves or as {"head": ..., "assertions": ...}. With
    "fn_name", as in APPS, an input is a list of arguments. With "testtype": "functional", as in
    LiveCodeBench, an input has one argument per line, in JSON.

    Anything else raises an exception. So do assertions that only define something, because they
    test nothing, and those of unittest, which may fail silently.
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
    """Convert LiveCodeBench's list of tests to the form of APPS."""
    inputs, outputs = [row["input"] for row in rows], [row["output"] for row in rows]
    if rows[0].get("testtype") != "functional":
        return dict(inputs=inputs, outputs=outputs)
    inputs = [[json.loads(line) for line in text.strip().split("\n")] for text in inputs]
    outputs = [json.loads(text) for text in outputs]
    return dict(fn_name=rows[0]["fn_name"], inputs=inputs, outputs=outputs)


def one_text(part) -> str:
    """Join the lines of a text, as APPS lists some inputs; raise a TypeError for other values."""
    return "\n".join(part if isinstance(part, list) else [part])


def tests_text(value) -> str:
    """Return the unit tests in a cell as text for read_tests, or "" if there are none to run."""
    try:
        gold = value if isinstance(value, str) else json.dumps(value)
        read_tests(gold)
    except Exception:  # odd cells raise errors of every kind, such as those nested too deep
        return ""
    return gold


def find_program(text: str, wanted: set[str]) -> str | None:
    """Return the last fenced block of Python that defines a wanted name, or else the last one.

    Examples of use may follow the function. Without a block of Python, blocks without a language
    count. Return None without any block.
    """
    blocks = find_blocks(text.replace("\r\n", "\n"))
    programs = [code for label, code in blocks if PYTHON.match(label)]
    programs = programs or [code for label, code in blocks if not label and code.strip()]
    defining = [code for code in programs if wanted.intersection(DEFINED.findall(code))]
    return (defining or programs or [None])[-1]


def find_blocks(text: str) -> list[tuple[str, str]]:
    """Return the label and the code of each fenced block.

    As in Markdown, a block ends at the end of the text, or at a fence that is at least as long as
    the first one and indented by at most three more columns. It also ends at a fence behind the
    last line of code, and before another block of Python.
    """
    blocks, opened = [], None
    for line in text.split("\n"):
        found = FENCE.fullmatch(line)
        if opened is None:
            opens, closes = bool(found), False
        else:
            is_fence = found and found["fence"].startswith(opened["fence"])
            is_alone = is_fence and not found["before"].strip()
            opens = is_alone and PYTHON.match(found["label"])
            is_deep = is_alone and len(found["before"]) > len(opened["before"]) + 3
            closes = is_fence and not found["label"].strip() and not is_deep
        if opens:
            opened = found
            blocks.append((found["label"].strip(), []))
        elif opened is not None:
            blocks[-1][1].append(found["before"] if closes else line)
            opened = None if closes else opened
    return [(label, textwrap.dedent("\n".join(lines))) for label, lines in blocks]


def verify_code(text: str, gold: str, seconds: float, all_seconds: float) -> float | None:
    """Run the program of a completion on the tests of read_tests.

    Return 1.0 if all pass, else 0.0; None without a block of code. Raise a TimeoutError if a test
    takes more than `seconds` or all of them more than `all_seconds`, and a UserError if the machine
    cannot start a sandbox.
    """
    tests = read_tests(gold)
    program = find_program(text, wanted_names(tests))
    if program is None:
        return None
    job = dict(
        head=tests.head,
        program=program,
        once=bool(tests.function or tests.assertions),
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
        except Exception:  # the program raised it or ended, or its answer is malformed
            return 0.0


def wanted_names(tests: UnitTests) -> set[str]:
    """Return the names that the tests look for in a program."""
    if tests.function:
        return {"Solution", tests.function}
    nodes = [*ast.walk(ast.parse(tests.assertions))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in names} - own


def judge_outputs(ask: Callable, tests: UnitTests) -> bool:
    """Return whether each input gives its output. Each runs in a process of its own."""
    for given, wanted in tests.pairs:
        output, exit_code = ask(given)
        words, right = output.split(), wanted.split()
        if exit_code != 0 or len(words) != len(right) or not all(map(is_same_word, words, right)):
            return False
    return True


def is_same_word(word: str, right: str) -> bool:
    """Return whether two words are the same, or the same decimal, such as 0.50 and .5."""
    if word == right:
        return True
    both_decimal = DECIMAL.fullmatch(word) and DECIMAL.fullmatch(right)
    return bool(both_decimal) and Decimal(word) == Decimal(right)


def judge_calls(ask: Callable, tests: UnitTests) -> bool:
    """Return whether each call gives its result, as a plain value. A tuple counts as a list."""
    solution = Program(ask).module()
    is_method = hasattr(getattr(solution, "Solution", None), tests.function)
    for given, wanted in tests.pairs:
        owner = solution.Solution() if is_method else solution
        result = as_lists(getattr(owner, tests.function)(*given))
        if result != wanted and [result] != wanted:
            return False
    return True


def as_lists(value):
    """Convert tuples to lists and the keys of dicts to texts, as in JSON."""
    if isinstance(value, (list, tuple)):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_lists(item) for key, item in value.items()}
    return value


def judge_assertions(ask: Callable, tests: UnitTests, end: float) -> bool:
    """Return whether the assertions pass in a sandbox of their own, which asks the program."""
    with contextlib.closing(start_sandbox("check")) as check:
        said = check.ask(tests.assertions, end - time.monotonic())
        while said not in ("passed", "failed"):
            said = check.ask(ask(said), end - time.monotonic())
    return said == "passed"
