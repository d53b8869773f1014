"""Products added in order along k, computed transposed: the right operand is read where it lies, not copied as patches.

    rows of a tile    columns of the right operand, each factor read at `rows[k] + columns[j]` of its data
    lanes             32 rows of the left operand, packed as lines, a thousand k at a time

It is what the gradient of a convolution's kernels asks for: its patches have 9 to 25 times the elements of the images.
Products of matrices with few columns, such as sums along an axis, fill the lanes in this way.
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
from emu.backends.numba.vector.ordered_tiles import (
    COMPARING,
    HALF,
    MARK,
    ROWS,
    TOUCHING,
    add_gathered,
    as_halves,
    factor_dtype,
    factor_of,
    finish_in_order,
    line_dtype,
)
from emu.backends.numba.vector.transposing import are_apart, spread, transpose_scaled

Array = NDArray[Any]
#: A product that copies no patches may compute so many times as much; any other must compute so many times less.
SAVED = 2
#: How many k, and blocks of 16 columns, are added up together: their lines and sums stay in a second-level cache.
CHUNK_DEPTH, MOST_BLOCKS = 1024, 64
#: Elements, and multiply-adds, below which a second thread is not worth waking.
GRAIN_ELEMENTS, GRAIN_MACS = 1 << 19, 1 << 23


def applies(left: Array | Gathered, right: Array | Gathered) -> bool:
    """Return whether the transposed product is the faster one: fewer lanes are empty, or nothing has to be gathered."""
    rows, columns = left.shape[1], right.shape[2]
    if not rows or not columns:
        return False
    # Lanes without a row or a column compute as much as others do.
    transposed, direct = (-(-size // PANEL_COLUMNS) * PANEL_COLUMNS / size for size in (rows, columns))
    return transposed <= SAVED * direct if isinstance(right, Gathered) else SAVED * transposed <= direct


@lru_cache(maxsize=16)
def _factor_loops(adder: str) -> Any:
    """Return the compiled loop that makes an adder's left factors of elements start..stop, times a scale."""

    @kernel
    def run(data: Any, scale: float, factors: Any, start: int, stop: int) -> None:
        source, target = data[start:stop], factors[start:stop]
        for i in range(source.size):
            target[i] = factor_of(adder, source[i] * scale)

    return run


@lru_cache(maxsize=16)
def _row_loops(adder: str) -> Any:
    """Return the compiled loop of an adder.

    It takes the right operand as factors, how far apart those of two matrices are, offsets of its rows (K,) and columns
    (N,); the left one as data, how far apart matrices are, offsets of its rows (M,) and columns (K,), and a scale; the
    first sums (B or 1, M or 1, N or 1) and a factor for them, limits of a saturating accumulator, how many bits words
    drop at the end, a factor for the sums, and a range of items, 16 columns of 32 rows of a matrix each. It writes sums
    (B, M, N), and where a limit was touched. Its first arguments are arrays to work in, from `_room_for`: Numba
    compiles one function more for each array that a kernel makes.
    """
    height, comparing, half = ROWS[adder], adder in COMPARING, adder in HALF
    mark, touching = MARK if adder == "marked" else 0, adder in TOUCHING

    @kernel
    def run(
        lines: Any,
        sums: Any,
        hit: Any,
        offsets: Any,
        results: Any,
        hits: Any,
        factors: Any,
        right_stride: int,
        right_rows: Any,
        right_columns: Any,
        data: Any,
        left_stride: int,
        left_rows: Any,
        left_columns: Any,
        left_scale: float,
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
        depth, width = right_rows.size, right_columns.size
        blocks, panels = (width + LANES - 1) // LANES, (left_rows.size + PANEL_COLUMNS - 1) // PANEL_COLUMNS
        lane, item = lines.dtype.type, start
        while item < stop:
            matrix, block = item // blocks, item % blocks
            batch, first = matrix // panels, matrix % panels * PANEL_COLUMNS
            # An item is 16 columns beside a panel of 32 rows. Items of one panel are taken together, so that its lines
            # are packed once for all of them.
            together = min(min(blocks - block, stop - item), MOST_BLOCKS)
            lanes, its_sums = min(PANEL_COLUMNS, out.shape[1] - first), first_sums[batch % first_sums.shape[0]]
            for i in range(together * LANES):
                column = min(block * LANES + i, width - 1)  # those beyond the last fill a tile
                offsets[i] = right_columns[column]
                for n in range(PANEL_COLUMNS):
                    row = min(first + n, out.shape[1] - 1) % its_sums.shape[0]
                    first_sum = lane(its_sums[row, column % its_sums.shape[1]] * sum_scale)
                    sums[i, n] = first_sum + lane(mark) if mark else first_sum  # without + 0, a float's -0 stays
            for k in range(0, depth, CHUNK_DEPTH):
                count = min(CHUNK_DEPTH, depth - k)
                ks, its_rows = left_columns[k : k + count], left_rows[first : first + lanes]
                # Lines of a chunk of k: sums go on from chunk to chunk, in the order of k.
                _pack(data, batch * left_stride, its_rows, ks, left_scale, lines)
                if half:
                    as_halves(address(lines), count)
                for i in range(0, together * LANES, height):
                    add_gathered(
                        adder,
                        address(factors) + factors.itemsize * batch * right_stride,
                        address(offsets) + offsets.itemsize * i,
                        address(right_rows) + right_rows.itemsize * k,
                        address(lines),
                        count,
                        low,
                        high,
                        address(sums) + sums.itemsize * i * PANEL_COLUMNS,
                        address(hit) + hit.itemsize * i * PANEL_COLUMNS,
                    )
            for i in range(0, together * LANES, LANES):
                finish_in_order(
                    adder,
                    address(sums) + sums.itemsize * i * PANEL_COLUMNS,
                    address(hit) + hit.itemsize * i * PANEL_COLUMNS,
                    drop_bits,
                    lsb,
                    out.dtype,
                    address(results),
                    PANEL_COLUMNS,
                    address(hits),
                    LANES,
                    PANEL_COLUMNS,
                )
                column = block * LANES + i
                to, written = (batch * out.shape[1] + first) * width + column, min(LANES, width - column)
                spread(out.dtype, address(results), address(out) + out.itemsize * to, width, lanes, written)
                if touching:
                    spread(touched.dtype, address(hits), address(touched) + to, width, lanes, written)
            if comparing:
                # The next items begin without marks.
                hit[:] = 0
            item += together

    return run


def _room_for(adder: str, out: Array) -> tuple[Array, ...]:
    """Return the arrays in which the loop of an adder works."""
    lane, most = line_dtype(adder), MOST_BLOCKS * LANES
    lines, sums = np.empty((CHUNK_DEPTH, PANEL_COLUMNS), lane), np.empty((most, PANEL_COLUMNS), lane)
    hit = np.zeros((most if adder in COMPARING else 1, PANEL_COLUMNS), np.uint32)
    results, hits = np.empty((LANES, PANEL_COLUMNS), out.dtype), np.empty((LANES, PANEL_COLUMNS), np.uint8)
    return lines, sums, hit, np.empty(most, np.int64), results, hits


@part
def _pack(data: Any, base: int, rows: Any, columns: Any, scale: float, lines: Any) -> None:
    """Write elements of 1..32 rows, times `scale`, beside each other: a line for each column. The last is repeated."""
    lane, apart = lines.dtype.type, rows[rows.size - 1] - rows[0]
    # Rows may lie anywhere; if they are equally far apart, squares are transposed in registers.
    apart = apart // (rows.size - 1) if rows.size > 1 else 0
    is_even = are_apart(rows, apart)
    for first in range(0, columns.size, LANES):
        ks = columns[first : first + LANES]
        in_squares = is_even and ks.size == LANES and are_apart(ks, 1)
        for half in range(0, PANEL_COLUMNS, LANES):
            top = min(half, rows.size - 1)
            if in_squares:
                source = address(data) + data.itemsize * (base + rows[top] + ks[0])
                target = address(lines) + lines.itemsize * (first * PANEL_COLUMNS + half)
                count = min(LANES, rows.size - top)
                transpose_scaled(source, apart, count, scale, lines.dtype, target, PANEL_COLUMNS)
            else:
                for k in range(ks.size):
                    for n in range(LANES):
                        place = base + rows[min(top + n, rows.size - 1)] + ks[k]
                        lines[first + k, half + n] = lane(data[place] * scale)


def add_transposed(
    adder: str,
    left: Array | Gathered,
    right: Array | Gathered,
    scales: tuple[float, float, float],
    limits: tuple[float, float, int, float],
    first_sums: Array,
    out: Array,
    touched: Array,
) -> None:
    """Write the sums of products of matrices.

    Args:
        adder: a key of `ordered_tiles.ADDERS`.
        left: float32, (B, M, K).
        right: float32, (B, K, N).
        scales: what left operands, right ones and first sums are multiplied by.
        limits: smallest and largest sum, bits that a word drops, value of the last place.
        first_sums: (B or 1, M or 1, N or 1).
        out: sums, (B, M, N).
        touched: uint8, where a limit was touched, (B, M, N); of other accumulators nothing, (1, 1, 1).
    """
    source, lines = as_gathered(right), as_gathered(left)
    factors = only_read(source.data)
    # Factors are the right data itself, or a converted copy of all of it: offsets stay the same.
    if factor_dtype(adder) != factors.dtype or scales[1] != 1.0:
        data, factors = factors, empty(source.data.shape, factor_dtype(adder))
        make = _factor_loops(adder)
        over_ranges(lambda _, i, j: make(data, scales[1], factors, i, j), data.size, 1, GRAIN_ELEMENTS)
    loop, batches, width = _row_loops(adder), out.shape[0], out.shape[2]
    right_place = factors, source.step, source.rows, source.columns
    left_place = only_read(lines.data), lines.step, lines.rows, lines.columns, scales[0]
    given = (*right_place, *left_place, first_sums, scales[2], *limits, out, touched)
    items = batches * -(-lines.rows.size // PANEL_COLUMNS) * -(-width // LANES)
    grain = max(1, GRAIN_MACS // max(source.rows.size * LANES * PANEL_COLUMNS, 1))
    over_ranges(lambda _, i, j: loop(*_room_for(adder, out), *given, i, j), items, 1, grain)
