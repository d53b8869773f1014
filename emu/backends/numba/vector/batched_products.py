"""Products of one matrix with each of a batch, added in order along k: the matrices of the batch side by side in lanes.

    lines     element s of all matrices, 32 beside each other: what a convolution reads is never copied as patches
    column    reads the lines `rows[k] + columns[j]`, k = 0, 1, ..., each a vector of 32 sums' right factors
    skipped   lines that are 0 in every matrix: padding, errors spread by a stride, units that are off

A product with 0 changes no sum but -0, which may become +0: a tile that ends with a -0 is added again, nothing skipped.
Accumulators of fixed point have no -0.
Nor is anything skipped if a left factor is not finite, since that times 0 is NaN.

Source: docs/concepts/fast-paths.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered, as_gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges, part
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import LANES, address
from emu.backends.numba.vector.ordered_products import as_lines_of, room_for
from emu.backends.numba.vector.ordered_tiles import (
    COMPARING,
    MARK,
    ROWS,
    TOUCHING,
    add_listed,
    factor_of,
    fill_line,
    finish_in_order,
    line_dtype,
)
from emu.backends.numba.vector.transposing import spread, transpose_scaled

Array = NDArray[Any]
#: Matrices below which too many of the 32 lanes would be empty.
FEWEST_MATRICES = 16
#: How much more than panels of patches the lanes may compute: copying and packing patches takes as long.
SAVED = 1.5
#: Rows for which a list of lines is made once. Their results, 16 columns each, stay in a second-level cache.
CHUNK_ROWS = 64
#: The pattern of a float32's -0.
NEGATIVE_ZERO = -(2**31)
#: Elements of matrices, and multiply-adds, below which a second thread is not worth waking.
GRAIN_ELEMENTS, GRAIN_MACS = 1 << 19, 1 << 23


def applies(left: Array | Gathered, right: Array | Gathered, addend: Array | None) -> bool:
    """Return whether one left matrix, and one addend, meet many right matrices, each a part of its own of the data."""
    if not isinstance(right, Gathered) or left.shape[0] > 1 or right.batches < FEWEST_MATRICES:
        return False
    if addend is not None and addend.shape[0] > 1:
        return False
    reach = right.reach()
    if reach is None or reach > right.batch_stride:
        return False
    # Lanes without a matrix compute as much as others do; so do columns beyond the last of a panel.
    lanes, columns = (-(-size // PANEL_COLUMNS) * PANEL_COLUMNS / size for size in (right.batches, right.columns.size))
    return lanes <= SAVED * columns


@kernel
def make_lines(
    data: Any, stride: int, scale: float, lines: Any, kept: Any, start: int, stop: int, batches: int
) -> None:
    """Write lines, (panels, S, 32), and which are not 0 in all matrices, (panels, S): blocks of 16 start..stop."""
    blocks = (lines.shape[1] + LANES - 1) // LANES
    for item in range(start, stop):
        panel, first = item // blocks, item % blocks * LANES
        count = min(LANES, lines.shape[1] - first)
        marks, here = kept[panel], lines[panel]
        for s in range(first, first + count):
            marks[s] = 0
        for half in range(2):
            top = min(panel * PANEL_COLUMNS + half * LANES, batches - 1)  # lanes beyond the last repeat it
            if count == LANES:
                target = address(here) + here.itemsize * (first * PANEL_COLUMNS + half * LANES)
                source = address(data) + data.itemsize * (top * stride + first)
                matrices = min(LANES, batches - top)
                seen = transpose_scaled(source, stride, matrices, scale, lines.dtype, target, PANEL_COLUMNS)
                for i in range(LANES):
                    # A bit for each of the 16 elements: whether any of the matrices has another number than 0 there.
                    marks[first + i] |= seen >> i & 1
            else:
                for i in range(count):
                    for lane in range(LANES):
                        value = data[min(top + lane, batches - 1) * stride + first + i]
                        here[first + i, half * LANES + lane] = value * scale
                        marks[first + i] |= value != 0.0


@lru_cache(maxsize=16)
def _column_loops(adder: str) -> Any:
    """Return the compiled loop of an adder.

    It takes the left matrix as data, offsets of its rows (M,) and columns (K,), and a scale; lines and which are kept,
    offsets of the right rows (K,) and columns (N,), whether lines may be skipped, the first sums (M or 1, N or 1) and a
    factor for them, limits of a saturating accumulator, how many bits words drop at the end, a factor for the sums, and
    a range of items, 16 columns of 32 matrices each. It writes sums (B, M, N), and where a limit was touched. Its first
    arguments are arrays to work in, from `_room_for`: Numba compiles one function more for each array that a kernel
    makes.
    """
    height, comparing = ROWS[adder], adder in COMPARING
    mark, touching = MARK if adder == "marked" else 0, adder in TOUCHING

    @kernel
    def run(
        left: Any,
        starts: Any,
        sums: Any,
        patterns: Any,
        hit: Any,
        lefts: Any,
        rights: Any,
        results: Any,
        hits: Any,
        data: Any,
        left_rows: Any,
        left_columns: Any,
        left_scale: float,
        lines: Any,
        kept: Any,
        rows: Any,
        columns: Any,
        skips: bool,
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
        count, depth, blocks = left_rows.size, rows.size, (columns.size + LANES - 1) // LANES
        for i in range(count):
            for k in range(depth):
                # As `add_listed` reads it: tiles of `height` rows, one k after the other.
                left[i // height, k, i % height] = factor_of(adder, data[left_rows[i] + left_columns[k]] * left_scale)
        for item in range(start, stop):
            panel, begin = item // blocks, item % blocks * LANES
            base, width = panel * PANEL_COLUMNS, min(LANES, columns.size - begin)
            lanes, apart = min(PANEL_COLUMNS, out.shape[0] - base), out.shape[1] * out.shape[2]
            for top in range(0, count, CHUNK_ROWS):
                chunk = min(CHUNK_ROWS, count - top)
                tiles = (chunk + height - 1) // height * height
                for j in range(width):
                    if j == 0 or first_sums.shape[1] > 1:
                        _fill(starts, first_sums, top, tiles, (begin + j) % first_sums.shape[1], sum_scale, mark)
                    listed = 0
                    for k in range(depth):
                        line = rows[k] + columns[begin + j]
                        # Written always, counted only if the line is kept: nothing branches.
                        lefts[listed], rights[listed] = k * height, line * PANEL_COLUMNS
                        listed += kept[panel, line] | (not skips)
                    tile = 0
                    while tile < chunk:
                        add_listed(
                            adder,
                            address(left) + left.itemsize * (top + tile) * depth,
                            address(lefts),
                            address(lines) + lines.itemsize * panel * lines.shape[1] * PANEL_COLUMNS,
                            address(rights),
                            listed,
                            low,
                            high,
                            address(starts) + starts.itemsize * tile * PANEL_COLUMNS,
                            address(sums),
                            address(hit),
                        )
                        if not touching and listed < depth:
                            negative_zeros = 0
                            for i in range(patterns.size):
                                # A skipped product with 0 might have made this -0 a +0: the tile is added again from
                                # the start, all lines listed.
                                negative_zeros |= patterns[i] == NEGATIVE_ZERO
                            if negative_zeros:
                                for k in range(depth):
                                    lefts[k], rights[k] = k * height, (rows[k] + columns[begin + j]) * PANEL_COLUMNS
                                listed = depth
                                continue
                        finish_in_order(
                            adder,
                            address(sums),
                            address(hit),
                            drop_bits,
                            lsb,
                            out.dtype,
                            address(results) + out.itemsize * (tile * LANES + j) * PANEL_COLUMNS,
                            LANES * PANEL_COLUMNS,
                            address(hits) + (tile * LANES + j) * PANEL_COLUMNS,
                            min(height, chunk - tile),
                            PANEL_COLUMNS,
                        )
                        if comparing:
                            # Marks are collected by or: each tile begins without any.
                            hit[:] = 0
                        tile += height
                for i in range(chunk):
                    to, square = (base * out.shape[1] + top + i) * out.shape[2] + begin, i * LANES * PANEL_COLUMNS
                    source, target = address(results) + out.itemsize * square, address(out) + out.itemsize * to
                    # Lanes are matrices: 32 x 16 sums of a row become 16 neighbours in each of up to 32 results.
                    spread(out.dtype, source, target, apart, lanes, width)
                    if touching:
                        spread(touched.dtype, address(hits) + square, address(touched) + to, apart, lanes, width)

    return run


def _room_for(adder: str, count: int, depth: int, out: Array) -> tuple[Array, ...]:
    """Return the arrays in which the loop of an adder works: of `count` rows and `depth` products."""
    left, sums, hit = room_for(adder, -(-count // ROWS[adder]), depth)
    lefts, rights = np.empty((2, depth + 1), np.int64)
    results = np.empty((CHUNK_ROWS, LANES, PANEL_COLUMNS), out.dtype)
    hits = np.zeros((CHUNK_ROWS if adder in TOUCHING else 1, LANES, PANEL_COLUMNS), np.uint8)
    starts = np.empty(-(-CHUNK_ROWS // ROWS[adder]) * ROWS[adder] * PANEL_COLUMNS, sums.dtype)
    return left, starts, sums, sums.view(np.int32), hit, lefts, rights, results, hits


@part
def _fill(starts: Any, first_sums: Any, top: int, rows: int, column: int, scale: float, mark: int) -> None:
    """Write the first sums of some tiles, rows from `top` on, at a column: the same of all 32 matrices."""
    lane = starts.dtype.type
    for i in range(rows):
        # Rows beyond the last fill a tile, and are not written.
        first_sum = lane(first_sums[min(top + i, first_sums.shape[0] - 1), column] * scale)
        if mark:  # not of floats: -0 would become +0
            first_sum = lane(first_sum + mark)
        fill_line(address(starts) + starts.itemsize * i * PANEL_COLUMNS, first_sum)


def add_batch(
    adder: str,
    left: Array | Gathered,
    right: Gathered,
    scales: tuple[float, float, float],
    limits: tuple[float, float, int, float],
    first_sums: Array,
    out: Array,
    touched: Array,
) -> None:
    """Write the sums of one matrix's products with each of a batch.

    Args:
        adder: a key of `ordered_tiles.ADDERS`.
        left: float32, (1, M, K).
        right: float32, B matrices (K, N), as `applies` takes them.
        scales: what left operands, right ones and first sums are multiplied by.
        limits: smallest and largest sum, bits that a word drops, value of the last place.
        first_sums: of each matrix, (M or 1, N or 1).
        out: sums, (B, M, N).
        touched: uint8, where a limit was touched, (B, M, N); of other accumulators nothing, (1, 1, 1).
    """
    kernels = as_gathered(left)
    (_, count, depth), (batches, _, width) = left.shape, right.shape
    skips = bool(np.isfinite(kernels.data).all())
    panels, size = -(-batches // PANEL_COLUMNS), right.reach()
    assert size is not None
    lines, kept = empty((panels, size, PANEL_COLUMNS), line_dtype(adder)), empty((panels, size), np.uint8)
    data, stride = only_read(right.data), right.batch_stride
    grain = GRAIN_ELEMENTS // (LANES * PANEL_COLUMNS)
    blocks = -(-size // LANES)
    over_ranges(
        lambda _, i, j: make_lines(data, stride, scales[1], lines, kept, i, j, batches), panels * blocks, 1, grain
    )
    loop, offsets = _column_loops(adder), (right.rows, right.columns)
    place = only_read(kernels.data), kernels.rows, kernels.columns, scales[0]
    given = (*place, as_lines_of(adder, lines), kept, *offsets, skips, first_sums, scales[2], *limits, out, touched)
    items, grain = panels * -(-width // LANES), max(1, GRAIN_MACS // max(count * depth * LANES * PANEL_COLUMNS, 1))
    over_ranges(lambda _, i, j: loop(*_room_for(adder, count, depth, out), *given, i, j), items, 1, grain)
