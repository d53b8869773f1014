"""Messages of several tensors: made, added up, as one parcel for each pair of nodes, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.transport import Transport
from emu.errors import EmuError

_DIGEST_BYTES = 8
_SENT_BYTES = 8


Array = NDArray[Any]


class ReplicaError(EmuError):
    """Nodes hold different gradients; the message names the first differing node, tensor and index."""


def encoded(codec: Codec, values: Array, memory: Memory, at: Address, *, feedback: bool) -> bytes:
    """Return values as a message.

    Args:
        codec: of their sender.
        values: (columns, rows).
        memory: what the codec remembers of them.
        at: where random choices are drawn.
        feedback: whether what the message does not say is kept for the next one, or lost.
    """
    data = codec.encode(values, memory, at).to_bytes()
    if not feedback:
        memory.residual = np.zeros_like(memory.residual)
    return data


def summed(codec: Codec, messages: Iterable[bytes], shape: tuple[int, int], dtype: type[np.floating[Any]]) -> Array:
    """Return the sum of messages, in their order.

    Args:
        codec: of their senders.
        messages: at least one.
        shape: columns and rows of each.
        dtype: of the sum.
    """
    total: Array | None = None
    for data in messages:
        message = codec.message_of(data, *shape)
        if total is None:
            total = codec.decode(message, shape[1]).astype(dtype)
        else:
            codec.decode_and_add(message, total)
    assert total is not None, "there is at least one worker"
    return total


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


def compared(transport: Transport, messages: Mapping[int, Sequence[bytes]], sent_bytes: int) -> tuple[int | None, int]:
    """Compare what nodes have, by a hash of 8 bytes each; return the first one that differs, and what all have sent.

    Args:
        transport: moves bytes.
        messages: of every local node.
        sent_bytes: that local nodes have sent since the last time.
    """
    first = transport.local[0]
    sent = {node: (sent_bytes if node == first else 0).to_bytes(_SENT_BYTES, "little") for node in messages}
    found = transport.gather({node: digest_of(held) + sent[node] for node, held in messages.items()})
    digests = [data[:-_SENT_BYTES] for data in found]
    total = sum(int.from_bytes(data[-_SENT_BYTES:], "little") for data in found)
    return next((node for node, digest in enumerate(digests) if digest != digests[0]), None), total


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
