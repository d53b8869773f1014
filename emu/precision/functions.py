"""Refuse formats that elementary functions cannot read or write."""

from __future__ import annotations

from emu.errors import ConfigError
from emu.nn import Network
from emu.nn.layer import function_tensors
from emu.nn.network import INPUT_LAYER, LOSS_LAYER
from emu.precision.policy import Policy


def require_functions(network: Network, policy: Policy) -> None:
    """Raise ConfigError if an elementary function would read or write a format that float64 cannot hold exactly."""

    def require(layer: str, role: str, why: str) -> None:
        fmt = policy.stage(layer, role).format
        if fmt.carries_raws:
            raise ConfigError(
                f"`precision.{role}.format` of layer '{layer}' must fit float64 exactly {why}, got {fmt}; "
                "choose a narrower format"
            )

    require(LOSS_LAYER, "loss", "to compute the loss")
    for tensor in function_tensors(network.layers, INPUT_LAYER):
        require(*tensor)
