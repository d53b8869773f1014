"""Layers: which keys, shapes and parameters they have, and which primitive they apply."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from typing_extensions import override

from emu.autodiff import Graph, Tensor
from emu.nn.layer import FunctionTensor, Layer, Parameter, Parameters, Shape, Takes, from_input, key, shown

__all__ = ["Activation", "AvgPool", "Conv2d", "Flatten", "Linear", "MaxPool", "SparseLinear"]

#: How weights begin: `he` for layers before relu, `xavier` for sigmoid and tanh.
INITIALISER = key(Literal["he", "xavier"])
Function: TypeAlias = Literal["relu", "sigmoid", "tanh", "gelu"]


@dataclass(frozen=True)
class Linear(Layer):
    """y = x W^T + b: (..., in_features) to (..., out_features); weight (out_features, in_features).

    Attributes:
        sparse: whether the product and the gradient of W have as terms only the numbers of x other than 0.
    """

    type_names = ("linear",)
    takes = Takes((("features",), ("length", "features")), "put a flatten layer before it")
    accepts_sparse = True
    has_units = True
    in_features: int = field(metadata=from_input(-1))
    out_features: int = field(metadata=key(ge=1))
    bias: bool = field(default=True, metadata=key())
    initialiser: str = field(default="he", metadata=INITIALISER)
    sparse: bool = field(default=False, metadata=key(is_shown_if_set=True))

    @override
    def __repr__(self) -> str:
        # runs know a network from Python by its text: it is that of layers without the key
        return shown(self)

    @property
    @override
    def sparse_columns(self) -> int | None:
        """Number of inputs, if their entries alone are multiplied."""
        return self.in_features if self.sparse else None

    @override
    def output(self, shape: Shape) -> Shape:
        """Return the shape with the features replaced."""
        return (*shape[:-1], self.out_features)

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        fans = (self.in_features, self.out_features)
        weight = Parameter("weight", (self.out_features, self.in_features), self.initialiser, *fans)
        return (weight, Parameter("bias", (self.out_features,), "zero", *fans)) if self.bias else (weight,)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the product; the bias is the unit's addend."""
        # both have the same sum; the second leaves out terms with 0, which a machine then need not multiply
        primitive = "linear_of_entries" if self.sparse else "linear"
        # weight, then bias: the order of `parameters`
        return graph.apply(primitive, x, *parameters[self.name].values(), layer=self.name)


@dataclass(frozen=True)
class SparseLinear(Layer):
    """y = x W + b of a sparse x: (N, in_features) to (N, out_features); weight (in_features, out_features).

    The first layer of a network, whose input is mostly zeros. A pass reads only the rows of W whose inputs have
    entries, and computes the gradient of these rows.
    """

    type_names = ("sparse_linear",)
    takes = Takes((("features",),), "make it the first layer of a network with one number as `input`")
    reads_sparse = True
    accepts_sparse = True
    in_features: int = field(metadata=from_input(0))
    out_features: int = field(metadata=key(ge=1))
    bias: bool = field(default=True, metadata=key())
    initialiser: str = field(default="he", metadata=INITIALISER)

    @override
    def output(self, shape: Shape) -> Shape:
        """Return the number of outputs."""
        return (self.out_features,)

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        fans = (self.in_features, self.out_features)
        weight = Parameter("weight", fans, self.initialiser, *fans, by_rows=True)
        return (weight, Parameter("bias", (self.out_features,), "zero", *fans)) if self.bias else (weight,)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the product; the bias is the unit's addend."""
        return graph.apply("sparse_linear", x, *parameters[self.name].values(), layer=self.name)


_IMAGES = Takes((("channels", "rows", "columns"),), "give it images, before any flatten layer")


@dataclass(frozen=True)
class _Windowed(Layer):
    """A layer with square windows that slide over images."""

    takes = _IMAGES

    def _slid(self, shape: Shape, size: tuple[str, int], stride: int, padding: int, remedy: str) -> tuple[int, ...]:
        """Return rows and columns after windows of that size.

        Raises:
            ConfigError: an input that is no image, or not one window fits.
        """
        # a layer of a recipe was asked before; one from Python comes here
        if not _IMAGES.fits(shape):
            raise self.misfit(_IMAGES, shape, _IMAGES.remedy)
        name, window = size
        # floor division: rows and columns that fill no window are dropped
        extents = tuple((extent + 2 * padding - window) // stride + 1 for extent in shape[1:])
        if min(extents) < 1:
            # one window fits if extent + 2 * padding >= window
            at_least = max(window - 2 * padding, 1)
            need = f"(channels, {at_least} or more, {at_least} or more) for `{name}` {window}"
            raise self.misfit(need, shape, remedy)
        return extents


@dataclass(frozen=True)
class Conv2d(_Windowed):
    """Cross-correlation: (N, in_channels, H, W) to (N, out_channels, H', W'); weight (out, in, kernel, kernel)."""

    type_names = ("conv2d",)
    has_units = True
    in_channels: int = field(metadata=from_input(0))
    out_channels: int = field(metadata=key(ge=1))
    kernel: int = field(metadata=key(ge=1))
    stride: int = field(default=1, metadata=key(ge=1))
    padding: int = field(default=0, metadata=key(ge=0))
    bias: bool = field(default=True, metadata=key())
    initialiser: str = field(default="he", metadata=INITIALISER)

    @override
    def output(self, shape: Shape) -> Shape:
        """Return channels, rows and columns."""
        remedy = "choose a smaller kernel or more padding"
        return (self.out_channels, *self._slid(shape, ("kernel", self.kernel), self.stride, self.padding, remedy))

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        # in each channel an output reads `area` elements, and an element inside the image is read by `area` outputs at
        # stride 1
        area = self.kernel**2
        fans = (self.in_channels * area, self.out_channels * area)
        weight = Parameter(
            "weight", (self.out_channels, self.in_channels, self.kernel, self.kernel), self.initialiser, *fans
        )
        return (weight, Parameter("bias", (self.out_channels,), "zero", *fans)) if self.bias else (weight,)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Apply the convolution; the bias is the unit's addend."""
        shape = {"stride": (self.stride, self.stride), "padding": (self.padding, self.padding)}
        return graph.apply("conv2d", x, *parameters[self.name].values(), layer=self.name, **shape)


@dataclass(frozen=True)
class _Pool(_Windowed):
    """Pooling over square windows, `stride` apart; rows and columns that fill no window are dropped."""

    window: int = field(metadata=key(ge=1))
    stride: int = field(metadata=key(like="window", ge=1))

    @override
    def output(self, shape: Shape) -> Shape:
        """Return channels, rows and columns."""
        return (shape[0], *self._slid(shape, ("window", self.window), self.stride, 0, "choose a smaller window"))


@dataclass(frozen=True)
class MaxPool(_Pool):
    """The largest value of each square window; NaN if it has one. Of equals the first gets the error."""

    type_names = ("max_pool",)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        return graph.apply("max_pool", x, layer=self.name, window=self.window, stride=self.stride)


@dataclass(frozen=True)
class AvgPool(_Pool):
    """The mean of each square window: the accumulator's content divided once, rounded once."""

    type_names = ("avg_pool",)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        self.require(x.shape[1:])
        return graph.apply("avg_pool", x, layer=self.name, window=self.window, stride=self.stride)


@dataclass(frozen=True)
class Activation(Layer):
    """relu, sigmoid, tanh or gelu, element by element."""

    type_names = get_args(Function)
    function: Function = field(metadata=key(name="type"))

    @property
    @override
    def type_name(self) -> str:
        """The function: a recipe writes it as the layer's type."""
        return self.function

    @override
    def slopes(self) -> tuple[str, ...]:
        """Return the result, but not that of relu: its slope is 0 or 1, and nothing is computed."""
        return () if self.function == "relu" else (self.name,)

    @override
    def function_tensors(self, feeding: str) -> Iterator[FunctionTensor]:
        """Return input and result, and the slope where the host computes it; relu only compares."""
        if self.function == "relu":
            return
        yield FunctionTensor(feeding, "activation", f"to enter {self.function} layer '{self.name}'")
        yield FunctionTensor(self.name, "activation", f"as the result of {self.function}")
        if self.function == "gelu":
            yield FunctionTensor(self.name, "loss", "to compute gelu's slope")

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        return graph.apply(self.function, x, layer=self.name)


@dataclass(frozen=True)
class Flatten(Layer):
    """(N, C, H, W) to (N, C * H * W), in C order."""

    type_names = ("flatten",)
    only_moves = True

    @override
    def output(self, shape: Shape) -> Shape:
        """Return the shape of a vector of all values."""
        return (math.prod(shape),)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        return graph.apply("flatten", x, layer=self.name)
