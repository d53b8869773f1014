"""Matrices whose elements lie anywhere in an array: patches of images and transposes, without a copy.

Element (b, i, j) is `data[batch_stride * b + rows[i] + columns[j]]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous, is_lasting, lasting
from emu.errors import ShapeError

Array = NDArray[Any]


@dataclass(eq=False)  # not frozen, which takes four times as long to make: each product makes four; nobody changes one
class Gathered:
    """A stack of matrices, given by the offsets of its elements in an array.

    Attributes:
        data: one-dimensional, contiguous.
        batches: how many matrices.
        batch_stride: from one matrix to the next; 0 if all are the same.
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
        """Dtype of the elements."""
        return self.data.dtype

    def require_inside(self) -> None:
        """Raise ShapeError unless every element lies in the data: compiled loops would read beyond its end."""
        if 0 in self.shape:
            return
        # a negative stride puts the last matrix before the first
        last, size = (self.batches - 1) * self.batch_stride, self.data.size
        (first_row, last_row), (first_column, last_column) = _range_of(self.rows), _range_of(self.columns)
        least, most = min(last, 0) + first_row + first_column, max(last, 0) + last_row + last_column
        if least < 0 or most >= size:
            raise ShapeError(
                f"gathered matrices must lie in their data, places 0..{size - 1}, got places {least}..{most}; choose "
                "other offsets"
            )

    @property
    def step(self) -> int:
        """By how many elements a matrix begins after the one before; 0 if a single matrix stands for all."""
        # the stride of one matrix means nothing
        return self.batch_stride if self.batches > 1 else 0

    def reach(self) -> int | None:
        """Return how many elements a matrix may read, from its first on; None if it reads earlier ones, or nothing."""
        if 0 in self.shape:
            return None
        (first_row, last_row), (first_column, last_column) = _range_of(self.rows), _range_of(self.columns)
        # a matrix that reads before its first element has no reach
        return None if first_row + first_column < 0 else last_row + last_column + 1

    def array(self) -> Array:
        """Return the matrices themselves, (B, M, K), C-contiguous."""
        # (M, K) places of the first matrix
        places = self.rows[:, None] + self.columns
        if self.batches == 1:  # the usual case needs no offsets of three axes
            return self.data[places][None]
        return self.data[(np.arange(self.batches) * self.batch_stride)[:, None, None] + places]

    @classmethod
    def of(cls, x: Array) -> Gathered:
        """Return a stack of matrices, (B, M, K), as offsets in its memory; copied only if that is not one block."""
        if is_lasting(x):
            # the key is the object, which the cache keeps alive, so that its `id` stays its own
            return _of_lasting(Same(x))
        return cls._of(x)

    @classmethod
    def _of(cls, x: Array) -> Gathered:
        batches = x.shape[0]
        x = x[:1] if batches > 1 and x.strides[0] == 0 else x  # one matrix, broadcast
        x, flat = _in_one_block(x)
        batch, row, column = (stride // x.itemsize for stride in x.strides)
        # strides in elements; the stride of an axis of size 1 means nothing, and NumPy may give any
        return cls(flat, batches, batch if x.shape[0] > 1 else 0, _steps(x.shape[1], row), _steps(x.shape[2], column))

    @classmethod
    def of_axes(cls, x: Array, rows: tuple[int, ...], columns: tuple[int, ...]) -> Gathered:
        """Return an array as one matrix: some axes, in C order, down its rows, the others along its columns."""
        x, flat = _in_one_block(x)
        strides = [int(stride) // x.itemsize for stride in x.strides]
        down, along = (_offsets(tuple([(x.shape[a], strides[a]) for a in axes])) for axes in (rows, columns))
        return cls(flat, 1, 0, down, along)

    def joined(self) -> Gathered:
        """Return the matrices side by side as one: (1, M, B * K)."""
        # the columns of each matrix follow those of the one before
        columns = _over_batches(Same(self.columns), self.batches, self.batch_stride)
        return Gathered(self.data, 1, 0, self.rows, columns)

    def transposed(self) -> Gathered:
        """Return each matrix transposed."""
        return Gathered(self.data, self.batches, self.batch_stride, self.columns, self.rows)


class Same:
    """An array as a key of a cache: two are equal if they are the same object."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __hash__(self) -> int:
        return id(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.array is other.array


@lru_cache(maxsize=32)
def _over_batches(offsets: Same, batches: int, stride: int) -> NDArray[np.int64]:
    """Return the offsets of every matrix, one after the other. They are shared: a device keeps a copy."""
    return lasting((np.arange(batches)[:, None] * stride + offsets.array).reshape(-1))


@lru_cache(maxsize=64)
def _of_lasting(x: Same) -> Gathered:
    """Return the offsets in a stack that never changes; its data are lasting, too."""
    stack = Gathered._of(x.array)  # pyright: ignore[reportPrivateUsage]
    return replace(stack, data=lasting(stack.data))


def _range_of(offsets: NDArray[np.int64]) -> tuple[int, int]:
    """Return the least and the largest offset."""
    return _range_of_lasting(Same(offsets)) if is_lasting(offsets) else (int(offsets.min()), int(offsets.max()))


@lru_cache(maxsize=1024)
def _range_of_lasting(offsets: Same) -> tuple[int, int]:
    return int(offsets.array.min()), int(offsets.array.max())


@lru_cache(maxsize=1024)
def _steps(size: int, stride: int) -> NDArray[np.int64]:
    """Return equally spaced offsets. They are shared, but not read-only: Numba would compile every kernel for both."""
    return lasting(np.arange(size) * stride)


def _in_one_block(x: Array) -> tuple[Array, Array]:
    """Return an array whose elements fill one block of memory, first element first, and that block."""
    # positive strides alone: a reversed axis is no permutation of memory
    if not x.flags.c_contiguous and x.size and min(x.strides) > 0:
        # by falling strides the axes lie as in memory: a transposed array is then in C order
        memory = x.transpose(sorted(range(x.ndim), key=lambda axis: -x.strides[axis]))
        if memory.flags.c_contiguous:
            return x, memory.reshape(-1)
    x = contiguous(x)
    return x, x.reshape(-1)


@lru_cache(maxsize=64)
def _offsets(axes: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Return the offsets of axes of some sizes and strides, in C order. They are shared, as those of `_steps`."""
    places = np.zeros(1, np.int64)
    for size, stride in axes:
        # the last axis is contiguous in the result: C order
        places = (places[:, None] + np.arange(size) * stride).reshape(-1)
    return lasting(places)


def as_gathered(x: Array | Gathered) -> Gathered:
    """Return an operand of a product as offsets in its memory."""
    return x if isinstance(x, Gathered) else Gathered.of(x)


def stacks_of(
    a: Array | Gathered, b: Array | Gathered, materialised: Callable[[Gathered], Array] = Gathered.array
) -> tuple[Array, Array]:
    """Return both operands of a product as arrays of the same number of matrices.

    Args:
        a: left operand.
        b: right operand.
        materialised: how a gathered operand becomes an array.
    """
    batches = max(a.shape[0], b.shape[0])  # before copies are made: of the same matrices there is one
    left, right = (materialised(x) if isinstance(x, Gathered) else x for x in (a, b))
    return np.broadcast_to(left, (batches, *left.shape[1:])), np.broadcast_to(right, (batches, *right.shape[1:]))
