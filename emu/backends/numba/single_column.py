"""Exact products of a fixed-point matrix with one column: sums over axes, mostly.

Every partial sum is an integer below 2**53 in one unit, so float64 adds it exactly, in any order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, over_ranges
from emu.backends.numba.vector.packing import find_runs

Array = NDArray[Any]
#: Neighbours along k from which reading rows where they lie is worth it.
FEWEST_NEIGHBOURS = 16
#: Multiply-adds below which a second thread is not worth waking.
GRAIN_MACS = 1 << 20


def applies(left: Gathered, right: Gathered) -> bool:
    """Return whether the right operand is one column, and the left one's rows lie in memory as runs."""
    places = left.columns[:FEWEST_NEIGHBOURS]
    return (
        right.columns.size == 1
        and max(left.batches, right.batches) == 1
        and places.size == FEWEST_NEIGHBOURS
        and bool(places[-1] - places[0] == FEWEST_NEIGHBOURS - 1)
    )


def sums(left: Gathered, right: Gathered, addend: Array) -> Array:
    """Return the exact sums, float64 (M,).

    Args:
        left: one matrix (M, K), carriers of a fixed format.
        right: one matrix (K, 1).
        addend: float64, (1, 1 or M, 1).
    """
    column = np.ascontiguousarray(right.data[right.columns[0] + right.rows])
    out, rows, third = empty((left.rows.size,), np.float64), left.rows, addend.reshape(-1)
    starts = np.empty(left.columns.size + 1, np.int64)
    runs = find_runs(left.columns, 0, left.columns.size, starts)

    def work(_: int, first: int, last: int) -> None:
        _add_rows(left.data, rows, left.columns, starts, runs, column, third, first, last, out)

    over_ranges(work, rows.size, 1, max(1, GRAIN_MACS // max(left.columns.size, 1)))
    return out


@partial(kernel, any_order=True)
def _add_rows(
    data: Any,
    rows: Any,
    columns: Any,
    starts: Any,
    runs: int,
    column: Any,
    addend: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    for i in range(first, last):
        total = 0.0
        for run in range(runs):
            at, count = starts[run], starts[run + 1] - starts[run]
            begin = rows[i] + columns[at]
            row, factors = data[begin : begin + count], column[at : at + count]
            for k in range(count):
                total += np.float64(row[k]) * np.float64(factors[k])
        out[i] = total + addend[i % addend.size]
