"""A network whose tensors go where a graph says: steps in order, each of which reads results of earlier ones.

    input ──► conv1 ──► relu1 ──┬──► conv2 ──► add ──► ...        a step reads names, and writes its own
                                └───────────────┘

A step is a layer: it has a name, formats, a register and parameters as any other. What it applies is one primitive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray
from typing_extensions import override

from emu.autodiff import Graph, Tensor, Value
from emu.autodiff.integer_rules import INTEGERS
from emu.errors import ShapeError
from emu.formats import PRESETS
from emu.nn.layer import FunctionTensor, Layer, Moment, Parameter, Parameters, Shape

__all__ = ["Constant", "Own", "Read", "Step", "Wired"]

Array = NDArray[Any]
_FP32 = PRESETS["fp32"]
#: Primitives that only move numbers, and write none.
_MOVES = {"reshape", "flatten", "transpose", "expand", "take"}
#: Primitives that compute elementary functions, and those of them whose slope the backward pass writes as a tensor.
_FUNCTIONS = {"sigmoid", "tanh", "gelu", "exp", "log", "erf", "elu"}
_SLOPED = {"sigmoid", "tanh", "gelu", "erf", "elu"}


class Read(NamedTuple):
    """An operand that is the result of an earlier step, or an input of the graph, by its name."""

    name: str


class Own(NamedTuple):
    """An operand that is a parameter or a moment of the step: "weight", "bias", "mean" or "variance"."""

    part: str


@dataclass(frozen=True, eq=False)
class Constant:
    """An operand that is a constant of the graph: float32, or integers.

    Attributes:
        array: its numbers.
    """

    array: Array

    @override
    def __repr__(self) -> str:
        return f"Constant({self.array.shape})" if self.array.ndim else f"Constant({self.array.item()!r})"


Operand: TypeAlias = Read | Own | Constant


@dataclass(frozen=True, eq=False)
class Step(Layer):
    """One primitive of a graph.

    Attributes:
        primitive: its name, a key of `emu.autodiff.rules.PRIMITIVES`.
        operands: what it reads, in the order of the primitive.
        options: the primitive's own.
        kind: what the graph calls it, such as "Conv".
        held: its parameters.
        running: its running moments.
        values: first values of parameters and moments, by part.
    """

    primitive: str
    operands: tuple[Operand, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kind: str = ""
    held: tuple[Parameter, ...] = ()
    running: tuple[Moment, ...] = ()
    values: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @property
    @override
    def type_name(self) -> str:
        """What the graph calls the step."""
        return self.kind or self.primitive

    @property
    @override
    def only_moves(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it moves values and writes none."""
        return self.primitive in _MOVES

    @property
    def has_elements(self) -> bool:
        """Whether it computes with integers of the graph, for which a device has no format."""
        # dequantize_linear writes floats, in the layer's own format
        return self.primitive in INTEGERS and self.primitive != "dequantize_linear"

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of earlier results and inputs that it reads, in order."""
        return tuple(operand.name for operand in self.operands if isinstance(operand, Read))

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        return self.held

    @override
    def moments(self) -> tuple[Moment, ...]:
        return self.running

    @override
    def first_values(self, part: str) -> Array | None:
        """Return the values that the graph gives a parameter or moment."""
        return self.values.get(part)

    @override
    def slopes(self) -> tuple[str, ...]:
        return (self.name,) if self.primitive in _SLOPED else ()

    @override
    def function_tensors(self, feeding: str) -> Iterator[FunctionTensor]:
        """Return what an elementary function reads and writes."""
        # `loss` is the role of the host, which computes the inner steps of these two
        if self.primitive in ("softmax", "normalise"):
            yield FunctionTensor(self.name, "loss", f"to compute {self.primitive} in step '{self.name}'")
        if self.primitive not in _FUNCTIONS:
            return
        yield FunctionTensor(feeding, "activation", f"to enter {self.primitive} in step '{self.name}'")
        yield FunctionTensor(self.name, "activation", f"as the result of {self.primitive}")
        if self.primitive == "gelu":
            yield FunctionTensor(self.name, "loss", "to compute gelu's slope")

    def apply(self, graph: Graph, known: Mapping[str, Tensor], parameters: Parameters) -> Tensor:
        """Return the step's result.

        Args:
            graph: tape and runner.
            known: results of earlier steps, and inputs, by name.
            parameters: parameters and moments, by layer, then part.
        """
        read = [self._operand(graph, operand, known, parameters) for operand in self.operands]
        return graph.apply(self.primitive, *read, layer=self.name, **self.options)

    def _operand(self, graph: Graph, operand: Operand, known: Mapping[str, Tensor], parameters: Parameters) -> Tensor:
        if isinstance(operand, Read):
            return known[operand.name]
        if isinstance(operand, Own):
            return parameters[self.name][operand.part]
        is_float = operand.array.dtype.kind == "f"
        # integers have no format: the primitive's options say what they stand for
        return graph.constant(Value(graph.runner.place(operand.array), _FP32 if is_float else None))


#: Makes the steps of a graph for inputs of some shapes, the batch included. Names and parameters are always the same.
Trace: TypeAlias = Callable[[tuple[Shape, ...]], tuple[Step, ...]]


@dataclass(frozen=True, eq=False)
class Wired(Layer):
    """A network of steps: (N, *input) to (N, *result).

    Attributes:
        steps: in an order in which each reads only earlier results, for the batch that `shapes` names.
        inputs: names of the graph's inputs.
        shapes: shapes of the inputs, the batch included, for which the steps were made.
        returns: names of the steps, or inputs, that are the graph's outputs.
        result: shape of the first output, without the batch.
        source: what tells this graph from any other: the file and its hash.
        trace: makes the steps for inputs of other shapes.
    """

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    returns: tuple[str, ...]
    result: Shape
    source: str
    trace: Trace
    # steps for inputs of other shapes than `shapes`, each traced once
    _made: dict[tuple[Shape, ...], tuple[Step, ...]] = field(default_factory=dict[Any, Any])

    @override
    def __repr__(self) -> str:
        return f"Wired({self.name!r}, {self.source!r})"

    @override
    def parts(self) -> tuple[Layer, ...]:
        return self.steps

    @override
    def results(self) -> tuple[str, ...]:
        """Return the names of the steps."""
        return tuple(step.name for step in self.steps)

    @override
    def output(self, shape: Shape) -> Shape:
        if shape != self.shapes[0][1:]:
            raise self.misfit(self.shapes[0][1:], shape, "give what the graph was made for")
        return self.result

    @property
    @override
    def token_count(self) -> int | None:
        """Number of rows of the table in which the first step looks tokens up; None if the input is no tokens."""
        first = self.steps[0]
        return first.held[0].shape[0] if first.primitive == "embedding" else None

    @override
    def function_tensors(self, feeding: str) -> Iterator[FunctionTensor]:
        """Return those of the steps; what only moves has the format of what it reads."""
        # `feeding` is what the caller calls the graph's input
        writers = {name: feeding if own in self.inputs else own for name, own in self.writers().items()}
        for step in self.steps:
            yield from step.function_tensors(next((writers[name] for name in step.reads), feeding))

    def writers(self) -> dict[str, str]:
        """Return which step, or input, wrote the numbers of each tensor: what only moves them writes none."""
        writers = {name: name for name in self.inputs}
        for step in self.steps:
            # a step that moves has the writer of what it reads, found already: steps are in order
            writers[step.name] = writers[step.reads[0]] if step.only_moves and step.reads else step.name
        return writers

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Return the first output of a graph of one input."""
        return self.outputs(graph, (x,), parameters)[0]

    def outputs(self, graph: Graph, inputs: tuple[Tensor, ...], parameters: Parameters) -> list[Tensor]:
        """Return all outputs.

        Raises:
            ShapeError: the number of inputs is not the graph's, or it cannot compute inputs of these shapes.
        """
        known = self.all_results(graph, inputs, parameters)
        return [known[name] for name in self.returns]

    def all_results(self, graph: Graph, inputs: tuple[Tensor, ...], parameters: Parameters) -> dict[str, Tensor]:
        """Return the inputs and the results of all steps, by name; arguments and errors as of `outputs`."""
        if len(inputs) != len(self.inputs):
            raise ShapeError(
                f"a graph must be given its inputs {', '.join(self.inputs)}, got {len(inputs)} arrays; give one for "
                "each"
            )
        known = dict(zip(self.inputs, inputs, strict=True))
        # shapes include the batch: a last, smaller one has steps of its own
        for step in self.steps_of(tuple(x.shape for x in inputs)):
            known[step.name] = step.apply(graph, known, parameters)
        return known

    def steps_of(self, shapes: tuple[Shape, ...]) -> tuple[Step, ...]:
        """Return the steps for inputs of some shapes."""
        if shapes == self.shapes:
            return self.steps
        if shapes not in self._made:
            self._made[shapes] = self.trace(shapes)
        return self._made[shapes]
