"""From a recipe's network table to layers that know their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu import nn
from emu.errors import ConfigError
from emu.nn.network import INPUT_LAYER, LOSS_LAYER
from emu.optim import GradientDescent
from emu.precision import Policy
from emu.training.recipe import Network, Optimiser


def build_network(spec: Network) -> nn.Network:
    """Return the network a recipe describes; its shapes were checked when the recipe was."""
    layers = [_BUILDERS[table.type](table, shape) for table, shape in zip(spec.layers, spec.shapes(), strict=False)]
    return nn.Network(tuple(layers), spec.loss)


def build_optimiser(spec: Optimiser) -> GradientDescent:
    """Return the optimiser a recipe describes."""
    return GradientDescent(getattr(spec, "momentum", 0.0), spec.weight_decay)


def require_functions(network: nn.Network, policy: Policy) -> None:
    """Raise ConfigError where an elementary function would meet a format that float64 does not hold exactly."""

    def require(layer: str, role: str, why: str) -> None:
        fmt = policy.stage(layer, role).format
        if fmt.carries_raws:
            raise ConfigError(
                f"`precision.{role}.format` of layer '{layer}' must fit float64 exactly {why}, got {fmt}; "
                "choose a narrower format"
            )

    require(LOSS_LAYER, "loss", "to compute the loss")
    feeding = INPUT_LAYER
    for layer in network.layers:
        if isinstance(layer, nn.Activation) and layer.function != "relu":
            require(feeding, "activation", f"to enter {layer.function} layer '{layer.name}'")
            require(layer.name, "activation", f"as the result of {layer.function}")
        if not isinstance(layer, nn.Flatten):
            feeding = layer.name


def _activation(table: Any, shape: tuple[int, ...]) -> nn.Layer:
    return nn.Activation(table.name, table.type)


_BUILDERS: dict[str, Callable[[Any, tuple[int, ...]], nn.Layer]] = {
    "linear": lambda t, shape: nn.Linear(t.name, shape[0], t.out_features, t.bias, t.initialiser),
    "conv2d": lambda t, shape: nn.Conv2d(
        t.name, shape[0], t.out_channels, t.kernel, t.stride, t.padding, t.bias, t.initialiser
    ),
    "max_pool": lambda t, shape: nn.MaxPool(t.name, t.window, t.stride or t.window),
    "avg_pool": lambda t, shape: nn.AvgPool(t.name, t.window, t.stride or t.window),
    "relu": _activation,
    "sigmoid": _activation,
    "tanh": _activation,
    "flatten": lambda t, shape: nn.Flatten(t.name),
}
