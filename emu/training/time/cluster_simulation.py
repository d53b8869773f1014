"""The simulated time of training on a cluster: a step is one node's computing, and the exchange.

    demands of a step:  a pass of every node ──► of one node    gradients of all ──► of one node    update
                                    └──────────────► emu.cluster.timing: the plan of a step ◄──────────┘

Nodes run one after the other here, and side by side in time. They do the same work, unless one runs an operation
again or has more entries of a sparse input. Then all wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from typing_extensions import override

from emu.cluster.clipping import ClippingTable
from emu.cluster.controller import layer_of
from emu.cluster.parallelism import StepTimes
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Plan, Rows, Share, alone, counts_ps, fabric_of, plan_of, play, teams_of
from emu.hardware import Demand, Machine
from emu.hardware.machine import DECISIONS, JOINT_DECISION
from emu.nn.network import INPUT_LAYER
from emu.training.time.simulation import CLIP, QUANTISE, SEND, TRANSFER, Simulation, Spent, StepTime, put
from emu.training.time.sparse_products import is_sparse_gradient, rows_of

#: What sends, of every node; registers, those of the first one.
PORT = "port"


class _Asked(NamedTuple):
    """What a step asks of a node.

    Attributes:
        table: `[cluster]`, with the workers that take part.
        computed: demands of its pass.
        updated: demands after the exchange.
        several: whether all that take part have computed, not one alone.
        exchanges: whether gradients travel.
        rows: rows of gradients that have only some of them, by name.
    """

    table: ClusterTable
    computed: Sequence[Demand]
    updated: Sequence[Demand]
    several: bool
    exchanges: bool
    rows: Mapping[str, Rows]


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
        parameter_bytes: Mapping[str, int],
        clipping: ClippingTable | None = None,
        divided: Collection[str] = (),
        by_rows: Collection[str] = (),
    ) -> None:
        """Begin at time 0.

        Args:
            machine: every device.
            batch_elements: numbers that a host prepares per step.
            batch_bytes: bytes that it sends.
            decided_on_host: whether registers go to the host and points come back.
            table: `[cluster]`.
            shapes: columns and rows of every gradient, by name.
            parameter_bytes: bytes of one code of every parameter, by name.
            clipping: `[clipping]`; None clips nothing.
            divided: layers whose errors are computed in parts, one of each device of `model_parallel`.
            by_rows: names of gradients that have some rows only.

        Raises:
            ConfigError: the machine has no crossbar or too few ports, or owners are given with model striping.
        """
        columns = {layer_of(name): shapes[name][0] for name in by_rows}
        super().__init__(machine, batch_elements, batch_bytes, decided_on_host=decided_on_host, sparse_columns=columns)
        self._by_rows = tuple(by_rows)
        self._table, self._shapes = table, dict(shapes)
        self._of_parts = divided
        self._parameter_bytes, self._clipping = dict(parameter_bytes), clipping
        if len(teams_of(table).part) > 1:
            fabric_of(table, machine.device)
        self._ended: tuple[Demand, ...] = ()
        self._times = lru_cache(maxsize=128)(self._parts)

    def _sharing(self, workers: int | None) -> ClusterTable:
        """Return the table of steps that the first ones of its workers take."""
        every = self._table.layout().workers
        taking_part = every[:workers]
        return self._table if taking_part == every else self._table.model_copy(update={"workers": taking_part})

    # ---- steps ----

    @override
    def end_step(self, step: int, phase: str) -> None:
        """Add the time of the work since the last step, and keep that work for `step_times`."""
        self._ended = tuple(self.demands)
        super().end_step(step, phase)

    def step_times(self, examples: int) -> StepTimes | None:
        """Return what the parts of the last step took; None of one that a node took alone, as in a warm start.

        Args:
            examples: examples of its mini-batch.
        """
        times = self._times(self._ended, self._workers)
        return times and times._replace(examples=examples)

    def _parts(self, work: tuple[Demand, ...], workers: int | None) -> StepTimes | None:
        """Play the pass of a step, and its exchange, each by itself."""
        asked = self._asked(work, workers)
        if not asked.several:
            return None
        plan = self._plan(asked)
        transfer_ps = play(plan.exchange_alone()).step_ps if asked.exchanges and plan.groups else 0
        return StepTimes(len(asked.table.layout().workers), 0, play(plan.pass_alone()).step_ps, transfer_ps)

    def _asked(self, work: tuple[Demand, ...], workers: int | None) -> _Asked:
        """Return what a step asks of a node, of the demands of all of them."""
        table = self._sharing(workers)
        teams = teams_of(table)
        models = teams.replicas
        passes, behind = _divided(joined(work, self._of_parts))
        several = _is_of(passes, models)
        computed = self._of_one(passes, models if several else 1)
        taken_out = self._of_one([demand for demand in behind if _is_taken_out(demand)], models)
        # what one model alone exchanges with itself is not charged
        updated = [
            demand for demand in behind if not _is_taken_out(demand) and (teams.exchanges or not _is_written(demand))
        ]
        exchanges = several and (bool(updated) or table.double_buffering)
        rows = {name: some for name in self._by_rows if (some := self._rows(name, passes, behind)) is not None}
        return _Asked(table, [*computed, *taken_out], updated, several, exchanges, rows)

    def _rows(self, name: str, passes: Iterable[Demand], behind: Iterable[Demand]) -> Rows | None:
        """Return how many rows of a gradient models have found, and there were after the exchange; None of no pass."""
        (lines, numbers), layer = self._shapes[name], layer_of(name)
        rows = [
            rows_of(demand)
            for demand in passes
            if demand.layer == layer and is_sparse_gradient(demand) and not demand.again
        ]
        arrived = [demand.results // numbers for demand in behind if demand.layer == layer and _is_of_some_rows(demand)]
        if not rows:
            return None
        return Rows.of(rows, lines, units=self._table.units, arrived=arrived[0] if arrived else None)

    def _of_one(self, demands: Sequence[Demand], models: int) -> list[Demand]:
        """Return what one of so many models does; of a sparse layer's operations the longest, as all wait for it."""
        varying = {layer_of(name) for name in self._by_rows}
        return of_one(demands, models, {*varying, INPUT_LAYER} if varying else varying, self._duration_ps)

    def _duration_ps(self, demand: Demand) -> int:
        return self.machine.cost(demand).duration_ps

    @override
    def _play(self, work: tuple[Demand, ...]) -> StepTime:
        asked = self._asked(work, self._workers)
        computing = super()._play((*asked.computed, *asked.updated))
        step, spent = play(self._plan(asked), keeps_events=True), dict(computing.spent)
        if asked.exchanges:
            put(spent, ("", "", PORT, SEND), Spent(1, 0, step.send_ps, 0, step.sent_bytes // self._table.nodes))
            put(spent, ("", "", "", QUANTISE), Spent(1, 0, step.quantise_ps, 0, 0))
        if step.clip_ps:
            put(spent, ("", "", "", CLIP), Spent(1, 0, step.clip_ps, 0, 0))
        counted = Spent(1, 0, self._counts_ps(asked.table), 0, self._count_bytes(asked.table))
        for demand in (*asked.computed, *asked.updated):
            if _is_joint(demand):
                put(spent, (demand.layer, demand.role, PORT, TRANSFER), counted)
        return StepTime(step.step_ps, spent, list(step.events), computing.sparse)

    def _counts_ps(self, table: ClusterTable) -> int:
        """Return what adding up the registers of all nodes takes, for one point of a model on one device."""
        workers, of_node = table.layout().workers, table.units * table.model_parallel
        if len(workers) == 1 or table.model_parallel > 1:
            return 0
        fabric = fabric_of(table, self.machine.device)
        return counts_ps(fabric, [node * of_node for node in workers], self.machine.decision_bytes())

    def _count_bytes(self, table: ClusterTable) -> int:
        """Return what nodes send for that."""
        return 2 * (len(table.layout().workers) - 1) * self.machine.decision_bytes()

    def _plan(self, asked: _Asked) -> Plan:
        """Return the plan of a step of all nodes together, or of one of them alone."""
        share = Share(
            asked.computed,
            asked.updated,
            self._shapes,
            self._parameter_bytes,
            self._clipping,
            self._batch_elements,
            self._batch_bytes,
            self._decided_on_host,
            asked.rows,
            self._counts_ps(asked.table) if any(map(_is_joint, (*asked.computed, *asked.updated))) else 0,
        )
        table, given = asked.table, self._table
        if not asked.exchanges:
            table = ClusterTable(nodes=1, model_parallel=given.model_parallel, model_split=given.model_split)
        if table.nodes * table.units * table.model_parallel == 1:
            return alone(self.machine, share)
        return plan_of(table, self.machine, fabric_of(table, self.machine.device), share)


def joined(work: Iterable[Demand], layers: Collection[str]) -> list[Demand]:
    """Return work whose errors are products as one device has them, not parts and their sums.

    What a device does of them, and that parts travel and are added, is said by `emu.cluster.timing.striping`.

    Args:
        work: work of training; a pass goes forward before it goes back.
        layers: layers whose error products are computed in parts.
    """
    joined_work: list[Demand] = []
    places: dict[tuple[str, bool], int] = {}
    for demand in work:
        at = (demand.layer, demand.again)
        if demand.layer not in layers or demand.role != "error":
            if demand.role == "activation":
                places.pop(at, None)
            joined_work.append(demand)
        elif not demand.multiply_adds:
            if at not in places:
                joined_work.append(demand)
        elif at not in places:
            places[at] = len(joined_work)
            joined_work.append(demand)
        else:
            joined_work[places[at]] = _sum_of_parts(joined_work[places[at]], demand)
    return joined_work


def _sum_of_parts(some: Demand, more: Demand) -> Demand:
    """Return a product of two parts of its terms."""
    operands = tuple((fmt, size + other) for (fmt, size), (_, other) in zip(some.operands, more.operands, strict=True))
    return some._replace(multiply_adds=some.multiply_adds + more.multiply_adds, operands=operands)


def _divided(work: Sequence[Demand]) -> tuple[list[Demand], list[Demand]]:
    """Return the demands of passes, and those after them: the last gradient of a pass separates them."""
    computed = (i for i, demand in enumerate(work) if demand.operation not in DECISIONS and not _is_written(demand))
    last = max((i for i in computed if work[i].role in ("error", "gradient")), default=-1)
    if -1 < last < len(work) - 1 and work[last + 1].operation in DECISIONS and work[last + 1][:2] == work[last][:2]:
        last += 1  # it waits for its point before anything else is done
    return list(work[: last + 1]), list(work[last + 1 :])


def _is_joint(demand: Demand) -> bool:
    """Return whether a demand sets a point from the registers of all nodes."""
    return demand.operation == JOINT_DECISION


def _is_written(demand: Demand) -> bool:
    """Return whether a demand writes a gradient that an exchange has brought."""
    return demand.operation == "quantize" and demand.role in ("gradient", "unscaled")


def _is_taken_out(demand: Demand) -> bool:
    """Return whether a demand takes the loss scale out of a gradient that travels."""
    return demand.role == "unscaled" and not _is_written(demand)


def _is_of_some_rows(demand: Demand) -> bool:
    """Return whether a demand writes a gradient of some rows that an exchange has brought."""
    return _is_written(demand) and (demand.index_bytes > 0 or not demand.results)


def _is_of(passes: Sequence[Demand], models: int) -> bool:
    """Return whether so many models have run a pass, not one of several alone, as in a warm start."""
    counts = Counter(demand.layer for demand in passes if demand.role == "loss" and demand.passes and not demand.again)
    return models == 1 or max(counts.values(), default=0) >= models


def of_one(
    demands: Sequence[Demand], models: int, varying: Collection[str], duration_ps: Callable[[Demand], int]
) -> list[Demand]:
    """Return what one of so many models does, where they do the same; what only some do is there once.

    Args:
        demands: demands of all models, one after the other or in turns.
        models: how many.
        varying: layers whose operations have another size in every model: the longest stand for all.
        duration_ps: duration of a demand.
    """

    def what(demand: Demand) -> Any:
        if demand.layer in varying:
            return demand.layer, demand.role, demand.operation, demand.passes, demand.again
        return demand[:6], demand.again

    size, rest = divmod(len(demands), models)
    keys = [what(demand) for demand in demands]
    if not rest and keys == keys[:size] * models:
        return [max(demands[i::size], key=duration_ps) if demand.layer in varying else demand
                for i, demand in enumerate(demands[:size])]  # fmt: skip
    ranked: dict[Any, list[Demand]] = {}
    for demand, key in zip(demands, keys, strict=True):
        ranked.setdefault(key, []).append(demand)
    for key, of_key in ranked.items():
        if of_key[0].layer in varying:
            ranked[key] = sorted(of_key, key=duration_ps, reverse=True)
    counts: Counter[Any] = Counter()
    kept: list[Demand] = []
    for key in keys:
        if counts[key] % models == 0:
            kept.append(ranked[key][counts[key]])
        counts[key] += 1
    return kept
