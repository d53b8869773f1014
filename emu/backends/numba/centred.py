"""Operands moved by powers of two to the middle of float32; their sums are moved back.

    left, right -> left * 2**-p, right * 2**-q      with p and q between their least and largest exponents
    sums        -> sums * 2**(p + q)                exact if neither come near to the ends of float32

An operand's number is an integer times 2**(exponent - point). The exponents of operands that share scales are given
beside them; others have their own, and stay where they are if that is far from the ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.bits import BIAS as FLOAT64_BIAS
from emu.backends.numba.bits import FIELD, bits_of
from emu.backends.numba.compiling import kernel, only_read, over_ranges, thread_count
from emu.backends.numba.gathering import materialised, single
from emu.backends.numba.terms import FP32
from emu.backends.numba.vector.block_operands import EXPONENT_OF_ZERO
from emu.backends.numba.vector.block_tiles import BIAS
from emu.backends.product import Product

Array = NDArray[Any]
#: Sums with exponents from this one up, or down from its opposite, are left to other ways.
END = bounded(96, 1, 126 - FP32.precision, "scales, and last places of what they scale, are normal float32 numbers")
#: What is measured of an operand: a row of int64 for each thread.
LOW, HIGH, TOP, DIGITS = range(4)
#: Numbers below these are not worth a second thread.
GRAIN = 1 << 19
#: Beyond every exponent, and every difference of two.
FAR = 1 << 20


class Range(NamedTuple):
    """What is known of the numbers of an operand that are not 0.

    Attributes:
        low: least exponent among those given beside the numbers.
        high: largest one.
        top: exponent of the leading bit of the largest magnitude.
        digits: bits of the widest integer that a number is before its scaling by 2**(exponent - point).
    """

    low: int
    high: int
    top: int
    digits: int

    @property
    def middle(self) -> int:
        """The exponent that is moved to 0."""
        return (self.low + self.high) // 2


class Place(NamedTuple):
    """Where the operands of a product are moved to.

    Attributes:
        middles: exponents of what both operands are divided by.
        floor: smallest exponent that a block of moved numbers is aligned to.
        addend: moved, or None.
    """

    middles: tuple[int, int]
    floor: int
    addend: Array | None


class Centred(NamedTuple):
    """A product whose operands were moved, with their exponents beside them.

    Attributes:
        numbers: of both operands, float32: (B or 1, M, K) and (B or 1, K, N).
        exponents: given beside them, not moved.
        middles: exponents of what both operands were divided by.
        digits: bits of the widest integers that the numbers are before their scaling.
        floor: smallest exponent that a block of moved numbers is aligned to.
        addend: moved, or None.
    """

    numbers: tuple[Array, Array]
    exponents: tuple[Array, Array]
    middles: tuple[int, int]
    digits: tuple[int, int]
    floor: int
    addend: Array | None

    def tops(self) -> tuple[Array, Array]:
        """Return the exponents of both moved operands, int32; EXPONENT_OF_ZERO of those that are 0."""
        a, b = (_moved_exponents(*each) for each in zip(self.numbers, self.exponents, self.middles, strict=True))
        return a, b

    def moved_back(self, sums: Array) -> Array:
        """Return sums times what the operands were divided by."""
        return moved_back(sums, self.middles)


def moved_back(sums: Array, middles: tuple[int, int]) -> Array:
    """Return sums times what the operands were divided by."""
    return np.ldexp(sums, sum(middles)) if sum(middles) else sums


@kernel
def _measure(x: Any, exponents: Any, measured: Any) -> None:
    """Raise what is measured to that of some numbers; the top of infinities and NaN lies above all others."""
    low, high, top, digits = measured[LOW], measured[HIGH], measured[TOP], measured[DIGITS]
    for i in range(x.size):
        # Of infinities and NaN 1024, which `_as_range` recognises; of zeros -1023, below all others.
        field = ((bits_of(np.float64(x[i])) >> 52) & FIELD) - FLOAT64_BIAS
        exponent = np.int64(exponents[i])
        is_zero = x[i] == 0.0
        low = min(low, FAR if is_zero else exponent)
        high = max(high, -FAR if is_zero else exponent)
        top = max(top, field)
        # The leading bit has this place above the last one, before `point` is added: `_as_range` does so.
        digits = max(digits, -FAR if is_zero else field - exponent)
    measured[LOW], measured[HIGH], measured[TOP], measured[DIGITS] = low, high, top, digits


@kernel
def _measure_own(x: Any, emin: int, measured: Any) -> None:
    """Raise what is measured to that of some numbers, whose exponents are their own, `emin` or more."""
    low, high, top = measured[LOW], measured[HIGH], measured[TOP]
    for i in range(x.size):
        field = ((bits_of(np.float64(x[i])) >> 52) & FIELD) - FLOAT64_BIAS
        exponent = max(field, emin)
        is_zero = x[i] == 0.0
        low = min(low, FAR if is_zero else exponent)
        high = max(high, -FAR if is_zero else exponent)
        top = max(top, field)
    measured[LOW], measured[HIGH], measured[TOP] = low, high, top


def _own_range_of(x: Array, emin: int) -> Range | None:
    """Return the range of an operand of floats; None if a number is infinite or NaN."""
    measured = _unmeasured()
    numbers = only_read(x.ravel(order="K"))
    over_ranges(lambda part, i, j: _measure_own(numbers[i:j], emin, measured[part]), x.size, 1, GRAIN)
    return _as_range(measured, 0)


def _unmeasured() -> Array:
    measured = np.empty((thread_count(), 4), np.int64)
    # Neutral for least and largest: a thread without a range leaves its row as it is.
    measured[:] = FAR, -FAR, -FAR, -FAR
    return measured


def _range_of(x: Array, exponents: Array, point: int) -> Range | None:
    """Return the range of an operand; None if a number is infinite or NaN."""
    measured = _unmeasured()
    numbers, beside = only_read(x.reshape(-1)), only_read(exponents.reshape(-1))
    over_ranges(lambda part, i, j: _measure(numbers[i:j], beside[i:j], measured[part]), x.size, 1, GRAIN)
    return _as_range(measured, point)


def _as_range(measured: Array, point: int) -> Range | None:
    """Return what threads have measured; None if a number is infinite or NaN."""
    top = int(measured[:, TOP].max())
    if top > FLOAT64_BIAS:
        return None
    low, high = int(measured[:, LOW].min()), int(measured[:, HIGH].max())
    if low > high:  # zeros alone
        return Range(0, 0, 0, 0)
    # The last place of a number is 2**(exponent - point); bits from there to the leading one, both included.
    return Range(low, high, top, int(measured[:, DIGITS].max()) + point + 1)


def centred(product: Product, fraction_bits: int, min_exponent: int) -> Centred | None:
    """Return a product moved to where float32 holds it; None if there is no such place, or a number is not finite.

    Args:
        product: of operands whose exponents are given.
        fraction_bits: of the unit's blocks.
        min_exponent: smallest exponent that they are aligned to.
    """
    assert product.alignment is not None
    left, right = (single(x) for x in product.stacks(materialised))
    beside = product.alignment.left[: len(left)], product.alignment.right[: len(right)]
    points = product.alignment.points
    a, b = (_range_of(*each) for each in zip((left, right), beside, points, strict=True))
    if a is None or b is None:
        return None
    blocks = fraction_bits, min_exponent
    place = _place(a, b, points, blocks, left.shape[2], product.addend, (a.middle, b.middle))
    if place is None:
        return None
    numbers = _moved(left, a.middle), _moved(right, b.middle)
    return Centred(numbers, beside, place.middles, (a.digits, b.digits), place.floor, place.addend)


def centred_by_own(
    product: Product, emins: tuple[int, int], fraction_bits: int, min_exponent: int
) -> tuple[tuple[Gathered, Gathered], Place] | None:
    """Return both operands, float32, and where they were moved to; None if there is no such place.

    Args:
        product: of floats, whose exponents are those of their leading bits.
        emins: smallest exponents of the operands' formats.
        fraction_bits: of the unit's blocks.
        min_exponent: smallest exponent that they are aligned to.
    """
    left, right = product.gathered()
    # what is between the elements of matrices counts too: less is read than once for each place that reads it
    a, b = (_own_range_of(x.data, emin) for x, emin in zip((left, right), emins, strict=True))
    if a is None or b is None:
        return None
    # As they are, float32 operands are not copied: so that is tried first.
    for middles in ((0, 0), (a.middle, b.middle)):
        # Their products have no more bits than float32, the accumulator: its last place is the lower one.
        blocks, no_points = (fraction_bits, min_exponent), (0, 0)
        place = _place(a, b, no_points, blocks, left.shape[2], product.addend, middles)
        if place is not None:
            moved = [replace(x, data=_moved(x.data, by)) for x, by in zip((left, right), middles, strict=True)]
            return (moved[0], moved[1]), place
    return None


def _place(
    a: Range,
    b: Range,
    points: tuple[int, int],
    blocks: tuple[int, int],
    depth: int,
    addend: Array | None,
    middles: tuple[int, int],
) -> Place | None:
    """Return where operands are moved to by `middles`; None if float32 does not hold their sums exactly, there or here.

    Args:
        a: range of the left operand.
        b: range of the right one.
        points: of both operands.
        blocks: fraction bits of the unit's blocks, and the smallest exponent that they are aligned to.
        depth: products of a sum.
        addend: what is added, or None.
        middles: exponents of what both operands are divided by.
    """
    fraction_bits, min_exponent = blocks
    shift = sum(middles)
    # The last place of products, and of a block or a float32 accumulator aligned at the smallest exponent of them; and
    # a bound of all sums: products are below 2**(2 + both tops).
    last = a.low + b.low - max(fraction_bits, FP32.precision, sum(points))
    bound = a.top + b.top + 2 + depth.bit_length()
    # In float32 as it is, the unit's own sums are neither subnormal nor infinite.
    if not depth or last <= 2 - BIAS or bound >= BIAS or last - shift <= -END or bound - shift >= END:
        return None
    # A floor below -END is never reached: no moved product has so small an exponent.
    floor = max(-END, min_exponent - shift)
    if max(a.top - middles[0], b.top - middles[1], floor) >= END:
        return None
    if addend is not None:
        addend = np.ldexp(addend.astype(np.float64), -shift)
        magnitude = np.abs(addend)
        # An addend must lie between the ends, too: it is aligned like a product, and counts in the sum.
        is_near = (magnitude == 0) | ((magnitude > 2.0 ** (last - shift)) & (magnitude < 2.0 ** (bound - shift)))
        if not is_near.all():
            return None
    return Place(middles, floor, addend)


@kernel
def _move(x: Any, factor: float, moved: Any) -> None:
    for i in range(x.size):
        moved[i] = x[i] * factor


def _moved(x: Array, by: int) -> Array:
    """Return numbers divided by 2**by, float32."""
    # Nothing is written into the operands, so that the array itself may be returned.
    if not by and x.dtype == np.float32:
        return x
    numbers, out = only_read(x.reshape(-1)), empty(x.shape, np.float32)
    flat, factor = out.reshape(-1), 2.0**-by
    over_ranges(lambda _, i, j: _move(numbers[i:j], factor, flat[i:j]), x.size, 1, GRAIN)
    return out


@kernel
def _move_exponents(x: Any, exponents: Any, by: int, out: Any) -> None:
    for i in range(x.size):
        out[i] = EXPONENT_OF_ZERO if x[i] == 0.0 else exponents[i] - by


def _moved_exponents(x: Array, exponents: Array, by: int) -> Array:
    """Return the exponents of numbers divided by 2**by, int32; EXPONENT_OF_ZERO of those that are 0."""
    numbers, beside, out = x.reshape(-1), only_read(exponents.reshape(-1)), empty(x.shape, np.int32)
    flat = out.reshape(-1)
    over_ranges(lambda _, i, j: _move_exponents(numbers[i:j], beside[i:j], by, flat[i:j]), x.size, 1, GRAIN)
    return out
