"""Exact results: (-1)**negative * significand * 2**exponent, element by element.

Significands are int64 where they provably fit 62 bits, Python integers (object arrays) otherwise; the
same code handles both. An operation with infinitely many digits (division, square root) ends in a sticky
bit: the last bit of the significand is 1 if anything nonzero follows. It follows so many digits that every
rounding mode gives the right result (see `arithmetic`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats.arrays import as_float64

Array = NDArray[Any]
FINITE, INFINITE, NAN, NEW_NAN = range(4)  # NEW_NAN: no operand was NaN, so the flag `invalid` is due
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
        bits = np.ascontiguousarray(as_float64(x)).view(np.int64).reshape(np.shape(x))
        spare = 29 if np.asarray(x).dtype == np.float32 else 0  # low bits every float32 leaves 0
        field = (bits >> 52) & 0x7FF
        fraction = bits & ((1 << 52) - 1)
        significand = np.where(field > 0, fraction | (1 << 52), fraction)
        special = field == 0x7FF
        kind = np.where(special, np.where(fraction == 0, np.uint8(INFINITE), np.uint8(NAN)), np.uint8(FINITE))
        return cls(bits < 0, np.where(special, 0, significand) >> spare, np.maximum(field, 1) - (1075 - spare), kind)

    @classmethod
    def from_integers(cls, raw: Array, exponent: int) -> Exact:
        """Return signed integers times 2**exponent. int64 or object; the widest become object."""
        raw = np.asarray(raw)
        assert raw.dtype in (np.int64, object), "two integer dtypes meet in float64"
        if raw.dtype == np.int64 and raw.size and (raw.max() >> INT64_BITS or raw.min() < -(1 << INT64_BITS)):
            raw = raw.astype(object)
        negative = (raw < 0).astype(bool)
        magnitude = np.where(negative, -raw, raw)
        if magnitude.dtype != object:
            magnitude = magnitude.astype(np.int64)
        return cls(negative, magnitude, np.full(raw.shape, exponent, np.int64), np.zeros(raw.shape, np.uint8))

    @property
    def bit_length(self) -> NDArray[np.int64]:
        """Bits of each significand, 0 for 0."""
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
    """Return int.bit_length of every element of a nonnegative int64 or object array."""
    if significand.dtype == object:
        by_element: Any = np.frompyfunc(int.bit_length, 1, 1)
        return by_element(significand).astype(np.int64)
    high = significand >> 31  # both halves convert to float64 without rounding
    length_high = np.frexp(high.astype(np.float64))[1]
    length_low = np.frexp((significand & 0x7FFFFFFF).astype(np.float64))[1]
    return np.where(high > 0, length_high + 31, length_low).astype(np.int64)


def to_common_exponent(parts: list[Exact]) -> tuple[list[Array], int]:
    """Return signed integers on one common exponent; zeros do not lower it.

    Always exact; object arrays where 62 bits do not suffice.
    """
    nonzero = [p.exponent[p.significand != 0] for p in parts]
    lowest = min((int(e.min()) for e in nonzero if e.size), default=0)
    highest = max((int(p.leading[p.significand != 0].max()) for p in parts if (p.significand != 0).any()), default=0)
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
    """Return a + b in float64, an inexact sum going to the neighbour with an odd last bit.

    Rounding that once more to at most 51 bits equals rounding the exact sum, in every mode
    (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd", 2008). Finite operands, no overflow.
    """
    s = a + b
    bb = s - a
    error = (a - (s - bb)) + (b - bb)  # Knuth's TwoSum: s + error == a + b exactly
    bits = s.view(np.int64)
    move = (error != 0) & ((bits & 1) == 0)
    toward_zero = (error > 0) != (s > 0)
    return np.where(move, bits + np.where(toward_zero, -1, 1), bits).view(np.float64)
