"""Sums of columns in 64 lanes, and one NaN in place of all, in compiled code."""

from __future__ import annotations

from typing import Any

from emu.backends.numba.compiling import kernel
from emu.backends.reference.column_sums import LANES


@kernel
def joined(lanes: Any) -> Any:
    """Return the sum of 64 lanes, neighbours first; the lanes are overwritten."""
    # No lane is overwritten before it is read: 2 * j >= j.
    width = LANES
    while width > 1:
        width //= 2
        for j in range(width):
            lanes[j] = lanes[2 * j] + lanes[2 * j + 1]
    return lanes[0]


@kernel
def quotient(lanes: Any, count: int) -> Any:
    """Return the mean of `count` numbers that were added up in lanes; 0 if there are none."""
    number = lanes.dtype.type
    return joined(lanes) / number(count) if count > 0 else number(0)


@kernel
def one_nan(x: Any, quiet: Any) -> Any:
    """Return a number, and for each NaN the given one."""
    return x if x == x else quiet
