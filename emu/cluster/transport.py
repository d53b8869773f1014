"""Moves bytes between nodes, which share a process or are spread over several.

Transport   from nodes to nodes; exchanges use it
Simulated   all nodes in one process
Distributed nodes of several processes (ranks), equally many on each, over a channel
Channel     from rank to rank: MPI, NCCL, or `Solo` for a single process
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from emu.errors import ConfigError, EmuError
from emu.formats.integers import as_integer

#: Bytes by sender and receiver.
Parcels = Mapping[tuple[int, int], bytes]
#: Bytes in which the length of a parcel is sent.
LENGTH_BYTES = 8


class RankError(EmuError):
    """A rank has not answered, or has sent bytes of an unexpected length; the message names it."""


class Transport(Protocol):
    """Moves bytes between nodes."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        ...

    @property
    def local(self) -> Sequence[int]:
        """The nodes that this process computes for, ascending."""
        ...

    def swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Send parcels of local nodes, and return the parcels that they receive.

        All nodes call it at the same point of the program. A node sends each other node a parcel, which may be empty.

        Args:
            parcels: bytes by (sender, receiver), from local nodes to others.
        """
        ...

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        """Return the parcels of all nodes, in the order of nodes.

        Args:
            parcels: bytes by local node.
        """
        ...


class Simulated:
    """All nodes in one process: bytes arrive as they are."""

    def __init__(self, nodes: int) -> None:
        self.nodes = as_integer("nodes", nodes, 1, error=ConfigError)
        self.local = range(self.nodes)

    def swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Return the parcels."""
        return dict(parcels)

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        """Return the parcels in order."""
        return [parcels[node] for node in self.local]


class Channel(Protocol):
    """Moves bytes between the processes of a job."""

    @property
    def rank(self) -> int:
        """Number of this process."""
        ...

    @property
    def ranks(self) -> int:
        """How many there are."""
        ...

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Send each rank a parcel, and return those that all ranks have sent to this one; its own comes back.

        All ranks call it at the same point of the program.

        Args:
            parcels: a parcel for each rank, in the order of ranks.

        Raises:
            RankError: a rank has not answered in time.
        """
        ...

    def close(self) -> None:
        """Wait for all ranks, and release the channel's resources."""
        ...


def on_this_machine(channel: Channel) -> list[int]:
    """Return the ranks whose processes run on this one's machine, its own among them, ascending; all ranks call it."""
    names = channel.swap([socket.gethostname().encode()] * channel.ranks)
    # a host name stands for a machine
    return [rank for rank, name in enumerate(names) if name == names[channel.rank]]


class Solo:
    """The channel of a single process."""

    rank, ranks = 0, 1

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Return the parcel to itself."""
        return list(parcels)

    def close(self) -> None:
        """Do nothing: there are no resources."""


class Distributed:
    """Nodes spread over several processes: each rank computes for equally many neighbouring nodes."""

    def __init__(self, nodes: int, channel: Channel) -> None:
        """Divide nodes among ranks.

        Args:
            nodes: number of nodes.
            channel: moves bytes between ranks.

        Raises:
            ConfigError: ranks do not divide nodes, or `nodes` is not an integer from 1 on.
        """
        nodes = as_integer("cluster.nodes", nodes, 1, error=ConfigError)
        if nodes % channel.ranks:
            raise ConfigError(
                f"`cluster.nodes` must be a multiple of the {channel.ranks} ranks of the job, got {nodes}; start as "
                f"many ranks as nodes, e.g. mpirun -n {nodes}"
            )
        self.nodes, self._channel, self._each = nodes, channel, nodes // channel.ranks
        self.local = self._of(channel.rank)

    def _of(self, rank: int) -> range:
        return range(rank * self._each, (rank + 1) * self._each)

    def _pairs(self, sender: int, receiver: int) -> list[tuple[int, int]]:
        """Return the (sender, receiver) pairs of the parcels that one rank sends another, in the order of sending."""
        # sender and receiver list the same pairs in the same order, so parcels need no names
        return [(i, j) for i in self._of(sender) for j in self._of(receiver) if i != j]

    def swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Send all parcels from rank to rank together; those within the process arrive as they are."""
        here, every = self._channel.rank, range(self._channel.ranks)
        packed = [joined([parcels[pair] for pair in self._pairs(here, rank)]) for rank in every]
        arrived: dict[tuple[int, int], bytes] = {}
        for rank, data in enumerate(self._channel.swap(packed)):
            pairs = self._pairs(rank, here)
            arrived |= zip(pairs, divided(data, len(pairs), rank), strict=True)
        return arrived

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        """Return the parcels of all nodes, in the order of nodes."""
        own = joined([parcels[node] for node in self.local])
        arrived = self._channel.swap([own] * self._channel.ranks)
        return [part for rank, data in enumerate(arrived) for part in divided(data, self._each, rank)]


def joined(parts: Sequence[bytes]) -> bytes:
    """Return parts one after the other, preceded by the lengths of all but the last; a single part is unchanged."""
    # the length of the last part follows from that of the whole
    lengths = b"".join(len(part).to_bytes(LENGTH_BYTES, "little") for part in parts[:-1])
    return lengths + b"".join(parts)


def divided(data: bytes, parts: int, rank: int) -> Iterator[bytes]:
    """Yield the parts that `joined` put together.

    Args:
        data: what `joined` returned.
        parts: number of parts.
        rank: the sender, for the message.

    Raises:
        RankError: the data have other lengths.
    """
    if not parts:
        return
    start = LENGTH_BYTES * (parts - 1)
    lengths = [int.from_bytes(data[i : i + LENGTH_BYTES], "little") for i in range(0, start, LENGTH_BYTES)]
    # below 0: the lengths come from a sender with other parcels
    rest = len(data) - start - sum(lengths)
    if rest < 0:
        raise RankError(
            f"{parts} parcels of rank {rank} must be {start + sum(lengths)} bytes or more, got {len(data)}; start all "
            "ranks with the same command"
        )
    for length in (*lengths, rest):
        yield data[start : start + length]
        start += length
