"""Products with the transpose of a sparse matrix, some rows of it at a time, sorted by column.

    x, rows 0..79       entries by column, those of one column in row order ──► each result read, added to, written once
    x, rows 80..159     the same                                                instead of once for every entry

A result still adds its terms in storage order, to the sum of the rows before: the same bits as entry by entry. Each
thread sorts a block, in memory that is used again for the next one: there is never a transposed copy of all entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, over_ranges, thread_count
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.strips import gather_row
from emu.backends.pattern import Pattern

Array = NDArray[Any]
#: Columns of a strip; if they do not divide the columns, entries are added without sorting.
WIDTH = 64
#: Entries that a result should have in a block, on average.
TOGETHER = 8
#: Entries of a result, in all rows, from which on sorting is worth its time.
WORTH_SORTING = 128
#: Bytes that a block's part of the dense operand may take, in the second-level cache.
TILE_BYTES = 1 << 18


class Blocks(NamedTuple):
    """Neighbouring blocks of rows of a sparse matrix, their entries by column.

    Attributes:
        edges: first row of each block, and the end.
        begins: int64, (blocks, results + 2): where each result's entries begin, and the end.
        rows: int32, (blocks, entries): the row of each entry, counted from the block's first.
        data: entries, in the dtype of the sums.
    """

    edges: Array
    begins: Array
    rows: Array
    data: Array


def rows_of_a_block(pattern: Pattern, columns: int, itemsize: int) -> int:
    """Return how many rows are sorted together; 0 if entries are better added without sorting.

    Args:
        pattern: by columns.
        columns: of the dense operand.
        itemsize: bytes of a sum.
    """
    rows, entries = pattern.starts.size - 1, pattern.index.size
    if not entries or columns % WIDTH:
        return 0
    if entries < WORTH_SORTING * pattern.results:
        return 0
    # A row has entries / rows of them, shared by all results: so many rows give a result `TOGETHER`.
    together = -(-TOGETHER * pattern.results * rows // entries)
    return int(min(together, TILE_BYTES // (WIDTH * itemsize), rows))


@kernel
def _sort(starts: Any, index: Any, data: Any, first: int, last: int, begins: Any, rows: Any, entries: Any) -> None:
    """Sort the entries of some rows by column, in storage order within a column: a counting sort."""
    # Counts stand two places on and starts one, so that when each start has moved to its end, begins[c] is a start.
    begins[:] = 0
    for p in range(starts[first], starts[last]):
        begins[index[p] + 2] += 1
    for c in range(2, begins.size):
        begins[c] += begins[c - 1]
    for r in range(first, last):
        for p in range(starts[r], starts[r + 1]):
            target = begins[index[p] + 1]
            begins[index[p] + 1] = target + 1
            rows[target] = r - first
            entries[target] = data[p]


def sorted_blocks(pattern: Pattern, data: Array, block_rows: int, dtype: Any) -> Iterator[Blocks]:
    """Yield blocks in the order of rows, a few at a time; they are valid until the next ones are asked for.

    Args:
        pattern: by columns.
        data: entries.
        block_rows: of a block.
        dtype: of sums.
    """
    edges = np.append(np.arange(0, pattern.starts.size - 1, block_rows), pattern.starts.size - 1)
    sizes = np.diff(pattern.starts[edges])
    count = min(thread_count(), sizes.size)
    # Room for as many blocks as there are threads, used again for the next ones.
    begins = empty((count, pattern.results + 2), np.int64)
    rows, entries = (empty((count, int(sizes.max())), kind) for kind in (np.int32, dtype))
    for first in range(0, sizes.size, count):
        here = edges[first : first + count + 1]

        def work(_: int, start: int, stop: int, here: Array = here) -> None:
            for i in range(start, stop):
                _sort(pattern.starts, pattern.index, data, here[i], here[i + 1], begins[i], rows[i], entries[i])

        over_ranges(work, here.size - 1, 1, 1)
        yield Blocks(here, begins, rows, entries)


@kernel
def _pack(dense: Any, edges: Any, column: int, tiles: Any) -> None:
    for i in range(edges.size - 1):
        for r in range(edges[i + 1] - edges[i]):
            tile, row = tiles[i, r], dense[edges[i] + r, column : column + WIDTH]
            for j in range(WIDTH):
                tile[j] = row[j]


@kernel
def _add(edges: Any, begins: Any, rows: Any, data: Any, tiles: Any, strip: Any) -> None:
    kinds = rows.dtype.type(0), data.dtype.type(0), tiles.dtype.type(0), strip.dtype.type(0)
    for i in range(edges.size - 1):
        index, entries, tile = address(rows[i]), address(data[i]), address(tiles[i])
        for r in range(strip.shape[0]):
            sums, begin, end = address(strip) + r * WIDTH * strip.itemsize, begins[i, r], begins[i, r + 1]
            if begin < end:
                gather_row(index, kinds[0], entries, kinds[1], begin, end, tile, kinds[2], WIDTH, sums, kinds[3], WIDTH)


def add_blocks(blocks: Blocks, dense: Array, strips: Array, first: int, last: int) -> None:
    """Add the entries of blocks to strips `first`..`last` of all, (strips, results, `WIDTH`)."""
    tall = int(np.diff(blocks.edges).max())
    tiles = empty((blocks.edges.size - 1, tall, WIDTH), strips.dtype)
    for number in range(first, last):
        _pack(dense, blocks.edges, number * WIDTH, tiles)
        _add(*blocks, tiles, strips[number])


def add_sorted(data: Array, dense: Array, strips: Array, pattern: Pattern, block_rows: int) -> None:
    """Add the entries of a matrix, sorted block by block, to strips.

    Args:
        data: entries.
        dense: (rows, columns), a multiple of `WIDTH`.
        strips: (columns / WIDTH, results, WIDTH), added to.
        pattern: by columns.
        block_rows: of a block.
    """
    # Blocks follow each other in the order of rows: each result adds its terms in storage order.
    for blocks in sorted_blocks(pattern, data, block_rows, strips.dtype):

        def work(_: int, start: int, stop: int, blocks: Blocks = blocks) -> None:
            add_blocks(blocks, dense, strips, start, stop)

        over_ranges(work, len(strips), 1, 1)
