"""Layers: what parameters they have, and which primitive they apply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, TypeAlias

from emu.autodiff import Graph, Tensor
from emu.errors import ShapeError
from emu.formats.integers import LARGEST, as_integer

__all__ = [
    "Activation",
    "AvgPool",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool",
    "Moment",
    "Parameter",
    "Parameters",
    "Position",
    "SparseLinear",
    "every",
]


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


@dataclass(frozen=True)
class Layer:
    """Base of layers.

    Attributes:
        name: unique in its network; formats, registers and parameters go by it.
        reads_sparse: whether its input is a sparse matrix.

    Raises:
        ShapeError: a size is not an integer, or below 1 (`padding`: below 0).
    """

    name: str
    reads_sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Take every size as Python's integer."""
        for item in fields(self):
            if item.type == "int":
                least, given = int(item.name != "padding"), getattr(self, item.name)
                object.__setattr__(self, item.name, as_integer(item.name, given, least, LARGEST, error=ShapeError))

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

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Return the layer's result."""
        raise NotImplementedError


def every(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Return layers and, behind each, the layers inside it."""
    for layer in layers:
        yield layer
        yield from every(layer.parts())


@dataclass(frozen=True)
class Linear(Layer):
    """y = x W^T + b: (..., in_features) to (..., out_features); weight (out_features, in_features)."""

    in_features: int
    out_features: int
    bias: bool = True
    initialiser: str = "he"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return weight and bias."""
        fans = (self.in_features, self.out_features)
        weight = Parameter("weight", (self.out_features, self.in_features), self.initialiser, *fans)
        return (weight, Parameter("bias", (self.out_features,), "zero", *fans)) if self.bias else (weight,)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the product; the bias is the unit's addend."""
        return graph.apply("linear", x, *parameters[self.name].values(), layer=self.name)


@dataclass(frozen=True)
class SparseLinear(Layer):
    """y = x W + b of a sparse x: (N, in_features) to (N, out_features); weight (in_features, out_features).

    The first layer of a network. A pass reads only the rows of W whose inputs have entries, and computes the gradient
    of these rows.
    """

    in_features: int
    out_features: int
    bias: bool = True
    initialiser: str = "he"
    reads_sparse: ClassVar[bool] = True

    def parameters(self) -> tuple[Parameter, ...]:
        """Return weight and bias."""
        fans = (self.in_features, self.out_features)
        weight = Parameter("weight", fans, self.initialiser, *fans, by_rows=True)
        return (weight, Parameter("bias", (self.out_features,), "zero", *fans)) if self.bias else (weight,)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the product; the bias is the unit's addend."""
        return graph.apply("sparse_linear", x, *parameters[self.name].values(), layer=self.name)


@dataclass(frozen=True)
class Conv2d(Layer):
    """Cross-correlation: (N, in_channels, H, W) to (N, out_channels, H', W'); weight (out, in, kernel, kernel)."""

    in_channels: int
    out_channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True
    initialiser: str = "he"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return weight and bias."""
        area = self.kernel**2
        fans = (self.in_channels * area, self.out_channels * area)
        weight = Parameter(
            "weight", (self.out_channels, self.in_channels, self.kernel, self.kernel), self.initialiser, *fans
        )
        return (weight, Parameter("bias", (self.out_channels,), "zero", *fans)) if self.bias else (weight,)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the convolution; the bias is the unit's addend."""
        shape = {"stride": (self.stride, self.stride), "padding": (self.padding, self.padding)}
        return graph.apply("conv2d", x, *parameters[self.name].values(), layer=self.name, **shape)


@dataclass(frozen=True)
class MaxPool(Layer):
    """The largest value of each square window; NaN if it has one. Of equals the first gets the error."""

    window: int
    stride: int

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the pooling."""
        return graph.apply("max_pool", x, layer=self.name, window=self.window, stride=self.stride)


@dataclass(frozen=True)
class AvgPool(Layer):
    """The mean of each square window: the accumulator's content divided once, rounded once."""

    window: int
    stride: int

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the pooling."""
        return graph.apply("avg_pool", x, layer=self.name, window=self.window, stride=self.stride)


@dataclass(frozen=True)
class Activation(Layer):
    """relu, sigmoid, tanh or gelu, element by element."""

    function: Literal["relu", "sigmoid", "tanh", "gelu"]

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the function."""
        return graph.apply(self.function, x, layer=self.name)


@dataclass(frozen=True)
class Flatten(Layer):
    """(N, C, H, W) to (N, C * H * W), in C order."""

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Reshape."""
        return graph.apply("flatten", x, layer=self.name)


@dataclass(frozen=True)
class Dropout(Layer):
    """In training, each value is 0 with probability `rate`, the others are multiplied by 1 / (1 - rate), a float32."""

    rate: float

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Drop values in a training pass."""
        return graph.apply("dropout", x, layer=self.name, rate=self.rate) if graph.training else x


@dataclass(frozen=True)
class Embedding(Layer):
    """Rows of a table: tokens (N, T), integers, to (N, T, features); weight (tokens, features)."""

    tokens: int
    features: int
    initialiser: str = "xavier"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the table."""
        return (Parameter("weight", (self.tokens, self.features), self.initialiser, self.features, self.features),)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Look the tokens up."""
        return graph.apply("embedding", parameters[self.name]["weight"], x, layer=self.name)


@dataclass(frozen=True)
class Position(Layer):
    """A trained vector added at every place: (N, T, features) to the same; weight (T, features)."""

    length: int
    features: int
    initialiser: str = "xavier"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the vectors."""
        return (Parameter("weight", (self.length, self.features), self.initialiser, self.features, self.features),)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Add."""
        return graph.apply("add", x, parameters[self.name]["weight"], layer=self.name)
