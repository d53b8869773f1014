"""What one step of training asks of a machine, found from shapes: nothing is trained.

    pass      working copies, forward, loss, backward: over the examples of one node; S taken out of what is clipped
    arrived   what a node does with gradients that an exchange brings: each is written in its role's format
    update    clipping by the norm of all gradients, the optimiser

The shape of a step depends on recipe, device and batch. What depends on values is left out: operations that run again,
points that are decided (`emu.precision.shapes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emu.autodiff import Operation, Value
from emu.cluster.lines import Lines, lines_and_numbers
from emu.formats.arrays import code_dtype_for
from emu.hardware import Demand, Device
from emu.optim import ParameterState
from emu.precision import Policy
from emu.precision.loss_scaling import NoScaling
from emu.precision.shapes import ShapeRunner
from emu.training.build import build_network, build_optimiser, require_functions, require_rows
from emu.training.data_tables import Text
from emu.training.model import Model
from emu.training.recipe import Recipe
from emu.training.update import Update, unscaled

#: A scale of the loss whose reciprocal is exact, as S is: what it asks does not depend on which.
_SOME_SCALE = 2.0


@dataclass(frozen=True)
class Work:
    """The demands of a step, in the order in which a node runs them.

    Attributes:
        examples: of the batch that the pass is over.
        computed: of the pass, and of taking the loss scale out of gradients that travel.
        arrived: of writing gradients that an exchange brings.
        update: of the update.
        shapes: lines and numbers of a line of every gradient, by name, in the order of parameters.
        parameter_bytes: of one code of a parameter, by name.
        input_elements: numbers of the batch.
    """

    examples: int
    computed: tuple[Demand, ...]
    arrived: tuple[Demand, ...]
    update: tuple[Demand, ...]
    shapes: dict[str, tuple[int, int]]
    parameter_bytes: dict[str, int]
    input_elements: int

    @property
    def parameters(self) -> int:
        """How many numbers a gradient has."""
        return sum(columns * rows for columns, rows in self.shapes.values())


def work_of(recipe: Recipe, device: Device, examples: int, *, travels: bool = False, lines: Lines = "outputs") -> Work:
    """Return what a step asks of one node.

    Args:
        recipe: network and optimiser.
        device: the machine, the recipe's tables laid over its own.
        examples: of the batch, or of the node's part of it.
        travels: whether gradients are exchanged.
        lines: which numbers of a gradient share levels.

    Raises:
        ConfigError: a function would meet a format that it is not computed for.

    Examples:
        >>> from emu.hardware import load_device
        >>> from emu.training import load_recipe
        >>> work = work_of(load_recipe("mlp"), load_device("p100"), 64)
        >>> work.computed[-1].layer, work.computed[-1].operation, sum(one.multiply_adds for one in work.computed)
        ('fc1', 'sum', 14554432)
    """
    policy = Policy(device.precision).at(0)
    network = build_network(recipe.network)
    require_functions(network, policy)
    optimiser = build_optimiser(recipe.training.optimiser)
    require_rows(network, optimiser)
    model = Model(network, policy, [], {})
    for layer, p in network.parameters():
        master = Value(_zeros(p.shape, np.float64), policy.stage(layer.name, "master").format)
        model.states.append(ParameterState(layer.name, p.part, master, by_rows=p.by_rows))
        optimiser.start(model.states[-1], partial(_format_of, policy, layer.name))
    for layer, m in network.moments():
        model.moments[f"{layer.name}.{m.part}"] = Value(
            _zeros(m.shape, np.float32), policy.stage(layer.name, "loss").format
        )
    runner = ShapeRunner(policy)
    inputs, labels = _batch(recipe, examples)
    scale = 1.0 if isinstance(recipe.loss_scaling, NoScaling) else _SOME_SCALE
    _, _, gradients, _ = model.traced(runner, inputs, labels, backward=True, scale=scale)
    role = "gradient" if scale == 1 else "unscaled"
    if (travels or recipe.clipping) and scale != 1:
        gradients = {state.name: unscaled(state, gradients[state.name], scale, runner) for state in model.states}
        scale = 1.0
    computed = _taken(runner)
    if travels:
        for state in model.states:
            array = runner.place(state.master.array)
            sent = Operation("quantize", (Value(array),), part=state.part)
            gradients[state.name] = runner.run(sent, role, state.layer)
    arrived = _taken(runner)
    Update.of(recipe, optimiser).apply(model.states, gradients, 1.0, scale, runner)
    shapes, codes = shapes_of(model.states, lines), parameter_bytes(model.states)
    return Work(examples, computed, arrived, _taken(runner), shapes, codes, inputs.size)


def shapes_of(states: Iterable[ParameterState], lines: Lines) -> dict[str, tuple[int, int]]:
    """Return lines and numbers of a line of every gradient, by name; of one that has some rows only, rows are lines."""
    return {s.name: lines_and_numbers(s.master.shape, "outputs" if s.by_rows else lines) for s in states}


def parameter_bytes(states: Iterable[ParameterState]) -> dict[str, int]:
    """Return the bytes of one code of every parameter, by name: what a controller returns."""
    return {state.name: code_dtype_for(state.master.format.width_bits).itemsize for state in states}


def _batch(recipe: Recipe, examples: int) -> tuple[Any, Any]:
    """Return inputs and labels of a step, without numbers of their own."""
    text = isinstance(recipe.data, Text)
    inputs = _zeros((examples, *recipe.network.input), np.int64 if text else np.float32)
    return inputs, _zeros(inputs.shape if text else (examples,), np.int64)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _taken(runner: ShapeRunner) -> tuple[Demand, ...]:
    """Return the demands so far, and begin anew."""
    taken = tuple(runner.demands)
    runner.demands.clear()
    return taken


def _format_of(policy: Policy, layer: str, role: str) -> Any:
    return policy.stage(layer, role).format
