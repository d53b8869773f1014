"""Sizes of the messages of a striped exchange: of each node to each owner, and of each owner to all nodes.

They are those of `emu.cluster.exchange`: the stripes of each tensor of a group, each by `Codec.message_bytes`; for a
gradient of some rows, as in `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emu.cluster.codecs import Codec
from emu.cluster.layout import blocks_of
from emu.cluster.timing.rows import Rows, Sizes, sizes_of

Counts = npt.NDArray[np.int64]


class Messages(NamedTuple):
    """Messages of a group of tensors, an entry for each node: 0 for nodes that own nothing of the group.

    Attributes:
        numbers: gradients that the node owns after the exchange.
        up_bytes: bytes of the message that each worker sends to it.
        down_bytes: bytes of the message that it sends to each node.
        sent_numbers: gradients that each worker sends to it.
    """

    numbers: Counts
    up_bytes: Counts
    down_bytes: Counts
    sent_numbers: Counts


def messages_of(
    shapes: Sequence[tuple[int, int]],
    nodes: int,
    owners: Sequence[int],
    codec: Codec,
    owner_codec: Codec,
    rows: Sequence[Rows | None] = (),
) -> Messages:
    """Return the messages of a group.

    Args:
        shapes: columns and rows of its tensors.
        nodes: number of nodes.
        owners: node of each stripe, in the order of stripes; empty if each node owns one stripe.
        codec: codec of workers.
        owner_codec: codec of owners.
        rows: for each tensor, the rows that a step has touched, or None if all of it travels; empty if all of every
            tensor travels.

    Examples:
        >>> from emu.cluster.codecs import codec_of
        >>> messages = messages_of([(10, 64)], 3, (), codec_of(1), codec_of(32))
        >>> messages.numbers.tolist(), messages.up_bytes.tolist(), messages.down_bytes.tolist()
        ([256, 192, 192], [64, 48, 48], [1024, 768, 768])
    """
    owners = tuple(owners) or tuple(range(nodes))
    # (fields of `Messages`, nodes)
    by_owner = np.zeros((len(Messages._fields), nodes), np.int64)
    for shape, touched in zip(shapes, rows or [None] * len(shapes), strict=True):
        known: dict[tuple[tuple[int, int], tuple[int, int] | None], Sizes] = {}  # blocks have one or two shapes
        for owner, block in zip(owners, blocks_of(shape, len(owners), by_lines=touched is not None), strict=True):
            # an owner without columns of a tensor gets and sends nothing of it
            if all(block.shape):
                counts = None if touched is None else touched.in_stripe(block.lines, shape[0])
                key = block.shape, counts
                if key not in known:
                    known[key] = sizes_of(*block.shape, counts, codec, owner_codec)
                # a node may own several stripes: `+=` adds them up
                by_owner[:, owner] += known[key]
    return Messages(*by_owner)
