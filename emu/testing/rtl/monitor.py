"""A monitor for cocotb: watches a unit that something else drives, and compares it with the definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import ConfigError, RtlError
from emu.testing.rtl.arrays import Operands
from emu.testing.rtl.bench import BACK_TO_BACK, MANNERS
from emu.testing.rtl.checking import compared, require_fitting
from emu.testing.rtl.kept import Kept, code_of, terms_of
from emu.testing.vectors import Description, Finding, Vectors
from emu.testing.vectors.definition import answered

if TYPE_CHECKING:
    from emu.testing.rtl.cocotb import Bench

#: Counts by cell: what a function of coverage returns.
Cells = Callable[[Vectors], Mapping[str, int]]


class Monitor:
    """Watches a unit that something else drives: operands at their handshake, results at theirs.

    Args:
        bench: of the unit; it need not be started.

    Raises:
        ConfigError: the handshake has no signals for operands and results.
    """

    def __init__(self, bench: Bench) -> None:
        # without these signals nothing says in which cycle operands or results are valid
        if bench.plan.handshake.offer is None or bench.plan.handshake.result is None or bench.plan.is_serial:
            raise ConfigError(
                f"a monitor must see operands and results in signals, got handshake {bench.plan.handshake.name}; "
                "drive the unit with Bench.run, which knows what it sends"
            )
        self.bench, self._kept = bench, Kept(bench.plan)
        # a list for each operand of the unit: the codes of its terms, vector by vector
        self._operands: list[list[list[int]]] = [[] for _ in bench.plan.inputs]

    def start(self) -> Any:
        """Watch from now on; return the task.

        The task raises an RtlError if bits of an operand are x or z when it is taken.
        """
        return self.bench.start_soon(self._watch())

    async def _watch(self) -> None:
        plan, bench = self.bench.plan, self.bench
        result = plan.result
        assert result is not None
        while True:
            await bench.edge()
            for channel, offer in enumerate(plan.offers):
                # the transfer's own edge: signals still have the values from before it
                if bench.is_active(offer) and (not plan.accepts or bench.is_active(plan.accepts[channel])):
                    for codes, row in zip(self._operands, plan.inputs, strict=True):
                        # operands with a handshake of their own arrive in different cycles; each column keeps its own
                        # order
                        if row.channel == channel:
                            word = code_of(bench.handle(row.port), "drive operands while they are offered")
                            codes.append(terms_of(row, word))
            if bench.is_active(result) and (plan.take is None or bench.is_active(plan.take)):
                # cycles are not known here: nothing says which operands a result belongs to but their order
                self._kept.add(bench.dut, 0)

    def vectors(self, description: Description) -> Vectors:
        """Return the operands that were answered, with the definition's results.

        Args:
            description: of the operation; its `count` is replaced by how many were answered.

        Raises:
            ConfigError: the description is none of the unit's, or nothing was answered.
            RtlError: there were more results than operands.
        """
        require_fitting(self.bench.plan, description)
        if self._kept.count == 0:
            raise ConfigError("a monitor must have seen a result, got none; start it before the unit is driven")
        count, taken = self._kept.count, min(map(len, self._operands))
        if taken < count:
            raise RtlError(
                f"{self.bench.plan.top} must give one result for each vector, got {count} to {taken}; start the "
                "monitor before the unit is driven"
            )
        d = description.model_copy(update={"count": count})
        # operands that are under way have no result yet
        columns = [np.array(codes[:count], np.uint64) for codes in self._operands]
        operands = tuple(column.reshape(d.shape_of(i)) for i, column in enumerate(columns[: len(self.bench.plan.ins)]))
        rbits = columns[-1].reshape(-1) if d.is_stochastic else None
        return answered(d, operands, rbits)

    def compare(self, description: Description) -> Finding | None:
        """Return the differences between what was seen and the definition; None if there are none.

        Raises:
            ConfigError: the description is none of the unit's.
            RtlError: a result was undriven, or there were more results than operands.
        """
        vectors, answers = self.vectors(description), self._kept.answers(None, (0, 0))
        operands = Operands(vectors.operands, (vectors.description.count,), are_codes=True, rbits=vectors.rbits)
        self.bench.require_answered(operands, answers, MANNERS[BACK_TO_BACK])
        return compared(self.bench.plan, vectors, answers)

    def cover(self, description: Description, cells: Cells) -> Mapping[str, int]:
        """Return what a function of coverage counts in the vectors that were seen."""
        return cells(self.vectors(description))
