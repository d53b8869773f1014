"""Points that nodes choose together: a redo is decided by all of them, at the same place of their passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from emu.cluster.lockstep import Lockstep
from emu.datapath import StatisticsRegister
from emu.precision.agreement import Agreement, Tensor
from emu.training.ranks import Ranks

ResultT = TypeVar("ResultT")
#: Roles that each node may have points of its own for: what no other node sees.
OWN_ROLES = ("activation", "slope", "error")


class JointPoints(Agreement):
    """Registers are summed over nodes before a point is set.

    With `own`, activations and errors are left to each node; weights, gradients and updates stay joint.
    """

    def __init__(self, ranks: Ranks, *, own: bool) -> None:
        self._ranks, self._own = ranks, own
        self._lockstep: Lockstep[StatisticsRegister] = Lockstep(self._everywhere)
        self._together = False

    def _everywhere(self, registers: list[StatisticsRegister]) -> list[StatisticsRegister]:
        """Return the registers of all ranks that have passes to run, those of each as one."""
        first, *others = registers
        here = StatisticsRegister(first.lowest, first.bins)
        for register in (first, *others):
            here.merge(register)
        every: list[dict[str, Any] | None] = self._ranks.every(here.to_dict())
        return [StatisticsRegister.from_dict(found) for found in every if found is not None]

    def run(self, passes: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
        """Return the results of passes of all nodes, which decide every operation's redo together.

        A rank without passes, or behind its own, has no registers, and goes on until that holds for all ranks.
        """
        self._together = True
        try:
            results = self._lockstep.run(passes)
        finally:
            self._together = False
        while any(found is not None for found in self._ranks.every(None)):
            pass
        return results

    def _is_own(self, tensor: Tensor) -> bool:
        return self._own and tensor.role in OWN_ROLES

    def key(self, tensor: Tensor, node: int) -> Tensor:
        """Return the node's tensor, where it has a point of its own."""
        return tensor._replace(part=f"{tensor.part}@{node}") if self._is_own(tensor) else tensor

    def total(self, tensor: Tensor, register: StatisticsRegister) -> StatisticsRegister:
        """Return the sum over nodes; of what one node alone computes for all, its own register."""
        if not self._together or self._is_own(tensor):
            return register
        total = StatisticsRegister(register.lowest, register.bins)
        for one in self._lockstep.meet(register):
            total.merge(one)
        return total

    def moves(self, tensor: Tensor, node: int) -> bool:
        """Return whether the point is the node's own, or the node is the first."""
        return not self._together or node == 0 or self._is_own(tensor)
