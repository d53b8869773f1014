"""Matrices whose elements lie anywhere in an array: patches of images, transposes, copies of neither.

Element (b, i, j) is `data[batch_stride * b + rows[i] + columns[j]]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Gathered:
    """A stack of matrices, by the places of its elements.

    Attributes:
        data: one-dimensional, contiguous.
        batches: how many matrices.
        batch_stride: from one matrix to the next; 0 where all are the same.
        rows: int64, offset of each row.
        columns: int64, offset of each column.
    """

    data: Array
    batches: int
    batch_stride: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Matrices, rows, columns."""
        return self.batches, self.rows.size, self.columns.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.data.dtype

    def array(self) -> Array:
        """Return the matrices themselves, (B, M, K), C-contiguous."""
        places = self.rows[:, None] + self.columns
        if self.batches == 1:
            return self.data[places][None]
        return self.data[(np.arange(self.batches) * self.batch_stride)[:, None, None] + places]

    @classmethod
    def of(cls, x: Array) -> Gathered:
        """Return a stack of matrices, (B, M, K), as places in its memory; copied only if that is not one block."""
        batches = x.shape[0]
        if batches > 1 and x.strides[0] == 0:
            x = x[:1]
        flat = x.ravel(order="K")
        if not np.shares_memory(flat, x) or min(x.strides) < 0:
            x = np.ascontiguousarray(x)
            flat = x.reshape(-1)
        batch, row, column = (int(stride) // x.itemsize for stride in x.strides)
        rows, columns = (np.arange(int(size)) for size in x.shape[1:])
        return cls(flat, batches, batch if x.shape[0] > 1 else 0, rows * row, columns * column)


def array_of(x: Array | Gathered) -> Array:
    """Return a stack of matrices as an array."""
    return x.array() if isinstance(x, Gathered) else x
