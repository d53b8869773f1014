"""Which devices of a cluster belong together: to one model, to one node, to one exchange.

device d: part d % M of replica d // M            model striping: M neighbours share a model
units neighbouring replicas are a node            their gradients are added within the node
first replicas of all nodes, of one part          exchange gradients with each other, in rounds
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class Teams:
    """Devices by their roles.

    Attributes:
        count: number of nodes that exchange gradients.
        members: number of replicas of a node.
        parts: M, devices that share a model.
        part: index of each device among those that share its model.
        team: node of each device.
        leads: whether each device belongs to its node's first replica.
        computes: whether each device computes gradients.
        contributions: number of nodes that compute gradients.
        rounds: rounds of a phase of an exchange.
    """

    def __init__(
        self, nodes: int, units: int = 1, parts: int = 1, *, rounds: int | None = None, workers: Collection[int] = ()
    ) -> None:
        """Divide devices.

        Args:
            nodes: nodes that exchange gradients.
            units: replicas of each.
            parts: devices that share a model.
            rounds: rounds of a phase, if these nodes stand for more; None is one less than the nodes.
            workers: nodes that compute gradients; empty is all.
        """
        self.count, self.members, self.parts = nodes, units, parts
        self.rounds = nodes - 1 if rounds is None else rounds
        # devices are numbered node by node, in a node replica by replica, in a replica part by part
        every = np.arange(nodes * units * parts)
        self.part, replica = every % parts, every // parts
        self.team = replica // units
        self.leads = replica % units == 0
        self.computes = np.isin(self.team, list(workers)) if workers else np.ones(len(every), np.bool_)
        # not `nodes`: two nodes may stand for rounds + 1
        self.contributions = len(workers) or self.rounds + 1

    @property
    def nodes_compute(self) -> npt.NDArray[np.bool_]:
        """Whether each node computes gradients."""
        # the first device of each node
        return self.computes[:: self.members * self.parts]

    @property
    def replicas(self) -> int:
        """Models that are trained side by side, each on its part of the batch."""
        return self.contributions * self.members

    @property
    def exchanges(self) -> bool:
        """Whether gradients travel: to another node, or to another replica of their own."""
        return self.count * self.members > 1

    def standing_for_all(self) -> Teams:
        """Return two nodes that exchange in as many rounds as all nodes do; all nodes must be alike."""
        return Teams(2, self.members, self.parts, rounds=self.rounds)

    @cached_property
    def receivers(self) -> Numbers:
        """The device that each device sends to in each round of an exchange, (rounds, devices); -1 for none."""
        # 1, 2, ..., count - 1, and again from 1 if these nodes stand for more
        distance = np.arange(self.rounds)[:, None] % max(self.count - 1, 1) + 1
        # the receiver is the device of the same part in the first replica of that node
        leader = (self.team + distance) % self.count * self.members * self.parts + self.part
        return np.where(self.leads, leader, -1)

    def to_leader(self) -> Iterator[Numbers]:
        """Yield receivers by device, for each replica of a node but the first, to which it sends its gradients."""
        for member in range(1, self.members):
            sends = self.computes & (np.arange(len(self.part)) // self.parts % self.members == member)
            # the node's first replica is `member` replicas before
            yield np.where(sends, np.arange(len(self.part)) - member * self.parts, -1)

    def from_leader(self) -> Iterator[Numbers]:
        """Yield receivers by device, for each replica of a node but the first, which sends it the results.

        Replicas that compute no gradients receive results all the same: they update their parameters, too.
        """
        for member in range(1, self.members):
            yield np.where(self.leads, np.arange(len(self.part)) + member * self.parts, -1)

    def neighbours(self) -> Iterator[Numbers]:
        """Yield receivers by device, once for each other device of the same model."""
        every = np.arange(len(self.part))
        for distance in range(1, self.parts):
            # around the devices of the same model: part p sends to parts p + 1, p + 2, ...
            to = every - self.part + (self.part + distance) % self.parts
            yield np.where(self.computes, to, -1)
