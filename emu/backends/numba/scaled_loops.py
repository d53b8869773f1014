"""Loops over the panels of an array whose elements share scales: they put the pieces of vector code together.

The pieces are called by their addresses, so that these loops are compiled once for all formats. What vector code does
not write, blocks with a NaN, an infinity or a scale that is NaN, is marked, and written afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends import interface as k
from emu.backends.numba.compiling import kernel, part
from emu.backends.numba.vector import scaled as elements
from emu.backends.numba.vector.calling import call_at
from emu.backends.numba.vector.lanes import LANES, address
from emu.backends.numba.vector.writing import copy_bytes

FLOAT32_BYTES = 4
INFINITE_BITS = 0x7F800000
# Numba compiles globals of a module as constants, but looks up attributes of another module.
N_TALLIES, TOGETHER = elements.N_TALLIES, elements.TOGETHER
BEYOND, CHANGED, SMALL = elements.BEYOND, elements.CHANGED, elements.SMALL
ZEROS, ZEROS_BEFORE = elements.ZEROS, elements.ZEROS_BEFORE
OVERFLOW_FLAG, UNDERFLOW_FLAG = k.OVERFLOW_FLAG, k.UNDERFLOW_FLAG
INEXACT_FLAG, SUBNORMAL_FLAG = k.INEXACT_FLAG, k.SUBNORMAL_FLAG
#: What is noted of a block whose NaN is left out of its largest magnitude: it has other numbers, or none.
SOME, NO_NUMBERS = 1, 2


@kernel
def largest_bits(entry: int, x: Any, start: int, stop: int) -> int:
    """Return the bits of the largest magnitude of float32 `start`..`stop`, a multiple of sixteen of them."""
    # As eight blocks that follow each other, and what is left as one.
    bits = np.zeros(TOGETHER + 1, np.int32)
    where, vectors = address(x) + FLOAT32_BYTES * start, (stop - start) // LANES
    each = vectors // TOGETHER
    rest = where + FLOAT32_BYTES * LANES * TOGETHER * each
    call_at(entry, (where, 0, 1, TOGETHER, each, address(bits)))
    call_at(entry, (rest, 0, 1, 1, vectors % TOGETHER, address(bits) + FLOAT32_BYTES * TOGETHER))
    return int(bits.max())


@kernel
def write_panels(
    x: Any,
    out: Any,
    scales: Any,
    factors: Any,
    marks: Any,
    geometry: Any,
    start: int,
    stop: int,
    entries: Any,
    choices: Any,
    of_steps: Any,
    of_elements: Any,
    flags: Any,
) -> int:
    """Write the panels `start`..`stop` of an array; return whether groups of blocks were left out, and marked.

    Args:
        x: numbers, flat.
        out: elements, flat.
        scales: of all blocks, as they follow each other.
        factors: by which numbers are multiplied, or divided; written beside groups that are left out.
        marks: uint8, one for each group: a wide block, or sixteen tall ones; written where a group is left out.
        geometry: a `Geometry`.
        start: first panel.
        stop: one past the last.
        entries: addresses of the code of largest magnitudes, of steps, of elements.
        choices: whether blocks are tall, factors are powers of two, a NaN is no part of its block, elements are written
            past the caches.
        of_steps: numbers of the steps.
        of_elements: numbers of the elements.
        flags: counts of flags; added to.
    """
    rows, width, length, _, columns = geometry
    find, run, write = entries
    tall, exact, ignores_nan, streamed = choices
    per_strip = -(-length // columns)
    vectors = 1 if tall else width // LANES
    together = LANES if tall else 1  # blocks of a group
    room = -(-(columns // width) // LANES) * LANES
    # Lanes beyond the last block have the largest magnitude 0, and are not read.
    amax, stored, by = np.zeros(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
    bits, nans, tallies = amax.view(np.int32), np.zeros(room, np.uint8), np.zeros(N_TALLIES, np.int64)
    left_out = 0
    for panel in range(start, stop):
        strip, column = panel // per_strip, panel % per_strip * columns
        blocks = min(columns, length - column) // width
        groups = blocks // together
        first, begin = strip * rows * length + column, strip * (length // width) + column // width
        source, target = address(x) + FLOAT32_BYTES * first, address(out) + FLOAT32_BYTES * first
        # Three passes over a panel that stays in the cache: largest magnitudes, steps of the rule, elements.
        call_at(find, (source, length, rows, groups, vectors, address(amax)))
        # Patterns of magnitudes are ordered as integers; those of NaN lie above that of infinity.
        most = 0
        for block in range(blocks if ignores_nan else 0):
            most = max(most, bits[block])
        has_nans = most > INFINITE_BITS
        if has_nans:
            leave_out_nans(x, first, length, rows, width, blocks, amax, nans)
        places = (address(amax), address(stored), address(by))
        special = call_at(run, (*places, -(-blocks // LANES), address(of_steps)))
        numbers = (streamed, address(of_elements), address(tallies))
        if special == 0 and not has_nans:
            call_at(write, (source, target, length, rows, groups, vectors, places[2], places[1], *numbers))
        else:
            for group in range(groups):
                usual = True
                for block in range(group * together, (group + 1) * together):
                    nan = nans[block] if has_nans else 0
                    if exact and nan == NO_NUMBERS:  # there is no other number to scale by
                        stored[block] = np.nan
                    # `quotients` reads these of groups that are left out.
                    factors[begin + block] = by[block]
                    usual &= bits[block] < INFINITE_BITS and by[block] < np.inf
                    usual &= stored[block] == stored[block] and nan == 0
                # Sixteen tall blocks are written together: one that is unusual leaves out all.
                if usual:
                    moved = FLOAT32_BYTES * group * together
                    here = (source + moved * width, target + moved * width, length, rows, 1, vectors)
                    call_at(write, (*here, places[2] + moved, places[1] + moved, *numbers))
                else:
                    marks[begin // together + group] = 1
                    left_out = 1
        # Only scales of real blocks: lanes beyond the last have room in `stored` alone.
        copy_bytes(address(scales) + FLOAT32_BYTES * begin, places[1], FLOAT32_BYTES * blocks)
    flags[OVERFLOW_FLAG] += tallies[BEYOND]
    flags[INEXACT_FLAG] += tallies[CHANGED]
    flags[UNDERFLOW_FLAG] += tallies[ZEROS] - tallies[ZEROS_BEFORE]
    flags[SUBNORMAL_FLAG] += max(tallies[SMALL] - tallies[ZEROS], 0)  # fixed point has no subnormal numbers
    return left_out


@part
def leave_out_nans(x: Any, first: int, length: int, rows: int, width: int, blocks: int, amax: Any, nans: Any) -> None:
    """Find the largest magnitudes of blocks with a NaN again, without it; write what they have into `nans`, else 0."""
    for block in range(blocks):
        nans[block] = 0
        if amax[block] != amax[block]:
            amax[block], nans[block] = 0.0, NO_NUMBERS
            for row in range(rows):
                for i in range(width):
                    magnitude = abs(x[first + row * length + block * width + i])
                    if magnitude == magnitude:
                        amax[block], nans[block] = max(amax[block], magnitude), SOME


@kernel
def quotients(
    x: Any, groups: Any, geometry: Any, together: int, scales: Any, factors: Any, exact: bool, divides: bool, y: Any
) -> None:
    """Write what the output stage of the elements rounds in some groups of blocks, float64.

    Args:
        x: numbers, flat.
        groups: their numbers.
        geometry: a `Geometry`.
        together: blocks of a group.
        scales: of all blocks.
        factors: of the blocks of these groups.
        exact: whether numbers are divided by scales, which are powers of two.
        divides: whether numbers are divided by factors, else multiplied, in float32.
        y: what is written, groups x rows x elements of a group in a row; 0 if a scale is NaN.
    """
    rows, width, length = geometry[0], geometry[1], geometry[2]
    for i in range(groups.size):
        at, first = _places(groups[i], rows, width, length, together)
        for row in range(rows):
            for column in range(y.shape[2]):
                block = at + column // width
                number, scale, factor = x[first + row * length + column], scales[block], factors[block]
                if scale != scale:
                    y[i, row, column] = 0.0
                elif exact:
                    y[i, row, column] = np.float64(number) / np.float64(scale)
                elif divides:
                    y[i, row, column] = np.float64(number / factor)
                else:
                    y[i, row, column] = np.float64(number * factor)


@kernel
def place(values: Any, groups: Any, geometry: Any, together: int, out: Any) -> None:
    """Write the elements of some groups of blocks, as `quotients` orders them, where they belong."""
    rows, width, length = geometry[0], geometry[1], geometry[2]
    for i in range(groups.size):
        _, first = _places(groups[i], rows, width, length, together)
        for row in range(rows):
            for column in range(values.shape[2]):
                out[first + row * length + column] = values[i, row, column]


@kernel
def _places(group: int, rows: int, width: int, length: int, together: int) -> tuple[int, int]:
    """Return the first block of a group, and its first element."""
    block = group * together
    per_strip = length // width
    return block, block // per_strip * rows * length + block % per_strip * width
