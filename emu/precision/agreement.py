"""How nodes that train together choose binary points.

    joint    a point follows from the counts of all nodes: all have the same, and they decide together about a redo
    own      each node has its own points of activations and errors, from its own counts

The agreement here is that of a node alone; `emu.training` implements the others, because it has the nodes.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.datapath import StatisticsRegister


class Tensor(NamedTuple):
    """The results of a layer that share a binary point.

    Attributes:
        layer: layer whose result it is.
        role: role of the result.
        part: part of the role, if an operation writes one of several; after an @ the node, if it has its own point.
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
        """Return whether `total` adds up the registers of several nodes."""
        return False

    def on_point_set(self, key: Tensor) -> bool:
        """Called when a point is set from the counts of an interval.

        Args:
            key: key of the point.

        Returns:
            Whether the registers of several nodes are added up for it.
        """
        return False

    def may_move(self, key: Tensor, node: int) -> bool:
        """Return whether a node moves the point. Nodes that share a point have one node that moves it."""
        return True
