"""Decide whether two sympy values are equal. numbers.py has the rule for two numbers."""

import contextlib
import itertools
import random
import re
import signal
import threading
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rlvr.verify.answers.numbers import Number, digits_of, is_near
from rlvr.verify.programs.isolation import OutOfTime

import mpmath
import sympy
from mpmath.libmp import NoConvergence
from sympy.polys.polyerrors import BasePolynomialError

# What sympy raises for values of different kinds, and for those it cannot evaluate.
ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
ERRORS += (BasePolynomialError, NoConvergence)
# Values are compared at points; these are the signs of the letters at each point, repeated.
SIGNS_AT_POINTS = [(1,), (-1, 1), (1, -1), (1,), (1,)]
# Factors for a formula with a bend or a step, which may be far from 0.
FAR_POINTS = [(1,), (-1, 12), (14, 1), (3, -12), (-9, 14), (900, 1), (3000, 7000), (-1100, 900)]
FAR_POINTS += [(sympy.Rational(1, 9), sympy.Rational(-1, 7)), (sympy.Rational(-1, 8), 1)]
FAR_POINTS += [(101,), (101 * 420,)]  # these make integers, see drawn_points
BENT = sympy.Abs, sympy.Max, sympy.Min, sympy.floor, sympy.ceiling, sympy.Pow
BENT += sympy.asin, sympy.acos, sympy.atan, sympy.acot
# the signs of lhs - rhs for which a relation holds; a number that is not real has the sign None
HOLDS = {sympy.Eq: (0,), sympy.Ne: (-1, 1, None), sympy.Lt: (-1,), sympy.Le: (-1, 0)}
HOLDS |= {sympy.Gt: (1,), sympy.Ge: (0, 1)}
RELATIONS = sympy.Rel, sympy.And, sympy.Or
TO_DO = sympy.Derivative, sympy.Integral, sympy.Limit, sympy.Product, sympy.Sum
STARTS = -4.6, -1.3, 0.4, 1.1, 2.7, 7.9  # where the search for a solution begins
OF_COMPLEX = re.compile("[zwZW](_|$)")  # a letter that stands for a complex number
TURNED = (3 + 4 * sympy.I) / 5  # of size 1: the direction in which |z| is tried
NEAR, TINY, NOTHING = (sympy.Rational(1, 10**power) for power in (8, 40, 90))
LARGEST_EXPONENT = 10**6  # of 2, in a number that is evaluated
LIMIT = 0.5  # seconds of this process's time, to decide whether two values are equal


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise OutOfTime after LIMIT, in the main thread of a process."""

    def stop(*_):
        raise OutOfTime

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT, LIMIT / 10)  # again, if sympy catches it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def are_equal(gold, answer) -> bool:
    """Return whether an answer equals a gold, or does with all its letters in another case."""
    try:
        gold, answer = by_name(gold), by_name(answer)
        if same(gold, answer):
            return True
        small = [in_small_letters(value) for value in (gold, answer)]
        is_new = None not in small and not answer.free_symbols <= gold.free_symbols
        return is_new and same(*small)
    except ERRORS:
        return False


def in_small_letters(value) -> Any:
    """Return a value with small letters, or None if two of its letters would become one."""
    # These letters are not real, so that sympy does not take Z = i for false.
    small = {letter: sympy.Symbol(letter.name.lower()) for letter in value.free_symbols}
    return value.xreplace(small) if len({*small.values()}) == len(small) else None


def same(gold, answer) -> bool:
    """Return whether two values are equal, with letters in the same case."""
    if gold == answer:
        return True
    if not (gold.atoms(*RELATIONS) and answer.atoms(*RELATIONS)):
        gold, answer = value_of_name(gold), value_of_name(answer)
    collections = sympy.Set, sympy.Tuple
    try:
        if isinstance(gold, RELATIONS) and isinstance(answer, RELATIONS):
            return same_relations(gold, answer)
        if isinstance(gold, collections) or isinstance(answer, collections):
            return same_collections(gold, answer)
        if gold.is_Matrix:
            rows, other_rows = (sympy.ImmutableMatrix(value) for value in (gold, answer))
            return rows.shape == other_rows.shape and all(map(same, rows.flat(), other_rows.flat()))
        return same_expressions(gold, answer)
    except ERRORS:
        return False


def by_name(value) -> Any:
    """Return x = 2, y = 3 for (x, y) = (2, 3), x = 2, x = 3 for x = 2, 3, and S for x in S."""
    if not isinstance(value, sympy.Eq):
        return value
    name, values = value.args
    if isinstance(values, sympy.FiniteSet) and not isinstance(name, sympy.Tuple):
        name = [name] * len(values.args)
    elif isinstance(values, sympy.Set) and name.is_Symbol:
        if isinstance(values, sympy.Interval) and values.sup.is_finite:
            return values.as_relational(name)  # an open interval alone could be a pair
        return values
    if not isinstance(name, (list, sympy.Tuple)):
        return value
    pairs = zip(name, parts_of(values) or (), strict=False)
    return sympy.FiniteSet(*(sympy.Eq(*pair, evaluate=False) for pair in pairs))


def value_of_name(value) -> Any:
    """Return 5 for x = 5 and for 2 + 3 = 5, but x + z = 1 as it is."""
    for side, other in (value.args, value.args[::-1]) if isinstance(value, sympy.Eq) else ():
        is_new = side.free_symbols.isdisjoint(other.free_symbols)  # not as in x^2 = x
        of_letters = isinstance(side, sympy.Mul) and other.free_symbols  # as in a/b = c/d
        if is_name(side) and is_new and not of_letters or not value.free_symbols:
            return other
    return value


def is_name(side) -> bool:
    """Return whether a side is a name: x, a segment AB, a ratio a/b, or a tuple of names."""
    if isinstance(side, sympy.Mul):
        kinds = "(?:vec)?[A-Z]+|angle|triangle|-1"
        of_points = all(re.fullmatch(kinds, str(atom)) for atom in side.atoms())
        return of_points or all(part.is_Symbol for part in sympy.fraction(side))
    # latex2sympy reads a tuple on a side only if it is one of names
    return isinstance(side, (sympy.Symbol, sympy.Abs, sympy.Limit, sympy.Tuple))


def same_relations(gold, answer) -> bool:
    """Return whether two relations have the same solutions.

    They have if their sides are equal. Otherwise each point that solves one of them must solve the
    other, and each of them must have such a point.
    """
    if isinstance(gold, sympy.Rel) and isinstance(answer, sympy.Rel):
        ways = [way for way in (answer, answer.reversed) if way.func is gold.func]
        if any(all(map(same, gold.args, way.args)) or proportional(gold, way) for way in ways):
            return True
    elif gold.func is answer.func and gold.args and matched(gold.args, answer.args):
        return True
    solved = set()  # the relations of which a solution was found
    for at, owners in points_of(gold, answer):
        solves = holds(gold, at)
        if holds(answer, at) != solves:
            return False
        solved |= owners if solves else set()
    return len(solved) == 2


def proportional(gold, answer) -> bool:
    """Return whether one relation is the other times a number, above 0 for an inequality."""
    one, other = (relation.lhs - relation.rhs for relation in (gold, answer))
    factor = (other / one).xreplace(next(drawn_points(gold, answer)))
    is_factor = factor.is_nonzero and (isinstance(gold, (sympy.Eq, sympy.Ne)) or factor > 0)
    return bool(is_factor) and same(other, factor * one)


def values_at_points(gold, answer) -> list[tuple[Number, Number]]:
    """Return the values of two expressions at the same points, without poles."""
    of_complex = gold.has(sympy.Abs) or answer.has(sympy.Abs)
    pairs = []
    for at in drawn_points(gold, answer):
        if of_complex:
            at |= {letter: at[letter] * TURNED for letter in at if OF_COMPLEX.match(str(letter))}
        with contextlib.suppress(*ERRORS):
            pairs.append((number_of(gold.xreplace(at)), number_of(answer.xreplace(at))))
    return pairs


def drawn_points(*values) -> Iterator[dict]:
    """Yield a number for each letter of some values, at one point after the other."""
    drawn = random.Random(0)
    letters = sorted(set().union(*(value.free_symbols for value in values)), key=str)
    parts = [part for value in values for part in value.atoms(*BENT)]
    bent = any(not part.is_Pow for part in parts)
    roots = [part.base for part in parts if part.is_Pow and part.exp.is_integer is False]
    rooted = any(base.free_symbols for base in roots)
    for signs in FAR_POINTS if bent else FAR_POINTS[:-2] if rooted else SIGNS_AT_POINTS:
        signed = zip(letters, itertools.cycle(signs), strict=False)
        yield {
            letter: sign * sympy.Rational(drawn.randint(20, 300), 101) for letter, sign in signed
        }


def points_of(*relations) -> Iterator[tuple[dict, set]]:
    """Yield points at which sides of relations are equal, and the numbers of these relations.

    Each letter is solved for, with numbers drawn for the others. Points between those of
    inequalities belong to all. What is not real counts in an equation of one letter, and with i or
    a letter such as z.
    """
    parts = [
        (n, part) for n, relation in enumerate(relations) for part in relation.atoms(sympy.Rel)
    ]
    letters = sorted(set().union(*(relation.free_symbols for relation in relations)), key=str)
    ordered = not all(isinstance(part, sympy.Eq) for _, part in parts)
    of_complex = any(OF_COMPLEX.match(str(letter)) for letter in letters)
    of_complex = not ordered and (of_complex or any(part.has(sympy.I) for _, part in parts))
    all_count = not ordered and (of_complex or len(letters) == 1)
    for at, letter in itertools.product(itertools.islice(drawn_points(*relations), 3), letters):
        roots = {}
        for n, part in parts:
            for root in roots_of(part, letter, at, of_complex):
                roots.setdefault(root, set()).add(n)
        real = sorted(root for root in roots if root.is_real)
        if ordered and real:
            between = [(one + other) / 2 for one, other in itertools.pairwise(real)]
            outside = [real[0] - 99, real[0] - 1, real[-1] + 1, real[-1] + 99]
            roots |= dict.fromkeys([*outside, *between], {*range(len(relations))})
        points = ((at | {letter: root}, owners) for root, owners in roots.items())
        yield from (point for point in points if all_count or point[0][letter].is_real)


def roots_of(relation, letter, at: dict, of_complex: bool) -> list:
    """Return numbers for a letter, to 50 digits, that make the sides of a relation equal.

    They are sought numerically if the relation is polynomial in none of its letters.
    """
    difference = without_decimals(relation.lhs - relation.rhs)
    unknown, turned = sympy.Dummy(), TURNED if of_complex and relation.has(sympy.Abs) else 1
    value = difference.xreplace(at | {letter: unknown * turned}).doit()
    roots = []
    with mpmath.workdps(50):
        if difference.is_rational_function(letter):
            top_and_bottom = sympy.fraction(sympy.together(value))  # a pole ends an interval, too
            polynomial = sympy.Poly(sympy.Mul(*top_and_bottom), unknown)
            if polynomial.domain.is_Numerical:
                polynomial = polynomial.sqf_part()
            roots = polynomial.nroots(n=50)
        elif not any(map(difference.is_rational_function, difference.free_symbols)):
            function = sympy.lambdify(unknown, value, "mpmath")
            for start in STARTS:
                with contextlib.suppress(*ERRORS, NameError):  # of a function mpmath lacks
                    roots.append(mpmath.findroot(function, start))
        pairs = [sympy.sympify(root).as_real_imag() for root in roots]
    pairs = [[sympy.Rational(part) if abs(part) > TINY else 0 for part in pair] for pair in pairs]
    return [(real + imaginary * sympy.I) * turned for real, imaginary in pairs]


def holds(relation, at: dict) -> bool:
    """Return whether a relation holds at a point. It does not where a side has no value."""
    if isinstance(relation, (sympy.And, sympy.Or)):
        parts = (holds(part, at) for part in relation.args)
        return all(parts) if isinstance(relation, sympy.And) else any(parts)
    with contextlib.suppress(*ERRORS):
        return sign_of(relation.lhs - relation.rhs, at) in HOLDS[relation.func]
    return False


def sign_of(difference, at: dict) -> int | None:
    """Return -1, 0 or 1, or None for a number that is not real. At a root, it is almost 0."""
    here = number_of(difference.xreplace(at))
    size = max(map(abs, here[:2]))
    if size < 1:
        beside = {letter: at[letter] * (1 + NEAR * n) for n, letter in enumerate(at, 1)}
        change = max(map(abs, number_of(difference.xreplace(beside))[:2]))
        if size <= max(change * NEAR * NEAR, NOTHING):
            return 0
    if abs(here.imaginary) > size * TINY:
        return None
    return 1 if here.real > 0 else -1


def same_collections(gold, answer) -> bool:
    """Return whether two sets, tuples, intervals or lists of relations are equal.

    A single value is a set of one, and an inequality is the set of its solutions.
    """
    wanted, parts = parts_of(gold), parts_of(answer)
    if wanted and parts:
        names = {str(part.lhs).split("_")[0] for part in wanted if isinstance(part, sympy.Eq)}
        named = any(isinstance(part, sympy.Eq) for part in parts)
        ordered = isinstance(gold, sympy.Tuple) or len(names) == len(wanted) and not named
        if ordered or isinstance(gold, sympy.Interval):
            return len(wanted) == len(parts) and all(map(same_item, wanted, parts))
        may_repeat = not isinstance(answer, (sympy.Tuple, sympy.Interval))
        return (may_repeat or len(wanted) == len(parts)) and matched(wanted, parts)
    of_relation, of_set = set(), set()
    for value in (gold, answer):
        letters = of_relation if value.atoms(*RELATIONS) else of_set
        letters |= value.free_symbols
    letters = of_relation - of_set
    letter = letters.pop() if len(letters) == 1 else sympy.Dummy(real=True)
    return same_relations(as_relation(gold, letter), as_relation(answer, letter))


def parts_of(value) -> list | None:
    """Return the parts of a tuple, a finite set or a pair in written order; None for other sets."""
    if isinstance(value, sympy.Interval):
        return [*value.args[:2]] if value.left_open and value.right_open else None
    if isinstance(value, sympy.FiniteSet):
        return [*getattr(value, "_unsorted_args", value.args)]
    if isinstance(value, sympy.Tuple):
        return [*value]
    return None if isinstance(value, (sympy.Set, *RELATIONS)) else [value]


def as_relation(value, letter) -> Any:
    """Return what a set says of a letter; of a list of relations, that all hold, or else one."""
    if isinstance(value, RELATIONS):
        return value
    if not isinstance(value, sympy.FiniteSet) or not value.atoms(*RELATIONS):
        return value.as_relational(letter)
    parts: Any = value.args
    every, some = sympy.And(*parts), sympy.Or(*parts)
    of_one_kind = len({frozenset(part.free_symbols) for part in parts}) == 1
    solvable = any(holds(every, at) for at, _ in points_of(every))
    return some if of_one_kind and not solvable else every


def matched(wanted, parts) -> bool:
    """Return whether two lists hold the same values in any order, and any number of times."""
    return all(any(same_item(one, other) for other in parts) for one in wanted) and all(
        any(same_item(one, other) for one in wanted) for other in parts
    )


def same_item(one, other) -> bool:
    """Return whether two items of a list are equal; there, 2 is not the set of 2."""
    are_sets = [isinstance(item, sympy.FiniteSet) for item in (one, other)]
    return are_sets[0] == are_sets[1] and same(one, other)


def same_expressions(gold, answer) -> bool:
    """Return whether two numbers or formulas are equal; compare decimals term by term."""
    if not gold.free_symbols and not answer.free_symbols:
        return is_near(number_of(gold), number_of(answer))
    if gold.is_Symbol != answer.is_Symbol:
        gold, answer = product_of_word(gold), product_of_word(answer)
    if gold.atoms(sympy.Float) or answer.atoms(sympy.Float):
        wanted, terms = terms_of(gold), terms_of(answer)
        return wanted.keys() == terms.keys() and all(
            same(wanted[key], terms[key]) for key in wanted
        )
    gold, answer = (value.doit() if value.atoms(*TO_DO) else value for value in (gold, answer))
    pairs = values_at_points(gold, answer)
    # Points at which a root or a logarithm is not real count only if there are no others.
    real = [pair for pair in pairs if not any(number.imaginary for number in pair)]
    return bool(pairs) and all(is_near(*pair) for pair in real or pairs)


def product_of_word(value):
    """Return I times R for the word IR, to be compared with a formula; vecAB is one variable."""
    if not value.is_Symbol or len({*value.name}) < len(value.name) or len(value.name) > 4:
        return value
    return sympy.Mul(*(sympy.Symbol(letter, real=True) for letter in value.name))


def terms_of(formula) -> dict:
    """Return the coefficient of each product of letters in a sum."""
    terms = {}
    for term in sympy.Add.make_args(sympy.expand(formula.doit())):
        factor, letters = term.as_independent(*formula.free_symbols, as_Add=False)
        letters = without_decimals(letters)
        terms[letters] = terms.get(letters, 0) + factor
    return terms


@lru_cache(maxsize=10_000)
def number_of(expression) -> Number:
    """Evaluate an expression without letters; raise one of ERRORS if it has no value.

    The cube root of -8 is -2, not the complex root that sympy takes.
    """
    value: Any = sympy.real_root(without_decimals(expression).doit())
    if not isinstance(value, sympy.Rational):
        value = value.evalf(60)
    # A part without a digit is 0: all of them cancelled, as in ln 6 - ln 2 - ln 3.
    parts: Any = value.as_real_imag()
    if any(part.is_Float and abs(part._mpf_[2]) > LARGEST_EXPONENT for part in parts):
        raise OverflowError  # it would be written with all of its digits
    parts = [sympy.Rational(0 if part._prec == 1 else part) for part in parts]
    real, imaginary = (Fraction(part.p, part.q) for part in parts)
    decimals = expression.atoms(sympy.Float)
    fewest = min((digits_of(str(decimal)) for decimal in decimals), default=0)
    return Number(real, imaginary, fewest, isinstance(value, sympy.Rational))


def without_decimals(expression):
    """Return an expression with fractions in place of decimals."""
    decimals = expression.atoms(sympy.Float)
    return expression.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in decimals})
