"""What the machine can do: a streaming copy, the float products of its BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring.arrays import aligned
from benchmarks.measuring.row import Side
from benchmarks.measuring.streaming_copy import copy, fastest_way

Array = NDArray[Any]


def streaming_copy(x: Array) -> Side:
    """Return the fastest copy of `x`, float32, into another array."""
    target, way = aligned(x.shape), fastest_way(x.size)
    return Side(f"copy ({way})", lambda: copy(way, target, x), x.size)


def blas_product(m: int, k: int, n: int, dtype: type[np.floating[Any]]) -> Side:
    """Return NumPy's product of two matrices of float32 (sgemm) or float64 (dgemm), into an array that is there."""
    draw = np.random.default_rng(0).standard_normal
    a, b, out = draw((m, k)).astype(dtype), draw((k, n)).astype(dtype), np.zeros((m, n), dtype)
    return Side("sgemm" if dtype is np.float32 else "dgemm", lambda: np.matmul(a, b, out=out), m * k * n)
