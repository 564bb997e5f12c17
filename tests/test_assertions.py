"""Functions and assertions: calls over the pipe, values that come back, and what is compared."""

import json

from rlvr.tasks import pool

import pytest
from grading import ADD, block, new_graders
from programs import by_name


@pytest.fixture(autouse=True, scope="module")
def graders(tmp_path_factory):
    """Graders of this module's own."""
    with new_graders(tmp_path_factory.mktemp("scratch")):
        yield


def grade(program, tests):
    """What `grade` says of a program in a block."""
    return pool.grade(("code", block(program), json.dumps(tests)), 10, 20)


# ------------------------------------------------------------------------------------- functions


REVERSE = dict(fn_name="turn", inputs=[[[1, 2]], [[3]], [[]]], outputs=[[2, 1], [3], []])


@pytest.mark.parametrize(
    "program, reward",
    [
        ("def turn(x): return x[::-1]", 1.0),
        ("def turn(x): return tuple(x[::-1])", 1.0),
        ("class Solution:\n    def turn(self, x: List[int]) -> List[int]: return x[::-1]", 1.0),
        ("class Solution:\n    def turn(self, x): return [*reversed(deque(x))]", 1.0),
        ("class Solution:\n    def turn(self, x): x.reverse(); return x", 1.0),
        ("class Solution:\n    def turn(self, x): self.x = x[::-1]; return self.x", 1.0),
        ("class A(list):\n    __eq__ = lambda *_: True\ndef turn(x): return A()", 0.0),
        ("class A:\n    __eq__ = lambda *_: True\ndef turn(x): return A()", 0.0),
        ("def turn(x): return x", 0.0),
        ("def turn(x): print(x[::-1])", 0.0),
        ("def other(x): return x[::-1]", 0.0),
        ("def turn(): return [2, 1]", 0.0),
        ("def turn(x): return iter(x[::-1])", 0.0),
        ("print('[2, 1]')", 0.0),
        ("def turn(x): exit()", 0.0),
        ("def turn(x): return x[::-1]\nclass Solution: other = 3", 1.0),
        ("def turn(x): return x\nclass Solution:\n    def turn(self, x): return x[::-1]", 1.0),
        # usual imports, none of which hides a name of Python's own
        ("def turn(x): return copy.copy(x)[:: -pow(2, 2, 3)]", 1.0),
        ("def turn(x): sys.setrecursionlimit(9999); return json.loads(json.dumps(x[::-1]))", 1.0),
    ],
)
def test_functional_tests(program, reward):
    """As in APPS and LiveCodeBench: a function, or a method of the class Solution."""
    assert grade(program, REVERSE) == (reward, "")


@pytest.mark.parametrize(
    "name, arguments, result",
    [("sum", [[1, 2]], 3), ("pow", [2, 3], 8), ("gcd", [4, 6], 2), ("sorted", [[2, 1]], [1, 2])],
)
@pytest.mark.parametrize("program", ["x = 1", "class Solution:\n    def other(self): return 0"])
def test_no_name_but_its_own_counts_for_a_program(program, name, arguments, result):
    """Not Python's, and not those of the usual imports."""
    tests = dict(fn_name=name, inputs=[arguments], outputs=[result])
    assert grade(program, tests) == (0.0, "")


def test_functional_tests_without_a_name():
    """It is the only public method then."""
    tests = [dict(input='"ab"\n2', output='"abab"', testtype="functional")]
    right = "class Solution:\n    def f(self, s: str, n: int): return self._g(s, n)\n"
    right += "    def _g(self, s, n): return s * n"
    assert grade(right, tests) == (1.0, "")
    assert grade(f"{right}\n    MOST = 10**9", tests) == (1.0, "")
    of_the_class = "class Solution:\n    @classmethod\n    def f(cls, s, n): return s * n"
    assert grade(of_the_class, tests) == (1.0, "")
    assert grade(right.replace("s * n", "s"), tests) == (0.0, "")


@pytest.mark.parametrize(
    "result, wanted, reward",
    [
        (2.0, 2, 1.0),
        ("0.1 + 0.2", 0.3, 0.0),
        (10**30, 10**30, 1.0),
        ("'é文'", "é文", 1.0),
        ("{1: (2, 3)}", {"1": [2, 3]}, 1.0),
        (None, None, 1.0),
        ("float('nan')", None, 0.0),
        ("[[1, 2]]", [[1, 2]], 1.0),
        (5, [5], 1.0),  # APPS has some results in lists
        ([5], 5, 0.0),
        ("{1, 2}", [1, 2], 0.0),
    ],
)
def test_results_of_functions(result, wanted, reward):
    tests = dict(fn_name="f", inputs=[[]], outputs=[wanted])
    assert grade(f"def f(): return {result}", tests) == (reward, "")


# ------------------------------------------------------------------------------------ assertions


@pytest.mark.parametrize(
    "value",
    [
        *("None", "True", "-7", "10**400", "2.5", "float('inf')", "'é\\n\\0'", "b'\\xff'", "1j"),
        *(
            "[1, [2]]",
            "(1, (2,))",
            "{1, 2}",
            "frozenset({1})",
            "{'a': {2: ()}}",
            "set()",
            "range(3)",
        ),
        *("__import__('collections').Counter('aab')", "__import__('collections').deque([1])"),
        *("__import__('decimal').Decimal('0.10')", "__import__('fractions').Fraction(1, 3)"),
        *("__import__('datetime').date(2024, 2, 29)", "__import__('datetime').timedelta(1, 2, 3)"),
        "__import__('collections').OrderedDict(b=1, a=2)",
        "bytearray(b'x')",
    ],
)
def test_plain_values_cross(value):
    """Both ways, with their types. A value is not equal to another one."""
    tests = [
        f"value = {value}",
        "result = same(value)",
        "assert type(result) is type(value) and result == value and repr(result) == repr(value)",
        "assert same([value]) != [0.125]",
    ]
    assert grade("def same(x): return x", tests) == (1.0, "")
    assert grade("def same(x): return 0.125", tests) == (0.0, "")


# A program, and below the line the tests that it passes.
HOLD = by_name(
    r"""
# a class of the program
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
def add(p): return p.a + p.b
---
assert add(Pair(1, 2)) == 3
p = Pair(1, 2)
p.a = 5
assert add(p) == 7 and p.b == 2

# check
def add(a, b):
    return a + b
---
def check(candidate):
    assert candidate(1, 2) == 3
check(add)

# helpers of the program
def f(x): return x + 1
def g(x): return x - 1
---
assert all(f(g(n)) == n for n in range(9))

# a generator
def f(n): yield from range(n)
---
assert list(f(3)) == [0, 1, 2] and next(iter(f(2))) == 0

# a named tuple
from collections import namedtuple
P = namedtuple('P', 'x y')
def f(): return P(1, 2)
---
assert f() == (1, 2)

# an enum
import enum
class E(enum.IntEnum):
    A = 6
def f(): return E.A
---
assert f() == 6

# a Counter
from collections import Counter
def f(s): return Counter(s)
---
assert f('aab') == {'a': 2, 'b': 1}

# a function
def f(): return lambda x: x + 1
---
assert f()(2) == 3

# an object
class A:
    x = [1]
    def __getitem__(self, i): return i
    def __len__(self): return 4
def f(): return A()
---
assert f()[7] == 7 and len(f()) == 4 and f().x == [1] and isinstance(f(), A)

# a constant
A = {'x': 1}
---
assert A == {'x': 1}

# a list that is changed
def f(x): x.sort(); x.append(9)
---
x = [3, 1]
f(x)
assert x == [1, 3, 9]

# a dict and a set that are changed
def f(d, s): d['a'] = 1; s.clear()
---
d, s = {}, {1}
f(d, s)
assert d == {'a': 1} and s == set()

# a function as an argument
def f(g, x): return [g(each) for each in x]
---
assert f(lambda n: n * n, [1, 2]) == [1, 4]

# a built-in as an argument
def f(g, x): return [g(each) for each in x]
---
assert f(len, ['a']) == [1] and f(int, ['7']) == [7]

# calls from within calls
def f(g): return g(2)
def h(x): return x + 1
---
assert f(lambda n: h(n) * 2) == 6 and f(h) == 3

# named arguments
def f(x, *, by=1): return x * by
---
assert f('a', by=2) == 'aa'

# an exception
def f(x):
    if x < 0: raise ValueError('negative')
    return x
---
try:
    f(-1)
except ValueError as error:
    assert str(error) == 'negative'
else:
    assert False

# an exception of its own
class Mine(KeyError): pass
def f(): raise Mine('x')
---
try:
    f()
    assert 0
except KeyError: pass

# an exception's arguments
def f(x): return {}[x]
def g(): raise OSError(2, 'no file')
---
for key in (3, 'x'):
    try:
        f(key)
        assert 0
    except KeyError as error:
        assert error.args == (key,) and str(error) == repr(key)
try:
    g()
    assert 0
except FileNotFoundError as error:
    assert error.errno == 2

# an exception whose base takes other arguments
class Mine(UnicodeDecodeError):
    def __init__(self): pass
    def __str__(self): return 'mine'
def f(): raise Mine
---
try:
    f()
    assert 0
except UnicodeError as error:
    assert str(error) == 'mine'

# times
from datetime import datetime, time, timedelta, timezone
def f(x): return datetime(2020, 2, 29, 12, 30, tzinfo=x)
def g(): return [time(1, 2), datetime(2020, 1, 1) + timedelta(hours=3)]
---
from datetime import datetime, time, timedelta, timezone
assert f(None) == datetime(2020, 2, 29, 12, 30) and f(None) < datetime(2020, 3, 1)
assert f(timezone.utc) == datetime(2020, 2, 29, 13, 30, tzinfo=timezone(timedelta(hours=1)))
assert g() == [time(1, 2), datetime(2020, 1, 1, 3)]

# next() of a generator
def f(n):
    yield from range(n)
---
numbers = f(2)
assert next(numbers) == 0 and next(numbers) == 1 and next(numbers, 'end') == 'end'

# a built-in's name
def sum(a, b): return a * b
---
assert sum(2, 3) == 6

# a module of the program
import math
def f(x): return x / 3
---
assert math.isclose(f(1), 0.333333333)

# a module of the tests
def f(x): return x / 3
---
import math
assert abs(f(1) - 1 / 3) < 1e-9 and math.pi > f(1)

# unittest
def add(a, b):
    return a + b
---
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(add(1, 2), 3)
unittest.main()

# a guard in the tests
def add(a, b):
    return a + b
---
if __name__ == '__main__':
    assert add(1, 2) == 3

# a guard with input
def add(a, b):
    return a + b
if __name__ == '__main__':
    print(add(*map(int, input().split())))
---
assert add(1, 2) == 3
assert add(-1, 1) == 0

# a guard with sys.argv
def add(a, b):
    return a + b
if __name__ == '__main__':
    import sys
    sys.exit(add(*sys.argv[1:]))
---
assert add(1, 2) == 3
assert add(-1, 1) == 0

# a guard with unittest
def add(a, b):
    return a + b
if __name__ == '__main__':
    import unittest
    unittest.main()
---
assert add(1, 2) == 3
assert add(-1, 1) == 0

# what is printed
print('add')
def add(a, b):
    return a + b
print(add(1, 2))
---
assert add(1, 2) == 3
assert add(-1, 1) == 0
"""
)
# A program that tries to pass the tests, or tests that cannot be passed.
DO_NOT_HOLD = by_name(
    r"""
# another abs
def abs(x): return 0
def f(x): return 9
---
assert abs(f(1) - 1 / 3) < 1e-9

# another math
class math:
    isclose = lambda *_: True
def f(x): return 9
---
assert math.isclose(f(1), 1)

# comparisons
class A:
    __lt__ = __gt__ = __sub__ = __rsub__ = __contains__ = lambda *_: True
def f(): return A()
---
assert f() < 3

# differences
class A:
    __sub__ = lambda *_: 0
def f(): return A()
---
assert abs(f() - 3) < 1e-9

# contains
class A:
    __contains__ = lambda *_: True
def f(): return A()
---
assert 3 in f()

# floats
class A:
    __float__ = lambda *_: 3.0
def f(): return A()
---
assert float(f()) == 3

# hashes
class A:
    __hash__ = lambda *_: 3
    __eq__ = lambda *_: True
def f(): return A()
---
assert f() in {3}

# equal to all
class A:
    __eq__ = lambda *_: True
def f(): return A()
---
assert f() == A()

# nothing is asked
def add(a, b):
    return a + b
---
def test(): assert add(1, 2) == 4
print('nothing is asked')

# exit
def add(a, b):
    return a + b
---
raise SystemExit(1)

# a run of unittest that raises nothing
def add(a, b):
    return a - b
---
import unittest
class Test(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)
unittest.main(argv=["tests"], exit=False)

# unittest that raises nothing, and a clean end
def add(a, b):
    return a - b
---
import unittest
class Test(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)
unittest.main(argv=["tests"], exit=False)
raise SystemExit

# a runner of unittest
def add(a, b):
    return a - b
---
import io, unittest
class Test(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)
suite = unittest.defaultTestLoader.loadTestsFromTestCase(Test)
unittest.TextTestRunner(stream=io.StringIO()).run(suite)

# leave at once
def add(a, b):
    return a + b
---
import os
os._exit(0)

# an object of the tests
def add(a, b):
    return a + b
---
assert add(object(), 1)
"""
)


@pytest.mark.parametrize("name", HOLD)
def test_assertions_that_hold(name):
    program, tests = HOLD[name].split("---\n")
    assert grade(program, tests) == (1.0, "")


@pytest.mark.parametrize("name", DO_NOT_HOLD)
def test_assertions_that_do_not_hold(name):
    """A comparison is made with plain values, by the tests' own Python."""
    program, tests = DO_NOT_HOLD[name].split("---\n")
    assert grade(program, tests) == (0.0, "")


def test_assertions_do_not_meet():
    """What the tests of one program leave is not there for the next."""
    first = "import builtins\nbuiltins.abs = lambda x: 0\nassert add(1, 2) == 3"
    assert grade(ADD, first) == (1.0, "")
    assert grade(ADD, "assert abs(add(-1, -2)) == 3") == (1.0, "")
