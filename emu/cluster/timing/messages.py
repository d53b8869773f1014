"""Sizes of the messages of a striped exchange: what every node sends each owner, and what each owner sends back.

They are those of `emu.cluster.exchange`: the stripes of each tensor of a group, each by `Codec.message_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emu.cluster.codecs import Codec
from emu.cluster.layout import stripes_of

Counts = npt.NDArray[np.int64]


class Messages(NamedTuple):
    """Messages of a group of tensors, by owner: 0 of nodes that own nothing of it.

    Attributes:
        numbers: gradients that each node owns.
        up_bytes: of the message that every worker sends to it.
        down_bytes: of the message that it sends to every node.
    """

    numbers: Counts
    up_bytes: Counts
    down_bytes: Counts


def messages_of(
    shapes: Sequence[tuple[int, int]], nodes: int, owners: Sequence[int], codec: Codec, owner_codec: Codec
) -> Messages:
    """Return the messages of a group.

    Args:
        shapes: columns and rows of its tensors.
        nodes: how many.
        owners: node of every stripe, in the order of stripes; empty is each node its own.
        codec: of workers.
        owner_codec: of owners.

    Examples:
        >>> from emu.cluster.codecs import codec_of
        >>> messages_of([(10, 64)], 3, (), codec_of(1), codec_of(32))
        Messages(numbers=array([256, 192, 192]), up_bytes=array([64, 48, 48]), down_bytes=array([1024,  768,  768]))
    """
    places = tuple(owners) or tuple(range(nodes))
    found = np.zeros((3, nodes), np.int64)
    for columns, rows in shapes:
        sizes = {
            width: (width * rows, codec.message_bytes(width, rows), owner_codec.message_bytes(width, rows))
            for width in {stripe.width for stripe in stripes_of(columns, len(places))}
            if width
        }
        for owner, stripe in zip(places, stripes_of(columns, len(places)), strict=True):
            if stripe.width:
                found[:, owner] += sizes[stripe.width]
    return Messages(*found)
