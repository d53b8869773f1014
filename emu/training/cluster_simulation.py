"""The simulated time of training on a cluster: a step is one node's computing, and the exchange.

    demands of a step:  a pass of every node ──► of one node    gradients of all ──► of one node    update
                                    └──────────────► emu.cluster.timing: the plan of a step ◄──────────┘

Nodes run one after the other here, and side by side in time. They do the same, but where one runs an operation again:
then all wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, alone, fabric_of, plan_of, play, teams_of
from emu.hardware import Demand, Machine
from emu.training.simulation import QUANTISE, SEND, Simulation, Spent, StepTime, put

#: What sends, of every node.
PORT = "port"


class ClusterSimulation(Simulation):
    """Simulated time of a run on many nodes."""

    def __init__(
        self,
        machine: Machine,
        batch_elements: int,
        batch_bytes: int,
        *,
        decided_on_host: bool,
        table: ClusterTable,
        shapes: Mapping[str, tuple[int, int]],
    ) -> None:
        """Begin at time 0.

        Args:
            machine: every device.
            batch_elements: numbers that a host prepares per step.
            batch_bytes: that it sends.
            decided_on_host: whether registers go to the host and points come back.
            table: `[cluster]`.
            shapes: columns and rows of every gradient, by name.

        Raises:
            ConfigError: the machine has no crossbar or too few ports, or gradients do not go in stripes.
        """
        super().__init__(machine, batch_elements, batch_bytes, decided_on_host=decided_on_host)
        self._table, self._shapes = table, dict(shapes)
        teams_of(table)
        self._fabric = fabric_of(table, machine.device)

    @property
    def models(self) -> int:
        """Passes of a step."""
        return self._table.nodes * self._table.units

    def _play(self, work: tuple[Demand, ...]) -> StepTime:
        passes, behind = _divided(work)
        several = _is_of(passes, self.models)
        computed = _of_one(passes, self.models if several else 1)
        per_gradient = Counter(_what(one) for one in behind if _is_taken_out(one))
        taken_out = _of_one([one for one in behind if _is_taken_out(one)], self.models if per_gradient else 1)
        updated = [one for one in behind if not _is_taken_out(one)]
        found = super()._play((*computed, *taken_out, *updated))
        share = Share(
            [*computed, *taken_out],
            updated,
            self._shapes,
            self._batch_elements,
            self._batch_bytes,
            self._decided_on_host,
        )
        exchanges = several and (bool(updated) or self._table.double_buffering)
        plan = plan_of(self._table, self.machine, self._fabric, share) if exchanges else alone(self.machine, share)
        step, spent = play(plan, keeps_events=True), dict(found.spent)
        if exchanges:
            put(spent, ("", "", PORT, SEND), Spent(1, 0, step.send_ps, 0, step.sent_bytes // self._table.nodes))
            put(spent, ("", "", "", QUANTISE), Spent(1, 0, step.quantise_ps, 0, 0))
        return StepTime(step.step_ps, spent, list(step.events))


def _divided(work: Sequence[Demand]) -> tuple[list[Demand], list[Demand]]:
    """Return the demands of passes, and those behind them: the last gradient of a pass lies between."""
    last = max(
        (i for i, one in enumerate(work) if one.role in ("error", "gradient") and not _is_written(one)), default=-1
    )
    return list(work[: last + 1]), list(work[last + 1 :])


def _is_written(one: Demand) -> bool:
    """Return whether a demand writes a gradient that an exchange has brought."""
    return one.operation == "quantize"


def _is_taken_out(one: Demand) -> bool:
    """Return whether a demand takes the loss scale out of a gradient that travels."""
    return one.role == "unscaled" and not _is_written(one)


def _what(one: Demand) -> Any:
    return one[:6], one.again


def _is_of(passes: Sequence[Demand], models: int) -> bool:
    """Return whether so many models have run a pass, not one alone, as in a warm start."""
    counts = Counter(one.layer for one in passes if one.role == "loss" and one.passes and not one.again)
    return models > 1 and max(counts.values(), default=0) >= models


def _of_one(demands: Sequence[Demand], models: int) -> list[Demand]:
    """Return what one of so many does, where they do the same; what only some do is there once."""
    size, rest = divmod(len(demands), models)
    keys = [_what(one) for one in demands]
    if not rest and keys == keys[:size] * models:
        return list(demands[:size])
    seen: Counter[Any] = Counter()
    kept: list[Demand] = []
    for one, key in zip(demands, keys, strict=True):
        if seen[key] % models == 0:
            kept.append(one)
        seen[key] += 1
    return kept
