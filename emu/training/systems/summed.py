"""Counts of several processes, added up, so that registers, flags, points and demands are those of all nodes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

from emu.hardware import Demand
from emu.precision import CounterTable
from emu.training.workbench import Workbench
from emu.training.workbench.model import StepRunner


class Summed:
    """Adds up what the nodes of every process count while each works on its own parts."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    @contextmanager
    def over(self, runner: StepRunner) -> Generator[None]:
        """Replace what this process counts inside by the sum over all processes.

        Args:
            runner: any runner that counts inside; all of them share tables and points.
        """
        ranks, runners, points = self._bench.ranks, self._bench.runners, self._bench.model.points
        table = runner.counters
        # one process: what it has counted is the sum. No table: an evaluation, which counts nothing
        if not ranks.several or table is None:
            yield
            return
        runners.flush()
        demands = runners.profile.demands
        before, begun = table.to_dict(), len(demands or ())
        table.reset()  # the block counts what this process does; what all have counted before is added again below
        with points.joined_afterwards(ranks.every) if points else nullcontext():
            yield
            runners.flush()
        # demands of the block, in the order of this rank
        noted = [demand.to_list() for demand in (demands or ())[begun:]]
        of_rank: dict[str, Any] = {"counts": table.to_dict(), "demands": noted}
        # a joint operation: every rank comes here equally often
        of_ranks = ranks.every(of_rank)
        table.reset()
        for counts in (before, *(rank["counts"] for rank in of_ranks)):
            # `before` once, because all ranks have the same; the block's counts of every rank
            table.merge(self._copy(counts))
        if demands is not None:
            demands[begun:] = [Demand.of_list(data) for rank in of_ranks for data in rank["demands"]]

    def _copy(self, counts: dict[str, Any]) -> CounterTable:
        table = CounterTable(self._bench.policy.register)
        table.load(counts)
        return table
