"""Tiles of exact integer products from dot-product instructions: 8 rows by 32 columns in sixteen registers.

One instruction adds two 16-bit products (vpdpwssd) or four 8-bit ones (vpdpbusd, its first factor unsigned) to a 32-bit
sum in each lane. Without it, AVX2 adds two 16-bit products (vpmaddwd) and a second instruction adds that to the sum;
its fewer registers hold two rows at a time. A panel of the right operand holds 32 columns, with 2 or 4 neighbours along
k side by side:

    k, k+1 of column 0 | k, k+1 of column 1 | ... | k, k+1 of column 31 | k+2, k+3 of column 0 | ...

Sums are added to 64-bit ones before they could leave 32 bits; the caller says after how many instructions.
"""

from __future__ import annotations

from typing import Any

from numba import types

from emu.backends.numba.machine import has_dot_products
from emu.backends.numba.vector.lanes import F32, F64, I1, I8, I16, I32, I64, IR, LANES, Emitter, Vector, intrinsic

TILE_ROWS, PANEL_COLUMNS = 8, 2 * LANES
#: Numbers that are converted together.
CONVERTED = 2 * LANES
#: Bytes of one lane's operands; by bits of an operand, the products that one instruction adds in a lane.
WORD_BYTES = 4
NEIGHBOURS = {16: 2, 8: 4}
_BYTES = "llvm.x86.avx512.vpdpbusd.512"
_KINDS = {16: I16, 8: I8}
_PAIR_PRODUCTS = "llvm.x86.avx2.pmadd.wd"
#: Rows whose sums stay in registers: 16 of 512 bits, or 8 of 256.
ROWS_OF_DOTS, ROWS_OF_PAIRS = TILE_ROWS, 2


@intrinsic
def add_dot_tile(
    typing_context: Any, kind: Any, a: Any, row_bytes: Any, panel: Any, instructions: Any, shift: Any, sums: Any
) -> Any:
    """Add the product of 8 rows and a panel, times 2**shift, to 8 x 32 int64 sums.

    Args:
        typing_context: Numba's.
        kind: dtype of the panel, int8 or int16.
        a: address of the first row.
        row_bytes: from one row to the next.
        panel: address of the panel at the same k.
        instructions: along k, each of 2 or 4 products.
        shift: exponent of a power of two by which the products are multiplied.
        sums: address of the sums.
    """
    signature = types.void(kind, *[types.int64] * 6)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        a, panel, sums = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 3, 6))
        rows = [e.at(a, builder.mul(args[2], e.integer(row)), I8) for row in range(TILE_ROWS)]
        tile = _emit_tile(e, kind.dtype.bitwidth, rows, panel, args[4])
        _add_to_sums(e, tile, args[5], sums)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_dot_tile_at(
    typing_context: Any, a: Any, row_bytes: Any, pairs: Any, offsets: Any, instructions: Any, shift: Any, sums: Any
) -> Any:
    """Add the product of 8 rows of 16-bit pairs and pairs lying anywhere, times 2**shift, to 8 x 32 int64 sums.

    Args:
        typing_context: Numba's.
        a: address of the first row.
        row_bytes: from one row to the next.
        pairs: address of pairs of 16-bit numbers; instruction i takes 32 neighbours from offsets[i] on.
        offsets: address of int64 offsets in pairs, one for each instruction.
        instructions: along k, each of a pair of products.
        shift: exponent of a power of two by which the products are multiplied.
        sums: address of the sums.
    """
    signature = types.void(*[types.int64] * 7)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        a, pairs, offsets, sums = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 2, 3, 6))
        rows = [e.at(a, builder.mul(args[1], e.integer(row)), I8) for row in range(TILE_ROWS)]
        tile = _emit_tile(e, 16, rows, pairs, args[4], offsets)
        _add_to_sums(e, tile, args[5], sums)
        return context.get_dummy_value()

    return signature, generate


def _emit_tile(
    e: Emitter, bits: int, rows: list[Any], panel: Any, instructions: Any, offsets: Any = None
) -> list[list[Vector]]:
    """Return the 32-bit sums of the tile, two vectors a row; `offsets`: of the right operands of each instruction."""
    # A part's sums must stay in registers through its loop along k; the panel is read again for each part.
    together = ROWS_OF_DOTS if has_dot_products() else ROWS_OF_PAIRS
    parts = [rows[first : first + together] for first in range(0, len(rows), together)]
    return [sums for part in parts for sums in _emit_rows(e, bits, part, panel, instructions, offsets)]


def _emit_rows(
    e: Emitter, bits: int, rows: list[Any], panel: Any, instructions: Any, offsets: Any
) -> list[list[Vector]]:
    builder, kind = e.builder, _KINDS[bits]
    lanes = 4 * LANES // (bits // 8)
    tile = [[e.variable(e.splat(I32, 0)) for _ in range(2)] for _ in rows]
    with e.loop(instructions) as number:
        if offsets is None:
            # The panel's next word of all 32 columns: two vectors.
            first = builder.mul(number, e.integer(2 * lanes))
        else:
            first = builder.mul(e.load_scalar(I64, offsets, number), e.integer(NEIGHBOURS[bits]))
        right = [e.load(kind, panel, builder.add(first, e.integer(half * lanes)), lanes) for half in range(2)]
        for row, sums in zip(rows, tile, strict=True):
            # One row's neighbours along k, 32 bits, in all lanes.
            left = e.splat(I32, e.load_scalar(I32, row, number)).reshaped(kind, lanes)
            for half in range(2):
                sums[half].set(_plus_dot(e, bits, sums[half].now, left, right[half]))
    return [[variable.now for variable in sums] for sums in tile]


def plus_pairs(e: Emitter, sums: Vector, left: Vector, right: Vector) -> Vector:
    """Return 32-bit sums with two 16-bit products added in each lane.

    As assembly: of the intrinsic, LLVM makes two instructions (vpmaddwd, vpaddd) in the first row of a tile, where it
    believes that the chain of sums is what limits. All sixteen chains run at once, and instructions limit.
    """
    return e.assembly("vpdpwssd $3, $2, $0", "=v,0,v,v", [sums, left, right])


def _plus_dot(e: Emitter, bits: int, sums: Vector, left: Vector, right: Vector) -> Vector:
    """Return sums with the products of each lane's neighbours added."""
    if has_dot_products() and bits == 16:
        return plus_pairs(e, sums, left, right)
    if has_dot_products():
        return Vector(e, e.call(_BYTES, sums.value.type, [sums.value, left.value, right.value]))
    # vpmaddwd takes eight of the sixteen lanes. Its sum of two products leaves 32 bits only if all four numbers are
    # -2**15, and such operands are split.
    wide = IR.VectorType(I32, LANES // 2)
    parts = [range(first, first + LANES) for first in (0, LANES)]
    pairs = [[x.shuffled(x, part).value for x in (left, right)] for part in parts]
    products = [Vector(e, e.call(_PAIR_PRODUCTS, wide, factors)) for factors in pairs]
    return sums + products[0].shuffled(products[1], range(LANES))


def _add_to_sums(e: Emitter, tile: list[list[Vector]], shift: Any, sums: Any) -> None:
    for row, halves in enumerate(tile):
        for half, vector in enumerate(halves):
            offset = e.integer(row * PANEL_COLUMNS + half * LANES)
            # 64 bits hold them: the planner has bounded sums by 2**53.
            wide = vector.as_kind(I64) << e.splat(I64, shift)
            e.store(e.load(I64, sums, offset) + wide, sums, offset)


@intrinsic
def pair_up(typing_context: Any, source: Any, distance: Any, target: Any, count: Any) -> Any:
    """Write each of `count` 16-bit numbers, rounded up to a multiple of 32, beside the number `distance` after it."""
    signature = types.void(types.int64, types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        source, target = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 2))
        rounds = builder.udiv(builder.add(args[3], e.integer(PANEL_COLUMNS - 1)), e.integer(PANEL_COLUMNS))
        with e.loop(rounds) as i:
            first = builder.mul(i, e.integer(PANEL_COLUMNS))
            numbers = e.load(I16, source, first, PANEL_COLUMNS)
            # The last vector reaches beyond the last number: into the next matrix, or the zeros after the data.
            following = e.load(I16, source, builder.add(first, args[1]), PANEL_COLUMNS)
            e.store(numbers.interleaved(following), target, builder.mul(first, e.integer(2)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def interleave(typing_context: Any, kind: Any, rows: Any, target: Any) -> Any:
    """Write 32 columns of four 8-bit rows, or of the first two 16-bit ones, at addresses `rows` into a panel."""
    signature = types.void(kind, rows, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, bits = Emitter(builder), kind.dtype.bitwidth
        pointers = [builder.inttoptr(builder.extract_value(args[1], i), IR.PointerType(I8)) for i in range(4)]
        loaded = [e.load(_KINDS[bits], pointer, e.integer(0), PANEL_COLUMNS) for pointer in pointers]
        panel = builder.inttoptr(args[2], IR.PointerType(I8))
        pairs = [loaded[i].interleaved(loaded[i + 1]) for i in range(0, NEIGHBOURS[bits], 2)]
        if len(pairs) > 1:
            wide = [pair.reshaped(I16, PANEL_COLUMNS) for pair in pairs]
            pairs = [wide[0].interleaved(wide[1])]  # pairs of bytes, as 16 bits each, become fours
        e.store(pairs[0], panel, e.integer(0))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def move_word(typing_context: Any, source: Any, target: Any) -> Any:
    """Copy the operands of one lane between two addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        source, target = (builder.inttoptr(arg, IR.PointerType(I8)) for arg in args)
        e.store(e.load(I8, source, e.integer(0), WORD_BYTES), target, e.integer(0))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def move_row(typing_context: Any, kind: Any, source: Any, target: Any, high_target: Any, count: Any, split: Any) -> Any:
    """Write left operands one after the other, in whole vectors: the last may reach beyond `count`.

    Args:
        typing_context: Numba's.
        kind: their dtype; 128 is added to int8, which makes it unsigned; int16 stays, or is split.
        source: address of the first operand.
        target: address of what is written: operands, or their low bytes as signed numbers.
        high_target: address of what is left of split operands, divided by 256.
        count: how many.
        split: whether operands are split.
    """
    signature = types.void(kind, *[types.int64] * 5)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, bits = Emitter(builder), kind.dtype.bitwidth
        source, target, high_target = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 3))
        lanes = 4 * LANES // (bits // 8)
        rounds = builder.udiv(builder.add(args[4], e.integer(lanes - 1)), e.integer(lanes))
        with e.loop(rounds) as i:
            first = builder.mul(i, e.integer(lanes))
            whole = e.load(_KINDS[bits], source, first, lanes)
            if bits == I8.width:
                e.store(whole ^ -128, target, first)  # turning the sign bit adds 128
            else:
                apart = e.splat(I1, builder.icmp_signed("!=", args[5], e.integer(0)), lanes)
                e.store(apart.choose((whole << 8).shift_signed(8), whole), target, first)
                # A low byte with its sign bit set is 256 less than without a sign: the rest is one more.
                e.store(whole.shift_signed(8) + ((whole >> 7) & 1), high_target, first)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def clear_tile(typing_context: Any, sums: Any) -> Any:
    """Set the 8 x 32 int64 sums at an address to 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        pointer = builder.inttoptr(args[0], IR.PointerType(I8))
        for offset in range(0, TILE_ROWS * PANEL_COLUMNS, LANES):
            e.store(e.splat(I64, 0), pointer, e.integer(offset))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def finish_tile(
    typing_context: Any,
    sums: Any,
    corrections: Any,
    lsb: Any,
    addend: Any,
    addend_stride: Any,
    many_addends: Any,
    out: Any,
    out_stride: Any,
    rows: Any,
    width: Any,
) -> Any:
    """Write rows of sums, less their columns' corrections, times the value of 1, plus an addend, as float64.

    Args:
        typing_context: Numba's.
        sums: address of int64 sums, 32 a row.
        corrections: address of 32 int64.
        lsb: the value of 1 in the sums, a power of two.
        addend: address of the first row's addend, float64.
        addend_stride: from one row's addend to the next.
        many_addends: whether each column has an addend of its own.
        out: address of the first row.
        out_stride: from one row to the next.
        rows: how many.
        width: columns, 1..32.
    """
    i64 = types.int64
    signature = types.void(i64, i64, types.float64, i64, i64, types.boolean, i64, i64, i64, i64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        sums, corrections, addend, out = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 1, 3, 6))
        lsb, numbers = e.splat(F64, args[2]), e.constants(I64, range(LANES))
        for half in range(2):
            first = e.integer(half * LANES)
            # Lanes of columns: beyond the last, no addend is read and nothing is written.
            here = numbers < e.splat(I64, builder.sub(args[9], first))
            with builder.if_then(here.any()):  # no column may be left for the second half
                off, each = e.load(I64, corrections, first), here & e.splat(I1, args[5])
                with e.loop(args[8]) as row:
                    offset = builder.add(builder.mul(row, e.integer(PANEL_COLUMNS)), first)
                    value = (e.load(I64, sums, offset) - off).as_kind(F64) * lsb
                    addend_row = builder.mul(row, args[4])
                    shared = e.splat(F64, e.load_scalar(F64, addend, addend_row))
                    addends = e.load_where(each, F64, addend, builder.add(addend_row, first), shared)
                    e.store_where(here, value + addends, out, builder.add(builder.mul(row, args[7]), first))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def convert_raws(typing_context: Any, x: Any, kind: Any, scale: Any, raws: Any, raw_kind: Any, count: Any) -> Any:
    """Write `count` floats times `scale` as integers; return the bitwise or of x, or of -x - 1 if x is negative.

    Args:
        typing_context: Numba's.
        x: address of float32 or float64 numbers.
        kind: their dtype.
        scale: a power of two.
        raws: address of the integers.
        raw_kind: their dtype.
        count: a multiple of `CONVERTED`.
    """
    signature = types.int64(types.int64, kind, types.float64, types.int64, raw_kind, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        source = F32 if kind.dtype == types.float32 else F64
        target = _KINDS[raw_kind.dtype.bitwidth]
        pointers = [builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 3)]
        factor = e.splat(source, builder.fptrunc(args[2], F32) if source is F32 else args[2], CONVERTED)
        seen = e.variable(e.splat(I32, 0, CONVERTED))
        with e.loop(builder.udiv(args[5], e.integer(CONVERTED))) as i:
            first = builder.mul(i, e.integer(CONVERTED))
            # Exact: carriers are raws times a power of two. raw ^ (raw >> 31) is raw, or -raw - 1 if it is negative.
            raw = (e.load(source, pointers[0], first, CONVERTED) * factor).as_kind(I32)
            seen.set(seen.now | (raw ^ raw.shift_signed(31)))
            e.store(raw.as_kind(target), pointers[1], first)
        return builder.sext(seen.now.any_bit(), I64)

    return signature, generate


@intrinsic
def add_columns(typing_context: Any, kind: Any, panel: Any, instructions: Any, sums: Any) -> Any:
    """Add the columns of a packed 8-bit panel to 32 int64 sums; add nothing for 16 bits, which need no corrections."""
    signature = types.void(kind, types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if kind.dtype.bitwidth != I8.width:
            return context.get_dummy_value()
        e = Emitter(builder)
        pointer, target = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 3))
        ones = e.splat(I8, 1, 4 * LANES)  # the unsigned factor
        totals = [e.variable(e.splat(I32, 0)) for _ in range(2)]
        with e.loop(args[2]) as number:
            for half, total in enumerate(totals):
                # A panel has 4 bytes of each of 32 columns for an instruction, 16 columns a vector.
                offset = builder.add(builder.mul(number, e.integer(8 * LANES)), e.integer(4 * LANES * half))
                numbers = e.load(I8, pointer, offset, 4 * LANES)
                added = e.call(_BYTES, total.type, [total.now.value, ones.value, numbers.value])
                total.set(Vector(e, added))
        for half, total in enumerate(totals):
            offset = e.integer(half * LANES)
            e.store(e.load(I64, target, offset) + total.now.as_kind(I64), target, offset)
        return context.get_dummy_value()

    return signature, generate
