"""Operands of products in blocks, packed with their exponents: rows of the left one, lines of the right one.

    rows      of the left matrix, in the order in which a unit takes its products; whole tiles of them
    lines     of the right matrix: 32 columns at one k, panel by panel; a block is n lines, one after the other

Numbers are moved as their bit patterns, and their exponents are taken from these. A block whose lines are all 0 changes
no sum, and is marked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.bits import BIAS as FLOAT64_BIAS
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import I8, I32, I64, IR, LANES, Emitter, address, intrinsic
from emu.backends.numba.vector.transposing import are_apart

Array = NDArray[Any]
#: Exponent of a zero, which does not count in an alignment.
EXPONENT_OF_ZERO = bounded(-30000, -(1 << 24), -4 * FLOAT64_BIAS, "beside any exponent still below every floor")
#: Offset of a k that is no k of the matrix: its numbers are 0. No offset of an element is negative.
PADDING = -1
#: Fields of a float32: the exponent's mask and place, the exponent field of 1, and all bits but the sign.
FIELD, FIELD_AT, BIAS, MAGNITUDE = 0xFF, 23, 127, 0x7FFFFFFF
#: Lines of a panel that are packed before the next panel's: where neighbours lie along k, they fill whole cache lines.
PACKED = 16
#: Packed numbers below this are not worth a second thread.
GRAIN_PACKED = 1 << 19


@kernel
def _exponent(pattern: int, emin: int) -> int:
    """Return the exponent of a finite float32 whose format has none below `emin`."""
    exponent = max(((pattern >> FIELD_AT) & FIELD) - BIAS, emin)
    return EXPONENT_OF_ZERO if pattern & MAGNITUDE == 0 else exponent


@intrinsic
def _write_exponents(typing_context: Any, numbers: Any, exponents: Any, emin: Any) -> Any:
    """Write the exponents of a line, as `_exponent` returns them; return whether one of its numbers is not 0.

    Vector code: Numba computes with integers of 64 bits, four at a time.

    Args:
        typing_context: Numba's.
        numbers: address of 32 patterns, int32.
        exponents: address of 32 int32.
        emin: smallest exponent of the format.
    """
    signature = types.boolean(*[types.int64] * 3)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        numbers, exponents = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 1))
        least, seen = e.splat(I32, builder.trunc(args[2], I32)), e.splat(I32, 0)
        for half in range(0, PANEL_COLUMNS, LANES):
            magnitude = e.load(I32, numbers, e.integer(half)) & MAGNITUDE
            exponent = ((magnitude >> FIELD_AT) - BIAS).at_least(least)
            is_zero = magnitude == 0
            e.store(is_zero.choose(e.splat(I32, EXPONENT_OF_ZERO), exponent), exponents, e.integer(half))
            seen |= magnitude
        return (seen != 0).any()

    return signature, generate


@intrinsic
def _take_line(typing_context: Any, source: Any, offsets: Any, target: Any) -> Any:
    """Write the 32 numbers at some offsets side by side.

    Args:
        typing_context: Numba's.
        source: address from which offsets count, of int32.
        offsets: address of 32 int64.
        target: address of 32 int32.
    """
    signature = types.void(*[types.int64] * 3)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        offsets, target = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2))
        for half in range(0, PANEL_COLUMNS, LANES):
            e.store(e.gather(I32, args[0], e.load(I64, offsets, e.integer(half))), target, e.integer(half))
        return context.get_dummy_value()

    return signature, generate


@kernel
def pack_rows(
    patterns: Any, rows: Any, places: Any, base: int, emin: int, numbers: Any, exponents: Any, start: int, stop: int
) -> None:
    """Pack rows `start`..`stop` of a left matrix; rows beyond the last are 0.

    Args:
        patterns: of float32, int32, all that the matrix is part of.
        rows: offsets.
        places: offset of each k in the order of the unit, or PADDING.
        base: where the matrix begins.
        emin: smallest exponent of the format.
        numbers: int32, (whole tiles of rows, K).
        exponents: int32, of the same shape.
        start: first row.
        stop: one past the last.
    """
    for i in range(start, stop):
        row, tops = numbers[i], exponents[i]
        if i >= rows.size:
            row[:], tops[:] = 0, EXPONENT_OF_ZERO
            continue
        begin, whole = base + rows[i], places.size - places.size % PANEL_COLUMNS
        for k in range(places.size):
            row[k] = patterns[np.uint64(begin + places[k])] if places[k] != PADDING else np.int32(0)
        for k in range(0, whole, PANEL_COLUMNS):
            _write_exponents(address(row) + 4 * k, address(tops) + 4 * k, emin)
        for k in range(whole, places.size):
            tops[k] = np.int32(_exponent(row[k], emin))


@kernel
def pack_lines(
    patterns: Any,
    places: Any,
    columns: Any,
    base: int,
    emin: int,
    n: int,
    skips: bool,
    numbers: Any,
    exponents: Any,
    marks: Any,
    start: int,
    stop: int,
) -> None:
    """Pack the lines of blocks `start`..`stop` of a right matrix; columns beyond the last are 0.

    Args:
        patterns: of float32, int32, all that the matrix is part of.
        places: offset of each k in the order of the unit, or PADDING.
        columns: offsets.
        base: where the matrix begins.
        emin: smallest exponent of the format.
        n: lines of a block.
        skips: whether blocks of zeros are marked as such; else none is.
        numbers: int32, (panels, K * 32).
        exponents: int32, of the same shape.
        marks: uint8, (panels, blocks): 0 of blocks whose numbers are all 0.
        start: first block.
        stop: one past the last.
    """
    together = max(PACKED // n, 1)
    for low in range(start, stop, together):
        for p in range(numbers.shape[0]):
            first, lines, tops = p * PANEL_COLUMNS, numbers[p], exponents[p]
            width = min(PANEL_COLUMNS, columns.size - first)
            these = columns[first : first + width]
            is_whole = width == PANEL_COLUMNS
            is_next = is_whole and are_apart(these, 1)
            for block in range(low, min(low + together, stop)):
                seen = False
                for k in range(block * n, block * n + n):
                    # Indices have no sign: one below 0 would count from the end, and loops that ask are no vector code.
                    to, target = np.uint64(k * PANEL_COLUMNS), address(lines) + 4 * k * PANEL_COLUMNS
                    if places[k] == PADDING:
                        for j in range(PANEL_COLUMNS):
                            lines[to + np.uint64(j)] = 0
                    elif is_next:
                        source = np.uint64(base + places[k] + these[0])
                        for j in range(PANEL_COLUMNS):
                            lines[to + np.uint64(j)] = patterns[source + np.uint64(j)]
                    elif is_whole:
                        _take_line(address(patterns) + 4 * (base + places[k]), address(these), target)
                    else:
                        begin = base + places[k]
                        for j in range(width):
                            lines[to + np.uint64(j)] = patterns[np.uint64(begin + these[np.uint64(j)])]
                        for j in range(width, PANEL_COLUMNS):
                            lines[to + np.uint64(j)] = 0
                    seen |= _write_exponents(target, address(tops) + 4 * k * PANEL_COLUMNS, emin)
                marks[p, block] = seen or not skips


class Lines(NamedTuple):
    """Room for the lines of a right matrix.

    Attributes:
        numbers: patterns of float32, int32, (panels, K * 32).
        exponents: int32, of the same shape.
        marks: uint8, (panels, blocks): 0 of blocks whose numbers are all 0.
    """

    numbers: Array
    exponents: Array
    marks: Array

    @classmethod
    def room(cls, depth: int, columns: int, n: int) -> Lines:
        """Return room for K lines of some columns, in blocks of n lines."""
        panels = -(-columns // PANEL_COLUMNS)
        shape = (panels, depth * PANEL_COLUMNS)
        return cls(empty(shape, np.int32), empty(shape, np.int32), np.empty((panels, depth // n), np.uint8))


def in_order(offsets: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offset of each k in an order; PADDING for a k beyond the last."""
    if order.size == offsets.size and (order[1:] > order[:-1]).all():
        return offsets
    inside = order < offsets.size
    return np.where(inside, offsets[np.where(inside, order, 0)], PADDING)


def patterns_of(x: Gathered) -> Array:
    """Return the bit patterns of float32 data."""
    return only_read(x.data).view(np.int32)


def packed_rows(left: Gathered, order: NDArray[np.int64], emin: int, height: int) -> tuple[Array, Array]:
    """Return the rows of left matrices, patterns of float32, and their exponents: (matrices, whole tiles of rows, K).

    Args:
        left: float32, finite.
        order: k of each product, K or more for padding.
        emin: smallest exponent of the format.
        height: rows of a tile.
    """
    count = left.batches if left.step else 1
    rows = -(-left.rows.size // height) * height
    shape = (count, rows, order.size)
    numbers, exponents = empty(shape, np.int32), empty(shape, np.int32)
    patterns, places = patterns_of(left), in_order(left.columns, order)
    for batch in range(count):
        base, room = batch * left.step, (numbers[batch], exponents[batch])

        def pack(_: int, start: int, stop: int, base: int = base, room: tuple[Array, Array] = room) -> None:
            pack_rows(patterns, left.rows, places, base, emin, *room, start, stop)

        over_ranges(pack, rows, 1, max(1, GRAIN_PACKED // max(order.size, 1)))
    return numbers, exponents
