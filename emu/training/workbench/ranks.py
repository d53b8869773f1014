"""The processes (ranks) of a run: what they exchange, and which of them writes.

    every rank     takes the same steps: its nodes' part of each batch, then the same update
    rank 0         also writes the folder and shows progress
    shared         counts, losses and decisions are those of all nodes, on every rank

A single process is the only rank of its run, and executes the same code.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from emu.cluster.launcher import started
from emu.cluster.settings import ClusterTable
from emu.cluster.sigterm import raising_on_sigterm
from emu.cluster.transport import Channel, Distributed, Simulated, Solo, Transport
from emu.errors import ConfigError

Array = NDArray[Any]
T = TypeVar("T")


class Ranks:
    """The processes that train together.

    Attributes:
        channel: channel between them.
        is_first: whether this is rank 0.
        several: whether there are others.
    """

    def __init__(self, channel: Channel | None = None) -> None:
        self.channel: Channel = channel or Solo()
        self.is_first, self.several = self.channel.rank == 0, self.channel.ranks > 1

    @classmethod
    def of(cls, table: ClusterTable | None) -> Ranks:
        """Return the processes that a launcher such as mpirun has started.

        Raises:
            ConfigError: their number does not fit the nodes.
            BackendUnavailable: there is no MPI, or no NCCL.
        """
        if (channel := _channel(table)) is None:
            return cls()
        assert table is not None
        Distributed(table.nodes, channel)  # raises ConfigError if the number of processes does not fit the nodes
        return cls(channel)

    def transport(self, nodes: int) -> Transport:
        """Return a transport between this many nodes."""
        return Distributed(nodes, self.channel) if self.several else Simulated(nodes)

    def every(self, value: T) -> list[T]:
        """Return the values of all ranks, by rank; plain data (JSON)."""
        if not self.several:
            return [value]
        # JSON writes the shortest text that gives the same float64 again, so floats arrive as
        # they are; tuples arrive as lists
        data = json.dumps(value).encode()
        return [json.loads(text) for text in self.channel.swap([data] * self.channel.ranks)]

    def agree(self, value: T) -> T:
        """Return the value of rank 0."""
        # all ranks send, though only one value counts: `swap` is a joint operation
        return self.every(value)[0]

    def collected(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of all ranks on rank 0; on another rank, its own arrays."""
        return self._gathered(arrays, to=range(1))

    def shared(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of all ranks."""
        return self._gathered(arrays, to=range(self.channel.ranks))

    def _gathered(self, arrays: Mapping[str, Array], to: range) -> dict[str, Array]:
        if not self.several:
            return dict(arrays)
        tensors: Any = import_module("safetensors.numpy")
        # reshaped, because ascontiguousarray makes an array of shape () one of shape (1,)
        own = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()}
        packed, gathered = tensors.save(own), dict(arrays)
        ranks = range(self.channel.ranks)
        # a message for each rank, in the order of ranks; an empty message still takes part
        arrived = self.channel.swap([packed if rank in to and rank != self.channel.rank else b"" for rank in ranks])
        for data in arrived:
            # names differ between ranks: each has the arrays of its own nodes
            gathered |= tensors.load(data) if data else {}
        return gathered

    def require_same(self, what: Mapping[str, str]) -> None:
        """Raise ConfigError if a rank differs from rank 0.

        Args:
            what: texts that must be the same, by name.

        Raises:
            ConfigError: names the first rank that differs, and what differs.
        """
        first, *others = self.every(dict(what))
        for rank, other in enumerate(others, 1):
            # the first difference in the order of `what`; later ones may follow from it
            name = next((name for name in first if first[name] != other.get(name)), None)
            if name is not None:
                raise ConfigError(
                    f"all ranks must have the same {name}, got {other.get(name)} on rank {rank} and {first[name]} on "
                    "rank 0; start all ranks with the same command, in the same environment"
                )

    def note_run(self, path: Path) -> None:
        """Let `run.json` at this path say why, if the ranks end early and none of them can write it."""
        if self.several:
            from emu.cluster.mpi import note_run

            note_run(path)

    def close(self) -> None:
        """Wait for all ranks, and close the channel."""
        self.channel.close()

    @contextmanager
    def ending_together(self) -> Generator[None]:
        """If a rank fails inside, end all ranks; the failing rank prints its number and the reason.

        SIGTERM raises `Terminated` inside, also in a single process.
        """
        if not self.several:
            with raising_on_sigterm():
                yield
            return
        from emu.cluster.mpi import failed

        try:
            with raising_on_sigterm():
                yield
        except BaseException as error:
            failed(error)
            raise


def _channel(table: ClusterTable | None) -> Channel | None:
    """Return the channel between processes; None if this is the only one."""
    _, ranks = started()
    if table is None:
        if ranks > 1:
            raise ConfigError(
                f"a recipe must have a [cluster] to run in several processes, got none for {ranks} processes; add "
                f"--set cluster.nodes={ranks}, or start one process"
            )
        return None
    if table.transport == "simulated" and ranks > 1:
        raise ConfigError(
            f"`cluster.transport` 'simulated' must run in one process, got {ranks} processes of a launcher; leave it "
            "out, or start one process"
        )
    if table.transport == "simulated" or (table.transport == "auto" and ranks == 1):
        return None
    if ranks == 1 and table.nodes > 1:
        raise ConfigError(
            f"`cluster.transport` {table.transport!r} must have several processes, got one; start them with mpirun -n "
            f"{table.nodes}, or set it to 'simulated'"
        )
    from emu.cluster.mpi import Mpi

    channel = Mpi(table.timeout_s)
    if table.transport == "nccl":
        from emu.cluster.nccl import Nccl

        return Nccl(channel, table.timeout_s)
    return channel
