"""Exact products of a fixed-point matrix with one column: mostly sums over axes.

The planner has proved that each partial sum is an integer below 2**53 times one power of two: float64 adds exactly, in
any order.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_lasting
from emu.backends.gathered import Gathered, Same
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.vector.packing import find_runs

Array = NDArray[Any]
#: Neighbours in memory from which on reading them as a run is faster.
FEWEST_NEIGHBOURS = 16
#: Multiply-adds below which a second thread is not worth waking.
GRAIN_MACS = 1 << 20
#: Stands for a column of ones.
_ONES = np.empty(0, np.float32)


def applies(left: Gathered, right: Gathered) -> bool:
    """Return whether the right operand is one column, and the left one's rows or columns are neighbours in memory."""
    single = right.columns.size == 1 and max(left.batches, right.batches) == 1
    return single and (are_neighbours(left.columns) or are_neighbours(left.rows))


def are_neighbours(offsets: NDArray[np.int64]) -> bool:
    """Return whether the first `FEWEST_NEIGHBOURS` offsets, or all if there are fewer, seem to be neighbours in memory.

    Of these only the first and the last are compared. A wrong answer costs time and changes no result, because
    `find_runs` compares every offset before anything is read.
    """
    last = min(offsets.size, FEWEST_NEIGHBOURS) - 1
    return last > 0 and bool(offsets[last] - offsets[0] == last)


def sums(left: Gathered, right: Gathered, addend: Array) -> Array:
    """Return the exact sums, float64 (M,).

    Args:
        left: one matrix (M, K), carriers of a fixed format.
        right: one matrix (K, 1).
        addend: float64, (1, 1 or M, 1).
    """
    out, third, data = empty((left.rows.size,), np.float64), addend.reshape(-1), only_read(left.data)
    grain = max(1, GRAIN_MACS // max(left.columns.size, 1))
    # Along the neighbours in memory, of a row or of a column.
    if are_neighbours(left.columns):
        starts = _runs_along(left.columns)
        column = _ONES if _are_ones(right) else column_of(right)
        over_ranges(
            lambda _, i, j: _add_rows(data, left.rows, left.columns, starts, column, third, i, j, out),
            left.rows.size,
            1,
            grain,
        )
        return out
    column = column_of(right)
    over_ranges(
        lambda _, i, j: _add_columns(data, left.rows, left.columns, column, third, i, j, out),
        left.rows.size,
        FEWEST_NEIGHBOURS,
        grain,
    )
    return out


def _runs_along(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where runs of neighbours begin, and the end."""
    return _runs_along_lasting(Same(columns)) if is_lasting(columns) else _find_runs_along(columns)


@lru_cache(maxsize=64)
def _runs_along_lasting(columns: Same) -> NDArray[np.int64]:
    return _find_runs_along(columns.array)


def _find_runs_along(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.empty(columns.size + 1, np.int64)
    return starts[: find_runs(columns, 0, columns.size, starts) + 1].copy()


def _are_ones(right: Gathered) -> bool:
    """Return whether an operand is known to be all ones, as those of sums are."""
    return is_lasting(right.data) and _are_lasting_ones(Same(right.data))


@lru_cache(maxsize=64)
def _are_lasting_ones(data: Same) -> bool:
    return bool((data.array == 1).all())


def column_of(right: Gathered) -> Array:
    """Return the only column of one matrix as a contiguous array."""
    return np.ascontiguousarray(right.data[right.columns[0] + right.rows])


# The sums are exact: LLVM may add them in lanes.
@partial(kernel, any_order=True)
def _add_rows(
    data: Any, rows: Any, columns: Any, starts: Any, column: Any, addend: Any, first: int, last: int, out: Any
) -> None:
    """Add up rows `first` to `last` - 1, each along its runs of neighbours, times the column's factors.

    A column without elements (`_ONES`) means that all factors are 1: then nothing is multiplied.
    """
    for i in range(first, last):
        total = 0.0
        for run in range(starts.size - 1):
            at, count = starts[run], starts[run + 1] - starts[run]
            begin = rows[i] + columns[at]
            row = data[begin : begin + count]
            if not column.size:
                for k in range(count):
                    total += np.float64(row[k])
            else:
                factors = column[at : at + count]
                for k in range(count):
                    total += np.float64(row[k]) * np.float64(factors[k])
        out[i] = total + addend[i % addend.size]


@kernel
def _add_columns(data: Any, rows: Any, columns: Any, column: Any, addend: Any, first: int, last: int, out: Any) -> None:
    """Add up rows `first` to `last` - 1 side by side: the elements of one k for all of them, then those of the next."""
    starts = np.empty(last - first + 1, np.int64)
    for run in range(find_runs(rows, first, last, starts)):
        begin, end = first + starts[run], first + starts[run + 1]
        totals = out[begin:end]
        for i in range(totals.size):
            totals[i] = addend[(begin + i) % addend.size]
        for k in range(columns.size):
            start, factor = rows[begin] + columns[k], np.float64(column[k])
            elements = data[start : start + totals.size]
            for i in range(totals.size):
                totals[i] += np.float64(elements[i]) * factor
