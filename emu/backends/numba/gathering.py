"""Copy elements lying anywhere into a matrix, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges

Array = NDArray[Any]
#: Elements below which a second thread is not worth waking.
GRAIN_ELEMENTS = 1 << 17


@kernel
def _gather_rows(data: Any, batch_stride: int, rows: Any, columns: Any, out: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        base, line = row // rows.size * batch_stride + rows[row % rows.size], out[row]
        for j in range(columns.size):  # indices without a sign: one below 0 would count from the end
            line[np.uint64(j)] = data[np.uint64(base + columns[np.uint64(j)])]


def materialised(x: Gathered) -> Array:
    """Return gathered matrices as an array, (B, M, K); one matrix if all are the same."""
    # A stride of 0: all matrices are the first.
    batches = x.batches if x.batch_stride else 1
    data, out = only_read(x.data), empty((batches * x.rows.size, x.columns.size), x.dtype)
    grain = max(1, GRAIN_ELEMENTS // max(x.columns.size, 1))
    over_ranges(
        lambda _, start, stop: _gather_rows(data, x.batch_stride, x.rows, x.columns, out, start, stop),
        out.shape[0],
        1,
        grain,
    )
    return out.reshape(batches, x.rows.size, x.columns.size)


def single(x: Array) -> Array:
    """Return matrices, (B, M, K), as they are; as one, (1, M, K), if it stands for all of them."""
    return x[:1] if x.strides[0] == 0 else x
