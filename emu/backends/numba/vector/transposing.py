"""Squares of 16 by 16 numbers, transposed in registers; rows of 32 written as columns."""

from __future__ import annotations

from typing import Any

from numba import types

from emu.backends.numba.compiling import kernel, part
from emu.backends.numba.vector.calling import array_at
from emu.backends.numba.vector.lanes import (
    F32,
    F64,
    HALF_BITS,
    I1,
    I8,
    I16,
    I32,
    I64,
    IR,
    LANES,
    LOWER_HALF,
    SIGN_BIT,
    Emitter,
    Vector,
    intrinsic,
)

#: A float64 power of two is its exponent plus the bias, above the bits of its fraction.
BIAS, FRACTION_BITS = 1023, 52
#: Numbers of a row that `spread` writes as columns.
ROW = 2 * LANES
_KINDS = {types.float32: F32, types.float64: F64, types.int32: I32, types.uint8: I8}


@intrinsic
def transpose(typing_context: Any, kind: Any, source: Any, stride: Any, target: Any, target_stride: Any) -> Any:
    """Write 16 rows of 16 numbers as columns.

    Args:
        typing_context: Numba's.
        kind: dtype of the numbers: float32, float64, int32 or uint8.
        source: address of the first row.
        stride: elements from one row to the next.
        target: address of the first row that is written.
        target_stride: elements from one of these to the next.
    """
    signature = types.void(kind, *[types.int64] * 4)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _KINDS[kind.dtype]
        source, target = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 3))
        rows = [e.load(element, source, builder.mul(args[2], e.integer(i))) for i in range(LANES)]
        for i, row in enumerate(_transposed(rows)):
            e.store(row, target, builder.mul(args[4], e.integer(i)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def transpose_scaled(
    typing_context: Any, source: Any, stride: Any, count: Any, scale: Any, kind: Any, target: Any, target_stride: Any
) -> Any:
    """Write rows of 16 float32 as columns, times `scale`; return which of the columns are not all 0, a bit for each.

    Args:
        typing_context: Numba's.
        source: address of the first row.
        stride: elements from one row to the next.
        count: rows, 1..16; the last one is repeated.
        scale: a float64, a power of two. Float32 need not hold it, but holds the numbers times it.
        kind: dtype of what is written: float32 or int32.
        target: address of the first row that is written.
        target_stride: elements from one of these to the next.
    """
    signature = types.int64(*[types.int64] * 3, types.float64, kind, *[types.int64] * 2)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _KINDS[kind.dtype]
        source, target = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 5))
        columns, seen = _scaled_columns(e, source, args[1], args[2], args[3])
        for i, column in enumerate(columns):
            e.store(column.as_kind(element), target, builder.mul(args[6], e.integer(i)))
        return builder.zext(builder.bitcast(seen.value, I16), I64)

    return signature, generate


@intrinsic
def transpose_pairs(
    typing_context: Any,
    source: Any,
    other: Any,
    stride: Any,
    count: Any,
    scale: Any,
    target: Any,
    target_stride: Any,
    bound: Any,
) -> Any:
    """Write two squares of 16 rows of float32, times `scale`, as columns of words: integers of 16 bits side by side.

    Returns which of the columns are not all 0, a bit for each.

    Args:
        typing_context: Numba's.
        source: address of the first row of what becomes the lower halves.
        other: the same of the upper halves.
        stride: elements from one row to the next.
        count: rows, 1..16; the last one is repeated.
        scale: a float64, a power of two, which makes integers of all numbers.
        target: address of the first column that is written.
        target_stride: words from one of these to the next.
        bound: address of 16 int32, into which each x is joined by bitwise or, as -x - 1 if x is negative: their highest
            bit bounds all magnitudes.
    """
    signature = types.int64(*[types.int64] * 4, types.float64, *[types.int64] * 3)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        source, other, target, bound = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 1, 5, 7))
        seen, bits = e.splat(I1, 0), e.load(I32, bound, e.integer(0))
        halves: list[list[Vector]] = []
        for square in (source, other):
            columns, here = _scaled_columns(e, square, args[2], args[3], args[4])
            halves.append([column.as_kind(I32) for column in columns])
            seen |= here
            for column in halves[-1]:
                # x, or -x - 1 if x is negative
                bits |= column ^ column.shift_signed(SIGN_BIT)
        for i, (low, high) in enumerate(zip(*halves, strict=True)):
            e.store((low & LOWER_HALF) | (high << HALF_BITS), target, builder.mul(args[6], e.integer(i)))
        e.store(bits, bound, e.integer(0))
        return builder.zext(builder.bitcast(seen.value, I16), I64)

    return signature, generate


def _scaled_columns(e: Emitter, source: Any, stride: Any, count: Any, scale: Any) -> tuple[list[Vector], Vector]:
    """Return the columns of 16 rows of float32, times `scale`, and which of them are not all 0."""
    builder = e.builder
    factors, last = _two_factors(e, scale), builder.sub(count, e.integer(1))
    picks = [e.call("llvm.smin.i64", I64, [e.integer(i), last]) for i in range(LANES)]
    # Beyond the last row, that row is read again: nothing is read outside the matrix.
    rows = [e.load(F32, source, builder.mul(stride, pick)) for pick in picks]
    # A lane for each column. -0 counts as 0, NaN does not.
    seen = rows[0] != 0.0
    for row in rows[1:]:
        seen |= row != 0.0
    # The number and the result are float32, and the first product lies between them: it is exact, too.
    return _transposed([row * factors[0] * factors[1] for row in rows]), seen


def _two_factors(e: Emitter, scale: Any) -> tuple[Vector, Vector]:
    """Return two float32 powers of two whose product is `scale`, half of its exponent each: float32 may not hold it."""
    builder = e.builder
    field = builder.trunc(builder.lshr(builder.bitcast(scale, I64), e.integer(FRACTION_BITS)), I32)
    exponent = builder.sub(field, e.integer(BIAS, I32))
    half = builder.ashr(exponent, e.integer(1, I32))
    first, second = (e.power_of_two(F32, e.splat(I32, x)) for x in (half, builder.sub(exponent, half)))
    return first, second


def _transposed(rows: list[Vector]) -> list[Vector]:
    """Return the columns of a square: blocks beside its diagonal change places, of 1, 2, 4, then 8 rows."""
    # A step exchanges one bit of each number's row and column; four steps exchange all four bits.
    for size in (1, 2, 4, 8):
        columns = range(LANES)
        upper = [LANES + j - size if j & size else j for j in columns]
        lower = [LANES + j if j & size else j + size for j in columns]
        for i in columns:
            if not i & size:
                above, below = rows[i], rows[i + size]
                rows[i], rows[i + size] = above.shuffled(below, upper), above.shuffled(below, lower)
    return rows


@part
def are_apart(offsets: Any, apart: int) -> bool:
    """Return whether each offset lies that far behind the one before it."""
    even = True
    for n in range(offsets.size):
        even &= offsets[n] == offsets[0] + n * apart
    return even


@kernel
def spread(kind: Any, source: int, target: int, apart: int, lanes: int, width: int) -> None:
    """Write 1..16 rows of 32 numbers as columns.

    It takes addresses, not arrays: Numba counts the references to each array that is passed.

    Args:
        kind: dtype of the numbers.
        source: address of the first row, 32 numbers before the next; the first `lanes` numbers of each are written.
        target: address for the first number of the first row; those of the other rows follow it.
        apart: how many numbers apart those of a row are written.
        lanes: 1..32.
        width: how many rows, 1..16.
    """
    numbers = array_at(kind, source, LANES * ROW)
    for first in range(0, ROW, LANES):
        # Only a whole square is written at once: beside it, memory belongs to other results.
        if width == LANES and first + LANES <= lanes:
            transpose(kind, source + numbers.itemsize * first, ROW, target + numbers.itemsize * first * apart, apart)
        else:
            for n in range(first, min(first + LANES, lanes)):
                written = array_at(kind, target + numbers.itemsize * n * apart, width)
                for j in range(width):
                    written[j] = numbers[j * ROW + n]
