"""Messages of several tensors joined to one parcel for each pair of nodes, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from emu.cluster.transport import Transport
from emu.errors import EmuError

#: Messages by (sender, receiver), in the order in which the receiver takes them.
Parcels: TypeAlias = dict[tuple[int, int], list[bytes]]

_DIGEST_BYTES = 8
_SENT_BYTES = 8


class ReplicaError(EmuError):
    """Nodes have different gradients or parameters, or a parcel has a wrong size; the message says where."""


def swapped(transport: Transport, parcels: Parcels) -> tuple[dict[tuple[int, int], bytes], int]:
    """Send messages as one parcel for each pair of nodes; return what arrives, and how many bytes local nodes sent.

    Args:
        transport: moves bytes.
        parcels: messages; a pair of nodes that is missing exchanges nothing.
    """
    # also an empty parcel for each pair: a transport expects one from every node to every other
    whole = {
        (sender, receiver): b"".join(parcels.get((sender, receiver), ()))
        for sender in transport.local
        for receiver in range(transport.nodes)
        if sender != receiver
    }
    return transport.swap(whole), sum(map(len, whole.values()))


def compared(transport: Transport, messages: Mapping[int, Sequence[bytes]], sent_bytes: int) -> tuple[int | None, int]:
    """Compare messages of nodes by hashes; return the first node that differs from node 0, and what all have sent.

    Args:
        transport: moves bytes.
        messages: messages of every local node.
        sent_bytes: bytes that local nodes have sent since the last time.
    """
    first = transport.local[0]
    # only the first local node names the bytes of its process, so each process counts once
    sent = {node: (sent_bytes if node == first else 0).to_bytes(_SENT_BYTES, "little") for node in messages}
    gathered = transport.gather({node: digest_of(of_node) + sent[node] for node, of_node in messages.items()})
    digests = [data[:-_SENT_BYTES] for data in gathered]
    total = sum(int.from_bytes(data[-_SENT_BYTES:], "little") for data in gathered)
    return next((node for node, digest in enumerate(digests) if digest != digests[0]), None), total


def cut(data: bytes, sizes: Sequence[int | Callable[[memoryview], int]]) -> Iterator[bytes]:
    """Yield the messages of a parcel.

    Args:
        data: the parcel.
        sizes: for each message its size in bytes, or a function that returns it from the rest of the parcel.

    Raises:
        ReplicaError: the parcel has another size than all messages together.
    """
    start, parcel, messages = 0, memoryview(data), list[bytes]()
    for size in sizes:
        # a size may depend on the header of the message itself, so each is known only when the one before it is cut
        end = start + (size(parcel[start:]) if callable(size) else size)
        messages.append(data[start:end])
        start = end
    # checked before anything is yielded: a parcel of another recipe must not reach a decoder
    if start != len(data):
        raise ReplicaError(
            f"a parcel must have {start} bytes, got {len(data)}; all nodes must have the same recipe, device and "
            "version"
        )
    yield from messages


def digest_of(messages: Iterable[bytes]) -> bytes:
    """Return the hash of messages that nodes compare, 8 bytes: two differ undetected once in 2**64."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for message in messages:
        digest.update(message)
    return digest.digest()
