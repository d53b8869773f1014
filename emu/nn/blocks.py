"""Layers made of layers that a recipe lists. Their parts have their own names, formats and registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import override

from emu.autodiff import Graph, Tensor
from emu.errors import ConfigError, ShapeError
from emu.nn.layer import FunctionTensor, Layer, Parameters, Shape, function_tensors, key, shapes_along

__all__ = ["Residual"]


@dataclass(frozen=True)
class Residual(Layer):
    """The sum of the results of a body and a shortcut for the same input; an empty shortcut returns the input.

    Source: He, Zhang, Ren & Sun, CVPR 2016.
    """

    type_names = ("residual",)
    body: tuple[Layer, ...] = field(metadata=key(name="layers", min_length=1))
    shortcut: tuple[Layer, ...] = field(default=(), metadata=key())

    @override
    def parts(self) -> tuple[Layer, ...]:
        return self.body + self.shortcut

    @override
    def results(self) -> tuple[str, ...]:
        """Return the parts' names, then the sum's: the layer's own."""
        return (*(name for part in self.parts() for name in part.results()), self.name)

    @override
    def output(self, shape: Shape) -> Shape:
        """Return the shape that body and shortcut make."""
        body, shortcut = (shapes_along(way, shape)[-1] for way in (self.body, self.shortcut))
        if body != shortcut:
            raise ConfigError(self._differ(body, shortcut))
        return body

    def _differ(self, body: Shape, shortcut: Shape) -> str:
        return (
            f"`layers` and `shortcut` of layer {self.name!r} (residual) must have results of one shape, got {body} "
            f"from `layers` and {shortcut} from `shortcut`; add a layer to `shortcut`, or change the sizes"
        )

    @override
    def function_tensors(self, feeding: str) -> Iterator[FunctionTensor]:
        """Return those of body and shortcut; the sum itself is no elementary function."""
        # both ways read what the block reads
        yield from function_tensors(self.body, feeding)
        yield from function_tensors(self.shortcut, feeding)

    @override
    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Run body and shortcut, and add.

        Raises:
            ShapeError: their results have different shapes, which one of them would be repeated for.
        """
        left, right = x, x
        for layer in self.body:
            left = layer.forward(graph, left, parameters)
        for layer in self.shortcut:
            right = layer.forward(graph, right, parameters)
        if left.shape != right.shape:
            raise ShapeError(self._differ(left.shape[1:], right.shape[1:]))
        return graph.apply("add", right, left, layer=self.name)
