"""The identity of a run: recipe, device, data and nodes, which decide its bits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import ConfigError
from emu.hardware import Device
from emu.nn import Network
from emu.training.recipe import Recipe


class Identity(NamedTuple):
    """The identity of a run.

    Attributes:
        identity: hash of what decides the bits.
        nodes: number of nodes that train together.
    """

    identity: str
    nodes: int

    @classmethod
    def of(cls, recipe: Recipe, device: Device, data_sha256: str, given: Network | None) -> Identity:
        """Return the identity of a run of a recipe; `given` is the network from Python that replaces the recipe's."""
        parts: list[Any] = [recipe.decisive(), device.model_dump(mode="json"), data_sha256]
        if given is not None:
            parts.append(repr(given))
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return cls(digest, recipe.cluster.nodes if recipe.cluster else 1)

    def require(self, state: Mapping[str, Any], path: Path) -> None:
        """Raise ConfigError if a checkpoint belongs to another run.

        Args:
            state: state of the checkpoint; older checkpoints have no number of nodes.
            path: path of the run's folder.

        Raises:
            ConfigError: it belongs to another recipe, device, data or number of nodes.
        """
        # the number of nodes is part of the identity, through the recipe; below it only chooses the message
        if state.get("identity") == self.identity:
            return
        nodes = state.get("nodes", self.nodes)
        if nodes != self.nodes:
            made = "1 node" if nodes == 1 else f"{nodes} nodes"
            raise ConfigError(
                f"a checkpoint of {made} must be resumed on {nodes}, got {self.nodes} for {path}: nodes hold residuals "
                f"of their own; set `cluster.nodes` to {nodes}, or start a new run with --out"
            )
        raise ConfigError(
            f"a checkpoint must belong to the run's recipe, device and data, got one of another run in {path}; resume "
            "the run it came from, or start a new run with --out"
        )
