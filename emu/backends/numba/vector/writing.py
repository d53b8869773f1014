"""The output stage over a range of results: chunks of vector code, the last one padded, counts in their places.

A stage's loop takes addresses alone, so that other compiled loops can hand it their results (`pour`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from emu.backends.memory import ALIGNMENT
from emu.backends.numba.compiling import kernel
from emu.backends.numba.vector import leading_bits, stage
from emu.backends.numba.vector.calling import array_at, call_at, entry_of
from emu.backends.numba.vector.lanes import I8, IR, address, copy, intrinsic
from emu.backends.numba.vector.stage import (
    BINS,
    CHUNK,
    FIXED_ACCUMULATOR,
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
LANES = stage.LANES
#: A range's report: six flags, the largest exponent, then the register's counts as `Outcome` has them.
TOP_PLACE, COUNTS_PLACE = 6, 7
#: Scalars that follow the positions of both signs.
SCALARS = 5
#: Arguments of a stage's loop.
ARGUMENTS = 12


@kernel
def report_size(bins: int) -> int:
    """Return the length of a range's report."""
    return COUNTS_PLACE + 2 * bins + SCALARS


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes between two addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(arg, IR.PointerType(I8)) for arg in args[:2])
        copy(builder, target, source, args[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@lru_cache(maxsize=1024)
def writer(shape: stage.Shape) -> tuple[Any, int]:
    """Return the compiled loop of a shape, and where compiled code calls it.

    It takes the addresses of up to three operands, the bytes from one element of each to the next (0: a chunk of one
    number stands for all), the address of the target, the position of the first result (a multiple of 16), their
    number, whether to write past the caches, and the addresses of the stage's numbers and of a report to add to; it
    returns how many it wrote: all, or those before a chunk for the plain loops.
    """
    keeps_subnormals = bool(shape.is_float) and not shape.overflow & stage.FLUSHES
    names = shape.sources.split(",")
    text, words, arity = shape.text(), shape.words, len(names)
    out_bytes, a_bytes, b_bytes, c_bytes = (
        np.dtype(stage.KIND_DTYPES[name]).itemsize for name in (shape.target, *names, *names[:1] * (3 - arity))
    )
    second_dtype = np.float64 if b_bytes == 8 else np.float32
    padding_of_b = 1.0 if shape.operation == "divide" else 0.0  # a padded result is +0
    bias = 127 if shape.lane == "f32" else 1023

    @kernel
    def write(
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
        report_place: int,
    ) -> int:
        numbers = array_at(np.float64, parameters, N_NUMBERS)
        integers = array_at(np.int64, parameters + 8 * N_NUMBERS, N_INTEGERS)
        report = array_at(np.int64, report_place, report_size(integers[BINS]))
        planes = np.zeros(max(2 * words, 1) * PLANES * LANES, np.uint32)
        totals = np.zeros(64 * max(words, 1), np.int64)
        tallies = np.zeros(N_TALLIES, np.int64)
        padded_a = np.zeros(CHUNK * 8, np.uint8)
        padded_b = np.full(CHUNK, padding_of_b, second_dtype)
        padded_c = np.zeros(CHUNK * 8 if arity > 2 else 1, np.uint8)
        padded_out = np.zeros(CHUNK * 8, np.uint8)
        done = 0
        while done < n:
            chunks = min((n - done) // CHUNK, MAX_CHUNKS)
            padding = 0
            first, second, third = a + done * a_step, b + done * b_step, c + done * c_step
            target = out + done * out_bytes
            if chunks == 0:
                padding = CHUNK - (n - done)
                copy_bytes(address(padded_a), first, (n - done) * a_bytes)
                first, target = address(padded_a), address(padded_out)
                if arity > 1:
                    copy_bytes(address(padded_b), second, (n - done) * b_bytes)
                    second = address(padded_b)
                if arity > 2:
                    copy_bytes(address(padded_c), third, (n - done) * c_bytes)
                    third = address(padded_c)
                chunks = 1
            wrote = write_chunks(
                text,
                first,
                second,
                third,
                a_step,
                b_step,
                c_step,
                target,
                index + done,
                chunks,
                past_caches if padding == 0 else 0,
                numbers,
                integers,
                planes,
                tallies,
            )
            if words > 0:
                used = TREE_PLANES
                while wrote >> (used - TREE_PLANES) > 0:
                    used += 1
                drain_counters(words, planes, used, totals)
            if padding > 0 and wrote > 0:
                copy_bytes(out + done * out_bytes, target, (n - done) * out_bytes)
                tallies[ZEROS] -= padding
                tallies[UNDERFLOW] -= padding
                tallies[SUBNORMAL] -= padding if keeps_subnormals else 0
            done = min(done + wrote * CHUNK, n)
            if wrote < chunks:
                break
        if words > 0:
            for tally in range(TALLY_BITS):
                tallies[tally] += totals[32 * words - TALLY_BITS + tally]
        if keeps_subnormals:
            tallies[SUBNORMAL] -= tallies[UNDERFLOW]
        tallies[UNDERFLOW] -= tallies[ZEROS]
        for i in range(5):
            report[i] += tallies[i]
        if tallies[TOP] > 0:
            report[TOP_PLACE] = max(report[TOP_PLACE], tallies[TOP] - bias)
        if words > 0:
            _place_counts(totals, tallies[ZEROS], done, words, integers, report)
        return done

    return write, entry_of(write, ARGUMENTS)


class Sink(NamedTuple):
    """Where a compiled loop's float64 results go, numbers alone.

    Attributes:
        entry: where the stage's loop is called; 0 hands every group back.
        target: address of what is written.
        item: bytes of one result.
        streamed: whether the target is written past the caches, where its alignment allows.
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
    """Write results from `first` on, `count` float64 sums at an address; return how many were written.

    All are, or those before a chunk that the plain loops must do.
    """
    entry, target, item, streamed, parameters, report = sink
    if entry == 0:
        return 0
    past_caches = streamed if first * item % ALIGNMENT == 0 else 0
    operands = (source, source, source, 8, 8, 8)
    return call_at(entry, (*operands, target + first * item, first, count, past_caches, parameters, report))


@kernel
def _place_counts(totals: Any, zeros: int, seen: int, words: int, integers: Any, report: Any) -> None:
    """Add the counters to the report; `below` is what is nowhere else."""
    bins = integers[BINS]
    counted = 0
    for p in range(bins + 1):
        counted += totals[p]
    for p in range(bins):
        negative = totals[32 * words + p]
        report[COUNTS_PLACE + p] += totals[p] - negative
        report[COUNTS_PLACE + bins + p] += negative
    scalars = COUNTS_PLACE + 2 * bins
    below = seen - zeros - counted
    fixed = integers[FIXED_ACCUMULATOR]
    report[scalars] += zeros + (below if fixed else 0)  # below a fixed accumulator lies raw -1 alone
    report[scalars + 1] += 0 if fixed else below
    report[scalars + 2] += totals[bins]
    report[scalars + 4] += seen
