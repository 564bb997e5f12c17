"""Programs against unit tests: what passes, what fails, and where a program stands in a text."""

import json
from decimal import Decimal

import rlvr.verify.pool as pool
import rlvr.verify.programs.code as code
from rlvr.verify.programs.isolation import Sandbox

import pytest
from grading import ADD, ASSERTIONS, block, new_graders, traces
from programs import HONEST, divided, one_a_line

DOUBLE = {"inputs": ["7\n", "0\n", "-3\n"], "outputs": ["14\n", "0\n", "-6"]}
SUM = dict(inputs=["3\n1 2 3\n"], outputs=["6\n"])
TURN = dict(fn_name="turn", inputs=[[[1, 2]], [[3]], [[]]], outputs=[[2, 1], [3], []])
# LiveCodeBench's rows, of programs and of functions
SUM_ROWS = [{"input": "3\n1 2 3\n", "output": "6"}, {"input": "1\n7\n", "output": "7"}]
ADD_ROWS = [
    dict(fn_name="add", input=given, output=wanted, testtype="functional")
    for given, wanted in [("1\n2", "3"), ("[1]\n[2]", "[1, 2]")]
]


@pytest.fixture(autouse=True, scope="module")
def scratch(tmp_path_factory):
    """Where this module's graders keep their temporary folders."""
    folder = tmp_path_factory.mktemp("scratch")
    with new_graders(folder):
        yield folder


def grade_text(text, tests, seconds=60, all_seconds=60):
    """What `grade` says of a completion."""
    return pool.grade(("code", text, json.dumps(tests)), seconds, all_seconds)


def grade(program, *tests):
    """What `grade` says of a program in a block."""
    return grade_text(block(program), *tests)


# ------------------------------------------------------------------------------- right and wrong

READS = "input()\nprint(sum(map(int, input().split())))"
# the head of a function to complete: its imports and helpers, and a stub of the function
HEAD = "import math\ndef half(x): return x / 2\ndef floor_of_half(x):\n    'Round down.'\n"
COMPLETED = dict(head=HEAD, assertions="assert floor_of_half(7) == 3\nassert half(1) == 0.5")
RIGHT = [  # the tests of programs, and programs that pass them
    (DOUBLE, "print(f'  {2 * int(input())}\\t\\n\\n')"),
    (SUM | dict(fn_name=None), READS),
    (SUM_ROWS, READS),
    (dict(inputs=[["3", "1 2 3"]], outputs=[["6"]]), READS),
    (ADD_ROWS, ADD),
    (dict(inputs=["añ文\n"], outputs=["文ña\n"]), "print(input()[::-1])"),
    (dict(inputs=[""], outputs=["1  2 \n3"]), "print(1, 2)\nprint(3)"),
    *((SUM, program) for program in HONEST),
    ("for a in range(9):\n    assert add(a, 1) > a", ADD),
    (ASSERTIONS, "from operator import add"),
    (COMPLETED, "def floor_of_half(x): return math.floor(half(x))"),
    # an example of its use, and guards
    (ASSERTIONS, f"print('add')\n{ADD}\nprint(add(1, 2))"),
    (ASSERTIONS, f"{ADD}\nif __name__ == '__main__': print(add(*input()))"),
    *((TURN, program) for program in divided("""
def turn(x): return tuple(x[::-1])

class Solution:
    def turn(self, x: List[int]) -> List[int]: return [*reversed(deque(x))]

class Solution:
    def turn(self, x): x.reverse(); self.x = x; return self.x

def turn(x): return x
class Solution:
    def turn(self, x): return x[::-1]

# usual imports, none of which hides a name of Python's own
def turn(x): return copy.copy(x)[:: -pow(2, 2, 3)]
""")),
    *((DOUBLE, program) for program in one_a_line("""
print(float(2 * int(input())))
print(f'{2 * int(input())}.00')
print(f'{2 * int(input()):e}')
""")),
    (dict(inputs=[""], outputs=["0.5 1e3 yes"]), "print('.50 1000 yes')"),
    (dict(inputs=[""], outputs=["9" * 5000]), "print(10**5000 - 1)"),
]  # fmt: skip
TWO_SUM = """class Solution:
    def twoSum(self, nums: List[int], target: int) -> List[int]:
        pairs = combinations(range(len(nums)), 2)
        return {}next(pair for pair in pairs if nums[pair[0]] + nums[pair[1]] == target)
"""
MEAN_HEAD = "from typing import List\n\ndef mean(x: List[float]) -> float:\n    'It.'\n"
# Of each harness: tests in its form, a program that needs what it gives, and a wrong program.
HARNESSES = {
    # openai/human-eval, execution.py: the head, the completion, the check, and its call
    "HumanEval": (
        dict(
            head=MEAN_HEAD,
            assertions="def check(f):\n    assert abs(f([1, 2]) - 1.5) < 1e-6\ncheck(mean)",
        ),
        "def mean(x: List[float]) -> float:\n    return sum(x) / len(x)",
        "def mean(x: List[float]) -> float:\n    return sum(x)",
    ),
    # google-research/mbpp: a program, and a list of assertions
    "MBPP": (
        ["assert least([3, 1]) == 1", "assert math.isclose(least([0.1]), 0.1)"],
        "def least(x):\n    heapify(x)\n    return x[0]",
        "def least(x):\n    return x[0]",
    ),
    # hendrycks/apps, eval/testing_util.py: sys, sqrt, Counter; [[1, 3]] for [1, 3]
    "APPS": (
        dict(inputs=[["16", ""]], outputs=[["4.0", "1"]]),
        "n = int(sys.stdin.readline())\nprint(sqrt(n))\nprint(Counter([n])[n])",
        "n = int(sys.stdin.readline())\nprint(n)",
    ),
    "APPS, functions": (
        dict(fn_name="f", inputs=[[[3, 1]]], outputs=[[[1, 3]]]),
        "def f(x): return sorted(x, key=lru_cache(floor))",
        "def f(x): return x",
    ),
    # LiveCodeBench, testing_util.py: words, or else decimals; calls up to 50,000 deep
    "LiveCodeBench": (
        [{"input": "20000\n", "output": "20000.0\n0.50", "testtype": "stdin"}],
        "f = lambda n: n and 1 + f(n - 1)\nprint(f(int(input())))\nprint(Fraction(1, 2) + 0.0)",
        "print(20000)\nprint(0.51)",
    ),
    "LiveCodeBench, functions": (
        [dict(fn_name="twoSum", input="[2, 7]\n9", output="[0, 1]", testtype="functional")],
        TWO_SUM.format(""),
        TWO_SUM.format("[1, 0] or "),
    ),
    # newfacade/LeetCodeDataset: a check of a method, by the names of its arguments
    "LeetCode": (
        "def check(f):\n    assert [*f(nums=[2, 7], target=9)] == [0, 1]\ncheck(Solution().twoSum)",
        TWO_SUM.format(""),
        TWO_SUM.format("[1, 0] or "),
    ),
}
WRONG = [
    *((DOUBLE, program) for program in one_a_line("""
print(14)
print(2.5 * int(input()))
print(f'{2 * int(input())}_0')
print(2 * int(input()), 'done')
print(2 * int(input())
print(2 * int(input())); raise ValueError
import numpy_of_no_one
import sys; print(2 * int(input()), file=sys.stderr)
""")),
    (DOUBLE, ""),
    (DOUBLE, "print('\0')"),
    *((ASSERTIONS, program) for program in divided("""
def add(a, b): return a - b

def plus(a, b): return a + b

def add(a): return a

def add(a, b): return a + b
import sys
sys.exit(0)

print('passed')
__name__ = 'passed'
def add(a, b): return a - b
""")),
    (SUM_ROWS, "print(6)"),
    (ADD_ROWS, "def add(a, b): return 3"),
    (ASSERTIONS, ""),
    (COMPLETED, "import math\ndef half(x): return x"),
    ("import unknown\nassert add(1, 2) == 3", ADD),
    ([*ASSERTIONS, "assert add(1, 1) == 3"], ADD),
    *((TURN, program) for program in divided("""
class A(list):
    __eq__ = lambda *_: True
def turn(x): return A()

class A:
    __eq__ = lambda *_: True
def turn(x): return A()

def turn(x): print(x[::-1])

def other(x): return x[::-1]

def turn(x): exit()

def turn(x): raise TimeoutError  # which is not that of a deadline
""")),
    # no name but its own counts for a program: not Python's, and not those of the usual imports
    *(
        (dict(fn_name=name, inputs=[arguments], outputs=[result]), program)
        for name, arguments, result in [("pow", [2, 3], 8), ("gcd", [4, 6], 2)]
        for program in ("x = 1", "class Solution:\n    def other(self): return 0")
    ),
]  # fmt: skip


@pytest.mark.parametrize("tests, program", RIGHT)
def test_right_programs(tests, program, scratch):
    assert grade(program, tests) == (1.0, "")
    assert traces(scratch) == []


@pytest.mark.parametrize("name", HARNESSES)
def test_the_harnesses_of_benchmarks(name):
    """Their own imports are there, and outputs are compared as they compare them."""
    tests, right, wrong = HARNESSES[name]
    assert grade(right, tests) == (1.0, "")
    assert grade(wrong, tests) == (0.0, "")


@pytest.mark.parametrize("tests, program", WRONG)
def test_wrong_programs(tests, program):
    assert grade(program, tests) == (0.0, "")


@pytest.mark.parametrize(
    "result, wanted, reward",
    [
        ("0.1 + 0.2", 0.3, 0.0),
        ("'é文'", "é文", 1.0),
        ("{1: (2, 3)}", {"1": [2, 3]}, 1.0),
        (None, None, 1.0),
        ("float('nan')", None, 0.0),
        (5, [5], 1.0),  # APPS has some results in lists
        ([5], 5, 0.0),
        ("{1, 2}", [1, 2], 0.0),
    ],
)
def test_results_of_functions(result, wanted, reward):
    tests = dict(fn_name="f", inputs=[[]], outputs=[wanted])
    assert grade(f"def f(): return {result}", tests) == (reward, "")


def test_inputs_do_not_meet_and_see_nothing():
    """Each has a process of its own, which knows no expected output."""
    program = "import random\nprint(getattr(random, 'seen', 0), input())\nrandom.seen = 1"
    tests = dict(inputs=["a\n", "b\n", "c\n"], outputs=["0 a", "0 b", "0 c"])
    assert grade(program, tests) == (1.0, "")
    program = "import os, sys\nprint('secret' in f'{sys.argv} {globals()}', dict(os.environ))"
    assert grade(program, dict(inputs=[""], outputs=["False {} secret"])) == (0.0, "")
    assert grade(program, dict(inputs=[""], outputs=["False {}"])) == (1.0, "")


# ------------------------------------------------------------------------- where a program stands


def python(*blocks):
    """A completion of several blocks."""
    return "\nThen:\n".join(f"```python\n{each}\n```" for each in blocks)


FENCED_DOCSTRING = f"""```python
def add(a, b):
    {3 * "'"}An example:
    ```
    add(1, 2)
    ```
    {3 * "'"}
    return a + b
```"""
FENCED_DOCSTRING = f"""```python
def add(a, b):
    {3 * "'"}An example:
    ```
    add(1, 2)
    ```
    {3 * "'"}
    return a + b
```"""
LABELS = ["py", "python3.10 title='add.py'", "Python ", " python", "{.python .numberLines}"]
RIGHT_TEXTS = [
    # fences as models write them
    *(f"Thus\n```{label}\n{ADD}\n```\nDone." for label in LABELS),
    f"```\nadd = min\n```\n```python\n{ADD}\n```\n```\n3\n```",
    f"```\n{ADD}\n```",
    f"```python\r\n{ADD}\r\n```\r\n".replace("\n    ", "\r\n    "),
    f"````python\n{ADD}\n````",
    f"~~~py\n{ADD}\n~~~",
    f"So: ```python\n{ADD}\n```",
    f"```python\n{ADD}",
    f"```python\n{ADD}```\nDone.",
    "1. This:\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n2. No",
    "- ```python\n  def add(a, b):\n      return a + b\n  ```",
    f"```python\n{ADD}\n```\nOr `add = min`, or ```add = min```.",
    f"```python\nadd = min\n\nNo:\n```python\n{ADD}\n```",
    # fences that end no block: deeper ones, shorter ones, those with something around them
    FENCED_DOCSTRING,
    f"````python\n# A block:\n# ```\n{ADD}\n````",
    f"```python\nfence = '```'\n{ADD}\n```",
    # the last block that defines what is asked for
    python("add = min", ADD),
    python(ADD, ">>> add(1, 2)\n3"),
    python(ADD, "a = 1\nprint(add(a, 2))"),
    python("def add(a, b:", "add = lambda a, b: a + b"),
]
WRONG_TEXTS = [
    python(ADD, "add = min"),
    f"```python\nadd = min\n```\n```text\n{ADD}\n```",
    "```python\n" * 1_000,
]
WITHOUT_A_PROGRAM = [ADD, f"```cpp\n{ADD}\n```", "", rf"\boxed{{{ADD}}}", "`" * 100_000]


@pytest.mark.parametrize(
    "text, tests, reply",
    [
        *((text, ASSERTIONS, (1.0, "")) for text in RIGHT_TEXTS),
        (python("print(max(input()))", READS), SUM, (1.0, "")),
        *((text, ASSERTIONS, (0.0, "")) for text in WRONG_TEXTS),
        *((text, ASSERTIONS, (0.0, "unparsed")) for text in WITHOUT_A_PROGRAM),
    ],
)
def test_where_the_program_stands(text, tests, reply):
    assert grade_text(text, tests) == reply


NO_TESTS = one_a_line("""
{"inputs": ["1", "2"], "outputs": ["2"]}
["assert a", 7]
[]
7
no JSON
["def test(): assert False"]
"import unittest\nassert add(1, 2) == 3"
["assert add(1, 2) =="]
{"fn_name": "f", "inputs": [3], "outputs": [3]}
{"fn_name": "f", "inputs": [], "outputs": []}
[{"input": "x", "output": "1", "testtype": "functional", "fn_name": "f"}]
{"head": null, "assertions": "assert a"}
""")


DEEP = json.dumps("assert " + "-" * 100_000 + "1")


@pytest.mark.parametrize("cell", [*NO_TESTS, "", DEEP, b"a", Decimal(3), "[" * 100_000, None])
def test_a_cell_that_holds_no_unit_tests(cell):
    """Such a column is dropped row by row."""
    assert code.tests_text(cell) == ""
    assert code.tests_text(DOUBLE) == json.dumps(DOUBLE)


# -------------------------------------------------------------------------- much, long, and broken


def test_much_output_and_many_tests():
    program = "n = int(input())\nprint(*range(n), sep='\\n')"
    output = "\n".join(map(str, range(600_000)))
    assert len(output) > 4e6
    assert grade(program, dict(inputs=["600000"], outputs=[output])) == (1.0, "")
    tests = dict(inputs=[f"{n}\n" for n in range(150)], outputs=[f"{2 * n}" for n in range(150)])
    assert grade("print(2 * int(input()))", tests, 60, 300) == (1.0, "")


@pytest.mark.parametrize(
    "seconds, all_seconds, reply",
    [(0.05, 60, (0.0, "timeout")), (60, 0.3, (0.0, "timeout")), (60, 60, (1.0, ""))],
)
def test_a_deadline_for_each_test_and_one_for_all(seconds, all_seconds, reply):
    """Each of five tests takes 0.1 s."""
    program = "import time\ndef f(x):\n    time.sleep(0.1)\n    return x"
    for tests in (["assert f(7) == 7"] * 5, dict(fn_name="f", inputs=[[7]] * 5, outputs=[7] * 5)):
        assert grade(program, tests, seconds, all_seconds) == reply


def always(reply):
    """A Sandbox.ask that starts, and gives one reply to every question."""
    return lambda _, message, seconds: "ready" if "way" in message else reply


@pytest.mark.parametrize("reply", [None, {}, "6", [6, 0], ["6"], ["6", 0, 0], ["6", 1]])
def test_replies_of_the_wrong_form_score_0(reply, monkeypatch):
    """What a program has written in its runner's name; the right one is ["6", 0]."""
    tests = json.dumps(dict(inputs=[""], outputs=["6"]))
    calls = json.dumps(dict(fn_name="f", inputs=[[]], outputs=["6"]))
    assert code.verify_code(block("print(6)"), tests, 60, 60) == 1  # sandboxes are tried before
    monkeypatch.setattr(Sandbox, "ask", always(["6", 0]))
    assert code.verify_code(block("pass"), tests, 60, 60) == 1
    monkeypatch.setattr(Sandbox, "ask", always(reply))
    assert code.verify_code(block("pass"), tests, 60, 60) == 0
    assert code.verify_code(block("pass"), calls, 60, 60) == 0
