"""How nodes that train together choose binary points.

    joint    a point follows from the counts of all nodes: all have the same, and they decide together about a redo
    own      each node has its own points of activations and errors, from its own counts; all other points are joint

`points` of `[cluster]` chooses. The agreement here is that of a node alone; `JointPoints` of `emu.training` implements
both of the above, because it has the nodes.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.datapath import StatisticsRegister


class Tensor(NamedTuple):
    """The results of a layer that share a binary point.

    Attributes:
        layer: layer whose result it is.
        role: role of the result.
        part: part of the role, as `Operation.part`, or empty; of a point that one node has for itself, `part@node`.
    """

    layer: str
    role: str
    part: str


class Agreement:
    """The agreement of a node alone: its own counts decide."""

    def key_of_point(self, tensor: Tensor, node: int) -> Tensor:
        """Return the key of the point with which a node writes a tensor.

        Args:
            tensor: the tensor, named as a node alone names it.
            node: node that writes it.
        """
        return tensor

    def total(self, key: Tensor, register: StatisticsRegister) -> StatisticsRegister:
        """Return what all nodes have counted of a tensor that each of them has just written.

        Args:
            key: key of its point.
            register: register of the node that asks; it stays as it is.
        """
        return register

    def sums_over_nodes(self, key: Tensor) -> bool:
        """Return whether `total` adds up the registers of several nodes now: simulated time then has a message."""
        return False

    def on_point_set(self, key: Tensor) -> bool:
        """Note that a point is set from the counts of an interval, whose registers may have to travel for it.

        Args:
            key: key of the point.

        Returns:
            Whether the registers of several nodes are added up for it, which simulated time then includes.
        """
        return False

    def may_move(self, key: Tensor, node: int) -> bool:
        """Return whether this node writes the point that was decided: of nodes that share a point, only the first."""
        return True
