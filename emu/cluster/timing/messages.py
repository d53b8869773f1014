"""Sizes of the messages of a striped exchange: what every node sends each owner, and what each owner sends back.

They are those of `emu.cluster.exchange`: the stripes of each tensor of a group, each by `Codec.message_bytes`; for a
gradient of some rows, as in `rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emu.cluster.codecs import Codec
from emu.cluster.layout import stripes_of
from emu.cluster.timing.rows import Rows, Sizes, sizes_of

Counts = npt.NDArray[np.int64]


class Messages(NamedTuple):
    """Messages of a group of tensors, by owner: 0 of nodes that own nothing of it.

    Attributes:
        numbers: gradients that each node owns, of those that exist after the exchange.
        up_bytes: bytes of the message that every worker sends to it.
        down_bytes: bytes of the message that it sends to every node.
        sent_numbers: gradients that every worker sends to it.
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
        nodes: how many.
        owners: node of every stripe, in the order of stripes; empty is each node its own.
        codec: codec of workers.
        owner_codec: codec of owners.
        rows: for each tensor, what a step has touched; None where all of it travels, and empty where that holds for
            all.

    Examples:
        >>> from emu.cluster.codecs import codec_of
        >>> found = messages_of([(10, 64)], 3, (), codec_of(1), codec_of(32))
        >>> found.numbers.tolist(), found.up_bytes.tolist(), found.down_bytes.tolist()
        ([256, 192, 192], [64, 48, 48], [1024, 768, 768])
    """
    places = tuple(owners) or tuple(range(nodes))
    found = np.zeros((4, nodes), np.int64)
    for (columns, numbers), some in zip(shapes, rows or [None] * len(shapes), strict=True):
        known: dict[tuple[int, tuple[int, int] | None], Sizes] = {}
        for owner, stripe in zip(places, stripes_of(columns, len(places)), strict=True):
            if stripe.width:
                at = (stripe.width, None if some is None else some.in_stripe(stripe, columns))
                if at not in known:
                    known[at] = sizes_of(at[0], numbers, at[1], codec, owner_codec)
                found[:, owner] += known[at]
    return Messages(*found)
