"""Tiles of products added in order along k: rows by 32 columns, each sum in its own lane.

    fused        acc = fl32(acc + a*b)              one instruction: a product is never rounded on its own
    float32      acc = fl32(acc + fl32(a*b))
    binary16     acc = fl16(acc + fl16(a*b))        both through float32 and one conversion (docs/concepts/products.md)
    fused16      acc = fl16(acc + a*b)              the same, the sum rounded to odd in float32
    half         acc = fl16(acc + fl16(a*b))        operands that are binary16 numbers: two instructions
    fused_half   acc = fl16(acc + a*b)              the same: one instruction
    saturating   acc = clamp(acc + a*b)             integers below 2**24 in float32
    words        acc = clamp(acc + a*b)             one instruction that saturates 32 bits
    marked       acc = clamp(acc + a*b)             the same, of at most 30 bits
    pairs        acc = acc + a*b + a'*b'            integers of 16 bits, two along k side by side in 32 bits; exact

Words: operands of together at most W bits are shifted left so that the top of a W-bit accumulator is the top of 32
bits, where vpdpwssds saturates. It adds two products of 16-bit halves; the second is 0 * 0. Saturating adders compare
with the sum that was not limited; a difference means that a limit was touched. Marked words need no second sum:
products leave the 32 - W bits below the word unchanged, and those start as 1. Saturation at the upper limit makes all
of them ones, at the lower limit zeros; what they are in the end shows whether a limit was touched. They never change
the word: sums are multiples of 2**(32 - W) plus bits below that, which reach a limit only if the multiples do.

Half: 32 sums of binary16 are one register. A left factor is held twice, in the halves of 32 bits, which an instruction
spreads over a register as it is loaded; spreading 16 bits would take the port of a multiply-add. A line of 32 right
factors takes the first half of the room of 32 float32 numbers.

Rounded to odd: of the two float32 numbers around an inexact sum, the smaller magnitude with its last bit set; an exact
sum of 0 is +0 unless both terms are -0. The two are the sum rounded down and rounded up or, if no instruction can be
told how to round, the nearest number and the next one on the side that the sign of the error says. Binary16 has 13 bits
fewer, so that rounding again gives what rounding once does.

Source: docs/concepts/products.md, "Rounding twice"; Figueroa 1995 (sums of binary16 through binary32); Knuth 1969 (the
error of a sum); Boldo & Melquiond 2008 (rounding to odd).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types

from emu.backends.bounds import bounded
from emu.backends.numba.machine import has_directed_rounding, has_long_vectors
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS, plus_pairs
from emu.backends.numba.vector.lanes import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    IR,
    LANES,
    LOWER_HALF,
    SIGN_BIT,
    Emitter,
    Vector,
    intrinsic,
)

#: One add: emitter, accumulator, left and right factor, low and high limit -> new accumulator, unlimited sum.
Adder = Callable[[Emitter, Vector, Vector, Vector, tuple[Vector, Vector]], tuple[Vector, Vector]]


def _fused(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = acc.plus_product(a, b)
    return s, s


def _apart(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = acc + a * b  # LLVM fuses them only if a flag allows contraction, which none does
    return s, s


def _binary16(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = _in_half(acc + _in_half(a * b))
    return s, s


def _fused16(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    if has_directed_rounding():
        # The sum rounded down and up: the same if it is exact.
        down, up = a.between("vfmadd.ps.512", b, acc)
        smaller, inexact = down.bits().at_most_unsigned(up.bits()), down != up
    else:
        # The product is exact: `in_tiles` takes operands of together at most 24 bits.
        nearest, error = _with_error(acc, a * b)
        beyond = (nearest.bits() ^ error.bits()) >> SIGN_BIT  # 1 if the exact sum lies nearer to 0
        inexact = abs(error) > 0.0  # not of an infinity, whose error is NaN
        smaller = inexact.choose(nearest.bits() - beyond, nearest.bits())
    # The smaller magnitude has the smaller pattern: set to odd, it is itself or the other neighbour.
    s = _in_half(inexact.choose(smaller | 1, smaller).bits_as(F32))
    return s, s


def _with_error(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    s = x + y
    back = s - x
    return s, (x - (s - back)) + (y - back)


def _in_half(x: Vector) -> Vector:
    return x.as_kind(F16).as_kind(F32)


def _saturating(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = acc.plus_product(a, b)
    return s.clamp(*limits), s


def _saturated(e: Emitter, acc: Vector, factors: Sequence[Vector]) -> Vector:
    words = [acc.value, *[x.value for x in factors]]
    return Vector(e, e.call("llvm.x86.avx512.vpdpwssds.512", acc.value.type, words))


def _words(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    factors = [x.reshaped(I16, 2 * LANES) for x in (a, b)]
    return _saturated(e, acc, factors), plus_pairs(e, acc, *factors)


def _marked(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = _saturated(e, acc, [x.reshaped(I16, 2 * LANES) for x in (a, b)])
    return s, s


def _pairs(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = plus_pairs(e, acc, *[x.reshaped(I16, 2 * LANES) for x in (a, b)])
    return s, s


ADDERS: dict[str, Adder] = {
    "fused": _fused,
    "float32": _apart,
    "binary16": _binary16,
    "fused16": _fused16,
    "half": _apart,
    "fused_half": _fused,
    "saturating": _saturating,
    "words": _words,
    "marked": _marked,
    "pairs": _pairs,
    "narrow_pairs": _pairs,
}
#: Adders that mark where a limit was touched; those that compare two sums for it; those on 32-bit words.
TOUCHING, COMPARING = ("saturating", "words", "marked"), ("saturating", "words")
WORDS = ("words", "marked", "pairs", "narrow_pairs")
#: Adders whose factors are words of two integers, which callers make (`paired_products`); the second has sums for the
#: first half of a line alone, of twice as many rows.
PAIRS = ("pairs", "narrow_pairs")
#: Adders of binary16 numbers.
HALF = ("half", "fused_half")
#: Fewest bits below a marked word.
FEWEST_MARK_BITS = bounded(2, 2, 31, "neither all zeros nor all ones is what they are at first")
#: The value of these bits at first.
MARK = bounded(1, 1, (1 << FEWEST_MARK_BITS) - 2, "saturation makes all of them ones or zeros")
#: What puts 16 bits into both halves of a word.
TWICE = 0x10001
#: Rows of a tile: sums, and the hits of adders that compare, take 16 of the 32 registers of 512 bits; the others are
#: for the panel, factors, limits and what an add needs on the way.
ROWS = {
    "fused": 8,
    "float32": 8,
    "binary16": 8,
    "fused16": 8,
    "half": 16,
    "fused_half": 16,
    "saturating": 4,
    "words": 4,
    "marked": 8,
    "pairs": 8,
    "narrow_pairs": 16,
}
#: The same with half the columns of the panel, two registers each: 8 of 16 registers of 256 bits. Words and binary16
#: numbers have only long vectors: theirs are not used.
ROWS_OF_SHORT_VECTORS = {
    "fused": 4,
    "float32": 4,
    "binary16": 4,
    "fused16": 4,
    "half": 16,
    "fused_half": 16,
    "saturating": 2,
    "words": 4,
    "marked": 8,
    "pairs": 8,
    "narrow_pairs": 16,
}


def line_dtype(adder: str) -> Any:
    """Return the dtype of sums, and of lines of right factors, in memory."""
    return np.int32 if adder in WORDS else np.float32


def factor_dtype(adder: str) -> Any:
    """Return the dtype of what `factor_of` returns."""
    return np.int32 if adder in WORDS or adder in HALF else np.float32


def parts(rows: int, together: int) -> list[tuple[range, tuple[int, ...]]]:
    """Return the parts of a tile whose sums stay in registers: rows, and halves of its 32 columns.

    Args:
        rows: of the tile.
        together: rows of a part, which has one half, if vectors have 256 bits; with 512, all rows and halves are one.
    """
    if has_long_vectors():
        return [(range(rows), (0, 1))]
    return [(range(first, first + together), (half,)) for half in (0, 1) for first in range(0, rows, together)]


@intrinsic
def add_in_order(
    typing_context: Any,
    adder: Any,
    a: Any,
    panel: Any,
    depth: Any,
    low: Any,
    high: Any,
    sums: Any,
    touched: Any,
) -> Any:
    """Add the products of some rows and a panel to their sums, k = 0, 1, ... in this order.

    Args:
        typing_context: Numba's.
        adder: a key of `ADDERS`, a literal.
        a: address of the left factors, those of all rows for a k, then for the next: as `factor_of` returns them.
        panel: address of lines of 32 right factors, one for each k.
        depth: products of each sum.
        low: smallest raw of a saturating accumulator, float64.
        high: its largest raw.
        sums: address of rows * 32 sums.
        touched: address of as many uint32, not 0 if a limit was touched; only of adders that compare.
    """
    i64, f64 = types.int64, types.float64
    signature = types.void(adder, i64, i64, i64, f64, f64, i64, i64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, name = Emitter(builder), adder.literal_value
        a, panel, sums, touched = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 6, 7))
        # F32 for the addresses of any factors: floats and words have four bytes alike.
        rows = [e.at(a, e.integer(row), F32) for row in range(ROWS[name])]

        def in_order(k: Any) -> tuple[Any, Any]:
            return builder.mul(k, e.integer(ROWS[name])), builder.mul(k, e.integer(PANEL_COLUMNS))

        _emit(e, name, rows, panel, args[3], in_order, _limits(e, args[4], args[5]), sums, touched)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_listed(
    typing_context: Any,
    adder: Any,
    a: Any,
    lefts: Any,
    lines: Any,
    rights: Any,
    count: Any,
    low: Any,
    high: Any,
    starts: Any,
    sums: Any,
    touched: Any,
) -> Any:
    """Add the products of some rows and lines of 32 numbers to first sums, in the order of two lists.

    Args:
        typing_context: Numba's.
        adder: a key of `ADDERS`, a literal.
        a: address of the left factors, as `add_in_order` takes them.
        lefts: address of int64, the first row's element that is multiplied; those of the other rows follow it.
        lines: address of the lines.
        rights: address of int64, the first element of the line that it is multiplied with.
        count: products of each sum.
        low: smallest raw of a saturating accumulator, float64.
        high: its largest raw.
        starts: address of rows * 32 first sums.
        sums: address of as many sums, which are written.
        touched: address of as many uint32, not 0 if a limit was touched; only of adders that compare.
    """
    i64, f64 = types.int64, types.float64
    signature = types.void(adder, *[i64] * 5, f64, f64, i64, i64, i64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, name = Emitter(builder), adder.literal_value
        a, lefts, lines, rights, starts, sums, touched = (
            builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 3, 4, 8, 9, 10)
        )
        rows = [e.at(a, e.integer(row), F32) for row in range(ROWS[name])]

        def listed(k: Any) -> tuple[Any, Any]:
            return e.load_scalar(I64, lefts, k), e.load_scalar(I64, rights, k)

        _emit(e, name, rows, lines, args[5], listed, _limits(e, args[6], args[7]), sums, touched, starts)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_gathered(
    typing_context: Any,
    adder: Any,
    a: Any,
    rows: Any,
    lefts: Any,
    panel: Any,
    depth: Any,
    low: Any,
    high: Any,
    sums: Any,
    touched: Any,
) -> Any:
    """Add the products of a panel and of rows that lie anywhere to their sums, k = 0, 1, ... in this order.

    Args:
        typing_context: Numba's.
        adder: a key of `ADDERS`, a literal.
        a: address of left factors, as `factor_of` returns them.
        rows: address of int64, the first element of each row of the tile.
        lefts: address of int64, how far behind it the k-th one lies.
        panel: address of lines of 32 right factors, one for each k.
        depth: products of each sum.
        low: smallest raw of a saturating accumulator, float64.
        high: its largest raw.
        sums: address of rows * 32 sums.
        touched: address of as many uint32, not 0 if a limit was touched; only of adders that compare.
    """
    i64, f64 = types.int64, types.float64
    signature = types.void(adder, *[i64] * 5, f64, f64, i64, i64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, name = Emitter(builder), adder.literal_value
        a, offsets, lefts, panel, sums, touched = (
            builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 3, 4, 8, 9)
        )
        rows = [e.at(a, e.load_scalar(I64, offsets, e.integer(row)), F32) for row in range(ROWS[name])]

        def gathered(k: Any) -> tuple[Any, Any]:
            return e.load_scalar(I64, lefts, k), builder.mul(k, e.integer(PANEL_COLUMNS))

        _emit(e, name, rows, panel, args[5], gathered, _limits(e, args[6], args[7]), sums, touched)
        return context.get_dummy_value()

    return signature, generate


#: Of the k-th products: which element of each row, and the first element of the line of 32 that it is multiplied with.
Places = Callable[[Any], tuple[Any, Any]]


def _limits(e: Emitter, low: Any, high: Any) -> tuple[Vector, Vector]:
    low, high = (e.splat(F32, e.builder.fptrunc(limit, F32)) for limit in (low, high))
    return low, high


def _emit(
    e: Emitter,
    name: str,
    rows: list[Any],
    lines: Any,
    count: Any,
    places: Places,
    limits: tuple[Vector, Vector],
    sums: Any,
    touched: Any,
    starts: Any = None,
) -> None:
    """Emit the sums of all parts of a tile; `starts`: where first sums are read, None where sums are written."""
    # Of narrow pairs, a line has 16 words: the second half of its room is not read.
    narrow = [(range(len(rows)), (0,))]
    for chosen, halves in narrow if name == PAIRS[1] else parts(len(rows), ROWS_OF_SHORT_VECTORS[name]):
        part = [(row, rows[row]) for row in chosen]
        _emit_part(
            e, name, part, halves, lines, count, places, limits, sums if starts is None else starts, sums, touched
        )


def _emit_part(
    e: Emitter,
    name: str,
    rows: list[tuple[int, Any]],
    halves: tuple[int, ...],
    lines: Any,
    count: Any,
    places: Places,
    limits: tuple[Vector, Vector],
    starts: Any,
    sums: Any,
    touched: Any,
) -> None:
    comparing, is_half = name in COMPARING, name in HALF
    lanes, kind = (PANEL_COLUMNS, F16) if is_half else (LANES, I32 if name in WORDS else F32)
    room = F32 if is_half else kind  # of a sum in memory
    # Sums of binary16 are 32 in a register, whichever half: a line is one vector.
    firsts = (0,) if is_half else tuple(half * LANES for half in halves)
    offsets = {(row, first): e.integer(row * PANEL_COLUMNS + first) for row, _ in rows for first in firsts}
    # Sums stay in registers along all of k.
    accs = {at: e.variable(e.load(room, starts, offset, lanes).as_kind(kind)) for at, offset in offsets.items()}
    hit = {at: e.variable(e.splat(I32, 0)) for at in offsets} if comparing else {}
    with e.loop(count) as k:
        at, line = places(k)
        begin = e.at(lines, line, F32)
        right = {first: e.load(kind, begin, e.integer(first), lanes) for first in firsts}
        for row, factors in rows:
            if is_half:
                # A binary16 factor stands in both halves of 32 bits (`factor_of`).
                left = e.splat(I32, e.load_scalar(I32, factors, at)).reshaped(F16, lanes)
            else:
                left = e.splat(kind, e.load_scalar(kind, factors, at))
            for first in firsts:
                acc, s = ADDERS[name](e, accs[row, first].now, left, right[first], limits)
                accs[row, first].set(acc)
                if comparing:
                    # patterns differ only if the numbers do: fixed point has no -0, and a sum that begins at +0 never
                    # becomes -0
                    hit[row, first].set(hit[row, first].now | (_pattern(s) ^ _pattern(acc)))
    for at, offset in offsets.items():
        e.store(accs[at].now.as_kind(room), sums, offset)
        if comparing:
            e.store(e.load(I32, touched, offset) | hit[at].now, touched, offset)


@intrinsic
def fill_line(typing_context: Any, target: Any, number: Any) -> Any:
    """Write a number 32 times from an address on: a float32 or an int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, target = Emitter(builder), builder.inttoptr(args[0], IR.PointerType(I8))
        kind = F32 if signature.args[1] == types.float32 else I32
        for first in (0, LANES):
            e.store(e.splat(kind, args[1]), target, e.integer(first))
        return context.get_dummy_value()

    return types.void(types.int64, number), generate


@intrinsic
def as_halves(typing_context: Any, target: Any, lines: Any) -> Any:
    """Write lines of 32 float32 numbers as binary16, each in the first half of its room.

    Args:
        typing_context: Numba's.
        target: address of the first line; it is overwritten.
        lines: how many.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, target = Emitter(builder), builder.inttoptr(args[0], IR.PointerType(I8))
        with e.loop(args[1]) as i:
            line = e.at(target, builder.mul(i, e.integer(PANEL_COLUMNS)), F32)
            e.store(e.load(F32, line, e.integer(0), PANEL_COLUMNS).as_kind(F16), line, e.integer(0))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def factor_of(typing_context: Any, adder: Any, x: Any) -> Any:
    """Return a left factor as the tiles take it: of words and binary16 numbers an int32, of others a float32.

    Args:
        typing_context: Numba's.
        adder: a key of `ADDERS`, a literal.
        x: a float64 that the adder's numbers hold.
    """
    name = adder.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if name in WORDS:  # an upper half of 0 makes the instruction's second product 0
            return builder.and_(builder.fptosi(args[1], I32), IR.Constant(I32, LOWER_HALF))
        if name in HALF:
            pattern = builder.bitcast(builder.fptrunc(args[1], F16), I16)
            return builder.mul(builder.zext(pattern, I32), IR.Constant(I32, TWICE))
        return builder.fptrunc(args[1], F32)

    kind = types.int32 if factor_dtype(name) is np.int32 else types.float32
    return kind(adder, types.float64), generate


@intrinsic
def finish_in_order(
    typing_context: Any,
    adder: Any,
    sums: Any,
    hits: Any,
    drop_bits: Any,
    lsb: Any,
    out_kind: Any,
    out: Any,
    out_stride: Any,
    touched: Any,
    rows: Any,
    width: Any,
) -> Any:
    """Write rows of a tile's sums, and where a limit was touched.

    Args:
        typing_context: Numba's.
        adder: a key of `ADDERS`, a literal.
        sums: address of the sums, 32 a row.
        hits: address of as many uint32, from `add_in_order`.
        drop_bits: bits of a word below the accumulator's last place.
        lsb: value of the accumulator's last place; 1 for floats.
        out_kind: dtype of what is written.
        out: address of the first row.
        out_stride: elements from one row to the next, of `out` and of `touched`.
        touched: address of the first row's uint8; only of saturating accumulators.
        rows: how many.
        width: columns, 1..32.
    """
    i64 = types.int64
    signature = types.void(adder, i64, i64, i64, types.float64, out_kind, *[i64] * 5)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, name = Emitter(builder), adder.literal_value
        sums, hits, out, touched = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 6, 8))
        kind, target = I32 if name in WORDS else F32, F32 if out_kind.dtype == types.float32 else F64
        lsb, drop, numbers = e.splat(F64, args[4]), builder.trunc(args[3], I32), e.constants(I64, range(LANES))
        narrow_lsb = e.splat(F32, builder.fptrunc(args[4], F32))
        # A mask of the bits below a word, which begin as `MARK`.
        below = e.splat(I32, builder.sub(builder.shl(e.integer(1, I32), drop), e.integer(1, I32)))
        for half in range(2):
            first = e.integer(half * LANES)
            here = numbers < e.splat(I64, builder.sub(args[10], first))
            with builder.if_then(here.any()), e.loop(args[9]) as row:
                offset = builder.add(builder.mul(row, e.integer(PANEL_COLUMNS)), first)
                acc = e.load(kind, sums, offset)
                # The bits below a word go; the shift rounds down, and they are no part of the sum.
                value = acc.shift_signed(e.splat(I32, drop)) if name in WORDS else acc
                out_offset = builder.add(builder.mul(row, args[7]), first)
                if name in PAIRS and target is F32:  # which holds them, says the caller
                    value = value.as_kind(F32) * narrow_lsb
                elif name in TOUCHING or name in PAIRS:
                    value = value.as_kind(F64) * lsb
                if name in TOUCHING:
                    hit = (e.load(I32, hits, offset) != 0) if name in COMPARING else ((acc & below) != MARK)
                    e.store_where(here, hit.as_kind(I8, signed=False), touched, out_offset)
                e.store_where(here, value.as_kind(target), out, out_offset)
        return context.get_dummy_value()

    return signature, generate


def _pattern(x: Vector) -> Vector:
    return x.bits() if x.is_float else x


@intrinsic
def move_sums(typing_context: Any, sums: Any, totals: Any, count: Any, first: Any) -> Any:
    """Add lines of 32 int32 sums to float64 totals, and set them to 0.

    Args:
        typing_context: Numba's.
        sums: address of the first line.
        totals: address of the first total.
        count: how many lines.
        first: whether they are the first ones: totals have been anything before.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        sums, totals = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 1))
        fresh = e.splat(I1, args[3])
        with e.loop(builder.mul(args[2], e.integer(2))) as i:
            at = builder.mul(i, e.integer(LANES))
            before = fresh.choose(e.splat(F64, 0.0), e.load(F64, totals, at))
            e.store(before + e.load(I32, sums, at).as_kind(F64), totals, at)
            e.store(e.splat(I32, 0), sums, at)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3, types.boolean), generate
