"""A network: layers in sequence, and the loss after the last one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Graph, Tensor
from emu.errors import ConfigError, ShapeError
from emu.nn.layer import Layer, Moment, Parameter, Parameters, every

__all__ = ["Network"]

#: Names of the network's own tensors in policies, registers and tables, beside those of layers.
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
    loss: Literal["softmax_cross_entropy", "mse", "euclidean"] = "softmax_cross_entropy"

    @property
    def names(self) -> list[str]:
        """Names that tensors carry, in order: the input, every layer's results, the loss."""
        return [INPUT_LAYER, *(name for layer in self.layers for name in layer.results()), LOSS_LAYER]

    @property
    def reads_sparse(self) -> bool:
        """Whether the first layer reads a sparse matrix."""
        return bool(self.layers) and self.layers[0].reads_sparse

    def parameters(self) -> list[tuple[Layer, Parameter]]:
        """Return every parameter with its layer, in order."""
        return [(layer, parameter) for layer in every(self.layers) for parameter in layer.parameters()]

    def moments(self) -> list[tuple[Layer, Moment]]:
        """Return every running moment with its layer, in order."""
        return [(layer, moment) for layer in every(self.layers) for moment in layer.moments()]

    def first_values(self, layer: Layer, part: str) -> Any:
        """Return the first values of a parameter or moment of a layer, an array; None if its rule draws them."""
        return layer.first_values(part)

    def require_own_names(self) -> None:
        """Check that no two tensors have the same name, those of layers inside layers included.

        Raises:
            ConfigError: two layers, or tensors inside them, have one name, or a name is kept for the network's own.
        """
        taken: dict[str, str] = dict.fromkeys((INPUT_LAYER, LOSS_LAYER), "is kept for the network's own tensors")
        for layer in every(self.layers):
            # names inside a layer's parts are checked when the part's turn comes: `every` visits it after its owner
            inside = {name for part in every(layer.parts()) for name in (part.name, *part.results())}
            # without repeats, in order: a layer's own name is usually its result's
            for name in dict.fromkeys((layer.name, *layer.results())):
                if name in inside:  # checked when its own layer's turn comes
                    continue
                if name in taken:
                    raise ConfigError(
                        f"`name` of a layer must not be taken, got {name!r}, which {taken[name]}; choose another name"
                    )
                taken[name] = "is another layer's"

    def forward(self, graph: Graph, x: Tensor, parameters: Parameters) -> Tensor:
        """Return the last layer's result.

        Args:
            graph: tape and runner.
            x: images or features, quantised, or tokens.
            parameters: parameters and moments, by layer name, then part.
        """
        for layer in self.layers:
            x = layer.forward(graph, x, parameters)
        return x

    def apply_loss(self, graph: Graph, output: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch: outputs (..., classes), one label for each (...).

        Raises:
            ShapeError: another number of labels than of rows of outputs, or a label of the host that is no class.
        """
        _require_classes(output.shape, labels)
        if len(output.shape) > 2:
            # losses take (rows, classes): of sequences, every position is a row with a label
            rows = math.prod(output.shape[:-1])
            output = graph.apply("reshape", output, layer=LOSS_LAYER, shape=(rows, output.shape[-1]))
            labels = graph.apply("reshape", labels, layer=LOSS_LAYER, shape=(rows,))
        return graph.apply(self.loss, output, labels, layer=LOSS_LAYER)


def _require_classes(shape: tuple[int, ...], labels: Tensor) -> None:
    remedy = "change the last layers of the network"
    # one label for each row, whatever axes the rows have
    if not shape or math.prod(shape[:-1]) != math.prod(labels.shape):
        raise ShapeError(
            f"a network must give one row of outputs for each label, got outputs {shape} for labels {labels.shape}; "
            f"{remedy}"
        )
    numbers = labels.value.array
    # those of a device are not read: that would wait for it
    low, high = _ends_of(numbers) if isinstance(numbers, np.ndarray) and numbers.size else (0, -1)
    if low < 0 or high >= shape[-1]:
        raise ShapeError(
            f"a network must give an output for each class, got {shape[-1]} outputs for a label of "
            f"{low if low < 0 else high}; {remedy}"
        )


def _ends_of(numbers: Any) -> tuple[int, int]:
    return int(numbers.min()), int(numbers.max())


def answers_of(outputs: NDArray[Any]) -> NDArray[Any]:
    """Return where each row has its largest value, its first one if there are several; -1 for a row with NaN."""
    # argmax takes NaN for the largest; -1 is no class, so the answer counts as wrong
    return np.where(np.isnan(outputs).any(axis=-1), -1, outputs.argmax(axis=-1))
