"""Exact products of a fixed-point matrix with one column: mostly sums over axes.

The planner has proved that each partial sum is an integer below 2**53 times one power of two: float64 adds exactly, in
any order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.vector.packing import find_runs

Array = NDArray[Any]
#: Neighbours in memory from which on reading them as a run is faster.
FEWEST_NEIGHBOURS = 16
#: Multiply-adds below which a second thread is not worth waking.
GRAIN_MACS = 1 << 20


def applies(left: Gathered, right: Gathered) -> bool:
    """Return whether the right operand is one column, and the left one's rows or columns are neighbours in memory."""
    single = right.columns.size == 1 and max(left.batches, right.batches) == 1
    return single and (are_neighbours(left.columns) or are_neighbours(left.rows))


def are_neighbours(offsets: NDArray[np.int64]) -> bool:
    """Return whether the first `FEWEST_NEIGHBOURS` offsets are those of neighbours in memory."""
    last = min(offsets.size, FEWEST_NEIGHBOURS) - 1
    return last > 0 and bool(offsets[last] - offsets[0] == last)


def sums(left: Gathered, right: Gathered, addend: Array) -> Array:
    """Return the exact sums, float64 (M,).

    Args:
        left: one matrix (M, K), carriers of a fixed format.
        right: one matrix (K, 1).
        addend: float64, (1, 1 or M, 1).
    """
    column = column_of(right)
    out, third, data = empty((left.rows.size,), np.float64), addend.reshape(-1), only_read(left.data)
    # Along the neighbours in memory, of a row or of a column.
    add, align = (_add_rows, 1) if are_neighbours(left.columns) else (_add_columns, FEWEST_NEIGHBOURS)

    def work(_: int, first: int, last: int) -> None:
        add(data, left.rows, left.columns, column, third, first, last, out)

    over_ranges(work, left.rows.size, align, max(1, GRAIN_MACS // max(left.columns.size, 1)))
    return out


def column_of(right: Gathered) -> Array:
    """Return the only column of one matrix as a contiguous array."""
    return np.ascontiguousarray(right.data[right.columns[0] + right.rows])


# The sums are exact: LLVM may add them in lanes.
@partial(kernel, any_order=True)
def _add_rows(data: Any, rows: Any, columns: Any, column: Any, addend: Any, first: int, last: int, out: Any) -> None:
    """Add up rows `first`..`last`, each along its runs."""
    starts = np.empty(columns.size + 1, np.int64)
    runs = find_runs(columns, np.int64(0), columns.size, starts)
    for i in range(first, last):
        total = 0.0
        for run in range(runs):
            at, count = starts[run], starts[run + 1] - starts[run]
            begin = rows[i] + columns[at]
            row, factors = data[begin : begin + count], column[at : at + count]
            for k in range(count):
                total += np.float64(row[k]) * np.float64(factors[k])
        out[i] = total + addend[i % addend.size]


@kernel
def _add_columns(data: Any, rows: Any, columns: Any, column: Any, addend: Any, first: int, last: int, out: Any) -> None:
    """Add up rows `first`..`last` side by side, one k after the other."""
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
