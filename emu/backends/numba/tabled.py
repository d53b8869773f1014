"""Functions of narrow inputs, compiled: each value becomes its code, by which the table is read.

    value ──► code ──► value written, flags, position in the statistics register

Source: docs/concepts/functions.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.functions import FunctionTable, flag_counts, register_places
from emu.backends.functions.tables import NO_LEADING
from emu.backends.interface import Outcome, RandomCode, Write, encode_format
from emu.backends.memory import empty
from emu.backends.modes import draws
from emu.backends.numba.bits import BIAS, FIELD, FRACTION, bits_of
from emu.backends.numba.compiling import BLOCK, kernel, only_read, over_ranges, part, thread_count
from emu.backends.numba.philox import fill_random, signed
from emu.backends.proofs import SAFE_EXPONENT
from emu.datapath.pending import NO_EXPONENT
from emu.formats import Float, Format

Array = NDArray[Any]
#: Elements below which a second thread is not worth waking.
GRAIN = 1 << 17
_NO_POSITIONS = np.zeros(1, np.int64)


class _Source(NamedTuple):
    """How a value of the input format becomes its code."""

    is_float: int
    mask: int
    scale: float  # fixed: raws per unit
    fraction_bits: int
    emin: int
    sign_code: int
    has_negative_zero: int
    infinity_code: int
    nan_code: int


@part
def _code_of(value: float, source: _Source) -> Any:
    if not source.is_float:  # the low bits of two's complement are the code
        return np.int64(value * source.scale) & source.mask
    bits = bits_of(value)
    field, fraction = (bits >> 52) & FIELD, bits & FRACTION
    if field == FIELD and fraction != 0:
        return source.nan_code & source.mask
    code = 0
    if field == FIELD:
        code = source.infinity_code
    elif field != 0:
        # A normal code is its exponent field and the fraction: the leading bit carries into the field, where one less
        # is put. Below emin the significand is shifted instead, and the field stays 0.
        exponent = max(field - BIAS, source.emin)
        drop = 52 - source.fraction_bits + exponent - (field - BIAS)
        code = ((exponent - source.emin) << source.fraction_bits) + ((fraction | (1 << 52)) >> min(drop, 63))
    if bits < 0 and (code != 0 or source.has_negative_zero):
        code |= source.sign_code
    return code & source.mask


@kernel
def _gather(
    x: Any,
    values: Any,
    at: int,
    source: _Source,
    table: Any,
    raised: Any,
    seen: Any,
    leading: Any,
    next_table: Any,
    next_raised: Any,
    dropped: Any,
    stochastic: bool,
    n_rbits: int,
    seed: int,
    stream: int,
    step: int,
    draw: int,
    recorded: Any,
    patterns: Any,
    counts: Any,
) -> Any:
    """Write the table's values for x, results from `at` on; return the largest leading bit.

    Counts patterns of flags and, if `counts` has room, positions of the register.
    """
    u = np.zeros(BLOCK, np.int64)
    top = np.int64(NO_LEADING)
    for first in range(0, x.size, BLOCK):
        n = min(BLOCK, x.size - first)
        if stochastic and recorded.size > 1:
            for i in range(n):
                u[i] = recorded[at + first + i]
        elif stochastic:
            fill_random(u, at + first, n, n_rbits, seed, stream, step, draw)
        for i in range(n):
            code = _code_of(np.float64(x[first + i]), source)
            # The table has both neighbours, and of what is dropped the first r bits: u and they carry into the next.
            if stochastic and u[i] + np.int64(dropped[code]) >= 1 << n_rbits:
                # Flags are counted by their pattern: which of them are raised together.
                values[first + i] = next_table[code]
                patterns[next_raised[code]] += 1
            else:
                values[first + i] = table[code]
                patterns[raised[code]] += 1
            if counts.size > 0:
                counts[seen[code]] += 1
                top = max(top, np.int64(leading[code]))
    return top


@lru_cache(maxsize=64)
def _source_of(fmt: Format) -> _Source:
    code = encode_format(fmt)
    mask = (1 << code.width_bits) - 1
    if not isinstance(fmt, Float):
        return _Source(0, mask, math.ldexp(1.0, -code.quantum), 0, 0, 0, 0, 0, 0)
    # A format without infinity or NaN has no such input: -1 stands for a code that is never asked for.
    specials = (-1 if special is None else special for special in (fmt.infinity_code, fmt.nan_code))
    return _Source(1, mask, 1.0, fmt.fraction_bits, fmt.emin, fmt.sign_code, code.has_negative_zero, *specials)


def gather(table: FunctionTable, x: Array, write: Write) -> Outcome:
    """Write the table's values for `x`, values of its input format, any shape, as `FunctionTable.outcome` does."""
    code = encode_format(table.source)
    # loops compute codes that count up from that of 0; below it in two's complement, of floats with a sign bit
    has_others = not code.has_zero or code.sign_magnitude or code.hidden_one
    if abs(code.quantum) > SAFE_EXPONENT or has_others:
        return table.outcome(x, write)
    stage, random, register = write
    flat, values = only_read(np.ascontiguousarray(x).reshape(-1)), empty((x.size,), table.values.dtype)
    bins = 0 if register is None else register.bins
    size = 0 if register is None else 2 * bins + 5
    # For each thread, how often each of the 2**8 patterns of flags was read, and each position of the register.
    patterns, counts = (np.zeros((thread_count() + 1, n), np.int64) for n in (256, size))
    tops = np.full(thread_count() + 1, NO_LEADING, np.int64)
    seen = _NO_POSITIONS if register is None else register_places(table, register)
    entries = (table.values, table.flags, seen, table.leading, table.next_values, table.next_flags, table.dropped)
    numbers = (signed(random.seed), random.stream, random.step, random.draw, _recorded_bits(random))
    drawing = (draws(stage), stage.n_rbits, *numbers)
    source = _source_of(table.source)

    def work(thread: int, start: int, stop: int) -> None:
        room = (patterns[thread], counts[thread])
        tops[thread] = _gather(flat[start:stop], values[start:stop], start, source, *entries, *drawing, *room)

    over_ranges(work, x.size, BLOCK, GRAIN)
    flags, top = flag_counts(patterns.sum(axis=0)), int(tops.max())
    total = counts.sum(axis=0)
    if register is not None:
        total[2 * bins + 4] = x.size
    max_exponent = NO_EXPONENT if top == NO_LEADING or register is None else top
    return Outcome(values.reshape(x.shape), flags, None if register is None else total, max_exponent)


def _recorded_bits(random: RandomCode) -> Array:
    """Return the recorded bits as a flat array; one element stands for none, so a single one is doubled."""
    if random.recorded is None:
        return np.zeros(1, np.int64)
    bits = np.ascontiguousarray(random.recorded, dtype=np.int64).reshape(-1)
    return np.repeat(bits, 2) if bits.size == 1 else bits
