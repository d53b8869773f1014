"""Sparse products in strips of columns: entries are read in storage order, nothing is transposed or copied.

A thread has some columns of the dense operand and of the result. Its strip of the result stays in the second-level
cache; a row of the dense operand's strip in registers. Each result adds up its terms in storage order, whoever has it:

    for row r of x:  for entry p of r:  strip[index[p], :] += data[p] * dense[r, strip]

Sums in order: float32 accumulators, fixed ones that saturate or wrap, exact ones bounded by the planner. All others:
operands gathered for results of equal many terms, through the backend's ordinary products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import FormatCode, MacCode
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, over_ranges, thread_count
from emu.backends.numba.in_order import FIXED, FLOAT32, WIDE32, Unit, limit, unit_for
from emu.backends.numba.vector.lanes import address
from emu.backends.numba.vector.strips import add_products
from emu.backends.pattern import Columns, Indices, Pattern

Array = NDArray[Any]
Formats = tuple[FormatCode, FormatCode, FormatCode | None]
#: Columns of a strip of float32, of a strip of float64; narrower ones are multiples of the lanes.
WIDE, NARROW, LANES = 64, 32, 16
#: Multiply-adds below which a second thread is not worth waking.
GRAIN_MACS = 1 << 17
WAY = "entry by entry, in storage order, in strips of columns"
EXACT_DTYPES = {"float32_blas": np.dtype(np.float32), "float64_blas": np.dtype(np.float64)}


@kernel
def _add_strips(
    starts: Any, index: Any, by_columns: bool, data: Any, dense: Any, sums: Any, first: int, width: int, strip: Any
) -> None:
    """Add entries to a strip, (results, width), whose columns begin at `first`."""
    for r in range(sums.shape[0]):
        for j in range(width):
            strip[r, j] = sums[r, first + j]
    held, rows, size = address(strip), address(dense), dense.itemsize
    for r in range(starts.size - 1):
        for p in range(starts[r], starts[r + 1]):
            target, source = (index[p], r) if by_columns else (r, index[p])
            left = strip.dtype.type(data[p])
            result = held + target * strip.shape[1] * strip.itemsize
            row = rows + (source * dense.shape[1] + first) * size
            if width == WIDE:
                add_products(result, row, dense.dtype.type(0), left, WIDE)
            elif width == NARROW:
                add_products(result, row, dense.dtype.type(0), left, NARROW)
            else:
                for j in range(width):
                    strip[target, j] += left * strip.dtype.type(dense[source, first + j])
    for r in range(sums.shape[0]):
        for j in range(width):
            sums[r, first + j] = strip[r, j]


@kernel
def _add_wide_strips(
    starts: Any, index: Any, by_columns: bool, data: Any, dense: Any, sums: Any, first: int, width: int, strip: Any
) -> None:
    """Add products of 48 bits, which float64 holds, to float32: one rounding to float64's odd neighbour is innocuous."""
    for r in range(sums.shape[0]):
        for j in range(width):
            strip[r, j] = sums[r, first + j]
    for r in range(starts.size - 1):
        for p in range(starts[r], starts[r + 1]):
            target, source = (index[p], r) if by_columns else (r, index[p])
            left = np.float64(data[p])
            row, result = dense[source, first : first + width], strip[target]
            for j in range(width):
                result[j] = np.float32(np.float64(result[j]) + left * np.float64(row[j]))
    for r in range(sums.shape[0]):
        for j in range(width):
            sums[r, first + j] = strip[r, j]


@kernel
def _limit_strips(
    starts: Any,
    index: Any,
    by_columns: bool,
    data: Any,
    dense: Any,
    sums: Any,
    first: int,
    width: int,
    strip: Any,
    hits: Any,
    touched: Any,
    unit: Any,
) -> None:
    back = 1.0 / unit.product_scale
    for r in range(sums.shape[0]):
        for j in range(width):
            start = sums[r, first + j] * unit.product_scale
            strip[r, j] = limit(start, unit)
            hits[r, j] = strip[r, j] != start
    for r in range(starts.size - 1):
        for p in range(starts[r], starts[r + 1]):
            target, source = (index[p], r) if by_columns else (r, index[p])
            left = np.float64(data[p]) * unit.product_scale
            row, result, hit = dense[source, first : first + width], strip[target], hits[target]
            for j in range(width):
                s = result[j] + left * np.float64(row[j])
                held = limit(s, unit)
                hit[j] |= held != s
                result[j] = held
    for r in range(sums.shape[0]):
        for j in range(width):
            sums[r, first + j] = strip[r, j] * back
            touched[r, first + j] = hits[r, j]


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
    """Turn counts into places among the columns that have entries: an exclusive prefix sum."""
    place = 0
    for c in range(counts.size):
        here = counts[c] > 0
        counts[c] = place
        if here:
            used[place] = c
            place += 1
    return place


@kernel
def _place_entries(index: Any, place: Any, places: Any) -> None:
    for p in range(index.size):
        places[p] = place[index[p]]


def columns(index: Indices, count: int) -> Columns:
    """Return which of `count` columns have entries."""
    index = np.ascontiguousarray(index)
    counts, used = np.zeros(count, index.dtype), np.empty(count, index.dtype)
    longest = int(_count_columns(index, counts))
    found = int(_number_columns(counts, used))
    places = np.empty(index.size, index.dtype)
    _place_entries(index, counts, places)
    return Columns(places, used[:found].copy(), longest)


def unit_in_strips(formats: Formats, mac: MacCode) -> Unit | None:
    """Return the accumulator that strips add up in, None of one that takes gathered operands."""
    if any(f is not None and f.carries_raws for f in formats):
        return None
    unit = unit_for(mac, formats)
    return unit if unit is not None and unit.kind in (FLOAT32, WIDE32, FIXED) else None


def applies(formats: Formats, mac: MacCode, path: str) -> bool:
    """Return whether strips add up what the reference does."""
    return path in EXACT_DTYPES or unit_in_strips(formats, mac) is not None


def contents(
    data: Array, dense: Array, addend: Array | None, pattern: Pattern, formats: Formats, mac: MacCode, path: str
) -> tuple[Array, Array | None]:
    """Return the (R, H) accumulators' contents and where they touched a limit; the unit is one that `applies`."""
    unit = None if path in EXACT_DTYPES else unit_in_strips(formats, mac)
    if unit is None:
        dtype = EXACT_DTYPES[path]
    else:
        dtype = np.dtype(np.float64 if unit.kind == FIXED else np.float32)
    shape = (pattern.results, dense.shape[1])
    sums = empty(shape, dtype)
    sums[...] = 0 if addend is None else addend
    touched = np.zeros(shape, np.uint8) if unit is not None and unit.kind == FIXED else None
    given = (pattern.starts, pattern.index, pattern.by_columns)
    data, dense = np.ascontiguousarray(data), np.ascontiguousarray(dense)
    threads = thread_count() if data.size * shape[1] >= GRAIN_MACS else 1
    width = strip_width(shape[1], threads, dtype.itemsize)

    def work(_: int, start: int, stop: int) -> None:
        strip = empty((shape[0], width), dtype)
        hits = np.empty((shape[0], width), np.uint8) if touched is not None else None
        for number in range(start, stop):
            first = number * width
            place = (first, min(width, shape[1] - first))
            if touched is not None:
                _limit_strips(*given, data, dense, sums, *place, strip, hits, touched, unit)
            elif unit is not None and unit.kind == WIDE32:
                _add_wide_strips(*given, data, dense, sums, *place, strip)
            else:
                _add_strips(*given, data, dense, sums, *place, strip)

    strips = -(-shape[1] // width)
    over_ranges(work, strips, 1, 1 if threads > 1 else max(strips, 1))
    return sums, None if touched is None or (unit is not None and unit.overflow == k.WRAP) else touched


def strip_width(columns: int, threads: int, itemsize: int) -> int:
    """Return the columns of a strip: enough strips for every thread, lanes filled."""
    share = -(-max(columns, 1) // threads)
    return min(WIDE if itemsize == 4 else NARROW, -(-share // LANES) * LANES)


def nan_among(data: Array, dense: Array, addend: Array | None, pattern: Pattern) -> NDArray[np.bool_]:
    """Return, per result, whether any operand of its entries was NaN: counted as numbers are added."""
    seen = np.zeros((pattern.results, dense.shape[1]), bool)
    given = (pattern.starts, pattern.index, pattern.by_columns)
    here, there = np.isnan(data).astype(np.float64), np.isnan(dense).astype(np.float64)
    for left, right in ((np.ones_like(here), there), (here, np.ones_like(there))):
        counts = np.zeros(seen.shape, np.float64)
        _add_strips(*given, left, right, counts, 0, counts.shape[1], np.empty(counts.shape))
        seen |= counts > 0
    return seen if addend is None else seen | np.isnan(addend)
