"""Sums of columns in the order that hardware of 64 lanes adds: `lanes(64)` (docs/concepts/products.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Partial sums side by side.
LANES = 64


def column_sums(values: Array) -> Array:
    """Return the sum of each column.

    Lane j starts at +0 and adds rows j, j + 64, ...; then neighbouring lanes are added, six times. Each addition is
    rounded to the dtype.

    Args:
        values: float32 or float64, (columns, rows).

    Returns:
        the same dtype, (columns,).
    """
    columns, rows = values.shape
    lanes = np.zeros((columns, LANES), values.dtype)
    # rows that fill all lanes; what remains is added to the first lanes alone
    whole = rows // LANES * LANES
    for first in range(0, whole, LANES):
        lanes += values[:, first : first + LANES]
    lanes[:, : rows - whole] += values[:, whole:]
    # neighbours are added: 64 lanes become 32, 16, 8, 4, 2, 1
    while lanes.shape[1] > 1:
        lanes = lanes[:, 0::2] + lanes[:, 1::2]
    return lanes[:, 0]


def column_means(values: Array, counted: NDArray[np.bool_] | None = None) -> Array:
    """Return the mean of each column: its sum over the count, one division; 0 if nothing is counted.

    Args:
        values: float32 or float64, (columns, rows).
        counted: which values belong to the mean, +0 is added for the others; None counts all.

    Returns:
        the same dtype, (columns,).
    """
    number = values.dtype.type
    if counted is None:
        counts = np.full(values.shape[0], values.shape[1], values.dtype)
        sums = column_sums(values)
    else:
        counts = counted.sum(axis=1).astype(values.dtype)
        sums = column_sums(np.where(counted, values, number(0)))
    # `where` computes both sides: the larger divisor keeps 0 / 0 from warning.
    return np.where(counts > 0, sums / np.maximum(counts, number(1)), number(0))


def one_nan(x: Array) -> Array:
    """Return the numbers with one NaN, quiet and positive, in place of each NaN: processors write different ones."""
    return np.where(np.isnan(x), x.dtype.type(np.nan), x)
