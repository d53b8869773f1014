"""Layers of sequences: tables of tokens and positions, attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from emu.autodiff import Graph, Tensor
from emu.errors import ShapeError
from emu.nn.layer import FunctionTensor, Layer, Parameter, Parameters, Shape, Takes, from_input, key
from emu.nn.layers import Linear

__all__ = ["Attention", "Embedding", "Position"]

_SEQUENCE = Takes((("length", "features"),), "put an embedding layer before it")


@dataclass(frozen=True)
class Embedding(Layer):
    """Rows of a table: tokens (N, T), integers, to (N, T, features); weight (tokens, features)."""

    type_names = ("embedding",)
    takes = Takes((("length",),), "make it the first layer")
    tokens: int = field(metadata=key(ge=2))
    features: int = field(metadata=key(ge=1))
    initialiser: str = "xavier"

    @property
    @override
    def token_count(self) -> int:
        """How many rows the table has."""
        return self.tokens

    @override
    def output(self, shape: Shape) -> Shape:
        """Return the shape with an axis of features added."""
        return (*shape, self.features)

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        # fans of a square matrix, not of the table: the range of first values does not depend on the number of tokens
        shape, fans = (self.tokens, self.features), (self.features, self.features)
        return (Parameter("weight", shape, self.initialiser, *fans, is_table=True),)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Look the tokens up.

        Raises:
            ShapeError: numbers of the host that are no rows of the table.
        """
        tokens: Any = x.value.array
        # those of a device are not read: that would wait for it
        if isinstance(tokens, np.ndarray) and tokens.size:
            self._require_rows(tokens)
        return graph.apply("embedding", parameters[self.name]["weight"], x, layer=self.name)

    def _require_rows(self, tokens: Any) -> None:
        is_integer = tokens.dtype.kind in "iu"
        low, high = (int(tokens.min()), int(tokens.max())) if is_integer else (-1, -1)
        if low < 0 or high >= self.tokens:
            got = f"dtype {tokens.dtype}" if not is_integer else str(low if low < 0 else high)
            raise ShapeError(
                f"layer {self.name!r} (embedding) must read integers in 0..{self.tokens - 1}, the rows of its table, "
                f"got {got}; make it the first layer, and its `tokens` as many as the data have"
            )


@dataclass(frozen=True)
class Position(Layer):
    """A trained vector added at every position: (N, T, features) to the same; weight (T, features)."""

    type_names = ("position",)
    takes = _SEQUENCE
    length: int = field(metadata=from_input(0))
    features: int = field(metadata=from_input(1))
    initialiser: str = "xavier"

    @override
    def parameters(self) -> tuple[Parameter, ...]:
        # fans as in `Embedding`: the range of first values does not depend on the length
        shape, fans = (self.length, self.features), (self.features, self.features)
        return (Parameter("weight", shape, self.initialiser, *fans, is_table=True),)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        self.require(x.shape[1:])
        return graph.apply("add", x, parameters[self.name]["weight"], layer=self.name)


@dataclass(frozen=True)
class Attention(Layer):
    """Multi-head scaled dot-product self-attention: (N, T, features) to the same.

        query, key, value = linear layers
        scores  = query key^T, a product per head          weights = softmax(scores / sqrt(features / heads))
        context = weights value, a product per head        output  = linear layer of the heads side by side

    With `causal`, no position attends to a later one. The host applies the scale, before the softmax.

    Source: Vaswani et al., NeurIPS 2017, section 3.2.
    """

    type_names = ("attention",)
    takes = _SEQUENCE
    features: int = field(metadata=from_input(1))
    heads: int = field(metadata=key(ge=1))
    causal: bool = field(default=True, metadata=key())

    @override
    def output(self, shape: Shape) -> Shape:
        if shape[1] % self.heads:
            raise self.misfit(f"(length, a multiple of {self.heads} heads)", shape, "change `heads` or the features")
        return shape

    def _linear(self, part: Literal["query", "key", "value", "output"]) -> Linear:
        # made anew at each use: a layer is its description, its parameters are found by name
        return Linear(f"{self.name}.{part}", self.features, self.features, initialiser="xavier")

    @override
    def parts(self) -> tuple[Layer, ...]:
        """Return the four linear layers."""
        return (self._linear("query"), self._linear("key"), self._linear("value"), self._linear("output"))

    @override
    def results(self) -> tuple[str, ...]:
        """Return the names of every tensor on the way."""
        # in the order in which they are written; transposes and reshapes write nothing
        parts = ("query", "key", "value", "scores", "weights", "context", "output")
        return tuple(f"{self.name}.{part}" for part in parts)

    @override
    def function_tensors(self, feeding: str) -> Iterator[FunctionTensor]:
        """Return what softmax reads and writes."""
        yield FunctionTensor(f"{self.name}.scores", "activation", "to enter a softmax")
        # `loss` is the role of the host, which computes the exponentials and their sum
        yield FunctionTensor(f"{self.name}.weights", "loss", "to compute a softmax")

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        self.require(x.shape[1:])
        count, length, features = x.shape
        # (N, T, heads, d) with d = features / heads
        apart = (count, length, self.heads, features // self.heads)

        def headed(part: Literal["query", "key", "value"], axes: tuple[int, ...]) -> Tensor:
            layer = self._linear(part)
            whole = layer.forward(graph, x, parameters)
            split = graph.apply("reshape", whole, layer=layer.name, shape=apart)
            return graph.apply("transpose", split, layer=layer.name, axes=axes)

        # (N, heads, T, d) and, for the key, (N, heads, d, T): so a product multiplies the last two axes
        query, key, value = headed("query", (0, 2, 1, 3)), headed("key", (0, 2, 3, 1)), headed("value", (0, 2, 1, 3))
        scores = graph.apply("matmul", query, key, layer=f"{self.name}.scores")
        # 1 / sqrt(d), which softmax rounds to float32 as it multiplies
        scale = (features // self.heads) ** -0.5
        weights = graph.apply("softmax", scores, layer=f"{self.name}.weights", scale=scale, causal=self.causal)
        context = graph.apply("matmul", weights, value, layer=f"{self.name}.context")
        # back to (N, T, heads, d), whose last two axes are the features
        joined = graph.apply("transpose", context, layer=f"{self.name}.context", axes=(0, 2, 1, 3))
        flat = graph.apply("reshape", joined, layer=f"{self.name}.context", shape=x.shape)
        return self._linear("output").forward(graph, flat, parameters)
