"""Which devices of a cluster belong together: to one model, to one node, to one exchange.

part d % M of replica d // M                      model striping: M neighbours share a model
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
        count: nodes that exchange gradients.
        members: replicas of a node.
        parts: M, devices that share a model.
        part: place of each device among those that share its model.
        team: node of each device.
        leads: whether a device is of its node's first replica.
        computes: whether a device computes gradients.
        contributions: nodes that do.
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
            rounds: rounds of a phase, where two nodes stand for more; None is one less than there are.
            workers: nodes that compute gradients; empty is all.
        """
        self.count, self.members, self.parts = nodes, units, parts
        self.rounds = nodes - 1 if rounds is None else rounds
        every = np.arange(nodes * units * parts)
        self.part, replica = every % parts, every // parts
        self.team = replica // units
        self.leads = replica % units == 0
        self.computes = np.isin(self.team, list(workers)) if workers else np.ones(len(every), np.bool_)
        self.contributions = len(workers) or self.rounds + 1

    @property
    def replicas(self) -> int:
        """Models that are trained side by side, each on its part of the batch."""
        return self.contributions * self.members

    @property
    def exchanges(self) -> bool:
        """Whether a gradient travels at all: to another node, or to another replica of its own."""
        return self.count * self.members > 1

    def standing_for_all(self) -> Teams:
        """Return two nodes that go through as many rounds with each other as all do: where all are alike."""
        return Teams(2, self.members, self.parts, rounds=self.rounds)

    @cached_property
    def receivers(self) -> Numbers:
        """Device that each one sends to in each round of an exchange, (rounds, devices); -1 of none."""
        distance = np.arange(self.rounds)[:, None] % max(self.count - 1, 1) + 1
        leader = (self.team + distance) % self.count * self.members * self.parts + self.part
        return np.where(self.leads, leader, -1)

    def to_leader(self) -> Iterator[Numbers]:
        """Yield who sends to whom, once for each further replica of a node: it to the first one."""
        for member in range(1, self.members):
            sends = self.computes & (np.arange(len(self.part)) // self.parts % self.members == member)
            yield np.where(sends, np.arange(len(self.part)) - member * self.parts, -1)

    def from_leader(self) -> Iterator[Numbers]:
        """Yield who sends to whom, once for each further replica of a node: the first one to it."""
        for member in range(1, self.members):
            yield np.where(self.leads, np.arange(len(self.part)) + member * self.parts, -1)

    def neighbours(self) -> Iterator[Numbers]:
        """Yield who sends to whom, once for each other device of the same model."""
        every = np.arange(len(self.part))
        for distance in range(1, self.parts):
            to = every - self.part + (self.part + distance) % self.parts
            yield np.where(self.computes, to, -1)
