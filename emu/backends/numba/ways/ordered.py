"""Accumulators in any order, under any rule: blocks of outputs, each add through the output stage's own loops.

    for each block of outputs, for each event of the order (schedule.py):
        total[i] = state[i] + term[i]        exact, or rounded to odd if `declines` proves that R(total) is the same
        state[i] = R(total[i])               blocks.py: any mode, any rule, any format

Units that in_order.py computes faster are left to it.

Source: docs/concepts/products.md, "Products and accumulators".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import N_FLAGS, FormatCode, MacCode, StageCode, Write
from emu.backends.numba.bits import add_to_odd, fma_to_odd
from emu.backends.numba.compiling import BLOCK, kernel, only_read, over_ranges, part
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised
from emu.backends.numba.prepared import supports
from emu.backends.numba.schedule import ADD, ADD_ADDEND, CLEAR, JOIN, MULTIPLY, PARK, PUT, PUT_ADDEND, schedule_for
from emu.backends.numba.terms import (
    ALIGN,
    EXACT_BITS,
    Span,
    Writer,
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
from emu.backends.product import Formats, Product, ProductCode
from emu.backends.proofs import becomes_infinite, significand_bits

Array = NDArray[Any]
FLOOR = k.FLOOR
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 15
#: See `Way.speed`.
SPEED = 0.2


class RoundedSums(NamedTuple):
    """A multiply-accumulate unit as the loops take it.

    Attributes:
        product: stage of products; that of the accumulator if products are exact.
        accumulator: stage of sums.
        rounds_products: whether products have a stage.
        product_needs_odd: whether products have more than 53 bits.
        is_fused: whether exact products of more than 53 bits are added.
        marks_infinite: whether finite products or sums that become infinite are marked.
    """

    product: Writer
    accumulator: Writer
    rounds_products: int
    product_needs_odd: int
    is_fused: int
    marks_infinite: int


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return "" for exact accumulators and blocks, or why an accumulator that rounds is left to the reference."""
    (a, b, c), mac = product.formats, product.mac
    if product.is_exact or mac.accumulator is None or mac.blocks is not None:
        return ""
    return _declines(a, b, c, mac, mac.accumulator) or None


def _declines(a: FormatCode, b: FormatCode, c: FormatCode | None, mac: MacCode, stage: StageCode) -> str:
    product = mac.product
    if mac.order not in (k.SEQUENTIAL, k.LANES, k.PAIRWISE):
        return "this order has no compiled loop"
    if a.carries_raws or b.carries_raws:
        return "operands of more bits than float64 holds have no compiled loop"
    if not supports(stage) or (product is not None and not supports(product)):
        return "a format or a mode of the unit lies outside what float64 loops round"
    if not products_are_central(a, b):
        return "products lie too close to the ends of float64"
    # Accumulators add products, or what their stage has made of them, and an addend.
    span = Span.of_product(a, b)
    if product is not None:
        if not decided(product, span):
            return "rounding of products is not decided in float64"
        span = Span.of(product.format)
    if not decided(stage, span) or (c is not None and not decided(stage, Span.of(c))):
        return "rounding of sums is not decided in float64"
    return ""


def _unit(formats: Formats, mac: MacCode) -> RoundedSums:
    assert mac.accumulator is not None
    is_wide = significand_bits(formats[0]) + significand_bits(formats[1]) > EXACT_BITS
    accumulator = writer_for(mac.accumulator)
    return RoundedSums(
        product=accumulator if mac.product is None else writer_for(mac.product),
        accumulator=accumulator,
        rounds_products=int(mac.product is not None),
        product_needs_odd=int(is_wide),
        is_fused=int(is_wide and mac.product is None),
        marks_infinite=int(becomes_infinite(mac.product) or becomes_infinite(mac.accumulator)),
    )


@kernel
def add_three_to_odd(high: float, low: float, c: float) -> float:
    """Return high + low + c rounded to odd, for high = fl(high + low).

    Two exact sums of two make it s + rest + error. The sum of the last two, rounded to odd, keeps in its last bit
    whether it is exact.

    Source: Boldo & Melquiond 2008, figure 4, its last step rounding to odd as well.
    """
    # With low = 0, two numbers are left; infinities and NaN need no error, which would be NaN.
    if low == 0.0 or not np.isfinite(c):
        return add_to_odd(high, c)
    inner = c + low
    back = inner - c
    error = (c - (inner - back)) + (low - back)
    s = high + inner
    back = s - high
    rest = (high - (s - back)) + (inner - back)
    return add_to_odd(s, add_to_odd(error, rest))


@kernel
def _sum(state: Any, high: Any, low: Any, has_low: bool, total: Any, n: int, rounding: int) -> None:
    """Write state + high + low, rounded to odd; only addends of more than 53 bits have a low part."""
    if has_low:
        for i in range(n):
            total[i] = add_three_to_odd(high[i], low[i], state[i])
    else:
        for i in range(n):
            total[i] = add_to_odd(state[i], high[i])
    if rounding == FLOOR:
        for i in range(n):
            # Toward negative, a zero sum is -0 unless both terms are +0 (IEEE 754-2019 section 6.3).
            if total[i] == 0.0 and (np.signbit(state[i]) or np.signbit(high[i])):
                total[i] = -0.0


@part
def _sum_fused(state: Any, left: Any, right: Any, total: Any, n: int, rounding: int) -> None:
    """Write state + left * right, rounded to odd, for products of more than 53 bits."""
    for i in range(n):
        total[i] = fma_to_odd(left[i], right[i], state[i])
        # The product's sign is that of its factors, though the product may be 0.
        negative = np.signbit(left[i]) != np.signbit(right[i]) or np.signbit(state[i])
        if total[i] == 0.0 and negative and rounding == FLOOR:
            total[i] = -0.0


@part
def _mark_infinite(total: Any, written: Any, n: int, hit: Any) -> None:
    """Mark where something finite was written as infinity or NaN."""
    for i in range(n):
        if np.isfinite(total[i]) and not np.isfinite(written[i]):
            hit[i] = 1


@kernel
def _run(
    a: Any,
    b: Any,
    high: Any,
    low: Any,
    events: Any,
    out: Any,
    touched: Any,
    start: int,
    stop: int,
    unit: Any,
    draws: Any,
) -> None:
    width = min(BLOCK, max(stop - start, 1))
    parked = np.empty((events.levels, width), np.float64)
    state, term, total = np.zeros(width, np.float64), np.empty(width, np.float64), np.empty(width, np.float64)
    left, right = np.empty(width, np.float64), np.empty(width, np.float64)
    scaled, rounded = np.empty(width, np.float64), np.empty(width, np.float64)
    random, flags = np.zeros(width, np.int64), np.zeros(N_FLAGS, np.int64)
    addend, rest = np.empty(width, np.float64), np.empty(width, np.float64)
    hit, unseen = np.zeros(width, np.uint8), np.zeros(width, np.uint8)
    for at in range(start, stop, BLOCK):
        n = min(BLOCK, stop - at)
        # Both parts of an addend of 64 bits; the second is 0 of any other.
        load_addend(high, a.shape[1], b.shape[2], at, n, addend)
        load_addend(low, a.shape[1], b.shape[2], at, n, rest)
        for event in range(events.kinds.size):
            kind, index = events.kinds[event], events.indices[event]
            if kind == CLEAR:
                fill(state, 0.0, n)
                continue
            if kind == PARK:
                copy(state, parked[index], n)
                continue
            # A product with a stage is written below, from `total` to `term`; an exact one is `term` at once.
            if kind == MULTIPLY:
                load_operands(a, b, at, n, index, left, right)
                multiply_block(left, right, total if unit.rounds_products else term, n, unit.product_needs_odd)
                if not unit.rounds_products:
                    continue
            elif kind == PUT:
                # A leaf passes the accumulator's stage as a sum does, without an add.
                copy(term, total, n)
            elif kind == PUT_ADDEND:
                fill(state, -0.0, n)  # -0 changes no addend, not even -0
                # No mode is given: under FLOOR, the -0 would make a -0 of an addend of +0.
                _sum(state, addend, rest, True, total, n, -1)
            elif kind == ADD and unit.is_fused:
                _sum_fused(state, left, right, total, n, unit.accumulator.stage.rounding)
            else:
                if kind == JOIN:
                    copy(parked[index], term, n)
                is_addend = kind == ADD_ADDEND
                other = addend if is_addend else term
                _sum(state, other, rest, is_addend, total, n, unit.accumulator.stage.rounding)
            # The accumulator's limits are what `hit` marks: products that saturate are marked where nobody looks.
            is_product = kind == MULTIPLY
            write_block(
                total,
                term if is_product else state,
                scaled,
                rounded,
                random,
                n,
                at,
                events.draws[event],
                unit.product if is_product else unit.accumulator,
                draws,
                flags,
                unseen if is_product else hit,
            )
            if unit.marks_infinite:
                _mark_infinite(total, term if is_product else state, n, hit)
        # The last event has left the sum of all in `state`.
        for i in range(n):
            out[at + i] = state[i]
            touched[at + i] = hit[i]
            hit[i] = 0


def contents(product: Product, write: Write) -> Contents:
    """Return the accumulators' (B, M, N) contents, float64, and where they touched a limit.

    Args:
        product: one that `declines` does not decline.
        write: with Philox numbers for stochastic units.
    """
    formats, mac = product.code.formats, product.code.mac
    a, b, addend = flushed(*product.stacks(materialised), product.addend, formats)
    unit, draws = _unit(formats, mac), draws_of(write.random)
    high, low = in_two_parts(addend, formats[2])
    events = schedule_for(mac.order, mac.lanes, a.shape[2], has_addend=addend is not None)
    # One dtype for both operands: the loop is compiled for each dtype, not for each pair.
    dtype = np.result_type(a, b)
    a, b, high, low = map(only_read, (np.ascontiguousarray(a, dtype), np.ascontiguousarray(b, dtype), high, low))
    sums = np.empty((a.shape[0], a.shape[1], b.shape[2]))
    touched = np.empty(sums.shape, np.uint8)
    out, marks = sums.reshape(-1), touched.reshape(-1)

    def work(_: int, start: int, stop: int) -> None:
        _run(a, b, high, low, events, out, marks, start, stop, unit, draws)

    over_ranges(work, sums.size, ALIGN, max(ALIGN, GRAIN_MACS // max(a.shape[2], 1)))
    return Contents(sums, touched if unit.accumulator.is_saturating or unit.marks_infinite else None)
