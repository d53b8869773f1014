"""Quantizing into formats whose elements share scales: float32 in, elements and scales out, as a user calls it.

Beside it a streaming copy of the numbers, which reads and writes as much. Formats with a number for the whole tensor
read all numbers once more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.measuring.arrays import SEED, aligned
from benchmarks.measuring.limits import streaming_copy
from benchmarks.measuring.row import Prepared, Row, Side
from emu.engine import quantize

#: Rows and columns of a matrix, of one that a last-level cache holds, and of a quick look.
SIZE, CACHED, QUICK = 1 << 12, 1 << 10, 1 << 7
BAR, GOAL = 0.5, 0.85


def scaled(fmt: str, size: int) -> Callable[[bool], Prepared]:
    """Return what prepares `emu.quantize` of a square matrix along its last axis, beside a copy of it."""

    def prepare(quick: bool) -> Prepared:
        side = QUICK if quick else size
        x = aligned((side, side))
        x[...] = np.random.default_rng(SEED).standard_normal(x.shape, np.float32)
        return Prepared(None, Side("emu", lambda: quantize(x, fmt, axis=-1), x.size), streaming_copy(x))

    return prepare


def rows() -> list[Row]:
    """Return the rows of scaled formats."""
    formats = {"mxfp8": "mxfp8_e4m3", "mxfp8-rceil": "mxfp8_e4m3 rceil", "nvfp4": "nvfp4"}
    return [
        Row(f"scaled/{name}-{size}", f"float32 to {fmt}, {size} x {size}", "GElem/s", scaled(fmt, size), BAR, GOAL)
        for name, fmt in formats.items()
        for size in (SIZE, CACHED)
    ]
