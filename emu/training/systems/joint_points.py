"""Points that nodes choose together: all of them decide a redo, at the same place of their passes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from typing_extensions import override

from emu.cluster.lockstep import Lockstep
from emu.datapath import StatisticsRegister
from emu.precision.agreement import Agreement, Tensor
from emu.training.workbench.ranks import Ranks

ResultT = TypeVar("ResultT")
#: Roles that each node may have points of its own for: what no other node sees.
OWN_ROLES = ("activation", "slope", "error")


class JointPoints(Agreement):
    """Registers are summed over nodes before a point is set.

    With `own`, activations and errors are left to each node; weights, gradients and updates stay joint. What nodes
    compute alike, as an update, is counted alike as well: no register of it travels.

    Attributes:
        nodes: nodes that share the step.
        count_bytes: bytes of registers that nodes have sent to the first one, and of the sums that it has sent back.
    """

    def __init__(self, ranks: Ranks, *, own: bool, register_bytes: int) -> None:
        """Begin with nothing sent.

        Args:
            ranks: the processes that train together.
            own: whether each node has its own points of `OWN_ROLES`.
            register_bytes: bytes of a register that travels.
        """
        self.nodes, self.count_bytes = 1, 0
        self._ranks, self._own, self._register_bytes = ranks, own, register_bytes
        self._apart: set[Tensor] = set()
        self._in_passes = False
        self._lockstep: Lockstep[StatisticsRegister] = Lockstep(self._everywhere)
        self._together = False

    def _everywhere(self, registers: list[StatisticsRegister]) -> list[StatisticsRegister]:
        """Return the registers of all ranks that have passes to run, those of each as one."""
        first, *others = registers
        of_rank = StatisticsRegister(first.lowest, first.bins)
        for register in (first, *others):
            of_rank.merge(register)
        return self._met(of_rank)

    def _met(self, register: StatisticsRegister | None) -> list[StatisticsRegister]:
        """Return the registers of all ranks that have one, and charge their sum; none after the last operation."""
        of_rank = None if register is None else register.to_dict()
        every: list[dict[str, Any] | None] = self._ranks.every(of_rank)
        registers = [StatisticsRegister.from_dict(data) for data in every if data is not None]
        if registers:
            self._charge()
        return registers

    def _charge(self) -> None:
        """Count the register of every node but the first on its way there, and the sum on its way back."""
        self.count_bytes += 2 * (self.nodes - 1) * self._register_bytes

    @contextmanager
    def passes(self, flush: Callable[[], None]) -> Generator[None]:
        """Remember all tensors that nodes write meanwhile, each from its own examples.

        Args:
            flush: takes counts that runners hold by tensor into those of the interval.
        """
        flush()
        self._in_passes, known = True, frozenset(self._apart)
        try:
            yield
            flush()
        finally:
            self._in_passes = False
        for rank in self._ranks.every([list(tensor) for tensor in sorted(self._apart - known)]):
            self._apart.update(Tensor(*names) for names in rank)

    def run(self, passes: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
        """Return the results of passes of all nodes, which decide every operation's redo together.

        A rank without passes, or after its own, has no registers, and goes on until that holds for all ranks.
        """
        self._together = True
        try:
            results = self._lockstep.run(passes)
        finally:
            self._together = False
        while self._met(None):
            pass
        return results

    def _is_own(self, tensor: Tensor) -> bool:
        return self._own and tensor.role in OWN_ROLES

    @override
    def key(self, tensor: Tensor, node: int) -> Tensor:
        """Return the tensor that the point of a node's tensor belongs to: the node's own, or that of all nodes."""
        if self._is_own(tensor):
            return tensor._replace(part=f"{tensor.part}@{node}")
        if self._in_passes:
            self._apart.add(tensor)
        return tensor

    @override
    def total(self, tensor: Tensor, register: StatisticsRegister) -> StatisticsRegister:
        """Return the sum over nodes; of what one node alone computes for all, its own register."""
        if not self._together or self._is_own(tensor):
            return register
        total = StatisticsRegister(register.lowest, register.bins)
        for of_nodes in self._lockstep.meet(register):
            total.merge(of_nodes)
        return total

    @override
    def adds_up(self, tensor: Tensor) -> bool:
        """Return whether several nodes have written the tensor, each in its pass, and none has its own point."""
        return self._together and self.nodes > 1 and not self._is_own(tensor)

    @override
    def set_point(self, tensor: Tensor) -> bool:
        """Charge the sum of a tensor's registers, where nodes have counted apart for one point."""
        if self.nodes == 1 or tensor not in self._apart:
            return False
        self._charge()
        return True

    @override
    def moves(self, tensor: Tensor, node: int) -> bool:
        """Return whether the point is the node's own, or the node is the first."""
        return not self._together or node == 0 or self._is_own(tensor)
