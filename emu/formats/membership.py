"""Which floats belong to a format, read from their bit patterns: a few integer operations on pieces that stay in cache.

    | sign | exponent field | fraction kept | fraction bits that must be 0 |

A magnitude from the format's smallest normal number to its largest one belongs if those bits are 0. A smaller one
belongs if it is a multiple of the smallest step. To test this, a number is added whose last place is this step: the sum
is rounded to a multiple of the step, and subtracting the number gives the magnitude back if it was one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.formats.arrays import as_float64

Array = NDArray[Any]
Mask = NDArray[np.bool_]
#: Elements of a piece: patterns, magnitudes and masks, at most 4096 * 8 bytes each, stay in the caches near the core.
PIECE = 4096
#: Fraction bits f for which 2**f and 2**-f are normal numbers, of float32 and of float64.
FLOAT32_POINTS, FLOAT64_POINTS = 126, 1022
FLOAT32_FRACTION_BITS = 23
#: Exponent of the largest float32.
FLOAT32_EMAX = 127


class FloatMembers(NamedTuple):
    """The parameters that decide whether a number belongs to a floating-point format.

    Attributes:
        fraction_bits: stored fraction bits.
        emin: exponent of the smallest normal.
        largest: largest finite value.
        infinities: whether infinities belong.
        nans: whether NaNs do.
    """

    fraction_bits: int
    emin: int
    largest: float
    infinities: bool
    nans: bool


def float_members(x: Array, fmt: FloatMembers) -> Mask:
    """Return, per element, whether it is a value of a floating-point format.

    Args:
        x: float32 or float64, any shape.
        fmt: the format.
    """
    # float32 lacks the grid of small numbers, or the smallest normal number
    if fmt.fraction_bits > FLOAT32_FRACTION_BITS or fmt.emin > FLOAT32_EMAX:
        x = as_float64(x)
    return _by_pieces(x, _FloatTest(x.dtype, fmt).test)


def fixed_members(x: Array, frac_bits: int, low: int, end: int, *, is_open: bool = False) -> Mask | None:
    """Return, per element, whether it is an integer in `low`..`end` - 1 times 2**-frac_bits.

    None if `frac_bits` is beyond `FLOAT64_POINTS`: the caller must test in another way.

    Args:
        x: float32 or float64, any shape.
        frac_bits: bits behind the binary point.
        low: smallest integer, 0 or minus a power of two.
        end: the largest one plus 1, a power of two.
        is_open: whether `low` itself is left out.
    """
    if abs(frac_bits) > FLOAT32_POINTS:
        x = as_float64(x)
    if abs(frac_bits) > FLOAT64_POINTS:
        return None
    # Limits are 0 or powers of two, so that each dtype holds them; a largest raw of more digits would be rounded.
    scale, least, beyond = (x.dtype.type(n) for n in (math.ldexp(1.0, frac_bits), low, end))
    raws, whole, mask = (np.empty(PIECE, dtype) for dtype in (x.dtype, x.dtype, bool))

    compare_low = np.greater if is_open else np.greater_equal

    def test(piece: Array, inside: Mask) -> None:
        raw, floor, other = (room[: piece.size] for room in (raws, whole, mask))
        np.multiply(piece, scale, out=raw)
        np.floor(raw, out=floor)
        # false of NaN; true of infinities, which the limits leave out
        np.equal(raw, floor, out=inside)
        for compare, limit in ((compare_low, least), (np.less, beyond)):
            inside &= compare(raw, limit, out=other)
        # A product with 2**frac_bits is exact, infinite (and too large), or, below the normal numbers, rounded: then it
        # lies between two integers, or it has become 0.
        if frac_bits < 0:
            inside &= np.equal(raw != 0, piece != 0, out=other)

    return _by_pieces(x, test)


def _by_pieces(x: Array, test: Callable[[Array, Mask], None]) -> Mask:
    # contiguous, so that pieces are views and their patterns can be read
    flat, inside = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, bool)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, PIECE):
            test(flat[start : start + PIECE], inside[start : start + PIECE])
    return inside.reshape(x.shape)


class _FloatTest:
    """A floating-point format as patterns of one dtype, and room for a piece."""

    def __init__(self, dtype: np.dtype[Any], fmt: FloatMembers) -> None:
        narrow = dtype == np.float32
        # fraction bits and exponent of the smallest normal number of the dtype
        stored, lowest, self.unsigned = (23, -126, np.dtype(np.uint32)) if narrow else (52, -1022, np.dtype(np.uint64))
        pattern = self.unsigned.type
        self.fmt, self.dtype, self.quantum = fmt, dtype, fmt.emin - fmt.fraction_bits
        self.magnitude_bits = pattern((1 << (8 * dtype.itemsize - 1)) - 1)
        # the fraction bits that a value of the format leaves 0
        self.zero_bits = pattern((1 << max(stored - fmt.fraction_bits, 0)) - 1)
        # Patterns of magnitudes sort as their numbers do: infinity above all finite ones, NaN above infinity.
        self.infinity = pattern_of(dtype, math.inf)
        self.largest = pattern_of(dtype, fmt.largest)
        self.small = pattern_of(dtype, math.ldexp(1.0, max(fmt.emin, lowest)))
        # `large`: the number whose last place is the format's smallest step. None if the dtype has no such number, or
        # if the format has normal numbers that are subnormal in the dtype: their steps differ.
        top = stored + self.quantum
        self.large = dtype.type(math.ldexp(1.0, top)) if fmt.emin >= lowest and top < -lowest else None
        self.magnitude, self.rest = (np.empty(PIECE, self.unsigned) for _ in range(2))
        self.mask = np.empty(PIECE, bool)

    def test(self, piece: Array, inside: Mask) -> None:
        n = piece.size
        patterns, magnitude, rest, mask = piece.view(self.unsigned), self.magnitude[:n], self.rest[:n], self.mask[:n]
        np.bitwise_and(patterns, self.magnitude_bits, out=magnitude)
        np.less_equal(magnitude, self.largest, out=inside)
        if self.zero_bits:
            # right for normal numbers of the format; smaller numbers are tested again below
            inside &= np.equal(np.bitwise_and(patterns, self.zero_bits, out=rest), 0, out=mask)
        np.subtract(magnitude, 1, out=rest)  # 0 becomes the largest of all: so one comparison leaves it out
        smaller = np.less(rest, self.small - 1, out=mask)
        # numbers that small are rare, and take a pass of their own
        if smaller.any():
            self._test_small(magnitude, smaller, inside)
        # infinities are above `largest`, so they count as outside until here
        if self.fmt.infinities and not inside.all():
            inside |= magnitude == self.infinity
        if self.fmt.nans and not inside.all():
            inside |= magnitude > self.infinity

    def _test_small(self, magnitude: Array, smaller: Mask, inside: Mask) -> None:
        """Test numbers below the smallest normal one of the format or of the dtype."""
        values = magnitude.view(self.dtype)
        if self.large is not None:
            # These values are below 2**emin <= `large`, so the sum's last place is that of `large`, the format's step.
            on_grid = (values + self.large) - self.large == values
            inside[:] = np.where(smaller, on_grid & (magnitude <= self.largest), inside)
        else:
            inside[smaller] = _on_grid(values[smaller].astype(np.float64), self.fmt)


def _on_grid(magnitude: NDArray[np.float64], fmt: FloatMembers) -> Mask:
    """Return which finite magnitudes are multiples of the last place at their exponent, and not too large."""
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, fmt.emin).astype(np.int64)
    shift = fmt.fraction_bits - exponent
    # in two steps: one would overflow where the exponent range is that of float64
    significand = np.ldexp(np.ldexp(magnitude, shift // 2), shift - shift // 2)
    vanished = (significand == 0) & (magnitude != 0)
    return (significand == np.floor(significand)) & (magnitude <= fmt.largest) & ~vanished


def pattern_of(dtype: np.dtype[Any], value: float) -> Any:
    """Return the pattern of the largest number of a dtype that is not above `value`."""
    # rounded to nearest, it may lie above `value`, or be infinite
    with np.errstate(over="ignore"):
        near = dtype.type(value)
    if float(near) > value:
        near = np.nextafter(near, dtype.type(0))
    return np.array(near).view(f"u{dtype.itemsize}")[()]
