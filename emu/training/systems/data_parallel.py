"""Many nodes in a training run: `emu.cluster`.

    batch ──► parts ──► passes ──► unscaled ──► exchange ──► one gradient, the same bits on every node ──► update

Each processing unit of each node computes one part. Its backward pass uses the scale S / parts, so that contributions
add up to the gradient of the whole batch. If controllers divide by the number of nodes, the scale is S / units of a
node. A node adds up the gradients of its units before it sends anything. Nodes share one model here, because the copies
on real nodes would be equal bit for bit (the exchange compares them). If there are several processes, each computes the
parts of its own nodes and has their gradients and residuals; everything else is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu import engine
from emu.autodiff import RowsValue, Value
from emu.backends.arrays import on_host
from emu.cluster import Controllers, Exchange, Homes, Layout
from emu.cluster.lines import Lines
from emu.cluster.settings import ClusterTable
from emu.cluster.wires import Columns, Touched, added, arrays_of, lines_from
from emu.errors import ConfigError
from emu.hardware.machine import register_bytes
from emu.nn.network import LOSS_LAYER
from emu.optim import ParameterState
from emu.training.systems.contributions import columns_of, joined, of_unit, written
from emu.training.systems.joint_points import JointPoints
from emu.training.systems.summed import Summed
from emu.training.systems.system import AskTimes, Attempt, PartAttempt, Row, System
from emu.training.time.placing import controllers_of_run
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass, StepRunner
from emu.training.workbench.model import written as written_into
from emu.training.workbench.update import gradient_role, leaves_gradients, unscaled

Array = NDArray[Any]
_IN_FLIGHT = "in_flight/"


class DataParallel(System):
    """Nodes that compute parts of every batch, and exchange quantised gradients in stripes."""

    key = "cluster"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # bytes that all nodes together have sent to others so far: of gradients, and of counts for joint points
        "cluster": {"step": "int64", "bytes_sent": "int64", "count_bytes": "int64"},
        # norm of the first node's residual of a tensor: as worker, and as owner of its stripes
        "residuals": {"step": "int64", "tensor": "string", "holder": "string", "norm": "float64"},
        # what codes of the step's exchange stood for on the first node: level and lower end of the bin of values, in
        # root mean squares of the tensor's stripe
        "codes": {
            "step": "int64",
            "tensor": "string",
            "code": "int32",
            "level": "float64",
            "bin": "float64",
            "values": "int64",
        },
    }

    def __init__(self, bench: Workbench) -> None:
        """Begin with residuals of 0, if the recipe has a cluster.

        Raises:
            ConfigError: the batch cannot be divided, an owner has no stripe, gradients do not travel as floats, or
                layers are placed by time and the device has none.
        """
        self._bench, self._table = bench, bench.recipe.cluster
        self._exchange: Exchange | Controllers | None = None
        self._step = 0
        self._in_flight: dict[str, Columns] = {}
        self._in_flight_scale = 1.0
        if self._table is None:
            return
        layout, batch, units = self._table.layout(), bench.recipe.training.batch, self._table.units
        self._lines: Lines = self._table.lines
        if batch % self._table.parts:
            nodes = f"{len(layout.workers)} nodes" + (f" of {units} units each" if units > 1 else "")
            raise ConfigError(
                f"`training.batch` must be a multiple of the {nodes} of [cluster], got {batch}; "
                "choose another batch, or another number of nodes"
            )
        # S leaves the gradients before they travel, or travels with them
        self._travels_unscaled = leaves_gradients(bench.recipe.loss_scaling)
        self._role = gradient_role(bench.recipe.loss_scaling)
        # devices that have whole layers compute the bits of one device; stripes change the error's sums
        bench.model.stripes = self._table.model_parallel if self._table.model_split == "stripes" else 1
        size = register_bytes(bench.device.precision)
        self._joint = JointPoints(bench.ranks, own=self._table.points == "own", register_bytes=size)
        if bench.model.points is not None:
            bench.model.points.agreement = self._joint
        formats = {s.name: bench.policy.stage(s.layer, self._role).format for s in bench.model.states}
        for name, fmt in formats.items():
            if fmt.carries_raws:
                raise ConfigError(
                    f"gradients that travel must fit float64, got {fmt} of {name!r}; choose a narrower format for role "
                    f"`{self._role}`"
                )
        # gradients travel in float32 if it holds every value of their formats
        needs_float64 = any(fmt.carrier == np.float64 for fmt in formats.values())
        self._dtype = np.float64 if needs_float64 else np.float32
        # nodes of this process that compute gradients; others only own stripes or control layers
        self._nodes = [node for node in bench.ranks.transport(layout.nodes).local if node in layout.workers]
        self._exchange = self._new_exchange(self._table, layout)
        # whether the step in progress has made an update from exchanged gradients
        self._has_update = False
        self._updating = bench.runners.for_updates()
        self._runners: list[StepRunner] = []
        self._summed = Summed(bench)

    def _new_exchange(self, table: ClusterTable, layout: Layout) -> Exchange | Controllers:
        """Return the exchange that `[cluster]` describes, before its first step."""
        states, transport = self._bench.model.states, self._bench.ranks.transport(layout.nodes)
        shapes = {state.name: columns_of(state, lines=self._lines).shape for state in states}
        options: dict[str, Any] = {"seed": self._bench.recipe.training.seed, "dtype": self._dtype}
        options |= {"feedback": table.error_feedback, "touched": [s.name for s in states if s.by_rows]}
        codec, owner_codec = table.codecs(self._bench.runners.backend)
        if table.exchange == "controllers":
            formats = {state.name: state.master.format for state in states}
            homes = Homes(table.controllers, table.placement, controllers_of_run(self._bench, table))
            return Controllers(shapes, formats, layout, codec, transport, homes=homes, **options)
        options |= {"owner_codec": owner_codec, "rule": table.owner_rule()}
        return Exchange(shapes, layout, codec, transport, **options)

    # ---- a step ----

    @override
    def divided(self, on: PartAttempt, examples: int, step: int) -> Attempt | None:
        """Return a pass that runs the passes of all nodes, each over its part of the batch."""
        self._step = step
        if self._exchange is None:
            return None
        # in a warm start one node computes, and agrees with nobody
        self._joint.nodes = 1 if self._is_warm else len(self._workers)
        if self._is_warm:
            return None
        # sizes of mini-batches are multiples of the parts
        size, runners, points = examples // self._parts, self._runners_of_units(), self._bench.model.points

        def passes_of_nodes(scale: float) -> Pass:
            share = self._scale_of_part(scale)
            # unit u of all nodes gets the u-th part of the batch, on whichever process it is
            tasks = [partial(on, share, slice(r.node * size, (r.node + 1) * size), r) for r in runners]
            # only then an operation may run again, which nodes decide together: their passes meet at each operation
            redoes = points is not None and points.in_pretraining(step) and not points.in_float(step)
            watched = self._joint.passes(self._bench.runners.flush) if points is not None else nullcontext()
            with self._summed.over(self._runners[0]), watched:
                passes = self._joint.run(tasks) if redoes else [task() for task in tasks]
            # each unit's gradients under names of their own, still apart: clipping and exchange need them so
            gradients = joined({r.node: done.gradients for r, done in zip(runners, passes, strict=True)})
            # `scale` is S without the share: the share is gone once contributions are added up
            return replace(self._mean_of(passes), gradients=gradients, scale=scale, share=1 / self._share_count)

        return passes_of_nodes

    def _runners_of_units(self) -> list[StepRunner]:
        """Return a runner for each processing unit of this process that takes part in the step."""
        # made at the first step that is divided: loss scaling, which comes later in the list,
        # has placed its counters by then
        if not self._runners:
            assert self._table is not None
            units = [unit for node in self._nodes for unit in self._units_of(node)]
            # a process without workers still adds up what others count: its runner has a number that never takes part
            for unit in units or [self._table.parts]:
                self._runners.append(self._bench.runners.for_passes())
                self._runners[-1].node = unit
        # units of the first workers take part; all others rest in this step
        return [runner for runner in self._runners if runner.node < self._parts]

    def _units_of(self, node: int) -> range:
        """Return the processing units of a node; they are numbered over all nodes."""
        assert self._exchange is not None
        assert self._table is not None
        index = self._exchange.layout.workers.index(node)
        return range(index * self._table.units, (index + 1) * self._table.units)

    @override
    def gradients(self, result: Pass) -> Pass:
        """Exchange the contributions of nodes; a step given up sends nothing and keeps its residuals."""
        if self._exchange is None or self._is_warm:
            return result
        # empty if the step was given up: nothing is sent, and residuals stay as they are
        arrived: dict[str, Columns] = {}
        scale = 1.0
        if result.is_applied:
            # S of what travels: residuals of earlier steps are rescaled to it
            carried = 1.0 if self._travels_unscaled else result.scale
            arrived = self._exchange.exchange(self._contributions(result), self._step, carried, self._workers)
            if self._exchange.divides:  # every process makes the update of what controllers have
                arrived = lines_from(self._bench.ranks.shared(arrays_of(arrived)))
            scale = self._exchange.result_scale
        if self._table is not None and self._table.double_buffering:
            # one step late: this step applies what the step before has sent
            arrived, self._in_flight = self._in_flight, arrived
            scale, self._in_flight_scale = self._in_flight_scale, scale
        # a step that was given up; with double buffering, the step after it, and the first step of all
        if not arrived:
            return replace(result, gradients={}, is_applied=False)
        self._has_update = True
        # written in the role's format, as hardware would when a sum arrives
        gradients = {
            state.name: written(state, arrived[state.name], self._role, self._updating, self._lines)
            for state in self._bench.model.states
            if state.name in arrived
        }
        # a gradient in flight is applied even if this step's own pass was given up
        moments = result.moments if result.is_applied else {}
        return replace(result, gradients=gradients, moments=moments, scale=scale, share=1.0, is_applied=True)

    @override
    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        """Take the parameters that an exchange returns after an update of its gradients."""
        if self._exchange is None or not self._has_update:
            return
        self._has_update = False
        states = self._bench.model.states
        # controllers have moved the masters of their layers; stripes return what every node has computed alike
        masters = self._exchange.returned({state.name: state.master for state in states})
        for state in states:
            state.master = masters[state.name]

    @property
    def _workers(self) -> tuple[int, ...]:
        """Nodes that take part in the step: the first workers, as many as share the batch."""
        assert self._exchange is not None
        return self._exchange.layout.workers[: self._bench.batches.workers]

    @property
    def _parts(self) -> int:
        """Parts of the step's batch."""
        assert self._table is not None
        return len(self._workers) * self._table.units

    @property
    def _share_count(self) -> int:
        """Parts whose gradients are added up without a division afterwards."""
        assert self._exchange is not None
        assert self._table is not None
        return self._table.units if self._exchange.divides else self._parts

    @property
    def _is_warm(self) -> bool:
        return self._table is not None and self._step < self._table.warm_start

    def _scale_of_part(self, scale: float) -> float:
        """Return S / shares, rounded into the format of the loss."""
        fmt = self._bench.policy.at(self._step).stage(LOSS_LAYER, "loss").format
        exact = scale / self._share_count
        # S / shares enters the backward pass as a number of the loss's format
        # by the reference: a single number needs no compiled kernel
        share = float(engine.quantize(np.array(exact), fmt, backend="reference"))
        if share == 0:
            raise ConfigError(
                f"the format of role `loss` must hold S / nodes = {exact:g}, got {fmt}; choose a wider one"
            )
        return share

    def _mean_of(self, passes: list[Pass]) -> Pass:
        """Return the pass of all nodes: means of losses and of running moments, added in the order of nodes."""
        # plain data for JSON: `Value` and arrays cannot travel
        of_rank = [
            (p.loss, p.correct, {name: on_host(m.array).astype(np.float64).tolist() for name, m in p.moments.items()})
            for p in passes
        ]
        # by rank, and within a rank by unit: the order of units over all nodes
        parts = [part for rank in self._bench.ranks.every(of_rank) for part in rank]
        moments: dict[str, Value] = {}
        for name, first in parts[0][2].items():
            total = np.array(first)  # float64, added in the order of parts: all ranks get the same bits
            for part in parts[1:]:
                total = total + np.array(part[2][name])
            # by the reference: few numbers need no compiled kernel
            moments[name] = written_into(
                total / len(parts), self._bench.model.moments[name].format, backend="reference"
            )
        return Pass(sum(part[0] for part in parts) / len(parts), sum(part[1] for part in parts), {}, moments)

    def _contributions(self, result: Pass) -> dict[int, dict[str, Columns]]:
        """Return the gradients of each node as they travel, in columns: the sum over its units, in their order."""
        by_node: dict[int, dict[str, Columns]] = {node: {} for node in self._nodes if node in self._workers}
        with self._summed.over(self._updating):
            for state in self._bench.model.states:
                for node, gradients in by_node.items():
                    # in the order of units: a sum of floats depends on it
                    first, *others = (self._columns_of(state, result, unit) for unit in self._units_of(node))
                    for other in others:
                        first = added(first, other)
                    gradients[state.name] = first
        return by_node

    def _columns_of(self, state: ParameterState, result: Pass, unit: int) -> Columns:
        """Return a gradient of a processing unit, with S taken out unless it travels."""
        value = result.gradients[of_unit(state.name, unit)]
        if result.scale != 1 and self._travels_unscaled:
            value = unscaled(state, value, result.scale, self._updating)
        # exact: `_dtype` holds every value of the format
        columns = columns_of(state, value.array, self._lines).astype(self._dtype, copy=False)
        return Touched(value.rows, columns) if isinstance(value, RowsValue) else columns

    # ---- tables ----

    @override
    def interval(self) -> Iterator[Row]:
        """Yield the bytes sent so far, norms of residuals, and what codes stood for."""
        if self._exchange is None:
            return
        yield "cluster", self.metrics()
        for tensor, holder, norm in self._exchange.residual_norms():
            yield "residuals", {"tensor": tensor, "holder": holder, "norm": norm}
        for tensor, count in self._exchange.code_counts():
            yield "codes", {"tensor": tensor, **count._asdict()}

    @override
    def metrics(self) -> dict[str, Any]:
        """Return the bytes that all nodes have sent to others: of gradients, and of counts for joint points."""
        if self._exchange is None:
            return {"bytes_sent": 0, "count_bytes": 0}
        return {"bytes_sent": self._exchange.sent, "count_bytes": self._joint.count_bytes}

    # ---- checkpoints ----

    @override
    def to_dict(self) -> Any:
        """Return the bytes sent, of counts as well, and S of the gradient in flight; None without a cluster.

        All ranks call it together.
        """
        if self._exchange is None:
            return None
        # of all ranks, as the bytes that are sent
        sending = sum(self._bench.ranks.every(self._exchange.sending))
        counted = {"count_bytes": self._joint.count_bytes, "sending": sending}
        return {"sent": self._exchange.sent, "flying_scale": self._in_flight_scale, **counted}

    @override
    def load(self, data: Any) -> None:
        if self._exchange is not None:
            self._exchange.sent, self._in_flight_scale = data["sent"], data.get("flying_scale", 1.0)
            # older checkpoints have none of these; rank 0 stands for all ranks when they are added up
            self._joint.count_bytes = data.get("count_bytes", 0)
            self._exchange.sending = data.get("sending", 0) if self._bench.ranks.is_first else 0

    @override
    def arrays(self) -> dict[str, Array]:
        """Return residuals and all other state of nodes and owners, and gradients in flight."""
        if self._exchange is None:
            return {}
        # gradients in flight are the same on all ranks, so rank 0 has them already
        arrays = self._bench.ranks.collected(self._exchange.arrays())
        return arrays | {f"{_IN_FLIGHT}{name}": array for name, array in arrays_of(self._in_flight).items()}

    @override
    def load_arrays(self, arrays: dict[str, Array]) -> None:
        if self._exchange is not None:
            in_flight = {n.removeprefix(_IN_FLIGHT): a for n, a in arrays.items() if n.startswith(_IN_FLIGHT)}
            self._in_flight = lines_from(in_flight)
            self._exchange.load(arrays)
