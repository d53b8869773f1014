"""Windows: terms cut at fixed places, each piece summed exactly in float64.

    term              1 0 1 1 0 1 | 0 1 1 0 0 1 | 1 0 1
    windows           sums[0]     | sums[1]     | sums[2]      multiples of 2**unit, together below 2**(unit + 53)

Adding and subtracting 1.5 * 2**(unit + 52) rounds a term to a multiple of 2**unit; what is left goes to the next
window, whole vectors at a time.

Source: Rump, Ogita & Oishi, "Accurate floating-point summation part I", SIAM J. Sci. Comput. 31(1), 2008 (cutting by a
sum).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from emu.backends.numba.blocks import N_FLAGS
from emu.backends.numba.compiling import kernel
from emu.backends.numba.digits import Writing, write_digits
from emu.backends.numba.terms import copy, fill, load_addend, load_operands, multiply_block, write_block


class Windows(NamedTuple):
    """The windows of one product, as the loops take them."""

    windows: int
    width: int
    lowest: int
    tile: int
    product_needs_odd: int
    addend_parts: int
    writing: Writing


@kernel
def cut(term: Any, sums: Any, cutters: Any, n: int) -> None:
    """Add a block of terms to the windows; the block is used up."""
    last = sums.shape[0] - 1
    for window in range(last):
        cutter = cutters[window]
        row = sums[window]
        for i in range(n):
            part = (term[i] + cutter) - cutter
            row[i] += part
            term[i] -= part
    row = sums[last]
    for i in range(n):
        row[i] += term[i]


@kernel
def sum_range(
    a: Any,
    b: Any,
    high: Any,
    low: Any,
    cutters: Any,
    contents: Any,
    written: Any,
    start: int,
    stop: int,
    unit: Any,
    product: Any,
    draws: Any,
) -> None:
    """Sum the outputs from start to stop, in C order, and write them; `product` is the stage of products or None."""
    rows, depth, columns, tile = a.shape[1], b.shape[1], b.shape[2], unit.tile
    sums = np.empty((unit.windows, tile), np.float64)
    left, right, term = np.empty(tile, np.float64), np.empty(tile, np.float64), np.empty(tile, np.float64)
    scaled, rounded = np.empty(tile, np.float64), np.empty(tile, np.float64)
    random, flags, unseen = np.zeros(tile, np.int64), np.zeros(N_FLAGS, np.int64), np.zeros(tile, np.uint8)
    for at in range(start, stop, tile):
        n = min(tile, stop - at)
        fill(sums.reshape(-1), 0.0, sums.size)
        if unit.addend_parts > 0:
            load_addend(high, rows, columns, at, n, term)
            cut(term, sums, cutters, n)
        if unit.addend_parts > 1:
            load_addend(low, rows, columns, at, n, term)
            cut(term, sums, cutters, n)
        for step in range(depth):
            load_operands(a, b, at, n, step, left, right)
            multiply_block(left, right, term, n, unit.product_needs_odd)
            if product is not None:  # else nothing of this is compiled
                copy(term, left, n)
                write_block(left, term, scaled, rounded, random, n, at, 1 + 2 * step, product, draws, flags, unseen)
            cut(term, sums, cutters, n)
        write_digits(sums, n, at, unit.windows, unit.width, unit.lowest, unit.writing, contents, written)
