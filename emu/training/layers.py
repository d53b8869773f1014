"""The layers of a recipe: one table type per layer, told apart by `type`, that computes its shapes and builds it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from emu import nn
from emu._config import Items, Table
from emu.errors import ConfigError

#: Shape of one image, sequence or feature vector, without the batch.
Shape: TypeAlias = tuple[int, ...]
#: How weights begin: `he` for layers before relu, `xavier` for sigmoid and tanh.
Initialiser: TypeAlias = Literal["he", "xavier"]

#: Layers inside another one have its name, a dot and their own.
_LAYER_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"


class LayerTable(Table):
    """What every layer has: a name, filled in by `named` where the recipe gives none.

    Attributes:
        reads_sparse: whether its input is a sparse matrix, so that it must be the first.
    """

    reads_sparse: ClassVar[bool] = False
    name: str | None = Field(default=None, pattern=_LAYER_NAME)

    @property
    def called(self) -> str:
        """The name, once it is there."""
        assert self.name is not None
        return self.name

    def inside(self) -> Iterator[tuple[str, Sequence[Layer]]]:
        """Give the layers inside this one, by the key that lists them."""
        yield from ()

    def output(self, shape: Shape) -> Shape:
        """Return the shape the layer makes of one input of `shape`.

        Raises:
            ConfigError: the layer cannot take this shape; names the layer and both shapes.
        """
        return shape

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer for inputs of `shape`."""
        raise NotImplementedError

    def misfit(self, need: str, shape: Shape, remedy: str) -> ConfigError:
        """Return the error that an input has another shape than the layer needs."""
        kind = getattr(self, "type", "")
        return ConfigError(f"layer {self.name!r} ({kind}) must have an input of shape {need}, got {shape}; {remedy}")


class Linear(LayerTable):
    """y = x W^T + b. Input (features,) or (length, features), output with out_features in their place."""

    type: Literal["linear"]
    out_features: int = Field(ge=1)
    bias: bool = True
    initialiser: Initialiser = "he"

    def output(self, shape: Shape) -> Shape:
        """Return the shape with the features replaced."""
        if len(shape) not in (1, 2):
            raise self.misfit("(features,) or (length, features)", shape, "put a flatten layer before it")
        return (*shape[:-1], self.out_features)

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Linear(self.called, shape[-1], self.out_features, self.bias, self.initialiser)


class SparseLinear(LayerTable):
    """y = x W + b of a sparse x: (features,) to (out_features,). The first layer, whose input is mostly zeros."""

    type: Literal["sparse_linear"]
    out_features: int = Field(ge=1)
    bias: bool = True
    initialiser: Initialiser = "he"
    reads_sparse: ClassVar[bool] = True

    def output(self, shape: Shape) -> Shape:
        """Return the number of outputs."""
        if len(shape) != 1:
            raise self.misfit("(features,)", shape, "make it the first layer of a network with one number as `input`")
        return (self.out_features,)

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.SparseLinear(self.called, shape[0], self.out_features, self.bias, self.initialiser)


class _Windowed(LayerTable):
    def _slid(self, shape: Shape, key: str, window: int, stride: int, padding: int, remedy: str) -> tuple[int, ...]:
        """Return rows and columns after windows of that size."""
        if len(shape) != 3:
            raise self.misfit("(channels, rows, columns)", shape, "give it images, before any flatten layer")
        extents = tuple((extent + 2 * padding - window) // stride + 1 for extent in shape[1:])
        if min(extents) < 1:
            at_least = max(window - 2 * padding, 1)
            need = f"(channels, {at_least} or more, {at_least} or more) for `{key}` {window}"
            raise self.misfit(need, shape, remedy)
        return extents


class Conv2d(_Windowed):
    """Cross-correlation with square kernels: (channels, rows, columns) to (out_channels, rows', columns')."""

    type: Literal["conv2d"]
    out_channels: int = Field(ge=1)
    kernel: int = Field(ge=1)
    stride: int = Field(default=1, ge=1)
    padding: int = Field(default=0, ge=0)
    bias: bool = True
    initialiser: Initialiser = "he"

    def output(self, shape: Shape) -> Shape:
        """Return channels, rows and columns."""
        remedy = "choose a smaller kernel or more padding"
        return (self.out_channels, *self._slid(shape, "kernel", self.kernel, self.stride, self.padding, remedy))

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        sizes = (shape[0], self.out_channels, self.kernel, self.stride, self.padding)
        return nn.Conv2d(self.called, *sizes, self.bias, self.initialiser)


class _Pool(_Windowed):
    window: int = Field(ge=1)
    stride: int | None = Field(default=None, ge=1)

    def output(self, shape: Shape) -> Shape:
        """Return channels, rows and columns."""
        stride = self.stride or self.window
        return (*shape[:1], *self._slid(shape, "window", self.window, stride, 0, "choose a smaller window"))


class MaxPool(_Pool):
    """The largest value of each square window. `stride` None means the window's size; what is left over is dropped."""

    type: Literal["max_pool"]

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.MaxPool(self.called, self.window, self.stride or self.window)


class AvgPool(_Pool):
    """The mean of each square window. `stride` None means the window's size; what is left over is dropped."""

    type: Literal["avg_pool"]

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.AvgPool(self.called, self.window, self.stride or self.window)


class Activation(LayerTable):
    """Element by element: max(x, 0), 1 / (1 + exp(-x)), tanh(x), or x times the normal distribution's share below x."""

    type: Literal["relu", "sigmoid", "tanh", "gelu"]

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Activation(self.called, self.type)


class Flatten(LayerTable):
    """All values of an image in one row, in C order."""

    type: Literal["flatten"]

    def output(self, shape: Shape) -> Shape:
        """Return one number: how many values."""
        return (math.prod(shape),)

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Flatten(self.called)


class BatchNorm(LayerTable):
    """Each channel brought to mean 0 and variance 1 over the batch; running moments move by `momentum`."""

    type: Literal["batch_norm"]
    eps: float = Field(default=1e-5, gt=0)
    momentum: float = Field(default=0.1, gt=0, le=1)

    def output(self, shape: Shape) -> Shape:
        """Return the same shape."""
        if len(shape) not in (1, 3):
            raise self.misfit("(features,) or (channels, rows, columns)", shape, "use layer_norm for sequences")
        return shape

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.BatchNorm(self.called, shape[0], self.eps, self.momentum)


class LayerNorm(LayerTable):
    """Each vector of features brought to mean 0 and variance 1."""

    type: Literal["layer_norm"]
    eps: float = Field(default=1e-5, gt=0)

    def output(self, shape: Shape) -> Shape:
        """Return the same shape."""
        if len(shape) not in (1, 2):
            raise self.misfit("(features,) or (length, features)", shape, "use batch_norm for images")
        return shape

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.LayerNorm(self.called, shape[-1], self.eps)


class Dropout(LayerTable):
    """In training, each value is 0 with probability `rate`, and the others are multiplied by 1 / (1 - rate)."""

    type: Literal["dropout"]
    rate: float = Field(gt=0, lt=1)

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Dropout(self.called, self.rate)


class Embedding(LayerTable):
    """A trained row per token: (length,) of 0..tokens-1 to (length, features)."""

    type: Literal["embedding"]
    tokens: int = Field(ge=2)
    features: int = Field(ge=1)

    def output(self, shape: Shape) -> Shape:
        """Return the shape with an axis of features added."""
        if len(shape) != 1:
            raise self.misfit("(length,)", shape, "make it the first layer")
        return (*shape, self.features)

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Embedding(self.called, self.tokens, self.features)


class Position(LayerTable):
    """A trained vector per place, added: (length, features) to the same."""

    type: Literal["position"]

    def output(self, shape: Shape) -> Shape:
        """Return the same shape."""
        return _sequence(self, shape)

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Position(self.called, shape[0], shape[1])


class Attention(LayerTable):
    """Multi-head self-attention: (length, features) to the same. With `causal`, no place sees a later one."""

    type: Literal["attention"]
    heads: int = Field(ge=1)
    causal: bool = True

    def output(self, shape: Shape) -> Shape:
        """Return the same shape."""
        if _sequence(self, shape)[1] % self.heads:
            raise self.misfit(f"(length, a multiple of {self.heads} heads)", shape, "change `heads` or the features")
        return shape

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Attention(self.called, shape[1], self.heads, self.causal)


class Residual(LayerTable):
    """The sum of what `layers` and `shortcut` make of the input; an empty shortcut passes it on."""

    type: Literal["residual"]
    layers: Items[Layer] = Field(min_length=1)
    shortcut: Items[Layer] = ()

    def inside(self) -> Iterator[tuple[str, Sequence[Layer]]]:
        """Give both ways."""
        yield "layers", self.layers
        yield "shortcut", self.shortcut

    def output(self, shape: Shape) -> Shape:
        """Return the shape that both ways make."""
        one, other = (shapes_behind(layers, shape)[-1] for _, layers in self.inside())
        if one != other:
            raise ConfigError(
                f"`layers` and `shortcut` of layer {self.name!r} (residual) must have results of one shape, got {one} "
                f"from `layers` and {other} from `shortcut`; add a layer to `shortcut`, or change the sizes"
            )
        return one

    def build(self, shape: Shape) -> nn.Layer:
        """Return the layer."""
        return nn.Residual(self.called, *(build_layers(layers, shape) for _, layers in self.inside()))


Layer: TypeAlias = Annotated[
    Linear
    | SparseLinear
    | Conv2d
    | MaxPool
    | AvgPool
    | Activation
    | Flatten
    | BatchNorm
    | LayerNorm
    | Dropout
    | Embedding
    | Position
    | Attention
    | Residual,
    Field(discriminator="type"),
]
Residual.model_rebuild()


def shapes_behind(layers: Sequence[Layer], shape: Shape) -> tuple[Shape, ...]:
    """Return the shape before layers and after each of them.

    Raises:
        ConfigError: a layer cannot take its input; names the layer and both shapes.

    Examples:
        >>> conv = Conv2d(type="conv2d", name="conv1", out_channels=6, kernel=5, padding=2)
        >>> shapes_behind([conv], (1, 28, 28))
        ((1, 28, 28), (6, 28, 28))
    """
    shapes = [shape]
    for layer in layers:
        shapes.append(layer.output(shapes[-1]))
    return tuple(shapes)


def flattened(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Give layers and, after each, the layers inside it."""
    for layer in layers:
        yield layer
        for _, inside in layer.inside():
            yield from flattened(inside)


def build_layers(layers: Sequence[Layer], shape: Shape) -> tuple[nn.Layer, ...]:
    """Return the layers that tables describe, for inputs of `shape`."""
    return tuple(layer.build(here) for layer, here in zip(layers, shapes_behind(layers, shape), strict=False))


def named(layers: Sequence[Layer], reserved: Sequence[str]) -> tuple[Layer, ...]:
    """Return the layers with every name filled in: the type and a running number, counted per type (`relu2`).

    Layers inside another one are counted there, and have its name and a dot before their own.

    Raises:
        ConfigError: two layers have one name, or a name is reserved.
    """
    return _named(layers, "", dict.fromkeys(reserved, "is kept for the network's own tensors"))


def _named(layers: Sequence[Layer], prefix: str, taken: dict[str, str]) -> tuple[Layer, ...]:
    result: list[Layer] = []
    counts: dict[str, int] = {}
    for layer in layers:
        counts[layer.type] = counts.get(layer.type, 0) + 1
        own = layer.name or f"{layer.type}{counts[layer.type]}"
        own = own.removeprefix(prefix)
        name = prefix + own
        if "." in own:
            raise ConfigError(
                f"`name` of a layer must have no dot, got {own!r}: dots separate a layer from the layers inside it; "
                "rename it"
            )
        if name in taken:
            raise ConfigError(
                f"`name` of a layer must not be taken, got {name!r}, which {taken[name]}; choose another name"
            )
        taken[name] = "is another layer's"
        # one count and one set of names for body and shortcut together
        inside: list[Layer] = [part for _, parts in layer.inside() for part in parts]
        update: dict[str, object] = {"name": name}
        if inside:
            parts, at = _named(inside, f"{name}.", taken), 0
            for key, listed in layer.inside():
                update[key], at = parts[at : at + len(listed)], at + len(listed)
        result.append(layer.model_copy(update=update))
    return tuple(result)


def _sequence(layer: LayerTable, shape: Shape) -> Shape:
    if len(shape) != 2:
        raise layer.misfit("(length, features)", shape, "put an embedding layer before it")
    return shape
