"""Sparse products on a device: one thread per result, its entries in storage order.

A product by rows has them in this order. For a product by columns they are put in order on the device: counted, placed
by integer atomics in any order, then sorted by entry, so that the result does not depend on which thread came first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from emu.backends.arrays import on_host
from emu.backends.cuda import layout
from emu.backends.cuda.launching import Launcher, counted_bytes
from emu.backends.cuda.ways.add_by_add import kernel_of
from emu.backends.cuda.ways.on_device import DeviceWay, OnDevice, Results, has_room
from emu.backends.gathered import Gathered
from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.pattern import Columns, Indices, Pattern
from emu.backends.product import ProductCode, SparseProduct

Array = Any
#: Threads of the block that adds up counts, and its words of shared memory per thread.
_SCAN_THREADS, _SCAN_WORDS = 256, 3
#: Kernels of `products.cu`, and what does the same for sparse operands.
_KERNELS = {"exact_product": "sparse_exact", "ordered_product": "sparse_ordered", "block_product": "sparse_block"}
WAY = "one thread per result, in integers, its entries in storage order"
#: Rows, entries and columns are counted in 32 bits.
MOST_ENTRIES = 2**31 - 1
#: The offsets of operands whose elements are found by a pattern instead.
_NOWHERE = np.zeros(0, np.int64)


def fits(pattern: Pattern) -> bool:
    """Return whether 32-bit indices name every entry, row and result."""
    return (
        max(pattern.index.size, pattern.results, pattern.starts.size, int(pattern.index.max(initial=0))) < MOST_ENTRIES
    )


class _Scanned(NamedTuple):
    """Counts of each index on the device, their running sums, and totals.

    Attributes:
        counts: int32, entries of each index.
        starts: int64, where the entries of each index begin, and the end.
        places: int32, of each index with entries, its position among these.
        totals: int64, how many indices have entries, and the most entries of one.
    """

    counts: Array
    starts: Array
    places: Array
    totals: Array


def _scanned(launcher: Launcher, index: Array, count: int) -> _Scanned:
    """Return what is counted of `index`, int32, whose numbers are below `count`."""
    xp = launcher.xp
    counts = xp.zeros(count, np.int32)
    starts, places, totals = xp.empty(count + 1, np.int64), xp.empty(count, np.int32), xp.empty(2, np.int64)
    # adds of integers: any order of threads gives the same counts
    launcher.launch("sparse", "count_index", index.size, (index, np.int64(index.size), counts), words=1)
    arguments = (counts, np.int64(count), starts, places, totals)
    room = 8 * _SCAN_WORDS * _SCAN_THREADS
    # one block: a prefix sum over all counts
    launcher.launch("sparse", "scan", 1, arguments, shared_bytes=room, words=1, threads=_SCAN_THREADS)
    return _Scanned(counts, starts, places, totals)


def columns(launcher: Launcher, index: Indices, count: int) -> Columns:
    """Return which of `count` columns have entries, on the host."""
    xp = launcher.xp
    given = launcher.taken(index.astype(np.int32, copy=False))
    counts, _, places, totals = _scanned(launcher, given, count)
    out = xp.empty(index.size, np.int32)
    launcher.launch("sparse", "place_entries", index.size, (given, np.int64(index.size), places, out), words=1)
    # this read waits for the device: the next array's size depends on it
    many, longest = (int(number) for number in on_host(totals).tolist())
    used = xp.empty(many, np.int32)
    launcher.launch("sparse", "list_used", count, (counts, np.int64(count), places, used), words=1)
    return Columns(on_host(out).astype(index.dtype), on_host(used).astype(index.dtype), longest)


def _segments(launcher: Launcher, pattern: Pattern) -> tuple[Array, Array, Array]:
    """Return a pattern's segments on the device: its entries, rows and starts, as `Segments` has them."""
    xp, n = launcher.xp, pattern.index.size
    index = launcher.operand(pattern.index)
    index = index.astype(np.int32, copy=False)
    stored = launcher.operand(pattern.starts)
    if not pattern.by_columns:
        # by rows entries are in order already
        return xp.arange(n, dtype=np.int32), index, stored
    starts = _scanned(launcher, index, pattern.results).starts
    entries, rows, cursors = xp.empty(n, np.int32), xp.empty(n, np.int32), xp.zeros(pattern.results, np.int32)
    # any order within a result: threads take places as they come
    launcher.launch("sparse", "scatter_entries", n, (index, np.int64(n), starts, cursors, entries), words=1)
    results = pattern.results
    # back into storage order
    launcher.launch("sparse", "sort_segments", results, (starts, np.int64(results), entries), words=1)
    # the stored row of each entry, looked up in the rows' starts
    arguments = (entries, np.int64(n), stored, np.int64(stored.size - 1), rows)
    launcher.launch("sparse", "name_rows", n, arguments, words=1)
    return entries, rows, starts


class Entries(DeviceWay[SparseProduct]):
    """Products of sparse matrices."""

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return why a product is left to the definition: sums wider than a kernel's integers."""
        return layout.declines_sums(product.formats, product.mac) or None

    def proof(self, product: ProductCode) -> str:
        """Return how a result is computed."""
        return WAY

    def compute(self, product: SparseProduct, write: Write) -> Outcome | None:
        """Write the product; None if 32 bits do not count its entries, or if a block has no room for the register."""
        launcher, pattern = self._launcher, product.pattern
        if not fits(pattern) or not has_room(write.register):
            return None
        # One matrix, so there is no step to a next one. The inner size is the most terms of a result.
        sizes, steps = (1, pattern.results, pattern.longest, product.dense.shape[1]), (0, 0)
        addend = None if product.addend is None else product.addend.reshape(1, *product.addend.shape)
        left, right = (Gathered(launcher.taken(x), 1, 0, _NOWHERE, _NOWHERE) for x in (product.data, product.dense))
        device = OnDevice.laid_out(launcher, product.code, left, right, addend, sizes, steps, write)
        results = Results.of(launcher, device.results, write)
        entries, rows, starts = _segments(launcher, pattern)
        kernel, extra, words = kernel_of(launcher, device, write.stage)
        arguments = (
            *(device.task, device.left.data, entries, rows, starts, device.right.data, device.addend),
            *(*results.arguments, *extra),
        )
        room = counted_bytes(write.register)
        launcher.launch("sparse", _KERNELS[kernel], device.results, arguments, shared_bytes=room, words=words)
        values = results.values.reshape(product.shape)
        return Outcome.with_pending(launcher.returned(values, product.data, product.dense), results.counts)
