"""Saturating accumulators without their order: exact sums of outputs that cannot saturate; the others are added again.

    |addend| + sum |a| |b| <= largest     no partial sum leaves the accumulator: the exact sum is its content
    else                                  added again, k = 0, 1, ... K-1, clamped at each add

Where even max|addend| + sum |a| * max |b| of each row stays inside, no output can saturate, and one integer product
computes them. Else another one bounds the outputs; if too many fail the bound, the way that follows adds all in order.

Source: docs/concepts/fast-paths.md.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.interface import MacCode, StageCode, Write
from emu.backends.memory import empty
from emu.backends.modes import moves_exact
from emu.backends.numba import integers
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.ways import in_tiles
from emu.backends.product import Formats, Product, ProductCode

Array = NDArray[Any]
#: What `emu.explain` adds to the proof.
SPARED = "outputs whose own |addend| + sum |a||b| stays inside are exact sums, the others are added again in order"
#: Share of outputs that fail above which adding all in order is cheaper than adding these again.
MOST_REPAIRED = 1 / 64
#: Sums of magnitudes may be too small by this factor.
SHORTFALL = bounded(
    1.0 + 2.0**-13, (2**15 / (2**15 - 1)) ** 2, 2.0, "a raw of -2**15 counts as 2**15 - 1, in both operands"
)
#: Bits in which every sum of the loops is exact.
EXACT_BITS = bounded(52, 1, 52, "an accumulator and a product of so many bits add up below 2**53")
#: Binary points lie nearer to 0 than this.
SCALED_CENTRAL = bounded(200, 1, 300, "products, scaled twice, are normal float64 numbers")
#: Multiply-adds below which a second thread is not worth waking.
GRAIN_MACS = 1 << 17
#: See `Way.speed`.
SPEED = 15.0


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None if the accumulator saturates and never rounds, and integer products can bound it, else ""."""
    if product.is_exact or not _bounds(product.mac, product.formats, product.depth):
        return ""
    tiles = in_tiles.unit_for(product.mac, product.formats)
    # Marked tiles show a touched limit in bits below the word and add with one instruction: nothing is faster.
    return "" if tiles is not None and tiles.adder == "marked" else None


def _bounds(mac: MacCode, formats: Formats, depth: int) -> bool:
    stage = mac.accumulator
    if stage is None or mac.product is not None or mac.order != k.SEQUENTIAL or not integers.applies(formats):
        return False
    a, b, c = formats
    if (
        stage.format.is_float
        or moves_exact(stage)
        or stage.overflow not in (k.SATURATE, k.SATURATE_SYMMETRIC, k.SATURATE_ZERO)
    ):
        return False
    quantum = a.quantum + b.quantum
    if quantum < stage.format.quantum or (c is not None and (c.is_float or c.quantum < stage.format.quantum)):
        return False
    # Of a sum of `depth` products, in last places of the accumulator.
    product_bits = a.width_bits + b.width_bits + quantum - stage.format.quantum + depth.bit_length()
    addend_bits = 0 if c is None else c.width_bits + c.quantum - stage.format.quantum
    central = all(abs(f.quantum) < SCALED_CENTRAL for f in (a, b, stage.format))
    return central and max(product_bits, addend_bits, stage.format.width_bits) < EXACT_BITS


def contents(product: Product, write: Write) -> Contents | None:
    """Return the accumulators' (B, M, N) contents, and where they touched a limit; None if too many outputs might."""
    (a, b), addend, formats = product.gathered(), product.addend, product.code.formats
    stage = product.code.mac.accumulator
    assert stage is not None
    fmt, overflow = stage.format, stage.overflow
    lsb, low = math.ldexp(1.0, fmt.quantum), stage.lowest
    can_be_negative = any(f is not None and f.signed for f in formats)
    # An unsigned accumulator touches its limit 0 at any negative sum: only sums of zeros are safe if there is a sign.
    largest = 0.0 if can_be_negative and not fmt.signed else float(fmt.max_significand)
    # A bound by rows costs one pass over both operands; one by outputs costs another product.
    if _bound_of_rows(a, b, addend) <= largest * lsb:
        return Contents(integers.exact_sums(a, b, addend, formats))
    bounds = integers.exact_sums(a, b, addend, formats, magnitudes=True)
    failing = np.flatnonzero(bounds.reshape(-1) * SHORTFALL > largest * lsb)
    # No bound is too small, so that each output that might saturate fails.
    if failing.size > MOST_REPAIRED * bounds.size:
        return None
    sums = integers.exact_sums(a, b, addend, formats)
    touched = np.zeros(sums.shape, np.uint8)
    third = np.zeros((1, 1, 1)) if addend is None else np.ascontiguousarray(addend)
    flat, hit = sums.reshape(-1), touched.reshape(-1)
    limits = (float(low), float(fmt.max_significand), overflow == k.SATURATE_ZERO, lsb)
    sides = (only_read(a.data), a.step, a.rows, a.columns, only_read(b.data), b.step, b.rows, b.columns)

    def work(_: int, start: int, stop: int) -> None:
        _add_again(*sides, third, failing[start:stop], *limits, flat, hit)

    over_ranges(work, failing.size, 1, max(1, GRAIN_MACS // max(a.columns.size, 1)))
    return Contents(sums, touched)


def _bound_of_rows(a: Gathered, b: Gathered, addend: Array | None) -> float:
    """Return a bound on |addend| + sum |a| |b| of every output, by the largest |b|.

    Float64 holds it exactly: `_bounds` limits its bits.
    """
    matrices, data = a.batches if a.step else 1, only_read(a.data)
    sums = empty((matrices * a.rows.size,), np.float64)
    grain = max(1, GRAIN_MACS // max(a.columns.size, 1))
    over_ranges(lambda _, i, j: _sum_rows(data, a.step, a.rows, a.columns, sums, i, j), sums.size, 1, grain)
    rows, factor, first = (0.0 if x is None or not x.size else float(np.abs(x).max()) for x in (sums, b.data, addend))
    return first + rows * factor


@partial(kernel, any_order=True)
def _sum_rows(data: Any, step: int, rows: Any, columns: Any, sums: Any, start: int, stop: int) -> None:
    """Write the sums of magnitudes of rows start..stop of all matrices: exact, so that any order gives them."""
    for i in range(start, stop):
        base, total = i // rows.size * step + rows[i % rows.size], 0.0
        for k_index in range(columns.size):
            total += abs(np.float64(data[np.uint64(base + columns[k_index])]))
        sums[i] = total


@kernel
def _add_again(
    left: Any,
    left_step: int,
    left_rows: Any,
    left_columns: Any,
    right: Any,
    right_step: int,
    right_rows: Any,
    right_columns: Any,
    addend: Any,
    outputs: Any,
    low: float,
    high: float,
    to_zero: bool,
    lsb: float,
    contents: Any,
    touched: Any,
) -> None:
    rows, columns, scale = left_rows.size, right_columns.size, 1.0 / lsb
    for output in outputs:
        batch, row, column = output // (rows * columns), output // columns % rows, output % columns
        s = np.float64(addend[batch % addend.shape[0], row % addend.shape[1], column % addend.shape[2]]) * scale
        acc = min(max(s, low), high)
        hit = acc != s
        if to_zero and hit:
            acc = 0.0
        from_left, from_right = batch * left_step + left_rows[row], batch * right_step + right_columns[column]
        for i in range(left_columns.size):
            factor = np.float64(left[from_left + left_columns[i]])
            s = acc + factor * scale * np.float64(right[from_right + right_rows[i]])
            acc = min(max(s, low), high)
            if acc != s:
                hit = True
                acc = 0.0 if to_zero else acc
        contents[output] = acc * lsb
        touched[output] = hit
