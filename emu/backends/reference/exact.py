"""Exact results: (-1)**negative * significand * 2**exponent, element by element.

Significands are int64 if they are proved to fit 62 bits, else Python integers (object arrays); the same code handles
both. A quotient or root with infinitely many digits ends in a sticky bit: the last bit of the significand is 1 if
anything nonzero follows. It stands so far below the target's last place that each rounding mode gives the right result
(see `arithmetic`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats.arrays import as_float64

Array = NDArray[Any]
FINITE, INFINITE, NAN, NEW_NAN = range(4)  # NEW_NAN: no operand was NaN, so the flag `invalid` is due
#: Bits of an int64 significand, one fewer than int64 has beside its sign: a step of rounding still fits.
INT64_BITS = 62


@dataclass
class Exact:
    """Exact results of any shape.

    Attributes:
        negative: bool; the sign, of zeros and infinities too.
        significand: int64 or object, >= 0.
        exponent: int64.
        kind: uint8; FINITE, INFINITE, NAN or NEW_NAN.
    """

    negative: NDArray[np.bool_]
    significand: Array
    exponent: NDArray[np.int64]
    kind: NDArray[np.uint8]

    @classmethod
    def from_float(cls, x: Array) -> Exact:
        """Return floats as they are: significands of 53 bits, of 24 for a float32 array."""
        # bits of the pattern: sign, 11 of the exponent field, 52 of the fraction
        bits = np.ascontiguousarray(as_float64(x)).view(np.int64).reshape(np.shape(x))
        spare = 29 if np.asarray(x).dtype == np.float32 else 0  # 52 - 23 low bits of the fraction are 0 in a float32
        field = (bits >> 52) & 0x7FF
        fraction = bits & ((1 << 52) - 1)
        significand = np.where(field > 0, fraction | (1 << 52), fraction)
        special = field == 0x7FF
        kind = np.where(special, np.where(fraction == 0, np.uint8(INFINITE), np.uint8(NAN)), np.uint8(FINITE))
        # The fraction's last bit has the exponent field - 1023 - 52; subnormals, field 0, have that of field 1.
        return cls(bits < 0, np.where(special, 0, significand) >> spare, np.maximum(field, 1) - (1075 - spare), kind)

    @classmethod
    def from_integers(cls, raw: Array, exponent: int) -> Exact:
        """Return signed integers, int64 or object, times 2**exponent; int64 beyond 62 bits becomes object."""
        raw = np.asarray(raw)
        assert raw.dtype in (np.int64, object), "NumPy promotes int64 and uint64 together to float64"
        limit = (1 << INT64_BITS) - 1
        if raw.dtype == np.int64 and raw.size and (raw.max() > limit or raw.min() < -limit):
            raw = raw.astype(object)
        negative = (raw < 0).astype(bool)
        magnitude = np.where(negative, -raw, raw)
        if magnitude.dtype != object:
            magnitude = magnitude.astype(np.int64)
        return cls(negative, magnitude, np.full(raw.shape, exponent, np.int64), np.zeros(raw.shape, np.uint8))

    @property
    def bit_length(self) -> NDArray[np.int64]:
        """The bit length of each significand; 0 has none."""
        return bit_length(self.significand)

    @property
    def leading(self) -> NDArray[np.int64]:
        """floor(log2|x|) of each nonzero finite element."""
        return self.exponent + self.bit_length - 1

    def as_object(self) -> Exact:
        """Return the same results with Python integers."""
        return Exact(self.negative, self.significand.astype(object), self.exponent, self.kind)

    def signed(self) -> Array:
        """Return signed significands."""
        return np.where(self.negative, -self.significand, self.significand)


def bit_length(significand: Array) -> NDArray[np.int64]:
    """Return int.bit_length of each element of a nonnegative int64 or object array."""
    if significand.dtype == object:
        by_element: Any = np.frompyfunc(int.bit_length, 1, 1)
        return by_element(significand).astype(np.int64)
    # 31 bits each: float64 would round 62 bits, and the exponent of a rounded number may be one higher
    # Both halves convert to float64 without rounding; frexp of n = m * 2**e, 0.5 <= m < 1, gives the bit length e.
    high = significand >> 31
    length_high = np.frexp(high.astype(np.float64))[1]
    length_low = np.frexp((significand & 0x7FFFFFFF).astype(np.float64))[1]
    return np.where(high > 0, length_high + 31, length_low).astype(np.int64)


def to_common_exponent(parts: list[Exact]) -> tuple[list[Array], int]:
    """Return signed integers with one common exponent, which zeros do not lower; object arrays beyond 62 bits."""
    nonzero = [p.exponent[p.significand != 0] for p in parts]
    lowest = min((int(e.min()) for e in nonzero if e.size), default=0)
    highest = max((int(p.leading[p.significand != 0].max()) for p in parts if (p.significand != 0).any()), default=0)
    # An aligned term is below 2**(highest - lowest + 1), a sum of n of them below 2**(highest - lowest + 1 + n).
    narrow = highest - lowest + 2 + len(parts) <= INT64_BITS and all(p.significand.dtype != object for p in parts)
    aligned: list[Array] = []
    for part in parts:
        wide = part if narrow else part.as_object()
        shift = np.where(part.significand != 0, part.exponent - lowest, 0)
        if not narrow:
            shift = shift.astype(object)
        aligned.append(wide.signed() << shift)
    return aligned, lowest


def sum_to_odd(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a + b in float64; an inexact sum is the neighbour with an odd last bit.

    Rounding that once more to at most 51 bits equals rounding the exact sum, in each mode. Operands are finite, and the
    sum does not overflow.

    Source: Boldo & Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
    IEEE Transactions on Computers 57(4), 2008.
    """
    s = a + b
    back = s - a
    error = (a - (s - back)) + (b - back)  # Knuth's TwoSum: s + error == a + b exactly
    # Patterns of one sign ascend with the magnitude, so the pattern of a neighbour is 1 more or less. An inexact sum
    # is not 0.
    bits = s.view(np.int64)
    # a last bit of 1 is sticky already; else the neighbour on the side of the error is odd
    move = (error != 0) & ((bits & 1) == 0)
    toward_zero = (error > 0) != (s > 0)
    return np.where(move, bits + np.where(toward_zero, -1, 1), bits).view(np.float64)
