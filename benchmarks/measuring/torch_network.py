"""A recipe's network in PyTorch, layer by layer: the limit of a training step, and QPyTorch's base."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from benchmarks.measuring.row import StepWork
from emu.nn import Activation, Conv2d, Flatten, Layer, Linear, MaxPool


def has_torch() -> bool:
    """Return whether PyTorch can be imported."""
    return find_spec("torch") is not None


def torch_network(task: StepWork, after: Callable[[], Any] | None = None) -> Any:
    """Return the task's network; `after()` makes a module that stands behind the images and every layer with weights.

    Raises:
        NotImplementedError: a kind of layer that no measured network has.
    """
    nn: Any = importlib.import_module("torch.nn")
    modules: list[Any] = [after()] if after else []
    for layer in task.layers:
        modules.append(_module(nn, layer))
        if after and isinstance(layer, (Conv2d, Linear)):
            modules.append(after())
    return nn.Sequential(*modules)


def _module(nn: Any, layer: Layer) -> Any:
    if isinstance(layer, Conv2d):
        sizes = (layer.in_channels, layer.out_channels, layer.kernel)
        return nn.Conv2d(*sizes, stride=layer.stride, padding=layer.padding, bias=layer.bias)
    if isinstance(layer, Linear):
        return nn.Linear(layer.in_features, layer.out_features, bias=layer.bias)
    if isinstance(layer, MaxPool):
        return nn.MaxPool2d(layer.window, layer.stride)
    if isinstance(layer, Activation) and layer.function == "relu":
        return nn.ReLU()
    if isinstance(layer, Flatten):
        return nn.Flatten()
    raise NotImplementedError(
        f"no measured network has a layer of type {layer.type_name!r}; write its PyTorch module here"
    )


def training_step(task: StepWork, network: Any, optimiser: Any) -> Callable[[], None]:
    """Return one step on the task's batch: forward, loss, backward, update."""
    torch: Any = importlib.import_module("torch")
    images, labels = torch.from_numpy(task.images.copy()), torch.from_numpy(task.labels.copy())
    loss_of = torch.nn.CrossEntropyLoss()

    def run() -> None:
        optimiser.zero_grad()
        loss_of(network(images), labels).backward()
        optimiser.step()

    return run


def plain_optimiser(task: StepWork, network: Any) -> Any:
    """Return gradient descent with the task's rate and momentum."""
    optim: Any = importlib.import_module("torch.optim")
    return optim.SGD(network.parameters(), lr=task.rate, momentum=task.momentum)


def float32_step(task: StepWork) -> Callable[[], None]:
    """Return PyTorch's own step."""
    network = torch_network(task)
    return training_step(task, network, plain_optimiser(task, network))
