"""How nodes that train together decide where points stand.

    joint    a point follows from the counts of all nodes: it is the same everywhere, and all nodes decide a redo
    own      activations and errors have a point on every node, from its own counts

A node alone is the simplest agreement. The code that has the nodes gives the others.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.datapath import StatisticsRegister


class Tensor(NamedTuple):
    """What has a point of its own.

    Attributes:
        layer: layer whose result it is.
        role: role of the result.
        part: part of the role, if one operation writes one of several; after an @ the node, if it has its own point.
    """

    layer: str
    role: str
    part: str


class Agreement:
    """A node alone: what it counts is all there is."""

    def key(self, tensor: Tensor, node: int) -> Tensor:
        """Return the tensor whose point counts for a node.

        Args:
            tensor: as one node alone has it.
            node: node that writes it.
        """
        return tensor

    def total(self, tensor: Tensor, register: StatisticsRegister) -> StatisticsRegister:
        """Return what all nodes have counted of a tensor that each of them has just written.

        Args:
            tensor: a key.
            register: register of the node that asks; it stays as it is.
        """
        return register

    def adds_up(self, tensor: Tensor) -> bool:
        """Return whether `total` adds up registers of several nodes."""
        return False

    def set_point(self, tensor: Tensor) -> bool:
        """Take notice that a point is set from the counts of an interval.

        Args:
            tensor: a key.

        Returns:
            Whether registers of several nodes are added up for it.
        """
        return False

    def moves(self, tensor: Tensor, node: int) -> bool:
        """Return whether a node moves a tensor's point; where all have the same one, a single node does."""
        return True
