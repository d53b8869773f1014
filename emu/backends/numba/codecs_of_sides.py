"""Gradient codecs of two steps with means: whole blocks of rows in vector code, the last rows of a column in loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends.codecs import AT_GIVEN, AT_MEAN, CODE_WORD_BITS
from emu.backends.memory import ALIGNMENT
from emu.backends.numba.column_sums import one_nan, quotient
from emu.backends.numba.compiling import kernel
from emu.backends.numba.vector.code_sides import SUMS, add_sides, decode_and_add_sides, decode_sides, settle_sides
from emu.backends.numba.vector.lanes import LANES, address
from emu.backends.reference.column_sums import LANES as SUM_LANES


@kernel
def bit_at(words: Any, i: int) -> Any:
    """Return bit `i` of words, as a boolean."""
    return (words[i // CODE_WORD_BITS] >> np.uint32(i % CODE_WORD_BITS)) & np.uint32(1) != 0


@kernel
def row_address(array: Any, row: int) -> int:
    """Return the address of a row of a matrix."""
    return address(array) + array.itemsize * array.shape[1] * row


@kernel
def _add_column(columns: Any, column: int, threshold: Any, values: Any, lanes: Any) -> int:
    """Write V and codes of a column, and its sums in lanes: all, below, above; return how many values lie above."""
    gradients, residual, words = columns.gradients[column], columns.residual[column], columns.words[column]
    blocks = values.size // SUM_LANES
    above = add_sides(
        values.dtype,
        address(gradients),
        address(residual),
        address(values),
        address(words),
        threshold,
        blocks,
        address(lanes),
    )
    # The lanes hold the sums of whole blocks; rows that are left go on in lane 0, 1 ... as rows of one more block.
    first, zero = blocks * SUM_LANES, values.dtype.type(0)
    # The rows that are left begin a word, as blocks of 64 rows are whole words of 32.
    words[first // CODE_WORD_BITS :] = 0
    for i in range(first, values.size):
        v = gradients[i] + residual[i]
        values[i], is_above = v, v >= threshold
        words[i // CODE_WORD_BITS] |= np.uint32(is_above) << np.uint32(i % CODE_WORD_BITS)
        lanes[0, i - first] += v
        lanes[1, i - first] += zero if is_above else v
        lanes[2, i - first] += v if is_above else zero
        above += is_above
    return above


@kernel
def encode_sides_range(columns: Any, encoding: Any, start: int, stop: int) -> None:
    """Encode columns `start`..`stop` by a codec of two steps with means."""
    rows, last = columns.gradients.shape[1], len(columns.gradients) - 1
    number = columns.gradients.dtype.type
    quiet, level_quiet = number(np.nan), np.float32(np.nan)
    room = np.empty(rows + ALIGNMENT, columns.gradients.dtype)
    # Aligned, so that no vector reaches into two cache lines.
    values = room[-address(room) % ALIGNMENT // room.itemsize :][:rows]
    lanes = np.empty((SUMS, SUM_LANES), columns.gradients.dtype)
    for column in range(start, stop):
        used, words = columns.levels[column], columns.words[column]
        threshold = columns.limits[column] if encoding.threshold == AT_GIVEN else number(0)
        above = _add_column(columns, column, threshold, values, lanes)
        # The mean is known only now: sides of it take a second pass.
        mean = quotient(lanes[0], rows)
        columns.means[column] = one_nan(mean, quiet)
        if encoding.threshold == AT_MEAN:
            above = _add_column(columns, column, mean, values, lanes)
        if encoding.computes_levels:
            used[0] = one_nan(np.float32(quotient(lanes[1], rows - above)), level_quiet)
            used[1] = one_nan(np.float32(quotient(lanes[2], above)), level_quiet)
        if encoding.settles:
            low, high = number(used[0]), number(used[1])
            residual, chunks = columns.residual[column], rows // LANES
            # No column follows the last one: it stands for its own successor.
            ahead = row_address(columns.gradients, min(column + 1, last))
            settle_sides(values.dtype, address(values), address(words), low, high, address(residual), chunks, ahead)
            for i in range(chunks * LANES, rows):
                residual[i] = one_nan(values[i] - (high if bit_at(words, i) else low), quiet)


@kernel
def decode_sides_range(words: Any, levels: Any, out: Any, past_caches: bool, start: int, stop: int) -> None:
    """Write what the codes of columns stand for."""
    rows = out.shape[1]
    chunks = rows // LANES
    for column in range(start, stop):
        low, high, bits = levels[column, 0], levels[column, 1], words[column]
        if past_caches:  # a literal in each call: the vector code is emitted for both
            decode_sides(address(bits), low, high, row_address(out, column), chunks, True)
        else:
            decode_sides(address(bits), low, high, row_address(out, column), chunks, False)
        for i in range(chunks * LANES, rows):
            out[column, i] = high if bit_at(bits, i) else low


@kernel
def decode_and_add_sides_range(words: Any, levels: Any, total: Any, start: int, stop: int) -> None:
    """Add what the codes of columns stand for to sums."""
    number, rows = total.dtype.type, total.shape[1]
    chunks, quiet = rows // LANES, number(np.nan)
    for column in range(start, stop):
        low, high, bits = number(levels[column, 0]), number(levels[column, 1]), words[column]
        decode_and_add_sides(total.dtype, address(bits), low, high, row_address(total, column), chunks)
        for i in range(chunks * LANES, rows):
            total[column, i] = one_nan(total[column, i] + (high if bit_at(bits, i) else low), quiet)
