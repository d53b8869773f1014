"""Sparse products on a device: one thread per result, its entries in storage order.

A product by rows has them so. One by columns puts them in order on the device: counted, placed by integer atomics in
any order, then sorted by entry, so that what comes out does not depend on which thread came first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from emu.backends.arrays import on_host
from emu.backends.cuda import layout
from emu.backends.cuda.launching import Counts, Launcher, counted_bytes
from emu.backends.cuda.products import Work, kernel_of
from emu.backends.gathered import Gathered
from emu.backends.interface import (
    FormatCode,
    MacCode,
    Outcome,
    RandomCode,
    RegisterCode,
    StageCode,
    carrier_of,
)
from emu.backends.pattern import Columns, Indices, Pattern

Array = Any
Formats = tuple[FormatCode, FormatCode, FormatCode | None]
#: Threads of the block that adds up counts, and its words of shared memory per thread.
_SCAN_THREADS, _SCAN_WORDS = 256, 3
#: Kernels of `products.cu`, and what does the same for sparse operands.
_KERNELS = {"exact_product": "sparse_exact", "ordered_product": "sparse_ordered", "block_product": "sparse_block"}
WAY = "one thread per result, in integers, its entries in storage order"
#: Rows, entries and columns are counted in 32 bits.
MOST_ENTRIES = 2**31 - 1
_NOWHERE = np.zeros(0, np.int64)


def fits(pattern: Pattern) -> bool:
    """Return whether 32-bit indices name every entry, row and result."""
    return (
        max(pattern.index.size, pattern.results, pattern.starts.size, int(pattern.index.max(initial=0))) < MOST_ENTRIES
    )


class _Scanned(NamedTuple):
    """Counts added up, on the device: where each index begins, its place among those with entries, (found, longest)."""

    counts: Array
    starts: Array
    places: Array
    found: Array


def _scanned(launcher: Launcher, index: Array, count: int) -> _Scanned:
    xp = launcher.xp
    counts = xp.zeros(count, np.int32)
    starts, places, found = xp.empty(count + 1, np.int64), xp.empty(count, np.int32), xp.empty(2, np.int64)
    launcher.launch("sparse", "count_index", index.size, (index, np.int64(index.size), counts), words=1)
    arguments = (counts, np.int64(count), starts, places, found)
    room = 8 * _SCAN_WORDS * _SCAN_THREADS
    launcher.launch("sparse", "scan", 1, arguments, shared_bytes=room, words=1, threads=_SCAN_THREADS)
    return _Scanned(counts, starts, places, found)


def columns(launcher: Launcher, index: Indices, count: int) -> Columns:
    """Return which of `count` columns have entries, on the host."""
    xp = launcher.xp
    given = launcher.taken(index.astype(np.int32, copy=False))
    counts, _, places, found = _scanned(launcher, given, count)
    out = xp.empty(index.size, np.int32)
    launcher.launch("sparse", "place_entries", index.size, (given, np.int64(index.size), places, out), words=1)
    many, longest = (int(number) for number in on_host(found).tolist())
    used = xp.empty(many, np.int32)
    launcher.launch("sparse", "list_used", count, (counts, np.int64(count), places, used), words=1)
    return Columns(on_host(out).astype(index.dtype), on_host(used).astype(index.dtype), longest)


def _segments(launcher: Launcher, pattern: Pattern) -> tuple[Array, Array, Array]:
    """Return entries, the dense operand's rows beside them, and where each result's begin, on the device."""
    xp, n = launcher.xp, pattern.index.size
    index = launcher.operand(pattern.index)
    index = index.astype(np.int32, copy=False)
    stored = launcher.operand(pattern.starts)
    if not pattern.by_columns:
        return xp.arange(n, dtype=np.int32), index, stored
    starts = _scanned(launcher, index, pattern.results).starts
    entries, rows, cursors = xp.empty(n, np.int32), xp.empty(n, np.int32), xp.zeros(pattern.results, np.int32)
    launcher.launch("sparse", "scatter_entries", n, (index, np.int64(n), starts, cursors, entries), words=1)
    results = pattern.results
    launcher.launch("sparse", "sort_segments", results, (starts, np.int64(results), entries), words=1)
    arguments = (entries, np.int64(n), stored, np.int64(stored.size - 1), rows)
    launcher.launch("sparse", "name_rows", n, arguments, words=1)
    return entries, rows, starts


def write(
    launcher: Launcher,
    data: Array,
    dense: Array,
    addend: Array | None,
    pattern: Pattern,
    formats: Formats,
    mac: MacCode,
    stage: StageCode,
    random: RandomCode,
    register: RegisterCode | None,
) -> Outcome:
    """Write a sparse product; arguments as of `Kernels.sparse_product`."""
    shape = (pattern.results, dense.shape[1])
    sizes = (1, pattern.results, pattern.longest, dense.shape[1])
    third = None if addend is None else launcher.taken(addend)
    numbers = [
        *layout.head_numbers(stage, random, register),
        *layout.operand_numbers(data.dtype, formats[0]),
        *layout.operand_numbers(dense.dtype, formats[1]),
        *(layout.NO_OPERAND if addend is None else layout.operand_numbers(addend.dtype, formats[2])),
        *sizes,
        1,
        *(0, 0),
        *([0, 0, 0] if addend is None else layout.broadcast_steps((1, *addend.shape))),
        *layout.mac_numbers(mac),
        *layout.blocks_numbers(mac, formats),
    ]
    left, right = (Gathered(launcher.taken(x), 1, 0, _NOWHERE, _NOWHERE) for x in (data, dense))
    work = Work(left, right, third, formats, sizes, numbers)
    values, counts = launcher.xp.empty(work.results, carrier_of(stage.format)), Counts(launcher, register)
    entries, rows, starts = _segments(launcher, pattern)
    kernel, extra, words = kernel_of(launcher, work, mac, stage, 1)
    arguments = (
        *(layout.task(numbers), left.data, entries, rows, starts, right.data, third),
        *(launcher.recorded(random), values, counts.totals, *extra),
    )
    room = counted_bytes(register)
    launcher.launch("sparse", _KERNELS[kernel], values.size, arguments, shared_bytes=room, words=words)
    return Outcome.owing(launcher.returned(values.reshape(shape), data, dense), counts)
