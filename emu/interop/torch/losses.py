"""Emu's losses as modules of PyTorch: the host computes them, in the format of the `loss` role."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from emu.autodiff import Graph, Tensor, Value
from emu.errors import ConfigError, ShapeError, nearest_name
from emu.interop.torch.applying import Call
from emu.interop.torch.machine import On, machine_of
from emu.interop.torch.package import load_torch
from emu.interop.torch.tensors import as_tensor, numbers_of
from emu.nn import Network
from emu.nn.layer import Parameters
from emu.nn.network import LOSS_LAYER

torch = load_torch()
#: The losses of a recipe.
Kind = Literal["softmax_cross_entropy", "mse", "euclidean"]


class Loss(torch.nn.Module):
    """The mean loss of a batch: of outputs (..., classes), and one label for each (...).

    `mse` and `euclidean` compare outputs with one-hot targets, as recipes do: they take labels, unlike PyTorch's.

    Attributes:
        kind: which loss.
        machine: what it computes on.
    """

    def __init__(self, kind: Kind = "softmax_cross_entropy", on: On = "float32") -> None:
        """Make the loss.

        Args:
            kind: "softmax_cross_entropy", "mse" or "euclidean".
            on: a device's name or path, what `emu.device` returns, or a `Machine`.

        Raises:
            ConfigError: no such loss, or a device cannot be used.
        """
        torch.nn.Module.__init__(self)
        if kind not in get_args(Kind):
            raise ConfigError(f"a loss must be one of emu's, got {kind!r}{nearest_name(kind, get_args(Kind))}")
        self.kind: Kind = kind
        self.machine = machine_of(on)

    def extra_repr(self) -> str:
        """Return the kind, and the machine."""
        return f"{self.kind!r}, on={self.machine.device.name!r}"

    def forward(self, output: Any, labels: Any) -> Any:
        """Return the mean loss, a tensor of shape ().

        Args:
            output: (..., classes).
            labels: integers, (...).

        Raises:
            ShapeError: the shapes do not fit together, or a label names no class.
            FormatError: one of them is no tensor of real numbers.
        """
        output, numbers = as_tensor(output, "output"), numbers_of(labels, "labels")
        if len(output.shape) < 2 or numbers.dtype.kind not in "iu" or numbers.shape != tuple(output.shape[:-1]):
            raise ShapeError(
                f"labels must be integers, one for each row of the outputs {tuple(output.shape)}, got {numbers.dtype} "
                f"of shape {numbers.shape}; give the number of each class"
            )
        classes = output.shape[-1]
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
            wrong = int(numbers.min()) if numbers.min() < 0 else int(numbers.max())
            raise ShapeError(f"labels must be 0..{classes - 1}, the outputs' classes, got {wrong}; check the data")
        # no layers: only its loss is used
        network = Network((), self.kind)

        def compute(graph: Graph, given: Tensor, own: Parameters) -> Tensor:
            # labels are no numbers of the network: integers without a format
            placed = graph.runner.place(numbers.astype(np.int64))
            return network.apply_loss(graph, given, Tensor(Value(placed)))

        return Call(self.machine, compute, LOSS_LAYER, role="loss")(output, {})
