"""Operands of integer products, copied to where dot-product instructions read them.

    raws     carriers -> int8 or int16, each once; their largest magnitudes
    panels   right operand: 32 columns each, 2 or 4 neighbours along k side by side
    rows     left operand: one after the other; full 16-bit ranges as low and high bytes: a = 256 * high + low

Element (b, i, j) of an operand is `data[batch * b + rows[i] + columns[j]]`, which describes patches of images and
transposes without copies. A vector may reach beyond a run of neighbours: the next run overwrites what it writes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, over_ranges, part
from emu.backends.numba.vector.dot_tiles import (
    CONVERTED,
    PANEL_COLUMNS,
    TILE_ROWS,
    WORD_BYTES,
    add_columns,
    convert_raws,
    interleave,
    move_row,
    move_word,
)
from emu.backends.numba.vector.lanes import address

#: Runs of adjacent columns in a panel above which elements are copied one by one.
MOST_RUNS = 12
#: The same if neighbours along k are neighbours in memory, so that a lane's operands are copied as one word.
FEW_RUNS = 4
#: Elements that must follow an operand (zeros), packed rows and panels: a vector may begin at the last of theirs.
SLACK = 2 * PANEL_COLUMNS
#: Words along k whose numbers are added up in 32 bits before the sum moves to 64: four numbers of at most 128 each.
MOST_WORDS = bounded(1 << 22, 1, 1 << 22, "2**22 * 4 * -128 is the lowest int32")
#: Elements below which a second thread is not worth waking.
GRAIN_ELEMENTS = 1 << 20


@kernel
def raws_range(x: Any, scale: float, raws: Any, start: int, stop: int) -> Any:
    """Write carriers times `scale` as integers; return a bound on magnitudes, at most twice the largest, 1 of zeros."""
    whole = (stop - start) // CONVERTED * CONVERTED
    width = raws.itemsize
    bits = convert_raws(
        address(x) + start * x.itemsize, x.dtype, scale, address(raws) + start * width, raws.dtype, whole
    )
    for i in range(start + whole, stop):
        raw = np.int64(x[i] * scale)
        raws[i] = raw
        bits |= raw ^ (raw >> 63)  # x, or -x - 1 if it is negative
    return bits + 1  # the or of such numbers is at least the largest, and below twice as much


def raws_of(data: NDArray[Any], scale: float, kind: np.dtype[Any], rest: int) -> tuple[NDArray[Any], int]:
    """Return carriers times `scale` as integers, and a bound on magnitudes, at most twice the largest (1 of zeros).

    Args:
        data: float32 or float64, as `only_read` returns them.
        scale: a power of two.
        kind: int8 or int16.
        rest: how many zeros follow.
    """
    raws, factor = empty((data.size + rest,), kind), data.dtype.type(scale)
    raws[data.size :] = 0
    bounds = [0]  # threads append at once

    def work(_: int, start: int, stop: int) -> None:
        bounds.append(int(raws_range(data, factor, raws, start, stop)))

    over_ranges(work, data.size, 2 * CONVERTED, GRAIN_ELEMENTS)
    return raws, max(bounds)


@kernel
def find_runs(offsets: Any, first: int, last: int, starts: Any) -> int:
    """Write the starts of runs of adjacent offsets, counted from `first`, and the end; count the runs."""
    count = 0
    for j in range(last - first):
        if j == 0 or offsets[first + j] != offsets[first + j - 1] + 1:
            starts[count] = j
            count += 1
    starts[count] = last - first
    return count


@kernel
def pack_panels(right: Any, batch: int, panels: Any, first: int, last: int, start: int, stop: int, sums: Any) -> None:
    """Pack k from `start` to `stop` of panels `first`..`last`; of 8-bit operands, add up each column.

    Args:
        right: data, stride from one matrix to the next, offsets of rows and of columns of the operand, K x N.
        batch: which matrix.
        panels: (panels, whole words along k * 32), of the operand's dtype.
        first: first panel.
        last: one past the last.
        start: first k, at the beginning of a word.
        stop: one past the last.
        sums: int64, one per column of all panels, added to.
    """
    data, stride, rows, columns = right
    starts = np.empty(PANEL_COLUMNS + 1, np.int64)
    for p in range(first, last):
        column = p * PANEL_COLUMNS
        _pack_panel(data, batch * stride, rows, columns, column, panels[p], start, stop, starts)
        # Words of four bytes: of 16-bit operands, `add_columns` adds nothing.
        words = (stop - start + WORD_BYTES - 1) // WORD_BYTES
        packed = address(panels[p]) + start * PANEL_COLUMNS
        for word in range(0, words, MOST_WORDS):
            several = min(words - word, MOST_WORDS)
            add_columns(data.dtype, packed + word * WORD_BYTES * PANEL_COLUMNS, several, address(sums) + 8 * column)


@part
def _pack_panel(
    data: Any, base: int, rows: Any, columns: Any, first: int, panel: Any, start: int, stop: int, starts: Any
) -> None:
    """Pack one panel.

    A run of adjacent columns is written as a whole vector. After the last k of this range another thread may have
    packed: runs that would reach there are written element by element.
    """
    depth, item = rows.size, data.itemsize
    neighbours = WORD_BYTES // item
    # Columns beyond the last are not packed: their sums are computed of whatever is there, and not written.
    width = min(PANEL_COLUMNS, columns.size - first)
    runs = find_runs(columns, first, first + width, starts)
    origin = address(data) + item * base
    zeros = address(data) + item * (data.size - PANEL_COLUMNS)  # of the `SLACK` after the last element
    for k in range(start, stop, neighbours):
        target = address(panel) + item * k * PANEL_COLUMNS
        # `words`: the neighbours along k exist and follow each other in memory, so that 4 bytes are one move.
        whole = k + neighbours <= depth
        words = whole and _adjacent(rows, k, neighbours)
        # A run that begins at the panel's first column fills it, and does not reach into the next k.
        if runs == 1 or (runs <= (FEW_RUNS if words else MOST_RUNS) and k + neighbours < stop):
            for run in range(runs):
                j = starts[run]
                column = origin + item * columns[first + j]
                # Beyond the last k, zeros are packed: their products add nothing.
                second = column + item * rows[k + 1] if k + 1 < depth else zeros
                third = column + item * rows[k + 2] if k + 2 < depth else zeros
                fourth = column + item * rows[k + 3] if k + 3 < depth else zeros
                interleave(data.dtype, (column + item * rows[k], second, third, fourth), target + WORD_BYTES * j)
        elif words:
            row = origin + item * rows[k]
            for j in range(width):
                move_word(row + item * columns[first + j], target + WORD_BYTES * j)
        else:
            for j in range(width):
                element = base + columns[first + j]
                for i in range(neighbours):
                    value = data[element + rows[k + i]] if k + i < depth else data[0] * 0
                    panel[k * PANEL_COLUMNS + neighbours * j + i] = value


@part
def _adjacent(offsets: Any, first: int, count: int) -> bool:
    adjacent = True
    for i in range(1, count):
        adjacent = adjacent and offsets[first + i] == offsets[first] + i
    return adjacent


@kernel
def pack_rows(
    left: Any, batch: int, first: int, last: int, start: int, stop: int, split: int, packed: Any, plane: int
) -> int:
    """Pack k from `start` to `stop` of rows; return the bytes from one row to the next, whole words.

    Elements of 16 bits stay or, if `split`, become low and high bytes, both signed; 128 is added to elements of 8 bits,
    which makes them unsigned.

    Args:
        left: data, stride from one matrix to the next, offsets of rows and of columns of the operand, M x K.
        batch: which matrix.
        first: first row.
        last: one past the last.
        start: first k.
        stop: one past the last.
        split: whether elements become two bytes.
        packed: room for all rows, and `SLACK` after them; twice that if split.
        plane: index of the first high byte.
    """
    data, stride, rows, columns = left
    item = data.itemsize
    neighbours = WORD_BYTES // item
    # Whole words: an instruction takes 2 or 4 neighbours along k.
    length = (stop - start + neighbours - 1) // neighbours * neighbours
    starts = np.empty(stop - start + 1, np.int64)
    runs = find_runs(columns, start, stop, starts)
    for i in range(first, last):
        source = address(data) + item * (batch * stride + rows[i])
        low = address(packed) + item * (i - first) * length
        for run in range(runs):
            at, count = starts[run], starts[run + 1] - starts[run]
            element = source + item * columns[start + at]
            move_row(data.dtype, element, low + item * at, low + item * (plane + at), count, split)
        for k in range(stop - start, length):  # zeros, as the panel may hold anything there
            packed[(i - first) * length + k] = 0
            if split:
                packed[plane + (i - first) * length + k] = 0
    return item * length


@kernel
def room_of_rows(count: int, depth: int) -> int:
    """Return how many elements a plane of packed rows, in whole blocks, takes."""
    blocks = (count + TILE_ROWS - 1) // TILE_ROWS
    return blocks * TILE_ROWS * (depth + WORD_BYTES) + SLACK
