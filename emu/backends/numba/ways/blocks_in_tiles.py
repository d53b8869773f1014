"""Blocks of products in vector code: which matrix units `block_tiles` emulates, and the products of matrices.

    operands       floats carried by float32, their products exact there and far from its ends (binary16, FP8)
                   floats of more exponents (bfloat16), and elements times scales with their exponents beside them,
                   if the numbers of a product are near enough to each other: they are moved to the middle of float32
    accumulator    float32, rounding toward zero or to nearest even; of fewer bits (the 14 of FP8 units), toward zero

Other units, operands that are not finite, and addends near the ends of float32 are left to `dot_add`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import FormatCode, MacCode, StageCode, Write, carrier_of, encode_format
from emu.backends.memory import empty
from emu.backends.numba.centred import END, EXPONENT_OF_ZERO, centred, centred_by_own, moved_back
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised, single
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.members import are_finite
from emu.backends.numba.terms import FP32
from emu.backends.numba.vector.block_tiles import ROWS, add_blocks, begin_tile, keep_tile
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.ordered_products import over_row_blocks, packed_panels
from emu.backends.numba.ways.dot_add import exponents, order_of
from emu.backends.product import Formats, Product, ProductCode
from emu.backends.proofs import largest_exponent, significand_bits
from emu.formats import Float

Array = NDArray[Any]
FLOAT32_EXPONENT_BITS = 8
#: The largest sum of int32.
LARGEST_SUM = bounded((1 << 31) - 1, 1, (1 << 31) - 1, "cut products are added up in int32")
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 22
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

    It takes a (M, K), its exponents (M, K) or none (0, K) and the smallest exponent of its format, the k in the order
    in which products are taken, packed panels of b and of its exponents, the first sums (M or 1, N or 1), the smallest
    exponent of an alignment, and a range of rows; it writes sums (M, N).
    """

    @kernel
    def run(
        a: Any,
        given: Any,
        emin: int,
        order: Any,
        panels: Any,
        exponent_panels: Any,
        first_sums: Any,
        floor: int,
        out: Any,
        start: int,
        stop: int,
    ) -> None:
        depth, columns = order.size, out.shape[1]
        sums = np.empty(ROWS * PANEL_COLUMNS, np.float32)
        # Left rows in the order of the unit, numbers and exponents; rows beyond the last are computed, and not kept.
        left, tops = np.zeros((ROWS, depth), np.float32), np.empty((ROWS, depth), np.int32)
        in_order = True
        for j in range(depth):
            in_order = in_order and order[j] == j
            if order[j] >= a.shape[1]:  # padding
                for i in range(ROWS):
                    tops[i, j] = EXPONENT_OF_ZERO
        for first in range(start, stop, ROWS):
            height = min(ROWS, stop - first)
            for i in range(height):
                row, numbers = a[first + i], left[i]
                if in_order:
                    for j in range(row.size):
                        numbers[j] = row[j]
                else:
                    for j in range(depth):
                        numbers[j] = row[order[j]] if order[j] < row.size else np.float32(0.0)
            # Without given exponents, floats have their own, and the zeros of padding get EXPONENT_OF_ZERO.
            if given.shape[0] > 0:
                for i in range(height):
                    beside, own = given[first + i], tops[i]
                    for j in range(depth):  # for a slice, Numba would compile an error message: 1.5 s
                        if order[j] < beside.size:
                            own[j] = beside[order[j]]
            else:
                exponents(left.reshape(-1), emin, tops.reshape(-1))
            for p in range(panels.shape[0]):
                begin = p * PANEL_COLUMNS
                width = min(PANEL_COLUMNS, columns - begin)
                begin_tile(sums, first_sums, first, begin, height, width)
                add_blocks(
                    n,
                    fraction_bits,
                    together,
                    cuts,
                    tail,
                    address(left),
                    address(tops),
                    depth,
                    address(panels[p]),
                    address(exponent_panels[p]),
                    depth // n,
                    floor,
                    address(sums),
                )
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
    batches = product.shape[0]
    if product.alignment is not None:
        assert product.code.mac.blocks is not None
        moved = centred(product, unit.fraction_bits, product.code.mac.blocks.min_exponent)
        if moved is None:
            return None
        unit = unit._replace(floor=moved.floor)
        return Contents(moved.moved_back(_accumulate(*moved.numbers, moved.addend, unit, batches, moved.tops())))
    # Formats alone do not show that float32 holds all: the numbers are measured.
    if not unit.is_central:
        return _contents_of_many_exponents(product, unit, batches)
    a, b = product.stacks(materialised)
    if not _are_exact(a, b, product.addend, unit):
        return None
    return Contents(_accumulate(single(a), single(b), product.addend, unit, batches))


def _contents_of_many_exponents(product: Product, unit: TileBlockAdder, batches: int) -> Contents | None:
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
    return Contents(moved_back(_accumulate(a, b, place.addend, unit, batches), place.middles))


def _are_exact(a: Array, b: Array, addend: Array | None, unit: TileBlockAdder) -> bool:
    """Return whether the tiles are exact for these numbers: finite, and sums far from the ends of float32."""
    if a.shape[2] == 0 or not (are_finite(a) and are_finite(b)):
        return False
    if math.log2(a.shape[2]) + unit.headroom >= END:  # K products add up below K * 2**headroom
        return False
    magnitude = np.abs(np.zeros(1) if addend is None else addend)
    return bool(((magnitude == 0) | ((magnitude > 2.0**-END) & (magnitude < 2.0**END))).all())


def _accumulate(
    a: Array,
    b: Array,
    addend: Array | None,
    unit: TileBlockAdder,
    batches: int,
    given: tuple[Array, Array] | None = None,
) -> Array:
    """Return the sums of blocks, (B, M, N); `given`: the exponents of both operands, else those of their formats."""
    rows, depth, columns = a.shape[1], a.shape[2], b.shape[2]
    order, (left_emin, right_emin) = order_of(depth, unit.indices), unit.emin
    a, panels = only_read(np.ascontiguousarray(a)), packed_panels(b, np.float32, order=order)
    if given is None:
        left_tops, tops = only_read(np.empty((1, 0, depth), np.int32)), empty(panels.shape, np.int32)
        numbers, of_b = panels.reshape(-1), tops.reshape(-1)
        over_ranges(lambda _, i, j: exponents(numbers[i:j], right_emin, of_b[i:j]), numbers.size, PANEL_COLUMNS)
    else:
        left_tops, right_tops = only_read(np.ascontiguousarray(given[0])), given[1]
        tops = packed_panels(right_tops, np.int32, order=order, filler=EXPONENT_OF_ZERO)
    first = np.zeros((1, 1, 1), np.float32) if addend is None else addend.astype(np.float32, copy=False)
    out = empty((batches, rows, columns), np.float32)
    if unit.tail:  # an addend, too, is rounded into the accumulator
        first = (np.ascontiguousarray(first).view(np.int32) & -(1 << unit.tail)).view(np.float32)
    loop = _row_loops(unit.n, unit.fraction_bits, unit.together, unit.cuts, unit.tail)

    def work(batch: int, start: int, stop: int) -> None:
        # A stack of one matrix serves all batches: so for each operand and the addend.
        right = batch % len(panels)
        sums = first[batch % len(first)]
        of_a = left_tops[batch % len(left_tops)]
        left, beside = (a[batch % len(a)], of_a), (panels[right], tops[right])
        loop(*left, left_emin, order, *beside, sums, unit.floor, out[batch], start, stop)

    over_row_blocks(work, batches, rows, ROWS, max(1, GRAIN_MACS // max(ROWS * depth * columns, 1)))
    return out
