"""Whether all numbers of an array belong to a format, in one pass of compiled code.

A number is scaled to units of the format's last place, exactly, in float64: it belongs if that is an integer between
two limits. A normal number of a floating-point format has its own last place instead: bits below it must be 0.

The answer is "all of them, certainly" or nothing: `emu.formats` decides about the others, and says which.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.numba.compiling import kernel, only_read, over_ranges, thread_count
from emu.formats import Fixed, Float, Format
from emu.formats.membership import pattern_of

Array = NDArray[Any]
#: Numbers below which a second thread is not worth waking.
GRAIN = 1 << 18
#: Bits of the widest fixed-point word whose limits are float64 numbers.
WIDEST = bounded(53, 1, 53, "float64 holds integers up to 2**53")
#: Largest exponent of a scale. A float32 of at least 2**-149 and below 2**128, scaled, is then a normal float64.
FLOAT32_SCALE = bounded(800, 1, 1022 - 149, "2**-149 * 2**-(1022 - 149) is the smallest normal float64")
#: Of a float64 the scale is at least 1, so that no number becomes subnormal; an infinity is beyond every limit.
FLOAT64_SCALE = bounded(1022, 1, 1023, "2**1023 is the largest power of two of float64")


class Limits(NamedTuple):
    """What decides about the numbers of one dtype.

    Attributes:
        scale: 2**-quantum, the last place of a fixed-point format and of subnormal numbers.
        low: smallest number in units of the last place; fixed point alone.
        high: largest one.
        small: magnitude, as an integer, of the smallest normal number; floating point alone.
        largest: that of the largest number.
        tail: bits of a normal number that must be 0.
    """

    scale: float
    low: float = 0.0
    high: float = 0.0
    small: int = 0
    largest: int = 0
    tail: int = 0


@kernel
def _test_fixed(x: Any, patterns: Any, negative_zero: int, scale: float, low: float, high: float) -> Any:
    """Return whether a number is outside, and whether one is -0."""
    outside = False
    zeros = False
    for i in range(x.size):  # of a slice: with a first index that may be negative, nothing becomes vector code
        # A product with a power of two: exact by the bounds above, or infinite, which is beyond `high`.
        y = np.float64(x[i]) * scale
        outside |= (np.rint(y) != y) | (y < low) | (y > high)  # a NaN differs from itself
        zeros |= patterns[i] == negative_zero
    return outside, zeros


@kernel
def _test_float(
    x: Any,
    patterns: Any,
    negative_zero: int,
    scale: float,
    small: int,
    largest: int,
    tail: int,
) -> Any:
    """Return whether a number is outside or not finite, and whether one is -0."""
    outside = False
    zeros = False
    for i in range(x.size):
        magnitude = patterns[i] & ~negative_zero
        y = np.float64(x[i]) * scale
        # Below the format's smallest normal number, its values are multiples of 2**quantum; from there on, they are the
        # numbers whose lowest bits are 0.
        is_small = magnitude < small
        outside |= (is_small & (np.rint(y) != y)) | (~is_small & ((magnitude & tail) != 0)) | (magnitude > largest)
        zeros |= patterns[i] == negative_zero
    return outside, zeros


@kernel
def _test_finite(patterns: Any, exponent: int) -> bool:
    special = False
    for i in range(patterns.size):
        special |= patterns[i] & exponent == exponent
    return not special


def are_finite(x: Array) -> bool:
    """Return whether all numbers, float32 or float64, are finite."""
    flat, finite = x.ravel(order="K"), [True] * (thread_count() + 1)
    patterns = only_read(flat.view(np.int32 if x.dtype == np.float32 else np.int64))
    # The pattern of infinity is a field of ones: NaN has it, too.
    exponent = int(np.array(np.inf, x.dtype).view(patterns.dtype)[()])

    def work(thread: int, start: int, stop: int) -> None:
        finite[thread] = _test_finite(patterns[start:stop], exponent)

    over_ranges(work, flat.size, 64, GRAIN)
    return all(finite)


def are_members(x: Array, fmt: Format) -> tuple[bool, bool]:
    """Return whether all numbers certainly belong to a format, and whether one of them is -0.

    Args:
        x: float32 or float64.
        fmt: the format.

    Returns:
        False and False if one does not, if one is not finite, or if this code does not decide about the format.
    """
    limits = limits_of(fmt, x.dtype)
    if limits is None or not x.flags.c_contiguous:
        return False, False
    flat = only_read(x.reshape(-1))
    # -0 is told from 0 by its pattern alone, the lowest integer.
    patterns = flat.view(np.int32 if x.dtype == np.float32 else np.int64)
    lowest = int(np.iinfo(patterns.dtype).min)
    test, numbers = (
        (_test_float, (limits.small, limits.largest, limits.tail))
        if isinstance(fmt, Float)
        else (_test_fixed, (limits.low, limits.high))
    )
    tested = [(False, False)] * (thread_count() + 1)

    def work(thread: int, start: int, stop: int) -> None:
        tested[thread] = test(flat[start:stop], patterns[start:stop], lowest, limits.scale, *numbers)

    over_ranges(work, flat.size, 64, GRAIN)
    return not any(outside for outside, _ in tested), any(zeros for _, zeros in tested)


@lru_cache(maxsize=256)
def limits_of(fmt: Format, dtype: np.dtype[Any]) -> Limits | None:
    """Return what decides about numbers of float32 or float64; None if this code does not."""
    if isinstance(fmt, Fixed):
        in_range = abs(fmt.frac_bits) <= FLOAT32_SCALE if dtype == np.float32 else 0 <= fmt.frac_bits <= FLOAT64_SCALE
        if fmt.width_bits > WIDEST or not in_range:
            return None
        return Limits(math.ldexp(1.0, fmt.frac_bits), float(fmt.min_raw), float(fmt.max_raw))
    info = np.finfo(dtype)
    stored, emin = int(info.nmant), int(info.minexp)
    quantum = fmt.emin - fmt.fraction_bits
    most = FLOAT32_SCALE if dtype == np.float32 else FLOAT64_SCALE
    # Left out: formats whose smallest normal number is subnormal in the dtype, as patterns have no leading bit there.
    if not fmt.signed or fmt.hidden_one or fmt.emin < emin or not -most <= quantum <= 0:
        return None
    return Limits(
        math.ldexp(1.0, -quantum),
        small=int(pattern_of(dtype, math.ldexp(1.0, fmt.emin))),
        largest=int(pattern_of(dtype, fmt.max)),
        tail=(1 << max(stored - fmt.fraction_bits, 0)) - 1,
    )
