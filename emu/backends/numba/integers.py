"""Exact products of narrow fixed-point operands by integer dot-product instructions, fused with the output stage.

The planner has proved that no sum leaves 2**53, so any order gives the same integers:

    carriers -> raws      `raw_products`
    one matrix            its right operand's panels are packed once; threads share rows, or k if rows are few
    small matrices        one thread, in room that is kept (`small_products`)
    many matrices         threads share the batch
    a single column       exact float64 adds of elements that are not moved (`single_column`)

A group of rows passes the output stage while it is in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered, as_gathered
from emu.backends.interface import Outcome, Write, carrier_of
from emu.backends.memory import empty
from emu.backends.numba import single_column
from emu.backends.numba.compiling import BLOCK, over_ranges, thread_count
from emu.backends.numba.machine import has_dot_products, has_pair_products
from emu.backends.numba.raw_products import (
    BYTE,
    GRAIN_MACS,
    GROUP_RESULTS,
    NO_ADDEND,
    WORD_BITS,
    RawProduct,
    grain_of,
)
from emu.backends.numba.small_products import write_small_product
from emu.backends.numba.stage import Writer, run_stage
from emu.backends.numba.vector import batched_products, gathered_pairs, packing, paired_products
from emu.backends.numba.vector import integer_products as loops
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS, TILE_ROWS
from emu.backends.numba.vector.writing import Sink
from emu.backends.product import Formats

Array = NDArray[Any]
#: Elements moved below which a second thread is not worth waking.
GRAIN_ELEMENTS = 1 << 20
#: Most multiply-adds of sums over pairs, those whose sums are dropped too, per multiply-add of the product.
MOST_IN_VAIN = 1.6
#: Binary points nearer to 0 than this leave sums of up to 24 bits among the normal float32 numbers.
FLOAT32_CENTRAL = bounded(50, 1, 51, "a last place, and a sum of 24 bits, lie within the exponents -126 to 127")
#: Integers up to 2**24 are exact in float32.
FLOAT32_INTEGERS = bounded(1 << 24, 1, 1 << 24, "float32 holds each integer up to it")


def applies(formats: Formats) -> bool:
    """Return whether operands are fixed-point numbers of at most 16 bits, and the processor has the instructions."""
    return has_pair_products() and all(not f.is_float and f.width_bits - f.signed <= WORD_BITS for f in formats[:2])


def write_products(
    a: Array | Gathered,
    b: Array | Gathered,
    addend: Array | None,
    formats: Formats,
    write: Write,
) -> Outcome:
    """Write exact sums of products plus addend through the output stage.

    Args:
        a: (B or 1, M, K) values of a fixed-point format.
        b: (B or 1, K, N).
        addend: (B or 1, M or 1, N or 1) values, or None.
        formats: formats of the three.
        write: output stage, random bits, register.
    """
    outcome = write_small_product(a, b, addend, formats, write)
    if outcome is not None:
        return outcome
    left, right = as_gathered(a), as_gathered(b)
    shape = (max(left.batches, right.batches), left.rows.size, right.columns.size)
    # One column would leave 31 of a panel's 32 columns empty.
    if single_column.applies(left, right):
        third = NO_ADDEND if addend is None else addend.astype(np.float64)
        return run_stage("quantize", (single_column.sums(left, right, third).reshape(shape),), write)
    values = empty(shape, carrier_of(write.stage.format))
    # Patches, which need no copy: many matrices first, then one.
    if isinstance(b, Gathered) and _is_paired(left, right, formats):
        product = _batch_of(left, right, addend, formats)
        if product is not None:
            return _write_batch(product, values, write)
        sums = _gathered_sums(left, right, addend, formats)
        if sums is not None:
            writer = Writer("quantize", (sums.dtype,), values, write)
            _write_sums(writer, sums)
            return writer.outcome()
    writer = Writer("quantize", (np.dtype(np.float64),), values, write)
    _compute(RawProduct.of(left, right, addend, formats), writer)
    return writer.outcome()


def _is_paired(left: Gathered, right: Gathered, formats: Formats) -> bool:
    """Return whether words of two elements can be made of both operands, and there are any."""
    if 0 in left.shape or 0 in right.shape:
        return False
    is_central = all(abs(fmt.quantum) < FLOAT32_CENTRAL for fmt in formats[:2])
    return has_dot_products() and is_central and left.dtype == np.float32 and right.dtype == np.float32


def _scales(formats: Formats) -> tuple[tuple[float, float], float]:
    """Return what makes raws of both operands, and the value of 1 in sums of their products."""
    quanta = formats[0].quantum, formats[1].quantum
    return (math.ldexp(1.0, -quanta[0]), math.ldexp(1.0, -quanta[1])), math.ldexp(1.0, sum(quanta))


def _batch_of(
    left: Gathered, right: Gathered, addend: Array | None, formats: Formats
) -> paired_products.BatchProduct | None:
    """Return the product of one matrix with each of a batch, ready to be written; None of others."""
    if not batched_products.applies(left, right, addend) or not paired_products.batch_applies(right):
        return None
    scales, lsb = _scales(formats)
    first = None
    if addend is not None:
        if addend.shape[2] > 1:
            return None
        # In units of the sums' last place: what begins the 32-bit sums must be an integer that fits them.
        first = addend[0].astype(np.float64) / lsb
        if (np.abs(first) > loops.INT32_MAX).any() or (first != np.rint(first)).any():
            return None
    # By the formats, not by the numbers: the same stage is compiled for every batch.
    largest = left.columns.size * math.ldexp(1.0, sum(fmt.width_bits - fmt.signed for fmt in formats[:2]))
    third = formats[2]
    if addend is not None and third is not None:
        largest += math.ldexp(1.0, third.width_bits - third.signed + third.quantum) / lsb
    dtype = np.dtype(np.float32 if largest <= FLOAT32_INTEGERS else np.float64)
    product = paired_products.BatchProduct(left, right, scales, lsb, first, dtype)
    return product if product.fits else None


def _write_batch(product: paired_products.BatchProduct, values: Array, write: Write) -> Outcome:
    """Write a batch's results, of whole panels while their sums are in the cache."""
    writer = Writer("quantize", (product.dtype,), values, write)
    panels = product.shape[0] // PANEL_COLUMNS
    whole = panels * PANEL_COLUMNS if writer.takes_any_order else 0
    # What the sink took before it stopped has been counted: a new writer begins with counts of 0, and writes all.
    if whole and not product.write(values[:whole], writer.sink):  # some have been counted
        writer, whole = Writer("quantize", (product.dtype,), values, write), 0
    rest = values[whole:]
    if rest.size:
        sums = empty(rest.shape, product.dtype)
        product.write(sums, first=whole // PANEL_COLUMNS)
        _write_sums(writer, sums, values.size - rest.size)
    return writer.outcome()


def _write_sums(writer: Writer, sums: Array, origin: int = 0) -> None:
    """Write sums through the output stage: results from `origin` on."""
    flat = sums.reshape(-1)

    def work(thread: int, start: int, stop: int) -> None:
        writer.write(thread, (flat,), origin + start, origin + stop, origin)

    over_ranges(work, flat.size, BLOCK, writer.grain)


def _gathered_sums(left: Gathered, right: Gathered, addend: Array | None, formats: Formats) -> Array | None:
    """Return the sums of a product whose right operand is read where it lies; None of others."""
    if max(left.batches, right.batches) > 1 or not gathered_pairs.gathered_applies(left, right):
        return None
    sums = gathered_pairs.gathered_sums(left, right, *_scales(formats))
    return sums if sums is None or addend is None else sums + addend.astype(np.float64)


def _compute(product: RawProduct, writer: Writer | _Copier) -> None:
    sizes = product.sizes
    if not product.batches * sizes.rows * sizes.columns:
        return
    if product.batches > 1:
        _write_batches(product, writer)
    else:
        _write_rows(product, writer)


def exact_sums(
    a: Array | Gathered, b: Array | Gathered, addend: Array | None, formats: Formats, *, magnitudes: bool = False
) -> Array:
    """Return exact (B, M, N) sums of products plus addend as float64.

    Args:
        a: (B or 1, M, K) values of a fixed-point format.
        b: (B or 1, K, N).
        addend: (B or 1, M or 1, N or 1) values, or None.
        formats: formats of the three.
        magnitudes: whether to sum |a| |b| + |addend| instead; a raw of -2**15 counts as 2**15 - 1, as int16 holds no
            more.
    """
    left, right = as_gathered(a), as_gathered(b)
    product = RawProduct.of(left, right, addend, formats, magnitudes=magnitudes)
    sizes = product.sizes
    sums = empty((product.batches, sizes.rows, sizes.columns), np.dtype(np.float64))
    _compute(product, _Copier(sums))
    return sums


class _Copier:
    """Stands in for a `Writer` and keeps the sums themselves."""

    def __init__(self, sums: Array) -> None:
        self._sums = sums.reshape(-1)

    def sink(self, thread: int) -> Sink:
        """Return the sink that takes nothing: loops return each group."""
        return Sink()

    def write(self, thread: int, operands: Sequence[Array], start: int, stop: int, origin: int = 0) -> None:
        """Keep results `start`..`stop`; arguments as of `Writer.write`."""
        self._sums[start:stop] = operands[0][start - origin : stop - origin]


def _side(x: Gathered) -> tuple[Array, int, Array, Array]:
    return x.data, x.batch_stride, x.rows, x.columns


#: Of each pair: offset, first and second k (-1: none), whether the two are neighbours; the distance of the other pairs.
_Pairs = tuple[Array, Array, Array, Array, int]


def _pairs(product: RawProduct) -> tuple[_Pairs, Array] | None:
    """Return pairs and segments by which one left matrix meets patches, two elements at a time; None of other operands.

    Sums for positions between the columns are computed and dropped.
    """
    # The left matrix is packed once: it must be the same for all patches.
    if product.left.batch_stride or product.sizes.bits == BYTE:
        return None
    return _pairs_of(product.right.rows.tobytes(), product.right.columns.tobytes())


@lru_cache(maxsize=256)
def _pairs_of(rows: bytes, columns: bytes) -> tuple[_Pairs, Array] | None:
    """Return the pairs and the segments; offsets are the bytes of int64 arrays, which the cache can hash."""
    offsets, across = np.frombuffer(rows, np.int64), np.frombuffer(columns, np.int64)
    # The last offset must be the largest: the loop takes the end of what it reads from it.
    if min(offsets.size, across.size) < 2 or offsets.min() < 0 or offsets[-1] != offsets.max():
        return None
    # Sums are computed for each position from the first column to the last.
    if (np.diff(across) < 1).any() or across[-1] - across[0] >= MOST_IN_VAIN * across.size:
        return None
    paired, single = _matched(range(offsets.size), offsets, 1)
    # What has no neighbour is paired at the most frequent distance: the next row of an image, as a rule.
    gaps = np.diff(offsets[single])
    distance = int(np.bincount(gaps[gaps > 0]).argmax()) if (gaps > 0).any() else 1
    far, alone = _matched(single, offsets, distance)
    pairs = np.array([*((i, j, 1) for i, j in paired), *((i, j, 0) for i, j in far), *((k, -1, 1) for k in alone)])
    # A k without a partner takes an instruction of two products for one.
    if len(pairs) > MOST_IN_VAIN * offsets.size / 2:
        return None
    first, second, near = (np.ascontiguousarray(column) for column in pairs.T)
    return (offsets[first], first, second, near == 1, distance), _segments_of(across - across[0])


def _matched(ks: Sequence[int], offsets: Array, distance: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return each k with the next one if that lies at a distance, and the k without such a one."""
    pairs: list[tuple[int, int]] = []
    left: list[int] = []
    i = 0
    while i < len(ks):
        together = i + 1 < len(ks) and offsets[ks[i + 1]] - offsets[ks[i]] == distance
        if together:
            pairs.append((ks[i], ks[i + 1]))
        else:
            left.append(ks[i])
        i += 1 + together
    return pairs, left


def _segments_of(offsets: Array) -> Array:
    """Return panel, lane, column and length of each run of adjacent offsets within a panel."""
    # -2 before the first offset, which is 0: it begins a run.
    begins = np.diff(offsets, prepend=-2) != 1
    begins |= offsets % PANEL_COLUMNS == 0
    columns = np.flatnonzero(begins)
    lengths = np.diff(columns, append=offsets.size)
    starts = offsets[columns]
    return np.stack([starts // PANEL_COLUMNS, starts % PANEL_COLUMNS, columns, lengths], axis=1)


def _write_batches(product: RawProduct, writer: Writer | _Copier) -> None:
    """Share the batch among threads; each packs and multiplies its matrices, a group at a time."""
    sizes = product.sizes
    results = sizes.rows * sizes.columns
    group = max(GROUP_RESULTS // max(results, 1), 1)
    group = -(-group // 16) * 16 if results % 16 else group  # the stage writes from multiples of 16
    left, right = _side(product.left), _side(product.right)
    pairs = _pairs(product)
    scales = (product.split, product.instructions, product.lsb, product.addend)

    def work(thread: int, start: int, stop: int) -> None:
        sums = empty((min(group, max(stop - start, 0)) * results,), np.float64)
        sink = writer.sink(thread)
        rooms = None if pairs is not None else (sizes.room_for_rows(product.group), sizes.room_for_panels())
        first = start
        while first < stop:
            if rooms is None:
                assert pairs is not None
                at = loops.write_paired_batches(left, right, *pairs, *scales, sums, group, first, stop, sink)
            else:
                at = loops.write_batches(left, right, *scales, *rooms, product.group, sums, group, first, stop, sink)
            first = _finish_group(writer, thread, sums, at, first, stop, group, results)

    align = 16 if results % 16 else 1
    over_ranges(work, product.batches, align, grain_of(results, sizes.depth))


def _finish_group(
    writer: Writer | _Copier,
    thread: int,
    sums: Array,
    at: int,
    first: int,
    stop: int,
    group: int,
    results: int,
) -> int:
    """Write the rest of the group whose sums a loop returned; return where the loop goes on.

    Args:
        writer: takes results.
        thread: index of the calling thread.
        sums: of the group.
        at: first result not written, as the loop returned it.
        first: where the loop began: batch element or row.
        stop: one past the last.
        group: batch elements or rows of a group.
        results: of each.
    """
    if at == stop * results:
        return stop
    # The group that holds result `at`: groups are counted from where the loop began.
    begin = first + (at // results - first) // group * group
    end = min(begin + group, stop)
    writer.write(thread, (sums,), at, end * results, begin * results)
    return end


def _write_rows(product: RawProduct, writer: Writer | _Copier) -> None:
    """Pack the right operand once; share the rows among threads, or k if rows are few."""
    sizes = product.sizes
    panels = sizes.room_for_panels()
    macs = sizes.rows * sizes.columns * sizes.depth
    # Rows are shared if each thread gets four blocks of them, or if there is too little work to share k.
    blocks = -(-sizes.rows // TILE_ROWS)
    if blocks >= 4 * thread_count() or macs < thread_count() * GRAIN_MACS:
        _share_rows(product, writer, panels)
    else:
        _share_depth(product, writer, panels)


def _share_rows(product: RawProduct, writer: Writer | _Copier, panels: Array) -> None:
    sizes = product.sizes
    corrections = np.zeros(sizes.panels * PANEL_COLUMNS, np.int64)
    left, right = _side(product.left), _side(product.right)

    def pack(thread: int, first: int, last: int) -> None:
        packing.pack_panels(right, 0, panels, first, last, 0, sizes.depth, corrections)

    over_ranges(pack, sizes.panels, 1, max(1, GRAIN_ELEMENTS // max(sizes.depth * PANEL_COLUMNS, 1)))
    # Left bytes are packed OFFSET too large: each sum is too large by OFFSET times the sum of its right column.
    ending = (corrections * loops.OFFSET, product.lsb, product.addend, sizes.columns)
    group = product.group

    def work(thread: int, start: int, stop: int) -> None:
        rows = min(group, max(stop - start, 0))
        packed, tiles = sizes.room_for_rows(rows), sizes.room_for_tiles(rows)
        out = empty((rows * sizes.columns,), np.float64)
        sink = writer.sink(thread)
        rest = (sizes.depth, panels, product.split, product.instructions, packed, tiles, ending, out, sink)
        first = start
        while first < stop:
            at = loops.write_row_groups(left, first, stop, group, *rest)
            first = _finish_group(writer, thread, out, at, first, stop, group, sizes.columns)

    over_ranges(work, sizes.rows, 16, grain_of(sizes.columns, sizes.depth))


def _share_depth(product: RawProduct, writer: Writer | _Copier, panels: Array) -> None:
    """Let each thread pack and multiply a part of k; integers add up to the same in any order."""
    sizes = product.sizes
    left, right = _side(product.left), _side(product.right)
    # Sums of all results for each thread, as each adds up another part of k.
    size = -(-sizes.rows // TILE_ROWS) * sizes.panels * loops.TILE_SUMS
    tiles = empty((thread_count() + 1, size), np.int64)
    tiles[...] = 0
    corrections = np.zeros((thread_count() + 1, sizes.panels * PANEL_COLUMNS), np.int64)
    # `add_products` finishes nothing here: what it would finish with is not read.
    unused = (corrections[0], product.lsb, product.addend, sizes.columns)
    out = empty((sizes.rows * sizes.columns,), np.float64)

    def work(thread: int, start: int, stop: int) -> None:
        packing.pack_panels(right, 0, panels, 0, sizes.panels, start, stop, corrections[thread])
        scales = (panels, product.split, product.instructions, sizes.room_for_rows(sizes.rows))
        loops.add_products(left, 0, 0, sizes.rows, start, stop, *scales, tiles[thread], 0, unused, out)

    macs_per_k = max(sizes.rows * sizes.columns, 1)
    over_ranges(work, sizes.depth, loops.CHUNK_DEPTH, max(1, GRAIN_MACS // macs_per_k))
    ending = (corrections.sum(axis=0) * loops.OFFSET, product.lsb, product.addend, sizes.columns)
    loops.finish_rows(tiles.sum(axis=0), 0, 0, sizes.rows, ending, out)
    writer.write(0, (out,), 0, sizes.rows * sizes.columns, 0)
