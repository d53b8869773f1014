"""The demands of one training step on a machine, computed from shapes: nothing is trained.

    pass      working copies, forward, loss, backward: over the examples of one node; S taken out of clipped gradients
    arrived   a gradient that an exchange brings is written in its role's format
    update    clipping by the norm of all gradients, the optimiser

Demands depend on recipe, device and batch; with a sparse first layer, also on the columns of the first step's examples.
Demands that depend on values are left out: operations that run again, binary points that are decided
(`emu.precision.shapes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Operation, RowsValue, Value
from emu.cluster.lines import Lines, lines_and_numbers
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Rows, arrived_rows, teams_of
from emu.formats.arrays import code_dtype_for
from emu.hardware import Demand, Device, Machine
from emu.nn import Network
from emu.optim import ParameterState
from emu.precision import Policy
from emu.precision.functions import require_functions
from emu.precision.loss_scaling import NoScaling
from emu.precision.shapes import ShapeRunner
from emu.sparse import CSR
from emu.training.data import Dataset, load_dataset
from emu.training.data.batches import Batches
from emu.training.data_tables import Text
from emu.training.recipe import Recipe
from emu.training.time.fused import fused
from emu.training.workbench.build import build_network, build_optimiser, require_rows
from emu.training.workbench.model import Model, slot_formats
from emu.training.workbench.update import Update, gradient_role, leaves_gradients, unscaled

#: A loss scale for which nothing is computed. Its reciprocal is exact, as for every power of two, so S is taken out by
#: the same operation as in a run with such an S (`unscaled`).
_SOME_SCALE = 2.0


@dataclass(frozen=True)
class Work:
    """The demands of a step, in the order in which a node runs them.

    Attributes:
        examples: examples of the batch that a pass is over.
        passes: for each model that shares the batch, the demands of its pass and of taking the loss scale out of its
            gradients; only one entry if all models have the same demands.
        arrived: demands of writing gradients that an exchange brings.
        update: demands of the update.
        shapes: lines and numbers of a line of every gradient, by name, in the order of parameters.
        parameter_bytes: bytes of one code of a parameter, by name.
        input_elements: numbers of the batch that a host prepares for one model.
        rows: for gradients that have only some rows: how many, by name.
    """

    examples: int
    passes: tuple[tuple[Demand, ...], ...]
    arrived: tuple[Demand, ...]
    update: tuple[Demand, ...]
    shapes: dict[str, tuple[int, int]]
    parameter_bytes: dict[str, int]
    input_elements: int
    rows: dict[str, Rows]

    @property
    def first_pass(self) -> tuple[Demand, ...]:
        """Demands of the first model's pass."""
        return self.passes[0]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(columns * rows for columns, rows in self.shapes.values())


def work_of(
    recipe: Recipe,
    device: Device,
    examples: int,
    table: ClusterTable | None = None,
    data: Dataset | None = None,
    network: Network | None = None,
) -> Work:
    """Return the demands of a step on one node.

    Args:
        recipe: network and optimiser; for a sparse first layer also the data, and the seed of their order.
        device: the machine, the recipe's tables laid over its own.
        examples: examples of the batch, or of each model's part of it.
        table: `[cluster]` of models that share the batch and exchange gradients; None for one model alone.
        data: data for a sparse first layer; None reads those that the recipe names.
        network: a network from Python that replaces the recipe's.

    Raises:
        ConfigError: a function would meet a format that it is not computed for, or data are needed and cannot be used.

    Examples:
        >>> from emu.hardware import load_device
        >>> from emu.training import load_recipe
        >>> work = work_of(load_recipe("mlp"), load_device("p100"), 64)
        >>> demands = work.first_pass
        >>> demands[-1].layer, demands[-1].operation, sum(demand.multiply_adds for demand in demands)
        ('fc1', 'sum', 14554432)
    """
    teams = None if table is None else teams_of(table)
    step = _Step(recipe, device, travels=teams is not None and teams.exchanges, network=network)
    batches, elements = step.batches(examples, teams.replicas if teams else 1, data)
    passes = step.passes(batches)
    states = step.model.states
    # lines are columns of outputs unless the recipe's [cluster] has others
    shapes = shapes_of(states, table.lines if table else "outputs")
    gradients, rows = dict(passes[0].gradients), dict[str, Rows]()
    for state in states:
        # for a sparse first layer: which rows the gradient of each model has
        of_models = [passed.gradients[state.name] for passed in passes]
        if isinstance(of_models[0], RowsValue):
            indices = [_row_indices(gradient) for gradient in of_models]
            # one model alone: the rows that it has are those that are updated
            counts, units, kept = [len(of_model) for of_model in indices], 1, indices[0]
            if step.travels and table is not None:
                kept, units = arrived_rows(_of_nodes(indices, table), table, *shapes[state.name]), table.units
                # what arrives has the rows of all nodes; only the shape of these rows matters
                gradients[state.name] = RowsValue(step.runner.place(state.master.array[kept]), rows=kept)
            rows[state.name] = Rows.of(counts, shapes[state.name][0], units=units, arrived=len(kept))
    # of the first model: all have the same shapes after the exchange
    arrived, update = step.after_passes(gradients)
    if recipe.training.optimiser.fused:
        update = fused(update, len(states[0].slots) if states else 0)
    demands = tuple(passed.demands for passed in passes)
    return Work(examples, demands, arrived, update, shapes, parameter_bytes(states), elements, rows)


def inference_of(recipe: Recipe, device: Device, examples: int = 1, data: Dataset | None = None) -> tuple[Demand, ...]:
    """Return the demands of a forward pass on one node, without working copies of parameters and without the loss.

    In use, a network's parameters are stored in their working formats. Arguments as of `work_of`.
    """
    step = _Step(recipe, device, travels=False)
    batches, _ = step.batches(examples, 1, data)
    return tuple(demand for demand in step.forward(*batches[0]) if demand.role not in ("weight", "bias", "loss"))


@dataclass(frozen=True)
class _Passed:
    """The demands of a pass, and the shapes of its gradients."""

    demands: tuple[Demand, ...]
    gradients: dict[str, Value]


class _Step:
    """A step that computes shapes only: passes of models, then exchange and update."""

    def __init__(self, recipe: Recipe, device: Device, *, travels: bool, network: Network | None = None) -> None:
        policy = Policy(device.precision).at(0)  # formats of the first step
        network = network or build_network(recipe.network)
        require_functions(network, policy)
        self._recipe, self.travels = recipe, travels
        self._optimiser = build_optimiser(recipe.training.optimiser)
        require_rows(network, self._optimiser)
        self.model = Model(network, policy, [], {})
        for layer, p in network.parameters():
            # zeros that take no memory: a step of shapes reads no number
            master = Value(_zeros(p.shape, np.float64), policy.stage(layer.name, "master").format)
            state = ParameterState(layer.name, p.part, master, by_rows=p.by_rows, is_table=p.is_table)
            self._optimiser.start(state, slot_formats(policy, layer.name))
            self.model.states.append(state)
        self._optimiser.require(self.model.states)
        for layer, m in network.moments():
            self.model.moments[f"{layer.name}.{m.part}"] = Value(
                _zeros(m.shape, np.float32), policy.stage(layer.name, "loss").format
            )
        self.runner = ShapeRunner(policy)
        self._scale = 1.0 if isinstance(recipe.loss_scaling, NoScaling) else _SOME_SCALE
        # here S leaves a gradient in the pass, before it travels or is clipped; else it is left to the update
        in_pass = leaves_gradients(recipe.loss_scaling) and (travels or bool(recipe.clipping))
        self._takes_out = in_pass and self._scale != 1

    def batches(self, examples: int, models: int, data: Dataset | None) -> tuple[list[tuple[Any, Any]], int]:
        """Return inputs and labels for each model, and how many numbers a host prepares for one of them.

        Models with dense inputs have the same demands: then the list has one entry.
        """
        if not self.model.network.reads_sparse:
            inputs, labels = _batch(self._recipe, examples)
            return [(inputs, labels)], inputs.size
        whole = Batches.of(self._recipe, examples * models, data)
        inputs, labels = whole.batch(0)
        parts = [slice(i * examples, (i + 1) * examples) for i in range(models)]
        # a batch's share of all entries, as `Batches.planned_elements`, for one of the models
        elements = whole.data.train_inputs.size * examples * models // whole.examples // models
        return [(inputs[part], labels[part]) for part in parts], elements

    def passes(self, batches: Sequence[tuple[Any, Any]]) -> list[_Passed]:
        """Return a pass of each model; models whose inputs have as many entries and used columns have equal demands."""
        known: dict[tuple[int, int], _Passed] = {}
        passes: list[_Passed] = []
        for inputs, labels in batches:
            if not isinstance(inputs, CSR):
                passes.append(self.passed(inputs, labels))
                continue
            # what a product costs depends on entries and used columns alone, so one pass
            # serves all models that share both
            rows = inputs.unique_columns
            key = inputs.nnz, len(rows)
            if key not in known:
                known[key] = self.passed(inputs, labels)
            gradients = {
                name: RowsValue(gradient.array, gradient.format, rows) if isinstance(gradient, RowsValue) else gradient
                for name, gradient in known[key].gradients.items()
            }
            passes.append(_Passed(known[key].demands, gradients))
        return passes

    def passed(self, inputs: Any, labels: Any) -> _Passed:
        """Return a pass of one model."""
        runner = self.runner
        # the very code of a run, on a runner that notes operations instead of computing them
        _, _, gradients, _ = self.model.traced(runner, inputs, labels, backward=True, scale=self._scale)
        if self._takes_out:
            states = self.model.states
            gradients = {state.name: unscaled(state, gradients[state.name], self._scale, runner) for state in states}
        return _Passed(_taken(runner), gradients)

    def forward(self, inputs: Any, labels: Any) -> tuple[Demand, ...]:
        """Return the demands of a forward pass of one model."""
        self.model.traced(self.runner, inputs, labels, backward=False)
        return _taken(self.runner)

    def after_passes(self, gradients: dict[str, Value]) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
        """Return the demands of writing the gradients that an exchange brings, and those of the update."""
        runner, role = self.runner, gradient_role(self._recipe.loss_scaling)
        for state in self.model.states if self.travels else ():
            sent = gradients[state.name]
            # without a format: a sum of decoded messages, before it is written
            exact = RowsValue(sent.array, rows=sent.rows) if isinstance(sent, RowsValue) else Value(sent.array)
            write = Operation("quantize", (exact,), part=state.part)
            gradients[state.name] = exact.holding(runner.run(write, role, state.layer))
        arrived = _taken(runner)
        # what is left for the update to take out
        scale = 1.0 if self._takes_out else self._scale
        Update.of(self._recipe, self._optimiser).apply(self.model.states, gradients, 1.0, scale, runner)
        return arrived, _taken(runner)


def _row_indices(gradient: Value) -> NDArray[np.int64]:
    """Return the rows that a gradient has."""
    assert isinstance(gradient, RowsValue), "a gradient has some rows in every pass, or in none"
    return np.asarray(gradient.rows, np.int64)


def _of_nodes(indices: Sequence[NDArray[np.int64]], table: ClusterTable) -> list[NDArray[np.int64]]:
    """Return the row indices of each node: the union over its processing units."""
    return [np.unique(np.concatenate(indices[i : i + table.units])) for i in range(0, len(indices), table.units)]


def sparse_data(recipe: Recipe) -> Dataset | None:
    """Return the examples that `work_of` reads; None if the demands of a step do not depend on them."""
    if not recipe.network.layers or not recipe.network.layers[0].kind.reads_sparse:
        return None
    return load_dataset(recipe.data, recipe.network.input, recipe.network.classes)


def longest(passes: Sequence[Sequence[Demand]], machine: Machine) -> list[Demand]:
    """Return one pass made of the longest demands of several passes, because all models wait for the longest.

    Args:
        passes: passes of models that run the same operations.
        machine: machine that each model runs on.
    """
    return [
        same[0] if len(set(same)) == 1 else max(same, key=lambda demand: machine.time_of(demand).duration_ps)
        for same in zip(*passes, strict=True)
    ]


def shapes_of(states: Iterable[ParameterState], lines: Lines) -> dict[str, tuple[int, int]]:
    """Return how many lines each gradient has and how many numbers a line; if it has only some rows, rows are lines."""
    return {s.name: lines_and_numbers(s.master.shape, "outputs" if s.by_rows else lines) for s in states}


def parameter_bytes(states: Iterable[ParameterState]) -> dict[str, int]:
    """Return the bytes of one code of each parameter, by name: a controller returns parameters as codes."""
    return {state.name: code_dtype_for(state.master.format.width_bits).itemsize for state in states}


def _batch(recipe: Recipe, examples: int) -> tuple[Any, Any]:
    """Return inputs and labels of a step as views of a single zero: only their shapes matter."""
    text = isinstance(recipe.data, Text)
    inputs = _zeros((examples, *recipe.network.input), np.int64 if text else np.float32)
    return inputs, _zeros(inputs.shape if text else (examples,), np.int64)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _taken(runner: ShapeRunner) -> tuple[Demand, ...]:
    """Return the demands so far, and remove them from the runner."""
    taken = tuple(runner.demands)
    runner.demands.clear()
    return taken
