"""Exact products of 16-bit integers, two along k in one instruction, whose operands are read where they lie.

    pair       k and k' whose elements lie equally far apart in the right operand, whatever the column
    word       both elements side by side in 32 bits
    batch      one matrix with each of a batch: words of 32 matrices side by side, a line for each place that is read
    gathered   rows of the left operand side by side, words of the right one read at their offsets

Nothing is copied as patches, and a line whose words are 0 in all matrices is skipped: it changes no sum. Sums are
integers of 32 bits. Largest magnitudes prove that none leaves them in any order, or how many pairs are added up before
they join float64 totals, which the planner has proved exact.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import frozen, is_lasting, lasting
from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges, part
from emu.backends.numba.vector.batched_products import CHUNK_ROWS, GRAIN_ELEMENTS, GRAIN_MACS
from emu.backends.numba.vector.calling import call_at
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.integer_products import INT32_MAX
from emu.backends.numba.vector.lanes import HALF_BITS, LANES, LOWER_HALF, address
from emu.backends.numba.vector.ordered_tiles import (
    PAIRS,
    ROWS,
    add_gathered,
    add_listed,
    finish_in_order,
    move_sums,
)
from emu.backends.numba.vector.packing import raws_of
from emu.backends.numba.vector.transposed_products import CHUNK_DEPTH, MOST_BLOCKS
from emu.backends.numba.vector.transposing import are_apart, spread, transpose, transpose_pairs
from emu.backends.numba.vector.writing import Sink

Array = NDArray[Any]
#: Offsets from the first one that are tried as distances of pairs, and offsets among which they are looked for.
MOST_DISTANCES, FIRST_OFFSETS = 64, 1024
#: Fewest pairs between two moves of sums to float64 totals; with fewer these would take as long as the products.
FEWEST_PAIRS = bounded(32, 1, INT32_MAX, "a sum of 32 bits takes at least one pair")
#: Results that pass the output stage together: enough to be worth its call, few enough for a second-level cache.
POURED = 1 << 13
#: How much more than is needed lanes without a row may compute: copying and packing patches takes longer.
SAVED = 8
#: Fewest products of a sum, and most lanes for each matrix of a batch: the measured limits of what is faster so.
LEAST_DEPTH, MOST_LANES = 24, 1.35
#: The adders of whole lines and of their first halves, and the rows of their tiles.
WIDE, NARROW = PAIRS
HEIGHT = ROWS[WIDE]
_NO_SINK = Sink()


class Pairs(NamedTuple):
    """Pairs along k.

    Attributes:
        first: int64, the k of each pair, or a k without a partner.
        second: int64, the other k of each pair, or -1.
        distance: from the first element of a pair to the second.
        offsets: int64, of the first element of each pair.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distance: int
    offsets: NDArray[np.int64]


class _Offsets:
    """Offsets as a key of a cache: equal if their numbers are."""

    def __init__(self, array: NDArray[np.int64]) -> None:
        # a key must stay as it is; those of the engine do
        self.array = array if is_lasting(array) else frozen(array.copy())
        # few numbers tell most apart; `==` compares all
        self._hash = hash((array.size, *array[[0, array.size // 3, array.size // 2, -1]].tolist()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Offsets):
            return False
        return self.array is other.array or np.array_equal(self.array, other.array)


def paired(offsets: NDArray[np.int64]) -> Pairs:
    """Return pairs of k whose offsets differ by one distance, the one at which the fewest k stay alone."""
    return _paired(_Offsets(offsets))


@lru_cache(maxsize=32)
def _paired(key: _Offsets) -> Pairs:
    head = key.array[:FIRST_OFFSETS]
    # A distance that is tried leads from the least offset to another one.
    distances = np.unique(head - head.min())
    fewest, best = _pairs_at(head, 1).first.size, 1
    for distance in distances[distances > 0][:MOST_DISTANCES].tolist():
        # No distance makes fewer pairs.
        if fewest == (head.size + 1) // 2:
            break
        count = _pairs_at(head, distance).first.size
        if count < fewest:
            fewest, best = count, distance
    pairs = _pairs_at(key.array, best)
    return Pairs(lasting(pairs.first), lasting(pairs.second), pairs.distance, lasting(pairs.offsets))


def _pairs_at(offsets: NDArray[np.int64], distance: int) -> Pairs:
    """Return pairs: of each chain of offsets at a distance from one to the next, every second one with the next."""
    # Sorted by residue, then by size: offsets of one chain follow each other.
    order = np.lexsort((offsets, offsets % distance))
    placed, index = offsets[order], np.arange(offsets.size)
    follows = np.diff(placed, prepend=placed[0]) == distance
    # Where the chain of each offset begins. Links are counted from there, and the even ones take the next as partner.
    begins = np.maximum.accumulate(np.where(follows, 0, index))
    at = np.flatnonzero((index - begins) % 2 == 0)
    after = np.minimum(at + 1, offsets.size - 1)
    first, second = order[at], np.where(follows[after] & (after > at), order[after], -1)
    ascending = np.argsort(first)
    return Pairs(first[ascending], second[ascending], distance, offsets[first[ascending]])


@kernel
def _join_factors(
    data: Any, rows: Any, columns: Any, scale: float, first: Any, second: Any, words: Any, low: int, bits: int
) -> Any:
    """Write the words of a left matrix, (M, pairs).

    Returns:
        The largest sum of magnitudes of a row, and a bound on all magnitudes: at most twice the largest, 1 of zeros.
    """
    largest, bound = np.int64(0), np.int32(0)
    for i in range(rows.size):
        total = np.int64(0)
        for p in range(first.size):
            a = np.int32(data[rows[i] + columns[first[p]]] * scale)
            b = np.int32(data[rows[i] + columns[second[p]]] * scale) if second[p] >= 0 else np.int32(0)
            # The lower half keeps a's two's complement; b's bits begin at the upper half.
            words[i, p] = np.int32(a & low) | np.int32(b << bits)
            total += abs(np.int64(a)) + abs(np.int64(b))
            bound |= (a ^ (a >> 31)) | (b ^ (b >> 31))
        largest = max(largest, total)
    return largest, np.int64(bound) + 1


@kernel
def _join_elements(
    data: Any, scale: float, distance: int, words: Any, low: int, bits: int, start: int, stop: int
) -> Any:
    """Write elements start..stop as words with the elements `distance` on; return a bound on their magnitudes."""
    bound = np.int32(0)
    top = max(min(stop, data.size - distance), start)
    source, other, target = data[start:top], data[start + distance : top + distance], words[start:top]
    for i in range(source.size):
        a, b = np.int32(source[i] * scale), np.int32(other[i] * scale)
        bound |= a ^ (a >> 31)
        target[i] = (a & low) | (b << bits)
    for i in range(top, stop):
        a = np.int32(data[i] * scale)
        bound |= a ^ (a >> 31)
        words[i] = a & low
    return np.int64(bound) + 1


# ---- one matrix with each of a batch --------------------------------------------------------------------------------


def batch_applies(right: Gathered) -> bool:
    """Return whether sums are long enough, and matrices of a batch fill lanes well enough, to be worth their lines."""
    lanes = -(-right.batches // PANEL_COLUMNS) * PANEL_COLUMNS
    return right.rows.size >= LEAST_DEPTH and lanes <= MOST_LANES * right.batches


@lru_cache(maxsize=32)
def _blocks_read(offsets: _Offsets, columns: _Offsets) -> NDArray[np.int64]:
    """Return the blocks of 16 lines of which at least one line is read."""
    blocks = np.zeros((int(offsets.array.max()) + int(columns.array.max())) // LANES + 1, bool)
    for offset in offsets.array:
        blocks[(offset + columns.array) // LANES] = True
    return lasting(np.flatnonzero(blocks))


@kernel
def _make_lines(
    data: Any,
    stride: int,
    scale: float,
    distance: int,
    blocks: Any,
    lines: Any,
    kept: Any,
    bounds: Any,
    low: int,
    bits: int,
    start: int,
    stop: int,
    batches: int,
) -> None:
    """Write lines of words, (panels, S, 32), and which are not 0 in all matrices, (panels, S).

    Args:
        data: float32, of all matrices.
        stride: from one matrix to the next.
        scale: what makes integers.
        distance: from the first element of a pair to the second.
        blocks: which 16 lines are written.
        lines: int32.
        kept: uint8.
        bounds: int32, (panels, blocks, 16): the or of magnitudes.
        low: the lower half of a word.
        bits: of a half.
        start: first item, a block of a panel.
        stop: one past the last.
        batches: matrices.
    """
    for item in range(start, stop):
        panel, index = item // blocks.size, item % blocks.size
        first, base = blocks[index] * LANES, panel * PANEL_COLUMNS
        count = min(LANES, lines.shape[1] - first)
        bound = bounds[panel, index]
        # both squares must lie in the data; what belongs to the next matrix meets factors that are 0
        is_whole = count == LANES and (batches - 1) * stride + first + distance + LANES <= data.size
        for i in range(count):
            kept[panel, first + i] = 0
        for half in range(0, PANEL_COLUMNS, LANES):
            top = min(base + half, batches - 1)  # lanes beyond the last repeat it
            if is_whole:
                place = top * stride + first
                target = address(lines) + 4 * ((panel * lines.shape[1] + first) * PANEL_COLUMNS + half)
                source = address(data) + 4 * place
                matrices = min(LANES, batches - top)
                seen = transpose_pairs(
                    source, source + 4 * distance, stride, matrices, scale, target, PANEL_COLUMNS, address(bound)
                )
                for i in range(LANES):
                    kept[panel, first + i] |= seen >> i & 1
            else:
                for i in range(count):
                    for lane in range(LANES):
                        place = min(top + lane, batches - 1) * stride + first + i
                        a, b = np.int32(data[place] * scale), np.int32(0)
                        if place + distance < data.size:
                            b = np.int32(data[place + distance] * scale)
                        bound[lane] |= (a ^ (a >> 31)) | (b ^ (b >> 31))
                        word = np.int32(a & low) | np.int32(b << bits)
                        lines[panel, first + i, half + lane] = word
                        kept[panel, first + i] |= word != 0


@kernel
def _write_batch(
    lefts: Any,
    rights: Any,
    starts: Any,
    sums: Any,
    results: Any,
    written: Any,
    left: Any,
    lines: Any,
    kept: Any,
    offsets: Any,
    columns: Any,
    lsb: float,
    batches: int,
    out: Any,
    sink: Any,
    start: int,
    stop: int,
) -> bool:
    """Write the products of one matrix with each of a batch; return whether the sink took all.

    Args:
        lefts: room for a place of each pair.
        rights: the same.
        starts: int32, the first sums of each row, M in whole tiles times 32.
        sums: room for those of a tile.
        results: room, (rows, columns, 32), float32 or float64.
        written: room for what the sink writes of as many, of the dtype of `out`.
        left: words, in tiles of rows: (tiles, pairs, 8).
        lines: words, (panels, S, 32).
        kept: which lines are not 0.
        offsets: of each pair.
        columns: offsets.
        lsb: the value of 1 in the sums.
        batches: matrices.
        out: sums, or what the sink makes of them, (B, M, N).
        sink: the output stage, or one that takes nothing.
        start: first item, some columns of a panel: as many as `results` holds.
        stop: one past the last.
    """
    together = results.shape[1]
    count, width = out.shape[1], out.shape[2]
    groups, apart = (width + together - 1) // together, count * width
    entry, parameters, report = sink[0], sink[4], sink[5]
    for item in range(start, stop):
        panel, begin = item // groups, item % groups * together
        base, here = panel * PANEL_COLUMNS, min(together, width - begin)
        lanes = min(PANEL_COLUMNS, batches - base)
        for top in range(0, count, CHUNK_ROWS):
            chunk = min(CHUNK_ROWS, count - top)
            for j in range(here):
                listed = 0
                for p in range(offsets.size):
                    line = offsets[p] + columns[begin + j]
                    lefts[listed], rights[listed] = p * HEIGHT, line * PANEL_COLUMNS
                    # The entry is overwritten by the next one if its line is 0 in all matrices.
                    listed += kept[panel, line]
                for tile in range(0, chunk, HEIGHT):
                    # Sums of pairs have no limits and no marks: 0.0 and any address stand for them.
                    add_listed(
                        WIDE,
                        address(left) + 4 * (top + tile) * offsets.size,
                        address(lefts),
                        address(lines) + 4 * panel * lines.shape[1] * PANEL_COLUMNS,
                        address(rights),
                        listed,
                        0.0,
                        0.0,
                        address(starts) + 4 * (top + tile) * PANEL_COLUMNS,
                        address(sums),
                        address(sums),
                    )
                    finish_in_order(
                        WIDE,
                        address(sums),
                        address(sums),
                        0,
                        lsb,
                        results.dtype,
                        address(results) + results.itemsize * (tile * here + j) * PANEL_COLUMNS,
                        here * PANEL_COLUMNS,
                        address(sums),
                        min(HEIGHT, chunk - tile),
                        PANEL_COLUMNS,
                    )
            source = address(results)
            if entry:
                size = chunk * here * PANEL_COLUMNS
                three = (source, source, source, results.itemsize, results.itemsize, results.itemsize)
                # Results of a group are contiguous: results of lanes without a matrix would be counted, so that panels
                # must be whole.
                if call_at(entry, (*three, address(written), 0, size, 0, parameters, report)) < size:
                    return False
                source = address(written)
            for i in range(chunk):
                for j in range(0, here, LANES):
                    to = address(out) + out.itemsize * ((base * count + top + i) * width + begin + j)
                    square = source + out.itemsize * (i * here + j) * PANEL_COLUMNS
                    spread(out.dtype, square, to, apart, lanes, min(LANES, here - j))
    return True


class BatchProduct:
    """A product of one matrix with each of a batch whose sums 32 bits hold.

    Attributes:
        dtype: of the sums: float32 or float64.
        shape: (B, M, N).
        bound: on the magnitudes of all sums, in any order.
    """

    def __init__(
        self,
        left: Gathered,
        right: Gathered,
        scales: tuple[float, float],
        lsb: float,
        first: Array | None,
        dtype: np.dtype[Any],
    ) -> None:
        """Make words of both operands.

        Args:
            left: float32, (1, M, K).
            right: float32, B matrices (K, N), each a part of its own of the data.
            scales: what makes integers of both.
            lsb: the value of 1 in the sums.
            first: integers that are added, (M or 1, 1); None for none.
            dtype: of the sums: float32 if that is known to hold them, else float64.
        """
        count, self._pairs = left.rows.size, paired(right.rows)
        self.shape, self._lsb, self._columns = (right.batches, count, right.columns.size), lsb, right.columns
        tiles, place = -(-count // HEIGHT), (left.rows, left.columns, scales[0])
        words = np.zeros((tiles * HEIGHT, self._pairs.first.size), np.int32)  # rows beyond the last are 0
        row_sum, _ = _join_factors(
            only_read(left.data), *place, self._pairs.first, self._pairs.second, words, LOWER_HALF, HALF_BITS
        )
        self._left = np.ascontiguousarray(words.reshape(tiles, HEIGHT, -1).transpose(0, 2, 1))
        largest_first = 0 if first is None else int(np.abs(first).max())
        # largest magnitudes are known when the lines are made; before that, a row's sum alone may show too much
        right_bound = self._make_lines(right, scales[1])
        # `right_bound` is an or of x and -x - 1: the magnitude of -x is at most one more.
        self.bound = int(row_sum) * (right_bound + 1) + largest_first
        self.dtype = dtype
        self._starts = np.zeros((tiles * HEIGHT, PANEL_COLUMNS), np.int32)
        if first is not None and self.fits:
            self._starts[:count] = first

    @property
    def fits(self) -> bool:
        """Whether 32 bits hold all sums, in any order."""
        return self.bound <= INT32_MAX

    def _make_lines(self, right: Gathered, scale: float) -> int:
        size = right.reach()
        assert size is not None
        panels, blocks = (
            -(-right.batches // PANEL_COLUMNS),
            _blocks_read(*map(_Offsets, (self._pairs.offsets, right.columns))),
        )
        self._lines, self._kept = empty((panels, size, PANEL_COLUMNS), np.int32), empty((panels, size), np.uint8)
        bounds = np.zeros((panels, blocks.size, LANES), np.int32)
        given = (only_read(right.data), right.batch_stride, scale, self._pairs.distance, blocks)
        written = (self._lines, self._kept, bounds, LOWER_HALF, HALF_BITS)

        def work(_: int, start: int, stop: int) -> None:
            _make_lines(*given, *written, start, stop, right.batches)

        over_ranges(work, panels * blocks.size, 1, GRAIN_ELEMENTS // (LANES * PANEL_COLUMNS))
        return int(np.bitwise_or.reduce(bounds, axis=None))

    def write(self, out: Array, sink_of: Any = None, first: int = 0) -> bool:
        """Write the sums, or what an output stage makes of them; return False if it leaves some to plain loops.

        Args:
            out: (matrices, M, N): of `dtype`, or carriers that the stage writes.
            sink_of: returns where a thread delivers results; None writes the sums themselves. A sink takes whole panels
                of 32 matrices alone, as it would count the results of lanes without a matrix.
            first: panel of which `out` has the first matrix.
        """
        batches, count, width = out.shape
        pairs, panels = self._pairs.first.size, -(-batches // PANEL_COLUMNS)
        assert sink_of is None or batches % PANEL_COLUMNS == 0
        rows = min(count, CHUNK_ROWS)
        # Whole blocks of 16 columns, as many as pass the output stage together.
        together = LANES * max(min(-(-width // LANES), POURED // (rows * LANES * PANEL_COLUMNS)), 1)
        lines, kept = self._lines[first : first + panels], self._kept[first : first + panels]
        took: list[bool] = []

        def work(thread: int, start: int, stop: int) -> None:
            places, sums = np.empty((2, pairs + 1), np.int64), np.empty(HEIGHT * PANEL_COLUMNS, np.int32)
            results = empty((rows, together, PANEL_COLUMNS), self.dtype)
            written = empty((results.size if sink_of is not None else 1,), out.dtype)
            room = (*places, self._starts, sums, results, written)
            given = (self._left, lines, kept, self._pairs.offsets, self._columns, self._lsb, batches, out)
            sink = _NO_SINK if sink_of is None else sink_of(thread)
            took.append(_write_batch(*room, *given, sink, start, stop))

        grain = max(1, GRAIN_MACS // max(count * pairs * together * PANEL_COLUMNS, 1))
        over_ranges(work, panels * -(-width // together), 1, grain)
        return all(took)


# ---- rows side by side ----------------------------------------------------------------------------------------------


def gathered_applies(left: Gathered, right: Gathered) -> bool:
    """Return whether sums are long, and rows of one left matrix fill lanes well enough."""
    rows, columns = left.rows.size, right.columns.size
    return right.rows.size >= columns and -(-rows // LANES) * LANES <= SAVED * rows


@part
def _pack(data: Any, rows: Any, columns: Any, lanes: int, lines: Any) -> None:
    """Write words of 1..32 rows beside each other: a line for each column. The last is repeated."""
    apart = (rows[rows.size - 1] - rows[0]) // (rows.size - 1) if rows.size > 1 else 0
    is_even = are_apart(rows, apart)
    for first in range(0, columns.size, LANES):
        ks = columns[first : first + LANES]
        in_squares = is_even and ks.size == LANES and are_apart(ks, 1)
        for half in range(0, lanes, LANES):
            whole = in_squares and half + LANES <= rows.size
            if whole:
                source = address(data) + 4 * (rows[half] + ks[0])
                target = address(lines) + 4 * (first * PANEL_COLUMNS + half)
                transpose(lines.dtype, source, apart, target, PANEL_COLUMNS)
            else:
                for n in range(LANES):
                    row = rows[min(half + n, rows.size - 1)]
                    for k in range(ks.size):
                        lines[first + k, half + n] = data[row + ks[k]]


@lru_cache(maxsize=4)
def _gathered_loop(adder: str) -> Any:
    """Return the compiled loop of an adder of pairs."""
    height, narrow = ROWS[adder], adder == NARROW
    # Narrow pairs: up to 16 rows fill half a line, and a tile has twice as many columns.
    lanes_at_once = LANES if narrow else PANEL_COLUMNS

    @kernel
    def run(
        lines: Any,
        sums: Any,
        totals: Any,
        places: Any,
        factors: Any,
        right_rows: Any,
        right_columns: Any,
        data: Any,
        left_rows: Any,
        left_columns: Any,
        chunk: int,
        out: Any,
        start: int,
        stop: int,
    ) -> None:
        depth, width = right_rows.size, right_columns.size
        blocks, item = (width + LANES - 1) // LANES, start
        while item < stop:
            panel, block = item // blocks, item % blocks
            first, together = panel * lanes_at_once, min(min(blocks - block, stop - item), MOST_BLOCKS)
            lanes = min(lanes_at_once, out.shape[0] - first)
            for i in range(together * LANES):
                places[i] = right_columns[min(block * LANES + i, width - 1)]  # those beyond the last fill a tile
            for k in range(0, depth, CHUNK_DEPTH):
                count = min(CHUNK_DEPTH, depth - k)
                _pack(data, left_rows[first : first + lanes], left_columns[k : k + count], lanes_at_once, lines)
                for i in range(0, together * LANES, height):
                    # Bytes of int32 sums; those of the float64 totals are twice as far.
                    tile = 4 * i * PANEL_COLUMNS
                    for part_k in range(0, count, chunk):
                        add_gathered(
                            adder,
                            address(factors),
                            address(places) + 8 * i,
                            address(right_rows) + 8 * (k + part_k),
                            address(lines) + 4 * part_k * PANEL_COLUMNS,
                            min(chunk, count - part_k),
                            0.0,
                            0.0,
                            address(sums) + tile,
                            address(sums),
                        )
                        move_sums(address(sums) + tile, address(totals) + 2 * tile, height, k + part_k == 0)
            for i in range(0, together * LANES, LANES):
                column = block * LANES + i
                to, wide = address(out) + 8 * (first * width + column), min(LANES, width - column)
                spread(out.dtype, address(totals) + 8 * i * PANEL_COLUMNS, to, width, lanes, wide)
            item += together

    return run


def gathered_sums(left: Gathered, right: Gathered, scales: tuple[float, float], lsb: float) -> Array | None:
    """Return the sums of products of a matrix with one that is read where it lies, float64 (1, M, N).

    None if 32 bits hold too few of them.

    Args:
        left: float32, (1, M, K).
        right: float32, (1, K, N).
        scales: what makes integers of both.
        lsb: the value of 1 in the sums.
    """
    pairs = paired(right.rows)
    ours, left_bound = _words_of_rows(left, pairs, scales[0])
    words, right_bound = _words_of_elements(right.data, scales[1], pairs.distance)
    # A pair adds two products: after `chunk` pairs, sums join the float64 totals.
    chunk = min(INT32_MAX // (2 * left_bound * right_bound), CHUNK_DEPTH)
    if chunk < min(FEWEST_PAIRS, pairs.first.size):
        return None
    rows, width = left.rows.size, right.columns.size
    adder = NARROW if rows <= LANES else WIDE
    loop, sums = _gathered_loop(adder), np.empty((rows, width))
    given = (words, pairs.offsets, right.columns, ours.data, ours.rows, ours.columns, chunk, sums)
    most = min(MOST_BLOCKS, -(-width // LANES)) * LANES

    def work(_: int, start: int, stop: int) -> None:
        lines, totals = empty((CHUNK_DEPTH, PANEL_COLUMNS), np.int32), empty((most, PANEL_COLUMNS), np.float64)
        its_sums = np.zeros((most, PANEL_COLUMNS), np.int32)  # and 0 again behind each move to totals
        loop(lines, its_sums, totals, np.empty(most, np.int64), *given, start, stop)

    grain = max(1, GRAIN_MACS // max(pairs.first.size * LANES * PANEL_COLUMNS, 1))
    over_ranges(work, -(-rows // (PANEL_COLUMNS if rows > LANES else LANES)) * -(-width // LANES), 1, grain)
    sums *= lsb
    return sums[None]


@lru_cache(maxsize=32)
def _as_words(
    rows: _Offsets, columns: _Offsets, first: _Offsets, second: _Offsets
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the offsets of rows and pairs in data taken as words of two elements; None if pairs are no such words."""
    if (second.array < 0).any():
        return None
    begins, ends = columns.array[first.array], columns.array[second.array]
    # A pair must be two neighbours that begin at an even element, as a word of int32 does.
    if (ends - begins != 1).any() or (begins % 2).any() or (rows.array % 2).any():
        return None
    return lasting(rows.array // 2), lasting(begins // 2)


def _words_of_rows(left: Gathered, pairs: Pairs, scale: float) -> tuple[Gathered, int]:
    """Return a left matrix as words, (1, M, pairs), and a bound on its magnitudes."""
    data = only_read(left.data)
    offsets = _as_words(*map(_Offsets, (left.rows, left.columns, pairs.first, pairs.second)))
    if offsets is not None:
        raws, bound = raws_of(data, scale, np.dtype(np.int16), data.size % 2)  # whole words
        return Gathered(raws.view(np.int32), 1, 0, *offsets), bound
    words = empty((1, left.rows.size, pairs.first.size), np.int32)
    place, its_pairs = (data, left.rows, left.columns, scale), (pairs.first, pairs.second)
    return Gathered.of(words), int(_join_factors(*place, *its_pairs, words[0], LOWER_HALF, HALF_BITS)[1])


def _words_of_elements(data: Array, scale: float, distance: int) -> tuple[Array, int]:
    """Return each element as a word with the element `distance` on, and a bound on all magnitudes.

    Args:
        data: float32.
        scale: what makes integers of it.
        distance: positive.
    """
    words, source, bounds = empty((data.size,), np.int32), only_read(data), [1]

    def work(_: int, start: int, stop: int) -> None:
        bounds.append(int(_join_elements(source, scale, distance, words, LOWER_HALF, HALF_BITS, start, stop)))

    over_ranges(work, data.size, 1, GRAIN_ELEMENTS)
    return words, max(bounds)
