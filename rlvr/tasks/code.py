"""Programs against unit tests: each kind of test, and how the answers to it are judged.

The program runs in a sandbox that knows no expected output. What it answers is judged here, and
assertions are judged in a sandbox of their own.
"""

import ast
import functools
import re
import sys
import time

from rlvr.tasks.blocks import find_blocks
from rlvr.tasks.isolation import Sandbox, start_sandbox
from rlvr.tasks.unit_tests import UnitTests, read_tests
from rlvr.tasks.values import decode, encode

IDLE_CHECKS = []  # sandboxes of rlvr/tasks/check.py; assertions after assertions run in one
NOT_TO_IMPORT = {"antigravity", "this"}  # one opens a browser, the other prints a poem


def verify_code(text: str, gold: str, seconds: float, all_seconds: float) -> float | None:
    """The program of a completion against the tests of read_tests.

    1.0 where all pass, else 0.0; None without a block of code. A program is the last block, and
    those before it whose names it needs. Output is compared word by word. TimeoutError where a test
    takes more than `seconds`, or all of them more than `all_seconds`; UserError where the machine
    starts no sandbox.
    """
    blocks = find_blocks(text)
    if not blocks:
        return None
    tests = read_tests(gold)
    if tests.head:
        blocks = [tests.head, *blocks]
    used = stdlib_imports("\n".join(blocks))
    judge = judge_calls if tests.calls else judge_assertions if tests.assertions else judge_outputs
    job = dict(
        blocks=blocks,
        wanted=wanted_names(tests),
        imports=used,
        calls=judge is not judge_outputs,
        usual_imports=tests.calls,
        seconds=all_seconds,
    )
    with start_sandbox("solution", **job) as sandbox:
        end = time.monotonic() + all_seconds
        try:
            return float(judge(sandbox, tests, seconds, end))
        except (EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return 0.0  # the program has ended early, or an answer is none of its runner


def wanted_names(tests: UnitTests) -> list[str]:
    """The names that the tests look for in a program."""
    if tests.calls:
        return ["Solution", tests.function or "Solution"]
    return names_in(tests.assertions)


@functools.lru_cache(maxsize=4096)
def names_in(assertions: str) -> list[str]:
    """All names in assertions; none where they cannot be read."""
    try:
        nodes = [*ast.walk(ast.parse(assertions))]
    except (SyntaxError, ValueError):
        return []
    return sorted({node.id for node in nodes if isinstance(node, ast.Name)})


def stdlib_imports(program: str) -> list[str]:
    """The modules of the standard library that a program seems to import."""
    clauses = re.findall(r"^[ \t]*(?:import|from)[ \t]+([\w.]+[\w., \t]*)", program, re.MULTILINE)
    words = {word for clause in clauses for word in re.findall(r"\w+", clause)}
    return sorted((words & sys.stdlib_module_names) - NOT_TO_IMPORT)


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
        reply = sandbox.ask(
            [number, ["object", 1], arguments, {}], min(end, time.monotonic() + seconds)
        )
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
    check = idle_check()
    try:
        said = check.ask(tests.assertions, end)
        while said not in ("passed", "failed"):
            said = check.ask(sandbox.ask(said, min(end, time.monotonic() + seconds)), end)
    except BaseException:
        check.close()  # it still waits for an answer
        raise
    IDLE_CHECKS.append(check)
    return said == "passed"


def idle_check() -> Sandbox:
    """A sandbox for assertions: one that has judged some before and still lives, or a new one."""
    while IDLE_CHECKS:
        check = IDLE_CHECKS.pop()
        if check.process.poll() is None:
            return check
        check.close()
    return start_sandbox("check")
