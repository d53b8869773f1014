"""Blocks of groups of products in vector code: the matrix units of 4-bit operands that share scales.

    operands       elements times scales, near enough to each other; the scales' exponents beside them
    groups         of up to 32 products whose exact sums float32 holds
    accumulator    float32, rounding toward zero or to nearest even

Operands that are not finite, and sums near the ends of float32, are left to the definition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import StageCode, Write, carrier_of
from emu.backends.memory import empty
from emu.backends.numba.centred import Centred, centred
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.terms import EXACT_BITS, FP32
from emu.backends.numba.vector.block_tiles import ROWS, begin_tile, keep_tile
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.group_tiles import add_groups
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.ordered_products import over_row_blocks, packed_panels
from emu.backends.numba.ways.dot_add import arranged
from emu.backends.product import Product, ProductCode

Array = NDArray[Any]
#: Products of a group: a word has a bit for each.
LARGEST_GROUP = bounded(32, 1, 32, "which numbers of a group are not 0 is told by the bits of an int32")
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 21
#: See `Way.speed`.
SPEED = 8.0


class Step(NamedTuple):
    """A matrix unit that sums groups.

    Attributes:
        n: products of a block.
        group: products of a group.
        fraction_bits: kept below the largest exponent.
        cuts: 1 rounds toward zero, 0 to nearest even.
    """

    n: int
    group: int
    fraction_bits: int
    cuts: int


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return "" for units that sum no groups, or why a unit that does is left to the reference."""
    blocks, accumulator = product.mac.blocks, product.mac.accumulator
    if product.is_exact or not product.is_aligned or blocks is None or blocks.group == 1:
        return ""
    assert accumulator is not None
    if not has_vectors():
        return "groups of products are added in vector code alone, which is not used here"
    if accumulator.format != FP32 or accumulator.overflow != k.IEEE:
        return "the accumulator of groups is no float32 that becomes infinite"
    if accumulator.rounding not in (k.TOWARD_ZERO, k.NEAREST_EVEN):
        return "sums of groups are rounded neither toward zero nor to nearest even"
    if blocks.adds_after:
        return "the accumulator is added after its groups"
    if blocks.group > LARGEST_GROUP:
        return f"groups have more than {LARGEST_GROUP} products"
    addend = product.formats[2]
    if addend is not None and (carrier_of(addend) != np.float32 or addend.daz):
        return "the addend of groups is wider than float32 or flushes subnormals"
    return None


def contents(product: Product, write: Write) -> Contents | None:
    """Return float32 contents, (B, M, N); None if the tiles are not exact for these numbers."""
    mac, alignment = product.code.mac, product.alignment
    assert mac.blocks is not None
    assert mac.accumulator is not None
    assert alignment is not None
    # Formats do not decide: how many digits numbers have, and how far apart they are, is measured.
    blocks, cuts = mac.blocks, int(mac.accumulator.rounding == k.TOWARD_ZERO)
    step = Step(blocks.n, blocks.group, blocks.fraction_bits, cuts)
    moved = centred(product, step.fraction_bits, blocks.min_exponent)
    if moved is None or not _holds(step, moved.digits, alignment.points):
        return None
    batches = product.shape[0]
    return Contents(moved.moved_back(_accumulate(moved, step, batches)))


def _holds(step: Step, digits: tuple[int, int], points: tuple[int, int]) -> bool:
    """Return whether float32 holds each sum of a group, and float64 all sums of a block.

    A group's sum is an integer times 2**(exponent - both points): at most `group` products of integers of these digits.
    Cut terms are at most what they were, in units of 2**(largest exponent - fraction_bits); the accumulator is below
    2**(fraction_bits + 1) of them.
    """
    # Integers of so many digits each: their product is below this.
    product = 1 << max(sum(digits), 0)
    terms = step.n * product * 2.0 ** (step.fraction_bits - sum(points)) + 2.0 ** (step.fraction_bits + 1)
    return step.group * product <= 1 << FP32.precision and terms <= 1 << EXACT_BITS


class _Beside(NamedTuple):
    """What stands beside the groups of an operand, int32: their exponents, and which of their numbers are not 0."""

    exponents: Array
    marks: Array


@kernel
def _mark_rows(x: Any, given: Any, by: int, group: int, exponents: Any, marks: Any, start: int, stop: int) -> None:
    """Write what stands beside the groups of rows start..stop, (rows, K)."""
    for row in range(start, stop):
        for g in range(exponents.shape[1]):
            # A group's exponent is that of its scale, the same beside each of its numbers.
            exponents[row, g] = given[row, g * group] - by
            word = 0
            for i in range(group):
                word |= np.int64(x[row, g * group + i] != 0.0) << i
            marks[row, g] = word


@kernel
def _mark_columns(x: Any, given: Any, by: int, group: int, exponents: Any, marks: Any, start: int, stop: int) -> None:
    """Write what stands beside groups start..stop, counted through all matrices (B, K, N)."""
    for place in range(start, stop):
        batch, g = place // exponents.shape[1], place % exponents.shape[1]
        beside, word = exponents[batch, g], marks[batch, g]
        for j in range(beside.size):
            beside[j] = given[batch, g * group, j] - by
            word[j] = 0
        # One k after the other, for all columns: the inner loop runs along memory.
        for i in range(group):
            for j in range(beside.size):
                word[j] |= np.int32(x[batch, g * group + i, j] != 0.0) << i


def _beside_rows(x: Array, given: Array, by: int, group: int) -> _Beside:
    batches, rows, depth = x.shape
    flat, numbers = only_read(given.reshape(batches * rows, depth)), only_read(x.reshape(batches * rows, depth))
    exponents, marks = (empty((batches * rows, depth // group), np.int32) for _ in range(2))
    over_ranges(lambda _, i, j: _mark_rows(numbers, flat, by, group, exponents, marks, i, j), len(flat), 1, 1 << 10)
    shape = batches, rows, depth // group
    return _Beside(exponents.reshape(shape), marks.reshape(shape))


def _beside_columns(x: Array, given: Array, by: int, group: int) -> _Beside:
    batches, depth, columns = x.shape
    exponents, marks = (empty((batches, depth // group, columns), np.int32) for _ in range(2))
    numbers, tops = only_read(x), only_read(given)
    count = batches * depth // group
    over_ranges(lambda _, i, j: _mark_columns(numbers, tops, by, group, exponents, marks, i, j), count, 1, 1 << 7)
    return _Beside(exponents, marks)


@lru_cache(maxsize=16)
def _row_loops(group: int, cuts: int) -> Any:
    """Return the compiled loop of units that sum groups of so many products.

    It takes a (M, K), exponents and marks of its groups (M, K / group), packed panels of b, of exponents and of marks
    of its groups, the first sums (M or 1, N or 1), groups of a block, the bits kept below the largest exponent, the
    smallest exponent of an alignment, and a range of rows; it writes sums (M, N).
    """

    @kernel
    def run(
        a: Any,
        a_exponents: Any,
        a_marks: Any,
        panels: Any,
        panel_exponents: Any,
        panel_marks: Any,
        first_sums: Any,
        groups: int,
        fraction_bits: int,
        floor: int,
        out: Any,
        start: int,
        stop: int,
    ) -> None:
        depth, columns, blocks = a.shape[1], out.shape[1], a_exponents.shape[1] // groups
        # A last tile of fewer rows computes with what the one before left in the others, which nobody reads.
        sums = np.empty(ROWS * PANEL_COLUMNS, np.float32)
        left = np.zeros((ROWS, depth), np.float32)
        tops = np.zeros((ROWS, blocks * groups), np.int32)
        marks = np.zeros((ROWS, blocks * groups), np.int32)
        for first in range(start, stop, ROWS):
            height = min(ROWS, stop - first)
            for i in range(height):
                for j in range(depth):  # for slices, Numba would compile error messages: 1.3 s
                    left[i, j] = a[first + i, j]
                for j in range(a_exponents.shape[1]):
                    tops[i, j], marks[i, j] = a_exponents[first + i, j], a_marks[first + i, j]
            for p in range(panels.shape[0]):
                begin = p * PANEL_COLUMNS
                width = min(PANEL_COLUMNS, columns - begin)
                begin_tile(sums, first_sums, first, begin, height, width)
                add_groups(
                    group,
                    cuts,
                    address(left),
                    address(tops),
                    address(marks),
                    address(panels[p]),
                    address(panel_exponents[p]),
                    address(panel_marks[p]),
                    blocks,
                    groups,
                    fraction_bits,
                    floor,
                    address(sums),
                )
                keep_tile(sums, out, first, begin, height, width)

    return run


def _accumulate(moved: Centred, step: Step, batches: int) -> Array:
    """Return the sums of blocks, (B, M, N)."""
    # Groups are of consecutive k only; whole blocks are filled up with zeros.
    order = tuple(range(step.n))
    a, b = (arranged(x, order, axis) for x, axis in zip(moved.numbers, (2, 1), strict=True))
    # those of a filled-up group are not read: its marks are 0
    left_tops, right_tops = (arranged(x, order, axis) for x, axis in zip(moved.exponents, (2, 1), strict=True))
    rows, depth, columns = a.shape[1], a.shape[2], b.shape[2]
    left = _beside_rows(a, left_tops, moved.middles[0], step.group)
    right = _beside_columns(b, right_tops, moved.middles[1], step.group)
    panels = packed_panels(b, np.float32)
    exponents, marks = (packed_panels(x, np.int32) for x in right)
    first = np.zeros((1, 1, 1), np.float32) if moved.addend is None else moved.addend.astype(np.float32, copy=False)
    out = empty((batches, rows, columns), np.float32)
    loop = _row_loops(step.group, step.cuts)
    unit = step.n // step.group, step.fraction_bits, moved.floor

    def work(batch: int, start: int, stop: int) -> None:
        i, j = batch % len(a), batch % len(panels)
        beside = left.exponents[i], left.marks[i], panels[j], exponents[j], marks[j]
        loop(a[i], *beside, first[batch % len(first)], *unit, out[batch], start, stop)

    over_row_blocks(work, batches, rows, ROWS, max(1, GRAIN_MACS // max(ROWS * depth * columns, 1)))
    return out
