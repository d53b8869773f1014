"""Exact products of two small matrices of narrow words: all but the numbers is decided once, and room is kept.

    shapes, layouts, dtypes, formats ──► a `_SmallProduct` (kept): sizes, scales, offsets, room for what kernels work in
    numbers ──► raws ──► panels ──► sums, which pass the output stage group by group

Training multiplies small matrices of the same few shapes in every step. To decide and to allocate takes longer than
their multiply-adds. The kernels are those of `integers`; here one thread runs them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered
from emu.backends.interface import FormatCode, Outcome, Write, carrier_of
from emu.backends.numba.compiling import only_read, thread_count
from emu.backends.numba.raw_products import (
    FLOAT32_EXPONENTS,
    NO_ADDEND,
    Sizes,
    bits_of,
    instructions_of,
    lsb_of,
)
from emu.backends.numba.stage import stage_writer
from emu.backends.numba.vector import integer_products as loops
from emu.backends.numba.vector import packing
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.product import Formats

Array = NDArray[Any]
#: Larger operands and results may be worth a second thread, and their room is not worth keeping.
MOST_ELEMENTS = 1 << 17
#: Most products that are kept, after which all are made anew; each keeps room for a few of its arrays.
MOST_PRODUCTS = 64
_FLOAT64 = np.dtype(np.float64)
_SOURCES = (_FLOAT64,)
#: What computes products, by all that decides it. Beside it, the formats: as long as they live, no other object has
#: their identity.
_PRODUCTS: dict[tuple[Any, ...], tuple[Formats, _SmallProduct | None]] = {}


def write_small_product(
    a: Array | Gathered, b: Array | Gathered, addend: Array | None, formats: Formats, write: Write
) -> Outcome | None:
    """Write a small exact product through the output stage; None if the usual way must. Arguments of `write_products`.

    Which products are small follows from shapes and formats, and from how many threads there are.
    """
    if type(a) is not np.ndarray or type(b) is not np.ndarray or write.random.recorded is not None:
        return None
    # formats are compared by identity: their hashes would take as long as a kernel
    key = (a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, id(formats))
    kept = _PRODUCTS.get(key)
    if kept is None:
        kept = formats, _small_product(a, b, formats)
        if len(_PRODUCTS) >= MOST_PRODUCTS:
            _PRODUCTS.clear()
        _PRODUCTS[key] = kept
    product = kept[1]
    return None if product is None else product.write(a, b, addend, write)


def _small_product(a: Array, b: Array, formats: Formats) -> _SmallProduct | None:
    """Return what computes products of such operands; None if the usual way must."""
    (batches, rows, depth), (right_batches, _, columns) = a.shape, b.shape
    sizes = Sizes(rows, depth, columns, bits_of(formats))
    # a column has a loop of its own
    if batches != 1 or right_batches != 1 or columns < 2:
        return None
    elements = a.size, b.size, rows * columns
    if min(elements) == 0 or max(elements) >= MOST_ELEMENTS:
        return None
    if rows >= 2 * sizes.grain and thread_count() > 1:
        return None
    left, right = _side_of(a, formats[0]), _side_of(b, formats[1])
    return None if left is None or right is None else _SmallProduct(sizes, left, right, lsb_of(formats))


class _Side(NamedTuple):
    """An operand whose elements fill one block of memory.

    Attributes:
        is_transposed: whether columns lie one after the other, not rows.
        scale: what makes raws of carriers, of their dtype.
        size: elements.
        rows: offsets.
        columns: offsets.
    """

    is_transposed: bool
    scale: Any
    size: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    def flat(self, x: Array) -> Array:
        """Return the elements of such an operand as they lie in memory."""
        return only_read((x.transpose(0, 2, 1) if self.is_transposed else x).reshape(-1))


def _side_of(x: Array, fmt: FormatCode) -> _Side | None:
    """Return how an operand (1, rows, columns) lies in memory; None if it is not one block of floats."""
    is_transposed = not x.flags.c_contiguous
    # a scale beyond float32 is left to the usual way
    if x.dtype.kind != "f" or -fmt.quantum >= FLOAT32_EXPONENTS:
        return None
    if is_transposed and not x.transpose(0, 2, 1).flags.c_contiguous:
        return None
    # the stride of a batch axis of one matrix may be any, so that `Gathered.of` would copy some
    (_, rows, columns), scale = x.shape, x.dtype.type(math.ldexp(1.0, -fmt.quantum))
    steps = (1, rows) if is_transposed else (columns, 1)
    return _Side(is_transposed, scale, x.size, np.arange(rows) * steps[0], np.arange(columns) * steps[1])


class _Room(NamedTuple):
    """What kernels work in, of one product at a time.

    Attributes:
        left: raws, and zeros behind them, as `packing` reads them.
        right: the same.
        panels: the packed right operand.
        rows: packed rows of a group.
        tiles: sums of a tile, or of all tiles of a group.
        corrections: of each column of the panels.
        out: sums of a group.
    """

    left: Array
    right: Array
    panels: Array
    rows: Array
    tiles: Array
    corrections: Array
    out: Array


class _SmallProduct:
    """A product of two matrices of some sizes, layouts and formats."""

    def __init__(self, sizes: Sizes, left: _Side, right: _Side, lsb: float) -> None:
        self._sizes, self._left, self._right, self._lsb = sizes, left, right, lsb
        self._groups = sizes.group(0), sizes.group(1)  # of whole raws, and of split ones
        # Threads may multiply at once: each takes a room out, or makes one.
        self._rooms: list[_Room] = []

    def _new_room(self) -> _Room:
        sizes, rows = self._sizes, max(self._groups)
        left, right = (np.zeros(side.size + packing.SLACK, sizes.item) for side in (self._left, self._right))
        corrections = np.zeros(sizes.panels * PANEL_COLUMNS, np.int64)
        places = sizes.room_for_panels(), sizes.room_for_rows(rows), sizes.room_for_tiles(rows)
        return _Room(left, right, *places, corrections, np.empty(rows * sizes.columns))

    def write(self, a: Array, b: Array, addend: Array | None, write: Write) -> Outcome | None:
        """Write the product; None if plain loops must write some of it, as infinities."""
        stage, random, register = write
        (rows, depth, columns, bits), left, right = self._sizes, self._left, self._right
        writer = stage_writer("quantize", _SOURCES, carrier_of(stage.format), stage, register, False, 1.0)
        if writer.chunks is None:
            return None
        try:
            room = self._rooms.pop()
        except IndexError:
            room = self._new_room()
        largest_left = packing.raws_range(left.flat(a), left.scale, room.left, 0, left.size)
        largest_right = packing.raws_range(right.flat(b), right.scale, room.right, 0, right.size)
        split, instructions = instructions_of(bits, largest_left, largest_right)
        corrections = room.corrections
        corrections.fill(0)
        operand = (room.right, 0, right.rows, right.columns)
        packing.pack_panels(operand, 0, room.panels, 0, len(room.panels), 0, depth, corrections)
        corrections *= loops.OFFSET  # left bytes are packed OFFSET too large
        third = NO_ADDEND if addend is None else np.ascontiguousarray(addend, np.float64)
        begun = writer.begun((1, rows, columns), random)
        wrote = loops.write_row_groups(
            (room.left, 0, left.rows, left.columns),
            0,
            rows,
            self._groups[split],
            depth,
            room.panels,
            split,
            instructions,
            room.rows,
            room.tiles,
            (corrections, self._lsb, third, columns),
            room.out,
            begun.sink(),
        )
        self._rooms.append(room)
        return writer.outcome(begun) if wrote == rows * columns else None
