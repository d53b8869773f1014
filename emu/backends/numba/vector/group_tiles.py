"""Tiles of groups of products, added in blocks the way matrix units add 4-bit operands: 4 rows by 32 columns.

    group = sum of its products, exact                     its exponent is that of two scales, given beside the numbers
    top   = largest exponent among acc and the groups that have a product that is not 0
    acc   = R(sum of acc and groups, each cut at 2**(top - fraction_bits))

A group is added up in float32, which holds each part of its sum. It is cut, and added to others, in float64: integers
below 2**53 in units of 2**(top - fraction_bits). Which products are not 0 is told by two words, with a bit for each
number of a row's and of a column's group that is not 0: they have a bit in common. So a group that cancels counts.

Source: docs/concepts/scaled.md, "A product".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types
from typing_extensions import override

from emu.backends.numba.vector.block_tiles import ROWS, ROWS_OF_SHORT_VECTORS, Lanes, Part, Reader, rounded
from emu.backends.numba.vector.lanes import F32, F64, I8, I32, I64, IR, Emitter, Vector, intrinsic
from emu.backends.numba.vector.ordered_tiles import parts


@intrinsic
def add_groups(
    typing_context: Any,
    group: Any,
    cuts: Any,
    a: Any,
    a_exponents: Any,
    a_marks: Any,
    panel: Any,
    panel_exponents: Any,
    panel_marks: Any,
    blocks: Any,
    groups: Any,
    fraction_bits: Any,
    floor: Any,
    sums: Any,
) -> Any:
    """Add blocks of groups of products of four rows and a panel to their sums.

    Args:
        typing_context: Numba's.
        group: products of a group, a literal.
        cuts: whether sums are rounded toward zero, else to nearest even; a literal.
        a: address of four rows, float32, `blocks` * `groups` * `group` each.
        a_exponents: of the exponents of their groups, int32.
        a_marks: of words that mark in each group which numbers are not 0, int32.
        panel: address of 32 columns, float32, one k after the other.
        panel_exponents: of the exponents of their groups, int32.
        panel_marks: of the marks in them, int32.
        blocks: how many.
        groups: of a block.
        fraction_bits: kept below the largest exponent.
        floor: smallest exponent that a block is aligned to.
        sums: address of 4 * 32 float32.
    """
    i64 = types.int64
    signature = types.void(group, cuts, *[i64] * 11)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        a, a_exponents, a_marks, panel, panel_exponents, panel_marks, sums = (
            builder.inttoptr(args[i], IR.PointerType(I8)) for i in (*range(2, 8), 12)
        )
        blocks, groups, fraction_bits = args[8:11]
        step = _Step(group.literal_value, cuts.literal_value, groups, e.splat(I64, fraction_bits))
        # Groups along k: from one row's exponents, or marks, to the next row's.
        stride = builder.mul(blocks, groups)
        # Each part passes all blocks before the next one begins: its sums stay in registers.
        for rows, halves in parts(ROWS, ROWS_OF_SHORT_VECTORS):
            part = _Groups(e, rows, halves, sums, builder.trunc(args[11], I32))
            part.step = step
            part.numbers = part.reader(F32, a, panel, builder.mul(stride, e.integer(step.group)))
            part.exponents = part.reader(I32, a_exponents, panel_exponents, stride)
            part.marks = part.reader(I32, a_marks, panel_marks, stride)
            part.emit(blocks)
        return context.get_dummy_value()

    return signature, generate


class _Step(NamedTuple):
    """A unit: the literals of `add_groups`, and what the code reads at run time."""

    group: int
    cuts: int
    groups: Any
    fraction_bits: Vector


class _Groups(Part):
    """The sum of each group is a term."""

    step: _Step
    numbers: Reader
    exponents: Reader
    marks: Reader

    @override
    def added(self, block: Any, acc: Lanes) -> Lanes:
        e, step = self.e, self.step
        first = e.builder.mul(block, step.groups)
        top = {at: x.as_kind(I64) for at, x in self._tops(acc, first).items()}
        scale = {at: e.power_of_two(F64, step.fraction_bits - x) for at, x in top.items()}
        # Without + 0.0, a sum of terms that are cut to -0 would be -0.
        totals = {at: e.variable((x.as_kind(F64) * scale[at]).trunc() + 0.0) for at, x in acc.items()}
        with e.loop(step.groups) as group:
            for at, x in self._sums(e.builder.add(first, group)).items():
                totals[at].set(totals[at].now + (x.as_kind(F64) * scale[at]).trunc())
        last_places = {at: e.power_of_two(F64, x - step.fraction_bits) for at, x in top.items()}
        return {at: rounded(x.now * last_places[at], step.cuts) for at, x in totals.items()}

    def _tops(self, acc: Lanes, first: Any) -> Lanes:
        """Return the largest exponents; those of groups of zeros are below all others."""
        top = {at: self.e.variable(x) for at, x in self.tops_of(acc).items()}
        with self.e.loop(self.step.groups) as group:
            k = self.e.builder.add(first, group)
            (left, right), (left_marks, right_marks) = self.exponents(k), self.marks(k)
            for row, half in self.lanes:
                # A group of zeros takes the floor, below which no top lies.
                counts = (left_marks[row] & right_marks[half]) != 0
                exponent = counts.choose(left[row] + right[half], self.floor)
                top[row, half].set(exponent.at_least(top[row, half].now))
        return {at: x.now for at, x in top.items()}

    def _sums(self, group: Any) -> Lanes:
        """Return the sums of a group's products."""
        e, sums = self.e, Lanes()
        first = e.builder.mul(group, e.integer(self.step.group))
        for i in range(self.step.group):
            left, right = self.numbers(e.builder.add(first, e.integer(i)))
            for row, half in self.lanes:
                at = row, half
                # Nothing is rounded: each part of a group's sum is a float32, so that fused or not is the same.
                sums[at] = sums[at].plus_product(left[row], right[half]) if at in sums else left[row] * right[half]
        return sums
