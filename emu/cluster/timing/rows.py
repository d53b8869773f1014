"""Gradients of some rows in simulated time: how many rows a model finds, a node sends, and all have after an exchange.

    found      rows of the model that has touched most: all wait for it
    sent       rows of a node's message, the mean of nodes, rounded up; units of a node are taken to share none
    arrived    rows that any message has

Rows lie evenly in the stripes: of 5 in four stripes of 16 lines 1, 1, 1, 2. All lines of a stripe travel if that takes
fewer bytes, as in `emu.cluster.wires`, and then come back as well.

Source: that a mean stands for all nodes, and that rows lie evenly, is our choice: sizes need counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.cluster.codecs import Codec
from emu.cluster.layout import Stripe, stripes_of
from emu.cluster.settings import ClusterTable
from emu.cluster.wires import Places, header_bytes, lines_sent, touched_bytes


class Rows(NamedTuple):
    """Rows of one gradient; see above."""

    found: int
    sent: int
    arrived: int

    def in_stripe(self, stripe: Stripe, lines: int) -> tuple[int, int]:
        """Return how many of a stripe are sent and arrive, of a gradient of so many lines."""
        sent, there = (share_of(count, stripe, lines) for count in (self.sent, self.arrived))
        return sent, there

    @classmethod
    def of(cls, found: Sequence[int], lines: int, *, units: int = 1, arrived: int | None = None) -> Rows:
        """Return the rows of a step.

        Args:
            found: results of every model, in the order of nodes.
            lines: lines of the whole gradient.
            units: models of a node, which sends their sum.
            arrived: rows after the exchange; None assumes that no two models have a row in common.

        Examples:
            >>> Rows.of([3, 5, 4, 5], 16, arrived=9)
            Rows(found=5, sent=5, arrived=9)
            >>> Rows.of([3, 5, 4, 5], 16, units=2)
            Rows(found=5, sent=9, arrived=16)
        """
        nodes = [min(lines, sum(found[i : i + units])) for i in range(0, len(found), units)]
        there = min(lines, sum(found)) if arrived is None else arrived
        return cls(max(found), -(-sum(nodes) // len(nodes)), there)


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
        counts: lines that are sent, and that exist after the exchange; None if all travel.
        codec: codec of workers.
        owner_codec: codec of owners.
    """
    if counts is None:
        up, down = (one.message_bytes(width, numbers) for one in (codec, owner_codec))
        return Sizes(width * numbers, up, down, width * numbers)
    sent = lines_sent(codec, counts[0], width, numbers)
    there = lines_sent(owner_codec, max(sent, counts[1]), width, numbers)
    up, down = (touched_bytes(one, n, width, numbers) for one, n in ((codec, sent), (owner_codec, there)))
    return Sizes(there * numbers, up, down, sent * numbers)


def controlled_sizes(lines: int, numbers: int, counts: tuple[int, int] | None, codec: Codec, word_bytes: int) -> Sizes:
    """Return the messages of a whole gradient to its controller, which returns parameters.

    Args:
        lines: lines of the gradient.
        numbers: numbers of a line.
        counts: lines that are sent, and that come back as parameters; None where all travel.
        codec: codec of workers.
        word_bytes: bytes of the code of a parameter.
    """
    if counts is None:
        every = lines * numbers
        return Sizes(every, codec.message_bytes(lines, numbers), every * word_bytes, every)
    sent = lines_sent(codec, counts[0], lines, numbers)
    there = max(sent, counts[1])
    down = header_bytes(there, lines) + there * numbers * word_bytes
    return Sizes(there * numbers, touched_bytes(codec, sent, lines, numbers), down, sent * numbers)


def share_of(count: int, stripe: Stripe, lines: int) -> int:
    """Return how many of some lines a stripe has if they lie evenly; stripes together have them all.

    Examples:
        >>> [share_of(5, stripe, 64) for stripe in stripes_of(64, 4)]
        [1, 1, 1, 2]
    """
    return count * (stripe.start + stripe.width) // lines - count * stripe.start // lines


def arrived_rows(found: Sequence[Places], table: ClusterTable, lines: int, numbers: int) -> Places:
    """Return the rows that a gradient has after an exchange, as the wires carry it.

    Args:
        found: rows of every node, ascending.
        table: `[cluster]`.
        lines: lines of the whole gradient.
        numbers: numbers of a line.
    """
    codec, owner_codec = table.codecs()
    in_stripes = table.exchange != "controllers"
    parts: list[Places] = []
    for stripe in stripes_of(lines, len(table.layout().owners) if in_stripes else 1):
        begin, width = stripe.start, stripe.width
        mine = [rows[np.searchsorted(rows, begin) : np.searchsorted(rows, begin + width)] for rows in found]
        there = np.unique(np.concatenate(mine))
        whole = any(lines_sent(codec, len(rows), width, numbers) == width for rows in mine)
        if whole or (in_stripes and lines_sent(owner_codec, len(there), width, numbers) == width):
            there = np.arange(begin, begin + width)
        parts.append(there.astype(np.int64))
    return np.concatenate(parts)
