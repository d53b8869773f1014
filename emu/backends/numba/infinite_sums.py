"""Which accumulators became infinite from finite terms: the flag `accumulator_overflow` of floats, counted afterwards.

An accumulator that is infinite or NaN never becomes finite again. So fast loops need not look at each add:

    contents all finite                            nothing overflowed
    content not finite, its operands all finite    its accumulator overflowed
    content not finite, nor is an operand          a bound shows that it did not, or the terms are added once more

Loops that round by general code (ordered.py, dot_add.py) mark each add that becomes infinite. They add once more if
`_add_again` does not know the unit.

Source: docs/concepts/flags.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import MacCode, RandomCode, Write
from emu.backends.numba.compiling import kernel, over_ranges
from emu.backends.numba.gathering import materialised
from emu.backends.numba.ways import dot_add, in_order, ordered, strips
from emu.backends.product import Product, ProductCode, SparseProduct
from emu.backends.proofs import becomes_infinite
from emu.backends.reference import sparse as definition_of_sparse
from emu.backends.reference.accumulators import any_operand
from emu.backends.reference.products import ordered_sums

Array = NDArray[Any]
Mask = NDArray[np.bool_]
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 17
#: Natural logarithm of a sum's growth by roundings, beyond which no bound is tried.
MOST_GROWTH = bounded(100, 1, 700, "float64 holds its power of e")


def hides(mac: MacCode) -> str:
    """Return why contents do not show that a product or sum became infinite; "" if they do."""
    shows = all(s.format.has_nan for s in (mac.product, mac.accumulator) if s is not None and becomes_infinite(s))
    return "" if shows else "without NaN, an accumulator does not show that it became infinite"


def overflowed(contents: Array, product: Product, write: Write) -> Mask:
    """Return which (B, M, N) contents became infinite from finite terms.

    Args:
        contents: of accumulators, float.
        product: whose unit's contents show it; see `hides`.
        write: with the Philox numbers of the product.
    """
    a, b = product.stacks(materialised)
    infinite = is_special(contents)
    # Of finite operands, only an overflow makes infinity or NaN; otherwise an operand may have made it.
    unclear = infinite & any_operand(is_special, a, b, product.addend, contents.shape)
    marks = infinite & ~unclear
    if not unclear.any() or _stays_finite(a, b, product.addend, product.code):
        return marks
    return marks | (unclear & _added_again(unclear, product, write))


def _added_again(unclear: Mask, product: Product, write: Write) -> Mask:
    """Return where a finite product or sum becomes infinite; only unclear contents are examined."""
    a, b = product.stacks(materialised)
    addend, code, mac = product.addend, product.code, product.code.mac
    # A unit that adds floats in order adds the unclear outputs alone; any other computes all of them again.
    unit = in_order.unit_for(mac, code.formats)
    if unit is not None and unit.kind != in_order.FIXED:
        # Indices in C order of (B, M, N).
        outputs, third = np.flatnonzero(unclear), np.zeros((1, 1, 1), np.float32) if addend is None else addend
        marks = np.zeros(unclear.size, np.uint8)

        def work(_: int, start: int, stop: int) -> None:
            _add_again(a, b, third, outputs[start:stop], unit, mac.product is not None, marks)

        over_ranges(work, outputs.size, 1, max(1, GRAIN_MACS // max(a.shape[2], 1)))
        return marks.reshape(unclear.shape) != 0
    if mac.order == k.BLOCKS:
        touched = dot_add.contents(product, write).touched
    elif ordered.declines(code, write.stage) is None:
        touched = ordered.contents(product, write).touched
    else:
        touched = ordered_sums(a, b, addend, code, write.random)[1]
    return np.zeros(unclear.shape, bool) if touched is None else touched != 0


@kernel
def _add_again(a: Any, b: Any, addend: Any, outputs: Any, unit: Any, rounds_products: bool, marks: Any) -> None:
    """Mark the outputs, given by their indices, whose sums become infinite from finite terms, in a sequential unit.

    After the first operand that is not finite, no sum is; but a product that is rounded may still overflow.
    """
    rows, columns, depth = a.shape[1], b.shape[2], a.shape[2]
    for output in outputs:
        batch, row, column = output // (rows * columns), output // columns % rows, output % columns
        start = np.float64(addend[batch % addend.shape[0], row % addend.shape[1], column % addend.shape[2]])
        acc = in_order.rounded(start, unit)
        hit = np.isfinite(start) and not np.isfinite(acc)
        for k_index in range(depth):
            x, y = np.float64(a[batch, row, k_index]), np.float64(b[batch, k_index, column])
            is_finite = np.isfinite(x) and np.isfinite(y)
            product = x * y
            if rounds_products:
                product = np.float64(np.float32(product))
                hit |= is_finite and not np.isfinite(product)
            # The sum stays infinite: only a product that is rounded, of finite factors, can still overflow.
            if not np.isfinite(acc):
                if hit or not rounds_products:
                    break
                continue
            acc = in_order.rounded(in_order.added(acc, product, unit), unit)
            hit |= is_finite and not np.isfinite(acc)
        marks[output] = hit


def overflowed_sparse(contents: Array, product: SparseProduct, random: RandomCode) -> Mask:
    """Return which (R, H) contents of a sparse product became infinite from finite terms.

    Args:
        contents: of accumulators, float.
        product: whose unit's contents show it; see `hides`.
        random: Philox numbers of the product.
    """
    infinite = is_special(contents)
    unclear = infinite & strips.any_operand(is_special, product)
    if not unclear.any() or _stays_finite(product.data, product.dense, product.addend, product.code):
        return infinite & ~unclear
    # No loop adds single results of a sparse product again: the definition adds all of them.
    touched = definition_of_sparse.sums(product, random)[1]
    return (infinite & ~unclear) | (unclear & (touched is not None and touched))


def can_overflow(mac: MacCode) -> bool:
    """Return whether a product or a sum of a unit may become infinite from finite terms."""
    return becomes_infinite(mac.product) or becomes_infinite(mac.accumulator)


def is_special(x: Array) -> Mask:
    """Return which numbers are infinite or NaN."""
    return ~np.isfinite(x)


def _stays_finite(a: Array, b: Array, addend: Array | None, code: ProductCode) -> bool:
    """Return whether no sum of finite terms can become infinite.

    A sum of magnitudes grows by at most one ulp at each rounding: by a factor of 1 + 2**(1 - p) or, among subnormals,
    by a quantum. There are no more than 2 * depth + 3 roundings, of products and of sums.
    """
    # Bounds of finite terms: `_largest` leaves out infinities and NaN.
    depth, mac = code.depth, code.mac
    product = _largest(a) * _largest(b)
    total = depth * product + (0.0 if addend is None else _largest(addend))
    roundings = 2 * depth + 3
    # Does the largest sum of magnitudes, grown so much, stay below the limit of each stage that writes infinities?
    for stage, bound in ((mac.product, product), (mac.accumulator, total)):
        if stage is None or not becomes_infinite(stage):
            continue
        fmt = stage.format
        quanta = roundings * math.ldexp(1.0, fmt.quantum)
        growth = roundings * sum(2.0 ** (1 - s.format.precision) for s in (mac.product, mac.accumulator) if s)
        limit = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
        # exp(x) >= (1 + x / n)**n; the factor of 2 covers the roundings of this estimate.
        if growth > MOST_GROWTH or not 2 * (bound + quanta) * math.exp(growth) < limit:
            return False
    return True


def _largest(x: Array) -> float:
    magnitudes = np.abs(x.astype(np.float64))
    return float(np.max(magnitudes, initial=0.0, where=np.isfinite(magnitudes)))
