"""Exact sums of products of fixed-point words of up to 32 bits, by products of their 16-bit halves.

    x = 2**16 A + a    y = 2**16 B + b    -2**15 <= a, b < 2**15
    sum(x y) = 2**32 sum(A B) + 2**16 (sum(A b) + sum(a B)) + sum(a b)    three integers of at most 53 bits

The three are added and rounded to odd: a stage that `wide_sums.declines` accepts writes that as it would the exact sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import FormatCode, StageCode, Write, encode_format
from emu.backends.memory import empty
from emu.backends.numba import integers
from emu.backends.numba.compiling import BLOCK, kernel, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised
from emu.backends.numba.machine import has_pair_products
from emu.backends.numba.ways.ordered import add_three_to_odd
from emu.backends.product import Formats, Product, ProductCode
from emu.formats import Fixed

Array = NDArray[Any]
HALF_BITS = bounded(16, 16, 16, "the pair instructions take 16 bits; two halves are a word of 32")
#: Most terms of a sum.
MOST_TERMS = bounded(
    1 << 21, 1, 1 << 22, "products of halves are at most 2**30: twice as many in the middle, below 2**53"
)
#: Bits of an addend in last places of the products, which is added to the sum of the lower halves.
ADDEND_BITS = bounded(51, 1, 52, "with 2**21 products of at most 2**30 it stays below 2**53")
#: Results below which a second thread is not worth waking.
GRAIN = 1 << 16
#: See `Way.speed`.
SPEED = 12.0
_HALF = encode_format(Fixed(HALF_BITS, 0))


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None for fixed-point words of at most 32 bits, summed exactly and not divided, else "".

    This way is partial: `choose` takes it only where `wide_sums`, which takes all numbers, does not decline either.
    """
    (a, b, c), mac = product.formats, product.mac
    # `is_exact`: no partial sum rounds, and a way before this one takes it
    if product.is_exact or mac.accumulator is not None or mac.product is not None or product.divisor != 1:
        return ""
    if product.depth > MOST_TERMS or not has_pair_products():
        return ""
    # WRAP keeps the low digits, which a large sum loses as it is rounded to odd
    if stage.overflow == k.WRAP or any(f.is_float or f.width_bits > 2 * HALF_BITS for f in (a, b)):
        return ""
    quantum = a.quantum + b.quantum
    fits = c is None or (not c.is_float and c.quantum >= quantum and c.width_bits + c.quantum - quantum <= ADDEND_BITS)
    return None if fits else ""


def contents(product: Product, write: Write) -> Contents | None:
    """Return exact sums rounded to odd; None if an upper half does not fit 16 bits."""
    a, b = product.stacks(materialised)
    whole = sums(a, b, product.addend, product.code.formats)
    return None if whole is None else Contents(whole)


def sums(a: Array, b: Array, addend: Array | None, formats: Formats) -> Array | None:
    """Return exact (B, M, N) sums, float64 rounded to odd; None if an upper half does not fit 16 bits.

    Args:
        a: (B, M, K) carriers of formats that `declines` does not decline.
        b: (B, K, N).
        addend: (B or 1, M or 1, N or 1), or None.
        formats: formats of the three.
    """
    quantum = formats[0].quantum + formats[1].quantum
    left, right = _halves(a, formats[0]), _halves(b, formats[1])
    if left is None or right is None:
        return None
    # An integer in last places of the products, as `declines` takes no finer addend.
    third = None if addend is None else np.ldexp(np.asarray(addend, np.float64), -quantum)
    weighted: list[Array | float] = [0.0, 0.0, 0.0]  # sums of weight 1, 2**16, 2**32
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            part = integers.exact_sums(x, y, third if i + j == 0 else None, (_HALF, _HALF, None))
            weighted[i + j] = weighted[i + j] + part
    low, middle, high = (
        # of operands with one half the upper sums are still the number 0.0
        np.broadcast_to(part, weighted[0].shape).reshape(-1)  # type: ignore[union-attr]
        for part in weighted
    )
    out = empty(low.shape, np.dtype(np.float64))
    lsb = math.ldexp(1.0, quantum)

    def work(_: int, start: int, stop: int) -> None:
        here = slice(start, stop)
        _join(low[here], middle[here], high[here], lsb, out[here])

    over_ranges(work, out.size, BLOCK, GRAIN)
    return out.reshape((max(a.shape[0], b.shape[0]), a.shape[1], b.shape[2]))


def _halves(x: Array, fmt: FormatCode) -> list[Array] | None:
    """Return the halves of raws, float32, the lower ones first; None if an upper half is too large for 16 bits.

    Raws of a format that fits the lower half have no upper one.
    """
    raws = np.ldexp(x.astype(np.float64), -fmt.quantum)
    if fmt.width_bits - fmt.signed < HALF_BITS:
        return [raws.astype(np.float32)]
    # Rounded to a multiple of 2**16, so that the lower half is signed: from -2**15 on, below 2**15.
    high = np.floor((raws + 2.0 ** (HALF_BITS - 1)) * 2.0**-HALF_BITS)
    if high.size and high.max() >= 2.0 ** (HALF_BITS - 1):
        return None
    return [(raws - high * 2.0**HALF_BITS).astype(np.float32), high.astype(np.float32)]


@kernel
def _join(low: Any, middle: Any, high: Any, lsb: float, out: Any) -> None:
    # 2**32 high + 2**16 middle + low: two exact sums of two (Knuth) leave total + rest + error, the exact sum of three.
    for i in range(out.size):
        x, y, z = high[i] * 4294967296.0, middle[i] * 65536.0, low[i]
        s = y + z
        back = s - y
        error = (y - (s - back)) + (z - back)
        total = x + s
        back = total - x
        rest = (x - (total - back)) + (s - back)
        out[i] = add_three_to_odd(total, rest, error) * lsb + 0.0  # + 0.0: the zero of an exact sum is +0
