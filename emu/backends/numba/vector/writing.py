"""The output stage over a range of results: chunks of vector code, the last one padded, and their counts.

The loop takes only addresses and integers, so that it is compiled once for all stages, and other compiled loops can
deliver their results to it (`pour`).
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from emu.backends.interface import N_FLAGS
from emu.backends.memory import ALIGNMENT
from emu.backends.numba.compiling import kernel, part
from emu.backends.numba.vector import leading_bits, stage
from emu.backends.numba.vector.calling import array_at, call_at, entry_of
from emu.backends.numba.vector.lanes import I8, IR, address, copy, intrinsic
from emu.backends.numba.vector.stage import (
    BINS,
    CHUNK,
    FIXED_ACCUMULATOR,
    MINUS_ONE,
    N_INTEGERS,
    N_NUMBERS,
    N_TALLIES,
    SUBNORMAL,
    TALLY_BITS,
    TOP,
    UNDERFLOW,
    ZEROS,
    drain_counters,
    write_chunks,
)

PLANES, TREE_PLANES, MAX_CHUNKS = leading_bits.PLANES, leading_bits.TREE_PLANES, leading_bits.MAX_CHUNKS
WORD_BITS = leading_bits.WORD_BITS
LANES = stage.LANES
#: A range's report: the flags, the largest exponent, then the register's counts in the order of `Outcome.register`.
TOP_INDEX, COUNTS_INDEX = N_FLAGS, N_FLAGS + 1
#: Counts that follow the positions of both signs, as `datapath.registers.SCALARS` names them: results without a
#: leading bit, below and above all positions, not finite, and all results.
SCALARS = 5
#: Arguments of `write_range`, and of the code it calls for its chunks.
ARGUMENTS, CHUNK_ARGUMENTS = 12, 13
#: What is given to `write_range` about a stage, by position: the address of its code, sets of words that count, the
#: bias of exponents, whether subnormal results are kept, bytes of a result and of each operand's elements, and what
#: fills the second operand of a padded chunk.
(CODE, SETS, BIAS, KEEPS_SUBNORMALS, OUT_BYTES, A_BYTES, B_BYTES, C_BYTES, PADDING_OF_B) = range(9)
N_LOOP_NUMBERS = 9
#: Flags that stand first among the tallies, and in a report; the others are raised elsewhere: those of
#: accumulators and of divisions.
TALLIED_FLAGS = SUBNORMAL + 1


@kernel
def report_size(bins: int) -> int:
    """Return the length of a range's report."""
    return COUNTS_INDEX + 2 * bins + SCALARS


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes between two addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(arg, IR.PointerType(I8)) for arg in args[:2])
        copy(builder, target, source, args[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@lru_cache(maxsize=1024)
def chunk_code(shape: stage.Shape) -> tuple[Any, int]:
    """Return the compiled code of a shape's chunks, to be kept as long as it is called, and the address to call.

    Only this is compiled for each shape: the loop around it serves all of them.
    """
    text = shape.text()

    @partial(kernel, by_address=True)
    def write(
        a: int,
        b: int,
        c: int,
        a_step: int,
        b_step: int,
        c_step: int,
        out: int,
        index: int,
        chunks: int,
        past_caches: int,
        parameters: int,
        planes: int,
        tallies: int,
    ) -> int:
        return write_chunks(
            text, a, b, c, a_step, b_step, c_step, out, index, chunks, past_caches, parameters, planes, tallies
        )

    return write, entry_of(write, CHUNK_ARGUMENTS)


def loop_numbers(shape: stage.Shape, code: int) -> NDArray[np.int64]:
    """Return the numbers of a shape that `write_range` reads after the stage's; `code`: address of the shape's code."""
    sources = [np.dtype(stage.KIND_DTYPES[name]) for name in shape.sources.split(",")]
    numbers = np.zeros(N_LOOP_NUMBERS, np.int64)
    numbers[[CODE, SETS, BIAS]] = [code, 2 * shape.words, 127 if shape.lane == "f32" else 1023]
    numbers[KEEPS_SUBNORMALS] = bool(shape.is_float) and not shape.overflow & stage.FLUSHES
    numbers[OUT_BYTES] = np.dtype(stage.KIND_DTYPES[shape.target]).itemsize
    numbers[A_BYTES : A_BYTES + len(sources)] = [source.itemsize for source in sources]
    if shape.operation == "divide":  # by 1, so that a padded result is 0 / 1 = +0
        numbers[PADDING_OF_B] = np.ones(8 // sources[1].itemsize, sources[1]).view(np.int64)[0]
    return numbers


@kernel
def write_range(
    a: int,
    b: int,
    c: int,
    a_step: int,
    b_step: int,
    c_step: int,
    out: int,
    index: int,
    n: int,
    past_caches: int,
    parameters: int,
    report_address: int,
) -> int:
    """Write a range of results; return how many: all, or those before a chunk that needs plain loops.

    Args:
        a: address of the first operand.
        b: address of the second.
        c: address of the third.
        a_step: bytes from one element of the first to the next, 0 if a chunk of one number stands for all.
        b_step: the same of the second.
        c_step: the same of the third.
        out: address of what is written.
        index: index of the first result, a multiple of 16.
        n: how many.
        past_caches: whether to write past the caches.
        parameters: address of the stage's numbers.
        report_address: address of a report, added to.
    """
    integers = array_at(np.int64, parameters + 8 * N_NUMBERS, N_INTEGERS)
    loop = array_at(np.int64, parameters + 8 * (N_NUMBERS + N_INTEGERS), N_LOOP_NUMBERS)
    report = array_at(np.int64, report_address, report_size(integers[BINS]))
    sets, out_bytes = loop[SETS], loop[OUT_BYTES]
    words = CHUNK if n % CHUNK > 0 else 0  # of eight bytes, as the longest element has: room for a padded chunk
    # One allocation for all, as Numba compiles each function of NumPy for each dtype; `tallies` keeps it. Planes are
    # words of 32 bits, two in an int64.
    plane_words, total_words = max(sets, 1) * PLANES * LANES // 2, WORD_BITS * max(sets, 1)
    room = np.zeros(plane_words + total_words + N_TALLIES + 4 * words, np.int64)
    planes = address(room)
    totals = room[plane_words : plane_words + total_words]
    tallies = room[plane_words + total_words : plane_words + total_words + N_TALLIES]
    padded = address(tallies) + 8 * N_TALLIES
    padded_a, padded_b, padded_c, padded_out = padded, padded + 8 * words, padded + 16 * words, padded + 24 * words
    for i in range(words):
        room[plane_words + total_words + N_TALLIES + words + i] = loop[PADDING_OF_B]
    done = 0
    while done < n:
        # More would overflow the counters before they are drained.
        chunks = min((n - done) // CHUNK, MAX_CHUNKS)
        padding = 0
        first, second, third = a + done * a_step, b + done * b_step, c + done * c_step
        target = out + done * out_bytes
        if chunks == 0:
            padding = CHUNK - (n - done)
            copy_bytes(padded_a, first, (n - done) * loop[A_BYTES])
            copy_bytes(padded_b, second, (n - done) * loop[B_BYTES])
            copy_bytes(padded_c, third, (n - done) * loop[C_BYTES])
            first, second, third = padded_a, padded_b, padded_c
            target = padded_out
            chunks = 1
        operands = (first, second, third, a_step, b_step, c_step)
        streamed = past_caches if padding == 0 else 0
        counters = (parameters, planes, address(tallies))
        wrote = call_at(loop[CODE], (*operands, target, index + done, chunks, streamed, *counters))
        # The counters' bits that may not be 0: of 2**j chunks, TREE_PLANES + j.
        used = TREE_PLANES
        while wrote >> (used - TREE_PLANES) > 0:
            used += 1
        drain_counters(sets, planes, used, totals)
        if padding > 0 and wrote > 0:
            copy_bytes(out + done * out_bytes, target, (n - done) * out_bytes)
            # Padded results are zeros, and counted as such.
            tallies[ZEROS] -= padding
            tallies[UNDERFLOW] -= padding
            tallies[SUBNORMAL] -= padding if loop[KEEPS_SUBNORMALS] else 0
        done = min(done + wrote * CHUNK, n)
        if wrote < chunks:
            break
    # With a register, the last word of all results has counted the tallies.
    if sets > 0:
        for tally in range(TALLY_BITS):
            tallies[tally] += totals[WORD_BITS * sets // 2 - TALLY_BITS + tally]
    # What is smaller than the smallest normal number is 0 or subnormal; what is 0 was 0 already, or underflowed.
    if loop[KEEPS_SUBNORMALS]:
        tallies[SUBNORMAL] -= tallies[UNDERFLOW]
    tallies[UNDERFLOW] -= tallies[ZEROS]
    for flag in range(TALLIED_FLAGS):
        report[flag] += tallies[flag]
    # A biased exponent: 0 if all results are zeros.
    if tallies[TOP] > 0:
        report[TOP_INDEX] = max(report[TOP_INDEX], tallies[TOP] - loop[BIAS])
    if sets > 0:
        _place_counts(totals, tallies[ZEROS], done, sets, integers, report)
    return done


@lru_cache(maxsize=1)
def range_entry() -> int:
    """Return the address at which compiled code calls `write_range`."""
    return entry_of(write_range, ARGUMENTS)


class Sink(NamedTuple):
    """What a compiled loop delivers its float64 results to; only integers, as compiled code takes them.

    Attributes:
        entry: address of `write_range`; 0 takes nothing, so that loops return each group.
        target: address of what is written.
        item: bytes of one result.
        streamed: whether the target is written past the caches if its alignment allows.
        parameters: address of the stage's numbers.
        report: address of the calling thread's report.
    """

    entry: int = 0
    target: int = 0
    item: int = 1
    streamed: int = 0
    parameters: int = 0
    report: int = 0


@kernel
def pour(sink: Any, source: int, first: int, count: int) -> int:
    """Write `count` float64 sums at an address as results from `first` on; return how many were written.

    These are all, or those before a chunk that needs plain loops.
    """
    entry, target, item, streamed, parameters, report = sink
    if entry == 0:
        return 0
    past_caches = streamed if first * item % ALIGNMENT == 0 else 0
    operands = (source, source, source, 8, 8, 8)
    return call_at(entry, (*operands, target + first * item, first, count, past_caches, parameters, report))


@part
def _place_counts(totals: Any, zeros: int, seen: int, sets: int, integers: Any, report: Any) -> None:
    """Add the counters to the report; results that no counter has lie below all positions."""
    bins = integers[BINS]
    # The first set of words counts results of both signs, the second the negative ones.
    counted = 0
    # Position `bins` has all results above the others.
    for p in range(bins + 1):
        counted += totals[p]
    for p in range(bins):
        negative = totals[WORD_BITS * sets // 2 + p]
        report[COUNTS_INDEX + p] += totals[p] - negative
        report[COUNTS_INDEX + bins + p] += negative
    scalars = COUNTS_INDEX + 2 * bins
    below = seen - zeros - counted
    # A fixed accumulator's raw -1 has no leading bit, so that it counts as none. It alone stands at its position, or
    # below all positions if it has none among them.
    none = below if integers[FIXED_ACCUMULATOR] else 0
    minus_one = integers[MINUS_ONE]
    if minus_one >= 0:
        none += totals[minus_one]
        report[COUNTS_INDEX + bins + minus_one] -= totals[minus_one]
    report[scalars] += zeros + none
    report[scalars + 1] += 0 if integers[FIXED_ACCUMULATOR] else below
    report[scalars + 2] += totals[bins]
    report[scalars + 4] += seen
