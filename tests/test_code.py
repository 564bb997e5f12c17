"""Programs against unit tests: what passes, what fails, what is refused, and what is stopped."""

import json
import os
import pwd
import time
from pathlib import Path

import rlvr.tasks
from rlvr.tasks.code import has_tests, read_tests

import pytest
from grading import ADD, ASSERTIONS, block, grade_all, new_graders, traces
from programs import ENDLESS, HONEST, REFUSED, STOPPED

DOUBLE = {"inputs": ["7\n", "0\n", "-3\n"], "outputs": ["14\n", "0\n", "-6"]}
DOUBLE_LIST = [
    {"input": given, "output": wanted}
    for given, wanted in zip(DOUBLE["inputs"], DOUBLE["outputs"], strict=True)
]
PROGRAMS = [  # a block of ```python, its tests, the reward
    ("print(2 * int(input()))", DOUBLE, 1.0),
    ("print(2 * int(input()))", DOUBLE_LIST, 1.0),
    ("print(2 * int(input()), end='')", DOUBLE, 1.0),
    ("print(f'  {2 * int(input())}\\t\\n\\n')", DOUBLE, 1.0),
    ("print(2 + int(input()))", DOUBLE, 0.0),
    ("print(2 * int(input()) or '')", DOUBLE, 0.0),
    ("print(14)", DOUBLE, 0.0),
    ("print(14)", DOUBLE_LIST, 0.0),
    ("print(-6)", DOUBLE_LIST, 0.0),
    ("print(float(2 * int(input())))", DOUBLE, 0.0),
    ("print(2 * int(input()), 'done')", DOUBLE, 0.0),
    ("print(*f'{2 * int(input())}')", DOUBLE, 0.0),
    ("", DOUBLE, 0.0),
    ("pass", DOUBLE, 0.0),
    ("1 / 0", DOUBLE, 0.0),
    ("print(2 * int(input())", DOUBLE, 0.0),
    ("raise ValueError", DOUBLE, 0.0),
    ("print(2 * input())", DOUBLE, 0.0),
    ("import numpy_of_no_one", DOUBLE, 0.0),
    ("print('\0')", DOUBLE, 0.0),
    ("import sys\nprint(2 * int(input()), file=sys.stderr)", DOUBLE, 0.0),
    ("print(input()[::-1])", {"inputs": ["añ文\n"], "outputs": ["文ña\n"]}, 1.0),
    ("print(1, 2)\nprint(3)", {"inputs": [""], "outputs": ["1  2 \n3"]}, 1.0),
    (ADD, ASSERTIONS, 1.0),
    (ADD, "\n".join(ASSERTIONS), 1.0),
    (ADD, "for a in range(9):\n    assert add(a, 1) > a", 1.0),
    ("add = lambda a, b: a + b", ASSERTIONS, 1.0),
    ("from operator import add", ASSERTIONS, 1.0),
    ("def add(a, b):\n    return a - b", ASSERTIONS, 0.0),
    ("def add(a, b):\n    return 3", ASSERTIONS, 0.0),
    ("def add(a, b):\n    pass", ASSERTIONS, 0.0),
    ("def plus(a, b):\n    return a + b", ASSERTIONS, 0.0),
    ("def add(a, b)\n    return a + b", ASSERTIONS, 0.0),
    ("def add(a):\n    return a", ASSERTIONS, 0.0),
    ("", ASSERTIONS, 0.0),
    (ADD, "assert add(1, 2) ==", 0.0),
    (ADD, "import unknown", 0.0),
    (ADD, [*ASSERTIONS, "assert add(1, 1) == 3"], 0.0),
]
CODE_TEXTS = [
    (f"Thus\n```py\n{ADD}\n```\nDone.", 1.0, ""),
    (f"```python3\n{ADD}\n```", 1.0, ""),
    (f"```Python \n{ADD}\n```", 1.0, ""),
    (f"```python\nadd = min\n```\nNo:\n```python\n{ADD}\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\nNo:\n```python\nadd = min\n```", 0.0, ""),
    (ADD, 0.0, "unparsed"),
    (f"```\n{ADD}\n```", 0.0, "unparsed"),
    (f"```cpp\n{ADD}\n```", 0.0, "unparsed"),
    ("", 0.0, "unparsed"),
    (f"```python\n{ADD}\n", 0.0, "unparsed"),
    (rf"\boxed{{{ADD}}}", 0.0, "unparsed"),
    (f"```python\nadd = min\n```\n```text\n{ADD}\n```", 0.0, ""),
    (f"```python\n{ADD}\n```\n```text\n3\n```", 1.0, ""),
]


@pytest.fixture(autouse=True, scope="module")
def scratch(tmp_path_factory):
    """Where this module's graders keep their temporary folders."""
    folder = tmp_path_factory.mktemp("scratch")
    with new_graders(folder):
        yield folder


def grade(program, tests, seconds=10):
    """What `grade` says of a program in a block."""
    return rlvr.tasks.grade(("code", block(program), json.dumps(tests)), seconds)


# ------------------------------------------------------------------------------- right and wrong


@pytest.mark.parametrize("program, tests, reward", PROGRAMS)
def test_programs(program, tests, reward):
    assert grade(program, tests) == (reward, "")


@pytest.mark.parametrize("text, reward, status", CODE_TEXTS)
def test_where_the_program_stands(text, reward, status):
    """In the last block of Python; a text without one cannot be read."""
    question = "code", text, json.dumps(ASSERTIONS)
    assert rlvr.tasks.grade(question, 10) == (reward, status)


@pytest.mark.parametrize(
    "tests, pairs, assertions",
    [
        (DOUBLE, [("7\n", "14\n"), ("0\n", "0\n"), ("-3\n", "-6")], ""),
        (DOUBLE_LIST, [("7\n", "14\n"), ("0\n", "0\n"), ("-3\n", "-6")], ""),
        (["assert a", "assert b"], [], "assert a\nassert b"),
        ("assert a\nassert b", [], "assert a\nassert b"),
    ],
)
def test_the_forms_of_unit_tests(tests, pairs, assertions):
    assert read_tests(json.dumps(tests)) == (pairs, assertions)


@pytest.mark.parametrize(
    "gold",
    [
        '{"inputs": ["1", "2"], "outputs": ["2"]}',
        '{"inputs": null, "outputs": 3}',
        '[{"input": "1"}]',
        '["assert a", 7]',
        '"  "',
        "{}",
        "[]",
        "null",
        "7",
        "no JSON",
        "",
    ],
)
def test_what_is_no_unit_test(gold):
    assert not has_tests(gold)
    assert has_tests(json.dumps(DOUBLE))


# ---------------------------------------------------------------------------------------- tricks


@pytest.mark.parametrize(
    "trick",
    ["print('passed')", "print('True')", "__name__ = 'passed'", "assert True", "'add(1, 2) == 3'"],
)
def test_tricks_score_0(trick):
    assert grade(f"{trick}\ndef add(a, b):\n    return a - b", ASSERTIONS) == (0.0, "")


def test_a_program_cannot_see_what_is_expected_of_it():
    program = "import os, sys\nprint('secret' in f'{os.environ} {sys.argv} {globals()}')"
    assert grade(program, dict(inputs=[""], outputs=["False secret"])) == (0.0, "")
    assert grade(program, dict(inputs=[""], outputs=["False"])) == (1.0, "")


@pytest.mark.parametrize(
    "program, reward",
    [
        ("def add(a, b): return a + b\nprint(add(1, 2))", 1.0),  # an example of its use
        ("def add(a, b): return a + b\nprint('add')\nimport sys\nsys.exit(0)", 0.0),
    ],
)
def test_functions_that_need_care(program, reward):
    assert grade(program, "assert add(1, 2) == 3") == (reward, "")


@pytest.mark.parametrize(
    "program, reward",
    [
        ("import logging, socket, concurrent.futures\nprint(6)", 1.0),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(6)", 1.0),
        ("print(6)\nraise ValueError", 0.0),
        ("import os\nos.mkfifo('fifo')\nprint(6)", 0.0),
        ("import os\nos.mknod('node')\nprint(6)", 0.0),
        ("import os\nos.setsid()\nprint(6)", 0.0),
        ("import socket\nsocket.socket()\nprint(6)", 0.0),
        ("def f(): pass\nf.__code__ = f.__code__\nprint(6)", 0.0),
    ],
)
def test_programs_that_need_care(program, reward):
    assert grade(program, dict(inputs=["1"], outputs=["6"])) == (reward, "")


# --------------------------------------------------------------------------- refused and stopped


def indent(program):
    return program.replace("\n", "\n    ")


@pytest.fixture
def mark(request, tmp_path):
    """A new file in the folder that a test names: what a refused action must not make."""
    folders = {
        "temporary": tmp_path,
        "memory": Path("/dev/shm"),
        "home": Path(pwd.getpwuid(os.getuid()).pw_dir),
    }
    path = folders[request.param] / f"marker-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


ONE_OF_EACH_KIND = {
    "fork",
    "subprocess",
    "os.system",
    "open",
    "os.open",
    "pathlib",
    "mkdir",
    "relative",
    "remove",
    "chdir",
    "socket",
    "ctypes",
    "read by os.open",
    "read its own tests",
    "read through ..",
    "kill the parent",
    "lift the limits",
}


def refused_actions():
    """An action that writes nowhere is tried once, the others in three folders."""
    for name, template in REFUSED.items():
        marks = [] if name in ONE_OF_EACH_KIND else pytest.mark.slow
        yield pytest.param(template, "temporary", id=name, marks=marks)
        if "{mark}" in template:
            for folder in ("memory", "home"):
                yield pytest.param(template, folder, id=f"{name} {folder}", marks=pytest.mark.slow)


@pytest.mark.parametrize("template, mark", [*refused_actions()], indirect=["mark"])
def test_what_is_refused(template, mark, scratch):
    """It scores 0 in both kinds of tests.

    It does nothing either where the program goes on after the refusal.
    """
    action = template.replace("{mark}", str(mark))
    plain = f"{action}\nprint(7)"
    called = f"def add(a, b):\n    {indent(action)}\n    return a + b"
    swallowed = f"try:\n    {indent(action)}\nexcept BaseException: pass"
    assertions = json.dumps(ASSERTIONS)
    questions = [
        ("code", block(plain), json.dumps(dict(inputs=[""], outputs=["7"]))),
        ("code", block(called), assertions),
        ("code", block(swallowed), assertions),
    ]
    start = time.monotonic()
    assert [reward for reward, _ in grade_all(questions, 5)] == [0, 0, 0]
    assert time.monotonic() - start < 5
    assert traces(scratch, [mark]) == []


def endless_actions():
    """Each takes a second, so that by default there is one of them."""
    for name, action in ENDLESS.items():
        marks = [] if name == "loop that catches all" else pytest.mark.slow
        yield pytest.param(action, id=name, marks=marks)


def check_stopped(action, scratch):
    """It scores 0 before the function that the assertions want is there, and in the call."""
    programs = f"{action}\n{ADD}", f"def add(a, b):\n    {indent(action)}\n    return a + b"
    questions = [("code", block(program), json.dumps(ASSERTIONS)) for program in programs]
    start = time.monotonic()
    assert [reward for reward, _ in grade_all(questions, 1)] == [0, 0]
    assert time.monotonic() - start < 3.5
    assert traces(scratch) == []


@pytest.mark.parametrize("action", STOPPED.values(), ids=STOPPED)
def test_what_ends_early(action, scratch):
    check_stopped(action, scratch)


@pytest.mark.parametrize("action", [*endless_actions()])
def test_what_has_no_end(action, scratch):
    check_stopped(action, scratch)


def test_an_endless_program_times_out_once_for_all_cases():
    start = time.monotonic()
    cases = dict(inputs=["7"] * 5, outputs=["7"] * 5)
    program = "import time\ntime.sleep(0.4)\nprint(input())"
    assert grade(program, cases, seconds=1) == (0.0, "timeout")
    assert time.monotonic() - start < 2.5


# --------------------------------------------------------------------------------------- honest


@pytest.mark.parametrize("program", HONEST.values(), ids=HONEST)
def test_honest_programs_score_1(program, scratch):
    assert grade(program, dict(inputs=["3\n1 2 3\n"], outputs=["6\n"])) == (1.0, "")
    assert traces(scratch) == []
