"""Expressions that no computer can work out, told from how they are written.

A tower of powers is read in no time, and is never worked out. So its size is estimated first.
"""

import math

LARGEST = 10**6  # binary digits; 2^1000000 has as many
MOST_TERMS = 10**3  # a power of a sum with letters is multiplied out


def is_too_large(expression) -> bool:
    """Whether to work out a sympy expression may take a number of more than LARGEST digits."""
    return digits(expression) > LARGEST


def digits(expression) -> float:
    """About how many binary digits the largest number has in working it out, or more."""
    import sympy

    if isinstance(expression, sympy.MatrixBase):
        return max(map(digits, expression), default=1.0)
    if not expression.args:
        if isinstance(expression, sympy.Rational):
            return math.log2(max(abs(expression.p), expression.q))
        return 1.0  # a letter, pi, infinity
    inside = [digits(argument) for argument in expression.args]
    largest = max(inside)
    if isinstance(expression, sympy.Pow):
        base, exponent = expression.args
        times = value_of(inside[1])
        if base.free_symbols and base.is_Add and times > MOST_TERMS:
            return math.inf
        return inside[0] * times if exponent.is_number else largest
    if isinstance(expression, sympy.exp):
        return 2 * value_of(largest)
    if isinstance(expression, (sympy.factorial, sympy.factorial2, sympy.binomial)):
        return largest * value_of(min(inside))
    if isinstance(expression, (sympy.Sum, sympy.Product)):
        terms = [digits(bound) for limits in expression.limits for bound in limits[1:]]
        return max(largest, value_of(max(terms, default=1.0)))
    return sum(inside) if isinstance(expression, sympy.Mul) else largest + 1


def value_of(log2: float) -> float:
    """The number with this logarithm, or one that is large enough."""
    return 2.0 ** min(log2, 1000.0)
