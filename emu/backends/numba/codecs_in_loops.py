"""Gradient codecs as loops over columns: each codec of the definition, on any processor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.codecs import (
    AT_GIVEN,
    AT_MEAN,
    BYTE_BITS,
    CODE_WORD_BITS,
    ENDS,
    MIDDLES,
    ColumnsCode,
)
from emu.backends.numba.column_sums import one_nan, quotient
from emu.backends.numba.compiling import kernel, part
from emu.backends.reference.column_sums import LANES

Array = NDArray[Any]
#: Codes that are packed into words together. They have at most 8 bits each, 32 in all; fewer than 32 bits wait for the
#: next word when they come, so that 64 bits hold both.
TOGETHER = 4


class Encoding(NamedTuple):
    """How columns become codes, as the loops take it.

    Attributes:
        steps, bits, threshold, deviations, outliers, low, high: those of `ColumnsCode`.
        kind: `levels` of `ColumnsCode`.
        computes_levels: whether levels are computed, or given.
        leaves_some_out: whether some values decide no level.
        deviates: whether standard deviations are needed.
        settles: whether the residual is written.
    """

    steps: int
    bits: int
    threshold: int
    kind: int
    deviations: float
    outliers: float
    low: float
    high: float
    computes_levels: bool
    leaves_some_out: bool
    deviates: bool
    settles: bool

    @classmethod
    def of(cls, code: ColumnsCode, *, computes_levels: bool, drawn: bool, settles: bool) -> Encoding:
        """Return the encoding of a codec; `drawn`: whether only values that were drawn decide levels."""
        # More than two steps need a range, made of deviations; levels of middles that are given are its ends.
        ranges = code.steps > 2 and not code.has_range and (computes_levels or code.levels != MIDDLES)
        deviates = ranges or (computes_levels and code.outliers > 0)
        leaves_some_out = computes_levels and (drawn or code.outliers > 0)
        # Fields come in the order of `ColumnsCode`, with the bits of a code, which it computes, after `steps`.
        return cls(*code[:1], code.bits, *code[1:], computes_levels, leaves_some_out, deviates, settles)


class Columns(NamedTuple):
    """Columns, what decides their codes, and what is written for them: a row, or a number, for each column.

    Attributes:
        gradients: (columns, rows).
        residual: of the same dtype and shape; what the codes lose is written into it.
        limits: (columns,): thresholds that are given.
        counted: whether a value may decide levels, (columns or 1, rows); (1, 0): all may.
        levels: float32, those in use: given or written.
        means: (columns,), written.
        words: uint32, the codes, written.
        no_codes: empty, of the dtype of codes.
    """

    gradients: Array
    residual: Array
    limits: Array
    counted: Array
    levels: Array
    means: Array
    words: Array
    no_codes: Array


class Received(NamedTuple):
    """Columns as codes that are decoded.

    Attributes:
        words: uint32, each a row.
        levels: float32, each a row: a level for each code, or both ends of the range.
        steps: number of steps.
        bits: bits of a code.
        are_ends: whether levels are both ends of the range.
        no_codes: empty, of the dtype of codes.
    """

    words: Array
    levels: Array
    steps: int
    bits: int
    are_ends: bool
    no_codes: Array


class Room(NamedTuple):
    """Room for one column.

    Attributes:
        values: gradients plus residual.
        codes: uint8 or uint16, filled up with 0 to whole groups.
        decides: whether each value decides levels.
        lanes: sums of the values of each code, (codes, 64).
        counts: how many values have each code.
        table: what each code stands for, float32; of middles nothing.
        ends: both ends of the range of more than two steps, float32.
    """

    values: Array
    codes: Array
    decides: Array
    lanes: Array
    counts: Array
    table: Array
    ends: Array


@part
def _mean(values: Any, lanes: Any) -> Any:
    # The order of `reference/column_sums.py`: lane j adds rows j, j + 64, ...; the inner loop vectorises.
    lanes[:] = 0
    whole = values.size // LANES * LANES
    for first in range(0, whole, LANES):
        for j in range(LANES):
            lanes[j] += values[first + j]
    for i in range(whole, values.size):
        lanes[i - whole] += values[i]
    return quotient(lanes, values.size)


@part
def _deviation(values: Any, mean: Any, lanes: Any) -> Any:
    lanes[:] = 0
    whole = values.size // LANES * LANES
    for first in range(0, whole, LANES):
        for j in range(LANES):
            centred = values[first + j] - mean
            lanes[j] += centred * centred
    for i in range(whole, values.size):
        centred = values[i] - mean
        lanes[i - whole] += centred * centred
    return np.sqrt(quotient(lanes, values.size))


@kernel
def _write_range(mean: Any, reach: Any, encoding: Any, ends: Any) -> None:
    """Write both ends of the range of steps."""
    quiet = np.float32(np.nan)
    if encoding.low < encoding.high:
        ends[0], ends[1] = np.float32(encoding.low), np.float32(encoding.high)
    else:
        ends[0] = one_nan(np.float32(mean - reach), quiet)
        ends[1] = one_nan(np.float32(mean + reach), quiet)


@kernel
def _middle(low: Any, width: Any, code: Any) -> Any:
    """Return the middle of a step."""
    return one_nan(low + (np.float32(code) + np.float32(0.5)) * width, np.float32(np.nan))


@kernel
def _write_steps(values: Any, limits: Any, steps: int, codes: Any) -> None:
    """Write the codes of equal steps; NaN has the lowest."""
    number = values.dtype.type
    width = (limits[1] - limits[0]) / np.float32(steps)
    low, divisor = number(limits[0]), number(width if width > 0 else np.float32(1))
    last, zero = number(steps - 1), number(0)
    for i in range(values.size):
        step = np.floor((values[i] - low) / divisor)
        # No comparison with a NaN is true: it becomes step 0.
        step = step if step > 0 else zero
        codes[i] = codes.dtype.type(step if step < last else last)


@part
def _write_sides(values: Any, threshold: Any, codes: Any) -> None:
    """Write the codes of two steps; NaN lies below."""
    for i in range(values.size):
        codes[i] = values[i] >= threshold


@part
def _write_deciders(values: Any, mean: Any, reach: Any, counted: Any, decides: Any) -> None:
    """Write which values decide levels: those drawn that lie within `reach` of the mean; a negative reach takes all."""
    for i in range(values.size):
        decides[i] = (counted.size == 0 or counted[i]) and (reach < 0 or abs(values[i] - mean) <= reach)


@part
def _write_ends(values: Any, decides: Any, leaves_some_out: bool, levels: Any) -> None:
    """Write the least and the largest value as levels; zeros of both signs, and what is not finite, as +0."""
    number = values.dtype.type
    least, most, zero, has_nan = number(np.inf), number(-np.inf), np.float32(0), False
    for i in range(values.size):
        if not leaves_some_out or decides[i]:
            v = values[i]
            least, most, has_nan = min(least, v), max(most, v), has_nan or v != v
    for side in range(2):
        end = np.float32(most if side else least)
        levels[side] = zero if has_nan or end - end != 0 else end + zero  # infinity less itself is NaN; -0 + 0 is +0


@part
def _add_sides(values: Any, codes: Any, lanes: Any, counts: Any) -> None:
    """Add each value to the lanes of its side."""
    # 0 is added to the other side, so that nothing branches: no lane is -0, which that would change.
    zero, above = values.dtype.type(0), 0
    for first in range(0, values.size, LANES):
        for j in range(min(LANES, values.size - first)):
            v, is_above = values[first + j], codes[first + j] != 0
            lanes[0, j] += zero if is_above else v
            lanes[1, j] += v if is_above else zero
            above += is_above
    counts[0], counts[1] = values.size - above, above


@part
def _add_by_code(values: Any, codes: Any, decides: Any, leaves_some_out: bool, lanes: Any, counts: Any) -> None:
    """Add values that decide levels to the lanes of their codes."""
    for i in range(values.size):
        if not leaves_some_out or decides[i]:
            lanes[codes[i], i % LANES] += values[i]
            counts[codes[i]] += 1


@part
def _write_means(room: Any, encoding: Any, levels: Any) -> None:
    """Write the means of the values of each code as levels."""
    room.lanes[:] = 0
    room.counts[:] = 0
    # Two steps whose values all count need no branch.
    if encoding.steps > 2 or encoding.leaves_some_out:
        _add_by_code(room.values, room.codes, room.decides, encoding.leaves_some_out, room.lanes, room.counts)
    else:
        _add_sides(room.values, room.codes, room.lanes, room.counts)
    for code in range(levels.size):
        levels[code] = one_nan(np.float32(quotient(room.lanes[code], room.counts[code])), np.float32(np.nan))


@kernel
def pack(codes: Any, bits: int, words: Any) -> None:
    """Pack codes into words, the first one lowest; codes are filled up with 0 to whole groups of `TOGETHER`."""
    pending, used, at, width = np.uint64(0), np.uint64(0), 0, np.uint64(bits)
    for first in range(0, codes.size, TOGETHER):
        group = np.uint64(0)
        for j in range(TOGETHER):
            group |= np.uint64(codes[first + j]) << np.uint64(np.uint64(j) * width)
        pending |= group << used
        used += np.uint64(TOGETHER) * width
        if used >= np.uint64(CODE_WORD_BITS):
            words[at] = np.uint32(pending & np.uint64(0xFFFFFFFF))
            pending >>= np.uint64(CODE_WORD_BITS)
            used -= np.uint64(CODE_WORD_BITS)
            at += 1
    if at < words.size:
        words[at] = np.uint32(pending & np.uint64(0xFFFFFFFF))


@part
def _pack_wide(codes: Any, rows: int, bits: int, words: Any) -> None:
    """Pack codes of more bits than a byte into words, the first one lowest."""
    # A code of at most 16 bits begins at bit 31 of a word or below: 64 bits hold it, and it ends in the next word at
    # the latest.
    words[:] = 0
    for i in range(rows):
        at, shift = i * bits // CODE_WORD_BITS, i * bits % CODE_WORD_BITS
        pair = np.uint64(codes[i]) << np.uint64(shift)
        words[at] |= np.uint32(pair & np.uint64(0xFFFFFFFF))
        if shift + bits > CODE_WORD_BITS:
            words[at + 1] |= np.uint32(pair >> np.uint64(CODE_WORD_BITS))


@part
def _encode_column(columns: Any, encoding: Any, column: int, room: Any) -> None:
    number = room.values.dtype.type
    values, quiet = room.values, number(np.nan)
    gradients, residual, used = columns.gradients[column], columns.residual[column], columns.levels[column]
    for i in range(values.size):
        values[i] = gradients[i] + residual[i]
    mean = _mean(values, room.lanes[0])  # `room.lanes` is free until levels are computed
    columns.means[column] = one_nan(mean, quiet)
    deviation = _deviation(values, mean, room.lanes[0]) if encoding.deviates else number(0)
    if encoding.kind == MIDDLES:
        if encoding.computes_levels:
            _write_range(mean, number(encoding.deviations) * deviation, encoding, used)
        room.ends[:] = used
        _write_steps(values, room.ends, encoding.steps, room.codes)
    else:
        if encoding.steps > 2:
            _write_range(mean, number(encoding.deviations) * deviation, encoding, room.ends)
            _write_steps(values, room.ends, encoding.steps, room.codes)
        else:
            threshold = mean if encoding.threshold == AT_MEAN else number(0)
            _write_sides(values, columns.limits[column] if encoding.threshold == AT_GIVEN else threshold, room.codes)
        if encoding.computes_levels:
            if encoding.leaves_some_out:
                # A single row of `counted` is for all columns.
                reach = number(encoding.outliers) * deviation if encoding.outliers > 0 else number(-1)
                _write_deciders(values, mean, reach, columns.counted[column % len(columns.counted)], room.decides)
            if encoding.kind == ENDS:
                _write_ends(values, room.decides, encoding.leaves_some_out, used)
            else:
                _write_means(room, encoding, used)
        # Given or computed, levels are float32: what is lost to their rounding stays in the residual.
        room.table[:] = used
    if encoding.bits > BYTE_BITS:
        _pack_wide(room.codes, values.size, encoding.bits, columns.words[column])
    else:
        pack(room.codes, encoding.bits, columns.words[column])
    if encoding.settles and encoding.kind == MIDDLES:
        # As `_write_decoded` computes it: the residual is what the receiver does not get.
        low, width = room.ends[0], (room.ends[1] - room.ends[0]) / np.float32(encoding.steps)
        for i in range(values.size):
            residual[i] = one_nan(values[i] - _middle(low, width, room.codes[i]), quiet)
    elif encoding.settles:
        for i in range(values.size):
            residual[i] = one_nan(values[i] - room.table[room.codes[i]], quiet)


@kernel
def encode_range(columns: Any, encoding: Any, start: int, stop: int) -> None:
    """Encode columns `start`..`stop`."""
    rows, kinds = columns.gradients.shape[1], columns.gradients.dtype
    codes = 1 if encoding.kind == MIDDLES else 1 << encoding.bits
    room = Room(
        np.empty(rows, kinds),
        np.zeros(-(-rows // TOGETHER) * TOGETHER, columns.no_codes.dtype),
        np.empty(rows, np.bool_),
        np.empty((codes, LANES), kinds),
        np.empty(codes, np.int64),
        np.zeros(codes, np.float32),
        np.zeros(2, np.float32),
    )
    for column in range(start, stop):
        _encode_column(columns, encoding, column, room)


@part
def unpack(words: Any, bits: int, codes: Any) -> None:
    """Write the codes that words hold, up to a whole group of `TOGETHER`."""
    pending, left, at, width = np.uint64(0), np.int64(0), 0, np.uint64(bits)
    # A word is taken whenever fewer bits are pending than a group has.
    mask = (np.uint64(1) << width) - np.uint64(1)
    for first in range(0, codes.size, TOGETHER):
        # One word is enough: a group has at most 32 bits.
        if left < TOGETHER * bits and at < words.size:
            pending |= np.uint64(words[at]) << np.uint64(left)
            left += CODE_WORD_BITS
            at += 1
        for j in range(TOGETHER):
            codes[first + j] = (pending >> np.uint64(np.uint64(j) * width)) & mask
        pending >>= np.uint64(TOGETHER) * width
        left -= TOGETHER * bits


@part
def _unpack_wide(words: Any, bits: int, codes: Any) -> None:
    """Write the codes of more bits than a byte that words hold, as far as there are words."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(min(codes.size, words.size * CODE_WORD_BITS // bits)):
        at, shift = i * bits // CODE_WORD_BITS, i * bits % CODE_WORD_BITS
        pair = np.uint64(words[at])
        if shift + bits > CODE_WORD_BITS:
            pair |= np.uint64(words[at + 1]) << np.uint64(CODE_WORD_BITS)
        codes[i] = (pair >> np.uint64(shift)) & mask


@kernel
def _write_decoded(received: Any, column: int, codes: Any, out: Any) -> None:
    """Write what the codes of a column stand for; `codes` is room for them."""
    levels = received.levels[column]
    if received.bits > BYTE_BITS:
        _unpack_wide(received.words[column], received.bits, codes)
    else:
        unpack(received.words[column], received.bits, codes)
    if received.are_ends:
        low, width = levels[0], (levels[1] - levels[0]) / np.float32(received.steps)
        for i in range(out.size):
            out[i] = _middle(low, width, codes[i])
    else:
        for i in range(out.size):
            out[i] = levels[codes[i]]


@kernel
def decode_range(received: Any, out: Any, start: int, stop: int) -> None:
    """Write what codes of columns stand for."""
    codes = np.empty(-(-out.shape[1] // TOGETHER) * TOGETHER, received.no_codes.dtype)
    for column in range(start, stop):
        _write_decoded(received, column, codes, out[column])


@kernel
def decode_and_add_range(received: Any, total: Any, start: int, stop: int) -> None:
    """Add what codes of columns stand for."""
    quiet, rows = total.dtype.type(np.nan), total.shape[1]
    codes = np.empty(-(-rows // TOGETHER) * TOGETHER, received.no_codes.dtype)
    decoded = np.empty(rows, np.float32)
    for column in range(start, stop):
        target = total[column]
        _write_decoded(received, column, codes, decoded)
        for i in range(rows):
            target[i] = one_nan(target[i] + decoded[i], quiet)
