"""Messages of several tensors as one parcel for each pair of nodes, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from emu.cluster.transport import Transport
from emu.errors import EmuError

_DIGEST_BYTES = 8


class ReplicaError(EmuError):
    """Nodes hold different gradients; the message names the first differing node, tensor and index."""


def swapped(
    transport: Transport, parcels: Mapping[tuple[int, int], list[bytes]]
) -> tuple[dict[tuple[int, int], bytes], int]:
    """Send messages as one parcel for each pair of nodes; return what arrives, and how many bytes local nodes sent.

    Args:
        transport: moves bytes.
        parcels: messages by (sender, receiver), in the order in which the receiver takes them; others get nothing.
    """
    whole = {
        (sender, receiver): b"".join(parcels.get((sender, receiver), ()))
        for sender in transport.local
        for receiver in range(transport.nodes)
        if sender != receiver
    }
    return transport.swap(whole), sum(map(len, whole.values()))


def cut(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the messages of a parcel.

    Raises:
        ReplicaError: it has another size than all of them together.
    """
    if len(data) != sum(sizes):
        raise ReplicaError(
            f"a parcel must have {sum(sizes)} bytes, got {len(data)}; all nodes must have the same recipe, device and "
            "version"
        )
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size


def digest_of(messages: Iterable[bytes]) -> bytes:
    """Return a hash of messages that nodes compare, 8 bytes."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for message in messages:
        digest.update(message)
    return digest.digest()
