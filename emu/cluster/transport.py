"""What moves bytes between nodes, as an exchange sees it, and the transport of nodes that share one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

#: Bytes by sender and receiver.
Parcels = Mapping[tuple[int, int], bytes]


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
        self.nodes, self.local = nodes, range(nodes)

    def swap(self, parcels: Parcels) -> dict[tuple[int, int], bytes]:
        """Return the parcels."""
        return dict(parcels)

    def gather(self, parcels: Mapping[int, bytes]) -> list[bytes]:
        """Return the parcels in order."""
        return [parcels[node] for node in self.local]
