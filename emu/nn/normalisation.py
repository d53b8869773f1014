"""Normalisation and dropout: layers that compute one thing in training and another afterwards.

Normalisation brings results to mean 0 and variance 1, then scales and shifts them by trained numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from typing_extensions import override

from emu.autodiff import Graph, Tensor
from emu.nn.layer import FunctionTensor, Layer, Moment, Parameter, Parameters, Takes, from_input, key

__all__ = ["BatchNorm", "Dropout", "LayerNorm"]


@dataclass(frozen=True)
class _Normalised(Layer):
    """A layer that normalises: scale and shift, and the host's moments."""

    def _scale_and_shift(self, features: int) -> tuple[Parameter, ...]:
        """Return scale (weight) and shift (bias)."""
        shape, fans = (features,), (features, features)
        return Parameter("weight", shape, "one", *fans), Parameter("bias", shape, "zero", *fans)

    @override
    def function_tensors(self, feeding: str) -> Iterable[FunctionTensor]:
        """Return the tensor of moments, because the host computes roots of them."""
        return (FunctionTensor(self.name, "loss", "to normalise"),)


@dataclass(frozen=True)
class BatchNorm(_Normalised):
    """Each channel over the batch: (N, features) or (N, features, H, W) to the same.

    Training uses the moments of the batch, and moves the running moments toward them by `momentum`. Otherwise the
    running moments are used. Variances are those of the batch, divided by its count; `eps` is added to them.

    Source: Ioffe & Szegedy, ICML 2015.
    """

    type_names = ("batch_norm",)
    takes = Takes((("features",), ("channels", "rows", "columns")), "use layer_norm for sequences")
    features: int = field(metadata=from_input(0))
    eps: float = field(default=1e-5, metadata=key(gt=0))
    momentum: float = field(default=0.1, metadata=key(gt=0, le=1))

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        """Return scale and shift."""
        return self._scale_and_shift(self.features)

    @override
    def moments(self) -> tuple[Moment, ...]:
        """Return running mean and variance."""
        return Moment("mean", (self.features,), 0.0), Moment("variance", (self.features,), 1.0)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Normalise over all axes but the channels'."""
        self.require(x.shape[1:])
        # (0,) of features, (0, 2, 3) of images
        own, axes = parameters[self.name], (0, *range(2, len(x.shape)))
        operands = (own["weight"], own["bias"], own["mean"], own["variance"])
        options = {"axes": axes, "along": 1, "eps": self.eps, "momentum": self.momentum}
        return graph.apply("normalise", x, *operands, layer=self.name, **options)


@dataclass(frozen=True)
class LayerNorm(_Normalised):
    """Each vector along the last axis on its own: (..., features) to the same; `eps` is added to variances.

    Source: Ba, Kiros & Hinton, arXiv:1607.06450.
    """

    type_names = ("layer_norm",)
    takes = Takes((("features",), ("length", "features")), "use batch_norm for images")
    features: int = field(metadata=from_input(-1))
    eps: float = field(default=1e-5, metadata=key(gt=0))

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        """Return scale and shift."""
        return self._scale_and_shift(self.features)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Normalise over the last axis."""
        self.require(x.shape[1:])
        own, last = parameters[self.name], len(x.shape) - 1
        # momentum is not read: without running moments nothing is moved
        options = {"axes": (last,), "along": last, "eps": self.eps, "momentum": 0.0}
        return graph.apply("normalise", x, own["weight"], own["bias"], layer=self.name, **options)


@dataclass(frozen=True)
class Dropout(Layer):
    """In training, each value is 0 with probability `rate`, the others are multiplied by 1 / (1 - rate), a float32."""

    type_names = ("dropout",)
    rate: float = field(metadata=key(gt=0, lt=1))

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Drop values in a training pass."""
        # outside training not even the primitive is applied: there is no tensor to write
        return graph.apply("dropout", x, layer=self.name, rate=self.rate) if graph.training else x
