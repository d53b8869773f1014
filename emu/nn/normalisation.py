"""Normalisation: results brought to mean 0 and variance 1, then scaled and shifted by trained numbers."""

from __future__ import annotations

from dataclasses import dataclass

from emu.autodiff import Graph, Tensor
from emu.nn.layers import Layer, Moment, Parameter, Parameters

__all__ = ["BatchNorm", "LayerNorm"]


@dataclass(frozen=True)
class _Normalised(Layer):
    """Attributes: numbers per scale and shift, and what is added to variances."""

    features: int
    eps: float = 1e-5

    def parameters(self) -> tuple[Parameter, ...]:
        """Return scale (weight) and shift (bias)."""
        shape, fans = (self.features,), (self.features, self.features)
        return Parameter("weight", shape, "one", *fans), Parameter("bias", shape, "zero", *fans)


@dataclass(frozen=True)
class BatchNorm(_Normalised):
    """Each channel over the batch: (N, features) or (N, features, H, W) to the same.

    Training uses the moments of the batch, and moves the running moments toward them by `momentum`. Otherwise the
    running moments are used.
    Variances are those of the batch, divided by its count.

    Source: Ioffe & Szegedy, ICML 2015.
    """

    momentum: float = 0.1

    def moments(self) -> tuple[Moment, ...]:
        """Return running mean and variance."""
        return Moment("mean", (self.features,), 0.0), Moment("variance", (self.features,), 1.0)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Normalise over all axes but the channels'."""
        own, axes = parameters[self.name], (0, *range(2, len(x.shape)))
        operands = (own["weight"], own["bias"], own["mean"], own["variance"])
        options = {"axes": axes, "along": 1, "eps": self.eps, "momentum": self.momentum}
        return graph.apply("normalise", x, *operands, layer=self.name, **options)


@dataclass(frozen=True)
class LayerNorm(_Normalised):
    """Each vector along the last axis on its own: (..., features) to the same.

    Source: Ba, Kiros & Hinton, arXiv:1607.06450.
    """

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Normalise over the last axis."""
        own, last = parameters[self.name], len(x.shape) - 1
        options = {"axes": (last,), "along": last, "eps": self.eps, "momentum": 0.0}
        return graph.apply("normalise", x, own["weight"], own["bias"], layer=self.name, **options)
