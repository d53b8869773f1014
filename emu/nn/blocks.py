"""Layers made of layers: residual connections, attention. Their parts have their own names, formats and registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emu.autodiff import Graph, Tensor
from emu.nn.layers import Layer, Linear, Parameters

__all__ = ["Attention", "Residual"]


@dataclass(frozen=True)
class Residual(Layer):
    """The sum of a body's and a shortcut's results for the same input; an empty shortcut returns the input.

    Source: He, Zhang, Ren & Sun, CVPR 2016.
    """

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def parts(self) -> tuple[Layer, ...]:
        """Return body and shortcut."""
        return self.body + self.shortcut

    def results(self) -> tuple[str, ...]:
        """Return the parts' names, then the sum's: the layer's own."""
        return (*(name for part in self.parts() for name in part.results()), self.name)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Run body and shortcut, and add."""
        left, right = x, x
        for layer in self.body:
            left = layer.forward(graph, left, parameters)
        for layer in self.shortcut:
            right = layer.forward(graph, right, parameters)
        return graph.apply("add", right, left, layer=self.name)


@dataclass(frozen=True)
class Attention(Layer):
    """Multi-head scaled dot-product self-attention: (N, T, features) to the same.

        query, key, value = linear layers
        scores  = query key^T, a product per head          weights = softmax(scores / sqrt(features / heads))
        context = weights value, a product per head        output  = linear layer of the heads side by side

    With `causal`, no position attends to a later one. The host applies the scale, before the softmax.

    Source: Vaswani et al., NeurIPS 2017, section 3.2.
    """

    features: int
    heads: int
    causal: bool = True

    def _linear(self, part: Literal["query", "key", "value", "output"]) -> Linear:
        return Linear(f"{self.name}.{part}", self.features, self.features, initialiser="xavier")

    def parts(self) -> tuple[Layer, ...]:
        """Return the four linear layers."""
        return (self._linear("query"), self._linear("key"), self._linear("value"), self._linear("output"))

    def results(self) -> tuple[str, ...]:
        """Return the names of every tensor on the way."""
        parts = ("query", "key", "value", "scores", "weights", "context", "output")
        return tuple(f"{self.name}.{part}" for part in parts)

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Return the attention's output."""
        count, length, features = x.shape
        apart = (count, length, self.heads, features // self.heads)

        def headed(part: Literal["query", "key", "value"], axes: tuple[int, ...]) -> Tensor:
            layer = self._linear(part)
            whole = layer.forward(graph, x, parameters)
            split = graph.apply("reshape", whole, layer=layer.name, shape=apart)
            return graph.apply("transpose", split, layer=layer.name, axes=axes)

        query, key, value = headed("query", (0, 2, 1, 3)), headed("key", (0, 2, 3, 1)), headed("value", (0, 2, 1, 3))
        scores = graph.apply("matmul", query, key, layer=f"{self.name}.scores")
        scale = (features // self.heads) ** -0.5
        weights = graph.apply("softmax", scores, layer=f"{self.name}.weights", scale=scale, causal=self.causal)
        context = graph.apply("matmul", weights, value, layer=f"{self.name}.context")
        joined = graph.apply("transpose", context, layer=f"{self.name}.context", axes=(0, 2, 1, 3))
        flat = graph.apply("reshape", joined, layer=f"{self.name}.context", shape=x.shape)
        return self._linear("output").forward(graph, flat, parameters)
