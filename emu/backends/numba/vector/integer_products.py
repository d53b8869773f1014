"""Exact products of integer matrices, whatever way their elements lie in memory.

    raws        carriers -> int8 or int16, each once; their largest magnitudes
    panels      right operand, 32 columns each, packed once for all rows of a batch element
    rows        left operand, 8 rows a block; full 16-bit ranges as low and high bytes: a = 256 * high + low
    tiles       sums of a block and a panel, put into float64 rows in units of the operands' last places

Element (b, i, j) of an operand is `data[batch * b + rows[i] + columns[j]]`, which says patches of images and
transposes without copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends.numba.compiling import kernel
from emu.backends.numba.vector.dot_tiles import (
    CONVERTED,
    NEIGHBOURS,
    PANEL_COLUMNS,
    TILE_ROWS,
    add_columns,
    add_dot_tile,
    add_dot_tile_at,
    convert_raws,
    interleave,
    pair_up,
)
from emu.backends.numba.vector.lanes import address

PAIR, QUARTET = NEIGHBOURS[16], NEIGHBOURS[8]
INT32_MAX = 2**31 - 1
#: Added to 8-bit left operands, whose instruction wants them unsigned.
OFFSET = 128
#: Runs of adjacent columns in a panel above which elements are moved one by one.
MOST_RUNS = 12
#: Elements that must follow an operand, zeros: a vector may begin at its last one.
SLACK = 2 * PANEL_COLUMNS
#: Places along k whose packed rows stay in the first-level cache.
CHUNK_DEPTH = 1024


@kernel
def raws_range(x: Any, scale: float, raws: Any, start: int, stop: int) -> Any:
    """Write carriers times `scale` as integers; return a bound on their magnitudes, below twice the largest."""
    whole = (stop - start) // CONVERTED * CONVERTED
    width = raws.itemsize
    bits = convert_raws(
        address(x) + start * x.itemsize, x.dtype, scale, address(raws) + start * width, raws.dtype, whole
    )
    for i in range(start + whole, stop):
        raw = np.int64(x[i] * scale)
        raws[i] = raw
        bits |= raw ^ (raw >> 63)
    return bits + 1


@kernel
def find_runs(columns: Any, first: int, starts: Any) -> int:
    """Write where runs of adjacent columns begin in the panel from `first` on; return how many there are."""
    count = 0
    for j in range(min(PANEL_COLUMNS, columns.size - first)):
        if j == 0 or columns[first + j] != columns[first + j - 1] + 1:
            starts[count] = j
            count += 1
    return count


@kernel
def pack_panel16(data: Any, base: int, rows: Any, columns: Any, first: int, panel: Any, start: int, stop: int) -> None:
    """Pack places `start`..`stop` along k of 32 columns from `first` on; 16-bit operand, K x N.

    A run of adjacent columns is written as a whole vector; what stands behind it belongs to the next run or the next k.
    Behind the last k stands what another thread may have packed: runs that would reach it are written one by one.
    """
    depth = rows.size
    starts = np.empty(PANEL_COLUMNS, np.int64)
    runs = find_runs(columns, first, starts)
    width = min(PANEL_COLUMNS, columns.size - first)
    origin = address(data) + 2 * base
    nothing = address(data) + 2 * (data.size - PANEL_COLUMNS)  # zeros behind the last element
    for k in range(start, stop, PAIR):
        at = k * PANEL_COLUMNS
        if runs == 1 or (runs <= MOST_RUNS and k + PAIR < stop):
            for run in range(runs):
                j = starts[run]
                place = origin + 2 * columns[first + j]
                second = place + 2 * rows[k + 1] if k + 1 < depth else nothing
                interleave(16, (place + 2 * rows[k], second), address(panel) + 2 * (at + PAIR * j))
            continue
        for j in range(width):
            element = base + columns[first + j]
            panel[at + PAIR * j] = data[element + rows[k]]
            panel[at + PAIR * j + 1] = data[element + rows[k + 1]] if k + 1 < depth else 0


@kernel
def pack_panel8(
    data: Any, base: int, rows: Any, columns: Any, first: int, panel: Any, start: int, stop: int, sums: Any
) -> None:
    """Pack places along k of 32 columns of an 8-bit operand as `pack_panel16`, and add up each column."""
    depth = rows.size
    starts = np.empty(PANEL_COLUMNS, np.int64)
    runs = find_runs(columns, first, starts)
    width = min(PANEL_COLUMNS, columns.size - first)
    origin = address(data) + base
    nothing = address(data) + data.size - PANEL_COLUMNS
    for k in range(start, stop, QUARTET):
        at = k * PANEL_COLUMNS
        if runs == 1 or (runs <= MOST_RUNS and k + QUARTET < stop):
            for run in range(runs):
                j = starts[run]
                place = origin + columns[first + j]
                second = place + rows[k + 1] if k + 1 < depth else nothing
                third = place + rows[k + 2] if k + 2 < depth else nothing
                fourth = place + rows[k + 3] if k + 3 < depth else nothing
                interleave(8, (place + rows[k], second, third, fourth), address(panel) + at + QUARTET * j)
        else:
            for j in range(width):
                for i in range(QUARTET):
                    inside = k + i < depth
                    panel[at + QUARTET * j + i] = data[base + columns[first + j] + rows[k + i]] if inside else 0
    add_columns(address(panel) + start * PANEL_COLUMNS, (stop - start + QUARTET - 1) // QUARTET, address(sums))


@kernel
def pack_rows16(
    data: Any, base: int, rows: Any, columns: Any, first: int, start: int, stop: int, low: Any, high: Any, split: int
) -> None:
    """Pack places `start`..`stop` along k of 8 rows from `first` on; 16-bit operand, M x K.

    `split` into low and high bytes, both signed. Rows are as long as the places, made even.
    """
    length = (stop - start + PAIR - 1) // PAIR * PAIR
    for i in range(TILE_ROWS):
        at = i * length
        row = base + rows[min(first + i, rows.size - 1)]
        for k in range(start, stop):
            value = data[row + columns[k]]
            if split:
                low[at + k - start] = np.int8(value)
                high[at + k - start] = (np.int32(value) - np.int32(np.int8(value))) >> 8
            else:
                low[at + k - start] = value
        for k in range(stop - start, length):
            low[at + k] = 0
            high[at + k] = 0


@kernel
def pack_rows8(data: Any, base: int, rows: Any, columns: Any, first: int, start: int, stop: int, low: Any) -> None:
    """Pack places along k of 8 rows of an 8-bit operand, each element plus 128 (the panel is 0 behind the last)."""
    length = (stop - start + QUARTET - 1) // QUARTET * QUARTET
    for i in range(TILE_ROWS):
        at = i * length
        row = base + rows[min(first + i, rows.size - 1)]
        for k in range(start, stop):
            low[at + k - start] = np.uint8(np.int32(data[row + columns[k]]) + OFFSET)
        for k in range(stop - start, length):
            low[at + k] = 0


@kernel
def add_products16(
    data: Any,
    base: int,
    rows: Any,
    columns: Any,
    first_row: int,
    last_row: int,
    start: int,
    stop: int,
    panels: Any,
    split: int,
    steps: int,
    sums: Any,
) -> None:
    """Add products along `start`..`stop` of rows and packed panels to sums [block][panel][8][32].

    Args:
        data: 16-bit elements of the left operand, at base + rows[i] + columns[k].
        base: where its batch element begins.
        rows: offsets of rows.
        columns: offsets along k.
        first_row: first row.
        last_row: behind the last.
        start: first place along k, even.
        stop: behind the last.
        panels: (panels, even depth * 32) packed right operand.
        split: whether rows are taken as low and high bytes.
        steps: instructions after which 32-bit sums are added up.
        sums: int64, added to.
    """
    count, depth = panels.shape[0], panels.shape[1] // PANEL_COLUMNS
    length = CHUNK_DEPTH
    low, high = np.empty(TILE_ROWS * length, np.int16), np.empty(TILE_ROWS * length, np.int16)
    for chunk in range(start, stop, CHUNK_DEPTH):
        end = min(chunk + CHUNK_DEPTH, stop)
        row_bytes = 2 * ((end - chunk + PAIR - 1) // PAIR * PAIR)
        all_steps = row_bytes // 4
        for block in range((last_row - first_row + TILE_ROWS - 1) // TILE_ROWS):
            pack_rows16(data, base, rows, columns, first_row + block * TILE_ROWS, chunk, end, low, high, split)
            for p in range(count):
                at = address(sums) + 8 * TILE_ROWS * PANEL_COLUMNS * (block * count + p)
                panel = address(panels) + 2 * PANEL_COLUMNS * (p * depth + chunk)
                for step in range(0, all_steps, steps):
                    now = min(steps, all_steps - step)
                    there = panel + step * PANEL_COLUMNS * 4
                    add_dot_tile(16, address(low) + 4 * step, row_bytes, there, now, 0, at)
                    if split:
                        add_dot_tile(16, address(high) + 4 * step, row_bytes, there, now, 8, at)


@kernel
def add_products8(
    data: Any,
    base: int,
    rows: Any,
    columns: Any,
    first_row: int,
    last_row: int,
    start: int,
    stop: int,
    panels: Any,
    steps: int,
    sums: Any,
) -> None:
    """Add products of an 8-bit operand, each of its elements plus 128; otherwise as `add_products16`."""
    count, depth = panels.shape[0], panels.shape[1] // PANEL_COLUMNS
    low = np.empty(TILE_ROWS * CHUNK_DEPTH, np.uint8)
    for chunk in range(start, stop, CHUNK_DEPTH):
        end = min(chunk + CHUNK_DEPTH, stop)
        row_bytes = (end - chunk + QUARTET - 1) // QUARTET * QUARTET
        all_steps = row_bytes // 4
        for block in range((last_row - first_row + TILE_ROWS - 1) // TILE_ROWS):
            pack_rows8(data, base, rows, columns, first_row + block * TILE_ROWS, chunk, end, low)
            for p in range(count):
                at = address(sums) + 8 * TILE_ROWS * PANEL_COLUMNS * (block * count + p)
                panel = address(panels) + PANEL_COLUMNS * (p * depth + chunk)
                for step in range(0, all_steps, steps):
                    now = min(steps, all_steps - step)
                    add_dot_tile(8, address(low) + 4 * step, row_bytes, panel + step * PANEL_COLUMNS * 4, now, 0, at)


@kernel
def finish_rows(
    sums: Any,
    column_sums: Any,
    unit: float,
    addend: Any,
    batch: int,
    first_row: int,
    last_row: int,
    columns: int,
    out: Any,
) -> None:
    """Write sums as float64 rows in their unit, less 128 times the column sums, plus the addend; clear the sums."""
    count = (columns + PANEL_COLUMNS - 1) // PANEL_COLUMNS
    bias_batch = batch % addend.shape[0]
    for i in range(first_row, last_row):
        block, row = (i - first_row) // TILE_ROWS, (i - first_row) % TILE_ROWS
        bias_row = i % addend.shape[1]
        for p in range(count):
            at = ((block * count + p) * TILE_ROWS + row) * PANEL_COLUMNS
            first = p * PANEL_COLUMNS
            width = min(PANEL_COLUMNS, columns - first)
            target = (i - first_row) * columns + first
            for j in range(width):
                out[target + j] = np.float64(sums[at + j] - OFFSET * column_sums[first + j]) * unit
            if addend.shape[2] == 1:
                bias = np.float64(addend[bias_batch, bias_row, 0])
                for j in range(width):
                    out[target + j] += bias
            else:
                for j in range(width):
                    out[target + j] += np.float64(addend[bias_batch, bias_row, first + j])
    sums[:] = 0


@kernel
def empty_panels(count: int, depth: int, dtype: Any) -> Any:
    """Return room for panels, (panels, depth * 32), and for the vector that begins in their last place."""
    room = np.empty(count * depth * PANEL_COLUMNS + 8 * PANEL_COLUMNS, dtype)
    return room[: count * depth * PANEL_COLUMNS].reshape(count, depth * PANEL_COLUMNS)


@kernel
def pack_panels16(
    data: Any, base: int, rows: Any, columns: Any, panels: Any, first: int, last: int, start: int, stop: int
) -> None:
    """Pack places `start`..`stop` along k of panels `first`..`last` of a 16-bit operand."""
    for p in range(first, last):
        pack_panel16(data, base, rows, columns, p * PANEL_COLUMNS, panels[p], start, stop)


@kernel
def pack_panels8(
    data: Any, base: int, rows: Any, columns: Any, panels: Any, first: int, last: int, start: int, stop: int, sums: Any
) -> None:
    """Pack panels of an 8-bit operand; add up their columns into `sums`."""
    for p in range(first, last):
        column = p * PANEL_COLUMNS
        pack_panel8(data, base, rows, columns, column, panels[p], start, stop, sums[column : column + PANEL_COLUMNS])


@kernel
def batch_products16(
    left: Any, right: Any, split: int, steps: int, unit: float, addend: Any, out: Any, start: int, stop: int
) -> None:
    """Write the products of batch elements `start`..`stop` into float64 rows, one element after the other.

    Args:
        left: data, from one batch element to the next, rows, columns of the left operand.
        right: the same of the right operand.
        split: whether left elements are taken as low and high bytes.
        steps: instructions after which 32-bit sums are added up.
        unit: value of 1 in the sums.
        addend: (1 or B, 1 or M, 1 or N).
        out: float64, room for (stop - start) * M * N.
        start: first batch element.
        stop: behind the last.
    """
    m, n, depth = left[2].size, right[3].size, right[2].size
    count = (n + PANEL_COLUMNS - 1) // PANEL_COLUMNS
    blocks = (m + TILE_ROWS - 1) // TILE_ROWS
    panels = empty_panels(count, (depth + PAIR - 1) // PAIR * PAIR, np.int16)
    sums = np.zeros(blocks * count * TILE_ROWS * PANEL_COLUMNS, np.int64)
    column_sums = np.zeros(count * PANEL_COLUMNS, np.int64)
    for b in range(start, stop):
        pack_panels16(right[0], b * right[1], right[2], right[3], panels, 0, count, 0, depth)
        add_products16(left[0], b * left[1], left[2], left[3], 0, m, 0, depth, panels, split, steps, sums)
        finish_rows(sums, column_sums, unit, addend, b, 0, m, n, out[(b - start) * m * n :])


@kernel
def batch_products8(
    left: Any, right: Any, steps: int, unit: float, addend: Any, out: Any, start: int, stop: int
) -> None:
    """Write the products of batch elements of 8-bit operands; otherwise as `batch_products16`."""
    m, n, depth = left[2].size, right[3].size, right[2].size
    count = (n + PANEL_COLUMNS - 1) // PANEL_COLUMNS
    blocks = (m + TILE_ROWS - 1) // TILE_ROWS
    panels = empty_panels(count, (depth + QUARTET - 1) // QUARTET * QUARTET, np.int8)
    sums = np.zeros(blocks * count * TILE_ROWS * PANEL_COLUMNS, np.int64)
    column_sums = np.zeros(count * PANEL_COLUMNS, np.int64)
    for b in range(start, stop):
        column_sums[:] = 0
        pack_panels8(right[0], b * right[1], right[2], right[3], panels, 0, count, 0, depth, column_sums)
        add_products8(left[0], b * left[1], left[2], left[3], 0, m, 0, depth, panels, steps, sums)
        finish_rows(sums, column_sums, unit, addend, b, 0, m, n, out[(b - start) * m * n :])


@kernel
def _finish_row(sums: Any, lanes: Any, unit: float, addend: Any, batch: int, row: int, out: Any) -> None:
    """Write the sums of one row that belong to columns, plus the addend."""
    bias = addend[batch % addend.shape[0], row % addend.shape[1]]
    if bias.size == 1:
        single = np.float64(bias[0])
        for j in range(lanes.size):
            out[j] = np.float64(sums[lanes[j]]) * unit + single
    else:
        for j in range(lanes.size):
            out[j] = np.float64(sums[lanes[j]]) * unit + np.float64(bias[j])


@kernel
def paired_batch_products(
    left: Any,
    right: Any,
    pairs: Any,
    split: int,
    steps: int,
    unit: float,
    addend: Any,
    out: Any,
    start: int,
    stop: int,
) -> None:
    """Write products with 16-bit patches that are never put together, for batch elements `start`..`stop`.

    Every element of an image stands beside its neighbour once; a step multiplies such pairs. Sums are made for every
    place from the first column to the last, also where a window leaves a row; those are left out.

    Args:
        left: data, from one batch element to the next, rows, columns.
        right: the same; its columns ascend.
        pairs: offset, first and second k (-1: none) of each step.
        split: whether left elements are taken as low and high bytes.
        steps: steps after which 32-bit sums are added up.
        unit: value of 1 in the sums.
        addend: (1 or B, 1 or M, 1 or N).
        out: float64, room for (stop - start) * M * N.
        start: first batch element.
        stop: behind the last.
    """
    offsets, first_k, second_k = pairs
    m, n, depth = left[2].size, right[3].size, offsets.size
    places = right[3] - right[3][0]
    count = (places[n - 1] + PANEL_COLUMNS) // PANEL_COLUMNS
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
    beside = np.zeros(PAIR * (size + SLACK + PANEL_COLUMNS), np.int16)
    tile_sums = TILE_ROWS * PANEL_COLUMNS
    lanes = places // PANEL_COLUMNS * tile_sums + places % PANEL_COLUMNS
    sums = np.zeros(blocks * count * tile_sums, np.int64)
    row_bytes = 2 * PAIR * depth
    for b in range(start, stop):
        pair_up(address(right[0]) + 2 * b * right[1], address(beside), size)
        for block in range(blocks):
            for p in range(count):
                at = address(sums) + 8 * tile_sums * (block * count + p)
                here = address(beside) + 2 * PAIR * (right[3][0] + p * PANEL_COLUMNS)
                for step in range(0, depth, steps):
                    now = min(steps, depth - step)
                    there = address(offsets) + 8 * step
                    for byte in range(1 + split):
                        row = address(rows) + byte * blocks * TILE_ROWS * row_bytes + block * TILE_ROWS * row_bytes
                        add_dot_tile_at(row + 4 * step, row_bytes, here, there, now, 8 * byte, at)
        for i in range(m):
            first = (i // TILE_ROWS * count * TILE_ROWS + i % TILE_ROWS) * PANEL_COLUMNS
            _finish_row(sums[first:], lanes, unit, addend, b, i, out[((b - start) * m + i) * n :])
        sums[:] = 0
