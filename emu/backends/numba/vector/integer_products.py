"""Exact products of integer matrices, wherever their elements lie in memory, as float64 rows.

pack          rows of the left operand and panels of the right one (`packing`)
multiply      each block of 8 rows with each panel: a tile of 8 x 32 sums, in the cache
finish        write the tile's values plus the addend as float64, which the output stage reads
pour          deliver a group of them to the output stage, while they are in the cache
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
#: Largest part of k that is packed at once: the rows stay in the first-level cache.
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
    instructions: int,
    packed: Any,
    tiles: Any,
    finished: int,
    ending: Any,
    out: Any,
) -> None:
    """Add products of rows and packed panels along `start`..`stop`; finish them, or leave them in their tiles.

    Args:
        left: data, stride from one matrix to the next, offsets of rows and of columns of the left operand.
        batch: which matrix.
        first_row: first row.
        last_row: one past the last.
        start: first k, at the beginning of a word.
        stop: one past the last.
        panels: (panels, whole words along k * 32) packed right operand.
        split: whether rows are taken as low and high bytes.
        instructions: how many, until 32-bit sums are added to 64-bit ones.
        packed: room for the packed rows.
        tiles: int64, [block][panel][8][32]; one tile is enough if sums are finished and k is one chunk.
        finished: whether to write `out`.
        ending: see `finish_rows`.
        out: float64 rows.
    """
    count, depth = panels.shape[0], panels.shape[1] // PANEL_COLUMNS
    item = panels.itemsize
    blocks = (last_row - first_row + TILE_ROWS - 1) // TILE_ROWS
    plane = packed.size // 2  # high bytes of split elements are in the second half
    # If each tile is finished before the next, one serves all; over several chunks of k, each keeps its sums.
    stride = 0 if finished and stop - start <= CHUNK_DEPTH else TILE_BYTES
    for chunk in range(start, max(stop, start + 1), CHUNK_DEPTH):
        end = min(chunk + CHUNK_DEPTH, stop)
        # Rows of one chunk of k are packed, and multiplied with all panels while they are in the cache.
        row_bytes = pack_rows(left, batch, first_row, last_row, chunk, end, split, packed, plane)
        # The fewest parts, all of about the same length.
        all_words = row_bytes // WORD_BYTES
        parts = max((all_words + instructions - 1) // instructions, 1)
        words_of_part = (all_words + parts - 1) // parts
        for p in range(count):
            panel = address(panels) + item * PANEL_COLUMNS * (p * depth + chunk)
            for block in range(blocks):
                tile = address(tiles) + stride * (block * count + p)
                if chunk == start:
                    clear_tile(tile)
                row = address(packed) + block * TILE_ROWS * row_bytes
                for word in range(0, all_words, max(words_of_part, 1)):
                    count_now = min(words_of_part, all_words - word)
                    # A word is the operands of one lane: 4 bytes of a row, 4 bytes of each of 32 columns.
                    left_at, right_at = row + WORD_BYTES * word, panel + WORD_BYTES * PANEL_COLUMNS * word
                    add_dot_tile(panels.dtype, left_at, row_bytes, right_at, count_now, 0, tile)
                    if split:  # high bytes weigh 2**8
                        add_dot_tile(panels.dtype, left_at + item * plane, row_bytes, right_at, count_now, 8, tile)
                if finished and end == stop:
                    _finish_block(tile, p, batch, first_row + block * TILE_ROWS, first_row, last_row, ending, out)


@kernel
def _finish_block(
    tile: int, panel: int, batch: int, row: int, first_row: int, last_row: int, ending: Any, out: Any
) -> None:
    """Write a tile's sums that belong to rows and columns."""
    corrections, lsb, addend, columns = ending
    column = panel * PANEL_COLUMNS
    finish_tile(
        tile,
        address(corrections) + 8 * column,
        lsb,
        _address_in_addend(addend, batch, row, column),
        addend.shape[2] if addend.shape[1] > 1 else 0,
        addend.shape[2] > 1,
        address(out) + 8 * ((row - first_row) * columns + column),
        columns,
        min(TILE_ROWS, last_row - row),
        min(PANEL_COLUMNS, columns - column),
    )


@kernel
def _address_in_addend(addend: Any, batch: int, row: int, column: int) -> int:
    """Return the address of a result's addend; dimensions of 1 serve all."""
    addend_row = batch % addend.shape[0] * addend.shape[1] + row % addend.shape[1]
    return address(addend) + 8 * (addend_row * addend.shape[2] + column % addend.shape[2])


@kernel
def finish_rows(tiles: Any, batch: int, first_row: int, last_row: int, ending: Any, out: Any) -> None:
    """Write sums as float64 rows.

    Args:
        tiles: int64, [block][panel][8][32].
        batch: which matrix.
        first_row: first row.
        last_row: one past the last.
        ending: what is subtracted from each column's sums (int64, whole panels), the value of 1 in the sums, the addend
            (float64, 1 or B, 1 or M, 1 or N), the number of columns.
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
    instructions: int,
    lsb: float,
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
    """Write the products of matrices `start`..`stop`, a group at a time; return the first result not written.

    That is the end, or the first that the sink did not take: the group's sums are in `out` then.

    Args:
        left: data, stride from one matrix to the next, offsets of rows and of columns of the left operand.
        right: the same of the right operand.
        split: whether left elements are taken as low and high bytes.
        instructions: how many, until 32-bit sums are added to 64-bit ones.
        lsb: the value of 1 in the sums.
        addend: float64, (1 or B, 1 or M, 1 or N).
        packed: room for the packed rows.
        panels: room for the packed right operand.
        rows_packed: rows that are packed together.
        out: float64, room for the sums of a group.
        group: matrices of a group.
        start: first matrix.
        stop: one past the last.
        sink: what sums are delivered to.
    """
    m, n, depth = left[2].size, right[3].size, right[2].size
    count = panels.shape[0]
    blocks = (min(rows_packed, m) + TILE_ROWS - 1) // TILE_ROWS
    tiles = np.empty((1 if depth <= CHUNK_DEPTH else blocks * count) * TILE_SUMS, np.int64)
    corrections = np.zeros(count * PANEL_COLUMNS, np.int64)
    ending = (corrections, lsb, addend, n)
    zero, one = np.int64(0), np.int64(1)  # numbers, not constants
    for b in range(start, stop):
        corrections[:] = 0
        pack_panels(right, b, panels, zero, count, zero, depth, corrections)
        for j in range(corrections.size):
            # Left bytes were packed OFFSET too large: the sum of each right column tells by how much sums are.
            corrections[j] *= OFFSET
        # The group of this matrix, whose results `out` holds; groups are counted from `start`.
        first = start + (b - start) // group * group
        for row in range(0, m, rows_packed):
            last, rows = min(row + rows_packed, m), out[((b - first) * m + row) * n :]
            add_products(left, b, row, last, zero, depth, panels, split, instructions, packed, tiles, one, ending, rows)
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
    instructions: int,
    packed: Any,
    tiles: Any,
    ending: Any,
    out: Any,
    sink: Any,
) -> int:
    """Write rows `start`..`stop` of one product, `group` at a time; return the first result not written.

    That is the end, or the first that the sink did not take: the group's sums are in `out` then. Arguments are those of
    `add_products`.
    """
    columns = ending[3]
    zero, one = np.int64(0), np.int64(1)
    for first in range(start, stop, group):
        last = min(first + group, stop)
        add_products(left, zero, first, last, zero, depth, panels, split, instructions, packed, tiles, one, ending, out)
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
    instructions: int,
    lsb: float,
    addend: Any,
    out: Any,
    group: int,
    start: int,
    stop: int,
    sink: Any,
) -> int:
    """Write products with 16-bit patches that are never copied into a matrix, for matrices `start`..`stop`.

    Each element of an image is copied once beside its neighbour, and once beside the element at another distance, as a
    rule in the next row; an instruction multiplies such pairs. Sums are computed for all positions from the first
    column to the last; those at which a window leaves a row are dropped. Returns what `write_batches` does.

    Args:
        left: data, stride from one matrix to the next, offsets of rows and of columns.
        right: the same; offsets of columns ascend.
        pairs: of each: offset, first and second k (-1: none), whether they are neighbours; then the other distance.
        segments: panel, lane, column and length of each run of columns in a panel, panel by panel.
        split: whether left elements are taken as low and high bytes.
        instructions: how many, until 32-bit sums are added to 64-bit ones.
        lsb: the value of 1 in the sums.
        addend: float64, (1 or B, 1 or M, 1 or N).
        out: float64, room for the sums of a group.
        group: matrices of a group.
        start: first matrix.
        stop: one past the last.
        sink: what sums are delivered to.
    """
    pair_offsets, first_k, second_k, near, distance = pairs
    m, n, depth = left[2].size, right[3].size, pair_offsets.size
    count = segments[len(segments) - 1, 0] + 1
    blocks = (m + TILE_ROWS - 1) // TILE_ROWS
    # Left operands as pairs, once for all matrices; a k without a partner has 0 beside it. Plane 1 has high bytes.
    rows = np.zeros((2, blocks * TILE_ROWS, PAIR * depth), np.int16)
    for i in range(m):
        for pair in range(depth):
            for side in range(PAIR):
                k = first_k[pair] if side == 0 else second_k[pair]
                value = left[0][left[2][i] + left[3][k]] if k >= 0 else left[0][0] * 0
                if split:
                    # value = 256 * high + low with a signed low byte.
                    rows[0, i, PAIR * pair + side] = np.int8(value)
                    rows[1, i, PAIR * pair + side] = (np.int32(value) - np.int32(np.int8(value))) >> 8
                else:
                    rows[0, i, PAIR * pair + side] = value
    # From a matrix's first element to the last that is read.
    size = right[2][right[2].size - 1] + right[3][n - 1] + 1
    # Vectors may begin at the last element, and panels end beyond the last column.
    reach = size + SLACK + PANEL_COLUMNS
    beside = np.zeros(2 * PAIR * reach, np.int16)
    offsets = np.empty(depth, np.int64)
    for pair in range(depth):
        offsets[pair] = pair_offsets[pair] + (0 if near[pair] else reach)
    tile, corrections = np.empty(TILE_SUMS, np.int64), np.zeros(PANEL_COLUMNS, np.int64)
    row_bytes = 2 * PAIR * depth
    for b in range(start, stop):
        # Where the group of this matrix begins.
        begin = start + (b - start) // group * group
        image = address(right[0]) + 2 * b * right[1]
        # In the first half neighbours, in the second, `reach` pairs on, elements at the other distance.
        pair_up(image, 1, address(beside), size)
        if distance > 1:
            pair_up(image, distance, address(beside) + 2 * PAIR * reach, size - distance)
        segment = 0
        for p in range(count):
            panel = address(beside) + 2 * PAIR * (right[3][0] + p * PANEL_COLUMNS)
            # The segments of a panel follow each other.
            next_segment = segment
            while next_segment < len(segments) and segments[next_segment, 0] == p:
                next_segment += 1
            for block in range(blocks):
                clear_tile(address(tile))
                for pair in range(0, depth, instructions):
                    count_now = min(instructions, depth - pair)
                    from_pair = address(offsets) + 8 * pair
                    for byte in range(1 + split):
                        row = address(rows) + (byte * blocks + block) * TILE_ROWS * row_bytes + WORD_BYTES * pair
                        add_dot_tile_at(row, row_bytes, panel, from_pair, count_now, 8 * byte, address(tile))
                first = block * TILE_ROWS
                for s in range(segment, next_segment):
                    lane, column, length = segments[s, 1], segments[s, 2], segments[s, 3]
                    finish_tile(
                        address(tile) + 8 * lane,
                        address(corrections),
                        lsb,
                        _address_in_addend(addend, b, first, column),
                        addend.shape[2] if addend.shape[1] > 1 else 0,
                        addend.shape[2] > 1,
                        address(out) + 8 * (((b - begin) * m + first) * n + column),
                        n,
                        min(TILE_ROWS, m - first),
                        length,
                    )
            segment = next_segment
        if b + 1 == min(begin + group, stop):
            wrote = pour(sink, address(out), begin * m * n, (b + 1 - begin) * m * n)
            if wrote < (b + 1 - begin) * m * n:
                return begin * m * n + wrote
    return stop * m * n
