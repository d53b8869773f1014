"""Which devices of a cluster belong together: to one model, to one node, to one exchange.

device d of node d // devices                     the fabric's numbering
part d % M of replica d // M                      model striping: M neighbours share a model
replicas of one node are a team                   their gradients are added within the node
first replicas of all teams, of one part          exchange gradients with each other, in rounds
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from emu.errors import ConfigError

Numbers = npt.NDArray[np.int64]


class Teams:
    """Devices by their roles.

    Attributes:
        nodes: how many.
        devices: of each node.
        parts: M, devices that share a model.
        count: teams.
        members: replicas of a team.
        part: of each device, its place among those that share its model.
        team: of each device.
        leads: whether a device is of its team's first replica.
        rounds: of a phase of an exchange.
    """

    def __init__(self, nodes: int, devices: int = 1, parts: int = 1, *, rounds: int | None = None) -> None:
        """Divide devices.

        Args:
            nodes: how many.
            devices: of each node.
            parts: that share a model.
            rounds: of a phase, where two teams stand for more; None is one less than there are teams.

        Raises:
            ConfigError: models cannot be divided evenly over nodes or within them.
        """
        if parts < 1 or (nodes * devices) % parts or (devices % parts and parts % devices):
            raise ConfigError(
                f"`model_parallel` must divide the devices of the cluster, and those of a node or whole nodes, got "
                f"{parts} for {nodes} nodes x {devices} devices; choose 1, or such a number"
            )
        self.nodes, self.devices, self.parts = nodes, devices, parts
        self.members = max(devices // parts, 1)
        self.count = nodes * devices // (parts * self.members)
        self.rounds = self.count - 1 if rounds is None else rounds
        every = np.arange(nodes * devices)
        self.part, replica = every % parts, every // parts
        self.team = replica // self.members
        self.leads = replica % self.members == 0

    @property
    def replicas(self) -> int:
        """Models that are trained side by side, each on its part of the batch."""
        return (self.rounds + 1) * self.members

    def standing_for_all(self) -> Teams:
        """Return two teams that go through as many rounds with each other as all do: where all are alike."""
        return Teams(2, self.devices, self.parts, rounds=self.rounds)

    @cached_property
    def receivers(self) -> Numbers:
        """Device that each one sends to in each round of an exchange, (rounds, devices); -1 of none."""
        distance = np.arange(self.rounds)[:, None] % max(self.count - 1, 1) + 1
        leader = (self.team + distance) % self.count * self.members * self.parts + self.part
        return np.where(self.leads, leader, -1)

    def to_leader(self) -> Iterator[Numbers]:
        """Yield who sends to whom, once for each further replica of a team: it to the first one."""
        for member in range(1, self.members):
            sends = np.arange(len(self.part)) // self.parts % self.members == member
            yield np.where(sends, np.arange(len(self.part)) - member * self.parts, -1)

    def from_leader(self) -> Iterator[Numbers]:
        """Yield who sends to whom, once for each further replica of a team: the first one to it."""
        for member in range(1, self.members):
            yield np.where(self.leads, np.arange(len(self.part)) + member * self.parts, -1)

    def neighbours(self) -> Iterator[Numbers]:
        """Yield who sends to whom, once for each other device of the same model."""
        every = np.arange(len(self.part))
        for distance in range(1, self.parts):
            yield every - self.part + (self.part + distance) % self.parts
