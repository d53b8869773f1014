"""Clipping in a training run: `emu.cluster.clipping`.

    gradients of each processing unit ──► S taken out ──► clipped, layer by layer ──► written ──► exchange, or update

Layers are clipped from the last one to the first, the order in which backpropagation finishes them. A tensor with
clipped elements is written into the format of its gradient once more; any other is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.autodiff import RowsValue, Value
from emu.cluster.clipping import Clipped, ClippingTable, LayerGradients, apply_rules
from emu.cluster.clipping.layer import Memory
from emu.cluster.wires import Touched
from emu.errors import ConfigError
from emu.optim import ParameterState
from emu.training.systems.contributions import columns_of, of_unit, units_of, written
from emu.training.systems.summed import Summed
from emu.training.systems.system import Row, System
from emu.training.workbench import Workbench
from emu.training.workbench.model import Pass
from emu.training.workbench.update import gradient_role, leaves_gradients, unscaled

Array = NDArray[Any]
_MOMENTUM = "momentum"


@dataclass
class Counts:
    """Counts and thresholds of a tensor in an interval.

    Attributes:
        elements: elements that were tested, of all processing units.
        clipped: elements that were clipped.
        nonfinite: elements that were NaN or infinite before.
        low: lower threshold of the last step on the first processing unit, S and share taken out; None if there was
            none.
        high: upper threshold, likewise.
    """

    elements: int = 0
    clipped: int = 0
    nonfinite: int = 0
    low: float | None = None
    high: float | None = None


@dataclass
class Total:
    """Counts of all tensors.

    Attributes:
        clipped: elements that were clipped in the run.
        nonfinite: elements that were NaN or infinite before.
        counts: counts of the interval, by layer and part.
    """

    clipped: int = 0
    nonfinite: int = 0
    counts: dict[tuple[str, str], Counts] = field(default_factory=dict[tuple[str, str], Counts])

    def add(self, other: dict[str, Any], *, limits: bool = True) -> None:
        """Add what `to_dict` returned, of later steps or of other processing units.

        Args:
            other: plain data.
            limits: whether to take its thresholds: those of the first processing unit are kept.
        """
        self.clipped += other["clipped"]
        self.nonfinite += other["nonfinite"]
        for layer, part, counted in other["counts"]:
            counts, more = self.counts.setdefault((layer, part), Counts()), Counts(**counted)
            counts.elements += more.elements
            counts.clipped += more.clipped
            counts.nonfinite += more.nonfinite
            if limits:
                counts.low, counts.high = more.low, more.high

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `add` reads."""
        counts = [[layer, part, vars(counts)] for (layer, part), counts in self.counts.items()]
        return {"clipped": self.clipped, "nonfinite": self.nonfinite, "counts": counts}


class Clipping(System):
    """Gradients of each processing unit, clipped before they leave it."""

    key = "clipping"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # of each interval's steps and all units; low and high: thresholds of its last step on the first unit, S taken
        # out, null without any; nonfinite: elements that were NaN or infinite before
        "clipping": {
            "step": "int64",
            "layer": "string",
            "part": "string",
            "clipped": "int64",
            "elements": "int64",
            "nonfinite": "int64",
            "low": "float64",
            "high": "float64",
        },
    }

    def __init__(self, bench: Workbench) -> None:
        """Begin with nothing remembered, if the recipe clips.

        Raises:
            ConfigError: the format of gradients, or of parameters that a rule reads, does not fit float64.
        """
        self._bench, self._table = bench, bench.recipe.clipping
        self._memories: dict[tuple[int, str], list[Memory]] = {}
        self._so_far = Total()
        if self._table is None:
            return
        scaling = bench.recipe.loss_scaling
        self._in_gradient, self._role = leaves_gradients(scaling), gradient_role(scaling)
        self._layers: dict[str, list[ParameterState]] = {}
        # layers from last to first, but the parts of a layer in their own order: clipping joins parts in that order
        for state in reversed(bench.model.states):
            self._layers.setdefault(state.layer, []).insert(0, state)
        self._require_floats(self._table)
        # clipping happens once, after all repeats of a pass, so it is counted with the update
        self._updating, self._summed = bench.runners.for_updates(), Summed(bench)

    def _require_floats(self, table: ClippingTable) -> None:
        for state in self._bench.model.states:
            formats = {"gradient": self._bench.policy.stage(state.layer, self._role).format}
            formats |= {"master": state.master.format} if table.reads_masters else {}
            formats |= {_MOMENTUM: state.slots[_MOMENTUM].format} if table.reads_momentum else {}
            for role, fmt in formats.items():
                # raws are scaled integers: clipping would compare them with thresholds that are real numbers
                if fmt.carries_raws:
                    raise ConfigError(
                        f"every tensor that [clipping] reads must fit float64, got {fmt} of role `{role}` of "
                        f"{state.name!r}; choose a narrower format"
                    )

    # ---- a step ----

    @override
    def gradients(self, result: Pass) -> Pass:
        """Clip the gradients of each processing unit; a skipped step does not change m and v of the rules."""
        if self._table is None or not result.is_applied:
            return result
        # gradients without a unit's number: there is no cluster, or its warm start goes on
        if units_of(self._bench.model.states[0].name, result.gradients) == [None]:
            return self._clipped_of(result, self._table)
        # each process counts its own processing units; then all get the sum over all processes
        before, self._so_far = self._so_far, Total()
        with self._summed.over(self._updating):
            clipped = self._clipped_of(result, self._table)
        # what all have counted before is the same on every rank; only this step's counts are exchanged
        of_rank = self._so_far.to_dict(), self._is_here(0)
        of_ranks, self._so_far = self._bench.ranks.every(of_rank), before
        for counts, has_first_unit in of_ranks:
            self._so_far.add(counts, limits=has_first_unit)
        return clipped

    def _clipped_of(self, result: Pass, table: ClippingTable) -> Pass:
        """Return a pass with clipped gradients, of the processing units of this process."""
        # if S stays in the gradients until the update, thresholds carry it as well
        taken_out = self._in_gradient and result.scale != 1
        # what the gradients are multiplied by when rules see them
        carried = result.share * (1.0 if self._in_gradient else result.scale)
        gradients, demands = dict(result.gradients), self._bench.runners.profile.demands
        # from here on, demands are those of clipping
        begun, points = 0 if demands is None else len(demands), self._bench.model.points
        for layer, states in self._layers.items():
            for unit in units_of(states[0].name, result.gradients):
                of_layer = {state.part: gradients[of_unit(state.name, unit)] for state in states}
                if taken_out:
                    of_layer = {s.part: unscaled(s, of_layer[s.part], result.scale, self._updating) for s in states}
                # unit 0 stands for a single unit without a number
                clipped = self._clip(table, layer, unit or 0, of_layer, carried)
                # the gradient is written a second time: its point was chosen at the first
                with points.frozen() if points else nullcontext():
                    for state in states:
                        gradients[of_unit(state.name, unit)] = self._rewritten(state, of_layer[state.part], clipped)
        if demands is not None:  # the simulated cost of clipping includes these writes, whether or not they happen
            demands[begun:] = [demand for demand in demands[begun:] if demand.operation != "quantize"]
        return replace(result, gradients=gradients, scale=1.0 if self._in_gradient else result.scale)

    def _clip(
        self, table: ClippingTable, layer: str, unit: int, gradients: Mapping[str, Value], carried: float
    ) -> Clipped:
        """Return the gradients of one processing unit's layer after all rules."""
        states = self._layers[layer]
        columns = {state.part: columns_of(state, gradients[state.part].array) for state in states}
        masters = {s.part: _columns_in(gradients[s.part], columns_of(s)) for s in states} if table.reads_masters else {}
        buffers = {s.part: columns_of(s, s.slots[_MOMENTUM].array) for s in states} if table.reads_momentum else {}
        layer_gradients = LayerGradients(columns, carried, masters, buffers, self._bench.update.slot_scale)
        # a memory for each rule, empty at the first step
        memories = self._memories.get((unit, layer)) or [{} for _ in table.rules]
        clipped, self._memories[unit, layer] = apply_rules(table.rules, layer_gradients, memories)
        self._count(layer, unit, layer_gradients, clipped)
        return clipped

    def _rewritten(self, state: ParameterState, gradient: Value, clipped: Clipped) -> Value:
        if not clipped.counts[state.part]:
            return gradient
        columns = clipped.gradients[state.part]
        # a gradient of some rows stays a gradient of these rows
        clipped_lines = Touched(gradient.rows, columns) if isinstance(gradient, RowsValue) else columns
        return written(state, clipped_lines, self._role, self._updating)

    def _count(self, layer: str, unit: int, layer_gradients: LayerGradients, clipped: Clipped) -> None:
        for part, array in layer_gradients.gradients.items():
            counts = self._so_far.counts.setdefault((layer, part), Counts())
            nonfinite = int(array.size - np.isfinite(array).sum())
            counts.elements += array.size
            counts.clipped += clipped.counts[part]
            counts.nonfinite += nonfinite
            self._so_far.clipped += clipped.counts[part]
            self._so_far.nonfinite += nonfinite
            if unit == 0:
                # divided by what gradients carry: thresholds of steps with different S can be compared
                counts.high, counts.low = (
                    (_finite(limit / layer_gradients.carried) for limit in clipped.limits)
                    if clipped.limits
                    else (None, None)
                )

    # ---- tables ----

    @override
    def interval(self) -> Iterator[Row]:
        """Yield the counts of each tensor, in the order of clipping."""
        for (layer, part), counts in self._so_far.counts.items():
            yield "clipping", {"layer": layer, "part": part, **vars(counts)}
        # the interval's counts; the totals of the run stay
        self._so_far.counts = {}

    @override
    def metrics(self) -> dict[str, Any]:
        """Return how many elements of gradients were clipped, and how many were not finite before."""
        return {"clipped": self._so_far.clipped, "nonfinite_gradients": self._so_far.nonfinite}

    # ---- checkpoints ----

    @override
    def to_dict(self) -> Any:
        """Return the counts of the run and of the interval in progress; None without clipping."""
        return None if self._table is None else self._so_far.to_dict()

    @override
    def load(self, data: Any) -> None:
        if self._table is not None:
            self._so_far = Total()
            self._so_far.add(data)

    @override
    def arrays(self) -> dict[str, Array]:
        """Return the state of the rules, by processing unit and layer."""
        arrays = {
            f"{unit}/{index}/{name}/{layer}": array
            for (unit, layer), memories in self._memories.items()
            if self._is_here(unit)
            for index, memory in enumerate(memories)
            for name, array in memory.items()
        }
        # on rank 0, which writes the checkpoint, the memories of all ranks' units
        return self._bench.ranks.collected(arrays) if self._table is not None else arrays

    def _is_here(self, unit: int) -> bool:
        """Return whether this process has a processing unit."""
        cluster = self._bench.recipe.cluster
        if cluster is None:
            return True
        # units are numbered over the workers, which need not be the first nodes
        node = cluster.layout().workers[unit // cluster.units]
        return node in self._bench.ranks.transport(cluster.nodes).local

    @override
    def load_arrays(self, arrays: dict[str, Array]) -> None:
        if self._table is None:
            return
        self._memories = {}
        for key, array in arrays.items():
            # the layer comes last, and takes all slashes that are left
            unit, index, name, layer = key.split("/", 3)
            memories = self._memories.setdefault((int(unit), layer), [{} for _ in self._table.rules])
            memories[int(index)][name] = array


def _columns_in(gradient: Value, columns: Array) -> Array:
    """Return those columns of a parameter that its gradient has."""
    # columns are rows of a parameter that is read by rows
    return columns[gradient.rows] if isinstance(gradient, RowsValue) else columns


def _finite(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None
