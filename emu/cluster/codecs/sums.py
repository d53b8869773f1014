"""Sums of columns in float32, in the order that hardware of 64 lanes adds: `lanes(64)` (docs/concepts/products.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Partial sums side by side.
LANES = 64


def column_sums(values: Array) -> Array:
    """Return the sum of every column.

    Lane j starts at +0 and takes rows j, j + 64, ...; then neighbouring lanes are joined, six times. Every addition is
    one of float32.

    Args:
        values: float32, (columns, rows).

    Returns:
        float32, (columns,).
    """
    columns, rows = values.shape
    lanes = np.zeros((columns, LANES), np.float32)
    whole = rows // LANES * LANES
    for first in range(0, whole, LANES):
        lanes += values[:, first : first + LANES]
    lanes[:, : rows - whole] += values[:, whole:]
    while lanes.shape[1] > 1:
        lanes = lanes[:, 0::2] + lanes[:, 1::2]
    return lanes[:, 0]


def column_means(values: Array, counted: NDArray[np.bool_] | None = None) -> Array:
    """Return the mean of every column: its sum over the count, one division; 0 of nothing.

    Args:
        values: float32, (columns, rows).
        counted: which values belong to it, the others add +0; None is all.

    Returns:
        float32, (columns,).
    """
    if counted is None:
        counts = np.full(values.shape[0], values.shape[1], np.float32)
        sums = column_sums(values)
    else:
        counts = counted.sum(axis=1).astype(np.float32)
        sums = column_sums(np.where(counted, values, np.float32(0)))
    return np.where(counts > 0, sums / np.maximum(counts, np.float32(1)), np.float32(0))
