"""What several processes have counted, added up: registers, flags, points and simulated work are those of all nodes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

from emu.hardware import Demand
from emu.precision import CounterTable
from emu.training.model import StepRunner
from emu.training.systems.system import Surroundings


class Summed:
    """Adds up what the nodes of every process count while each works on its own parts."""

    def __init__(self, run: Surroundings) -> None:
        self._run = run

    @contextmanager
    def over(self, runner: StepRunner) -> Generator[None]:
        """At the end, keep what all nodes have counted inside.

        Args:
            runner: one of those that count; the tables and points are the same for all of them.
        """
        ranks, table, points = self._run.ranks, runner.counters, self._run.model.points
        if not ranks.several or table is None:
            yield
            return
        self._run.flush()
        demands = self._run.profile.demands
        before, begun = table.to_dict(), len(demands or ())
        table.reset()
        with points.apart(ranks.every) if points else nullcontext():
            yield
            self._run.flush()
        noted = [one.to_list() for one in (demands or ())[begun:]]
        here: dict[str, Any] = {"counts": table.to_dict(), "demands": noted}
        found = ranks.every(here)
        table.reset()
        for counts in (before, *(one["counts"] for one in found)):
            table.merge(self._copy(counts))
        if demands is not None:
            demands[begun:] = [Demand.of_list(data) for one in found for data in one["demands"]]

    def _copy(self, counts: dict[str, Any]) -> CounterTable:
        table = CounterTable(self._run.policy.register)
        table.load(counts)
        return table
