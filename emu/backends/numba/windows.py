"""Windows: terms are cut at fixed binary places, and the pieces of each window summed exactly in float64.

    term              1 0 1 1 0 1 | 0 1 1 0 0 1 | 1 0 1
    windows           sums[0]     | sums[1]     | sums[2]      multiples of 2**last, their sums below 2**(last + 53)

Adding and subtracting 1.5 * 2**(last + 52) rounds a term to a multiple of 2**last; the rest goes to the next window,
whole vectors at a time.

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
    """The windows of one product, as the loops take them.

    Attributes:
        windows: how many.
        width: bits from the last place of a window to that of the next.
        lowest: exponent of the last window's last place.
        tile: outputs that are summed together.
        product_needs_odd: 1 if products of more than 53 bits are rounded to odd before their stage rounds them.
        addend_parts: float64 arrays that make up the addend; 0 without one.
        writing: what becomes of sums.
    """

    windows: int
    width: int
    lowest: int
    tile: int
    product_needs_odd: int
    addend_parts: int
    writing: Writing


@kernel
def cut(term: Any, sums: Any, cutters: Any, n: int) -> None:
    """Add a block of terms to the windows; the block is overwritten."""
    # LLVM must not simplify (x + c) - c to x: `kernel` allows no reassociation here.
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
    layout: Any,
    product: Any,
    draws: Any,
) -> None:
    """Sum outputs `start`..`stop`, in C order, and write them; `product` is the stage of products, or None."""
    rows, depth, columns, tile = a.shape[1], b.shape[1], b.shape[2], layout.tile
    sums = np.empty((layout.windows, tile), np.float64)
    left, right, term = np.empty(tile, np.float64), np.empty(tile, np.float64), np.empty(tile, np.float64)
    scaled, rounded = np.empty(tile, np.float64), np.empty(tile, np.float64)
    random, flags, unseen = np.zeros(tile, np.int64), np.zeros(N_FLAGS, np.int64), np.zeros(tile, np.uint8)
    # An output's windows are in different rows of `sums`, its terms in the same place of each block.
    for at in range(start, stop, tile):
        n = min(tile, stop - at)
        fill(sums.reshape(-1), 0.0, sums.size)
        if layout.addend_parts > 0:
            load_addend(high, rows, columns, at, n, term)
            cut(term, sums, cutters, n)
        # What is left of an addend of 64 bits (`terms.in_two_parts`).
        if layout.addend_parts > 1:
            load_addend(low, rows, columns, at, n, term)
            cut(term, sums, cutters, n)
        for k_index in range(depth):
            load_operands(a, b, at, n, k_index, left, right)
            multiply_block(left, right, term, n, layout.product_needs_odd)
            if product is not None:  # Numba compiles none of this for None
                # `left` has been read: it takes the products while their stage writes `term`.
                copy(term, left, n)
                draw = 1 + 2 * k_index
                write_block(left, term, scaled, rounded, random, n, at, draw, product, draws, flags, unseen)
            cut(term, sums, cutters, n)
        write_digits(sums, n, at, layout.windows, layout.width, layout.lowest, layout.writing, contents, written)
