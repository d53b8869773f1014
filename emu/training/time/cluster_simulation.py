"""The simulated time of training on a cluster: a step is one node's computing, and the exchange.

demands of a step:  passes of all nodes ──► of one node    gradients of all ──► of one node    update
└───────────► emu.cluster.timing: the schedule of a step ◄────────┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from typing_extensions import override

from emu.cluster.clipping import ClippingTable
from emu.cluster.controller import layer_of
from emu.cluster.parallelism import StepTimes
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import (
    NO_COUNTS,
    Counts,
    Rows,
    Share,
    StepSchedule,
    alone,
    counts_of,
    fabric_of,
    play,
    schedule_of,
    teams_of,
)
from emu.hardware import Demand, Machine
from emu.nn.network import INPUT_LAYER
from emu.training.time.nodes import (
    before_and_after,
    have_all_run,
    is_joint,
    is_of_some_rows,
    is_taken_out,
    is_written,
    of_one,
    with_whole_errors,
)
from emu.training.time.simulation import HostWork, Simulation
from emu.training.time.sparse_products import SparseInputs, is_sparse_gradient, rows_of


class _Asked(NamedTuple):
    """What a step asks of one node.

    Attributes:
        table: `[cluster]`, with the workers that take part.
        computed: demands of its pass.
        updated: demands after the exchange.
        is_shared: whether all nodes have computed a part of the batch; False if one node took the step alone.
        exchanges: whether gradients travel.
        rows: for gradients that have only some rows: how many, by name.
    """

    table: ClusterTable
    computed: Sequence[Demand]
    updated: Sequence[Demand]
    is_shared: bool
    exchanges: bool
    rows: Mapping[str, Rows]


class ClusterSimulation(Simulation):
    """Simulated time of a run on many nodes."""

    def __init__(
        self,
        machine: Machine,
        host: HostWork,
        *,
        table: ClusterTable,
        shapes: Mapping[str, tuple[int, int]],
        parameter_bytes: Mapping[str, int],
        clipping: ClippingTable | None = None,
        divided: Collection[str] = (),
        sparse: SparseInputs = SparseInputs(),  # noqa: B008 - frozen
        fused_slots: int | None = None,
        controller_of: Mapping[str, int] | None = None,
    ) -> None:
        """Begin at time 0.

        Args:
            machine: every device.
            host: what the host of a node does.
            table: `[cluster]`.
            shapes: columns and rows of every gradient, by name.
            parameter_bytes: bytes of one code of every parameter, by name.
            clipping: `[clipping]`; None clips nothing.
            divided: layers whose errors are computed in parts, one of each device of `model_parallel`.
            sparse: inputs of which layers multiply the entries alone.
            fused_slots: as of `Simulation`.
            controller_of: controllers of layers, as the run has placed them; None if `[cluster]` decides.

        Raises:
            ConfigError: the machine has no crossbar or too few ports, or owners are given with model striping.
        """
        super().__init__(machine, host, sparse_columns=sparse.columns, fused_slots=fused_slots)
        self._by_rows = sparse.by_rows
        self._table, self._shapes = table, dict(shapes)
        self._of_parts, self._controller_of = divided, dict(controller_of or {})
        self._parameter_bytes, self._clipping = dict(parameter_bytes), clipping
        # made here only so that a missing crossbar is an error before the first step
        if len(teams_of(table).part) > 1:
            fabric_of(table, machine.device)
        self._ended: tuple[Demand, ...] = ()
        # demands and workers are the whole key: what `resize` changes, preparing the next
        # batch, is in neither part of a step
        self._times = lru_cache(maxsize=128)(self._times_of_parts)

    def _sharing(self, workers: int | None) -> ClusterTable:
        """Return `[cluster]` for steps in which only the first `workers` of its workers take part."""
        all_workers = self._table.layout().workers
        taking_part = all_workers[:workers]
        return self._table if taking_part == all_workers else self._table.model_copy(update={"workers": taking_part})

    # ---- steps ----

    @override
    def end_step(self, step: int, phase: str) -> None:
        """Add the time of the demands since the last step, and keep them for `step_times`."""
        # before the parent removes the demands
        self._ended = self._asked_for()
        super().end_step(step, phase)

    def step_times(self, examples: int) -> StepTimes | None:
        """Return the times of the parts of the last step; None if one node took it alone, as in a warm start.

        Args:
            examples: examples of its mini-batch.
        """
        # the cached times have no number of examples, which demands do not show
        times = self._times(self._ended, self._workers)
        return times and times._replace(examples=examples)

    def _times_of_parts(self, work: tuple[Demand, ...], workers: int | None) -> StepTimes | None:
        """Play the pass of a step and its exchange separately; return their times."""
        asked = self._asked(work, workers)
        if not asked.is_shared:
            return None
        plan = self._plan(asked)
        # each part by itself: in a step they may overlap
        transfer_ps = play(plan.exchange_alone()).step_ps if asked.exchanges and plan.groups else 0
        return StepTimes(len(asked.table.layout().workers), 0, play(plan.pass_alone()).step_ps, transfer_ps)

    def _asked(self, work: tuple[Demand, ...], workers: int | None) -> _Asked:
        """Return what a step asks of one node, from the demands of all nodes."""
        table = self._sharing(workers)
        teams = teams_of(table)
        models = teams.replicas
        passes, later = before_and_after(with_whole_errors(work, self._of_parts))
        is_shared = have_all_run(passes, models)
        # a node that takes a step alone has run one pass, over the whole batch
        computed = self._of_one(passes, models if is_shared else 1)
        taken_out = self._of_one([demand for demand in later if is_taken_out(demand)], models)
        # a model alone exchanges with nobody: writing the gradient that it would get back is not charged
        updated = [
            demand for demand in later if not is_taken_out(demand) and (teams.exchanges or not is_written(demand))
        ]
        # no update, no exchange: the step was given up. With double buffering, the first step sends and updates nothing
        exchanges = is_shared and (bool(updated) or table.double_buffering)
        rows = {name: counts for name in self._by_rows if (counts := self._rows(name, passes, later)) is not None}
        return _Asked(table, [*computed, *taken_out], updated, is_shared, exchanges, rows)

    def _rows(self, name: str, passes: Iterable[Demand], later: Iterable[Demand]) -> Rows | None:
        """Return how many rows a gradient has in each model and after the exchange; None if no pass computed it."""
        (lines, numbers), layer = self._shapes[name], layer_of(name)
        rows = [
            rows_of(demand)
            for demand in passes
            if demand.layer == layer and is_sparse_gradient(demand) and not demand.again
        ]
        # writing the gradient that has arrived shows how many rows it has
        arrived = [demand.results // numbers for demand in later if demand.layer == layer and is_of_some_rows(demand)]
        if not rows:
            return None
        return Rows.of(rows, lines, units=self._table.units, arrived=arrived[0] if arrived else None)

    def _of_one(self, demands: Sequence[Demand], models: int) -> list[Demand]:
        """Return the demands of one of several models; for a sparse layer the longest, because all wait for it."""
        # also the input: writing a sparse batch has as many results as the batch has entries
        varying = set(self._sparse_columns)
        return of_one(demands, models, {*varying, INPUT_LAYER} if varying else varying, self._duration_ps)

    def _duration_ps(self, demand: Demand) -> int:
        return self.machine.time_of(demand).duration_ps

    @override
    def _planned(self, work: tuple[Demand, ...]) -> tuple[Sequence[Demand], StepSchedule]:
        asked = self._asked(work, self._workers)
        return (*asked.computed, *asked.updated), self._plan(asked)

    def _counts(self, table: ClusterTable) -> Counts:
        """Return what adding up the registers of all nodes takes for one binary point."""
        workers, of_node = table.layout().workers, table.units * table.model_parallel
        if len(workers) == 1 or table.model_parallel > 1:
            return NO_COUNTS
        fabric = fabric_of(table, self.machine.device)
        return counts_of(fabric, [node * of_node for node in workers], self.machine.decision_bytes())

    def _plan(self, asked: _Asked) -> StepSchedule:
        """Return the schedule of a step of all nodes together, or of one node alone."""
        share = Share(
            asked.computed,
            asked.updated,
            self._shapes,
            self._parameter_bytes,
            self._clipping,
            self._host.elements,
            self._host.bytes,
            self._decided_on_host,
            asked.rows,
            self._counts(asked.table) if any(map(is_joint, (*asked.computed, *asked.updated))) else NO_COUNTS,
            self._controller_of,
        )
        # without an exchange, a node is alone, with all devices that share its model
        table, whole = asked.table, self._table
        if not asked.exchanges:
            table = ClusterTable(nodes=1, model_parallel=whole.model_parallel, model_split=whole.model_split)
        if table.nodes * table.units * table.model_parallel == 1:
            return alone(self.machine, share)
        return schedule_of(table, self.machine, fabric_of(table, self.machine.device), share)
