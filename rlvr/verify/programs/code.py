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
from dataclasses import dataclass

from rlvr.verify.programs.isolation import Sandbox, start_sandbox
from rlvr.verify.programs.values import decode, encode

# A fenced block. It ends with its fence, with a next block of Python, or with the text.
BLOCK = re.compile(
    r"(?<![`~])(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<label>[^`\n]*+)\n(?P<code>.*?)"
    r"(?:(?P=fence)[ \t]*$|(?=^[ \t]*(?P=fence)[ \t]*(?i:python|py)\b)|\Z)",
    re.DOTALL | re.MULTILINE,
)
PYTHON = re.compile(r"\{?[. ]*(python|py|ipython|pypy)[\d.]*\b", re.IGNORECASE)
DEFINED = re.compile(r"^(?:(?:async +)?def +|class +|(?=\w+ *=))(\w+)", re.MULTILINE)
BAD_ANSWER = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
# what odd cells of a data set raise, those that are nested too deep among them
BAD_TESTS = (*BAD_ANSWER, SyntaxError, MemoryError)


@dataclass(frozen=True)
class UnitTests:
    """Unit tests, of one of three kinds: inputs and outputs, calls of a function, assertions."""

    pairs: tuple = ()  # of standard input and output; of the arguments and the result of a call
    function: str | None = None  # that is called, where the pairs are calls
    assertions: str = ""
    head: str = ""  # of a function to complete: its imports and helpers, for the program to use


def read_tests(gold: str) -> UnitTests:
    """Unit tests in JSON -> the tests; one of BAD_TESTS is raised for what is none.

    The forms are {"inputs": [...], "outputs": [...]}, [{"input": ..., "output": ...}, ...], and
    assertions as a string or a list, by themselves or as {"head": ..., "assertions": ...}. With
    "fn_name", as in APPS, an input is a list of arguments. With "testtype": "functional", as in
    LiveCodeBench, it has an argument a line, in JSON.
    """
    tests = json.loads(gold)
    if isinstance(tests, list) and isinstance(tests[0], dict):
        tests = in_columns(tests)
    if isinstance(tests, dict) and "inputs" in tests:
        pairs = tuple(zip(tests["inputs"], tests["outputs"], strict=True))
        # parquet files have a fn_name of null where another task has one
        function = tests.get("fn_name")
        if not function:
            pairs = tuple((one_text(given), one_text(wanted)) for given, wanted in pairs)
        elif not all(isinstance(given, list) for given, _ in pairs):
            raise ValueError("arguments that are no list")
        if not pairs:
            raise ValueError("no tests")
        return UnitTests(pairs, function)
    head = ""
    if isinstance(tests, dict):
        head, tests = tests["head"], tests["assertions"]
    assertions = one_text(tests)
    if not assertions.strip() or not isinstance(head, str):
        raise ValueError("neither inputs and outputs nor assertions")
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
    """A text, or a list of its lines, as APPS has some inputs."""
    text = "\n".join(part) if isinstance(part, list) else part
    if not isinstance(text, str):
        raise ValueError("no text")
    return text


def tests_text(value) -> str:
    """Unit tests in a column, as the JSON that read_tests takes; "" if there is none to run.

    What is no JSON is assertions. Those that only define something test nothing, and those of
    unittest may fail in silence.
    """
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    try:
        gold = json.dumps(value)
        tests = read_tests(gold)
        body = ast.parse(tests.assertions).body
    except BAD_TESTS:
        return ""
    definitions = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    asserts = any(not isinstance(node, definitions) for node in body)
    return gold if tests.pairs or (asserts and "unittest" not in tests.assertions) else ""


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
    judge = (
        judge_calls if tests.function else judge_assertions if tests.assertions else judge_outputs
    )
    job = dict(
        head=tests.head,
        program=program,
        once=judge is not judge_outputs,
        usual_imports=judge is judge_calls,
        seconds=all_seconds,
    )
    with contextlib.closing(start_sandbox("solution", **job)) as sandbox:
        end = time.monotonic() + all_seconds
        try:
            return float(judge(sandbox, tests, seconds, end))
        except (*BAD_ANSWER, EOFError):  # an answer is none of its runner, or the program has ended
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


def judge_outputs(sandbox: Sandbox, tests: UnitTests, seconds: float, end: float) -> bool:
    """Whether every input gives its output, word by word, in a process of its own."""
    for number, (given, wanted) in enumerate(tests.pairs):
        reply = sandbox.ask([number, given], min(end, time.monotonic() + seconds))
        answered, output, code = reply
        if answered != number or code != 0 or output.split() != wanted.split():
            return False
    return True


def judge_calls(sandbox: Sandbox, tests: UnitTests, seconds: float, end: float) -> bool:
    """Whether every call gives its result, as a plain value; a tuple counts as a list."""
    for number, (given, wanted) in enumerate(tests.pairs):
        arguments = [encode(each, refuse) for each in (tests.function, *given)]
        question = [number, ["object", 1], arguments, {}]
        reply = sandbox.ask(question, min(end, time.monotonic() + seconds))
        answered, kind, *parts = reply
        if answered != number or kind != "value":
            return False
        result = as_lists(decode(parts[0], refuse))
        if result != wanted and [result] != wanted:
            return False
    return True


def refuse(*parts):
    """What is no plain value is no result."""
    raise ValueError("an object that is no plain value")


def as_lists(value):
    """A value with lists for its tuples, and texts for the keys of its dicts, as in JSON."""
    if isinstance(value, (list, tuple)):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_lists(item) for key, item in value.items()}
    return value


def judge_assertions(sandbox: Sandbox, tests: UnitTests, seconds: float, end: float) -> bool:
    """Whether the assertions pass in their own sandbox, whose questions the program answers."""
    with contextlib.closing(start_sandbox("check")) as check:
        said = check.ask(tests.assertions, end)
        while said not in ("passed", "failed"):
            said = check.ask(sandbox.ask(said, min(end, time.monotonic() + seconds)), end)
    return said == "passed"
