"""Fixed point of 32 bits as gemmlowp has it: products, shifts, exp and reciprocals, in integers alone.

    x * y ──► high half, rounded, ties up            rounded_high_half
    x     ──► x / 2**n, rounded, ties away from zero  rounded_shift

A number with i integer bits is an integer in units of 2**(i - 31). Everything is exact in int64.

Source: gemmlowp, `fixedpoint/fixedpoint.h`; TensorFlow Lite, `GetReciprocal` and the reference kernel of softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.engine.requantise import INT32, in_31_bits, rounded_shift, twice_rounded

Integers = NDArray[np.int64]
#: exp(-1/8) and 1/3 in units of 2**-31.
_EXP_OF_EIGHTH, _THIRD = 1895147668, 715827883
#: 48/17 and -32/17 in units of 2**-29: the line from which Newton's steps to a reciprocal start.
_LINE_AT_0, _LINE_SLOPE = 1515870810, -1010580540
#: exp(-2**k) in units of 2**-31, for k = -2..4.
_EXPONENTIALS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
#: Integer bits of the operand of exp, and of the sum of exponentials.
OPERAND_BITS = 5
_ONE = (1 << 31) - 1


def rounded_high_half(x: Any, y: Any) -> Integers:
    """Return x * y / 2**31 of integers of 32 bits, rounded, ties up."""
    return twice_rounded(np.asarray(x, np.int64), np.asarray(y, np.int64), 0)


def shifted_left(x: Any, bits: int) -> Integers:
    """Return x * 2**bits, saturated to 32 bits."""
    return np.clip(np.asarray(x, np.int64) << bits, INT32.min, INT32.max)


def exponential(x: Any) -> Integers:
    """Return exp of numbers of at most 0 with 5 integer bits, in units of 2**-31.

    The bits above a quarter choose factors from a table; below it is a polynomial of degree 4 around -1/8.
    """
    x = np.asarray(x, np.int64)
    # 1/4 in units of 2**(5 - 31)
    quarter = 1 << (31 - OPERAND_BITS - 2)
    # x modulo 1/4, less 1/4: in -1/4..0
    rest = (x & (quarter - 1)) - quarter
    result = _near_eighth(shifted_left(rest, OPERAND_BITS))
    # rest - x is a multiple of 1/4; each set bit is a factor exp(-2**(place - 2))
    for place, factor in enumerate(_EXPONENTIALS):
        result = np.where((rest - x) & (quarter << place), rounded_high_half(result, factor), result)
    # exp(0) = 1 has no number in units of 2**-31: the largest stands for it
    return np.where(x == 0, _ONE, result)


def _near_eighth(x: Integers) -> Integers:
    """Return exp of -1/4..0, in units of 2**-31."""
    # a = x + 1/8, in -1/8..1/8: exp(x) = exp(-1/8) * exp(a)
    a = x + (1 << 28)
    square = rounded_high_half(a, a)
    cube, fourth = rounded_high_half(square, a), rounded_high_half(square, square)
    # a**4/12 + a**3/3 + a**2; half of it, with a, is Taylor's polynomial less 1
    more = rounded_high_half(rounded_shift(fourth, 2) + cube, _THIRD) + square
    return _EXP_OF_EIGHTH + rounded_high_half(_EXP_OF_EIGHTH, a + rounded_shift(more, 1))


def exponentials(step: float) -> Integers:
    """Return exp(-k * step) for k = 0..255, in units of 2**-31; 0 where the kernel leaves it out.

    Args:
        step: scale of the elements times beta, binary64, above 0.

    The multiplier is min(step * 2**26, 2**31 - 1), in 31 bits; a distance whose product would leave 5 integer bits is
    left out. Rounded to 2**30 or more, of a step of 16, its shift is 31, and every distance but 0 is left out. A
    multiplier below 1 has no shift to the left, and is refused by the caller.
    """
    # a step of the elements in units of 2**-26, those of an operand with 5 integer bits
    multiplier = min(step * (1 << (31 - OPERAND_BITS)), float(_ONE))
    distance = np.arange(256)
    # 31 bits have steps of 1/2 below 2**30: from 2**30 - 1/4 on it is rounded up
    if multiplier >= (1 << 30) - 0.25:
        return np.where(distance == 0, np.int64(_ONE), 0)
    m, shift = (int(part) for part in in_31_bits(multiplier))
    # 31 in units of 2**-26, before the shift: a larger distance would leave 5 integer bits
    farthest = ((1 << OPERAND_BITS) - 1) * (1 << (31 - OPERAND_BITS)) // (1 << shift)
    # bounded before the shift, so that no product wraps; what lies beyond is cleared below
    near = np.minimum(distance, farthest)
    powers = exponential(rounded_high_half(-near << shift, m))
    return np.where(distance <= farthest, powers, 0)


def reciprocal_of_sum(x: Any, fraction_bits: int) -> tuple[Integers, Integers]:
    """Return 1 / x as r and n: r / 2**31 / 2**n, r in 2**30..2**31.

    Args:
        x: at least 1, in units of 2**-fraction_bits, below 2**32.
        fraction_bits: of x.
    """
    x = np.asarray(x, np.int64)
    bits = np.frexp(x.astype(np.float64))[1].astype(np.int64)  # exact: x has at most 32 bits
    # x = (1 + f) * 2**(bits - 1 - fraction_bits), f in 0..1 in units of 2**-31
    return _reciprocal_of_one_plus((x << (32 - bits)) - (np.int64(1) << 31)), bits - 1 - fraction_bits


def _reciprocal_of_one_plus(x: Integers) -> Integers:
    """Return 1 / (1 + x) of 0..1 in units of 2**-31, by three of Newton's steps."""
    # (1 + x) / 2 in units of 2**-31, in 1/2..1: its reciprocal lies in 1..2
    half = (x + _ONE + 1) >> 1
    y = _LINE_AT_0 + rounded_high_half(half, _LINE_SLOPE)
    # y += y * (1 - half * y): factors in units of 2**-29, the product in units of 2**-27, shifted back by 2 bits
    for _ in range(3):
        y = y + shifted_left(rounded_high_half(y, (1 << 29) - rounded_high_half(half, y)), 2)
    # y = 2 / (1 + x) in units of 2**-29: half of it in units of 2**-31 is y shifted by 1
    return shifted_left(y, 1)
