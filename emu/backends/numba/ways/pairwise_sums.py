"""Pairwise sums of many float32 terms, as the host adds them for losses, softmax and moments.

Leaves are fl32(a * b). Neighbours are added, level by level: a chunk of leaves is folded in half again and again, and
the chunks' sums are added as a binary counter carries. Sums missing on the right are +0: they change only the sign of a
zero.

A leaf is the product rounded once, whether the unit rounds products or accumulates exact ones.

Source: docs/concepts/products.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.interface import PAIRWISE, StageCode, Write, encode_format
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, over_ranges, part
from emu.backends.numba.contents import Contents
from emu.backends.numba.single_column import are_neighbours, column_of
from emu.backends.numba.vector.packing import find_runs
from emu.backends.product import Product, ProductCode
from emu.backends.proofs import is_plain
from emu.formats import PRESETS

Array = NDArray[Any]
FP32 = encode_format(PRESETS["fp32"])
#: Leaves that are folded together, a power of two.
CHUNK = 512
#: Sums that may wait for a right neighbour.
LEVELS = bounded(40, 48 - (CHUNK.bit_length() - 1), 64, "one a level, for as many leaves as memory could hold: 2**48")
assert CHUNK & (CHUNK - 1) == 0
#: Results that are added side by side if their leaves are neighbours in memory.
ABREAST = 64
#: Terms below which a second thread is not worth waking.
GRAIN_TERMS = 1 << 17
#: See `Way.speed`.
SPEED = 0.3


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None for pairwise float32 sums without an addend, else "": ways for any order compute the others."""
    mac, formats = product.mac, product.formats
    if mac.order != PAIRWISE or formats[2] is not None or any(fmt.daz for fmt in formats[:2]):
        return ""
    takes = is_plain(mac.accumulator, FP32) and (mac.product is None or is_plain(mac.product, FP32))
    return None if takes else ""


def contents(product: Product, write: Write) -> Contents | None:
    """Return float32 sums of one matrix times one column; None for other shapes."""
    left, right = product.gathered()
    if right.columns.size != 1 or max(left.batches, right.batches) != 1:
        return None
    if left.dtype != np.float32 or right.dtype != np.float32:
        return None
    return Contents(sums(left, right))


def sums(left: Gathered, right: Gathered) -> Array:
    """Return the accumulators' contents, float32 (1, M, 1).

    Args:
        left: one matrix (M, K), carriers in float32.
        right: one matrix (K, 1), likewise.
    """
    column, out, rows = column_of(right), empty((left.rows.size,), np.float32), left.rows
    abreast = are_neighbours(rows)
    add, room_for, align = (_add_abreast, _room_abreast, ABREAST) if abreast else (_add_along, _room_along, 1)

    def work(_: int, first: int, last: int) -> None:
        room = room_for(last - first if abreast else left.columns.size)
        add(*room, left.data, rows, left.columns, column, first, last, out)

    over_ranges(work, rows.size, align, max(1, GRAIN_TERMS // max(left.columns.size, 1)))
    return out.reshape(1, -1, 1)


def _room_along(depth: int) -> tuple[Array, ...]:
    """Return the arrays that `_add_along` works in: Numba compiles one function more for each that a kernel makes."""
    return *np.empty((2, CHUNK), np.float32), np.empty(LEVELS, np.float32), np.empty(depth + 1, np.int64)


@kernel
def _add_along(
    leaves: Any,
    folded: Any,
    waiting: Any,
    starts: Any,
    data: Any,
    rows: Any,
    columns: Any,
    column: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Add up rows `first`..`last`, each in chunks along its runs."""
    depth = columns.size
    runs = find_runs(columns, np.int64(0), depth, starts)
    # A sum of fewer terms than a chunk has is one chunk of the next power of two.
    size = 1
    while size < min(depth, CHUNK):
        size *= 2
    for i in range(first, last):
        filled, chunks = 0, np.int64(0)
        for run in range(runs):
            at = starts[run]
            while at < starts[run + 1]:
                count = min(starts[run + 1] - at, size - filled)
                # A run may end within a chunk, and a chunk within a run: leaves are filled piece by piece.
                begin = rows[i] + columns[at]
                terms, factors = data[begin : begin + count], column[at : at + count]
                room = leaves[filled : filled + count]
                for j in range(count):
                    room[j] = terms[j] * factors[j]
                filled, at = filled + count, at + count
                if filled == size:
                    _carry(_fold(leaves, folded, size), chunks, waiting)
                    filled, chunks = 0, chunks + 1
        if filled > 0:
            # Missing leaves are +0, whether the fold or `_joined` adds them.
            leaves[filled:size] = np.float32(0.0)
            _carry(_fold(leaves, folded, size), chunks, waiting)
            chunks += 1
        out[i] = _joined(waiting, chunks)


@part
def _fold(leaves: Any, folded: Any, size: int) -> Any:
    """Return the sum of a power of two of leaves, neighbours first; both arrays are overwritten."""
    source, target = leaves, folded
    half = size // 2
    while half > 0:
        for i in range(half):
            target[i] = source[2 * i] + source[2 * i + 1]
        source, target, half = target, source, half // 2
    return source[0]


@kernel
def _carry(value: Any, count: int, waiting: Any) -> None:
    """Add a sum to those that wait on its left; `count` sums of the same size came before it."""
    # As adding 1 to `count` carries: over its lowest ones, each a sum that waits.
    level = 0
    while (count >> level) & 1:
        value = waiting[level] + value
        level += 1
    waiting[level] = value


@kernel
def _joined(waiting: Any, count: int) -> Any:
    """Return the sum of all that wait; the missing ones on the right are +0."""
    if count == 0:
        return np.float32(0.0)
    level = 0
    while not (count >> level) & 1:
        level += 1
    value = waiting[level]
    if count & (count - 1):  # unless the tree is whole, +0 is added on the right: -0 becomes +0
        value += np.float32(0.0)
    level += 1
    while count >> level:
        if (count >> level) & 1:
            value = waiting[level] + value
        level += 1
    return value


def _room_abreast(count: int) -> tuple[Array, ...]:
    """Return what `_add_abreast` works in, for `count` rows."""
    return np.zeros((LEVELS, ABREAST), np.float32), np.empty(ABREAST, np.float32), np.empty(count + 1, np.int64)


@kernel
def _add_abreast(
    waiting: Any,
    sums: Any,
    starts: Any,
    data: Any,
    rows: Any,
    columns: Any,
    column: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Add up rows `first`..`last` side by side, one k after the other."""
    depth = columns.size
    for run in range(find_runs(rows, first, last, starts)):
        begin, end = first + starts[run], first + starts[run + 1]
        while begin < end:
            width = min(end - begin, ABREAST)
            for at in range(depth):
                start, factor = rows[begin] + columns[at], column[at]
                terms = data[start : start + width]
                for j in range(width):
                    sums[j] = terms[j] * factor
                level = 0
                # `at` leaves came before: each 1 at the end of that number is a sum that waits, as in `_carry`.
                while (at >> level) & 1:
                    left = waiting[level]
                    for j in range(width):
                        sums[j] = left[j] + sums[j]
                    level += 1
                target = waiting[level]
                for j in range(width):
                    target[j] = sums[j]
            _join_abreast(waiting, depth, sums, width)
            for j in range(width):
                out[begin + j] = sums[j]
            begin += width


@part
def _join_abreast(waiting: Any, count: int, sums: Any, width: int) -> None:
    """Write the sum of all that wait, for each result, as `_joined` does."""
    for j in range(width):
        sums[j] = _joined(waiting[:, j], count)
