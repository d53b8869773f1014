"""Blocks of products in vector code: which matrix units `block_tiles` emulates, and the products of matrices.

    operands       floats carried by float32, their products exact there and far from its ends (binary16, FP8)
                   floats of more exponents (bfloat16), and elements times scales with their exponents beside them,
                   if the numbers of a product are near enough to each other: they are moved to the middle of float32
    accumulator    float32, rounding toward zero or to nearest even; of fewer bits (the 14 of FP8 units), toward zero

Other units, operands that are not finite, and addends near the ends of float32 are left to `dot_add`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.interface import FormatCode, MacCode, StageCode, Write, carrier_of, encode_format
from emu.backends.memory import empty
from emu.backends.numba.centred import END, Centred, centred, centred_by_own, moved_back
from emu.backends.numba.compiling import kernel, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.members import are_finite
from emu.backends.numba.terms import FP32
from emu.backends.numba.vector.block_operands import (
    EXPONENT_OF_ZERO,
    GRAIN_PACKED,
    Lines,
    in_order,
    pack_lines,
    packed_rows,
    patterns_of,
)
from emu.backends.numba.vector.block_tiles import ROWS, add_blocks, begin_tile, keep_tile
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.ordered_products import over_row_blocks, packed_panels
from emu.backends.numba.ways.dot_add import order_of
from emu.backends.product import Formats, Product, ProductCode
from emu.backends.proofs import largest_exponent, significand_bits
from emu.formats import Float

Array = NDArray[Any]
FLOAT32_EXPONENT_BITS = 8
#: The largest sum of int32.
LARGEST_SUM = bounded((1 << 31) - 1, 1, (1 << 31) - 1, "cut products are added up in int32")
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 22
#: Numbers of right matrices that are packed one by one, each when it is multiplied: with their exponents, 4 MiB.
MOST_IN_TURN = 1 << 19
#: See `Way.speed`.
SPEED = 8.0


class TileBlockAdder(NamedTuple):
    """A matrix unit as the tiles take it.

    Attributes:
        n: products of a block.
        fraction_bits: kept below the largest exponent.
        together: how many cut products add up within 32 bits; n + 1 if n products and the accumulator do.
        cuts: 1 rounds toward zero, 0 to nearest even.
        tail: bits of float32 that the accumulator lacks.
        floor: smallest exponent that a block is aligned to.
        emin: of the two operands.
        headroom: exponent of the largest product, plus one.
        is_central: whether all products and last places of the formats are far from the ends of float32; else
            those of the numbers must be measured.
        indices: order along k in which an instruction takes products.
    """

    n: int
    fraction_bits: int
    together: int
    cuts: int
    tail: int
    floor: int
    emin: tuple[int, int]
    headroom: int
    is_central: bool
    indices: tuple[int, ...]


@lru_cache(maxsize=256)
def unit_for(mac: MacCode, formats: Formats, points: tuple[int, int] | None = None) -> TileBlockAdder | None:
    """Return a matrix unit as tiles take it, or None if only the plain loops compute it.

    Args:
        mac: the unit.
        formats: of the operands and the addend.
        points: of operands beside which exponents are given (`Alignment`), whose range is then measured; None of
            others.
    """
    stage, blocks, (a, b, c), is_aligned = mac.accumulator, mac.blocks, formats, points is not None
    if blocks is not None and blocks.group > 1:
        return None
    # Beyond END, scales may be no normal float32 numbers; an accumulator added after its blocks is another sum.
    if not has_vectors() or stage is None or blocks is None or blocks.adds_after or blocks.min_exponent > END:
        return None
    tail = _tail_of(stage.format)
    if tail is None or stage.overflow != k.IEEE or stage.rounding not in (k.TOWARD_ZERO, k.NEAREST_EVEN):
        return None
    if tail and stage.rounding != k.TOWARD_ZERO:  # rounding twice is rounding once only if both cut
        return None
    if any(not f.is_float or f.daz or not (is_aligned or carrier_of(f) == np.float32) for f in (a, b)):
        return None
    if c is not None and (carrier_of(c) != np.float32 or c.daz):
        return None
    headroom = largest_exponent(a) + largest_exponent(b) + 1
    # The last places of a block aligned at the smallest product, and of a float32 accumulator as small as that.
    lowest = a.emin + b.emin - max(blocks.fraction_bits, FP32.precision)
    is_central = min(a.quantum + b.quantum, lowest) > -END and headroom < END
    # float32 must hold products as they are, before they are cut.
    if significand_bits(a) + significand_bits(b) > FP32.precision:
        return None
    # A cut product is at most that of the largest significands, the accumulator below 2, in units of 2**-fraction_bits.
    # Only floats with their own exponents have significands below 2: an element times a scale is below 4.
    left, right = (a.precision - 1, b.precision - 1) if points is None else points
    largest = (2.0**a.precision - 1) * (2.0**b.precision - 1) * 2.0 ** (blocks.fraction_bits - left - right)
    room = LARGEST_SUM // largest
    all_of_it = blocks.n * largest + 2.0 ** (blocks.fraction_bits + 1) <= LARGEST_SUM
    if room < 1:
        return None
    return TileBlockAdder(
        n=blocks.n,
        fraction_bits=blocks.fraction_bits,
        together=blocks.n + 1 if all_of_it else int(min(room, blocks.n)),
        cuts=int(stage.rounding == k.TOWARD_ZERO),
        tail=tail,
        floor=max(-END, blocks.min_exponent),
        emin=(a.emin, b.emin),
        headroom=headroom,
        is_central=is_central,
        indices=blocks.indices,
    )


def _tail_of(accumulator: FormatCode) -> int | None:
    """Return how many bits of float32 a format lacks that has its exponents and special values; None of others."""
    bits = accumulator.precision - 1
    is_like_float32 = accumulator.is_float and 1 <= bits <= FP32.precision - 1
    if not is_like_float32 or accumulator != encode_format(Float(FLOAT32_EXPONENT_BITS, bits)):
        return None
    return FP32.precision - accumulator.precision


@lru_cache(maxsize=16)
def _row_loops(n: int, fraction_bits: int, together: int, cuts: int, tail: int) -> Any:
    """Return the compiled loop of a unit.

    It takes rows of a and their exponents, int32 (whole tiles of M, K), lines of b, their exponents and marks (see
    `block_operands.Lines`), the first sums (M or 1, N or 1), the smallest exponent of an alignment, and a range of
    rows; it writes sums (M, N).
    """

    @kernel
    def run(
        rows: Any,
        row_exponents: Any,
        panels: Any,
        panel_exponents: Any,
        marks: Any,
        first_sums: Any,
        floor: int,
        out: Any,
        start: int,
        stop: int,
    ) -> None:
        depth, columns, blocks = rows.shape[1], out.shape[1], marks.shape[1]
        sums = np.empty(ROWS * PANEL_COLUMNS, np.float32)
        for first in range(start, stop, ROWS):
            height = min(ROWS, stop - first)
            for p in range(panels.shape[0]):
                begin = p * PANEL_COLUMNS
                width = min(PANEL_COLUMNS, columns - begin)
                begin_tile(sums, first_sums, first, begin, height, width)
                block = 0
                while block < blocks:
                    # The first block is always added: it cuts the addend, and makes +0 of a -0. Behind it, one of zeros
                    # changes nothing (see `_skips`).
                    end = block + 1
                    while end < blocks and marks[p, end]:
                        end += 1
                    left, right = first * depth + block * n, block * n * PANEL_COLUMNS
                    add_blocks(
                        n,
                        fraction_bits,
                        together,
                        cuts,
                        tail,
                        address(rows) + 4 * left,
                        address(row_exponents) + 4 * left,
                        depth,
                        address(panels[p]) + 4 * right,
                        address(panel_exponents[p]) + 4 * right,
                        end - block,
                        floor,
                        address(sums),
                    )
                    block = end
                    while block < blocks and not marks[p, block]:
                        block += 1
                keep_tile(sums, out, first, begin, height, width)

    return run


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None for units that the tiles emulate, else "": plain loops compute the others."""
    # Points are known beside the numbers alone: these, of elements times scales with fractions, leave the least room.
    points = [f.precision - 2 for f in product.formats[:2]]
    unit = unit_for(product.mac, product.formats, (points[0], points[1]) if product.is_aligned else None)
    return "" if product.is_exact or unit is None else None


def contents(product: Product, write: Write) -> Contents | None:
    """Return float32 contents, (B, M, N); None if the tiles are not exact for these numbers."""
    points = None if product.alignment is None else product.alignment.points
    unit = unit_for(product.code.mac, product.code.formats, points)
    assert unit is not None
    if product.alignment is not None:
        assert product.code.mac.blocks is not None
        moved = centred(product, unit.fraction_bits, product.code.mac.blocks.min_exponent)
        if moved is None:
            return None
        unit = unit._replace(floor=moved.floor)
        return Contents(moved.moved_back(_given_sums(moved, unit, product.shape[0])))
    # Formats alone do not show that float32 holds all: the numbers are measured.
    if not unit.is_central:
        return _contents_of_many_exponents(product, unit)
    a, b = product.gathered()
    if not _are_exact(a, b, product.addend, unit):
        return None
    return Contents(_own_sums(a, b, product.addend, unit))


def _contents_of_many_exponents(product: Product, unit: TileBlockAdder) -> Contents | None:
    """Return the contents of a unit whose formats reach the ends of float32; None if the numbers come near to them."""
    blocks = product.code.mac.blocks
    assert blocks is not None
    moved = centred_by_own(product, unit.emin, unit.fraction_bits, blocks.min_exponent)
    if moved is None:
        return None
    (a, b), place = moved
    # Subnormal numbers have been moved with the others: so has the exponent that all of them have.
    emin = unit.emin[0] - place.middles[0], unit.emin[1] - place.middles[1]
    unit = unit._replace(floor=place.floor, emin=emin)
    return Contents(moved_back(_own_sums(a, b, place.addend, unit), place.middles))


def _are_exact(a: Gathered, b: Gathered, addend: Array | None, unit: TileBlockAdder) -> bool:
    """Return whether the tiles are exact for these numbers: finite, and sums far from the ends of float32."""
    depth = a.columns.size
    if depth == 0 or not (are_finite(a.data) and are_finite(b.data)):
        return False
    if math.log2(depth) + unit.headroom >= END:  # K products add up below K * 2**headroom
        return False
    magnitude = np.abs(np.zeros(1) if addend is None else addend)
    return bool(((magnitude == 0) | ((magnitude > 2.0**-END) & (magnitude < 2.0**END))).all())


def _skips(unit: TileBlockAdder) -> bool:
    """Return whether a block of zeros changes no accumulator that an earlier block has left.

    An accumulator of p bits is then cut `fraction_bits` below its own exponent, or that of the floor, at or above which
    the earlier block has cut it.
    """
    return unit.fraction_bits >= FP32.precision - unit.tail - 1


def _own_sums(a: Gathered, b: Gathered, addend: Array | None, unit: TileBlockAdder) -> Array:
    """Return the sums of blocks, (B, M, N), of operands whose exponents are their own.

    Args:
        a: float32, (B or 1, M, K).
        b: float32, (B or 1, K, N).
        addend: moved with them, (B or 1, M or 1, N or 1), or None.
        unit: what adds.
    """
    order = order_of(a.columns.size, unit.indices)
    patterns, places, (left_emin, right_emin) = patterns_of(b), in_order(b.rows, order), unit.emin
    count, depth, columns = b.batches if b.step else 1, order.size, b.columns.size
    left, skips = packed_rows(a, order, left_emin, ROWS), _skips(unit)
    out = empty((max(a.batches, b.batches), a.rows.size, columns), np.float32)

    def pack(batch: int, lines: Lines, start: int, stop: int) -> None:
        pack_lines(patterns, places, b.columns, batch * b.step, right_emin, unit.n, skips, *lines, start, stop)

    if count > 1 and depth * columns <= MOST_IN_TURN:
        compute = _loop_of(unit, addend, left, out)

        # Lines of a matrix are still in a cache when they are added.
        def in_turn(_: int, start: int, stop: int) -> None:
            lines = Lines.room(depth, columns, unit.n)
            for batch in range(start, stop):
                pack(batch, lines, 0, depth // unit.n)
                compute(batch, lines, 0, a.rows.size)

        over_ranges(in_turn, count, 1, max(1, GRAIN_MACS // max(a.rows.size * depth * columns, 1)))
        return out
    packed = [Lines.room(depth, columns, unit.n) for _ in range(count)]
    for batch, lines in enumerate(packed):
        over_ranges(
            lambda _, i, j, batch=batch, lines=lines: pack(batch, lines, i, j),
            depth // unit.n,
            1,
            max(1, GRAIN_PACKED // max(unit.n * columns, 1)),
        )
    return _added(unit, addend, left, packed, out)


def _given_sums(moved: Centred, unit: TileBlockAdder, batches: int) -> Array:
    """Return the sums of blocks, (B, M, N), of operands with their exponents beside them.

    Args:
        moved: the operands.
        unit: what adds.
        batches: of the result.
    """
    (a, b), (left_tops, right_tops) = moved.numbers, moved.tops()
    order = order_of(a.shape[2], unit.indices)
    left = _in_tiles(a.view(np.int32), order, 0), _in_tiles(left_tops, order, EXPONENT_OF_ZERO)
    panels = packed_panels(b, np.float32, order=order).view(np.int32)
    exponents = packed_panels(right_tops, np.int32, order=order, filler=EXPONENT_OF_ZERO)
    marks = np.ones((panels.shape[1], order.size // unit.n), np.uint8)
    packed = [Lines(*each, marks) for each in zip(panels, exponents, strict=True)]
    return _added(unit, moved.addend, left, packed, empty((batches, a.shape[1], b.shape[2]), np.float32))


def _in_tiles(x: Array, order: NDArray[np.int64], filler: int) -> Array:
    """Return left rows, (B or 1, M, K), with their k in an order, and whole tiles of rows."""
    inside, rows = order < x.shape[2], -(-x.shape[1] // ROWS) * ROWS
    placed = empty((x.shape[0], rows, order.size), np.int32)
    placed[:, x.shape[1] :] = filler
    if inside.all() and (order[1:] > order[:-1]).all():
        placed[:, : x.shape[1]] = x
    else:
        placed[:, : x.shape[1]] = np.where(inside, x[:, :, np.where(inside, order, 0)], filler)
    return placed


def _loop_of(
    unit: TileBlockAdder, addend: Array | None, left: tuple[Array, Array], out: Array
) -> Callable[[int, Lines, int, int], None]:
    """Return what adds rows `start`..`stop` of a batch and lines of its right matrix, and writes the sums."""
    first = np.zeros((1, 1, 1), np.float32) if addend is None else addend.astype(np.float32, copy=False)
    if unit.tail:  # an addend, too, is rounded into the accumulator
        first = (np.ascontiguousarray(first).view(np.int32) & -(1 << unit.tail)).view(np.float32)
    loop = _row_loops(unit.n, unit.fraction_bits, unit.together, unit.cuts, unit.tail)
    rows, exponents = left

    def compute(batch: int, lines: Lines, start: int, stop: int) -> None:
        # A stack of one matrix serves all batches: so for each operand and the addend.
        place = batch % len(rows)
        sums = first[batch % len(first)]
        loop(rows[place], exponents[place], *lines, sums, unit.floor, out[batch], start, stop)

    return compute


def _added(
    unit: TileBlockAdder, addend: Array | None, left: tuple[Array, Array], packed: list[Lines], out: Array
) -> Array:
    """Write the sums of left rows and packed lines, tiles of rows shared by threads; return them."""
    compute, (batches, rows, columns) = _loop_of(unit, addend, left, out), out.shape
    grain = max(1, GRAIN_MACS // max(ROWS * left[0].shape[2] * columns, 1))
    over_row_blocks(
        lambda batch, start, stop: compute(batch, packed[batch % len(packed)], start, stop), batches, rows, ROWS, grain
    )
    return out
