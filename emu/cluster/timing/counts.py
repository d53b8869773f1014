"""How long the counts of nodes travel when a binary point is set from the counts of all nodes.

    node 1 ──register──►              ──sum──► node 1
    node 2 ──register──►  first node  ──sum──► node 2
    ...                               ──sum──► ...

The port of the first node takes one message after the other, in and then out. Nothing else is on the fabric meanwhile,
because a node waits for the sum before it goes on; that is our choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.hardware import Fabric, Traffic


class Counts(NamedTuple):
    """What adding up the registers of all nodes takes.

    Attributes:
        duration_ps: how long all nodes wait.
        size_bytes: bytes that travel.
    """

    duration_ps: int = 0
    size_bytes: int = 0


#: No registers are added up.
NO_COUNTS = Counts()


def counts_of(fabric: Fabric, devices: Sequence[int], size_bytes: int) -> Counts:
    """Return what registers take to the first node, and their sum from receivers to all others.

    Args:
        fabric: fabric that connects the nodes.
        devices: numbers of the devices that send, one for each node; the first one adds up.
        size_bytes: size of a register.
    """
    first, *others = devices
    if not others:
        return NO_COUNTS
    # an entry for each device of the fabric; -1 sends nothing
    traffic, receivers = Traffic(fabric), np.full(fabric.processors, -1)
    # all registers at once: the port of the first node takes them one after the other
    receivers[others] = first
    added_ps = int(traffic.send(np.zeros_like(receivers), receivers, size_bytes).arrived_ps.max())
    # a round for each receiver, because a device sends one message in a round
    back_to = np.full((len(others), fabric.processors), -1)
    back_to[:, first] = others
    returned_ps = int(traffic.rounds(np.int64(added_ps), back_to, size_bytes).arrived_ps.max())
    return Counts(returned_ps, 2 * len(others) * size_bytes)
