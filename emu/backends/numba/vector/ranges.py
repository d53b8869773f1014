"""Vector code over whole arrays: pieces of a result from any thread, other chunks go to the plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.memory import ALIGNMENT
from emu.backends.numba.vector.calling import address_of
from emu.backends.numba.vector.stage import CHUNK
from emu.backends.numba.vector.writing import Sink, range_entry, write_range

Array = NDArray[Any]
#: Results below this are not worth a second thread.
VECTOR_GRAIN = 1 << 17
#: Arrays above this many bytes are written past the caches.
STREAMED_BYTES = 1 << 23
#: The most chunks handed to the plain loops at a time.
MAX_PLAIN_CHUNKS = 64
MOST_OPERANDS = 3
#: Writes a piece: thread, operands, start, stop, origin.
PlainWrite = Callable[[int, Sequence[Array], int, int, int], None]


class VectorWriter:
    """Vector code of one output stage, writing pieces of one result; chunks it cannot do go to the plain loops."""

    def __init__(self, target: Array, parameters: NDArray[np.int64], reports: Array) -> None:
        """Prepare to write.

        Args:
            target: flat array of the whole result.
            parameters: the numbers of the stage and of the loop.
            reports: one per thread, added to; C-contiguous int64.
        """
        self._parameters, self._reports = parameters, reports
        self._places = address_of(parameters), address_of(reports), address_of(target)
        self._item = target.itemsize
        self._streamed = int(target.nbytes >= STREAMED_BYTES and self._places[2] % ALIGNMENT == 0)

    def sink(self, thread: int) -> Sink:
        """Return where compiled loops on that thread hand in their results; valid while this writer lives."""
        parameters, reports, target = self._places
        report = reports + thread * self._reports.strides[0]
        return Sink(range_entry(), target, self._item, self._streamed, parameters, report)

    def write(
        self, thread: int, operands: Sequence[Array], start: int, stop: int, origin: int, plain: PlainWrite
    ) -> None:
        """Write results `start`..`stop`; the operands' element 0 belongs to result `origin`.

        `plain` writes a piece in plain loops. It is handed over each time: kept, it would tie its owner and this into a
        ring, whose results' room is free only when the collector comes.
        """
        steps = [0 if x.size < stop - origin else x.itemsize for x in operands]  # 0: one number stands for all
        addresses = [address_of(x) - origin * step for x, step in zip(operands, steps, strict=True)]
        while len(steps) < MOST_OPERANDS:
            steps.append(steps[0])
            addresses.append(addresses[0])
        (a, b, c), (a_step, b_step, c_step) = addresses, steps
        _, target, item, streamed, parameters, report = self.sink(thread)
        if start * item % ALIGNMENT:
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
            chunks = min(2 * chunks, MAX_PLAIN_CHUNKS) if wrote == 0 else 1
            at += wrote
            if at < stop:
                end = min(at + chunks * CHUNK, stop)
                plain(thread, operands, at, end, origin)
                at = end
