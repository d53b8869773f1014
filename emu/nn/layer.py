"""The base of layers: fields, parameters, shapes, and the answers that other packages ask of a layer.

A layer is one frozen dataclass. Its fields are also the keys that a recipe writes: `emu.training.layers` makes a table
of configuration from them. So each fact about a layer is written once:

    field(metadata=key(ge=1))         a recipe gives it; its limits are checked there, those of floats in Python as well
    field(metadata=from_input(-1))    a recipe does not give it: it is an extent of the layer's input
    any other field                   can be set from Python alone
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from emu.autodiff import Graph, Tensor
from emu.errors import ConfigError, ShapeError
from emu.formats.integers import LARGEST, as_integer

__all__ = ["Layer", "Moment", "Parameter", "Parameters", "every"]

#: Shape of an input or result of a layer for one example, without the batch: an image, a sequence, a feature vector.
Shape: TypeAlias = tuple[int, ...]

_KEY, _AXIS = "key", "axis"
#: Limits of numbers, in words and as comparisons.
_LIMITS: Mapping[str, tuple[str, Callable[[float, float], bool]]] = {
    "gt": ("above", operator.gt), "ge": ("of at least", operator.ge), "lt": ("below", operator.lt),
    "le": ("of at most", operator.le),
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A parameter that a layer needs.

    Attributes:
        part: "weight" or "bias": its role and the end of its name.
        shape: shape of the array.
        initialiser: name of the rule for its first values.
        fan_in: inputs that contribute to one output.
        fan_out: outputs to which one input contributes.
        by_rows: whether a step reads and changes only some of its rows: those of inputs that are not 0.
        is_table: whether it is never multiplied as a matrix: its rows are looked up or added, or its elements are
            factors of others.
    """

    part: Literal["weight", "bias"]
    shape: tuple[int, ...]
    initialiser: str
    fan_in: int
    fan_out: int
    by_rows: bool = False
    is_table: bool = False


@dataclass(frozen=True)
class Moment:
    """A running moment of a layer: training changes it, but not by a gradient.

    Attributes:
        part: "mean" or "variance": the end of its name.
        shape: shape of the array.
        start: first value of each element.
    """

    part: Literal["mean", "variance"]
    shape: tuple[int, ...]
    start: float


#: What layers read besides their input: parameters and moments, by layer name, then part.
Parameters: TypeAlias = Mapping[str, Mapping[str, Tensor]]


class Key(NamedTuple):
    """The key that a recipe writes for a field.

    Attributes:
        type: type of its value; None is the field's own.
        name: name of the key; "" is the field's own.
        like: field whose value it gets if the recipe does not give it; "" is none.
        limits: `ge`, `gt`, `le`, `lt`, `min_length`, as pydantic's `Field` takes them.
        is_shown_if_set: whether it is left out of `run.json` and of the layer's text at its default value.
    """

    type: Any
    name: str
    like: str
    limits: Mapping[str, float]
    is_shown_if_set: bool = False


def key(
    of_type: Any = None, *, name: str = "", like: str = "", is_shown_if_set: bool = False, **limits: float
) -> Mapping[str, Key]:
    """Return the metadata of a field that a recipe gives; see `Key`."""
    return {_KEY: Key(of_type, name, like, limits, is_shown_if_set)}


def from_input(axis: int) -> Mapping[str, int]:
    """Return the metadata of a field that is the input's extent along `axis`, counted without the batch."""
    return {_AXIS: axis}


def keys_of(kind: type[Layer]) -> dict[str, Key]:
    """Return the keys that a recipe may write for a layer, by the name of the field."""
    return {item.name: item.metadata[_KEY] for item in fields(kind) if _KEY in item.metadata}


def extents_of(kind: type[Layer], shape: Shape) -> dict[str, int]:
    """Return the fields of a layer that follow from its input's shape."""
    return {item.name: shape[item.metadata[_AXIS]] for item in fields(kind) if _AXIS in item.metadata}


class Takes(NamedTuple):
    """The shapes that a layer takes.

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
        """Return whether a shape has as many axes as one of the layer's shapes."""
        return len(shape) in map(len, self.shapes)


def misfit(layer: str, type_name: str, need: object, shape: Shape, remedy: str) -> ConfigError:
    """Return the error that a layer's input has another shape than the layer needs."""
    return ConfigError(f"layer {layer!r} ({type_name}) must have an input of shape {need}, got {shape}; {remedy}")


class FunctionTensor(NamedTuple):
    """A tensor that an elementary function reads or writes: float64, which computes it, must hold its format exactly.

    Attributes:
        layer: name of the tensor.
        role: its role.
        why: the end of "must fit float64 exactly ...".
    """

    layer: str
    role: str
    why: str


@dataclass(frozen=True)
class Layer:
    """Base of layers.

    The class attributes and methods are all that other packages ask of a layer. Each has a default, so a layer defines
    only those that differ.

    Attributes:
        name: unique in its network; formats, registers and parameters are found by it.
        type_names: values of `type` in a recipe; none if recipes cannot name the layer.
        takes: shapes that it takes; None takes any.
        reads_sparse: whether its input is a sparse matrix.
        accepts_sparse: whether it can be the first layer for sparse data: it reads the matrix, or a dense copy.
        only_moves: whether it moves values and writes none, so that it needs no format.
        has_units: whether it has neurons or output channels that several devices can divide among them, which then add
            up their parts of its error.

    Raises:
        ShapeError: a size is not an integer, or below 1 (`padding`: below 0).
        ConfigError: a number is outside the limits of its key: a rate, `eps` or `momentum`.
    """

    name: str
    type_names: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[Takes | None] = None
    reads_sparse: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = False
    only_moves: ClassVar[bool] = False
    has_units: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Take every size as Python's integer, and check the limits of numbers."""
        for item in fields(self):
            # annotations are texts in modules that import `annotations` from `__future__`, as modules of layers do
            if item.type == "int":
                of_recipe: Key | None = item.metadata.get(_KEY)
                limit = 1 if of_recipe is None else of_recipe.limits.get("ge", 1)
                # a limit above 1 is for recipes alone: Python may make an embedding of one token
                least, given = min(int(limit), 1), getattr(self, item.name)
                # the dataclass is frozen
                object.__setattr__(self, item.name, as_integer(item.name, given, least, LARGEST, error=ShapeError))
            elif item.type == "float" and _KEY in item.metadata:
                self._require_within(item.name, item.metadata[_KEY].limits)

    def _require_within(self, name: str, limits: Mapping[str, float]) -> None:
        """Raise ConfigError unless a number is within the limits of its key, as recipes have them."""
        given: Any = getattr(self, name)
        known = [(*_LIMITS[limit], bound) for limit, bound in limits.items() if limit in _LIMITS]
        rules = " and".join(f" {words} {bound:g}" for words, _, bound in known)
        is_number = not isinstance(given, bool) and isinstance(given, Real)
        # a comparison with NaN is false, so NaN is refused as well
        if not is_number or not all(holds(float(given), bound) for _, holds, bound in known):
            raise ConfigError(
                f"`{name}` of layer {self.name!r} ({self.type_name}) must be a number{rules}, got {given!r}; "
                "choose another one"
            )

    @property
    def type_name(self) -> str:
        """The layer's `type` in a recipe, or its class if recipes cannot name it."""
        return self.type_names[0] if self.type_names else type(self).__name__

    @property
    def sparse_columns(self) -> int | None:
        """Number of columns of a dense input of which the layer multiplies the entries alone; None if it does not."""
        return None

    @property
    def token_count(self) -> int | None:
        """Number of different tokens that the layer reads; None if it reads no tokens."""
        return None

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the layer's own parameters, without those of its parts."""
        return ()

    def moments(self) -> tuple[Moment, ...]:
        """Return the layer's own running moments, without those of its parts."""
        return ()

    def first_values(self, part: str) -> Any:
        """Return the first values of a parameter or moment, an array; None if its rule draws them."""
        return None

    def parts(self) -> tuple[Layer, ...]:
        """Return the layers inside this one, in the order in which they are applied."""
        return ()

    def results(self) -> tuple[str, ...]:
        """Return the names of the tensors the layer writes, in order; those of its parts among them."""
        return (self.name,)

    def slopes(self) -> tuple[str, ...]:
        """Return the layer's results whose slope the backward pass computes, and writes in role `slope`."""
        return ()

    def output(self, shape: Shape) -> Shape:
        """Return the shape of the result for an input of a shape, whose axes are those of one of `takes`.

        Raises:
            ConfigError: the layer cannot take this shape; the message names the layer and both shapes.
        """
        return shape

    def require(self, shape: Shape) -> None:
        """Raise ShapeError unless the layer takes an input of a shape, counted without the batch.

        Layers of recipes have the extents of their input; those of a network from Python may have others.
        """
        wanted = list(shape)
        for item in fields(self):
            axis: int | None = item.metadata.get(_AXIS)
            if axis is not None and -len(shape) <= axis < len(shape):
                wanted[axis] = getattr(self, item.name)
            elif axis is not None:
                raise ShapeError(str(self.misfit(self.takes, shape, "add the axes that are missing")))
        if tuple(wanted) != shape:
            remedy = "change the sizes of this layer, or of one before it"
            raise ShapeError(str(self.misfit(tuple(wanted), shape, remedy)))
        try:
            self.output(shape)
        except ConfigError as error:
            raise ShapeError(str(error)) from None

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


def shown(layer: Layer) -> str:
    """Return a layer's text, as dataclasses write it, without the fields that are shown only if they are set."""
    hidden = {name for name, key in keys_of(type(layer)).items() if key.is_shown_if_set}
    given = ((item, getattr(layer, item.name)) for item in fields(layer))
    kept = [f"{item.name}={value!r}" for item, value in given if item.name not in hidden or value != item.default]
    return f"{type(layer).__qualname__}({', '.join(kept)})"


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
        # what only moves has no tensor of its own: the next layer reads that of the last one that wrote
        if not layer.only_moves:
            feeding = layer.results()[-1]
