"""Decide whether two numbers are equal, by one rule for all verifiers.

- A gold with a decimal counts to its own significant digits, and to three at least: 3.14 equals pi,
  and 0.5 does not equal 0.501.
- Two exact numbers must be equal. Irrational numbers are compared to 40 digits.
- A decimal answer to an exact gold must be right to one part in a million: 0.333333 equals 1/3. If
  the gold has a finite decimal expansion, such as 5 or 1/8, the answer must be right to one part
  in 10^12, so that 0.30000000000000004 equals 3/10.
"""

from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

LEAST_DIGITS = 3  # to which a gold with a decimal counts
EXACT, ROUNDED, NOISE = Fraction(1, 10**40), Fraction(1, 10**6), Fraction(1, 10**12)


class Number(NamedTuple):
    """A real or complex number, and how it was written."""

    real: Fraction
    imaginary: Fraction = Fraction(0)
    digits: int = 0  # significant digits of its shortest decimal; 0 without a decimal
    is_rational: bool = True  # an irrational number is known to 60 digits


def is_near(gold: Number, answer: Number) -> bool:
    """Return whether an answer equals a gold by the rule above."""
    size = max(abs(gold.real), abs(gold.imaginary))
    if gold.digits and size:
        exponent = (Decimal(size.numerator) / size.denominator).adjusted()
        limit = Fraction(10) ** (exponent + 1 - max(LEAST_DIGITS, gold.digits)) / 2
    elif answer.digits:
        bottom = gold.real.denominator
        ends = gold.is_rational and pow(10, bottom.bit_length(), bottom) == 0
        limit = size * (NOISE if ends else ROUNDED)
    else:
        limit = 0 if gold.is_rational and answer.is_rational else size * EXACT
    parts = zip(gold[:2], answer[:2], strict=True)
    return all(abs(right - given) <= limit for right, given in parts)


def digits_of(decimal: str) -> int:
    """Count the significant digits of a decimal, without trailing zeros."""
    return len(Decimal(decimal).normalize().as_tuple().digits)
