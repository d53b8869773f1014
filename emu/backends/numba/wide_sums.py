"""Exact sums wider than float64: terms cut into windows, each summed exactly in float64.

    term              1 0 1 1 0 1 | 0 1 1 0 0 1 | 1 0 1
    windows           sums[0]     | sums[1]     | sums[2]      multiples of 2**unit, together below 2**(unit + 53)

Adding and subtracting 1.5 * 2**(unit + 52) rounds a term to a multiple of 2**unit; what is left goes to the next
window, whole vectors at a time. The largest and the smallest operand tell how many windows there are. In the end they
are carried into digits, which round to odd: no stage that `declines` lets through can tell the difference, and the
leading bit, and being a power of two or not, are the exact sum's.

Source: Rump, Ogita & Oishi, "Accurate floating-point summation part I", SIAM J. Sci. Comput. 31(1), 2008 (cutting by a
sum); NUMERICS 7.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import FormatCode, MacCode, Outcome, RandomCode, RegisterCode, StageCode
from emu.backends.numba.compiling import BLOCK, kernel, over_ranges
from emu.backends.numba.digits import NO_TOP, Writing, write_digits
from emu.backends.numba.stage import run_stage, supports
from emu.backends.numba.terms import (
    ALIGN,
    EXACT_BITS,
    Formats,
    Span,
    copy,
    decided,
    draws_of,
    fill,
    flushed,
    in_two_parts,
    load_addend,
    load_operands,
    multiply_block,
    products_are_central,
    write_block,
    writer_for,
)
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, significand_bits

Array = NDArray[Any]
#: Bits from the last place of the smallest term to the largest term.
MAX_SPAN_BITS = 640
#: Bits from a window to the next: rounding to the upper one by a sum needs them below 2**51.
MAX_WINDOW_BITS = 51
#: With a divisor below 2**24: a remainder and a digit fit 63 bits.
MAX_DIVIDED_WINDOW_BITS, MAX_DIVISOR_BITS = 38, 24
#: Bits of a quotient below the last place of a sum: a divisor's, a float64's, and some to spare.
QUOTIENT_BITS = 80
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 16
#: Outputs times windows of a tile: they stay in the first-level cache.
TILE_WINDOWS = 2048


class Unit(NamedTuple):
    """The windows of one product, as the loops want them."""

    windows: int
    width: int
    lowest: int
    tile: int
    product_needs_odd: int
    addend_parts: int
    writing: Writing


def declines(formats: Formats, mac: MacCode, stage: StageCode, divisor: int) -> str:
    """Return why an exact accumulator is left to the reference, "" if the loops here compute it."""
    a, b, c = formats
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
    leading = 0 if stage.format.is_float else _span(stage) + (stage.overflow == k.WRAP)
    if not supports(stage) or not decides_in_float64(stage, leading):
        return "the output stage looks at more bits of a sum than float64 holds"
    if divisor & (divisor - 1) and divisor.bit_length() > MAX_DIVISOR_BITS:
        return f"a quotient by {divisor} has no compiled loop"
    return ""


def _span(stage: StageCode) -> int:
    """Return the exponent of a fixed format's modulus."""
    return stage.format.width_bits + stage.format.quantum


def _measured(x: Array, fmt: FormatCode) -> Span:
    """Return bounds of an operand's finite values."""
    magnitude = np.abs(x)
    finite = magnitude < np.inf
    largest = float(np.max(magnitude, initial=0.0, where=finite))
    if largest == 0.0:
        return Span(0, 0)
    smallest = float(np.min(magnitude, initial=largest, where=finite & (magnitude > 0.0)))
    lowest = max(fmt.quantum, math.frexp(smallest)[1] - fmt.precision) if fmt.is_float else fmt.quantum
    return Span(lowest, math.frexp(largest)[1])


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0.0)


def _halves(x: Array, bits: int) -> list[Array]:
    """Return two parts of half the bits each whose sum is x, by Veltkamp's splitting; specials stay in the first."""
    wide = _finite(x.astype(np.float64))
    scaled = wide * (math.ldexp(1.0, EXACT_BITS - bits // 2) + 1.0)
    high = scaled - (scaled - wide)
    return [np.where(np.isfinite(x), high, x), wide - high]


def _operands(a: Array, b: Array, formats: Formats, *, splits: bool) -> tuple[Array, Array]:
    """Return operands whose products have at most 53 bits: parts of a and of b follow each other along k."""
    bits = [min(significand_bits(f), EXACT_BITS) for f in formats[:2]]
    if not splits:
        left, right = [a], [b]
    elif bits[0] + bits[1] // 2 <= EXACT_BITS:
        left, right = [a], _halves(b, bits[1])
    elif bits[0] // 2 + bits[1] <= EXACT_BITS:
        left, right = _halves(a, bits[0]), [b]
    else:
        left, right = _halves(a, bits[0]), _halves(b, bits[1])
    # an infinity meets the other operand's first part only: 0 * inf must not come from a part
    pairs = [
        (x if j == 0 else _finite(x), y if i == 0 else _finite(y))
        for i, x in enumerate(left)
        for j, y in enumerate(right)
    ]
    dtype = np.result_type(*left, *right)
    if len(pairs) == 1:
        return np.ascontiguousarray(a, dtype), np.ascontiguousarray(b, dtype)
    return np.concatenate([x for x, _ in pairs], axis=2), np.concatenate([y for _, y in pairs], axis=1)


def _writing(stage: StageCode, divisor: int, width: int) -> Writing:
    shift = divisor.bit_length() - 1 if divisor & (divisor - 1) == 0 else 0
    rest = 1 if divisor == 1 << shift else divisor
    top = _span(stage) + shift if stage.overflow == k.WRAP and not stage.format.is_float else NO_TOP
    return Writing(rest, shift, 0 if rest == 1 else QUOTIENT_BITS // width + 1, top)


def _unit(span: Span, terms: int, formats: Formats, mac: MacCode, stage: StageCode, divisor: int) -> Unit:
    """Return windows for sums of so many terms of a span."""
    width = min(MAX_WINDOW_BITS, EXACT_BITS + 1 - terms.bit_length())
    if divisor & (divisor - 1):
        width = min(width, MAX_DIVIDED_WINDOW_BITS)
    windows = 1 + max(0, -(-(span.top - span.lowest - (width - 1)) // width))
    is_wide = significand_bits(formats[0]) + significand_bits(formats[1]) > EXACT_BITS
    return Unit(
        windows=windows,
        width=width,
        lowest=span.lowest,
        tile=min(BLOCK, max(ALIGN, TILE_WINDOWS // windows // ALIGN * ALIGN)),
        product_needs_odd=int(is_wide and mac.product is not None),
        addend_parts=0 if formats[2] is None else 1 + formats[2].carries_raws,
        writing=_writing(stage, divisor, width),
    )


@kernel
def _cut(term: Any, sums: Any, cutters: Any, n: int) -> None:
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
def _run(
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
    rows, depth, columns, tile = a.shape[1], b.shape[1], b.shape[2], unit.tile
    sums = np.empty((unit.windows, tile), np.float64)
    left, right, term = np.empty(tile, np.float64), np.empty(tile, np.float64), np.empty(tile, np.float64)
    scaled, rounded = np.empty(tile, np.float64), np.empty(tile, np.float64)
    random, flags, unseen = np.zeros(tile, np.int64), np.zeros(6, np.int64), np.zeros(tile, np.uint8)
    for at in range(start, stop, tile):
        n = min(tile, stop - at)
        fill(sums.reshape(-1), 0.0, sums.size)
        if unit.addend_parts > 0:
            load_addend(high, rows, columns, at, n, term)
            _cut(term, sums, cutters, n)
        if unit.addend_parts > 1:
            load_addend(low, rows, columns, at, n, term)
            _cut(term, sums, cutters, n)
        for step in range(depth):
            load_operands(a, b, at, n, step, left, right)
            multiply_block(left, right, term, n, unit.product_needs_odd)
            if product is not None:  # else nothing of this is compiled
                copy(term, left, n)
                write_block(left, term, scaled, rounded, random, n, at, 1 + 2 * step, product, draws, flags, unseen)
            _cut(term, sums, cutters, n)
        write_digits(sums, n, at, unit.windows, unit.width, unit.lowest, unit.writing, contents, written)


def sums(
    a: Array,
    b: Array,
    addend: Array | None,
    formats: Formats,
    mac: MacCode,
    stage: StageCode,
    random: RandomCode,
    divisor: int,
) -> tuple[Array, Array]:
    """Return the accumulator's (B, M, N) contents, and what the output stage writes; float64 rounded to odd.

    Args:
        a: float carriers, (B, M, K).
        b: float carriers, (B, K, N).
        addend: carriers that broadcast to the result over its last three axes, or None.
        formats: formats of the three.
        mac: a unit with an exact accumulator that `declines` does not decline.
        stage: the output stage.
        random: Philox numbers for stochastic products.
        divisor: positive integer by which sums are divided.
    """
    a, b, addend = flushed(a, b, addend, formats)
    rounds, parts = mac.product is not None, in_two_parts(addend, formats[2])
    bits = significand_bits(formats[0]) + significand_bits(formats[1])
    spans = [_measured(a, formats[0]), _measured(b, formats[1])]
    spans = [Span(spans[0].lowest + spans[1].lowest, spans[0].top + spans[1].top)]
    if mac.product is not None:
        spans = [Span.of(mac.product.format)]
    if addend is not None and formats[2] is not None:
        spans.append(Span.of(formats[2]) if formats[2].carries_raws else _measured(addend, formats[2]))
    span = Span(min(s.lowest for s in spans), max(s.top for s in spans))
    left, right = _operands(a, b, formats, splits=bits > EXACT_BITS and not rounds)
    unit = _unit(span, left.shape[2] + len(parts), formats, mac, stage, divisor)
    cutters = np.ldexp(1.5, unit.lowest + 52 + unit.width * np.arange(unit.windows - 1, -1, -1))
    contents = np.empty((a.shape[0], a.shape[1], b.shape[2]))
    differs = divisor > 1 or unit.writing.top != NO_TOP
    written = np.empty(contents.shape) if differs else np.empty(0)
    product = None if mac.product is None else writer_for(mac.product)
    out, goes_on, draws = contents.reshape(-1), written.reshape(-1), draws_of(random)

    def work(_: int, start: int, stop: int) -> None:
        _run(left, right, *parts, cutters, out, goes_on, start, stop, unit, product, draws)

    over_ranges(work, contents.size, ALIGN, max(ALIGN, GRAIN_MACS // max(left.shape[2], 1)))
    return contents, written if differs else contents


def write(
    contents: Array, written: Array, stage: StageCode, random: RandomCode, register: RegisterCode | None
) -> Outcome:
    """Write what `sums` returned; the register observes the contents."""
    if written is contents:
        return run_stage("quantize", (contents,), stage, random, register)
    outcome = run_stage("quantize", (written,), stage, random, None)
    if register is not None:
        seen = run_stage("quantize", (contents,), stage, random, register)
        outcome.register, outcome.max_exponent = seen.register, seen.max_exponent
    return outcome
