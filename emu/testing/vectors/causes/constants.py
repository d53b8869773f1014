"""Words that are rounded by adding a constant: a wrong one, one added to negative words alike, or a sum that wraps.

7.5 + 1/2 = 8, cut to 8        right for halves that go up
-7.5 + 1/2 = -7, cut to -7     and -7.75 + 1/2 = -7.25 must become -8: cut toward zero it becomes -7
2147483647 + 32768             beyond the 32 bits of the sum: the lowest words
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.causes.rounding import at_rows, rewritten_rows
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask, without_spare_zeros

Array = NDArray[Any]
#: Bits of an exact result below the last place, and bits of a sum that may be too narrow, at most.
MOST_DROPPED, MOST_SUM = 64, 80


def rounding_constants(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of words that are rounded by another constant, or in a sum that is too narrow."""
    d, fmt = e.description, e.format
    if d.is_stochastic or not isinstance(fmt, Fixed) or not all(isinstance(f, Fixed) for f in d.operand_formats):
        return
    if d.operation not in ("quantize", "add", "subtract", "multiply", "fma", "matmul") or not e.steps.inexact.any():
        return
    # the unit's sum ends at the finest digit of any result; `drop` are its digits below the last place of the results
    finest = int(e.exact.exponent[e.steps.nonzero].min())
    drop = int(e.steps.last.max()) - finest
    exact = e.exact.as_object()
    raws: Array = exact.signed() << np.maximum(exact.exponent - finest, 0).astype(object)
    raws = np.where(e.steps.nonzero, raws, 0)
    raws, spare = without_spare_zeros(raws)
    drop -= spare
    if not 0 < drop <= MOST_DROPPED:
        return
    half = 1 << (drop - 1)
    yield "half added to all, then truncated toward zero", _codes(e, _toward_zero(raws + half, drop))
    away = np.where(raws < 0, raws - half, raws + half)
    yield "half added to the magnitude, then cut toward minus infinity", _codes(e, away >> drop)
    for name, constant in (
        ("one bit less than half", half - 1), ("a quarter instead of half", half >> 1),
        ("twice the half", 2 * half), ("all ones", 2 * half - 1),
    ):  # fmt: skip
        yield f"words rounded by adding {name}", _codes(e, (raws + constant) >> drop)
        if name != "twice the half":
            yield (
                f"words rounded by adding {name}, then truncated toward zero",
                _codes(e, _toward_zero(raws + constant, drop)),
            )
    yield from _narrow_sums(e, raws, drop)


def _narrow_sums(e: Evidence, raws: Array, drop: int) -> Iterator[Hypothesis]:
    """Yield the codes of a sum of word and rounding constant that wraps or saturates in the bits of the word."""
    steps = e.steps
    magnitude = steps.magnitude
    # what is right, in last places, signed
    rounded = np.where(e.exact.negative, -magnitude, magnitude)
    up = (rounded << drop) > raws
    widths = {f.width_bits for f in e.description.operand_formats if isinstance(f, Fixed)}
    # two's complement: -2**n needs as many bits as 2**n - 1, both one more for the sign
    needed = max(int(raws.max(initial=0)).bit_length(), int((-raws - 1).max(initial=0)).bit_length()) + 1
    for bits in sorted({width for width in (*widths, needed) if drop < width <= MOST_SUM}):
        # the sum has `bits` bits with the dropped ones: in last places it ends below 2**(bits - drop - 1)
        top = 1 << (bits - drop - 1)
        # the word itself fits, and only the constant carries it out
        over = up.astype(bool) & (rounded >= top).astype(bool) & (raws < top << drop).astype(bool)
        if over.any():
            name = f"the rounding constant added in {bits} bits, a sum that"
            yield f"{name} wraps", _codes(e, np.where(over, rounded - 2 * top, rounded), over)
            yield f"{name} saturates", _codes(e, np.where(over, top - 1, rounded), over)


def _toward_zero(raws: Array, drop: int) -> Array:
    return np.where(raws < 0, -(-raws >> drop), raws >> drop)


def _codes(e: Evidence, words: Array, where: Mask | None = None) -> Codes:
    """Return what is written for other words, given before they are bounded; results that are not finite stay."""
    finite = e.steps.finite if where is None else where
    rows = np.flatnonzero(finite)
    exact = at_rows(e.exact.as_object(), rows)
    exact.negative = (words[rows] < 0).astype(bool)
    exact.significand = np.abs(words[rows])
    exact.exponent = e.steps.last[rows]
    return rewritten_rows(e, rows, exact)
