"""Tiles of products added in blocks, the way matrix units add: 4 rows by 32 columns, every sum in its own lane.

    top   = largest exponent among acc and the n products
    acc   = R(sum of acc and products, each cut at 2**(top - fraction_bits))

This is exact in float32 and int32. A product of two operands has at most 24 significant bits; in units of
2**(top - fraction_bits), converting it to an integer cuts it toward zero. As many of those as 32 bits hold are added
there, the sums of more in float64. One instruction converts a sum and rounds it as the unit does; if no instruction can
be told how to round, the bits of a float64 that float32 lacks are cleared. An accumulator of fewer bits that rounds
toward zero has its lowest bits cleared once more.

Source: docs/concepts/matrix-units.md, "Matrix units".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types
from typing_extensions import override

from emu.backends.numba.compiling import kernel
from emu.backends.numba.machine import has_directed_rounding
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import (
    AVX512_LANES,
    F32,
    F64,
    I8,
    I32,
    IR,
    LANES,
    ROUND_TOWARD_ZERO,
    Emitter,
    Vector,
    intrinsic,
)
from emu.backends.numba.vector.ordered_tiles import parts

#: Rows of a tile: accumulators, exponents, scales and sums of 4 rows, 8 vectors each, fill 32 registers of 512 bits. Of
#: 256 bits, those of 2 rows and half the columns are together.
ROWS, ROWS_OF_SHORT_VECTORS = 4, 2
#: A vector for each row and half of a part; and what reads, at a k, one for each row and one for each half.
Lanes = dict[tuple[int, int], Vector]
Reader = Callable[[Any], tuple[dict[int, Vector], dict[int, Vector]]]
#: Biased exponent of 1, and bits of the fraction, of float32; bits that float64 has more.
BIAS, FRACTION_BITS, MORE_BITS = 127, 23, 29


@intrinsic
def add_blocks(
    typing_context: Any,
    n: Any,
    fraction_bits: Any,
    together: Any,
    cuts: Any,
    tail: Any,
    a: Any,
    a_exponents: Any,
    row_stride: Any,
    panel: Any,
    panel_exponents: Any,
    blocks: Any,
    floor: Any,
    sums: Any,
) -> Any:
    """Add blocks of products of four rows and a panel to their sums.

    Args:
        typing_context: Numba's.
        n: products of a block, a literal.
        fraction_bits: kept below the largest exponent, a literal.
        together: how many cut products add up within 32 bits, a literal; n + 1 if n products and the accumulator do.
        cuts: whether sums are rounded toward zero, else to nearest even; a literal.
        tail: bits of float32 that the accumulator lacks, a literal; 0 unless sums are rounded toward zero.
        a: address of the first row, float32.
        a_exponents: of its exponents, int32.
        row_stride: elements from one row to the next, of both.
        panel: address of 32 columns, float32, one k after the other.
        panel_exponents: of their exponents, int32.
        blocks: how many.
        floor: smallest exponent that a block is aligned to.
        sums: address of 4 * 32 float32.
    """
    i64 = types.int64
    signature = types.void(n, fraction_bits, together, cuts, tail, *[i64] * 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        a, a_exponents, panel, panel_exponents, sums = (
            builder.inttoptr(args[i], IR.PointerType(I8)) for i in (5, 6, 8, 9, 12)
        )
        step = Step(*(literal.literal_value for literal in (n, fraction_bits, together, cuts, tail)))
        # Each part passes all blocks before the next one begins: its sums stay in registers.
        for rows, halves in parts(ROWS, ROWS_OF_SHORT_VECTORS):
            part = _Products(e, rows, halves, sums, builder.trunc(args[11], I32))
            part.step, part.numbers = step, part.reader(F32, a, panel, args[7])
            part.exponents = part.reader(I32, a_exponents, panel_exponents, args[7])
            part.emit(args[10])
        return context.get_dummy_value()

    return signature, generate


@kernel
def begin_tile(sums: Any, first_sums: Any, row: int, column: int, height: int, width: int) -> None:
    """Set the sums of a tile, 4 * 32, to first sums (M or 1, N or 1) from a row and a column on, and others to 0."""
    sums[:] = 0.0
    for i in range(height):
        firsts, begin = first_sums[(row + i) % first_sums.shape[0]], i * PANEL_COLUMNS
        if firsts.size == 1:
            sums[begin : begin + width] = firsts[0]
        else:
            for j in range(width):
                sums[begin + j] = firsts[column + j]


@kernel
def keep_tile(sums: Any, out: Any, row: int, column: int, height: int, width: int) -> None:
    """Write the sums of a tile to results (M, N), from a row and a column on."""
    for i in range(height):
        for j in range(width):
            out[row + i, column + j] = sums[i * PANEL_COLUMNS + j]


class Step(NamedTuple):
    """A unit, as the literals of `add_blocks`."""

    n: int
    fraction_bits: int
    together: int
    cuts: int
    tail: int


class Part(ABC):
    """Some rows and halves of a tile while code for them is emitted: their sums are replaced block by block."""

    def __init__(self, e: Emitter, rows: range, halves: tuple[int, ...], sums: Any, floor: Any) -> None:
        self.e, self.sums, self.halves, self.row_numbers = e, sums, halves, rows
        self.floor = e.splat(I32, floor)
        self.lanes = [(row, half) for row in rows for half in halves]

    @abstractmethod
    def added(self, block: Any, acc: Lanes) -> Lanes:
        """Return R(acc + a block), in float32."""

    def emit(self, blocks: Any) -> None:
        """Emit the loop over the blocks."""
        e = self.e
        offsets = {(row, half): e.integer(row * PANEL_COLUMNS + half * LANES) for row, half in self.lanes}
        sums = {at: e.variable(e.load(F32, self.sums, offset)) for at, offset in offsets.items()}
        with e.loop(blocks) as block:
            for at, total in self.added(block, {at: variable.now for at, variable in sums.items()}).items():
                sums[at].set(total)
        for at, offset in offsets.items():
            e.store(sums[at].now, self.sums, offset)

    def reader(self, kind: Any, left: Any, panel: Any, row_stride: Any) -> Reader:
        """Return what reads, at a k, each row of an array in every lane, and a panel for each half of its columns."""
        e, builder = self.e, self.e.builder
        rows = {row: e.at(left, builder.mul(row_stride, e.integer(row)), kind) for row in self.row_numbers}

        def read(k: Any) -> tuple[dict[int, Vector], dict[int, Vector]]:
            first = builder.mul(k, e.integer(PANEL_COLUMNS))
            offsets = {half: builder.add(first, e.integer(half * LANES)) for half in self.halves}
            right = {half: e.load(kind, panel, offset) for half, offset in offsets.items()}
            return {row: e.splat(kind, e.load_scalar(kind, at, k)) for row, at in rows.items()}, right

        return read

    def tops_of(self, acc: Lanes) -> Lanes:
        """Return the exponents of accumulators, int32, and the floor of those that lie below it."""
        # A field of 0, of zeros and subnormals, gives an exponent below every floor.
        return {at: (((x.bits() << 1) >> (FRACTION_BITS + 1)) - BIAS).at_least(self.floor) for at, x in acc.items()}


class _Products(Part):
    """Each product is a term."""

    step: Step
    numbers: Reader
    exponents: Reader

    @override
    def added(self, block: Any, acc: Lanes) -> Lanes:
        e, step = self.e, self.step
        first = e.builder.mul(block, e.integer(step.n))
        top = self._tops(acc, first)
        # Exponents lie between -END and END (`centred.END`), and int32 holds a cut product only if fraction_bits is at
        # most 30: these scales and their inverses are normal float32 numbers.
        scale = {at: e.power_of_two(F32, e.splat(I32, step.fraction_bits) - x) for at, x in top.items()}
        # The conversion to an integer rounds toward zero: it cuts.
        cut = {at: (acc[at] * scale[at]).as_kind(I32) for at in self.lanes}
        totals = self._sums(cut, scale, first)
        return {at: totals[at] * e.power_of_two(F32, top[at] - step.fraction_bits) for at in self.lanes}

    def _tops(self, acc: Lanes, first: Any) -> Lanes:
        """Return the largest exponents; those of zeros are below all others."""
        top = self.tops_of(acc)
        for i in range(self.step.n):
            left, right = self.exponents(self.e.builder.add(first, self.e.integer(i)))
            for row, half in self.lanes:
                top[row, half] = (left[row] + right[half]).at_least(top[row, half])
        return top

    def _sums(self, acc: Lanes, scale: Lanes, first: Any) -> Lanes:
        """Return the rounded sums of cut accumulators and cut products, in units of their last places."""
        n, together = self.step.n, self.step.together
        # If all of a block fits 32 bits, the cut accumulator begins the sum; else parts are added up in float64.
        fits = together > n
        totals = dict(acc) if fits else {at: x.as_kind(F64) for at, x in acc.items()}
        for start in range(0, n, together):
            part = dict(totals) if fits else {}
            for i in range(start, min(start + together, n)):
                left, right = self.numbers(self.e.builder.add(first, self.e.integer(i)))
                for row, half in self.lanes:
                    product = (left[row] * right[half] * scale[row, half]).as_kind(I32)
                    part[row, half] = part[row, half] + product if (row, half) in part else product
            totals = part if fits else {at: totals[at] + part[at].as_kind(F64) for at in self.lanes}
        return {at: without_tail(rounded(x, self.step.cuts), self.step.tail) for at, x in totals.items()}


def without_tail(x: Vector, tail: int) -> Vector:
    """Return float32 numbers cut toward zero by so many bits of their fractions."""
    return (x.bits() & -(1 << tail)).bits_as(F32) if tail else x


def rounded(x: Vector, cuts: int) -> Vector:
    """Convert exact sums, int32 or float64, to float32."""
    if not cuts:
        return x.as_kind(F32)
    if not has_directed_rounding():
        bits = x.as_kind(F64).bits() & -(1 << MORE_BITS)  # toward zero, and float64 holds each int32
        return bits.bits_as(F64).as_kind(F32)
    e, mode = x.emitter, x.emitter.integer(ROUND_TOWARD_ZERO, I32)
    # The instruction takes 16 integers with its own rounding mode, without a change of the processor's.
    if x.kind is I32:
        whole = IR.VectorType(F32, LANES)
        return Vector(e, e.call("llvm.x86.avx512.sitofp.round.v16f32.v16i32", whole, [x.value, mode]))
    # Of float64, an instruction takes 8 lanes: two halves, joined again below.
    part, all_lanes = IR.VectorType(F32, AVX512_LANES), e.integer(-1, I8)
    halves = [
        e.call(
            "llvm.x86.avx512.mask.cvtpd2ps.512",
            part,
            [x.shuffled(x, range(first, first + AVX512_LANES)).value, IR.Constant(part, IR.Undefined), all_lanes, mode],
        )
        for first in range(0, LANES, AVX512_LANES)
    ]
    return Vector(e, halves[0]).shuffled(Vector(e, halves[1]), range(LANES))
