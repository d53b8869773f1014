"""Vector code over whole arrays: a range per thread, chunks it cannot do handed to the plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.numba.compiling import over_ranges, thread_count
from emu.backends.numba.vector.stage import CHUNK, Shape
from emu.backends.numba.vector.writing import empty_report, writer

Array = NDArray[Any]
#: Results below this are not worth a second thread.
GRAIN = 1 << 17
#: Arrays above this many bytes are written past the caches, to addresses of this alignment.
STREAMED_BYTES, ALIGNMENT = 1 << 23, 64
#: The most chunks handed to the plain loops at a time.
MAX_PLAIN_CHUNKS = 64


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array without content; large ones are aligned so that they can be written past the caches."""
    count = math.prod(shape)
    if count * dtype.itemsize < STREAMED_BYTES:
        return np.empty(shape, dtype)
    room = np.empty(count * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    return array.__array_interface__["data"][0]


def write_ranges(
    shape: Shape,
    operands: list[Array],
    target: Array,
    parameters: tuple[Any, Any],
    bins: int,
    plain: Callable[[int, int, int], None],
) -> Array:
    """Write `operands` through the output stage into `target`; return one report per thread.

    Args:
        shape: what is computed.
        operands: three flat arrays; those an operation does not have are repeats.
        target: flat array.
        parameters: from `parameters`.
        bins: positions of the register, 0 without one.
        plain: computes a range (thread, start, stop) in plain loops.
    """
    write = writer(shape)
    reports = np.array([empty_report(bins)] * (thread_count() + 1))
    addresses, out = [address_of(x) for x in operands], address_of(target)
    item, out_item = operands[0].itemsize, target.itemsize
    streamed = int(target.nbytes >= STREAMED_BYTES and out % ALIGNMENT == 0)

    def work(index: int, start: int, stop: int) -> None:
        at, chunks = start, 1
        while at < stop:
            places = [address + at * item for address in addresses]
            wrote = write(*places, out + at * out_item, at, stop - at, streamed, *parameters, reports[index])
            chunks = min(2 * chunks, MAX_PLAIN_CHUNKS) if wrote == 0 else 1
            at += wrote
            if at < stop:
                end = min(at + chunks * CHUNK, stop)
                plain(index, at, end)
                at = end

    over_ranges(work, target.size, CHUNK, GRAIN)
    return reports
