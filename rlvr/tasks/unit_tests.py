"""Unit tests of programs: their forms, and whether they can be run."""

import ast
import contextlib
import json
from dataclasses import dataclass

# what odd cells of a data set raise, those that are nested too deep among them
BAD_TESTS = (ValueError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError)


@dataclass(frozen=True)
class UnitTests:
    """Unit tests, of one of three kinds: inputs and outputs, calls of a function, assertions."""

    pairs: tuple = ()  # of standard input and output; of the arguments and the result of a call
    calls: bool = False  # whether the pairs are calls
    function: str | None = None  # that is called; None is the only method of the class Solution
    assertions: str = ""
    head: str = ""  # of a function to complete: its imports and helpers, for the program to use


def read_tests(gold: str) -> UnitTests:
    """Unit tests in JSON -> the tests; ValueError or TypeError for what is none.

    The forms are {"inputs": [...], "outputs": [...]}, [{"input": ..., "output": ...}, ...], and
    assertions as a string or a list, by themselves or as {"head": ..., "assertions": ...}. With
    "fn_name", as in APPS, an input is a list of arguments. With "testtype": "functional", as in
    LiveCodeBench, it has an argument a line, in JSON.
    """
    tests = json.loads(gold)
    head = ""
    if isinstance(tests, dict) and "assertions" in tests:
        head, tests = tests.get("head", ""), tests["assertions"]
    is_functional = False
    if isinstance(tests, list) and tests and all(isinstance(test, dict) for test in tests):
        kinds = {test.get("testtype") == "functional" for test in tests}
        if len(kinds) > 1:
            raise ValueError("functional tests and others")
        is_functional = True in kinds
        function = tests[0].get("fn_name") if is_functional else None
        given = [test.get("input") for test in tests]
        wanted = [test.get("output") for test in tests]
        if is_functional:
            given = [[json.loads(line) for line in text.splitlines()] for text in given]
            wanted = [json.loads(text) for text in wanted]
        tests = dict(fn_name=function, inputs=given, outputs=wanted)
    if isinstance(tests, dict):
        pairs = [*zip(tests.get("inputs", ()), tests.get("outputs", ()), strict=True)]
        if not pairs:
            raise ValueError("no tests")
        # parquet files have a fn_name of null where another task has one
        if is_functional or tests.get("fn_name") is not None:
            if not all(isinstance(given, list) for given, _ in pairs):
                raise ValueError("arguments that are no list")
            return UnitTests(tuple(pairs), calls=True, function=tests.get("fn_name"))
        return UnitTests(tuple((one_text(given), one_text(wanted)) for given, wanted in pairs))
    lines = tests if isinstance(tests, list) else [tests]
    texts = all(isinstance(line, str) and line.strip() for line in lines)
    if not lines or not texts or not isinstance(head, str):
        raise ValueError("neither inputs and outputs nor assertions")
    return UnitTests(assertions="\n".join(lines), head=head)


def one_text(part) -> str:
    """An input or output; APPS has some as lists of lines."""
    text = "\n".join(part) if isinstance(part, list) else part
    if not isinstance(text, str):
        raise ValueError("an input or output that is no text")
    return text


def has_tests(gold: str) -> bool:
    """Whether there are tests that can be run. Assertions that only define something are none."""
    try:
        tests = read_tests(gold)
        definitions = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        body = ast.parse(tests.assertions).body
        return bool(tests.pairs) or any(not isinstance(node, definitions) for node in body)
    except BAD_TESTS:
        return False


def tests_text(value) -> str:
    """Unit tests in a column, as the JSON that read_tests takes; "" if there is none to run.

    What is no JSON is assertions.
    """
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    try:
        gold = json.dumps(value)
    except BAD_TESTS:
        return ""
    return gold if has_tests(gold) else ""
