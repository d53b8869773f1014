"""Sparse products in strips of columns: entries are read in storage order, nothing is transposed or copied.

A thread computes some columns of the result, a strip, from the same columns of the dense operand. Its strip of the
result stays in the second-level cache, and a row of the dense operand's strip in registers. Each result adds its terms
in storage order, whichever thread computes it:

    for row r of x:  for entry p of r:  strip[index[p], :] += data[p] * dense[r, strip]

Strips add float32 accumulators, fixed ones that saturate or wrap, and exact ones that the planner has bounded. For all
others, operands are gathered and multiplied as ordinary products (`groups`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import MacCode, StageCode, Write
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges, thread_count
from emu.backends.numba.contents import Contents
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.strips import gather_row, spread_row
from emu.backends.numba.ways import blas
from emu.backends.numba.ways.blas import DTYPES
from emu.backends.numba.ways.in_order import FIXED, FLOAT32, WIDE32, Accumulator, limit, unit_for
from emu.backends.numba.ways.sparse_blocks import WIDTH as BLOCK_WIDTH
from emu.backends.numba.ways.sparse_blocks import add_sorted, rows_of_a_block
from emu.backends.pattern import Columns, Indices, Pattern
from emu.backends.product import Formats, ProductCode, SparseProduct

Array = NDArray[Any]
#: Columns of a strip of float32, and of float64; narrower strips are multiples of the lanes.
WIDE, NARROW, LANES = 64, 32, 16
#: Multiply-adds below which a second thread is not worth waking.
GRAIN_MACS = 1 << 21
#: See `Way.speed`.
SPEED = 7.0
WAY = "entry by entry, in storage order, in strips of columns"


@kernel
def _begin(addend: Any, strip: Any, first: int, width: int) -> None:
    """Put the addend, (R or 1, H or 1), in a strip, (results, width), whose columns begin at `first`."""
    if addend.size == 1:
        strip[:, :width] = addend[0, 0]
        return
    for r in range(strip.shape[0]):
        for j in range(width):
            strip[r, j] = addend[r % addend.shape[0], (first + j) % addend.shape[1]]


@kernel
def _end(strip: Any, sums: Any, first: int, width: int) -> None:
    for r in range(sums.shape[0]):
        row, here = sums[r, first : first + width], strip[r]
        for j in range(row.size):
            row[j] = here[j]


@kernel
def _spread_rows(starts: Any, index: Any, data: Any, dense: Any, first: int, width: int, strip: Any) -> None:
    """Add entries whose indices name results: a row of the dense operand is added to many results."""
    # The intrinsic is given addresses: a zero of each array's dtype tells it what lies there.
    indices, entries, rows, sums = address(index), address(data), address(dense), address(strip)
    kinds = index.dtype.type(0), data.dtype.type(0), dense.dtype.type(0), strip.dtype.type(0)
    for r in range(starts.size - 1):
        row, begin, end = rows + (r * dense.shape[1] + first) * dense.itemsize, starts[r], starts[r + 1]
        # The number of lanes must be a literal, as vectors stay in registers: two widths are compiled, others are plain
        # loops.
        if width == WIDE:
            spread_row(indices, kinds[0], entries, kinds[1], begin, end, row, kinds[2], sums, kinds[3], WIDE)
        elif width == NARROW:
            spread_row(indices, kinds[0], entries, kinds[1], begin, end, row, kinds[2], sums, kinds[3], NARROW)
        else:
            for p in range(begin, end):
                left = strip.dtype.type(data[p])
                for j in range(width):
                    strip[index[p], j] += left * strip.dtype.type(dense[r, first + j])


@kernel
def _gather_rows(starts: Any, index: Any, data: Any, dense: Any, first: int, width: int, strip: Any) -> None:
    """Add entries whose indices name rows of the dense operand: a result adds many of them."""
    indices, entries, step = address(index), address(data), dense.shape[1]
    rows = address(dense) + first * dense.itemsize
    kinds = index.dtype.type(0), data.dtype.type(0), dense.dtype.type(0), strip.dtype.type(0)
    for r in range(starts.size - 1):
        sums, begin, end = address(strip) + r * width * strip.itemsize, starts[r], starts[r + 1]
        if width == WIDE:
            gather_row(indices, kinds[0], entries, kinds[1], begin, end, rows, kinds[2], step, sums, kinds[3], WIDE)
        elif width == NARROW:
            gather_row(indices, kinds[0], entries, kinds[1], begin, end, rows, kinds[2], step, sums, kinds[3], NARROW)
        else:
            for p in range(begin, end):
                left = strip.dtype.type(data[p])
                for j in range(width):
                    strip[r, j] += left * strip.dtype.type(dense[index[p], first + j])


@kernel
def _add_wide_products(
    starts: Any, index: Any, by_columns: bool, data: Any, dense: Any, first: int, width: int, strip: Any
) -> None:
    """Add products that float64 holds to float32 sums.

    Rounding to float64 and then to float32 is rounding once: terms have 24 bits, and 53 >= 2 * 24 + 2.
    """
    for r in range(starts.size - 1):
        for p in range(starts[r], starts[r + 1]):
            target, source = (index[p], r) if by_columns else (r, index[p])
            left = np.float64(data[p])
            for j in range(width):
                strip[target, j] = np.float32(
                    np.float64(strip[target, j]) + left * np.float64(dense[source, first + j])
                )


@kernel
def _begin_limited(strip: Any, hits: Any, width: int, unit: Any) -> None:
    for r in range(strip.shape[0]):
        for j in range(width):
            # From values to last places of the accumulator, in which sums are kept until the end.
            start = strip[r, j] * unit.product_scale
            strip[r, j] = limit(start, unit)
            hits[r, j] = strip[r, j] != start


@kernel
def _add_limited(
    starts: Any,
    index: Any,
    by_columns: bool,
    data: Any,
    dense: Any,
    first: int,
    width: int,
    strip: Any,
    hits: Any,
    unit: Any,
) -> None:
    """Add products of fixed-point numbers, in units of the accumulator's last place, limited at each add."""
    # Scaled by the left operand alone: a product is then in last places of the accumulator.
    for r in range(starts.size - 1):
        for p in range(starts[r], starts[r + 1]):
            target, source = (index[p], r) if by_columns else (r, index[p])
            left = np.float64(data[p]) * unit.product_scale
            for j in range(width):
                s = strip[target, j] + left * np.float64(dense[source, first + j])
                limited = limit(s, unit)
                hits[target, j] |= limited != s
                strip[target, j] = limited


@kernel
def _count_columns(index: Any, counts: Any) -> int:
    longest = 0
    for p in range(index.size):
        c = index[p]
        counts[c] += 1
        longest = max(longest, counts[c])
    return longest


@kernel
def _number_columns(counts: Any, used: Any) -> int:
    """Replace counts by numbers among the columns that have entries, an exclusive prefix sum; return how many have."""
    number = 0
    for c in range(counts.size):
        has_entries = counts[c] > 0
        counts[c] = number
        if has_entries:
            used[number] = c
            number += 1
    return number


@kernel
def _number_entries(index: Any, numbers: Any, out: Any) -> None:
    for p in range(index.size):
        out[p] = numbers[index[p]]


def columns(index: Indices, count: int) -> Columns:
    """Return which of `count` columns have entries."""
    index = np.ascontiguousarray(index)
    counts, used = np.zeros(count, index.dtype), np.empty(count, index.dtype)
    longest = int(_count_columns(index, counts))
    count_used = int(_number_columns(counts, used))
    numbers = np.empty(index.size, index.dtype)
    _number_entries(index, counts, numbers)
    return Columns(numbers, used[:count_used].copy(), longest)


def unit_in_strips(formats: Formats, mac: MacCode) -> Accumulator | None:
    """Return the accumulator that strips add up in; None if it takes gathered operands."""
    if any(f is not None and f.carries_raws for f in formats):
        return None
    unit = unit_for(mac, formats)
    return unit if unit is not None and unit.kind in (FLOAT32, WIDE32, FIXED) else None


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None if strips add up in this unit, else "": `groups` takes any."""
    if product.path in DTYPES:
        return None if blas.declines(product, stage) is None else ""
    return None if unit_in_strips(product.formats, product.mac) is not None else ""


def contents(product: SparseProduct, write: Write) -> Contents:
    """Return the (R, H) accumulators' contents, and where they touched a limit."""
    path, pattern, shape = product.code.path, product.pattern, product.shape
    data, dense, addend = product.data, product.dense, product.addend
    unit = None if path in DTYPES else unit_in_strips(product.code.formats, product.code.mac)
    limited = unit is not None and unit.kind == FIXED
    # Contents of a fixed accumulator are integers in float64, those of the others are float32.
    dtype = DTYPES[path] if unit is None else np.dtype(np.float64 if limited else np.float32)
    sums, touched = empty(shape, dtype), np.zeros(shape, np.uint8) if limited else None
    data, dense = only_read(np.ascontiguousarray(data)), only_read(np.ascontiguousarray(dense))
    start = only_read(np.zeros((1, 1), np.float32) if addend is None else np.ascontiguousarray(addend))
    threads = thread_count() if data.size * shape[1] >= GRAIN_MACS else 1
    width = strip_width(shape[1], threads, dtype.itemsize)
    entries = (pattern.starts, pattern.index)

    # Of a transposed matrix, each entry reads and writes a row of results; sorted by column, a block does so once for
    # each result.
    rows = rows_of_a_block(pattern, shape[1], dtype.itemsize) if pattern.by_columns and not limited else 0
    if rows and (unit is None or unit.kind == FLOAT32):
        return Contents(_contents_of_blocks(data, dense, start, pattern, dtype, rows))

    def work(_: int, begin: int, end: int) -> None:
        room, room_of_hits = empty((shape[0], width), dtype).reshape(-1), np.empty(shape[0] * width, np.uint8)
        for first in range(begin * width, min(end * width, shape[1]), width):
            span = (first, min(width, shape[1] - first))
            strip_shape = (shape[0], span[1])  # a last, narrower strip has no gaps between its rows either
            strip, hits = (array[: math.prod(strip_shape)].reshape(strip_shape) for array in (room, room_of_hits))
            _begin(start, strip, *span)
            if touched is not None:
                _begin_limited(strip, hits, span[1], unit)
                _add_limited(*entries, pattern.by_columns, data, dense, *span, strip, hits, unit)
                _end(hits, touched, *span)
            elif unit is not None and unit.kind == WIDE32:
                _add_wide_products(*entries, pattern.by_columns, data, dense, *span, strip)
            else:
                _add_rows(pattern, data, dense, *span, strip)
            _end(strip, sums, *span)

    strips = -(-shape[1] // width)
    # A grain of all strips is one range: work too small for two threads stays on one.
    over_ranges(work, strips, 1, 1 if threads > 1 else max(strips, 1))
    if unit is not None and limited:
        sums /= unit.product_scale  # a power of two: exact
    return Contents(sums, None if unit is None or unit.overflow == k.WRAP else touched)


def _contents_of_blocks(
    data: Array, dense: Array, addend: Array, pattern: Pattern, dtype: Any, block_rows: int
) -> Array:
    """Return the (R, H) sums of entries that are sorted by column, block by block."""
    strips = empty((dense.shape[1] // BLOCK_WIDTH, pattern.results, BLOCK_WIDTH), dtype)
    sums = empty((pattern.results, dense.shape[1]), dtype)

    def begin(_: int, start: int, stop: int) -> None:
        for number in range(start, stop):
            _begin(addend, strips[number], number * BLOCK_WIDTH, BLOCK_WIDTH)

    def end(_: int, start: int, stop: int) -> None:
        for number in range(start, stop):
            _end(strips[number], sums, number * BLOCK_WIDTH, BLOCK_WIDTH)

    over_ranges(begin, len(strips), 1, 1)
    add_sorted(data, dense, strips, pattern, block_rows)
    over_ranges(end, len(strips), 1, 1)
    return sums


def _add_rows(pattern: Pattern, data: Array, dense: Array, first: int, width: int, strip: Array) -> None:
    add = _spread_rows if pattern.by_columns else _gather_rows
    add(pattern.starts, pattern.index, data, dense, first, width, strip)


def strip_width(columns: int, threads: int, itemsize: int) -> int:
    """Return the columns of a strip: few enough that each thread has one, and whole lanes."""
    share = -(-max(columns, 1) // threads)
    return min(WIDE if itemsize == 4 else NARROW, -(-share // LANES) * LANES)


def any_operand(is_special: Callable[[Array], NDArray[np.bool_]], product: SparseProduct) -> NDArray[np.bool_]:
    """Return, for each result, whether any operand of its entries is special."""
    data, dense, addend, pattern = product.data, product.dense, product.addend, product.pattern
    seen = np.zeros(product.shape, bool)
    here, there = is_special(data).astype(np.float64), is_special(dense).astype(np.float64)
    # The product loops count: with 1 for a special number and 0 for others, against ones.
    for left, right in ((np.ones_like(here), there), (here, np.ones_like(there))):
        counts = np.zeros(seen.shape, np.float64)
        _add_rows(pattern, only_read(left), only_read(right), 0, seen.shape[1], counts)
        seen |= counts > 0
    return seen if addend is None else seen | is_special(addend)
