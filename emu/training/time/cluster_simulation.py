"""The simulated time of training on a cluster: a step is one node's computing, and the exchange.

    demands of a step:  passes of all nodes ──► of one node    gradients of all ──► of one node    update
                                    └──────────────► emu.cluster.timing: the plan of a step ◄─────────┘

Nodes run one after the other here, and at the same time on the simulated clock. They have the same demands, unless one
runs an operation again or has more entries of a sparse input. Then all wait for it.
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
from emu.cluster.timing import Rows, Share, StepSchedule, alone, counts_ps, fabric_of, play, schedule_of, teams_of
from emu.hardware import Demand, Machine
from emu.hardware.machine import DECISIONS, JOINT_DECISION
from emu.nn.network import INPUT_LAYER
from emu.training.time.simulation import CLIP, QUANTISE, SEND, TRANSFER, PlayedStep, Simulation, Spent, add_spent
from emu.training.time.sparse_products import is_sparse_gradient, rows_of

#: The resource through which each node sends; of registers, the first node's port.
PORT = "port"


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
            batch_bytes: bytes that it sends per step.
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
        self._ended = tuple(self.demands)
        super().end_step(step, phase)

    def step_times(self, examples: int) -> StepTimes | None:
        """Return the times of the parts of the last step; None if one node took it alone, as in a warm start.

        Args:
            examples: examples of its mini-batch.
        """
        times = self._times(self._ended, self._workers)
        return times and times._replace(examples=examples)

    def _times_of_parts(self, work: tuple[Demand, ...], workers: int | None) -> StepTimes | None:
        """Play the pass of a step and its exchange separately; return their times."""
        asked = self._asked(work, workers)
        if not asked.is_shared:
            return None
        plan = self._plan(asked)
        transfer_ps = play(plan.exchange_alone()).step_ps if asked.exchanges and plan.groups else 0
        return StepTimes(len(asked.table.layout().workers), 0, play(plan.pass_alone()).step_ps, transfer_ps)

    def _asked(self, work: tuple[Demand, ...], workers: int | None) -> _Asked:
        """Return what a step asks of one node, from the demands of all nodes."""
        table = self._sharing(workers)
        teams = teams_of(table)
        models = teams.replicas
        passes, later = _divided(with_whole_errors(work, self._of_parts))
        is_shared = _have_all_run(passes, models)
        computed = self._of_one(passes, models if is_shared else 1)
        taken_out = self._of_one([demand for demand in later if _is_taken_out(demand)], models)
        # a model alone exchanges with nobody: writing the gradient that it would get back is not charged
        updated = [
            demand for demand in later if not _is_taken_out(demand) and (teams.exchanges or not _is_written(demand))
        ]
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
        arrived = [demand.results // numbers for demand in later if demand.layer == layer and _is_of_some_rows(demand)]
        if not rows:
            return None
        return Rows.of(rows, lines, units=self._table.units, arrived=arrived[0] if arrived else None)

    def _of_one(self, demands: Sequence[Demand], models: int) -> list[Demand]:
        """Return the demands of one of several models; for a sparse layer the longest, because all wait for it."""
        varying = {layer_of(name) for name in self._by_rows}
        return of_one(demands, models, {*varying, INPUT_LAYER} if varying else varying, self._duration_ps)

    def _duration_ps(self, demand: Demand) -> int:
        return self.machine.time_of(demand).duration_ps

    @override
    def _play(self, work: tuple[Demand, ...]) -> PlayedStep:
        asked = self._asked(work, self._workers)
        computing = super()._play((*asked.computed, *asked.updated))
        step, spent = play(self._plan(asked), keeps_events=True), dict(computing.spent)
        if asked.exchanges:
            add_spent(spent, ("", "", PORT, SEND), Spent(1, 0, step.send_ps, 0, step.sent_bytes // self._table.nodes))
            add_spent(spent, ("", "", "", QUANTISE), Spent(1, 0, step.quantise_ps, 0, 0))
        if step.clip_ps:
            add_spent(spent, ("", "", "", CLIP), Spent(1, 0, step.clip_ps, 0, 0))
        # each node but the first sends a register, and gets the sum back
        size = 2 * (len(asked.table.layout().workers) - 1) * self.machine.decision_bytes()
        counted = Spent(1, 0, self._counts_ps(asked.table), 0, size)
        for demand in (*asked.computed, *asked.updated):
            if _is_joint(demand):
                add_spent(spent, (demand.layer, demand.role, PORT, TRANSFER), counted)
        return PlayedStep(step.step_ps, spent, list(step.events), computing.sparse)

    def _counts_ps(self, table: ClusterTable) -> int:
        """Return the picoseconds of adding up the registers of all nodes for one binary point."""
        workers, of_node = table.layout().workers, table.units * table.model_parallel
        if len(workers) == 1 or table.model_parallel > 1:
            return 0
        fabric = fabric_of(table, self.machine.device)
        return counts_ps(fabric, [node * of_node for node in workers], self.machine.decision_bytes())

    def _plan(self, asked: _Asked) -> StepSchedule:
        """Return the schedule of a step of all nodes together, or of one node alone."""
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
        table, whole = asked.table, self._table
        if not asked.exchanges:
            table = ClusterTable(nodes=1, model_parallel=whole.model_parallel, model_split=whole.model_split)
        if table.nodes * table.units * table.model_parallel == 1:
            return alone(self.machine, share)
        return schedule_of(table, self.machine, fabric_of(table, self.machine.device), share)


def with_whole_errors(work: Iterable[Demand], layers: Collection[str]) -> list[Demand]:
    """Return demands in which the error of a layer is one product, as on one device, not parts and their sums.

    `emu.cluster.timing.striping` divides the product among devices again, and charges the parts that travel.

    Args:
        work: demands of training; a pass goes forward before it goes back.
        layers: layers whose error products are computed in parts.
    """
    whole: list[Demand] = []
    index_of_product: dict[tuple[str, bool], int] = {}  # of the product that later parts of the same error join
    for demand in work:
        key = (demand.layer, demand.again)
        if demand.layer not in layers or demand.role != "error":
            if demand.role == "activation":  # the next forward pass: its error is another product
                index_of_product.pop(key, None)
            whole.append(demand)
        elif not demand.multiply_adds:  # a sum of parts, unless the error is no product at all
            if key not in index_of_product:
                whole.append(demand)
        elif key not in index_of_product:
            index_of_product[key] = len(whole)
            whole.append(demand)
        else:
            whole[index_of_product[key]] = _joined(whole[index_of_product[key]], demand)
    return whole


def _joined(product: Demand, part: Demand) -> Demand:
    """Return a product that has the terms of a part as well."""
    sizes = zip(product.operands, part.operands, strict=True)
    operands = tuple((fmt, size + other) for (fmt, size), (_, other) in sizes)
    return product._replace(multiply_adds=product.multiply_adds + part.multiply_adds, operands=operands)


def _divided(work: Sequence[Demand]) -> tuple[list[Demand], list[Demand]]:
    """Return the demands of passes, and those after them. The last error or gradient of a pass separates them."""
    computed = (i for i, demand in enumerate(work) if demand.operation not in DECISIONS and not _is_written(demand))
    last = max((i for i in computed if work[i].role in ("error", "gradient")), default=-1)
    if -1 < last < len(work) - 1 and work[last + 1].operation in DECISIONS and work[last + 1][:2] == work[last][:2]:
        last += 1  # the decision about its binary point belongs to the pass as well
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


def _have_all_run(passes: Sequence[Demand], models: int) -> bool:
    """Return whether all models have run a pass; in a warm start, one of several runs it alone."""
    counts = Counter(demand.layer for demand in passes if demand.role == "loss" and demand.passes and not demand.again)
    return models == 1 or max(counts.values(), default=0) >= models


def of_one(
    demands: Sequence[Demand], models: int, varying: Collection[str], duration_ps: Callable[[Demand], int]
) -> list[Demand]:
    """Return the demands of one model, from those of several; a demand that only some models have is in it once.

    Args:
        demands: demands of all models, one after the other or in turns.
        models: number of models.
        varying: layers whose operations have another size in each model: the longest one stands for all.
        duration_ps: returns the duration of a demand.
    """

    def key_of(demand: Demand) -> Any:
        if demand.layer in varying:
            return demand.layer, demand.role, demand.operation, demand.passes, demand.again
        return demand[:6], demand.again

    size, rest = divmod(len(demands), models)
    keys = [key_of(demand) for demand in demands]
    # models that ran one after the other with equal demands: the first one's are those of all
    if not rest and keys == keys[:size] * models:
        return [max(demands[i::size], key=duration_ps) if demand.layer in varying else demand
                for i, demand in enumerate(demands[:size])]  # fmt: skip
    by_key: dict[Any, list[Demand]] = {}
    for demand, key in zip(demands, keys, strict=True):
        by_key.setdefault(key, []).append(demand)
    for key, equal in by_key.items():
        if equal[0].layer in varying:
            by_key[key] = sorted(equal, key=duration_ps, reverse=True)
    counts: Counter[Any] = Counter()
    kept: list[Demand] = []
    for key in keys:
        if counts[key] % models == 0:
            kept.append(by_key[key][counts[key]])
        counts[key] += 1
    return kept
