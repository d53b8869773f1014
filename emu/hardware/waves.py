"""How long a product takes on multiprocessors that each compute one tile of its results at a time.

    results     M x N, in tiles of r x c: ceil(M / r) * ceil(N / c) of them
    waves       `count` multiprocessors compute `count` tiles at once: ceil(tiles / count) waves
    a wave      r * c * depth multiply-adds at a multiprocessor's share of the peak, and the cycles that fill it

1024 x 700 results are 48 tiles of 128 x 128, one wave of 80 multiprocessors; so are 1024 x 1024, in the same time.

A library has tiles of several shapes, and may divide the depth into parts, whose sums it adds in memory: then more
tiles are there. It is taken to choose the fastest.

Source: NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave quantization, split-K); that the fastest
is chosen, and that parts of the depth are read and written once as four bytes, are our choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from emu.hardware.device import ComputeUnit
from emu.hardware.quantity import Tile

#: Bytes of a sum of a part of the depth, which is written and read again.
PART_BYTES = 2 * 4
#: The least depth of a part: below it, filling a tile takes as long as computing it.
LEAST_DEPTH = 256


class Product(NamedTuple):
    """The sizes of a product of matrices, (rows, depth) times (depth, columns)."""

    rows: int
    columns: int
    depth: int

    @classmethod
    def of(cls, results: int, multiply_adds: int, second: int) -> Product:
        """Return the sizes of a product.

        For a convolution, and for one product for each head of an attention, they are those of a single product of
        the same work.

        Args:
            results: rows times columns.
            multiply_adds: results times depth.
            second: numbers of the second operand, depth times columns.

        Examples:
            >>> Product.of(8 * 10, 8 * 10 * 64, 64 * 10)
            Product(rows=8, columns=10, depth=64)
        """
        depth = max(-(-multiply_adds // max(results, 1)), 1)
        columns = min(max(-(-second // depth), 1), max(results, 1))
        return cls(-(-results // columns), columns, depth)


class Way(NamedTuple):
    """A way to compute a product.

    Attributes:
        cycles: cycles of the unit.
        moved_bytes: bytes of sums that pass the memory before they are added.
    """

    cycles: int
    moved_bytes: int


def ways_of(unit: ComputeUnit, product: Product) -> Iterator[Way]:
    """Yield the ways to compute a product on a unit: each of its tiles, either way round, each number of parts."""
    assert unit.tiles is not None
    assert unit.count is not None
    assert unit.lanes is not None
    count, fill = int(unit.count.value), int(unit.fill_cycles.value) if unit.fill_cycles else 0
    # multiply-adds in a cycle of one multiprocessor, exactly
    peak = Fraction(int(unit.lanes.value), count)
    # ceil(depth / parts) is at least LEAST_DEPTH for so many parts and no more; a file may allow any number.
    most = max(1, min(int(unit.splits.value) if unit.splits else 1, (product.depth - 1) // (LEAST_DEPTH - 1)))
    for tile in unit.tiles.value:
        # a set, so that a square tile is tried once
        for rows, columns in {(tile.rows, tile.columns), (tile.columns, tile.rows)}:
            tiles = math.ceil(product.rows / rows) * math.ceil(product.columns / columns)
            for parts in range(1, most + 1):
                # each part of the depth of each tile is the work of one multiprocessor
                waves = -(-tiles * parts // count)
                moved = PART_BYTES * parts * product.rows * product.columns if parts > 1 else 0
                yield Way(waves * (_tile_cycles(tile, -(-product.depth // parts), peak) + fill), moved)


def _tile_cycles(tile: Tile, depth: int, peak: Fraction) -> int:
    return math.ceil(tile.rows * tile.columns * depth / (peak * Fraction(tile.efficiency)))
