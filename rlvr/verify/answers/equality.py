"""Decide whether two sympy values are equal. numbers.py has the rule for two numbers."""

import contextlib
import itertools
import random
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rlvr.verify.answers.numbers import Number, digits_of, is_near

import sympy
from sympy.core.function import AppliedUndef

# What sympy raises for values of different kinds, and for those it cannot evaluate.
ERRORS = (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError)
ERRORS += (sympy.PolynomialError,)
# Formulas are compared at points; these are the signs of the letters at each point, repeated.
SIGNS_AT_POINTS = [(1,), (1,), (1,), (-1, 1), (1, -1)]
RELATIONS = sympy.Rel, sympy.And


def are_equal(gold, answer) -> bool:
    """Return whether an answer equals a gold, or does with all its letters in another case."""
    if same(gold, answer):
        return True
    in_lower_case = []
    for value in (gold, answer):
        letters = {old: sympy.Symbol(old.name.lower(), real=True) for old in value.free_symbols}
        if len({*letters.values()}) < len(letters):  # two of them become one
            return False
        in_lower_case.append(value.xreplace(letters))
    return gold.free_symbols != answer.free_symbols and same(*in_lower_case)


def same(gold, answer) -> bool:
    """Return whether two values are equal, with letters in the same case."""
    if gold == answer:
        return True
    if isinstance(gold, sympy.Eq) != isinstance(answer, sympy.Eq):
        gold, answer = value_of_name(gold), value_of_name(answer)
        if gold == answer:
            return True
    collections = sympy.Set, sympy.Tuple
    try:
        if isinstance(gold, RELATIONS) and isinstance(answer, RELATIONS):
            return same_relations(gold, answer)
        if isinstance(gold, collections) or isinstance(answer, collections):
            return same_collections(gold, answer)
        if gold.is_Matrix:
            right, given = (sympy.ImmutableMatrix(value) for value in (gold, answer))
            return right.shape == given.shape and all(map(same, right.flat(), given.flat()))
        return same_expressions(gold, answer)
    except ERRORS:
        return False


def value_of_name(value) -> Any:
    """Return 5 for x = 5 and for 2 + 3 = 5, but x + z = 1 as it is."""
    for side, other in (value.args, value.args[::-1]) if isinstance(value, sympy.Eq) else ():
        if is_name(side) or not value.free_symbols:
            return other
    return value


def is_name(side) -> bool:
    """Return whether a side is a name: x, f(x), a segment AB, AB/CD, or a tuple of names."""
    if isinstance(side, sympy.Mul):
        return all(re.fullmatch("[A-Z]+|angle|triangle|-1", str(atom)) for atom in side.atoms())
    # latex2sympy reads a tuple on a side only if it is one of names
    return isinstance(side, (sympy.Symbol, AppliedUndef, sympy.Abs, sympy.Limit, sympy.Tuple))


def same_relations(gold, answer) -> bool:
    """Return whether two relations are multiples of each other, or have the same solutions."""
    if issubclass(gold.func, sympy.Rel) and issubclass(answer.func, sympy.Rel):
        answer = answer if answer.func is gold.func else answer.reversed
        factor = sympy.cancel((gold.lhs - gold.rhs) / (answer.lhs - answer.rhs))
        may_be = factor.is_positive or factor.is_negative and isinstance(gold, (sympy.Eq, sympy.Ne))
        if gold.func is answer.func and factor.is_number and may_be:
            return True
    elif gold.func is answer.func and matched(gold.args, answer.args):
        return True
    if gold.free_symbols != answer.free_symbols:
        return False
    right, given = solutions_of(gold), solutions_of(answer)
    return right != sympy.S.EmptySet and same(right, given)


def solutions_of(relation) -> sympy.Set:
    """Solve an equation for one of its letters, or an inequality in one letter."""
    if isinstance(relation, sympy.Eq):
        return sympy.FiniteSet(*sympy.solve(relation, min(relation.free_symbols, key=str)))
    return relation.as_set()


def same_collections(gold, answer) -> bool:
    """Return whether two sets, tuples or intervals are equal.

    A single value is a set of one, and an inequality is the set of its solutions.
    """
    if isinstance(gold, sympy.Interval) and isinstance(answer, sympy.Interval):
        return gold.args[2:] == answer.args[2:] and all(map(same, gold.args[:2], answer.args[:2]))
    right, given = parts_of(gold), parts_of(answer)
    if right and given:
        ordered = sympy.Tuple, sympy.Interval
        names = {str(part.lhs).split("_")[0] for part in right if isinstance(part, sympy.Eq)}
        of_names = isinstance(answer, ordered) and len(names) == len(right)  # x = 2, y = 3
        if not of_names and not isinstance(gold, ordered):
            may_repeat = not isinstance(answer, ordered)
            return (may_repeat or len(right) == len(given)) and matched(right, given)
        return len(right) == len(given) and all(map(same, right, given))
    if gold.is_Symbol or answer.is_Symbol:  # which sympy would take for a condition
        return False
    gold, answer = as_set(gold), as_set(answer)
    if gold.symmetric_difference(answer) == sympy.S.EmptySet:
        return True
    return gold.func is answer.func and matched(gold.args, answer.args)


def parts_of(value) -> list | None:
    """Return the parts of a tuple, a finite set or a pair in written order; None for other sets."""
    if isinstance(value, sympy.Interval):
        return [*value.args[:2]] if value.left_open and value.right_open else None
    if isinstance(value, sympy.FiniteSet):
        return [*getattr(value, "_unsorted_args", value.args)]
    if isinstance(value, sympy.Tuple):
        return [*value]
    return None if isinstance(value, (sympy.Set, *RELATIONS)) else [value]


def as_set(value) -> sympy.Set:
    """Return a set; of inequalities, the numbers that solve all of them, or else one."""
    if isinstance(value, sympy.FiniteSet) and all(isinstance(part, RELATIONS) for part in value):
        return sympy.And(*value).as_set() or sympy.Or(*value).as_set()  # pyright: ignore
    return value.doit() if isinstance(value, sympy.Set) else value.as_set()


def matched(right, given) -> bool:
    """Return whether two lists hold the same values in any order, and any number of times."""
    return all(any(same(one, other) for other in given) for one in right) and all(
        any(same(one, other) for one in right) for other in given
    )


def same_expressions(gold, answer) -> bool:
    """Return whether two numbers or formulas are equal; compare decimals term by term."""
    if not gold.free_symbols and not answer.free_symbols:
        return is_near(number_of(gold), number_of(answer))
    if gold.is_Symbol != answer.is_Symbol:
        gold, answer = product_of_word(gold), product_of_word(answer)
    if gold.atoms(sympy.Float) or answer.atoms(sympy.Float):
        right, given = terms_of(gold), terms_of(answer)
        return right.keys() == given.keys() and all(same(right[key], given[key]) for key in right)
    gold, answer = gold.doit(), answer.doit()
    letters = gold.free_symbols | answer.free_symbols
    letters |= gold.atoms(AppliedUndef) | answer.atoms(AppliedUndef)
    drawn = random.Random(0)
    pairs = []  # of values at the same points, without poles
    for signs in SIGNS_AT_POINTS:
        signed = zip(sorted(letters, key=str), itertools.cycle(signs), strict=False)
        at = {each: sign * sympy.Rational(drawn.randint(20, 300), 101) for each, sign in signed}
        with contextlib.suppress(*ERRORS):
            pairs.append((number_of(gold.xreplace(at)), number_of(answer.xreplace(at))))
    # Points at which a root or a logarithm is not real count only if there are no others.
    real = [pair for pair in pairs if not any(number.imaginary for number in pair)]
    return bool(pairs) and all(is_near(*pair) for pair in real or pairs)


def product_of_word(value):
    """Return I times R for the word IR, to be compared with a formula."""
    if not value.is_Symbol or len({*value.name}) < len(value.name):
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
    value = sympy.real_root(without_decimals(expression).doit())
    if not isinstance(value, sympy.Rational):
        value = value.evalf(60)
    real, imaginary = (Fraction(str(part)) for part in value.as_real_imag())
    decimals = expression.atoms(sympy.Float)
    fewest = min((digits_of(str(decimal)) for decimal in decimals), default=0)
    return Number(real, imaginary, fewest, isinstance(value, sympy.Rational))


def without_decimals(expression):
    """Return an expression with fractions in place of decimals."""
    decimals = expression.atoms(sympy.Float)
    return expression.xreplace({each: sympy.Rational(str(each)) for each in decimals})
