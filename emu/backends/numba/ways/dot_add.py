"""Blocks of products, the way matrix units add: compiled, vectorised over the columns of the result.

    for each row, for each block:
        top[j]  = largest exponent among acc[j] and a[k] * b[k, j]               exponents are small integers
        sum[j]  = cut(acc[j] * scale[j]) + cut(a[k] * b[k, j] * scale[j]) ...    scale[j] = 2**(fraction_bits - top[j])
        acc[j]  = R(sum[j] / scale[j])

All in float64, and exact: a product of float32 carriers has at most 48 bits, cut terms are integers below
2**(fraction_bits + 2), and `declines` keeps their sum below 2**53 and each power of two far from the ends of float64.
Infinities and NaN do not count in `top`; products and sums with them give what IEEE 754 says.

Source: docs/concepts/products.md and docs/concepts/fast-paths.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.arrays import frozen
from emu.backends.bounds import bounded
from emu.backends.interface import BlocksCode, FormatCode, StageCode, Write, carrier_of
from emu.backends.numba.bits import BIAS, FIELD, add_to_odd, bits_of, power_of_two
from emu.backends.numba.blocks import HUGE, round_block
from emu.backends.numba.compiling import kernel, over_ranges, part
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised
from emu.backends.numba.philox import fill_random
from emu.backends.numba.terms import ALIGN, EXACT_BITS, Draws, clamped_to, draws_of
from emu.backends.product import Product, ProductCode
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64

Array = NDArray[Any]
DRAWN = modes.DRAWN
#: Exponent of zeros, infinities and NaN, which do not count in an alignment.
EXPONENT_OF_ZERO = bounded(
    -30000.0, -(2.0**23), -4.0 * SAFE_EXPONENT, "beside any exponent still below every floor; two add up in float32"
)
#: Columns of one tile: the rows of `b` of a block stay in the first-level cache.
TILE = 256
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 15
#: See `Way.speed`.
SPEED = 0.5


class BlockAdder(NamedTuple):
    """A matrix unit as the loops take it."""

    n: int
    fraction_bits: int
    adds_after: int
    floor: float  # the unit's own, or an exponent that no nonzero term is below
    rounding: int
    n_rbits: int
    is_float: int
    precision: int
    emin: int
    largest: float
    beyond: float  # what numbers above the largest become, up to `clamped_to`
    clamped_to: float
    saturates: int  # whether that is marked
    has_negative_zero: int
    steps: int


class _Room(NamedTuple):
    """What rounding a piece of a row needs beside its numbers.

    Attributes:
        whole: float64, rounded numbers in units of the last place.
        random: int64, random integers, `ALIGN` more than columns.
        touched: uint8, of the whole result, 1 if the accumulator touched a limit.
        draws: the source of random integers.
    """

    whole: Any
    random: Any
    touched: Any
    draws: Draws


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return "" for other orders, or why a unit of blocks is left to the reference."""
    formats, mac = product.formats, product.mac
    if product.is_exact or mac.blocks is None:
        return ""
    assert mac.accumulator is not None
    fmt, blocks = mac.accumulator.format, mac.blocks
    if any(carrier_of(f) != np.float32 or f.daz for f in formats[:2]):
        return "operands of blocks are wider than float32 or flush subnormals"
    if formats[2] is not None and (formats[2].carries_raws or formats[2].daz):
        return "the addend of blocks carries raws or flushes subnormals"
    # n products and the accumulator are n + 1 <= 2**n.bit_length() terms below 2**(fraction_bits + 2).
    if blocks.fraction_bits + 2 + blocks.n.bit_length() > EXACT_BITS:
        return "sums of blocks are wider than float64"
    if blocks.min_exponent != k.NO_FLOOR and abs(blocks.min_exponent) >= SAFE_EXPONENT:
        return "the alignment floor lies outside what float64 scales"
    return _declines_accumulator(mac.accumulator, fmt) or None


def _declines_accumulator(stage: StageCode, fmt: FormatCode) -> str:
    top = fmt.max_exponent + fmt.precision
    if fmt.ftz or not fmt.has_nan or fmt.precision == 1 or fmt.quantum <= -SAFE_EXPONENT or top >= SAFE_EXPONENT:
        return "this accumulator of blocks has no compiled loop"
    return "" if decides_in_float64(stage, 0) else "the accumulator of blocks is too wide for float64"


@lru_cache(maxsize=256)
def _unit_for(formats: tuple[FormatCode, FormatCode], stage: StageCode, blocks: BlocksCode) -> BlockAdder:
    fmt = stage.format
    # No nonzero term has a smaller exponent: this may stand for no floor.
    lowest = min(formats[0].emin + formats[1].emin, fmt.emin)
    largest = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
    return BlockAdder(
        n=blocks.n,
        fraction_bits=blocks.fraction_bits,
        adds_after=blocks.adds_after,
        floor=float(max(lowest, blocks.min_exponent)),
        rounding=stage.rounding,
        n_rbits=stage.n_rbits,
        is_float=1,
        precision=fmt.precision,
        emin=fmt.emin,
        largest=largest,
        beyond=largest if stage.overflow != k.IEEE else math.inf if fmt.has_infinity else math.nan,
        clamped_to=clamped_to(stage),
        saturates=int(stage.overflow != k.IEEE),
        has_negative_zero=fmt.has_negative_zero,
        steps=modes.step_mask(stage),
    )


@kernel
def _exponent(x: float, emin: int) -> float:
    """Return the exponent of a code that holds x, EXPONENT_OF_ZERO for zeros, infinities and NaN."""
    field = (bits_of(x) >> 52) & FIELD
    return EXPONENT_OF_ZERO if x == 0.0 or field == FIELD else float(max(field - BIAS, emin))


@kernel
def exponents(x: Any, emin: int, out: Any) -> None:
    """Write the exponents of codes, EXPONENT_OF_ZERO for zeros, infinities and NaN."""
    for i in range(x.size):
        out[i] = _exponent(np.float64(x[i]), emin)


@kernel
def _round(v: Any, y: Any, width: int, unit: Any, room: Any, first: int, draw: int) -> None:
    """Round v, results from `first` on, into the accumulator format: y, infinite beyond the largest in each mode."""
    tail, emin, r = unit.precision - 1, unit.emin, room.whole
    # A counter of random bits serves up to 16 results: draw from its first one on.
    lead = first % ALIGN
    if unit.rounding in DRAWN:
        seed, stream, step = room.draws
        fill_random(room.random, first - lead, width + lead, unit.n_rbits, seed, stream, step, draw)
    # As in `blocks.write_float`, in units of each number's last place.
    for j in range(width):
        field = (bits_of(v[j]) >> 52) & FIELD
        # Of infinities and NaN, the field is beyond HUGE: the power of two stays finite, and they stay what they are.
        last = min(max(field - BIAS, emin), HUGE) - tail
        v[j] = v[j] * power_of_two(-last)
        y[j] = power_of_two(last)
    round_block(v, r, room.random[lead:], width, unit)
    for j in range(width):
        rounded = r[j] * y[j]
        if unit.largest < abs(rounded) <= unit.clamped_to:
            rounded = math.copysign(unit.beyond, rounded)
            if unit.saturates or abs(r[j]) < np.inf:  # clamped, or infinite from a finite sum
                room.touched[first + j] = 1
        y[j] = rounded if unit.has_negative_zero else rounded + 0.0


@part
def _raise_to_largest(top: Any, left: Any, right: Any, width: int) -> None:
    """Raise top to the largest exponent of the products, four at a time: top is read and written once for four."""
    # Sums of exponents are small integers, exact in float32: comparisons of floats vectorise as well.
    n = left.size
    for i in range(0, n - 3, 4):
        p, q, r, s = left[i], left[i + 1], left[i + 2], left[i + 3]
        for j in range(width):
            first, second = p + right[i, j], q + right[i + 1, j]
            third, fourth = r + right[i + 2, j], s + right[i + 3, j]
            first = first if first > second else second
            third = third if third > fourth else fourth
            first = first if first > third else third
            top[j] = first if first > top[j] else top[j]
    for i in range(n & -4, n):
        for j in range(width):
            exponent = left[i] + right[i, j]
            top[j] = exponent if exponent > top[j] else top[j]


@part
def _add_cut(sums: Any, left: Any, right: Any, scale: Any, width: int) -> None:
    """Add the products, cut to integers, to sums; four at a time, in any order, as all of it is exact."""
    n = left.size
    for i in range(0, n - 3, 4):
        p, q = np.float64(left[i]), np.float64(left[i + 1])
        r, s = np.float64(left[i + 2]), np.float64(left[i + 3])
        for j in range(width):
            up = scale[j]
            first = np.trunc(p * np.float64(right[i, j]) * up) + np.trunc(q * np.float64(right[i + 1, j]) * up)
            second = np.trunc(r * np.float64(right[i + 2, j]) * up) + np.trunc(s * np.float64(right[i + 3, j]) * up)
            sums[j] += first + second
    for i in range(n & -4, n):
        value = np.float64(left[i])
        for j in range(width):
            sums[j] += np.trunc(value * np.float64(right[i, j]) * scale[j])


@part
def _add_block(
    left: Any,
    left_exponents: Any,
    right: Any,
    right_exponents: Any,
    acc: Any,
    width: int,
    unit: Any,
    scratch: Any,
    top: Any,
    room: Any,
    first: int,
    draw: int,
) -> None:
    """Replace acc, a row's piece in a tile, by R(acc + the products of a block)."""
    scale, sums = scratch[0], scratch[1]
    for j in range(width):
        top[j] = max(_exponent(acc[j], unit.emin), unit.floor)  # EXPONENT_OF_ZERO lies below every floor
    _raise_to_largest(top, left_exponents, right_exponents, width)
    for j in range(width):
        # An infinite accumulator does not raise the top; times any scale it stays infinite.
        scale[j] = power_of_two(unit.fraction_bits - int(top[j]))
        sums[j] = np.trunc(acc[j] * scale[j])
    _add_cut(sums, left, right, scale, width)
    for j in range(width):
        sums[j] = sums[j] * power_of_two(int(top[j]) - unit.fraction_bits) + 0.0  # + 0.0: an exact zero is +0
    _round(sums, acc, width, unit, room, first, draw)
    for j in range(width):
        acc[j] += 0.0  # a sum that rounds to zero is +0, too


@kernel
def _rows(
    a: Any,
    a_exponents: Any,
    b: Any,
    b_exponents: Any,
    addend: Any,
    addend_draw: int,
    period: int,
    out: Any,
    touched: Any,
    unit: Any,
    adder: Any,
    draws: Any,
    start: int,
    stop: int,
) -> None:
    depth, columns = b.shape[1], b.shape[2]
    scratch, top = np.empty((2, TILE), np.float64), np.empty(TILE, np.float32)
    room = _Room(np.empty(TILE, np.float64), np.zeros(TILE + ALIGN, np.int64), touched, draws)
    state, total = np.empty(TILE, np.float64), np.empty(TILE, np.float64)
    for row in range(start, stop):
        batch, m = row // a.shape[1], row % a.shape[1]
        for at in range(0, columns, TILE):
            width, first = min(TILE, columns - at), row * columns + at
            for j in range(width):
                scratch[0, j] = addend[batch % addend.shape[0], m % addend.shape[1], (at + j) % addend.shape[2]]
            # An addend may be wider than the accumulator: it is rounded first, with a draw of its own.
            _round(scratch[0], state, width, unit, room, first, addend_draw)
            for begin in range(0, depth, period):
                if unit.adds_after:
                    total[:] = 0.0
                # An alias: blocks are added to `state` itself, or to a sum that begins at 0.
                acc = total if unit.adds_after else state
                for low in range(begin, begin + period, unit.n):
                    high = low + unit.n
                    left, left_exponents = a[batch, m, low:high], a_exponents[batch, m, low:high]
                    right = b[batch, low:high, at : at + width]
                    right_exponents = b_exponents[batch, low:high, at : at + width]
                    # The draw of the add that takes the block's first product (docs/concepts/random-bits.md).
                    draw = 2 + 2 * low
                    _add_block(
                        left, left_exponents, right, right_exponents, acc, width, unit, scratch, top, room, first, draw
                    )
                if unit.adds_after:
                    for j in range(width):
                        scratch[0, j] = add_to_odd(state[j], total[j])
                    _round(scratch[0], state, width, adder, room, first, np.int64(0))
            for j in range(width):
                out[batch, m, at + j] = state[j]


@lru_cache(maxsize=256)
def order_of(depth: int, indices: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the k of each product in the order taken, in whole periods; a k of `depth` or more is padding."""
    starts = np.arange(0, depth, len(indices), dtype=np.int64)
    return frozen((starts[:, None] + np.array(indices, np.int64)).reshape(-1))


def arranged(x: Array, indices: tuple[int, ...], axis: int) -> Array:
    """Return an operand with its k in the order in which a unit takes them, filled up to whole periods with zeros."""
    depth, order = x.shape[axis], order_of(x.shape[axis], indices)
    if order.size == depth and (order[1:] > order[:-1]).all():
        return np.require(x, requirements=["C", "W"])  # Numba would compile again for read-only arrays
    taken = np.zeros((*x.shape[:axis], order.size, *x.shape[axis + 1 :]), x.dtype)
    inside = order < depth
    where = (slice(None),) * axis
    taken[(*where, inside)] = x[(*where, order[inside])]
    return taken


def contents(product: Product, write: Write) -> Contents:
    """Return the accumulators' (B, M, N) contents, and where they touched a limit or became infinite from finite terms.

    Args:
        product: one that `declines` does not decline, its operands float32.
        write: with Philox numbers for stochastic units.
    """
    formats, mac, addend = product.code.formats, product.code.mac, product.addend
    a, b = product.stacks(materialised)
    assert mac.accumulator is not None
    assert mac.blocks is not None
    unit = _unit_for(formats[:2], mac.accumulator, mac.blocks)
    shape = (a.shape[0], a.shape[1], b.shape[2])
    third = np.zeros((1, 1, 1)) if addend is None else np.require(addend, np.float64, ["C", "W"])
    depth = a.shape[2]
    a, b = arranged(a, mac.blocks.indices, 2), arranged(b, mac.blocks.indices, 1)
    tops = [np.empty(x.shape, np.float32) for x in (a, b)]
    for x, fmt, out_exponents in zip((a, b), formats[:2], tops, strict=True):
        exponents(x.reshape(-1), fmt.emin, out_exponents.reshape(-1))
    out = np.empty(shape)
    touched = np.zeros(shape, np.uint8)
    # A unit that adds the accumulator after its blocks does so by an IEEE adder, to nearest even.
    adder, period = unit._replace(rounding=k.NEAREST_EVEN), len(mac.blocks.indices)
    marks, draws, addend_draw = touched.reshape(-1), draws_of(write.random), 2 * depth + 1

    def work(_: int, start: int, stop: int) -> None:
        addends = (third, addend_draw)
        _rows(a, tops[0], b, tops[1], *addends, period, out, marks, unit, adder, draws, start, stop)

    over_ranges(work, shape[0] * shape[1], 1, max(1, GRAIN_MACS // max(a.shape[2] * shape[2], 1)))
    return Contents(out.astype(carrier_of(mac.accumulator.format), copy=False), touched)
