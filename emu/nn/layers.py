"""Layers: what parameters they have, and which primitive they apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from emu.autodiff import Graph, Tensor


@dataclass(frozen=True)
class Parameter:
    """A parameter a layer asks for.

    Attributes:
        part: "weight" or "bias": its role and the end of its name.
        shape: of the array.
        initialiser: how it begins.
        fan_in: inputs that meet in one output.
        fan_out: outputs one input reaches.
    """

    part: Literal["weight", "bias"]
    shape: tuple[int, ...]
    initialiser: str
    fan_in: int
    fan_out: int


@dataclass(frozen=True)
class Layer:
    """Base of layers.

    Attributes:
        name: unique in its network; formats, registers and parameters go by it.
    """

    name: str

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters the layer asks for."""
        return ()

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the layer's result; `parameters` by part."""
        raise NotImplementedError


@dataclass(frozen=True)
class Linear(Layer):
    """y = x W^T + b: (N, in_features) to (N, out_features); weight (out_features, in_features)."""

    in_features: int
    out_features: int
    bias: bool = True
    initialiser: str = "he"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return weight and bias."""
        fans = (self.in_features, self.out_features)
        weight = Parameter("weight", (self.out_features, self.in_features), self.initialiser, *fans)
        return (weight, Parameter("bias", (self.out_features,), "zero", *fans)) if self.bias else (weight,)

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Apply the product; the bias is the unit's addend."""
        return graph.apply("linear", x, *parameters.values(), layer=self.name)


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

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Apply the convolution; the bias is the unit's addend."""
        shape = {"stride": (self.stride, self.stride), "padding": (self.padding, self.padding)}
        return graph.apply("conv2d", x, *parameters.values(), layer=self.name, **shape)


@dataclass(frozen=True)
class MaxPool(Layer):
    """The largest value of each square window: NaN wins, the first of equals passes the error back."""

    window: int
    stride: int

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Apply the pooling."""
        return graph.apply("max_pool", x, layer=self.name, window=self.window, stride=self.stride)


@dataclass(frozen=True)
class AvgPool(Layer):
    """The mean of each square window: the accumulator's content divided once, rounded once."""

    window: int
    stride: int

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Apply the pooling."""
        return graph.apply("avg_pool", x, layer=self.name, window=self.window, stride=self.stride)


@dataclass(frozen=True)
class Activation(Layer):
    """relu, sigmoid or tanh, element by element."""

    function: Literal["relu", "sigmoid", "tanh"]

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Apply the function."""
        return graph.apply(self.function, x, layer=self.name)


@dataclass(frozen=True)
class Flatten(Layer):
    """(N, C, H, W) to (N, C * H * W), in C order."""

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Reshape."""
        return graph.apply("flatten", x, layer=self.name)
