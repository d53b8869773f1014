"""What moves bytes between nodes, as an exchange sees it: nodes that share a process, nodes of many processes.

Transport   nodes to nodes, as an exchange sees it
Simulated   all nodes in one process
Distributed nodes of several processes (ranks), as many on each, over a channel
Channel     rank to rank: MPI, NCCL, or none for a process alone
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from emu.errors import ConfigError, EmuError
from emu.formats.integers import as_integer

#: Bytes by sender and receiver.
Parcels = Mapping[tuple[int, int], bytes]
_LENGTH_BYTES = 8


class RankError(EmuError):
    """A rank has not answered, or has sent what nobody expects; the message names it."""


class Transport(Protocol):
    """Moves bytes between nodes."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        ...

    @property
    def local(self) -> Sequence[int]:
        """Those that this process computes for, ascending."""
        ...

    def swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Send what local nodes send, and return what they receive.

        Every node calls it at the same place of the program. A node sends every other one a parcel, an empty one too.

        Args:
            parcels: bytes by (sender, receiver), from local nodes to others.
        """
        ...

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        """Return what every node gives, in the order of nodes.

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
        """Send every rank its parcel, and return what each has sent to this one; its own comes back.

        Every rank calls it at the same place of the program.

        Args:
            parcels: one for each rank, in their order.

        Raises:
            RankError: a rank has not answered in time.
        """
        ...

    def close(self) -> None:
        """Wait for all ranks, and let go of what the channel holds."""
        ...


class Solo:
    """The channel of a process alone."""

    rank, ranks = 0, 1

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Return the parcel to itself."""
        return list(parcels)

    def close(self) -> None:
        """Nothing is held."""


class Distributed:
    """Nodes of several processes: rank r computes for as many neighbouring nodes as every other rank."""

    def __init__(self, nodes: int, channel: Channel) -> None:
        """Divide nodes among ranks.

        Args:
            nodes: how many.
            channel: between ranks.

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
        """Return (sender, receiver) of nodes for what one rank sends to another one, in the order in which it lies."""
        return [(i, j) for i in self._of(sender) for j in self._of(receiver) if i != j]

    def swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Send the parcels of neighbouring nodes together; those within the process arrive as they are."""
        here, every = self._channel.rank, range(self._channel.ranks)
        packed = [joined([parcels[pair] for pair in self._pairs(here, rank)]) for rank in every]
        found: dict[tuple[int, int], bytes] = {}
        for rank, data in enumerate(self._channel.swap(packed)):
            pairs = self._pairs(rank, here)
            found |= zip(pairs, divided(data, len(pairs), rank), strict=True)
        return found

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        """Return what every node gives, in the order of nodes."""
        own = joined([parcels[node] for node in self.local])
        arrived = self._channel.swap([own] * self._channel.ranks)
        return [part for rank, data in enumerate(arrived) for part in divided(data, self._each, rank)]


def joined(parts: Sequence[bytes]) -> bytes:
    """Return parts one behind the other, the lengths of all but the last before them: of one part, the part itself."""
    lengths = b"".join(len(part).to_bytes(_LENGTH_BYTES, "little") for part in parts[:-1])
    return lengths + b"".join(parts)


def divided(data: bytes, parts: int, rank: int) -> Iterator[bytes]:
    """Yield the parts that `joined` put together.

    Args:
        data: the parts.
        parts: how many.
        rank: the sender, for the message.

    Raises:
        RankError: the data have other lengths.
    """
    if not parts:
        return
    start = _LENGTH_BYTES * (parts - 1)
    lengths = [int.from_bytes(data[i : i + _LENGTH_BYTES], "little") for i in range(0, start, _LENGTH_BYTES)]
    rest = len(data) - start - sum(lengths)
    if rest < 0:
        raise RankError(
            f"{parts} parcels of rank {rank} must be {start + sum(lengths)} bytes or more, got {len(data)}; start all "
            "ranks with the same command"
        )
    for length in (*lengths, rest):
        yield data[start : start + length]
        start += length
