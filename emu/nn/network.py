"""A network: layers in sequence, and the loss behind the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from emu.autodiff import Graph, Tensor
from emu.nn.layers import Layer, Parameter

LOSS_LAYER = "loss"
INPUT_LAYER = "input"


@dataclass(frozen=True)
class Network:
    """A sequence of layers and a loss.

    Attributes:
        layers: in order, names unique.
        loss: what is minimised.
    """

    layers: tuple[Layer, ...]
    loss: Literal["softmax_cross_entropy", "mse"] = "softmax_cross_entropy"

    @property
    def names(self) -> list[str]:
        """Names that tensors carry, in order: the input, every layer, the loss."""
        return [INPUT_LAYER, *(layer.name for layer in self.layers), LOSS_LAYER]

    def parameters(self) -> list[tuple[Layer, Parameter]]:
        """Return every parameter with its layer, in order."""
        return [(layer, parameter) for layer in self.layers for parameter in layer.parameters()]

    def forward(self, graph: Graph, x: Tensor, parameters: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
        """Return the last layer's result.

        Args:
            graph: tape and runner.
            x: images or features, quantised.
            parameters: by layer name, then part.
        """
        for layer in self.layers:
            x = layer.forward(graph, x, parameters.get(layer.name, {}))
        return x

    def apply_loss(self, graph: Graph, output: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return graph.apply(self.loss, output, labels, layer=LOSS_LAYER)
