"""Build network and optimiser from a recipe, and refuse combinations that cannot be trained."""

from __future__ import annotations

from pathlib import Path

from emu import nn, optim
from emu.errors import ConfigError
from emu.training import recipe as tables


def build_network(spec: tables.Network) -> nn.Network:
    """Return the network that a recipe describes; its shapes were checked with the recipe."""
    return nn.Network(spec.built(), spec.loss)


def build_optimiser(spec: tables.Optimiser) -> optim.Optimiser:
    """Return the optimiser a recipe describes."""
    return spec.built()


def require_rows(network: nn.Network, optimiser: optim.Optimiser) -> None:
    """Raise ConfigError if a later layer reads sparse input, or the optimiser changes rows that no pass reads."""
    # the first layer may read a sparse batch; if it does not, no layer inside it may
    for layer in nn.every(network.layers[1:] if network.reads_sparse else network.layers):
        if layer.reads_sparse:
            raise ConfigError(
                f"layer {layer.name!r} ({layer.type_name}) must be the first of the network; use `linear` with "
                "`sparse = true` after other layers"
            )
    if network.reads_sparse and not optimiser.is_still:
        first = network.layers[0]
        raise ConfigError(
            f"layer {first.name!r} ({first.type_name}) must have an optimiser that does not change a weight whose "
            "gradient is 0, because a step reads only the rows of the batch's inputs; choose "
            "`training.optimiser.name` 'sgd' or 'adagrad', without `weight_decay`"
        )


def require_network(described: object, network: nn.Network | None, folder: Path) -> None:
    """Raise ConfigError if a run is resumed with another network than it was started with.

    Args:
        described: entry of `run.json` for a network from Python; None if the recipe's network is trained.
        network: network from Python that is given now, or None.
        folder: folder of the run.

    Raises:
        ConfigError: the networks differ, or it is missing.
    """
    # compared as text, because run.json has only the text
    if (described or None) == (None if network is None else repr(network)):
        return
    if network is None:
        raise ConfigError(
            f"a run must get the network from Python that it was begun with, got none for {folder}; call emu.resume or "
            "emu.evaluate with network="
        )
    raise ConfigError(
        f"`network` must be the one that the run was begun with, got another one for {folder}; give the same layers"
    )
