"""One block of products, and one block written into a format on its way: the parts of every general accumulator.

    a[batch, row, k] ──►(×)──► term ──► writer ──► what the accumulator receives
    b[batch, k, column] ──►

A block is a run of outputs in C order, so that each element draws the random bits of its index
(docs/concepts/random-bits.md). Blocks are float64: exact, or rounded to odd if `decided` proves that the stage writes
both the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.bounds import bounded
from emu.backends.interface import FormatCode, RandomCode, StageCode, encode_format
from emu.backends.numba import flushing
from emu.backends.numba.bits import multiply_to_odd
from emu.backends.numba.blocks import Stage, write_fixed, write_float
from emu.backends.numba.compiling import kernel
from emu.backends.numba.philox import fill_random, signed
from emu.backends.numba.prepared import prepare
from emu.backends.product import Formats
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, largest_exponent, significand_bits
from emu.formats import PRESETS

Array = NDArray[Any]
FP32 = encode_format(PRESETS["fp32"])
DRAWN = modes.DRAWN
#: Blocks and threads start at multiples of this: at most 16 elements share a counter of random bits.
ALIGN = 16
#: Bits of a float64 significand: integers up to 2**53 are exact.
EXACT_BITS = bounded(53, 1, 53, "float64 holds no wider integer")
#: Exponents below which, and above whose opposite, a product is a normal float64, with room for sums and scaling.
PRODUCT_EXPONENT = bounded(2 * SAFE_EXPONENT, 1, 1022 - 53, "a product without error, and 2**24 of them, stay normal")
#: Exponent of the smallest normal float64.
SMALLEST_EXPONENT = bounded(-1022, -1022, -1, "below it a scaled result would be subnormal")


class Span(NamedTuple):
    """Bounds of a term: a multiple of 2**lowest, at most 2**top in magnitude."""

    lowest: int
    top: int

    @classmethod
    def of(cls, fmt: FormatCode) -> Span:
        """Return the bounds of a format's values."""
        return cls(fmt.quantum, largest_exponent(fmt))

    @classmethod
    def of_product(cls, a: FormatCode, b: FormatCode) -> Span:
        """Return the bounds of the exact products of two formats' values."""
        return cls(a.quantum + b.quantum, largest_exponent(a) + largest_exponent(b))


class Writer(NamedTuple):
    """A stage inside a unit, as `write_block` takes it.

    Attributes:
        stage: without its saturating rule, if it has one: `write_block` applies that, to mark where.
        is_native_float32: whether the processor's conversion to float32 is the stage.
        is_saturating: whether a rule saturates.
        becomes_zero: whether an overflow becomes 0.
        largest: the limit.
        clamped_to: the largest magnitude that becomes the limit.
    """

    stage: Stage
    is_native_float32: int
    is_saturating: int
    becomes_zero: int
    largest: float
    clamped_to: float


class Draws(NamedTuple):
    """Where random bits come from: Philox numbers as int64."""

    seed: int
    stream: int
    step: int


def writer_for(stage: StageCode) -> Writer:
    """Return the writer of a stage inside a unit."""
    prepared = prepare(stage)
    # All rules but these replace what is outside by a limit, or by 0.
    is_saturating = stage.overflow not in (k.WRAP, k.IEEE)
    native = stage.format == FP32 and stage.rounding == k.NEAREST_EVEN and stage.overflow == k.IEEE
    if is_saturating and stage.format.is_float:
        # An overflow shows as an infinity, which `write_block` replaces and marks.
        prepared = prepared._replace(above=math.inf, below=-math.inf, infinite=math.inf)
    elif is_saturating:
        # Under this rule `bound_fixed` leaves r as it was rounded, so that `write_block` sees which numbers are
        # outside.
        prepared = prepared._replace(overflow=k.SATURATE)
    becomes_zero = int(stage.overflow == k.SATURATE_ZERO)
    return Writer(prepared, int(native), int(is_saturating), becomes_zero, prepared.high, clamped_to(stage))


def clamped_to(stage: StageCode) -> float:
    """Return the largest magnitude that a saturating float stage writes as its limit: infinity unless that stays."""
    return float(np.finfo(np.float64).max) if k.keeps_infinities(stage) else math.inf


def draws_of(random: RandomCode) -> Draws:
    """Return a source of random bits as kernels take it."""
    return Draws(signed(random.seed), random.stream, random.step)


def decided(stage: StageCode, span: Span) -> bool:
    """Return whether a stage writes sums of its values and terms of a span as exact ones if they are rounded to odd."""
    fmt = stage.format
    if fmt.quantum > 0 and span.lowest - fmt.quantum < SMALLEST_EXPONENT:
        return False  # in units of the last place, the result would be subnormal
    # A content, a format's value, and a term add up below twice the larger bound.
    top = max(span.top, largest_exponent(fmt)) + 1
    if top < 2 * SAFE_EXPONENT and top - min(span.lowest, fmt.quantum) <= EXACT_BITS:
        return True  # float64 holds each sum: nothing is rounded before the stage
    leading = 0
    if not fmt.is_float:
        leading = fmt.width_bits + fmt.quantum  # a larger result saturates: only its sign matters, unless it wraps
        if stage.overflow == k.WRAP:
            leading = max(leading, top)
    return decides_in_float64(stage, leading)


def products_are_central(a: FormatCode, b: FormatCode) -> bool:
    """Return whether products, and their errors where they have more than 53 bits, are normal float64 numbers."""
    span = Span.of_product(a, b)
    # Errors are 53 bits below products: of products with errors, exponents go half as far.
    limit = PRODUCT_EXPONENT if significand_bits(a) + significand_bits(b) <= EXACT_BITS else SAFE_EXPONENT
    return -limit < span.lowest and span.top < limit


def flushed(a: Array, b: Array, addend: Array | None, formats: Formats) -> tuple[Array, Array, Array | None]:
    """Return operands and addend with subnormals of DAZ formats replaced by zeros."""
    third = None if addend is None else flushing.flushed(addend, formats[2])
    return flushing.flushed(a, formats[0]), flushing.flushed(b, formats[1]), third


def in_two_parts(addend: Array | None, fmt: FormatCode | None) -> tuple[Array, Array]:
    """Return two float64 arrays whose sum is the addend: the nearest numbers, and what is left of raws of 64 bits."""
    if addend is None or fmt is None:
        return np.zeros((1, 1, 1)), np.zeros((1, 1, 1))
    if not fmt.carries_raws:
        return np.ascontiguousarray(addend, np.float64), np.zeros((1, 1, 1))
    # 64 bits as 52 and 12: both parts are float64 numbers.
    low_bits = addend & addend.dtype.type(0xFFF)
    step, low = np.float64(2.0**fmt.quantum), low_bits.astype(np.float64)
    upper = (addend - low_bits).astype(np.float64)  # 52 bits
    high = upper + low
    # The error of the sum is exact (Dekker): upper is 0, or a multiple of 2**12 > low.
    return np.ascontiguousarray(high * step), np.ascontiguousarray((low - (high - upper)) * step)


@kernel
def fill(x: Any, value: float, n: int) -> None:
    """Set a block."""
    for i in range(n):
        x[i] = value


@kernel
def copy(x: Any, y: Any, n: int) -> None:
    """Copy block x to block y."""
    for i in range(n):
        y[i] = x[i]


@kernel
def load_operands(a: Any, b: Any, at: int, n: int, k_index: int, left: Any, right: Any) -> None:
    """Load the operands of index `k_index` along k of outputs at..at+n-1 (C order)."""
    rows, columns = a.shape[1], b.shape[2]
    # Row by row: of a row's outputs, the left operand is one number, and the right ones are neighbours.
    i = 0
    while i < n:
        row = (at + i) // columns
        column = (at + i) - row * columns
        batch = row // rows
        count = min(columns - column, n - i)
        value = np.float64(a[batch, row - batch * rows, k_index])
        for j in range(count):
            left[i + j] = value
            right[i + j] = np.float64(b[batch, k_index, column + j])
        i += count


@kernel
def load_addend(addend: Any, rows: int, columns: int, at: int, n: int, x: Any) -> None:
    """Load an addend that broadcasts to the result."""
    for i in range(n):
        row = (at + i) // columns
        column = (at + i) - row * columns
        batch = row // rows
        m = row - batch * rows
        x[i] = addend[batch % addend.shape[0], m % addend.shape[1], column % addend.shape[2]]


@kernel
def multiply_block(left: Any, right: Any, term: Any, n: int, needs_odd: int) -> None:
    """Write exact products, or products rounded to odd."""
    if needs_odd:
        for i in range(n):
            term[i] = multiply_to_odd(left[i], right[i])
    else:
        for i in range(n):
            term[i] = left[i] * right[i]


@kernel
def write_block(
    x: Any, y: Any, v: Any, r: Any, u: Any, n: int, at: int, draw: int, writer: Any, draws: Any, flags: Any, hit: Any
) -> None:
    """Write a block into a format: x to y; mark in `hit` where a saturating rule was applied.

    v, r and u are scratch: numbers in units of the last place, rounded, and random integers.
    """
    if writer.is_native_float32:
        for i in range(n):
            y[i] = np.float64(np.float32(x[i]))
        return
    stage = writer.stage
    if stage.rounding in DRAWN:
        fill_random(u, at, n, stage.n_rbits, draws.seed, draws.stream, draws.step, draw)
    if stage.is_float:
        write_float(x, y, v, r, u, n, stage, flags)
    else:
        write_fixed(x, y, v, r, u, n, stage, flags)
    if not writer.is_saturating:
        return
    for i in range(n):
        if stage.is_float:
            if np.isinf(y[i]) and abs(x[i]) <= writer.clamped_to:
                hit[i] = 1
                y[i] = math.copysign(writer.largest, y[i])
        elif r[i] > stage.high or r[i] < stage.low:
            hit[i] = 1
            if writer.becomes_zero:
                y[i] = 0.0
