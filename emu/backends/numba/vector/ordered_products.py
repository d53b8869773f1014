"""Products added in order along k, tile by tile: panels of the right operand packed once, rows shared by threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import frozen
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.ordered_tiles import (
    COMPARING,
    HALF,
    MARK,
    ROWS,
    add_in_order,
    as_halves,
    factor_dtype,
    factor_of,
    finish_in_order,
    line_dtype,
)

Array = NDArray[Any]
#: How many k of a panel are packed before the next panel's: they fill whole cache lines, whether neighbours of b in
#: memory lie along k or along columns, and few pages are open at a time.
PACKED = 16
#: Packed numbers below this are not worth a second thread.
GRAIN_PACKED = 1 << 19


@kernel
def _pack_neighbours(b: Any, panels: Any, scale: float, order: Any, filler: int, start: int, stop: int) -> None:
    """Pack b, (B, K, N), times `scale`, into (B, panels, order * 32): those numbers `start`..`stop` along batch and k.

    A panel holds 32 columns, one k of `order` after the other, with zeros after the last column. If k is K or more,
    the numbers of its columns are all `filler`.
    """
    depth, columns = order.size, b.shape[2]
    at = start
    while at < stop:
        batch, low = at // depth, at % depth
        high = min(low + PACKED, depth, low + stop - at)
        for p in range(panels.shape[1]):
            first = p * PANEL_COLUMNS
            width = min(PANEL_COLUMNS, columns - first)
            for k in range(low, high):
                source, packed = order[k], panels[batch, p, k * PANEL_COLUMNS : (k + 1) * PANEL_COLUMNS]
                if source < b.shape[1]:
                    row = b[batch, source, first : first + width]
                    for j in range(width):
                        packed[j] = row[j] * scale
                else:
                    for j in range(width):
                        packed[j] = filler
                for j in range(width, PANEL_COLUMNS):
                    packed[j] = 0
        at += high - low


@kernel
def _pack_apart(b: Any, panels: Any, scale: float, order: Any, filler: int, start: int, stop: int) -> None:
    """Pack as `_pack_neighbours` does, from an operand whose columns lie apart in memory."""
    depth, columns = order.size, b.shape[2]
    at = start
    while at < stop:
        batch, low = at // depth, at % depth
        high = min(low + PACKED, depth, low + stop - at)
        matrix = b[batch]
        for p in range(panels.shape[1]):
            first, panel = p * PANEL_COLUMNS, panels[batch, p]
            width = min(PANEL_COLUMNS, columns - first)
            for k in range(low, high):
                # Indices have no sign: one below 0 would count from the end, and loops that ask are no vector code.
                to = np.uint64(k * PANEL_COLUMNS)
                if order[k] >= b.shape[1]:
                    for j in range(width):
                        panel[to + np.uint64(j)] = filler
                elif width == PANEL_COLUMNS:
                    row = matrix[order[k], first : first + PANEL_COLUMNS]
                    for j in range(PANEL_COLUMNS):
                        panel[to + np.uint64(j)] = row[np.uint64(j)] * scale
                else:
                    row = matrix[order[k], first : first + width]
                    for j in range(width):
                        panel[to + np.uint64(j)] = row[np.uint64(j)] * scale
                for j in range(width, PANEL_COLUMNS):
                    panel[to + np.uint64(j)] = 0
        at += high - low


def packed_panels(
    b: Array, dtype: Any, scale: float = 1.0, *, order: NDArray[np.int64] | None = None, filler: int = 0
) -> Array:
    """Return a right operand (B, K, N) as packed panels, (B or 1, panels, depth * 32); one matrix if all are the same.

    The depth is K, or the length of `order`.

    Args:
        b: the operand.
        dtype: of the panels.
        scale: what its numbers are multiplied by.
        order: k of each packed row, K or more for one of fillers; None for all in their order.
        filler: what such a row consists of.
    """
    # A stride of 0: one matrix stands for all, and is packed once.
    if b.shape[0] > 1 and b.strides[0] == 0:
        b = b[:1]
    b, order = only_read(b), frozen(np.arange(b.shape[1], dtype=np.int64)) if order is None else order
    batches, depth, columns = b.shape[0], order.size, b.shape[2]
    panels = empty((batches, -(-columns // PANEL_COLUMNS), depth * PANEL_COLUMNS), dtype)

    # Two loops: LLVM makes vector code of neither if both are in one.
    loop = _pack_neighbours if b.strides[2] == b.itemsize else _pack_apart

    def pack(_: int, start: int, stop: int) -> None:
        loop(b, panels, scale, order, filler, start, stop)

    over_ranges(pack, batches * depth, PACKED, max(1, GRAIN_PACKED // max(columns, 1)))
    return panels


@kernel
def _halve_lines(lines: Any, start: int, stop: int) -> None:
    as_halves(address(lines) + start * PANEL_COLUMNS * lines.itemsize, stop - start)


def as_lines_of(adder: str, lines: Array) -> Array:
    """Return lines of 32 right factors as the tiles take them; those of binary16 fill the first half of each line."""
    if adder in HALF:
        over_ranges(lambda _, i, j: _halve_lines(lines, i, j), lines.size // PANEL_COLUMNS, 1, GRAIN_PACKED)
    return lines


def over_row_blocks(work: Callable[[int, int, int], None], batches: int, rows: int, height: int, grain: int) -> None:
    """Call `work(batch, start, stop)` for ranges of rows of each matrix, shared by threads.

    Args:
        work: computes rows start..stop; start is a multiple of `height`.
        batches: matrices.
        rows: of each.
        height: rows of a tile.
        grain: tiles of rows below this are not worth a second thread.
    """
    # The tiles' rows of all matrices are counted through; a range may begin and end within a matrix.
    blocks = -(-rows // height)

    def share(_: int, start: int, stop: int) -> None:
        # The matrices that the range meets, the first and the last perhaps in part.
        for batch in range(start // max(blocks, 1), -(-stop // max(blocks, 1))):
            top = max(start - batch * blocks, 0) * height
            work(batch, top, min(min(stop - batch * blocks, blocks) * height, rows))

    over_ranges(share, batches * blocks, 1, grain)


def room_for(adder: str, tiles: int, depth: int) -> tuple[Array, Array, Array]:
    """Return what loops of an adder work in: left factors of some tiles' rows, a tile's sums, and its hits."""
    rows = ROWS[adder]
    left = np.zeros((tiles, depth, rows), factor_dtype(adder))
    return left, np.empty(rows * PANEL_COLUMNS, line_dtype(adder)), np.zeros(rows * PANEL_COLUMNS, np.uint32)


@lru_cache(maxsize=16)
def row_loops(adder: str) -> Any:
    """Return the compiled loop of an adder.

    It takes the left matrix as data, where it begins, offsets of its rows (M,) and columns (K,), and a scale; packed
    panels, the first sums (M or 1, N or 1) and a factor for them, limits of a saturating accumulator, how many bits
    words drop at the end, a factor for the sums, and a range of rows. It writes sums (M, N), and where a limit was
    touched. Its first arguments are arrays to work in, from `room_for`: Numba compiles one function more for each
    array that a kernel makes.
    """
    # A closure's constants: the loop is compiled for each adder.
    rows, comparing, mark = ROWS[adder], adder in COMPARING, MARK if adder == "marked" else 0

    @kernel
    def run(
        left: Any,
        sums: Any,
        hit: Any,
        data: Any,
        base: int,
        left_rows: Any,
        left_columns: Any,
        left_scale: float,
        panels: Any,
        first_sums: Any,
        sum_scale: float,
        low: float,
        high: float,
        drop_bits: int,
        lsb: float,
        out: Any,
        touched: Any,
        start: int,
        stop: int,
    ) -> None:
        depth, columns, lane = left_columns.size, out.shape[1], sums.dtype.type
        for first in range(start, stop, rows):
            height = min(rows, stop - first)
            for i in range(height):
                begin = base + left_rows[first + i]
                for k in range(depth):
                    # Packed again for each block of rows, read for each panel; rows beyond the last keep what they had,
                    # and are not written.
                    left[0, k, i] = factor_of(adder, data[begin + left_columns[k]] * left_scale)
            for p in range(panels.shape[0]):
                width = min(PANEL_COLUMNS, columns - p * PANEL_COLUMNS)
                if first_sums.size == 1:
                    first_sum = lane(first_sums[0, 0] * sum_scale)
                    sums[:] = first_sum + lane(mark) if mark else first_sum  # without + 0, a float's -0 stays
                else:
                    for i in range(height):
                        row = (first + i) % first_sums.shape[0]
                        for j in range(width):
                            column = (p * PANEL_COLUMNS + j) % first_sums.shape[1]
                            first_sum = lane(first_sums[row, column] * sum_scale)
                            sums[i * PANEL_COLUMNS + j] = first_sum + lane(mark) if mark else first_sum
                add_in_order(adder, address(left), address(panels[p]), depth, low, high, address(sums), address(hit))
                # Counted in elements; those of `touched` are bytes.
                here = first * columns + p * PANEL_COLUMNS
                finish_in_order(
                    adder,
                    address(sums),
                    address(hit),
                    drop_bits,
                    lsb,
                    out.dtype,
                    address(out) + out.itemsize * here,
                    columns,
                    address(touched) + here,
                    height,
                    width,
                )
                if comparing:
                    hit[:] = 0

    return run
