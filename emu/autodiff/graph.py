"""The tape: applies primitives, records them, and runs the backward pass.

Each primitive's forward and backward go through the runner with a role: results are `activation`s, gradients with
respect to them are `error`s, and those with respect to a parameter are `gradient`s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from emu.autodiff.context import Context
from emu.autodiff.options import with_integers
from emu.autodiff.rules import PRIMITIVES
from emu.autodiff.runner import Operation, Runner
from emu.errors import NotDifferentiable, nearest_name
from emu.formats import Value


@dataclass(eq=False)
class Tensor:
    """A node of the graph.

    Attributes:
        value: array and format.
        record: how it was made; None for inputs and parameters.
        is_parameter: gradients arrive with role `gradient` instead of `error`.
        needs_gradient: whether it is, or was made from, a parameter or a tracked input.
    """

    value: Value
    record: Record | None = None
    is_parameter: bool = False
    needs_gradient: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.value.shape


@dataclass(eq=False)
class Record:
    """One application of a primitive.

    Attributes:
        primitive: its name.
        inputs: its operands.
        layer: layer of the result.
        options: the primitive's own.
        saved: arrays that the forward pass saved for the backward pass.
        training: whether that was a training pass.
    """

    primitive: str
    inputs: tuple[Tensor, ...]
    layer: str
    options: Mapping[str, Any]
    saved: Any
    training: bool


class Graph:
    """A tape bound to a runner.

    Attributes:
        runner: runs operations.
        training: whether passes are training passes: dropout drops, batch normalisation takes the batch's moments.
        moments: running moments after a training pass, by layer; the next step begins with them.
    """

    def __init__(self, runner: Runner, *, training: bool = True) -> None:
        self.runner, self.training = runner, training
        self.moments: dict[str, tuple[Value, ...]] = {}
        # of each layer, how many sums of arriving gradients this backward pass has made
        self._sums: dict[str, int] = {}

    def constant(self, value: Value) -> Tensor:
        """Return a node without a gradient."""
        return Tensor(value)

    def parameter(self, value: Value) -> Tensor:
        """Return a node whose gradient has role `gradient`."""
        return Tensor(value, is_parameter=True, needs_gradient=True)

    def variable(self, value: Value) -> Tensor:
        """Return an input whose gradient is computed, with role `error`."""
        return Tensor(value, needs_gradient=True)

    def apply(self, primitive: str, *inputs: Tensor, layer: str, **options: Any) -> Tensor:
        """Apply a primitive and record it.

        Args:
            primitive: a key of `rules.PRIMITIVES`.
            *inputs: operands.
            layer: layer of the result.
            **options: the primitive's own.

        Raises:
            NotDifferentiable: no such primitive.
            ShapeError: a count or an axis among the options is not an integer, or not in its range.
        """
        if primitive not in PRIMITIVES:
            raise NotDifferentiable(
                f"a primitive must be known, got {primitive!r}{nearest_name(primitive, PRIMITIVES)}"
            )
        # checked where the caller stands, before anything is recorded
        options = with_integers(primitive, options, len(inputs[0].shape) if inputs else 0)
        context = Context(self.runner, layer, options, training=self.training)
        result = PRIMITIVES[primitive].forward(context, *(tensor.value for tensor in inputs))
        if context.moments:
            self.moments[layer] = context.moments
        # without a record the operands are not kept alive
        tracked = any(tensor.needs_gradient for tensor in inputs)
        record = Record(primitive, inputs, layer, options, context.saved, self.training) if tracked else None
        return Tensor(result, record, needs_gradient=tracked)

    def backward(self, loss: Tensor, seed: Value) -> dict[int, Value]:
        """Return the gradient of every tracked leaf, by `id` of its tensor.

        Args:
            loss: result to start from; it has the shape of `seed`.
            seed: gradient with respect to it, usually 1 (or the loss scale).

        Raises:
            NotDifferentiable: `loss` was not made from anything tracked.
        """
        if loss.record is None:
            raise NotDifferentiable(
                "a gradient needs a result made from a parameter or tracked input, got a constant; make one with "
                "Graph.parameter or Graph.variable"
            )
        self._sums = {}
        # gradients that wait for their node; `pop` frees each as soon as its node has passed it on
        pending: dict[int, Value] = {id(loss): seed}
        leaves: dict[int, Value] = {}
        # results before operands: when a node's turn comes, every result made from it has given its gradient
        for node in reversed(_in_order(loss)):
            gradient = pending.pop(id(node), None)
            if gradient is None:
                continue
            if node.record is None:
                leaves[id(node)] = gradient
                continue
            self._step_back(node, node.record, gradient, pending)
        return leaves

    def _step_back(self, node: Tensor, record: Record, gradient: Value, pending: dict[int, Value]) -> None:
        primitive = PRIMITIVES[record.primitive]
        operands = tuple(t.value for t in record.inputs)
        tensors: list[Tensor] = []
        tasks: list[Callable[[], Value]] = []
        for position, tensor in enumerate(record.inputs):
            if not tensor.needs_gradient:
                continue
            rule = primitive.way_back(position)
            if rule is None:
                raise NotDifferentiable(
                    f"{record.primitive} has no derivative by operand {position} (layer {record.layer})"
                )
            # a context of its own for each operand: `role` differs, and tasks may run side by side
            context = Context(self.runner, record.layer, record.options, record.saved, training=record.training)
            context.role = _role_of(tensor)
            tensors.append(tensor)
            tasks.append(partial(rule, context, gradient, node.value, *operands))
        # joined in the order of the operands, whichever task ends first: sums have the same bits in every run
        for tensor, contribution in zip(tensors, self.runner.together(tasks), strict=True):
            before, summed = pending.get(id(tensor)), contribution
            if before is not None:
                # numbered, so that every sum of a layer has its own random numbers
                joined = Operation("add", (before, contribution), part=f"sum{self._next_sum(record.layer)}")
                summed = self.runner.run(joined, _role_of(tensor), record.layer)
            pending[id(tensor)] = summed

    def _next_sum(self, layer: str) -> int:
        self._sums[layer] = self._sums.get(layer, 0) + 1
        return self._sums[layer]


def _role_of(tensor: Tensor) -> str:
    return "gradient" if tensor.is_parameter else "error"


def _in_order(loss: Tensor) -> list[Tensor]:
    """Return all tracked nodes that `loss` was made from, operands before results."""
    # a stack instead of recursion: a network may be deeper than Python's recursion limit
    order: list[Tensor] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(loss, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
            continue
        if id(node) in seen or not node.needs_gradient:
            continue
        seen.add(id(node))
        # below its operands on the stack: it comes up again once all of them are in order
        stack.append((node, True))
        if node.record is not None:
            stack.extend((tensor, False) for tensor in node.record.inputs)
    return order
