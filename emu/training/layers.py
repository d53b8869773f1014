"""The layers a recipe can name, and the shapes they make: one table type per layer, told apart by `type`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from emu._config import Table
from emu.errors import ConfigError

#: Shape of one image or feature vector, without the batch.
Shape: TypeAlias = tuple[int, ...]
#: How weights begin: `he` for layers before relu, `xavier` for sigmoid and tanh.
Initialiser: TypeAlias = Literal["he", "xavier"]

_LAYER_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class LayerTable(Table):
    """What every layer has: a name, filled in by `named` where the recipe gives none."""

    name: str | None = Field(default=None, pattern=_LAYER_NAME)


class Linear(LayerTable):
    """y = x W^T + b. Input (features,), output (out_features,)."""

    type: Literal["linear"]
    out_features: int = Field(ge=1)
    bias: bool = True
    initialiser: Initialiser = "he"


class Conv2d(LayerTable):
    """Cross-correlation with square kernels: (channels, rows, columns) to (out_channels, rows', columns')."""

    type: Literal["conv2d"]
    out_channels: int = Field(ge=1)
    kernel: int = Field(ge=1)
    stride: int = Field(default=1, ge=1)
    padding: int = Field(default=0, ge=0)
    bias: bool = True
    initialiser: Initialiser = "he"


class MaxPool(LayerTable):
    """The largest value of each square window. `stride` None means the window's size; what is left over is dropped."""

    type: Literal["max_pool"]
    window: int = Field(ge=1)
    stride: int | None = Field(default=None, ge=1)


class AvgPool(LayerTable):
    """The mean of each square window. `stride` None means the window's size; what is left over is dropped."""

    type: Literal["avg_pool"]
    window: int = Field(ge=1)
    stride: int | None = Field(default=None, ge=1)


class Relu(LayerTable):
    """max(x, 0)."""

    type: Literal["relu"]


class Sigmoid(LayerTable):
    """1 / (1 + exp(-x))."""

    type: Literal["sigmoid"]


class Tanh(LayerTable):
    """tanh(x)."""

    type: Literal["tanh"]


class Flatten(LayerTable):
    """All values of an image in one row, in C order."""

    type: Literal["flatten"]


Layer: TypeAlias = Annotated[
    Linear | Conv2d | MaxPool | AvgPool | Relu | Sigmoid | Tanh | Flatten, Field(discriminator="type")
]


def named(layers: Sequence[Layer], reserved: Sequence[str]) -> tuple[Layer, ...]:
    """Return the layers with every name filled in: the type and a running number, counted per type (`relu2`).

    Raises:
        ConfigError: two layers have one name, or a name is reserved.
    """
    result: list[Layer] = []
    counts: dict[str, int] = {}
    taken: set[str] = set()
    for layer in layers:
        counts[layer.type] = counts.get(layer.type, 0) + 1
        name = layer.name or f"{layer.type}{counts[layer.type]}"
        if name in reserved or name in taken:
            reason = "is kept for the network's own tensors" if name in reserved else "is another layer's"
            raise ConfigError(f"`name` of a layer must be its own, got {name!r}, which {reason}; choose another name")
        taken.add(name)
        result.append(layer.model_copy(update={"name": name}))
    return tuple(result)


def output_shape(layer: Layer, shape: Shape) -> Shape:
    """Return the shape `layer` makes of one image of `shape`.

    Raises:
        ConfigError: the layer cannot take this shape; names the layer and both shapes.

    Example:
        >>> output_shape(Conv2d(type="conv2d", name="conv1", out_channels=6, kernel=5, padding=2), (1, 28, 28))
        (6, 28, 28)
    """
    if isinstance(layer, Linear):
        if len(shape) != 1:
            raise _misfit(layer, "(features,)", shape, "put a flatten layer before it")
        return (layer.out_features,)
    if isinstance(layer, Flatten):
        size = 1
        for extent in shape:
            size *= extent
        return (size,)
    if isinstance(layer, (Conv2d, MaxPool, AvgPool)):
        return _windowed(layer, shape)
    return shape


def parameter_count(layer: Layer, shape: Shape) -> int:
    """Return the number of trained values of a layer whose input has `shape`, biases included."""
    if isinstance(layer, Linear):
        return layer.out_features * (shape[0] + layer.bias)
    if isinstance(layer, Conv2d):
        return layer.out_channels * (shape[0] * layer.kernel**2 + layer.bias)
    return 0


def _windowed(layer: Conv2d | MaxPool | AvgPool, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise _misfit(layer, "(channels, rows, columns)", shape, "put it before the flatten layer")
    channels, rows, columns = shape
    if isinstance(layer, Conv2d):
        window, stride, padding, channels = layer.kernel, layer.stride, layer.padding, layer.out_channels
        key, remedy = "kernel", "choose a smaller kernel or more padding"
    else:
        window, stride, padding = layer.window, layer.stride or layer.window, 0
        key, remedy = "window", "choose a smaller window"
    extents = [(extent + 2 * padding - window) // stride + 1 for extent in (rows, columns)]
    if min(extents) < 1:
        at_least = max(window - 2 * padding, 1)
        need = f"(channels, {at_least} or more, {at_least} or more) for `{key}` {window}"
        raise _misfit(layer, need, shape, remedy)
    return (channels, *extents)


def _misfit(layer: Layer, need: str, shape: Shape, remedy: str) -> ConfigError:
    return ConfigError(f"layer {layer.name!r} ({layer.type}) must have an input of shape {need}, got {shape}; {remedy}")
