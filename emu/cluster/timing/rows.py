"""Gradients of some rows in simulated time: how many rows a model touches, a node sends, and an exchange returns.

    touched    rows of the model that has touched most: all wait for it
    sent       rows of a node's message, the mean of nodes, rounded up; models of a node are assumed to share no row
    arrived    rows that are in any message

Rows are assumed to be spread evenly over the stripes: 5 rows in four stripes of 16 lines are 1, 1, 1, 2. All lines of a
stripe travel if that takes fewer bytes, as in `emu.cluster.wires`, and then come back as well.

Source: that a mean stands for all nodes, and that rows are spread evenly, is our choice: so sizes follow from counts
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.cluster.codecs import Codec
from emu.cluster.layout import Stripe, stripes_of
from emu.cluster.settings import ClusterTable
from emu.cluster.wires import Indices, header_bytes, lines_sent, touched_bytes


class Rows(NamedTuple):
    """Numbers of rows of one gradient, as the module defines them."""

    touched: int
    sent: int
    arrived: int

    def in_stripe(self, stripe: Stripe, lines: int) -> tuple[int, int]:
        """Return how many rows of a stripe are sent and arrive; the whole gradient has `lines` lines."""
        return share_of(self.sent, stripe, lines), share_of(self.arrived, stripe, lines)

    @classmethod
    def of(cls, touched: Sequence[int], lines: int, *, units: int = 1, arrived: int | None = None) -> Rows:
        """Return the rows of a step.

        Args:
            touched: rows that each model has touched, in the order of nodes.
            lines: lines of the whole gradient.
            units: models of a node, which sends their sum.
            arrived: rows after the exchange; None if no two models are assumed to have a row in common.

        Examples:
            >>> Rows.of([3, 5, 4, 5], 16, arrived=9)
            Rows(touched=5, sent=5, arrived=9)
            >>> Rows.of([3, 5, 4, 5], 16, units=2)
            Rows(touched=5, sent=9, arrived=16)
        """
        # a node sends the sum of its models' gradients, at most all lines
        nodes = [min(lines, sum(touched[i : i + units])) for i in range(0, len(touched), units)]
        arrived = min(lines, sum(touched)) if arrived is None else arrived
        return cls(max(touched), -(-sum(nodes) // len(nodes)), arrived)


class Sizes(NamedTuple):
    """Messages of one stripe of a gradient.

    Attributes:
        numbers: gradients that exist after the exchange.
        up_bytes: bytes of a worker's message.
        down_bytes: bytes of the owner's message.
        sent_numbers: gradients of a worker's message.
    """

    numbers: int
    up_bytes: int
    down_bytes: int
    sent_numbers: int


def sizes_of(width: int, numbers: int, counts: tuple[int, int] | None, codec: Codec, owner_codec: Codec) -> Sizes:
    """Return the messages of a stripe.

    Args:
        width: lines of the stripe.
        numbers: numbers of a line.
        counts: lines that are sent, and lines after the exchange; None if all travel.
        codec: codec of workers.
        owner_codec: codec of owners.
    """
    if counts is None:
        up, down = codec.message_bytes(width, numbers), owner_codec.message_bytes(width, numbers)
        return Sizes(width * numbers, up, down, width * numbers)
    sent = lines_sent(codec, counts[0], width, numbers)
    # a line that any worker sends comes back, even if all of a stripe is sent because it is shorter
    returned = lines_sent(owner_codec, max(sent, counts[1]), width, numbers)
    up = touched_bytes(codec, sent, width, numbers)
    down = touched_bytes(owner_codec, returned, width, numbers)
    return Sizes(returned * numbers, up, down, sent * numbers)


def controlled_sizes(lines: int, numbers: int, counts: tuple[int, int] | None, codec: Codec, word_bytes: int) -> Sizes:
    """Return the messages of a whole gradient to its controller, which returns parameters.

    Args:
        lines: lines of the gradient.
        numbers: numbers of a line.
        counts: lines that are sent, and that come back as parameters; None if all travel.
        codec: codec of workers.
        word_bytes: bytes of the code of a parameter.
    """
    if counts is None:
        every = lines * numbers
        return Sizes(every, codec.message_bytes(lines, numbers), every * word_bytes, every)
    sent = lines_sent(codec, counts[0], lines, numbers)
    returned = max(sent, counts[1])
    down = header_bytes(returned, lines) + returned * numbers * word_bytes
    return Sizes(returned * numbers, touched_bytes(codec, sent, lines, numbers), down, sent * numbers)


def share_of(count: int, stripe: Stripe, lines: int) -> int:
    """Return how many of `count` lines a stripe has if they are spread evenly; all stripes together have `count`.

    Examples:
        >>> [share_of(5, stripe, 64) for stripe in stripes_of(64, 4)]
        [1, 1, 1, 2]
    """
    # difference of floors: stripes that follow each other share no line and leave none out
    return count * (stripe.start + stripe.width) // lines - count * stripe.start // lines


def arrived_rows(touched: Sequence[Indices], table: ClusterTable, lines: int, numbers: int) -> Indices:
    """Return the rows that a gradient has after an exchange, as the wires carry it.

    Args:
        touched: rows of each node, ascending.
        table: `[cluster]`.
        lines: lines of the whole gradient.
        numbers: numbers of a line.
    """
    codec, owner_codec = table.codecs()
    in_stripes, layout = table.exchange != "controllers", table.layout()
    union, parts = np.unique(np.concatenate(touched)), list[Indices]()
    stripes = stripes_of(lines, len(layout.owners) if in_stripes else 1)
    bounds = np.array([0, *(stripe.start + stripe.width for stripe in stripes)])
    # `rows` ascend: the positions of the bounds in them give how many lie in each stripe
    counts = np.diff([np.searchsorted(rows, bounds) for rows in touched], axis=1)  # of each worker in each stripe
    ends, workers = np.searchsorted(union, bounds), np.array(layout.workers)
    for number, (begin, width) in enumerate(stripes):
        arrived = union[ends[number] : ends[number + 1]]
        encoded = counts[:, number]
        # an owner's own lines are added as they are: no message of them can become a whole one
        if in_stripes and not layout.quantise_own:
            encoded = encoded[workers != layout.owners[number]]
        # if one worker sends all lines of a stripe, all lines arrive
        whole = any(lines_sent(codec, int(count), width, numbers) == width for count in np.unique(encoded))
        if whole or (in_stripes and lines_sent(owner_codec, len(arrived), width, numbers) == width):
            arrived = np.arange(begin, begin + width)
        parts.append(arrived.astype(np.int64))
    return np.concatenate(parts)
