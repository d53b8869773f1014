"""Products by BLAS, on the paths whose sums the planner has proved exact in any order."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

from emu.backends.interface import StageCode, Write
from emu.backends.memory import empty
from emu.backends.numba.compiling import over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised
from emu.backends.numba.in_doubles import declines_points
from emu.backends.product import Product, ProductCode

Array = NDArray[Any]
#: Paths, and the float that holds each partial sum.
DTYPES = {"float32_blas": np.dtype(np.float32), "float64_blas": np.dtype(np.float64)}
#: Multiply-adds of a product below which a second thread is not worth waking.
BLAS_GRAIN_MACS = 1 << 23
#: See `Way.speed`.
SPEED = 13.0


@lru_cache(maxsize=1)
def _blas_threads() -> Any:
    # Made once, as it looks through the libraries that the process has loaded.
    return ThreadpoolController()


class _Alone:
    """BLAS runs on one thread, in all threads that compute products: the last of them gives it its threads back.

    The number belongs to the process: each thread would else give back what it found, perhaps the 1 of another.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limiter = _blas_threads().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limiter.restore_original_limits()

    def renew_lock(self) -> None:
        """Make the lock anew, in a forked process: another thread may have had it, which is not there to give it up."""
        self._lock = threading.Lock()


ALONE = _Alone()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ALONE.renew_lock)


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return "" for other paths, or why results would not be written as the exact ones."""
    if product.path not in DTYPES:
        return ""
    return declines_points(product.formats, stage) or None


def contents(product: Product, write: Write) -> Contents:
    """Return exact sums in the path's dtype."""
    a, b = product.stacks(materialised)
    return Contents(exact_sums(a, b, product.addend, DTYPES[product.code.path]))


def exact_sums(a: Array, b: Array, addend: Array | None, dtype: np.dtype[Any]) -> Array:
    """Return exact sums by BLAS; the planner has bounded each partial sum.

    BLAS runs on one thread, and ours share the batch or the rows: two pools of threads would wait for each other.
    """
    batch, rows, columns = a.shape[0], a.shape[1], b.shape[2]
    sums = empty((batch, rows, columns), dtype)
    macs_per_row = max(a.shape[2] * columns, 1)
    # One matrix on the right is converted once, before threads share the rows of the left one.
    whole = b[0].astype(dtype, copy=False) if batch == 1 else None

    def work(_: int, start: int, stop: int) -> None:
        # The operands are finite. But OpenBLAS also computes with what an earlier product left in its buffers, and
        # drops that: a NaN there would raise NumPy's warning, whose state each thread has for itself.
        with np.errstate(invalid="ignore"):
            if whole is not None:
                np.matmul(a[0, start:stop].astype(dtype, copy=False), whole, out=sums[0, start:stop])
                return
            # converted one after the other: a wide copy of all would not stay in the cache
            for i in range(start, stop):
                np.matmul(a[i].astype(dtype, copy=False), b[i].astype(dtype, copy=False), out=sums[i])

    with ALONE:
        if whole is not None:
            over_ranges(work, rows, 1, max(1, BLAS_GRAIN_MACS // macs_per_row))
        else:
            over_ranges(work, batch, 1, max(1, BLAS_GRAIN_MACS // (macs_per_row * max(rows, 1))))
    sums += 0.0 if addend is None else addend.astype(dtype, copy=False)  # + 0.0: an exact accumulator's zero is +0
    return sums
