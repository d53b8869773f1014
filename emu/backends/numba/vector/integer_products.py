"""Exact products of integer matrices, whatever way their elements lie in memory, as float64 rows.

pack          rows of the left operand and panels of the right one (`packing`)
multiply      each block of 8 rows with each panel: a tile of 8 x 32 sums, in the cache
finish        the tile's sums as float64 in their unit, plus the addend, where the output stage reads them
pour          a group of them into the output stage, while they are in the cache
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends.bounds import bounded
from emu.backends.numba.compiling import kernel
from emu.backends.numba.vector.dot_tiles import (
    NEIGHBOURS,
    PANEL_COLUMNS,
    TILE_ROWS,
    WORD_BYTES,
    add_dot_tile,
    add_dot_tile_at,
    clear_tile,
    finish_tile,
    pair_up,
)
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.packing import SLACK, pack_panels, pack_rows
from emu.backends.numba.vector.writing import pour

PAIR = NEIGHBOURS[16]
INT32_MAX = 2**31 - 1
#: Added to 8-bit left operands.
OFFSET = bounded(128, 128, 128, "the instruction takes them unsigned")
#: Places along k whose packed rows stay in the first-level cache.
CHUNK_DEPTH = 1024
#: Sums of a tile, and their bytes.
TILE_SUMS = TILE_ROWS * PANEL_COLUMNS
TILE_BYTES = 8 * TILE_SUMS


@kernel
def add_products(
    left: Any,
    batch: int,
    first_row: int,
    last_row: int,
    start: int,
    stop: int,
    panels: Any,
    split: int,
    steps: int,
    packed: Any,
    tiles: Any,
    finished: int,
    ending: Any,
    out: Any,
) -> None:
    """Add products of rows and packed panels along `start`..`stop`; finish them, or leave them in their tiles.

    Args:
        left: data, from one batch element to the next, rows, columns of the left operand.
        batch: which element.
        first_row: first row.
        last_row: behind the last.
        start: first place along k, at a word's beginning.
        stop: behind the last.
        panels: (panels, whole words along k * 32) packed right operand.
        split: whether rows are taken as low and high bytes.
        steps: instructions after which 32-bit sums are added up.
        packed: room for the packed rows.
        tiles: int64, [block][panel][8][32]; one tile is enough if sums are finished and k is one chunk.
        finished: whether to write `out`.
        ending: see `finish_rows`.
        out: float64 rows.
    """
    count, depth = panels.shape[0], panels.shape[1] // PANEL_COLUMNS
    item = panels.itemsize
    blocks = (last_row - first_row + TILE_ROWS - 1) // TILE_ROWS
    plane = packed.size // 2
    stride = 0 if finished and stop - start <= CHUNK_DEPTH else TILE_BYTES
    for chunk in range(start, max(stop, start + 1), CHUNK_DEPTH):
        end = min(chunk + CHUNK_DEPTH, stop)
        row_bytes = pack_rows(left, batch, first_row, last_row, chunk, end, split, packed, plane)
        all_steps = row_bytes // WORD_BYTES
        parts = max((all_steps + steps - 1) // steps, 1)
        steps_now = (all_steps + parts - 1) // parts
        for p in range(count):
            panel = address(panels) + item * PANEL_COLUMNS * (p * depth + chunk)
            for block in range(blocks):
                tile = address(tiles) + stride * (block * count + p)
                if chunk == start:
                    clear_tile(tile)
                row = address(packed) + block * TILE_ROWS * row_bytes
                for step in range(0, all_steps, max(steps_now, 1)):
                    now = min(steps_now, all_steps - step)
                    here, there = row + WORD_BYTES * step, panel + WORD_BYTES * PANEL_COLUMNS * step
                    add_dot_tile(panels.dtype, here, row_bytes, there, now, 0, tile)
                    if split:
                        add_dot_tile(panels.dtype, here + item * plane, row_bytes, there, now, 8, tile)
                if finished and end == stop:
                    _finish_block(tile, p, batch, first_row + block * TILE_ROWS, first_row, last_row, ending, out)


@kernel
def _finish_block(
    tile: int, panel: int, batch: int, row: int, first_row: int, last_row: int, ending: Any, out: Any
) -> None:
    """Write a tile's sums that belong to rows and columns."""
    corrections, unit, addend, columns = ending
    column = panel * PANEL_COLUMNS
    finish_tile(
        tile,
        address(corrections) + 8 * column,
        unit,
        _place_in_addend(addend, batch, row, column),
        addend.shape[2] if addend.shape[1] > 1 else 0,
        addend.shape[2] > 1,
        address(out) + 8 * ((row - first_row) * columns + column),
        columns,
        min(TILE_ROWS, last_row - row),
        min(PANEL_COLUMNS, columns - column),
    )


@kernel
def _place_in_addend(addend: Any, batch: int, row: int, column: int) -> int:
    """Return the address of what is added to a result; dimensions of 1 serve all."""
    line = batch % addend.shape[0] * addend.shape[1] + row % addend.shape[1]
    return address(addend) + 8 * (line * addend.shape[2] + column % addend.shape[2])


@kernel
def finish_rows(tiles: Any, batch: int, first_row: int, last_row: int, ending: Any, out: Any) -> None:
    """Write sums as float64 rows.

    Args:
        tiles: int64, [block][panel][8][32].
        batch: which batch element.
        first_row: first row.
        last_row: behind the last.
        ending: what is taken off each column's sums (int64, whole panels), value of 1 in the sums, the addend
            (float64, 1 or B, 1 or M, 1 or N), number of columns.
        out: float64 rows.
    """
    count = (ending[3] + PANEL_COLUMNS - 1) // PANEL_COLUMNS
    for block in range((last_row - first_row + TILE_ROWS - 1) // TILE_ROWS):
        for p in range(count):
            tile = address(tiles) + TILE_BYTES * (block * count + p)
            _finish_block(tile, p, batch, first_row + block * TILE_ROWS, first_row, last_row, ending, out)


@kernel
def write_batches(
    left: Any,
    right: Any,
    split: int,
    steps: int,
    unit: float,
    addend: Any,
    packed: Any,
    panels: Any,
    rows_packed: int,
    out: Any,
    group: int,
    start: int,
    stop: int,
    sink: Any,
) -> int:
    """Write the products of batch elements `start`..`stop`, a group at a time; return the first result not written.

    That is the end, or where the sink left off: the group's sums are in `out` then.

    Args:
        left: data, from one batch element to the next, rows, columns of the left operand.
        right: the same of the right operand.
        split: whether left elements are taken as low and high bytes.
        steps: instructions after which 32-bit sums are added up.
        unit: value of 1 in the sums.
        addend: float64, (1 or B, 1 or M, 1 or N).
        packed: room for the packed rows.
        panels: room for the packed right operand.
        rows_packed: rows that are packed together.
        out: float64, room for the sums of a group.
        group: batch elements of one.
        start: first batch element.
        stop: behind the last.
        sink: where sums go.
    """
    m, n, depth = left[2].size, right[3].size, right[2].size
    count = panels.shape[0]
    blocks = (min(rows_packed, m) + TILE_ROWS - 1) // TILE_ROWS
    tiles = np.empty((1 if depth <= CHUNK_DEPTH else blocks * count) * TILE_SUMS, np.int64)
    corrections = np.zeros(count * PANEL_COLUMNS, np.int64)
    ending = (corrections, unit, addend, n)
    for b in range(start, stop):
        corrections[:] = 0
        pack_panels(right, b, panels, 0, count, 0, depth, corrections)
        for j in range(corrections.size):
            corrections[j] *= OFFSET
        first = start + (b - start) // group * group
        for row in range(0, m, rows_packed):
            last, rows = min(row + rows_packed, m), out[((b - first) * m + row) * n :]
            add_products(left, b, row, last, 0, depth, panels, split, steps, packed, tiles, 1, ending, rows)
        if b + 1 == min(first + group, stop):
            wrote = pour(sink, address(out), first * m * n, (b + 1 - first) * m * n)
            if wrote < (b + 1 - first) * m * n:
                return first * m * n + wrote
    return stop * m * n


@kernel
def write_row_groups(
    left: Any,
    start: int,
    stop: int,
    group: int,
    depth: int,
    panels: Any,
    split: int,
    steps: int,
    packed: Any,
    tiles: Any,
    ending: Any,
    out: Any,
    sink: Any,
) -> int:
    """Write rows `start`..`stop` of one product, `group` at a time; return the first result not written.

    That is the end, or where the sink left off: the group's sums are in `out` then. Arguments as of `add_products`.
    """
    columns = ending[3]
    for first in range(start, stop, group):
        last = min(first + group, stop)
        add_products(left, 0, first, last, 0, depth, panels, split, steps, packed, tiles, 1, ending, out)
        wrote = pour(sink, address(out), first * columns, (last - first) * columns)
        if wrote < (last - first) * columns:
            return first * columns + wrote
    return stop * columns


@kernel
def write_paired_batches(
    left: Any,
    right: Any,
    pairs: Any,
    segments: Any,
    split: int,
    steps: int,
    unit: float,
    addend: Any,
    out: Any,
    group: int,
    start: int,
    stop: int,
    sink: Any,
) -> int:
    """Write products with 16-bit patches that are never put together, for batch elements `start`..`stop`.

    Every element of an image stands beside its neighbour once, and beside the one at another distance (in the next row,
    mostly) once; a step multiplies such pairs. Sums are made for every place from the first column to the last, also
    where a window leaves a row; those are left out. Returns what `write_batches` does.

    Args:
        left: data, from one batch element to the next, rows, columns.
        right: the same; its columns ascend.
        pairs: offset, first and second k (-1: none) of each step, and whether they are neighbours; the other distance.
        segments: panel, lane, column and length of each run of columns in a panel, panel by panel.
        split: whether left elements are taken as low and high bytes.
        steps: steps after which 32-bit sums are added up.
        unit: value of 1 in the sums.
        addend: float64, (1 or B, 1 or M, 1 or N).
        out: float64, room for the sums of a group.
        group: batch elements of one.
        start: first batch element.
        stop: behind the last.
        sink: where sums go.
    """
    places, first_k, second_k, near, distance = pairs
    m, n, depth = left[2].size, right[3].size, places.size
    count = segments[len(segments) - 1, 0] + 1
    blocks = (m + TILE_ROWS - 1) // TILE_ROWS
    rows = np.zeros((2, blocks * TILE_ROWS, PAIR * depth), np.int16)
    for i in range(m):
        for step in range(depth):
            for side in range(PAIR):
                k = first_k[step] if side == 0 else second_k[step]
                value = left[0][left[2][i] + left[3][k]] if k >= 0 else left[0][0] * 0
                if split:
                    rows[0, i, PAIR * step + side] = np.int8(value)
                    rows[1, i, PAIR * step + side] = (np.int32(value) - np.int32(np.int8(value))) >> 8
                else:
                    rows[0, i, PAIR * step + side] = value
    size = right[2][right[2].size - 1] + right[3][n - 1] + 1
    reach = size + SLACK + PANEL_COLUMNS
    beside = np.zeros(2 * PAIR * reach, np.int16)
    offsets = np.empty(depth, np.int64)
    for step in range(depth):
        offsets[step] = places[step] + (0 if near[step] else reach)
    tile, corrections = np.empty(TILE_SUMS, np.int64), np.zeros(PANEL_COLUMNS, np.int64)
    row_bytes = 2 * PAIR * depth
    for b in range(start, stop):
        begin = start + (b - start) // group * group
        image = address(right[0]) + 2 * b * right[1]
        pair_up(image, 1, address(beside), size)
        if distance > 1:
            pair_up(image, distance, address(beside) + 2 * PAIR * reach, size - distance)
        segment = 0
        for p in range(count):
            here = address(beside) + 2 * PAIR * (right[3][0] + p * PANEL_COLUMNS)
            behind = segment
            while behind < len(segments) and segments[behind, 0] == p:
                behind += 1
            for block in range(blocks):
                clear_tile(address(tile))
                for step in range(0, depth, steps):
                    now = min(steps, depth - step)
                    there = address(offsets) + 8 * step
                    for byte in range(1 + split):
                        row = address(rows) + (byte * blocks + block) * TILE_ROWS * row_bytes
                        add_dot_tile_at(row + WORD_BYTES * step, row_bytes, here, there, now, 8 * byte, address(tile))
                first = block * TILE_ROWS
                for s in range(segment, behind):
                    lane, column, length = segments[s, 1], segments[s, 2], segments[s, 3]
                    finish_tile(
                        address(tile) + 8 * lane,
                        address(corrections),
                        unit,
                        _place_in_addend(addend, b, first, column),
                        addend.shape[2] if addend.shape[1] > 1 else 0,
                        addend.shape[2] > 1,
                        address(out) + 8 * (((b - begin) * m + first) * n + column),
                        n,
                        min(TILE_ROWS, m - first),
                        length,
                    )
            segment = behind
        if b + 1 == min(begin + group, stop):
            wrote = pour(sink, address(out), begin * m * n, (b + 1 - begin) * m * n)
            if wrote < (b + 1 - begin) * m * n:
                return begin * m * n + wrote
    return stop * m * n
