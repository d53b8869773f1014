"""Vector code over whole arrays: writes pieces of a result from any thread, and leaves some chunks to plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.memory import ALIGNMENT, address_of
from emu.backends.numba.vector.stage import CHUNK
from emu.backends.numba.vector.writing import Sink, range_entry, write_range

Array = NDArray[Any]
#: Results below this are not worth a second thread.
VECTOR_GRAIN = 1 << 17
#: Arrays above this many bytes are written past the caches.
STREAMED_BYTES = 1 << 23
#: Most chunks that plain loops write before vector code is tried again.
MAX_PLAIN_CHUNKS = 64
MOST_OPERANDS = 3
#: Writes a piece: thread, operands, start, stop, origin.
PlainWrite = Callable[[int, Sequence[Array], int, int, int], None]


class VectorWriter:
    """Writes pieces of one result by vector code of its output stage; chunks that it cannot write go to plain loops."""

    def __init__(self, target: Array, parameters: NDArray[np.int64], reports: Array) -> None:
        """Prepare to write.

        Args:
            target: flat array of the whole result.
            parameters: the numbers of the stage and of the loop.
            reports: one per thread, added to; C-contiguous int64.
        """
        self._parameters, self._reports = parameters, reports  # referenced as long as their addresses are used
        self._addresses = address_of(parameters), address_of(reports), address_of(target)
        self._item = target.itemsize
        self._streamed = int(target.nbytes >= STREAMED_BYTES and self._addresses[2] % ALIGNMENT == 0)

    def sink(self, thread: int) -> Sink:
        """Return where compiled loops on that thread deliver their results; valid while this writer lives."""
        parameters, reports, target = self._addresses
        report = reports + thread * self._reports.strides[0]
        return Sink(range_entry(), target, self._item, self._streamed, parameters, report)

    def write(
        self, thread: int, operands: Sequence[Array], start: int, stop: int, origin: int, plain: PlainWrite
    ) -> None:
        """Write results `start`..`stop`; the operands' element 0 belongs to result `origin`.

        `plain` writes a piece in plain loops. It is an argument, as an attribute would make a reference cycle with its
        owner, and results would stay in memory until the garbage collector runs.
        """
        steps = [0 if x.size < stop - origin else x.itemsize for x in operands]  # 0: one number stands for all
        # So that the element of result i lies at address + i * step.
        addresses = [address_of(x) - origin * step for x, step in zip(operands, steps, strict=True)]
        # A missing operand is the first one again: an address that is not read.
        while len(steps) < MOST_OPERANDS:
            steps.append(steps[0])
            addresses.append(addresses[0])
        (a, b, c), (a_step, b_step, c_step) = addresses, steps
        _, target, item, streamed, parameters, report = self.sink(thread)
        if start * item % ALIGNMENT:  # stores past the caches must be aligned to whole vectors
            streamed = 0
        at, chunks = start, 1
        while at < stop:
            wrote = write_range(
                a + at * a_step,
                b + at * b_step,
                c + at * c_step,
                a_step,
                b_step,
                c_step,
                target + at * item,
                at,
                stop - at,
                streamed,
                parameters,
                report,
            )
            # Twice as many each time that vector code writes nothing: among many special numbers it is tried seldom.
            chunks = min(2 * chunks, MAX_PLAIN_CHUNKS) if wrote == 0 else 1
            at += wrote
            if at < stop:
                end = min(at + chunks * CHUNK, stop)
                plain(thread, operands, at, end, origin)
                at = end
