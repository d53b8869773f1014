"""Tiles of products added in blocks, the way matrix units add: 4 rows by 32 columns, every sum in its own lane.

    top   = largest exponent among acc and the n products
    acc   = R(sum of acc and products, each cut at 2**(top - fraction_bits))

This is exact in float32 and int32. A product of two operands has at most 24 significant bits; in units of
2**(top - fraction_bits), converting it to an integer cuts it toward zero. As many of those as 32 bits hold are added
there, the sums of more in float64. One instruction converts a sum and rounds it as the unit does; if no instruction can
be told how to round, the bits of a float64 that float32 lacks are cleared.

Source: docs/concepts/matrix-units.md, "Matrix units".
"""

from __future__ import annotations

from typing import Any

from numba import types

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
#: Biased exponent of 1, and bits of the fraction, of float32; bits that float64 has more.
BIAS, FRACTION_BITS, MORE_BITS = 127, 23, 29


@intrinsic
def add_blocks(
    typing_context: Any,
    n: Any,
    fraction_bits: Any,
    together: Any,
    cuts: Any,
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
    signature = types.void(n, fraction_bits, together, cuts, *[i64] * 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        addresses = [builder.inttoptr(args[i], IR.PointerType(I8)) for i in (4, 5, 7, 8, 11)]
        stride, floor = args[6], builder.trunc(args[10], I32)
        for rows, halves in parts(ROWS, ROWS_OF_SHORT_VECTORS):
            part = _Part(e, rows, halves, addresses, stride, floor)
            part.emit(n.literal_value, fraction_bits.literal_value, together.literal_value, cuts.literal_value, args[9])
        return context.get_dummy_value()

    return signature, generate


class _Part:
    """The numbers of some rows and halves of a tile while code for them is emitted."""

    def __init__(
        self, e: Emitter, rows: range, halves: tuple[int, ...], addresses: list[Any], row_stride: Any, floor: Any
    ) -> None:
        left, exponents, self.panel, self.panel_exponents, self.sums = addresses
        self.e, self.halves, self.floor = e, halves, e.splat(I32, floor)
        starts = {row: e.builder.mul(row_stride, e.integer(row)) for row in rows}
        self.rows = {row: e.at(left, start, F32) for row, start in starts.items()}
        self.row_exponents = {row: e.at(exponents, start, I32) for row, start in starts.items()}
        self.lanes = [(row, half) for row in rows for half in halves]

    def emit(self, n: int, fraction_bits: int, together: int, cuts: int, blocks: Any) -> None:
        """Emit the loop over the blocks."""
        e, builder = self.e, self.e.builder
        offsets = {(row, half): e.integer(row * PANEL_COLUMNS + half * LANES) for row, half in self.lanes}
        sums = {at: e.variable(e.load(F32, self.sums, offset)) for at, offset in offsets.items()}
        with e.loop(blocks) as block:
            first = builder.mul(block, e.integer(n))
            acc = {at: variable.now for at, variable in sums.items()}
            top = self._tops(acc, first, n)
            scale = {at: e.power_of_two(F32, e.splat(I32, fraction_bits) - x) for at, x in top.items()}
            # The conversion to an integer rounds toward zero: it cuts.
            cut = {at: (acc[at] * scale[at]).as_kind(I32) for at in self.lanes}
            for at, total in self._sums(cut, scale, first, n, together, cuts).items():
                lsb = e.power_of_two(F32, top[at] - fraction_bits)
                sums[at].set(total * lsb)
        for at, offset in offsets.items():
            e.store(sums[at].now, self.sums, offset)

    def _right(self, kind: Any, address: Any, k: Any) -> dict[int, Vector]:
        first = self.e.builder.mul(k, self.e.integer(PANEL_COLUMNS))
        offsets = {half: self.e.builder.add(first, self.e.integer(half * LANES)) for half in self.halves}
        return {half: self.e.load(kind, address, offset) for half, offset in offsets.items()}

    def _left(self, kind: Any, addresses: dict[int, Any], k: Any) -> dict[int, Vector]:
        return {row: self.e.splat(kind, self.e.load_scalar(kind, at, k)) for row, at in addresses.items()}

    def _tops(self, acc: dict[Any, Vector], first: Any, n: int) -> dict[Any, Vector]:
        """Return the largest exponents; those of zeros are below all others."""
        # A field of 0, of zeros and subnormals, gives an exponent below every floor.
        top = {at: (((x.bits() << 1) >> (FRACTION_BITS + 1)) - BIAS).at_least(self.floor) for at, x in acc.items()}
        for i in range(n):
            k = self.e.builder.add(first, self.e.integer(i))
            right, left = self._right(I32, self.panel_exponents, k), self._left(I32, self.row_exponents, k)
            for row, half in self.lanes:
                top[row, half] = (left[row] + right[half]).at_least(top[row, half])
        return top

    def _sums(
        self, acc: dict[Any, Vector], scale: dict[Any, Vector], first: Any, n: int, together: int, cuts: int
    ) -> dict[Any, Vector]:
        """Return the rounded sums of cut accumulators and cut products, in units of their last places."""
        # If all of a block fits 32 bits, the cut accumulator begins the sum; else parts are added up in float64.
        fits = together > n
        totals = dict(acc) if fits else {at: x.as_kind(F64) for at, x in acc.items()}
        for start in range(0, n, together):
            part = dict(totals) if fits else {}
            for i in range(start, min(start + together, n)):
                k = self.e.builder.add(first, self.e.integer(i))
                right, left = self._right(F32, self.panel, k), self._left(F32, self.rows, k)
                for row, half in self.lanes:
                    product = (left[row] * right[half] * scale[row, half]).as_kind(I32)
                    part[row, half] = part[row, half] + product if (row, half) in part else product
            totals = part if fits else {at: totals[at] + part[at].as_kind(F64) for at in self.lanes}
        return {at: _rounded(x, cuts) for at, x in totals.items()}


def _rounded(x: Vector, cuts: int) -> Vector:
    """Convert exact sums, int32 or float64, to float32."""
    if not cuts:
        return x.as_kind(F32)
    if not has_directed_rounding():
        bits = x.as_kind(F64).bits() & -(1 << MORE_BITS)  # toward zero, and float64 holds each int32
        return bits.bits_as(F64).as_kind(F32)
    e, mode = x.emitter, x.emitter.integer(ROUND_TOWARD_ZERO, I32)
    if x.kind is I32:
        whole = IR.VectorType(F32, LANES)
        return Vector(e, e.call("llvm.x86.avx512.sitofp.round.v16f32.v16i32", whole, [x.value, mode]))
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
