"""Simulated time in a training run: `emu.training.time.simulation`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

from typing_extensions import override

from emu.cluster.parallelism import StepTimes
from emu.cluster.settings import ClusterTable
from emu.cluster.striped import striped_layers
from emu.errors import ConfigError
from emu.hardware import DynamicPoint, chrome_trace, machine_of
from emu.nn import every
from emu.training.data_tables import SOURCE_BYTES
from emu.training.systems.system import AskTimes, Attempt, Row, System
from emu.training.time.cluster_simulation import ClusterSimulation
from emu.training.time.placing import controllers_of_run
from emu.training.time.simulation import HostWork, Simulation
from emu.training.time.sparse_products import SparseInputs
from emu.training.time.work import parameter_bytes, shapes_of
from emu.training.workbench import Workbench
from emu.training.workbench.model import Model, Pass

#: Chrome trace events of the first steps.
TRACE = "trace.json"


class SimulatedTime(System):
    """The time of a device with a clock."""

    key = "simulation"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # of each interval's steps: layer and role are empty for the batch; unit is the device's or the host's,
        # `memory`'s time is within its unit's, `link` moves bytes to the host and back; kind is forward, backward,
        # update, redo, host or transfer, of a cluster quantise or send, of a node's port, and clip; transfers of
        # the port are counts, through that of the first node; operations are multiply-adds, or results where there are
        # none
        "simulation": {
            "step": "int64",
            "layer": "string",
            "role": "string",
            "unit": "string",
            "kind": "string",
            "calls": "int64",
            "cycles": "int64",
            "picoseconds": "int64",
            "operations": "int64",
            "bytes": "int64",
        },
        # gradients of sparse layers, of each interval's steps and of one device: what the products take, which is in
        # `simulation` as well, and what a transposed copy of each input would add
        "sparse": {
            "step": "int64",
            "layer": "string",
            "entries": "int64",
            "rows": "int64",
            "product_ps": "int64",
            "transpose_ps": "int64",
            "product_bytes": "int64",
            "transpose_bytes": "int64",
        },
    }

    def __init__(self, bench: Workbench) -> None:
        """Begin at time 0, if the device has a clock and, for several nodes, a crossbar."""
        self._device, self._batches, self._cluster = bench.device.name, bench.batches, bench.recipe.cluster
        self._elements = bench.batches.planned_elements
        self._bytes = self._elements * SOURCE_BYTES[bench.recipe.data.kind]
        self._missing, self._done = "", 0
        self._time = self._new_simulation(bench)
        if self._time is not None:
            # the list itself: runners append to it, and the simulation clears it after each step
            bench.runners.profile.demands = self._time.demands

    def _new_simulation(self, bench: Workbench) -> Simulation | None:
        """Return the simulation of a device, or of a cluster; None if it lacks a clock or a crossbar."""
        machine, table, clipping = machine_of(bench.device), bench.recipe.cluster, bench.recipe.clipping
        on_host = (bench.device.dynamic_point or DynamicPoint()).decided_on == "host"
        if machine is None:
            return None
        states = bench.model.states
        sparse = _sparse_inputs(bench.model)
        # all parameters have as many slots: an optimiser that moves matrices otherwise cannot be fused
        slots = len(states[0].slots) if states and bench.recipe.training.optimiser.fused else None
        if table is None and clipping is None:
            host = HostWork(self._elements, self._bytes, on_host)
            options: dict[str, Any] = {"sparse_columns": sparse.columns, "fused_slots": slots}
            return Simulation(machine, host, **options)
        # `Simulation` knows no clipping: one node that clips is a cluster of one
        table = table or ClusterTable(nodes=1)
        shapes = shapes_of(states, table.lines)
        about: dict[str, Any] = {"table": table, "shapes": shapes, "clipping": clipping}
        about["fused_slots"] = slots
        # whole layers on devices compute errors in one piece
        in_parts = table.model_parallel > 1 and table.model_split == "stripes"
        about["divided"] = striped_layers(bench.model.network.layers) if in_parts else ()
        about["sparse"] = sparse
        about["parameter_bytes"] = parameter_bytes(states)
        host = HostWork(*self._share(bench.batches.planned), on_host)
        about["controller_of"] = controllers_of_run(bench, table)
        try:
            return ClusterSimulation(machine, host, **about)
        except ConfigError as error:  # a device without a crossbar can still train: only its time is unknown
            self._missing = str(error)
            return None

    def _share(self, examples: int) -> tuple[int, int]:
        """Return numbers and bytes of a batch that one host prepares."""
        batches, table = self._batches, self._cluster
        # units of the nodes that share the next batch
        models = table.units * len(table.layout().workers[: batches.workers]) if table else 1
        numbers, size = (whole * examples // batches.planned for whole in (self._elements, self._bytes))
        return numbers // models, size // models

    @override
    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        """Return the pass with its demands marked as repeated if it is not the first of its step."""
        if self._time is None:
            return attempt
        # a counter for each step: `around` is called once a step, the pass it returns once or more
        demands, passes = self._time.demands, count()

        def charged(scale: float) -> Pass:
            again, begun = next(passes) > 0, len(demands)
            result = attempt(scale)
            if again:
                # a pass at another loss scale costs its time again, as an operation at another point does
                demands[begun:] = [demand._replace(again=True) for demand in demands[begun:]]
            return result

        return charged

    @override
    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        """Add the simulated time of the step."""
        self._done = steps
        if self._time is not None:
            # the host prepares the next batch, that of step `steps`, while the device computes this batch
            self._time.resize(*self._share(self._batches.size_at(steps)), self._batches.workers)
            self._time.end_step(steps, phase)

    @override
    def step_times(self) -> StepTimes | None:
        """Return simulated times of the parts of the step that has ended; None if one node took it alone."""
        if not isinstance(self._time, ClusterSimulation):
            return None
        # `_done` counts steps that are done: this is the size of the last step
        return self._time.step_times(self._batches.size_at(self._done - 1))

    @override
    def interval(self) -> Iterator[Row]:
        """Yield what each layer, role and unit has spent, and what sparse gradients cost."""
        if self._time is not None:
            yield from (("simulation", row) for row in self._time.rows())
            yield from (("sparse", row) for row in self._time.sparse_rows())
            # both kinds of rows first: `reset` drops what they are made of
            self._time.reset()

    @override
    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the trace."""
        if self._time is not None:
            yield (TRACE, json.dumps(chrome_trace(self._device, self._time.events)))

    @override
    def about(self) -> dict[str, Any]:
        """Return the simulated time of the whole run and of each phase of training."""
        time = self._time
        return {
            "simulated_seconds": None if time is None else time.seconds,
            "simulated_picoseconds_by_phase": {} if time is None else dict(time.by_phase),
            **({"simulated_time_missing": self._missing} if self._missing else {}),
        }

    @override
    def to_dict(self) -> Any:
        """Return the time so far; None without a clock."""
        return None if self._time is None else self._time.to_dict()

    @override
    def load(self, data: Any) -> None:
        if self._time is not None:
            self._time.load(data)


def _sparse_inputs(model: Model) -> SparseInputs:
    """Return the inputs of which layers multiply the entries alone: the batch, or what they find in a dense input."""
    by_rows = [state for state in model.states if state.by_rows]
    columns = {state.layer: len(state.master.array) for state in by_rows}
    for layer in every(model.network.layers):
        if layer.sparse_columns is not None:
            # such a layer finds the entries of a dense input
            columns[layer.name] = layer.sparse_columns
    return SparseInputs(columns, tuple(state.name for state in by_rows))
