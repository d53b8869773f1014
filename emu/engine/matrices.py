"""The operands of a product become stacks of matrices, and the addend gets three axes.

(*batch, M, K) or (K,)         ->  (B or 1, M, K)
(*batch, K, N) or (K,)         ->  (B or 1, K, N)      shapes as in numpy.matmul
what broadcasts to the result  ->  (B or 1, M or 1, N or 1)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import namespace
from emu.backends.gathered import Gathered
from emu.backends.product import Alignment
from emu.errors import ShapeError
from emu.formats import Format

Array = NDArray[np.generic]
Formats = tuple[Format, Format, Format | None]


class Matrices(NamedTuple):
    """What a product multiplies and adds.

    Attributes:
        left: (B or 1, M, K) carriers.
        right: (B or 1, K, N) carriers.
        addend: (B or 1, M or 1, N or 1) carriers, or None.
        formats: of the three.
        shape: of the result that the caller gets; it has as many elements as (B, M, N).
        alignment: exponents of operands that share scales; None of others.
    """

    left: Array | Gathered
    right: Array | Gathered
    addend: Array | None
    formats: Formats
    shape: tuple[int, ...]
    alignment: Alignment | None = None

    @classmethod
    def of(cls, left: Array, right: Array, formats: Formats, addend: Array | None = None) -> Matrices:
        """Return the matrices of operands with shapes as in numpy.matmul.

        Raises:
            ShapeError: the shapes do not fit together.
        """
        a, b, shape, batch = as_batches(left, right)
        if addend is not None:
            addend = as_addend(addend, shape, (*batch, a.shape[1], b.shape[2]))
        return cls(a, b, addend, formats, shape)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Matrices, rows, inner size, columns."""
        left, right = self.left.shape, self.right.shape
        return max(left[0], right[0]), left[1], left[2], right[2]


def as_batches(a: Array, b: Array) -> tuple[Array, Array, tuple[int, ...], tuple[int, ...]]:
    """Return (B, M, K), (B, K, N), the result's shape and its batch shape, as numpy.matmul defines them."""
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(
            f"matmul: operands must have at least one dimension, got shapes {a.shape} and {b.shape}; "
            "emu.multiply multiplies by a number"
        )
    wide_a = a[None, :] if a.ndim == 1 else a
    wide_b = b[:, None] if b.ndim == 1 else b
    m, n = wide_a.shape[-2], wide_b.shape[-1]
    if wide_a.shape[-1] != wide_b.shape[-2]:
        raise ShapeError(
            f"matmul: inner sizes must agree, got shapes {a.shape} and {b.shape}: "
            f"{wide_a.shape[-1]} against {wide_b.shape[-2]}; transpose one of them?"
        )
    # stacks of one matrix each, (1, M, K) and (1, K, N)
    if wide_a.ndim == wide_b.ndim == 2:  # the usual product needs no broadcasting
        whole = (*([m] if a.ndim > 1 else []), *([n] if b.ndim > 1 else []))
        return wide_a[None], wide_b[None], whole, ()
    try:
        batch = np.broadcast_shapes(wide_a.shape[:-2], wide_b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"matmul: batch dimensions must broadcast, got shapes {a.shape} and {b.shape}; give axes of size 1 where "
            "they differ"
        ) from None
    # a vector's axis of size 1 was added above for the kernels: the caller's result does without it
    shape = (*batch, *([m] if a.ndim > 1 else []), *([n] if b.ndim > 1 else []))
    count = math.prod(batch)
    # (count, M, K) and (count, K, N): all axes of the batch become one
    flat_a = namespace(wide_a).broadcast_to(wide_a, (*batch, *wide_a.shape[-2:])).reshape(count, *wide_a.shape[-2:])
    flat_b = namespace(wide_b).broadcast_to(wide_b, (*batch, *wide_b.shape[-2:])).reshape(count, *wide_b.shape[-2:])
    return flat_a, flat_b, shape, batch


def as_addend(array: Array, shape: tuple[int, ...], full: tuple[int, ...]) -> Array:
    """Return an addend with three axes, (B or 1, M or 1, N or 1).

    Args:
        array: what broadcasts to the result.
        shape: of the result.
        full: the same, with the axes of size 1 that operands of one axis have for the kernels.

    Raises:
        ShapeError: it does not broadcast.
    """
    # the addend may be broadcast up to the result, never the result up to a larger addend
    pairs = zip(reversed(array.shape), reversed(shape), strict=False)
    if array.ndim > len(shape) or not all(size in (1, whole) for size, whole in pairs):
        raise _unfit_addend(shape, array.shape)
    if len(shape) < len(full):  # the result of a vector has lost an axis that kernels still have
        array = namespace(array).broadcast_to(array, shape).reshape(full)
    if array.ndim <= 3 and len(full) <= 3:  # kernels broadcast axes of size 1 themselves: no copy
        return array.reshape((1,) * (3 - array.ndim) + array.shape)
    return namespace(array).broadcast_to(array, full).reshape(math.prod(full[:-2]), *full[-2:])


@lru_cache(maxsize=1024)
def require_fit(left: tuple[int, ...], right: tuple[int, ...], addend: tuple[int, ...] | None) -> None:
    """Raise ShapeError unless stacks of matrices fit together: compiled loops would read beyond their ends."""
    stacks = {left[0], right[0]} - {1}
    if left[2] != right[1] or len(stacks) > 1:
        raise ShapeError(
            f"matmul: (B or 1, M, K) must meet (B or 1, K, N), got shapes {left} and {right}; transpose one of them?"
        )
    result = (*(stacks or {1}), left[1], right[2])
    if addend is not None and any(size not in (1, whole) for size, whole in zip(addend, result, strict=True)):
        raise _unfit_addend(result, addend)


def _unfit_addend(result: tuple[int, ...], addend: tuple[int, ...]) -> ShapeError:
    return ShapeError(
        f"matmul: the addend must broadcast to the result {result}, got shape {addend}; give axes of size 1 where they "
        "differ"
    )
