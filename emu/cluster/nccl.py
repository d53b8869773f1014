"""The channel between processes with a GPU each: bytes travel from one GPU's memory to another's, through NCCL.

MPI    numbers the processes, carries NCCL's identifier of the job and the lengths of parcels, names ranks that are late
NCCL   carries the parcels
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from emu.cluster.transport import LENGTH_BYTES, Channel, RankError, on_this_machine
from emu.errors import BackendUnavailable

#: Seconds between two looks at whether everything has arrived: NCCL itself waits without end. Decides only time.
_PAUSE_S = 2e-4


class Nccl:
    """A channel over NCCL, beside another one.

    Attributes:
        rank: number of this process.
        ranks: how many there are.
    """

    def __init__(self, beside: Channel, timeout_s: float) -> None:
        """Initialise NCCL together with all ranks; those of a machine divide its GPUs in their order.

        Args:
            beside: carries the identifier of the job, and lengths of parcels.
            timeout_s: seconds within which parcels must arrive.

        Raises:
            BackendUnavailable: there is no CuPy with NCCL, or no GPU.
        """
        self._beside, self._timeout_s = beside, timeout_s
        self.rank, self.ranks = beside.rank, beside.ranks
        self._cupy, self._nccl = _modules()
        of_machine = on_this_machine(beside).index(self.rank)
        # more processes than GPUs share them in turn
        self._cupy.cuda.Device(of_machine % self._cupy.cuda.runtime.getDeviceCount()).use()
        own = np.array(self._nccl.get_unique_id(), np.int8).tobytes() if self.rank == 0 else b""
        # all ranks get rank 0's identifier: the others send nothing
        identifier = np.frombuffer(beside.swap([own] * self.ranks)[0], np.int8)
        self._communicator = self._nccl.NcclCommunicator(self.ranks, tuple(identifier.tolist()), self.rank)
        self._stream = self._cupy.cuda.Stream(non_blocking=True)

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Send every rank its parcel, and return what each has sent to this one; its own comes back.

        Raises:
            RankError: a rank has not answered in time.
        """
        # NCCL does not carry lengths: a receiver must know them before it posts its buffer
        lengths = self._beside.swap([len(parcel).to_bytes(LENGTH_BYTES, "little") for parcel in parcels])
        cupy, byte = self._cupy, self._nccl.NCCL_UINT8
        with self._stream:
            # buffers stay referenced until `_wait` returns: NCCL reads them later
            leaving = [cupy.asarray(np.frombuffer(parcel, np.uint8)) for parcel in parcels]
            arriving = [cupy.empty(int.from_bytes(length, "little"), np.uint8) for length in lengths]
        # a group begins all sends and receives at once; one after the other, ranks would wait for each other for ever
        self._nccl.groupStart()
        for r in range(1, self.ranks):
            to, source = (self.rank + r) % self.ranks, (self.rank - r) % self.ranks
            for move, buffer, rank in (
                (self._communicator.send, leaving[to], to),
                (self._communicator.recv, arriving[source], source),
            ):
                # both sides know the length, so both leave out an empty parcel
                if buffer.size:
                    move(buffer.data.ptr, buffer.size, byte, rank, self._stream.ptr)
        self._nccl.groupEnd()
        self._wait()
        return [parcels[r] if r == self.rank else cupy.asnumpy(buffer).tobytes() for r, buffer in enumerate(arriving)]

    def _wait(self) -> None:
        """Wait until everything has arrived."""
        event, until = self._cupy.cuda.Event(), time.monotonic() + self._timeout_s
        event.record(self._stream)
        while not event.done:
            if time.monotonic() > until:
                self._communicator.abort()
                raise RankError(
                    f"NCCL must move all parcels within {self._timeout_s:g} s, and has not, as rank {self.rank} "
                    "reports; the job ends, its last checkpoint is intact; check the links between GPUs, or raise "
                    "`cluster.timeout_s`, and start again with --resume"
                )
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Close NCCL, and wait for all ranks."""
        self._communicator.destroy()
        self._beside.close()


def _modules() -> tuple[Any, Any]:
    """Return CuPy and its NCCL."""
    try:
        cupy, nccl = import_module("cupy"), import_module("cupy.cuda.nccl")
        if not nccl.available:
            raise ImportError("a CuPy that was built without NCCL")
        if not cupy.cuda.runtime.getDeviceCount():
            raise ImportError("no GPU")
    except Exception as error:  # a driver that is missing raises an error of CuPy's own
        raise BackendUnavailable(
            f"`cluster.transport` 'nccl' must have CuPy with NCCL and a GPU for each process, got "
            f"{' '.join(str(error).split())!r}; install them with pip install -e '.[cuda12,mpi]', or set it to 'mpi'"
        ) from None
    return cupy, nccl
