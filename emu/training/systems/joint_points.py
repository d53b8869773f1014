"""Binary points that nodes choose together: at each operation of their passes, all nodes redo it or none does.

    node's register ──► sum over the nodes of this process ──► sum over all processes ──► one decision for all nodes

Passes of one process run in lockstep (`emu.cluster.lockstep`): each waits at the same operation for the registers of
the others.
"""

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
#: Roles for which each node may have points of its own: their tensors never leave the node.
OWN_ROLES = ("activation", "slope", "error")


class JointPoints(Agreement):
    """Adds up the registers of all nodes before a point is set.

    With `own`, each node sets the points of its activations and errors; weights, gradients and updates stay joint.
    Nodes compute updates alike, so they count them alike: those registers need not travel.

    Attributes:
        nodes: number of nodes that share the step.
        count_bytes: bytes of registers that nodes have sent to the first node, and of the sums that it has sent back.
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
        # tensors that nodes write from their own examples: registers of these must travel
        self._counted_per_node: set[Tensor] = set()
        # only inside `passes`; updates are computed by one node for all
        self._in_passes = False
        self._lockstep: Lockstep[StatisticsRegister] = Lockstep(self._of_ranks)
        self._in_lockstep = False

    def _of_ranks(self, registers: list[StatisticsRegister]) -> list[StatisticsRegister]:
        """Return one register for each rank that still runs passes: the sum of its nodes' registers.

        Args:
            registers: registers of this rank's nodes.
        """
        return self._swap(_sum_of(registers))

    def _swap(self, register: StatisticsRegister | None) -> list[StatisticsRegister]:
        """Give the other ranks this rank's register, and return those of all ranks that have one.

        Args:
            register: sum over this rank's nodes; None if this rank runs no passes, or has finished them.
        """
        of_rank = None if register is None else register.to_dict()
        every: list[dict[str, Any] | None] = self._ranks.every(of_rank)
        registers = [StatisticsRegister.from_dict(data) for data in every if data is not None]
        # None from every rank: all have finished their passes, and nothing was decided
        if registers:
            self._charge()
        return registers

    def _charge(self) -> None:
        """Count the bytes of one joint decision: every node but the first sends a register, and gets the sum back."""
        # the first node adds up: its own register does not travel
        self.count_bytes += 2 * (self.nodes - 1) * self._register_bytes

    @contextmanager
    def passes(self, flush: Callable[[], None]) -> Generator[None]:
        """Remember which tensors nodes write inside, each from its own examples.

        Args:
            flush: adds the counts that runners keep by tensor to those of the interval.
        """
        # counts of operations before the block must not be taken for counts inside
        flush()
        self._in_passes, known = True, frozenset(self._counted_per_node)
        try:
            yield
            flush()
        finally:
            self._in_passes = False
        # a rank may have written tensors that another has not, such as a rank without workers
        for rank in self._ranks.every([list(tensor) for tensor in sorted(self._counted_per_node - known)]):
            self._counted_per_node.update(Tensor(*names) for names in rank)

    def run(self, passes: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
        """Run passes in which all nodes decide together whether an operation runs again; return their results.

        Args:
            passes: one for each node of this rank; perhaps none.
        """
        self._in_lockstep = True
        try:
            results = self._lockstep.run(passes)
        finally:
            self._in_lockstep = False
        # other ranks may still have operations to decide, and need this one to take part in every swap
        # until every rank gives None; each swap answers one decision of the ranks that still work
        while self._swap(None):
            pass
        return results

    def _is_own(self, tensor: Tensor) -> bool:
        return self._own and tensor.role in OWN_ROLES

    @override
    def key_of_point(self, tensor: Tensor, node: int) -> Tensor:
        """Return the key of the point with which a node writes a tensor: its own, or the one of all nodes."""
        if self._is_own(tensor):
            # points of a node's own are kept beside those of the others
            return tensor._replace(part=f"{tensor.part}@{node}")
        if self._in_passes:
            self._counted_per_node.add(tensor)
        return tensor

    @override
    def total(self, key: Tensor, register: StatisticsRegister) -> StatisticsRegister:
        """Return the sum of the registers of all nodes.

        A node's own register is returned if the point is its own, or outside of `run`: there one node computes for all.
        """
        if not self._in_lockstep or self._is_own(key):
            return register
        # one register for each rank, see `_of_ranks`
        return _sum_of(self._lockstep.gather(register))

    @override
    def sums_over_nodes(self, key: Tensor) -> bool:
        return self._in_lockstep and self.nodes > 1 and not self._is_own(key)

    @override
    def on_point_set(self, key: Tensor) -> bool:
        """Charge the sum of registers, if several nodes have counted for this point."""
        # nodes count tensors of updates alike: nothing is added up for them
        if self.nodes == 1 or key not in self._counted_per_node:
            return False
        self._charge()
        return True

    @override
    def may_move(self, key: Tensor, node: int) -> bool:
        """Return whether the point is the node's own, or the node is the first of those that share it."""
        return not self._in_lockstep or node == 0 or self._is_own(key)


def _sum_of(registers: Sequence[StatisticsRegister]) -> StatisticsRegister:
    # a new register: those of the nodes go on counting
    total = StatisticsRegister(registers[0].lowest, registers[0].bins)
    for register in registers:
        total.merge(register)
    return total
