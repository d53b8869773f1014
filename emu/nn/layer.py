"""What every layer is: fields, parameters, shapes, and the answers that the rest of the package asks of it.

A layer is one frozen dataclass. Its fields are also the keys that a recipe writes: `emu.training.layers` makes a table
of configuration from them. So nothing about a layer stands in a second place:

    field(metadata=key(ge=1))         a recipe gives it; the limits are checked there
    field(metadata=from_input(-1))    a recipe does not give it: it is an extent of the layer's input
    anything else                     can be set from Python alone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from emu.autodiff import Graph, Tensor
from emu.errors import ConfigError, ShapeError
from emu.formats.integers import LARGEST, as_integer

__all__ = ["Layer", "Moment", "Parameter", "Parameters", "every"]

#: Shape of one input of a layer: an image, a sequence or a feature vector, without the batch.
Shape: TypeAlias = tuple[int, ...]

_KEY, _AXIS = "key", "axis"


@dataclass(frozen=True)
class Parameter:
    """A parameter that a layer needs.

    Attributes:
        part: "weight" or "bias": its role and the end of its name.
        shape: of the array.
        initialiser: how it begins.
        fan_in: inputs that contribute to one output.
        fan_out: outputs to which one input contributes.
        by_rows: whether a pass reads, and changes, only some of its rows: those of inputs that are not 0.
    """

    part: Literal["weight", "bias"]
    shape: tuple[int, ...]
    initialiser: str
    fan_in: int
    fan_out: int
    by_rows: bool = False


@dataclass(frozen=True)
class Moment:
    """A running moment of a layer: training changes it, but not by a gradient.

    Attributes:
        part: "mean" or "variance": the end of its name.
        shape: of the array.
        start: what every element begins with.
    """

    part: Literal["mean", "variance"]
    shape: tuple[int, ...]
    start: float


#: What layers read besides their input: parameters and moments, by layer name, then part.
Parameters: TypeAlias = Mapping[str, Mapping[str, Tensor]]


class Key(NamedTuple):
    """What a recipe may write for a field.

    Attributes:
        type: what its value must be; None is the field's own type.
        name: of the key; "" is the field's own name.
        like: field whose value it gets if the recipe does not give it; "" is none.
        limits: `ge`, `gt`, `le`, `lt`, `min_length`, as pydantic's `Field` takes them.
    """

    type: Any
    name: str
    like: str
    limits: Mapping[str, float]


def key(of_type: Any = None, *, name: str = "", like: str = "", **limits: float) -> Mapping[str, Key]:
    """Return the metadata of a field that a recipe gives; see `Key`."""
    return {_KEY: Key(of_type, name, like, limits)}


def from_input(axis: int) -> Mapping[str, int]:
    """Return the metadata of a field that is the input's extent along `axis`, counted without the batch."""
    return {_AXIS: axis}


def keys_of(kind: type[Layer]) -> dict[str, Key]:
    """Return what a recipe may write for a layer, by the name of the field."""
    return {item.name: item.metadata[_KEY] for item in fields(kind) if _KEY in item.metadata}


def extents_of(kind: type[Layer], shape: Shape) -> dict[str, int]:
    """Return the fields of a layer that follow from its input's shape."""
    return {item.name: shape[item.metadata[_AXIS]] for item in fields(kind) if _AXIS in item.metadata}


class Takes(NamedTuple):
    """Which shapes a layer takes.

    Attributes:
        shapes: the names of the axes, for each number of axes that it takes.
        remedy: what to do if an input has another number.
    """

    shapes: tuple[tuple[str, ...], ...]
    remedy: str

    def __str__(self) -> str:
        """Return the shapes as a message names them: `(features,) or (length, features)`."""
        return " or ".join(f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in self.shapes)

    def fits(self, shape: Shape) -> bool:
        """Return whether a shape has as many axes as one of these."""
        return len(shape) in map(len, self.shapes)


def misfit(layer: str, type_name: str, need: object, shape: Shape, remedy: str) -> ConfigError:
    """Return the error that a layer's input has another shape than the layer needs."""
    return ConfigError(f"layer {layer!r} ({type_name}) must have an input of shape {need}, got {shape}; {remedy}")


class FunctionTensor(NamedTuple):
    """A tensor that an elementary function reads or writes; float64, which computes it, must hold its format exactly.

    Attributes:
        layer: name that the tensor goes by.
        role: its role.
        why: the end of "must fit float64 exactly ...".
    """

    layer: str
    role: str
    why: str


@dataclass(frozen=True)
class Layer:
    """Base of layers.

    The class attributes, and the methods below, are everything that is asked about a layer. Each has a default, so a
    layer says only what is special about it.

    Attributes:
        name: unique in its network; formats, registers and parameters go by it.
        type_names: what a recipe writes as `type`; none if recipes cannot name the layer.
        takes: shapes that it takes; None takes any.
        reads_sparse: whether its input is a sparse matrix.
        accepts_sparse: whether it can be the first layer for sparse data: reads the matrix, or the zeros as well.
        only_moves: whether it moves values and writes none, so that no format belongs to it.
        has_units: whether several devices can divide its outputs among them, and add up their parts of its error.

    Raises:
        ShapeError: a size is not an integer, or below 1 (`padding`: below 0).
    """

    name: str
    type_names: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[Takes | None] = None
    reads_sparse: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = False
    only_moves: ClassVar[bool] = False
    has_units: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Take every size as Python's integer."""
        for item in fields(self):
            if item.type == "int":
                of_recipe: Key | None = item.metadata.get(_KEY)
                limit = 1 if of_recipe is None else of_recipe.limits.get("ge", 1)
                # a limit above 1 is for recipes alone: Python may make an embedding of one token
                least, given = min(int(limit), 1), getattr(self, item.name)
                object.__setattr__(self, item.name, as_integer(item.name, given, least, LARGEST, error=ShapeError))

    @property
    def type_name(self) -> str:
        """What a recipe calls this layer, or its class if recipes cannot name it."""
        return self.type_names[0] if self.type_names else type(self).__name__

    @property
    def token_count(self) -> int | None:
        """How many tokens the layer tells apart, if it reads tokens."""
        return None

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the layer's own parameters, without those of its parts."""
        return ()

    def moments(self) -> tuple[Moment, ...]:
        """Return the layer's own running moments, without those of its parts."""
        return ()

    def parts(self) -> tuple[Layer, ...]:
        """Return the layers inside this one, in the order they are applied."""
        return ()

    def results(self) -> tuple[str, ...]:
        """Return the names of the tensors the layer writes, in order; those of its parts among them."""
        return (self.name,)

    def slopes(self) -> tuple[str, ...]:
        """Return the layer's results whose slope the backward pass computes, and writes in role `slope`."""
        return ()

    def output(self, shape: Shape) -> Shape:
        """Return the shape that the layer makes of one input, whose axes are one of `takes`.

        Raises:
            ConfigError: the layer cannot take this shape; names the layer and both shapes.
        """
        return shape

    def function_tensors(self, feeding: str) -> Iterable[FunctionTensor]:
        """Return the tensors that elementary functions of this layer read or write.

        Args:
            feeding: name of the tensor that the layer reads.
        """
        return ()

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Return the layer's result."""
        raise NotImplementedError

    def misfit(self, need: object, shape: Shape, remedy: str) -> ConfigError:
        """Return the error that an input has another shape than the layer needs."""
        return misfit(self.name, self.type_name, need, shape, remedy)


def every(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Return layers and, after each, the layers inside it."""
    for layer in layers:
        yield layer
        yield from every(layer.parts())


def shapes_along(layers: Iterable[Layer], shape: Shape) -> tuple[Shape, ...]:
    """Return the shape of one input before layers in sequence, and after each of them.

    Raises:
        ConfigError: a layer cannot take its input.
    """
    shapes = [shape]
    for layer in layers:
        shapes.append(layer.output(shapes[-1]))
    return tuple(shapes)


def function_tensors(layers: Iterable[Layer], feeding: str) -> Iterator[FunctionTensor]:
    """Return the tensors that elementary functions of layers in sequence read or write."""
    for layer in layers:
        yield from layer.function_tensors(feeding)
        if not layer.only_moves:
            feeding = layer.results()[-1]
