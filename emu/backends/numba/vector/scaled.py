"""Blocks that share scales, in vector code: their largest magnitudes, and their elements.

A panel is some rows of an array, and so many neighbours of each that it stays in the cache between the two passes. Its
blocks are wide, all their rows multiples of sixteen elements long, or tall: one element wide, a block in each lane.

    largest     |x|, as integers         the largest of each block
    elements    y = x * factor           rounded, bounded and counted, as the output stage does

Elements round to the nearest, ties to even. With c = 2**(last + 23), where `last` is the exponent of the last place of
y in the element format, float32 numbers of c..2c lie 2**last apart: |y| + c is rounded there, and (|y| + c) - c is
exact. Numbers below the smallest normal need no other way: their last place is the format's quantum.

Source: docs/concepts/scaled.md; docs/concepts/flags.md, "The output stage and its flags".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from numba import types

from emu.backends.numba.machine import has_long_vectors
from emu.backends.numba.vector.lanes import F32, F64, I8, I32, I64, IR, LANES, Emitter, Variable, Vector, intrinsic

_MAGNITUDE, _SIGN, _INFINITY = 0x7FFFFFFF, -0x80000000, 0x7F800000
#: Numbers that elements are given, by position: float64 ones, then int64 ones.
(HIGH, LOW, SCALE, STEP, SMALLEST) = range(5)
(EMIN_FIELD, DROPPED, AHEAD) = range(3)
N_NUMBERS, N_INTEGERS = 5, 3
#: What elements count, by position: what is beyond the largest, what changed, results below the smallest normal number
#: and such that are 0, and what was 0 before it was rounded.
(BEYOND, CHANGED, SMALL, ZEROS, ZEROS_BEFORE) = range(5)
N_TALLIES = 5
#: In how many lanes the largest of as many blocks are found together.
TOGETHER = 8


@dataclass(frozen=True)
class Shape:
    """What is fixed when the code of elements is compiled; everything else is a number that is given to it.

    Attributes:
        tall: whether blocks are one element wide.
        divides: whether numbers are divided by their factor, else multiplied.
        exact: whether the factor is a power of two, so that a quotient too small for float32 is no result.
        is_float: whether elements are floats, else fixed point.
        one_zero: whether a float format has +0 alone.
        counted: whether flags are counted.
    """

    tall: int
    divides: int
    exact: int
    is_float: int
    one_zero: int
    counted: int

    def text(self) -> str:
        """Return the shape as a text, which compiled code can take as a literal."""
        return " ".join(str(getattr(self, field.name)) for field in fields(self))

    @classmethod
    def of_text(cls, text: str) -> Shape:
        """Return the shape that `text` describes."""
        return cls(*map(int, text.split()))


def _lanes() -> int:
    """Return how many lanes keep all counts in registers."""
    return LANES if has_long_vectors() else LANES // 2


@intrinsic
def largest_of_blocks(
    typing_context: Any, layout: Any, x: Any, stride: Any, rows: Any, blocks: Any, vectors: Any, amax: Any
) -> Any:
    """Write the largest magnitude of each block of a panel: as integers, so that a NaN is larger than all numbers.

    Args:
        typing_context: Numba's.
        layout: "wide" or "tall", a literal; sixteen tall blocks count as one.
        x: address of the panel's first number, float32.
        stride: elements from one row to the next.
        rows: of a block, and of the panel.
        blocks: how many lie beside each other.
        vectors: of sixteen elements in a row of a block; 1 if it is tall.
        amax: address of what is written, float32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        x, amax = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 6))
        emit = {"tall": _emit_largest_of_columns, "wide": _emit_largest}[layout.literal_value]
        stride, rows, blocks, vectors = args[2:6]
        emit(e, x, stride, rows, blocks, vectors, amax)
        return e.integer(0)

    return types.int64(layout, *[types.int64] * 6), generate


def _magnitudes(e: Emitter, x: Any, at: Any) -> Vector:
    return e.load(I32, x, at) & _MAGNITUDE


def _emit_largest(e: Emitter, x: Any, stride: Any, rows: Any, blocks: Any, vectors: Any, amax: Any) -> None:
    builder, width = e.builder, e.builder.mul(vectors, e.integer(LANES))

    def largest_in(first: Any, count: int) -> list[Vector]:
        """Return the largest magnitudes of some blocks in eight lanes, beginning with block `first`."""
        # Of each block, eight lanes have a maximum of their own; they are compared at the end.
        found = [e.variable(e.splat(I32, 0, TOGETHER)) for _ in range(count)]
        start = builder.mul(first, width)
        with e.loop(rows) as row, e.loop(vectors) as i:
            offset = builder.add(builder.mul(row, stride), builder.mul(i, e.integer(LANES)))
            for number, largest in enumerate(found):
                at = builder.add(builder.add(start, builder.mul(e.integer(number), width)), offset)
                for part in range(0, LANES, TOGETHER):
                    magnitudes = e.load(I32, x, builder.add(at, e.integer(part)), TOGETHER) & _MAGNITUDE
                    largest.set(magnitudes.at_least(largest.now))
        return [largest.now for largest in found]

    # Eight blocks give one vector of eight maxima; blocks that are left are reduced one by one.
    whole = builder.sdiv(blocks, e.integer(TOGETHER))
    with e.loop(whole) as i:
        first = builder.mul(i, e.integer(TOGETHER))
        e.store(_largest_of_each(largest_in(first, TOGETHER)), amax, first)
    done = builder.mul(whole, e.integer(TOGETHER))
    with e.loop(builder.sub(blocks, done)) as i:
        block = builder.add(done, i)
        builder.store(largest_in(block, 1)[0].largest_unsigned(), e.at(amax, block, I32))


def _largest_of_each(vectors: list[Vector]) -> Vector:
    """Return the largest lane of each of eight vectors of eight integers, as one vector."""
    # Neighbours are merged three times: each shuffle is one instruction of 256 bits.
    for low, high in (
        ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]),
        ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
        ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
    ):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [a.shuffled(b, low).at_least(a.shuffled(b, high)) for a, b in pairs]
    return vectors[0]


def _emit_largest_of_columns(e: Emitter, x: Any, stride: Any, rows: Any, groups: Any, vectors: Any, amax: Any) -> None:
    builder = e.builder
    with e.loop(groups) as group:
        e.store(e.splat(I32, 0), amax, builder.mul(group, e.integer(LANES)))
    with e.loop(rows) as row, e.loop(groups) as group:
        column = builder.mul(group, e.integer(LANES))
        magnitudes = _magnitudes(e, x, builder.add(builder.mul(row, stride), column))
        e.store(magnitudes.at_least(e.load(I32, amax, column)), amax, column)


class _Elements:
    """Emits the code of elements: constants once, then vectors."""

    def __init__(self, e: Emitter, shape: Shape, parameters: Any) -> None:
        self.e, self.shape, self.lanes = e, shape, _lanes()
        self.numbers = [
            e.splat(F32, e.builder.fptrunc(e.load_scalar(F64, parameters, e.integer(i)), F32), self.lanes)
            for i in range(N_NUMBERS)
        ]
        self.integers = [
            e.splat(I32, e.builder.trunc(e.load_scalar(I64, parameters, e.integer(N_NUMBERS + i)), I32), self.lanes)
            for i in range(N_INTEGERS)
        ]
        self.counts: dict[int, Variable] = {}
        for tally in range(N_TALLIES):
            self.counts[tally] = e.variable(e.splat(I32, 0, self.lanes))

    def count(self, tally: int, where: Vector) -> None:
        """Count the lanes of a mask, whose bits are -1 as integers."""
        if self.shape.counted:
            self.counts[tally].set(self.counts[tally].now - where.as_kind(I32))

    def write(self, x: Vector, factor: Vector, scale: Vector) -> Vector:
        """Return what is written for numbers; count."""
        y = x / factor if self.shape.divides else x * factor
        # Divided by a power of two, only a zero is a zero, although float32 may have no such small quotient.
        self.count(ZEROS_BEFORE, (x if self.shape.exact else y) == 0.0)
        written = self._float(y) if self.shape.is_float else self._fixed(y)
        # So what is written is compared with the number, not with the quotient. The product is exact: the number is a
        # multiple of 2**-149, and what changes a quotient drops places below that of the result. Or it is infinite.
        self.count(CHANGED, written * scale != x if self.shape.exact else written != y)
        return written

    def _float(self, y: Vector) -> Vector:
        magnitude = (y.bits() & _MAGNITUDE).bits_as(F32)
        field = (y.bits() & _INFINITY).at_least(self.integers[EMIN_FIELD])
        # Of a number so large that c is none, the sum is NaN, or c is negative and too small to change it: both are
        # beyond the largest element, and NaN is not at most it.
        c = (field + self.integers[DROPPED]).bits_as(F32)
        rounded = (magnitude + c) - c
        self.count(BEYOND, ~(rounded <= self.numbers[HIGH]))
        bounded = rounded.at_most(self.numbers[HIGH])
        self.count(SMALL, bounded < self.numbers[SMALLEST])
        self.count(ZEROS, bounded == 0.0)
        written = (bounded.bits() | (y.bits() & _SIGN)).bits_as(F32)
        return written + 0.0 if self.shape.one_zero else written

    def _fixed(self, y: Vector) -> Vector:
        rounded = (y * self.numbers[SCALE]).rint()
        bounded = rounded.clamp(self.numbers[LOW], self.numbers[HIGH])
        self.count(BEYOND, bounded != rounded)
        self.count(ZEROS, rounded == 0.0)
        # + 0.0, as fixed point has no -0; a product with a power of two is exact
        return bounded * self.numbers[STEP] + 0.0

    def add_counts(self, tallies: Any) -> None:
        """Add what was counted to the tallies, int64."""
        builder = self.e.builder
        for tally, count in self.counts.items():
            pointer = self.e.at(tallies, self.e.integer(tally), I64)
            total = builder.zext(count.now.total(), I64)
            builder.store(builder.add(builder.load(pointer, typ=I64), total), pointer)


@intrinsic
def write_elements(
    typing_context: Any,
    shape: Any,
    x: Any,
    out: Any,
    stride: Any,
    rows: Any,
    blocks: Any,
    vectors: Any,
    factors: Any,
    scales: Any,
    past_caches: Any,
    parameters: Any,
    tallies: Any,
) -> Any:
    """Write the elements of a panel, whose numbers are all finite.

    Args:
        typing_context: Numba's.
        shape: text of a `Shape`, a literal.
        x: address of the panel's first number, float32.
        out: address of its first element, float32.
        stride: elements from one row to the next, of both.
        rows: of the panel.
        blocks: how many lie beside each other; if they are tall, groups of sixteen.
        vectors: of sixteen elements in a row of a block; 1 if it is tall.
        factors: address of what numbers are multiplied, or divided, by: float32, one for each block.
        scales: address of the scales, float32; read of powers of two alone.
        past_caches: whether to write past the caches; `out` and rows must be aligned to 64 bytes then.
        parameters: address of the elements' numbers: float64 ones, then int64 ones.
        tallies: address of the tallies, int64, added to.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        x, out, factors, scales, parameters, tallies = (
            builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 7, 8, 10, 11)
        )
        stride, rows, blocks, vectors = args[3:7]
        compiled, panel = Shape.of_text(shape.literal_value), (x, out, stride, rows, blocks, vectors)
        _emit_elements(e, compiled, panel, factors, scales, args[9], parameters, tallies)
        return e.integer(0)

    return types.int64(shape, *[types.int64] * 11), generate


def _emit_elements(
    e: Emitter,
    shape: Shape,
    panel: tuple[Any, ...],
    factors: Any,
    scales: Any,
    past_caches: Any,
    parameters: Any,
    tallies: Any,
) -> None:
    x, out, stride, rows, blocks, vectors = panel
    builder, elements = e.builder, _Elements(e, shape, parameters)
    ahead = e.load_scalar(I64, parameters, e.integer(N_NUMBERS + AHEAD))
    width = builder.mul(vectors, e.integer(LANES))
    past = builder.icmp_signed("!=", past_caches, e.integer(0))

    def of_blocks(array: Any, block: Any, part: int) -> Vector:
        """Return a number of each block, in the lanes of its elements."""
        if shape.tall:
            lane = builder.add(builder.mul(block, e.integer(LANES)), e.integer(part))
            return e.load(F32, array, lane, elements.lanes)
        return e.splat(F32, e.load_scalar(F32, array, block), elements.lanes)

    # Whether to write past the caches is known at run time, but LLVM's stores are of one kind: both are emitted.
    with builder.if_else(past) as branches:
        for branch, streamed in zip(branches, (True, False), strict=True):
            with branch, e.loop(rows) as row, e.loop(blocks) as block:
                start = builder.add(builder.mul(row, stride), builder.mul(block, width))
                parts = range(0, LANES, elements.lanes)
                numbers = [[of_blocks(array, block, part) for array in (factors, scales)] for part in parts]
                with e.loop(vectors) as i:
                    at = builder.add(start, builder.mul(i, e.integer(LANES)))
                    for part, (factor, scale) in zip(parts, numbers, strict=True):
                        here = builder.add(at, e.integer(part))
                        # One prefetch for sixteen numbers, a cache line.
                        if not part:
                            e.prefetch(F32, x, builder.add(here, ahead))
                        y = elements.write(e.load(F32, x, here, elements.lanes), factor, scale)
                        e.store(y, out, here, past_caches=streamed)
    elements.add_counts(tallies)
