"""LeNet in PyTorch, layer by layer the network of models/lenet.toml: the limit of a step, and QPyTorch's base."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from emu.bench.row import StepWork

#: Output channels or features of every layer with weights: 6 and 16 maps, 120, 84 and 10 features; kernels of 5 x 5.
MAPS, FEATURES, KERNEL, WINDOW = (6, 16), (120, 84, 10), 5, 2
FLATTENED = 16 * 5 * 5


def has_torch() -> bool:
    """Return whether PyTorch can be imported."""
    return find_spec("torch") is not None


def lenet(after: Callable[[], Any] | None = None) -> Any:
    """Return the network; `after()` makes a module that follows every layer with weights, pooling included."""
    nn: Any = importlib.import_module("torch.nn")
    follow: Callable[[], list[Any]] = lambda: [after()] if after else []  # noqa: E731
    convolutions = [nn.Conv2d(1, MAPS[0], KERNEL, padding=KERNEL // 2), nn.Conv2d(*MAPS, KERNEL)]
    linears = [nn.Linear(i, o) for i, o in zip((FLATTENED, *FEATURES), FEATURES, strict=False)]
    layers: list[Any] = follow()
    for convolution in convolutions:
        layers += [convolution, *follow(), nn.ReLU(), nn.MaxPool2d(WINDOW)]
    layers.append(nn.Flatten())
    for linear in linears[:-1]:
        layers += [linear, *follow(), nn.ReLU()]
    return nn.Sequential(*layers, linears[-1], *follow())


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
    network = lenet()
    return training_step(task, network, plain_optimiser(task, network))
