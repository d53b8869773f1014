"""Exact sums wider than float64, rounded once by the output stage.

    operands ──► products of at most 53 bits ──► windows (windows.py) ──► digits, rounded to odd (digits.py) ──► stage

The largest and the smallest operand determine the number of windows. A stage that `declines` accepts writes a sum
rounded to odd as it would the exact sum. The register observes the same, too: rounding to odd keeps the leading bit,
and makes no power of two.

Source: docs/concepts/products.md; Boldo & Melquiond 2008 (rounding to odd).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import FormatCode, RandomCode, StageCode, Write, encode_format
from emu.backends.numba.compiling import BLOCK, only_read, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.digits import NO_TOP, Writing
from emu.backends.numba.gathering import materialised
from emu.backends.numba.prepared import supports
from emu.backends.numba.terms import (
    ALIGN,
    EXACT_BITS,
    Span,
    decided,
    draws_of,
    flushed,
    in_two_parts,
    products_are_central,
    writer_for,
)
from emu.backends.numba.windows import Windows, sum_range
from emu.backends.product import Formats, Product, ProductCode
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, significand_bits
from emu.formats import PRESETS

Array = NDArray[Any]
FP64 = encode_format(PRESETS["fp64"])
#: Bits from the last place of the smallest term to the top of the largest term.
MAX_SPAN_BITS = bounded(640, 1, 2 * SAFE_EXPONENT, "the highest cutter, 103 bits above the largest term, is finite")
#: Most bits from the last place of a window to that of the next.
MAX_WINDOW_BITS = bounded(51, 1, 51, "rounding to the upper window by a sum needs terms below 2**51 of its units")
#: Bits of a divisor that is no power of two, and most bits of windows whose sums are divided by one.
MAX_DIVISOR_BITS = bounded(24, 1, 24, "a float32 holds every smaller divisor")
MAX_DIVIDED_WINDOW_BITS = bounded(38, 1, 62 - MAX_DIVISOR_BITS, "a remainder and a digit fit 63 bits")
#: Bits of a quotient below the last place of a sum, unless it wraps.
QUOTIENT_BITS = bounded(80, 53 + MAX_DIVISOR_BITS, 400, "a divisor's, and a float64's; the lowest is a normal number")
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 16
#: See `Way.speed`.
SPEED = 0.5
#: Outputs times windows of a tile: as float64, 16 KiB of a first-level cache.
TILE_WINDOWS = 2048


class _Terms(NamedTuple):
    """What is summed: products, rounded if they have a stage, and an addend.

    Attributes:
        left: (B, M, K).
        right: (B, K, N).
        rounding: stage of products, or None.
        addend: float64 arrays that add up to the addend.
        addend_parts: how many of these count.
        span: bounds of all terms.
    """

    left: Array
    right: Array
    rounding: StageCode | None
    addend: tuple[Array, Array]
    addend_parts: int
    span: Span


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return "" for accumulators that round, or why an exact one is left to the reference."""
    if product.is_exact or product.mac.accumulator is not None:
        return ""
    (a, b, c), mac, divisor = product.formats, product.mac, product.divisor
    if a.carries_raws or b.carries_raws:
        return "operands of more bits than float64 holds have no compiled loop"
    if not products_are_central(a, b):
        return "products lie too close to the ends of float64"
    terms = Span.of_product(a, b)
    if mac.product is not None:
        if not supports(mac.product) or not decided(mac.product, terms):
            return "rounding of products is not decided in float64"
        terms = Span.of(mac.product.format)
    spans = [terms] if c is None else [terms, Span.of(c)]
    lowest, top = min(s.lowest for s in spans), max(s.top for s in spans)
    if lowest < -SAFE_EXPONENT or top > SAFE_EXPONENT or top - lowest > MAX_SPAN_BITS:
        return f"exact sums of terms over {top - lowest} bits have no compiled loop"
    # Larger sums saturate, or `digits.wrap` makes them smaller than 2**(span + 2).
    leading = 0 if stage.format.is_float else _span(stage) + (stage.overflow == k.WRAP)
    if not supports(stage) or not decides_in_float64(stage, leading):
        return "the output stage looks at more bits of a sum than float64 holds"
    if divisor & (divisor - 1) and divisor.bit_length() > MAX_DIVISOR_BITS:
        return f"a quotient by {divisor} has no compiled loop"
    return None


def _span(stage: StageCode) -> int:
    """Return the exponent of a fixed format's modulus."""
    return stage.format.width_bits + stage.format.quantum


def _measured(x: Array, fmt: FormatCode) -> Span:
    """Return bounds of the finite values of a carrier array."""
    if fmt.carries_raws:
        return Span.of(fmt)
    magnitude = np.abs(x)
    finite = magnitude < np.inf
    largest = float(np.max(magnitude, initial=0.0, where=finite))
    if largest == 0.0:
        return Span(0, 0)
    smallest = float(np.min(magnitude, initial=largest, where=magnitude > 0.0))
    # frexp: smallest < 2**e has its last place at e - precision, unless the format's is higher.
    lowest = max(fmt.quantum, math.frexp(smallest)[1] - fmt.precision) if fmt.is_float else fmt.quantum
    return Span(lowest, math.frexp(largest)[1])


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0.0)


def _halves(x: Array, bits: int) -> list[Array]:
    """Return two parts of half the bits each whose sum is x, by Veltkamp's splitting; specials stay in the first."""
    # 2**s + 1 leaves the first part 53 - s bits, half of `bits`, and the second the rest.
    wide = _finite(x.astype(np.float64))
    scaled = wide * (math.ldexp(1.0, EXACT_BITS - bits // 2) + 1.0)
    high = scaled - (scaled - wide)
    return [np.where(np.isfinite(x), high, x), wide - high]


def _operands(a: Array, b: Array, formats: Formats, *, splits: bool) -> tuple[Array, Array]:
    """Return operands whose products have at most 53 bits: if they are split, the parts follow each other along k."""
    bits = [min(significand_bits(f), EXACT_BITS) for f in formats[:2]]
    if not splits:
        left, right = [a], [b]
    elif bits[0] + bits[1] // 2 <= EXACT_BITS:
        left, right = [a], _halves(b, bits[1])
    elif bits[0] // 2 + bits[1] <= EXACT_BITS:
        left, right = _halves(a, bits[0]), [b]
    else:
        left, right = _halves(a, bits[0]), _halves(b, bits[1])
    # An infinity meets only the first part of the other operand: a second part may be 0, and 0 * inf is NaN.
    pairs = [
        (x if j == 0 else _finite(x), y if i == 0 else _finite(y))
        for i, x in enumerate(left)
        for j, y in enumerate(right)
    ]
    dtype = np.result_type(*left, *right)
    if len(pairs) == 1:
        return np.ascontiguousarray(a, dtype), np.ascontiguousarray(b, dtype)
    return np.concatenate([x for x, _ in pairs], axis=2), np.concatenate([y for _, y in pairs], axis=1)


def _writing(stage: StageCode, divisor: int, width: int, lowest: int) -> Writing:
    shift = divisor.bit_length() - 1 if divisor & (divisor - 1) == 0 else 0
    rest = 1 if divisor == 1 << shift else divisor
    top = _span(stage) + shift if stage.overflow == k.WRAP and not stage.format.is_float else NO_TOP
    # What wraps keeps its bits below 2**top alone, of which those down to 2**(top - 53) decide, wherever the sum lies.
    below = QUOTIENT_BITS if top == NO_TOP else max(lowest - (top - EXACT_BITS), 0)
    return Writing(rest, shift, 0 if rest == 1 else below // width + 1, top)


def _windows(terms: _Terms, needs_odd: bool, stage: StageCode, divisor: int) -> Windows:
    # A piece is at most 2**(width - 1) last places of its window: half a last place of the window above or, in the
    # first one, a whole term. `count` of them stay below 2**53.
    count, span = terms.left.shape[2] + len(terms.addend), terms.span
    width = min(MAX_WINDOW_BITS, EXACT_BITS + 1 - count.bit_length())
    if divisor & (divisor - 1):
        width = min(width, MAX_DIVIDED_WINDOW_BITS)
    # The last place of the first window is at most width - 1 bits below the largest term.
    windows = 1 + max(0, -(-(span.top - span.lowest - (width - 1)) // width))
    return Windows(
        windows=windows,
        width=width,
        lowest=span.lowest,
        tile=min(BLOCK, max(ALIGN, TILE_WINDOWS // windows // ALIGN * ALIGN)),
        product_needs_odd=int(needs_odd),
        addend_parts=terms.addend_parts,
        writing=_writing(stage, divisor, width, span.lowest),
    )


def contents(product: Product, write: Write) -> Contents:
    """Return the accumulators' (B, M, N) contents, and what the output stage writes; float64 rounded to odd.

    Args:
        product: one that `declines` does not decline.
        write: the output stage, and Philox numbers for stochastic products.
    """
    formats, mac = product.code.formats, product.code.mac
    a, b, addend = flushed(*product.stacks(materialised), product.addend, formats)
    fa, fb, fc = formats
    is_wide = significand_bits(fa) + significand_bits(fb) > EXACT_BITS
    spans = [_measured(a, fa), _measured(b, fb)]
    # Of products: last places and tops add up.
    spans = [Span(spans[0].lowest + spans[1].lowest, spans[0].top + spans[1].top)]
    if mac.product is not None:
        spans = [Span.of(mac.product.format)]
    if addend is not None and fc is not None:
        spans.append(_measured(addend, fc))
    terms = _Terms(
        *_operands(a, b, formats, splits=is_wide and mac.product is None),
        rounding=mac.product,
        addend=in_two_parts(addend, fc),
        addend_parts=0 if fc is None else 1 + fc.carries_raws,
        span=Span(min(s.lowest for s in spans), max(s.top for s in spans)),
    )
    return _sums_of(terms, is_wide and mac.product is not None, write.stage, write.random, product.code.divisor)


def quotients(sums: Array, stage: StageCode, divisor: int) -> Array:
    """Return exact sums divided, rounded to odd; a `stage` that wraps writes them as the exact quotients.

    Args:
        sums: finite float64 or float32 of any shape.
        stage: a fixed-point output stage that float64 decides for results one bit wider than its word.
        divisor: positive integer below 2**24.
    """
    column = sums.reshape(1, -1, 1).astype(np.float64)
    zero = np.zeros((1, 1, 1))
    # Each sum as a product with 1: the windows of one term give its digits, which are divided.
    terms = _Terms(column, np.ones((1, 1, 1)), None, (zero, zero), 0, _measured(column, FP64))
    result = _sums_of(terms, False, stage, RandomCode(0, 0, 0, 0, None), divisor)
    written = result.sums if result.quotients is None else result.quotients
    return written.reshape(sums.shape)


def _sums_of(terms: _Terms, needs_odd: bool, stage: StageCode, random: RandomCode, divisor: int) -> Contents:
    left, right, *addend = map(only_read, (terms.left, terms.right, *terms.addend))
    layout = _windows(terms, needs_odd, stage, divisor)
    # 1.5 * 2**52 last places of each window, the highest first. The last window takes what is left, uncut.
    cutters = np.ldexp(1.5, layout.lowest + 52 + layout.width * np.arange(layout.windows - 1, -1, -1))
    contents = np.empty((left.shape[0], left.shape[1], right.shape[2]))
    differs = divisor > 1 or layout.writing.top != NO_TOP
    written = np.empty(contents.shape) if differs else np.empty(0)
    product = None if terms.rounding is None else writer_for(terms.rounding)
    out, quotients_out, draws = contents.reshape(-1), written.reshape(-1), draws_of(random)

    def work(_: int, start: int, stop: int) -> None:
        sum_range(left, right, *addend, cutters, out, quotients_out, start, stop, layout, product, draws)

    over_ranges(work, contents.size, ALIGN, max(ALIGN, GRAIN_MACS // max(left.shape[2], 1)))
    return Contents(contents, None, written if differs else None)
