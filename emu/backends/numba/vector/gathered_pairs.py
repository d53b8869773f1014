"""Exact sums of products of 16-bit integers along the rows of a gathered matrix, as gradients of kernels are.

Rows of the left operand lie side by side, and words of two elements (`pairing.py`) of the right one are read at their
offsets. Sums are integers of 32 bits: largest magnitudes prove how many pairs are added up before they join float64
totals, which the planner has proved exact.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, over_ranges, part
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.integer_products import INT32_MAX
from emu.backends.numba.vector.lanes import LANES, address
from emu.backends.numba.vector.ordered_tiles import PAIRS, ROWS, add_gathered, move_sums
from emu.backends.numba.vector.pairing import GRAIN_PAIRS, paired, words_of_elements, words_of_rows
from emu.backends.numba.vector.transposed_products import CHUNK_DEPTH, MOST_BLOCKS
from emu.backends.numba.vector.transposing import are_apart, spread, transpose

Array = NDArray[Any]
#: Fewest pairs between two moves of sums to float64 totals; with fewer these would take as long as the products.
FEWEST_PAIRS = bounded(32, 1, INT32_MAX, "a sum of 32 bits takes at least one pair")
#: How much more than is needed lanes without a row may compute: copying and packing patches takes longer.
SAVED = 8
#: The adders of whole lines, and of their first halves.
WIDE, NARROW = PAIRS


def gathered_applies(left: Gathered, right: Gathered) -> bool:
    """Return whether sums are long, and rows of one left matrix fill lanes well enough."""
    rows, columns = left.rows.size, right.columns.size
    return right.rows.size >= columns and -(-rows // LANES) * LANES <= SAVED * rows


@part
def _pack(data: Any, rows: Any, columns: Any, lanes: int, lines: Any) -> None:
    """Write words of 1..32 rows beside each other: a line for each column. The last is repeated."""
    apart = (rows[rows.size - 1] - rows[0]) // (rows.size - 1) if rows.size > 1 else 0
    is_even = are_apart(rows, apart)
    for first in range(0, columns.size, LANES):
        ks = columns[first : first + LANES]
        in_squares = is_even and ks.size == LANES and are_apart(ks, 1)
        for half in range(0, lanes, LANES):
            whole = in_squares and half + LANES <= rows.size
            if whole:
                source = address(data) + 4 * (rows[half] + ks[0])
                target = address(lines) + 4 * (first * PANEL_COLUMNS + half)
                transpose(lines.dtype, source, apart, target, PANEL_COLUMNS)
            else:
                for n in range(LANES):
                    row = rows[min(half + n, rows.size - 1)]
                    for k in range(ks.size):
                        lines[first + k, half + n] = data[row + ks[k]]


@lru_cache(maxsize=4)
def _gathered_loop(adder: str) -> Any:
    """Return the compiled loop of an adder of pairs."""
    height, narrow = ROWS[adder], adder == NARROW
    # Narrow pairs: up to 16 rows fill half a line, and a tile has twice as many columns.
    lanes_at_once = LANES if narrow else PANEL_COLUMNS

    @kernel
    def run(
        lines: Any,
        sums: Any,
        totals: Any,
        places: Any,
        factors: Any,
        right_rows: Any,
        right_columns: Any,
        data: Any,
        left_rows: Any,
        left_columns: Any,
        chunk: int,
        out: Any,
        start: int,
        stop: int,
    ) -> None:
        """Write the sums of pairs `start` to `stop` - 1 of all results."""
        width = right_columns.size
        blocks, item = (width + LANES - 1) // LANES, 0
        while item < (out.shape[0] + lanes_at_once - 1) // lanes_at_once * blocks:
            panel, block = item // blocks, item % blocks
            first, together = panel * lanes_at_once, min(blocks - block, MOST_BLOCKS)
            lanes = min(lanes_at_once, out.shape[0] - first)
            for i in range(together * LANES):
                places[i] = right_columns[min(block * LANES + i, width - 1)]  # those beyond the last fill a tile
            for k in range(start, stop, CHUNK_DEPTH):
                count = min(CHUNK_DEPTH, stop - k)
                _pack(data, left_rows[first : first + lanes], left_columns[k : k + count], lanes_at_once, lines)
                for i in range(0, together * LANES, height):
                    # Bytes of int32 sums; those of the float64 totals are twice as far.
                    tile = 4 * i * PANEL_COLUMNS
                    for part_k in range(0, count, chunk):
                        add_gathered(
                            adder,
                            address(factors),
                            address(places) + 8 * i,
                            address(right_rows) + 8 * (k + part_k),
                            address(lines) + 4 * part_k * PANEL_COLUMNS,
                            min(chunk, count - part_k),
                            0.0,
                            0.0,
                            address(sums) + tile,
                            address(sums),
                        )
                        move_sums(address(sums) + tile, address(totals) + 2 * tile, height, k + part_k == start)
            for i in range(0, together * LANES, LANES):
                column = block * LANES + i
                to, wide = address(out) + 8 * (first * width + column), min(LANES, width - column)
                spread(out.dtype, address(totals) + 8 * i * PANEL_COLUMNS, to, width, lanes, wide)
            item += together

    return run


def gathered_sums(left: Gathered, right: Gathered, scales: tuple[float, float], lsb: float) -> Array | None:
    """Return the sums of products of a matrix with one that is read where it lies, float64 (1, M, N).

    None if 32 bits hold too few of them.

    Args:
        left: float32, (1, M, K).
        right: float32, (1, K, N).
        scales: what makes integers of both.
        lsb: the value of 1 in the sums.
    """
    pairs = paired(right.rows)
    ours, left_bound = words_of_rows(left, pairs, scales[0])
    words, right_bound = words_of_elements(right.data, scales[1], pairs.distance)
    # A pair adds two products: after `chunk` pairs, sums join the float64 totals.
    chunk = min(INT32_MAX // (2 * left_bound * right_bound), CHUNK_DEPTH)
    if chunk < min(FEWEST_PAIRS, pairs.first.size):
        return None
    rows, width = left.rows.size, right.columns.size
    adder = NARROW if rows <= LANES else WIDE
    loop = _gathered_loop(adder)
    given = (words, pairs.offsets, right.columns, ours.data, ours.rows, ours.columns, chunk)
    parts: list[Array] = []  # threads append at once
    most = min(MOST_BLOCKS, -(-width // LANES)) * LANES

    # Threads share the pairs of all sums: each row is packed by the thread alone that reads it, and the parts of a sum
    # are exact, as their sum is.
    def work(_: int, start: int, stop: int) -> None:
        lines, totals = empty((CHUNK_DEPTH, PANEL_COLUMNS), np.int32), empty((most, PANEL_COLUMNS), np.float64)
        its_sums = np.zeros((most, PANEL_COLUMNS), np.int32)  # and 0 again behind each move to totals
        part_sums = np.empty((rows, width))
        loop(lines, its_sums, totals, np.empty(most, np.int64), *given, part_sums, start, stop)
        parts.append(part_sums)

    # A pair meets each row and column once, those beyond the last that fill a tile, too.
    filled_rows = LANES if rows <= LANES else -(-rows // PANEL_COLUMNS) * PANEL_COLUMNS
    grain = max(1, GRAIN_PAIRS // max(filled_rows * -(-width // LANES) * LANES, 1))
    over_ranges(work, pairs.first.size, CHUNK_DEPTH, grain)
    sums = parts[0]
    for part_sums in parts[1:]:
        sums += part_sums
    sums *= lsb
    return sums[None]
