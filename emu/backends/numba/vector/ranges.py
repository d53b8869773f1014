"""Vector code over whole arrays: pieces of a result from any thread, chunks it cannot do handed to the plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from emu.backends.memory import ALIGNMENT
from emu.backends.numba.vector.stage import CHUNK, Shape
from emu.backends.numba.vector.writing import writer

Array = NDArray[Any]
#: Results below this are not worth a second thread.
VECTOR_GRAIN = 1 << 17
#: Arrays above this many bytes are written past the caches.
STREAMED_BYTES = 1 << 23
#: The most chunks handed to the plain loops at a time.
MAX_PLAIN_CHUNKS = 64
#: Writes a piece: thread, operands, start, stop, origin.
PlainWrite = Callable[[int, Sequence[Array], int, int, int], None]


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    return array.__array_interface__["data"][0]


class VectorWriter:
    """Vector code of one output stage, writing pieces of one result; chunks it cannot do go to the plain loops."""

    def __init__(
        self,
        shape: Shape,
        target: Array,
        parameters: tuple[Any, Any],
        reports: Array,
    ) -> None:
        """Prepare to write.

        Args:
            shape: what is computed.
            target: flat array of the whole result.
            parameters: from `parameters`.
            reports: one per thread, added to.
        """
        self._write, self._parameters = writer(shape), parameters
        self._out_item = target.itemsize
        self._out = address_of(target)
        self._streamed = int(target.nbytes >= STREAMED_BYTES and self._out % ALIGNMENT == 0)
        self._reports = reports

    def write(
        self, thread: int, operands: Sequence[Array], start: int, stop: int, origin: int, plain: PlainWrite
    ) -> None:
        """Write results `start`..`stop`; the operands' element 0 belongs to result `origin`.

        `plain` writes a piece in plain loops. It is handed over each time: kept, it would tie its owner and this into a
        ring, whose results' room is free only when the collector comes.
        """
        steps = [0 if x.size < stop - origin else x.itemsize for x in operands]  # 0: one number stands for all
        addresses = [address_of(x) - origin * step for x, step in zip(operands, steps, strict=True)]
        steps += steps[:1] * (3 - len(steps))
        addresses += addresses[:1] * (3 - len(addresses))
        report, streamed = self._reports[thread], int(self._streamed and start % (ALIGNMENT // self._out_item) == 0)
        at, chunks = start, 1
        while at < stop:
            places = [address + at * step for address, step in zip(addresses, steps, strict=True)]
            out = self._out + at * self._out_item
            wrote = self._write(*places, *steps, out, at, stop - at, streamed, *self._parameters, report)
            chunks = min(2 * chunks, MAX_PLAIN_CHUNKS) if wrote == 0 else 1
            at += wrote
            if at < stop:
                end = min(at + chunks * CHUNK, stop)
                plain(thread, operands, at, end, origin)
                at = end
