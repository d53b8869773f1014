"""Compiled selections: ReLU, max pooling and its backward pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from emu.backends.numba.compiling import kernel, part
from emu.backends.numba.vector.lanes import LANES, address
from emu.backends.numba.vector.pooling import APART, pool_neighbours, pool_windows

#: Windows of a run from which on loading them together is faster than gathering them.
FEWEST_NEIGHBOURS = 4


@kernel
def write_relu(x: Any, out: Any) -> None:
    """Write x where x > 0 or NaN, else +0."""
    for i in range(x.size):
        if x[i] <= 0:  # two writes: Numba would make one value of both types, float64, which uint64 raws do not fit
            out[i] = 0
        else:
            out[i] = x[i]


@kernel
def write_relu_gradient(g: Any, x: Any, out: Any) -> None:
    """Write g where x > 0, else +0."""
    for i in range(x.size):
        if x[i] > 0:
            out[i] = g[i]
        else:
            out[i] = 0


@kernel
def max_pool_range(
    data: Any, batch_stride: int, rows: Any, columns: Any, best: Any, index: Any, start: int, stop: int
) -> None:
    """Write the maxima and their first positions in windows, each a row of gathered matrices; NaN wins, -0 < +0."""
    for window in range(start, stop):
        # Windows are counted through all images.
        base = window // rows.size * batch_stride + rows[window % rows.size]
        top = data[base + columns[0]]
        position = 0
        for j in range(1, columns.size):
            rival = data[base + columns[j]]
            # NaN wins over numbers, and the first NaN over later ones; -0 == +0, but +0 is the larger.
            wins = rival > top or (rival != rival and top == top)
            if rival == top and rival == 0:
                wins = math.copysign(1.0, top) < 0.0 and math.copysign(1.0, rival) > 0.0
            if wins:
                top = rival
                position = j
        best[window] = top
        index[window] = position


@part
def _find_neighbours(rows: Any, starts: Any) -> int:
    """Write the starts of runs of up to 16 windows, each `APART` after the one before, and the end; count the runs."""
    count = 0
    for i in range(rows.size):
        if i == 0 or rows[i] != rows[i - 1] + APART or i - starts[count - 1] == LANES:
            starts[count] = i
            count += 1
    starts[count] = rows.size
    return count


@kernel
def max_pool_in_lanes(
    data: Any, batch_stride: int, rows: Any, columns: Any, best: Any, index: Any, start: int, stop: int
) -> None:
    """Write maxima of floats as `max_pool_range` does, up to sixteen windows of an image at once."""
    starts = np.empty(rows.size + 1, np.int64)
    runs = _find_neighbours(rows, starts)
    # Runs are those of one image: all images have the same offsets.
    are_neighbours = runs * FEWEST_NEIGHBOURS <= rows.size
    at = start
    while at < stop:
        image, first = at // rows.size, at % rows.size
        last = min(rows.size, first + stop - at)
        origin, target = address(data) + data.itemsize * image * batch_stride, image * rows.size
        if are_neighbours:
            # A run has at most 16 windows: run r ends at 16 * (r + 1) or before, and those left out before `first`.
            for run in range(first // LANES, runs):
                begin, end = max(starts[run], first), min(starts[run + 1], last)
                if begin >= end:
                    continue
                pool_neighbours(
                    data.dtype,
                    origin + data.itemsize * rows[begin],
                    address(columns),
                    columns.size,
                    address(best) + best.itemsize * (target + begin),
                    index.dtype,
                    address(index) + index.itemsize * (target + begin),
                    end - begin,
                )
        else:
            whole = (last - first) // LANES * LANES
            pool_windows(
                data.dtype,
                origin,
                address(rows) + rows.itemsize * first,
                address(columns),
                columns.size,
                address(best) + best.itemsize * at,
                index.dtype,
                address(index) + index.itemsize * at,
                whole,
            )
            max_pool_range(data, batch_stride, rows, columns, best, index, at + whole, target + last)
        at = target + last


@kernel
def unpool_range(
    values: Any, index: Any, batch_stride: int, rows: Any, columns: Any, spread: Any, start: int, stop: int
) -> None:
    """Write each value as its window's index-th element; other elements stay, and an index outside writes nothing."""
    at = start
    while at < stop:
        image, first = at // rows.size, at % rows.size
        count = min(rows.size - first, stop - at)
        for i in range(count):
            position = np.int64(index[at + i])
            if 0 <= position < columns.size:
                spread[image * batch_stride + rows[first + i] + columns[position]] = values[at + i]
        at += count
