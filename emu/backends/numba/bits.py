"""Float bit patterns and error-free transformations, as scalar functions that vectorise.

The error of a sum or product, and the remainder of a quotient or root, is itself a float64 unless it is smaller than
float64's subnormal numbers or something overflows: callers keep operands away from both ends. Its sign says on which
side the exact result lies.

Sources: Knuth (TwoSum), Dekker and Veltkamp (TwoProduct), Boldo & Melquiond 2008 (rounding to odd).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # pyright: ignore[reportMissingTypeStubs]
from numba import types
from numba.extending import intrinsic

from emu.backends.numba.compiling import kernel

#: Makes an intrinsic of numbers. A kernel calls it without its typing context, which Numba's own types do not say.
numeric = cast("Callable[[Callable[..., Any]], Any]", intrinsic)


@numeric
def bits_of(typing_context: Any, x: Any) -> Any:
    """Return the bit pattern of a float64 as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@numeric
def float_of(typing_context: Any, bits: Any) -> Any:
    """Return the float64 of an int64 bit pattern."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


#: Fields of a float64: the exponent's mask, the exponent field of 1, the fraction's mask.
FIELD, BIAS = 0x7FF, 1023
FRACTION = (1 << 52) - 1
#: 2**27 + 1 splits a significand of 53 bits into two of at most 26 (the second may be negative), whose products are
#: exact. It overflows times a number of 2**997 * (1 - 2**-27) and more, and times none below it.
SPLITTER = 134217729.0


@kernel
def power_of_two(exponent: int) -> float:
    """Return 2.0**exponent for exponents of normal float64 numbers."""
    return float_of((exponent + BIAS) << 52)


@kernel
def move_to_odd(x: float, error: float) -> float:
    """Return `x`, moved toward `error` to the neighbour with an odd last bit if x + error is not x."""
    # Patterns of one sign ascend with the magnitude: one more is the neighbour away from zero. x is not 0, as a sum or
    # product with an error is not.
    bits = bits_of(x)
    if error != 0.0 and (bits & 1) == 0 and np.isfinite(x):
        bits = bits + (1 if (error > 0.0) == (x > 0.0) else -1)
    return float_of(bits)


@kernel
def add_to_odd(a: float, b: float) -> float:
    """Return a + b rounded to odd."""
    s = a + b
    # Knuth's TwoSum: exact whichever of the two is larger, if nothing overflows.
    back = s - a
    return move_to_odd(s, (a - (s - back)) + (b - back))


@kernel
def product_error(a: float, b: float, p: float) -> float:
    """Return a * b - p exactly, for p = fl(a * b)."""
    # LLVM must not contract any of this: `kernel` allows it no such thing.
    t = SPLITTER * a
    ah = t - (t - a)
    al = a - ah
    t = SPLITTER * b
    bh = t - (t - b)
    bl = b - bh
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl


@kernel
def multiply_to_odd(a: float, b: float) -> float:
    """Return a * b rounded to odd."""
    p = a * b
    # A p of 0 is exact: callers keep products far above the smallest float64.
    if not np.isfinite(p) or p == 0.0:
        return p
    return move_to_odd(p, product_error(a, b, p))


@kernel
def fma_to_odd(a: float, b: float, c: float) -> float:
    """Return a * b + c rounded to odd (Boldo & Melquiond 2008, figure 4, its last step rounding to odd as well)."""
    product = a * b
    # product + c needs no rounding to odd here: it is infinite or NaN, or it is c, because a product of 0 is exact (see
    # `multiply_to_odd`).
    if not np.isfinite(product) or product == 0.0 or not np.isfinite(c):
        return product + c
    product_low = product_error(a, b, product)
    # product + product_low is a * b, and high + low is c + product_low; then s + rest is product + high. So the exact
    # result is s + (rest + low), of which rest + low is rounded to odd before it meets s.
    high = c + product_low
    back = high - c
    low = (c - (high - back)) + (product_low - back)
    s = product + high
    back = s - product
    rest = (product - (s - back)) + (high - back)
    return add_to_odd(s, add_to_odd(low, rest))


@kernel
def divide_to_odd(a: float, b: float) -> float:
    """Return a / b rounded to odd."""
    q = a / b
    if not np.isfinite(q) or q == 0.0:  # if b is infinite, q is 0 or NaN
        return q
    # The remainder a - q * b of a quotient to nearest is a float64. p is next to a, so that a - p is exact (Sterbenz).
    p = q * b
    remainder = (a - p) - product_error(q, b, p)
    return move_to_odd(q, remainder if b > 0.0 else -remainder)


@kernel
def remainder_of(a: float, b: float) -> float:
    """Return a - b * n exactly, n the integer nearest to a / b, ties to even; a zero has the sign of `a`.

    Source: IEEE 754-2019 section 5.3.1.
    """
    if a != a or b != b or b == 0.0 or np.isinf(a):
        return np.nan
    if np.isinf(b):
        return a
    divisor = abs(b)
    # `fmod` takes away an even multiple of the divisor. n is even then, and stays so at a tie, half a divisor: hence
    # `>`. After one divisor more n is odd, and moves on from a tie: hence `>=`. The rest is doubled, as half of a
    # subnormal divisor may be inexact. Both differences are exact (Sterbenz).
    # If the divisor's double overflows, the divisor is more than half of |a|, and there is no even multiple to take.
    rest = np.fmod(abs(a), divisor + divisor) if divisor + divisor < np.inf else abs(a)
    if rest + rest > divisor:
        rest = rest - divisor
        if rest + rest >= divisor:
            rest = rest - divisor
    return rest if math.copysign(1.0, a) > 0.0 else -rest


@kernel
def sqrt_to_odd(a: float) -> float:
    """Return the square root of `a` rounded to odd."""
    s = np.sqrt(a)
    if not np.isfinite(s) or s == 0.0:
        return s
    # The error of s has the sign of the remainder a - s * s, a float64 as that of a quotient is.
    p = s * s
    return move_to_odd(s, (a - p) - product_error(s, s, p))
