"""Unevaluated sums of two doubles: a value carried as high + low, with about 106 bits where one double has 53.

Only IEEE additions, subtractions and multiplications, in this order and without contraction: a fused multiply-add would
change the bits. All return float64 arrays of the shape of those they take. Callers keep operands, results, and the
products of halves inside 2**-900..2**900: beyond, underflow in the low part costs accuracy, and a split overflows.

Source: Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18 (1971);
Knuth, "The Art of Computer Programming" 2, section 4.2.2.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[Doubles, Doubles]

#: 2**27 + 1 splits a 53-bit significand into two halves of at most 26 bits.
SPLITTER = 134217729.0


def sum_of_ordered(a: Doubles | float, b: Doubles) -> Pair:
    """Return a + b exactly, as rounded sum and error; |a| >= |b| or a = 0 (Dekker's Fast2Sum, three operations)."""
    high = a + b
    return high, b - (high - a)


def sum_of(a: Doubles | float, b: Doubles) -> Pair:
    """Return a + b exactly, as rounded sum and error (Knuth's TwoSum, whatever the order of magnitudes)."""
    high = a + b
    # the part of b that `high` has taken up
    other = high - a
    return high, (a - (high - other)) + (b - other)


def product_of(a: Doubles, b: Doubles) -> Pair:
    """Return a * b exactly, as rounded product and error: products of halves have at most 52 bits, and are exact."""
    high = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Doubles) -> Pair:
    scaled = SPLITTER * a  # Veltkamp's split: the difference rounds `a` to its upper half
    high = scaled - (scaled - a)
    return high, a - high


def quotient_of(numerator: Pair, denominator: Pair) -> Pair:
    """Return numerator / denominator as high + low, with a relative error below 2**-100.

    |low| may exceed half a last place of high. The low parts given are at most half a last place of theirs.
    """
    high = numerator[0] / denominator[0]
    # what the rounded quotient leaves of the numerator, divided once more, is its error
    product, error = product_of(high, denominator[0])
    remainder = ((numerator[0] - product) - error) + (numerator[1] - high * denominator[1])
    return high, remainder / denominator[0]
