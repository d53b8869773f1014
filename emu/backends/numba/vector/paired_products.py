"""Exact products of one matrix of 16-bit integers with each of a batch, whose operands are read where they lie.

Words of two elements (`pairing.py`) of 32 matrices lie side by side: a line for each place that is read. Nothing is
copied as patches, and a line whose words are 0 in all matrices is skipped: it changes no sum. Sums are integers of 32
bits, and largest magnitudes prove that none leaves them, in any order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import lasting
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.vector.batched_products import CHUNK_ROWS, GRAIN_ELEMENTS
from emu.backends.numba.vector.calling import call_at
from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.integer_products import INT32_MAX
from emu.backends.numba.vector.lanes import HALF_BITS, LANES, LOWER_HALF, address
from emu.backends.numba.vector.ordered_tiles import PAIRS, ROWS, add_listed, finish_in_order
from emu.backends.numba.vector.pairing import GRAIN_PAIRS, Offsets, join_factors, paired
from emu.backends.numba.vector.transposing import spread, transpose_pairs
from emu.backends.numba.vector.writing import Sink

Array = NDArray[Any]
#: Results that pass the output stage together: enough to be worth its call, few enough for a second-level cache.
POURED = 1 << 13
#: Fewest products of a sum, and most lanes for each matrix of a batch: the measured limits of what is faster so.
LEAST_DEPTH, MOST_LANES = 24, 1.35
#: The adder of whole lines, and the rows of its tiles.
WIDE = PAIRS[0]
HEIGHT = ROWS[WIDE]
_NO_SINK = Sink()


def batch_applies(right: Gathered) -> bool:
    """Return whether sums are long enough, and matrices of a batch fill lanes well enough, to be worth their lines."""
    lanes = -(-right.batches // PANEL_COLUMNS) * PANEL_COLUMNS
    return right.rows.size >= LEAST_DEPTH and lanes <= MOST_LANES * right.batches


@lru_cache(maxsize=32)
def _blocks_read(offsets: Offsets, columns: Offsets) -> NDArray[np.int64]:
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
        row_sum, _ = join_factors(
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
            _blocks_read(*map(Offsets, (self._pairs.offsets, right.columns))),
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

        grain = max(1, GRAIN_PAIRS // max(count * pairs * together * PANEL_COLUMNS, 1))
        over_ranges(work, panels * -(-width // together), 1, grain)
        return all(took)
