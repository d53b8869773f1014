"""The ways into training: a new run, and one that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.hardware import Device
from emu.nn import Network
from emu.training.build import require_network
from emu.training.recipe import Recipe
from emu.training.run import Progress, Run
from emu.training.run_folder import RunFolder
from emu.training.trainer import Trainer


def train(
    recipe: Recipe,
    device: Device,
    *,
    out: str | Path,
    backend: str = "auto",
    overrides: Mapping[str, Any] | None = None,
    network: Network | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train a recipe's network on a device.

    Args:
        recipe: network, data, training; see `emu.model`.
        device: formats and units; see `emu.device`.
        out: folder of the run; must not exist or be empty.
        backend: "auto", "reference", "numba" or "cuda": the bits are the same.
        overrides: key path -> value, laid over the recipe, e.g. `{"training.steps": 20}`.
        network: trained instead of the recipe's, whose input, classes, data and training stay.
        progress: hears how it goes.

    Returns:
        The finished run.

    Raises:
        ConfigError: recipe, data or folder cannot be used; nothing is written then.
        BackendUnavailable: the backend cannot compute here.
    """
    _require("recipe", recipe, Recipe, "emu.model")
    _require("device", device, Device, "emu.device")
    recipe = recipe.with_settings(overrides) if overrides else recipe
    trainer = Trainer(recipe, recipe.machine(device), backend, network)
    return trainer.run(RunFolder.create(out), progress)


def _require(name: str, given: object, kind: type, maker: str) -> None:
    if not isinstance(given, kind):
        raise ConfigError(
            f"`{name}` must be a {kind.__name__}, got {given!r}; {maker}() makes one of a name or of a path"
        )


def resume(
    path: str | Path,
    *,
    backend: str | None = None,
    network: Network | None = None,
    progress: Progress | None = None,
) -> Run:
    """Continue a run that was interrupted; it ends in the same bits as one that was not.

    Args:
        path: folder of the run.
        backend: another backend than the run's, if given.
        network: the run's own, if it was given one from Python.
        progress: hears how it goes.

    Raises:
        ConfigError: the folder holds no run, its checkpoint is damaged or belongs to another recipe.
    """
    folder = RunFolder.open(path)
    info = folder.read_json()
    require_network(info.get("network"), network, folder.path)
    trainer = Trainer(*folder.read_setup(), backend or str(info.get("backend", "auto")), network)
    if folder.has_checkpoint:
        trainer.restore(folder)
    trainer.started = str(info.get("started") or trainer.started)
    return trainer.run(folder, progress)
