"""Programs against unit tests: what passes, what fails, what is refused, and what is stopped."""

import json
import time
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import rlvr.tasks.pool
from rlvr.tasks import code, unit_tests
from rlvr.tasks.isolation import Sandbox
from rlvr.tasks.unit_tests import UnitTests, has_tests, read_tests

import pytest
from grading import ADD, ASSERTIONS, block, new_graders, traces
from programs import HONEST
from runs import first_fast

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
FENCED = '"""\n    ```\n    3\n    ```\n    """\n    '  # a docstring with a block
CODE_TEXTS = [
    (f"Thus\n```py\n{ADD}\n```\nDone.", 1.0, ""),
    (f"```python3\n{ADD}\n```", 1.0, ""),
    (f"```Python \n{ADD}\n```", 1.0, ""),
    (f"```python\nadd = min\n```\nNo:\n```python\n{ADD}\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\nNo:\n```python\nadd = min\n```", 0.0, ""),
    (ADD, 0.0, "unparsed"),
    (f"```cpp\n{ADD}\n```", 0.0, "unparsed"),
    ("", 0.0, "unparsed"),
    (rf"\boxed{{{ADD}}}", 0.0, "unparsed"),
    (f"```python\nadd = min\n```\n```text\n{ADD}\n```", 0.0, ""),
    (f"```python\n{ADD}\n```\n```text\n3\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\n```python\n>>> add(1, 2)\n3\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\n```python\n# add(1, 2) is 3\n```", 1.0, ""),
    ("```python\n>>> add(1, 2)\n3\n```\n```python\n# add\n```", 0.0, ""),
    # fences as models write them
    (f"```\n{ADD}\n```", 1.0, ""),
    (f"```\nadd = min\n```\n```python\n{ADD}\n```\n```\n3\n```", 1.0, ""),
    (f"```python\r\n{ADD}\r\n```\r\n".replace("\n    ", "\r\n    "), 1.0, ""),
    (f"```python title='add.py'\n{ADD}\n```", 1.0, ""),
    (f"``` python\n{ADD}\n```", 1.0, ""),
    (f"```{{python}}\n{ADD}\n```", 1.0, ""),
    (f"```{{.python .numberLines}}\n{ADD}\n```", 1.0, ""),
    (f"```python3.10\n{ADD}\n```", 1.0, ""),
    (f"````python\n{ADD}\n````", 1.0, ""),
    (f"~~~py\n{ADD}\n~~~", 1.0, ""),
    (f"So: ```python\n{ADD}\n```", 1.0, ""),
    (f"```python\n{ADD}", 1.0, ""),
    (f"```python\n{ADD}```\nDone.", 1.0, ""),
    ("1. This:\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n2. No", 1.0, ""),
    ("- ```python\n  def add(a, b):\n      return a + b\n  ```", 1.0, ""),
    (f"```python\n{ADD.replace('return', FENCED + 'return')}\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\nOr `add = min`, or ```add = min```.", 1.0, ""),
    ("`" * 100_000, 0.0, "unparsed"),
    ("```python\n" * 1_000, 0.0, ""),
    (f"```python\nadd = min\n\nNo:\n```python\n{ADD}\n```", 1.0, ""),
    # a program in several blocks
    (f"```python\n{ADD}\n```\nSo:\n```python\nprint(add(1, 2))\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\n```python\nassert add(1, 2) == 3\n```", 1.0, ""),
    (
        "```python\nimport operator as o\n```\n```python\ndef add(a, b): return o.add(a, b)\n```",
        1.0,
        "",
    ),
    ("```python\ndef f(a): return a\n```\n```python\nadd = lambda a, b: f(a) + b\n```", 1.0, ""),
    ("```python\n1 / 0\n```\n```python\nadd = lambda a, b: a + b\n```", 1.0, ""),
    # an earlier block is left out whose names the last one has by itself
    *(
        (f"```python\n{name} = 1 / 0\n```\n```python\n{code}\n```", 1.0, "")
        for name, code in [
            ("e", f"try:\n    {{}}[0]\nexcept KeyError as e:\n    e.args\n{ADD}"),
            ("floor", "from math import *\ndef add(a, b):\n    return floor(a + b)"),
            ("x", f"match 3:\n    case x:\n        x + 1\n{ADD}"),
            ("rest", f"match [3]:\n    case [*rest]:\n        rest.pop()\n{ADD}"),
            ("more", f"match {{1: 2}}:\n    case {{**more}}:\n        more.clear()\n{ADD}"),
        ]
    ),
    *(
        (f"```python\nimport math\n```\n```python\n{first}{ADD} + math.floor(0.5)\n```", 1.0, "")
        for first in [
            "from __future__ import annotations\n",
            "from __future__ import (\n    annotations,\n)\n",
            "TEXT = '''\nfrom __future__ import nothing\n'''\n",
        ]
    ),
    ("```python\ndef add(a, b:\n```\n```python\nadd = lambda a, b: a + b\n```", 1.0, ""),
    ("```python\nadd = lambda a, b: a + b\n```\n```python\nadd(1,\n```", 0.0, ""),
]


SUM = dict(inputs=["3\n1 2 3\n"], outputs=["6\n"])
READ = "n = int(input())\na = [int(word) for word in input().split()]"
BLOCKS_FOR_INPUT = [  # the blocks of a program, which adds up numbers of standard input
    [READ, "print(sum(a))"],
    [f"{READ}\nprint(sum(a))", "print(sum([1, 2]))"],
    [f"def total(a):\n    return sum(a)\n{READ}\nprint(total(a))", "print(total([1, 2]))"],
    [f"def main():\n    {READ.replace(chr(10), chr(10) + '    ')}\n    print(sum(a))", "main()"],
    [
        f"class Sum:\n    def main(self):\n        {READ.replace(chr(10), chr(10) + '        ')}"
        "\n        print(sum(a))\nif __name__ == '__main__':\n    Sum().main()",
        "print(sum([1, 2]))",
    ],
    [
        "import sys\ndef read():\n    return sys.stdin.read().split()[1:]",
        "def main():\n    print(sum(map(int, read())))\nmain()",
    ],
    ["import sys\ndata = sys.stdin.read().split()", "a = data[1:]", "print(sum(map(int, a)))"],
    [
        "# reads stdin later\ndef solve(a):\n    return sum(a)",
        "import os\nprint(solve(map(int, os.fdopen(0).read().split()[1:])))",
    ],
    [f"{READ}\nprint(max(a))", f"{READ}\nprint(sum(a))"],
]


@pytest.fixture(autouse=True, scope="module")
def scratch(tmp_path_factory):
    """Where this module's graders keep their temporary folders."""
    folder = tmp_path_factory.mktemp("scratch")
    with new_graders(folder):
        yield folder


def grade(program, tests, seconds=10, all_seconds=20):
    """What `grade` says of a program in a block."""
    question = "code", block(program), json.dumps(tests)
    return rlvr.tasks.pool.grade(question, seconds, all_seconds)


# ------------------------------------------------------------------------------- right and wrong


@pytest.mark.parametrize("program, tests, reward", PROGRAMS)
def test_programs(program, tests, reward):
    assert grade(program, tests) == (reward, "")


@pytest.mark.parametrize("text, reward, status", CODE_TEXTS)
def test_where_the_program_stands(text, reward, status):
    """In the last block of Python; a text without one cannot be read."""
    question = "code", text, json.dumps(ASSERTIONS)
    assert rlvr.tasks.pool.grade(question, 10) == (reward, status)


@pytest.mark.parametrize(
    "example, reward",
    [
        ("print(double(3))", 1.0),
        ("Input: 3\nOutput: 6", 1.0),
        ("print('6')", 1.0),
        ("import sys\nprint(3 * int(sys.stdin.read()))", 0.0),  # another program
    ],
)
def test_an_example_behind_a_program_that_reads(example, reward):
    program = "def double(n): return 2 * n\nprint(double(int(input())))"
    text = f"```python\n{program}\n```\nAn example:\n```python\n{example}\n```"
    question = "code", text, json.dumps(DOUBLE)
    assert rlvr.tasks.pool.grade(question, 10) == (reward, "")


@pytest.mark.parametrize("blocks", BLOCKS_FOR_INPUT)
def test_a_program_that_reads_in_several_blocks(blocks):
    text = "\nThen:\n".join(f"```python\n{each}\n```" for each in blocks)
    assert rlvr.tasks.pool.grade(("code", text, json.dumps(SUM)), 10) == (1.0, "")


def test_what_stands_before_the_program():
    """The head of a function to complete: its imports and helpers, and a stub of the function."""
    head = "import math\ndef half(x): return x / 2\ndef floor_of_half(x):\n    'Round down.'\n"
    tests = dict(head=head, assertions="assert floor_of_half(7) == 3\nassert half(1) == 0.5")
    alone = "def floor_of_half(x): return math.floor(half(x))"
    assert grade(alone, tests) == (1.0, "")
    assert grade("import math\ndef half(x): return x", tests) == (0.0, "")


PAIRS = (("7\n", "14\n"), ("0\n", "0\n"), ("-3\n", "-6"))
CALLS = UnitTests((([[1, 2], 3], [3]), ([[], 0], [])), calls=True, function="f")


@pytest.mark.parametrize(
    "tests, found",
    [
        (DOUBLE, UnitTests(PAIRS)),
        (DOUBLE_LIST, UnitTests(PAIRS)),
        (dict(inputs=[["1", "2"]], outputs=[["3", "4"]]), UnitTests((("1\n2", "3\n4"),))),
        (["assert a", "assert b"], UnitTests(assertions="assert a\nassert b")),
        ("assert a\nassert b", UnitTests(assertions="assert a\nassert b")),
        # APPS, and LiveCodeBench's rows without and with the function's name
        (dict(fn_name="f", inputs=[[[1, 2], 3], [[], 0]], outputs=[[3], []]), CALLS),
        (dict(fn_name=None, inputs=["7\n"], outputs=["14\n"]), UnitTests(PAIRS[:1])),
        (
            [
                dict(input="[1, 2]\n3", output="[3]", testtype="functional"),
                dict(input="[]\n0", output="[]", testtype="functional"),
            ],
            replace(CALLS, function=None),
        ),
        ([dict(input="7\n", output="14\n", testtype="stdin")], UnitTests(PAIRS[:1])),
        (
            dict(head="import math", assertions="assert a"),
            UnitTests(assertions="assert a", head="import math"),
        ),
        (dict(assertions=["assert a"]), UnitTests(assertions="assert a")),
    ],
)
def test_the_forms_of_unit_tests(tests, found):
    assert read_tests(json.dumps(tests)) == found


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
        '["def test(): assert False"]',
        '["assert add(1, 2) =="]',
        '{"fn_name": "f", "inputs": [3], "outputs": [3]}',
        '{"fn_name": "f", "inputs": [], "outputs": []}',
        '[{"input": "x", "output": "1", "testtype": "functional"}]',
        '[{"input": "1", "output": "1", "testtype": "functional"}, {"input": "", "output": ""}]',
        '[{"input": null, "output": "1", "testtype": "functional"}]',
        '{"head": null, "assertions": "assert a"}',
        json.dumps("assert " + "-" * 100_000 + "1"),
    ],
)
def test_what_is_no_unit_test(gold):
    assert not has_tests(gold)
    assert has_tests(json.dumps(DOUBLE))


@pytest.mark.parametrize("cell", [b"assert f(1)", Decimal(3), datetime.now(), "[" * 100_000, None])
def test_a_cell_that_holds_no_unit_tests(cell):
    """Such a column is dropped row by row."""
    assert unit_tests.tests_text(cell) == ""
    assert unit_tests.tests_text(DOUBLE) == json.dumps(DOUBLE)


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
        ("def f(): pass\nf.__code__ = f.__code__\nprint(6)", 1.0),
    ],
)
def test_programs_that_need_care(program, reward):
    assert grade(program, dict(inputs=["1"], outputs=["6"])) == (reward, "")


# --------------------------------------------------------------------------------------- honest


@pytest.mark.parametrize("program", HONEST.values(), ids=HONEST)
def test_honest_programs_score_1(program, scratch):
    assert grade(program, dict(inputs=["3\n1 2 3\n"], outputs=["6\n"])) == (1.0, "")
    assert traces(scratch) == []


def test_a_megabyte_and_more_of_output():
    program = "n = int(input())\nprint(*range(n), sep='\\n')"
    output = "\n".join(map(str, range(600_000)))
    assert len(output) > 4e6
    assert grade(program, dict(inputs=["600000"], outputs=[output])) == (1.0, "")


def test_output_without_end_is_wrong_at_once():
    start = time.monotonic()
    assert grade("while True: print('x' * 99)", DOUBLE, seconds=20) == (0.0, "")
    assert time.monotonic() - start < 10


def test_150_small_tests():
    program = "import collections, itertools, re, typing, random, heapq\nprint(2 * int(input()))"
    cases = dict(inputs=[f"{n}\n" for n in range(150)], outputs=[f"{2 * n}" for n in range(150)])
    assert grade(program, cases, seconds=5, all_seconds=30) == (1.0, "")


def test_each_input_has_a_process_of_its_own():
    """What a run leaves in memory is not there for the next one."""
    program = "import random\nprint(getattr(random, 'seen', 0), input())\nrandom.seen = 1"
    cases = dict(inputs=["a\n", "b\n", "c\n"], outputs=["0 a", "0 b", "0 c"])
    assert grade(program, cases) == (1.0, "")


@pytest.mark.parametrize(
    "seconds, all_seconds, reply",
    [(0.05, 20, (0.0, "timeout")), (20, 0.3, (0.0, "timeout")), (20, 20, (1.0, ""))],
)
@pytest.mark.parametrize("kind", first_fast(["assertions", "outputs", "calls"]))
def test_a_deadline_for_each_test_and_one_for_all(kind, seconds, all_seconds, reply):
    """Each of five tests takes 0.1 s."""
    start = time.monotonic()
    wait = "import time\ntime.sleep(0.1)\nprint(input())"
    function = "import time\ndef f(x):\n    time.sleep(0.1)\n    return x"
    program, tests = {
        "outputs": (wait, dict(inputs=["7"] * 5, outputs=["7"] * 5)),
        "calls": (function, dict(fn_name="f", inputs=[[7]] * 5, outputs=[7] * 5)),
        "assertions": (function, ["assert f(7) == 7"] * 5),
    }[kind]
    assert grade(program, tests, seconds, all_seconds) == reply
    assert time.monotonic() - start < 6


def test_a_check_that_died_while_idle_costs_no_reward(tmp_path, monkeypatch):
    """It is replaced, and used again while it lives."""
    monkeypatch.setattr(code, "IDLE_CHECKS", [])
    gold = json.dumps(ASSERTIONS)
    assert code.verify_code(block(ADD), gold, 20, 20) == 1
    (first,) = code.IDLE_CHECKS
    assert code.verify_code(block(ADD), gold, 20, 20) == 1
    assert code.IDLE_CHECKS == [first]
    first.process.kill()
    first.process.wait()
    assert code.verify_code(block(ADD), gold, 20, 20) == 1
    (second,) = code.IDLE_CHECKS
    assert second is not first
    second.close()


@pytest.mark.parametrize(
    "reply",
    [None, 5, [], {}, "x", [0], [0, 6, 0], [0, "6"], [0, "6", 0, 0], [1, "6", 0], [[], {}, 0]],
)
def test_replies_of_the_wrong_form_score_0(reply, monkeypatch):
    """What a program has written in its runner's name; the right one is [0, "6", 0]."""
    tests = json.dumps(dict(inputs=[""], outputs=["6"]))
    calls = json.dumps(dict(fn_name="f", inputs=[[]], outputs=["6"]))
    assert code.verify_code(block("print(6)"), tests, 20, 20) == 1  # sandboxes are tried before
    monkeypatch.setattr(Sandbox, "ask", lambda *_: [0, "6", 0])
    assert code.verify_code(block("pass"), tests, 20, 20) == 1
    monkeypatch.setattr(Sandbox, "ask", lambda *_: reply)
    assert code.verify_code(block("pass"), tests, 20, 20) == 0
    assert code.verify_code(block("pass"), calls, 20, 20) == 0
