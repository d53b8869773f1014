"""The public face of training: a run, and its report behind it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emu import training
from emu.hardware import Device
from emu.nn import Network
from emu.report import build_report
from emu.training import Progress, Recipe, Run


def train(
    recipe: Recipe,
    device: Device,
    *,
    out: str | Path,
    backend: str = "auto",
    overrides: Mapping[str, Any] | None = None,
    network: Network | None = None,
    progress: Progress | None = None,
    report: bool = True,
) -> Run:
    """Train a recipe's network on a device and write the run's report.

    Args:
        recipe: network, data, training; see `emu.model`.
        device: formats and units; see `emu.device`.
        out: folder of the run; must not exist or be empty.
        backend: "auto", "reference", "numba" or "cuda": the bits are the same.
        overrides: key path -> value, laid over the recipe, e.g. `{"training.steps": 20}`.
        network: trained instead of the recipe's, whose input, classes, data and training stay.
        progress: hears how it goes.
        report: whether to write `report.html`.

    Returns:
        The finished run.

    Raises:
        ConfigError: recipe, data or folder cannot be used; nothing is written then.
        BackendUnavailable: the backend cannot compute here.
    """
    settings: dict[str, Any] = {"overrides": overrides, "network": network, "progress": progress}
    run = training.train(recipe, device, out=out, backend=backend, **settings)
    return _reported(run, report)


def resume(
    path: str | Path,
    *,
    backend: str | None = None,
    network: Network | None = None,
    progress: Progress | None = None,
    report: bool = True,
) -> Run:
    """Continue a run that was interrupted; it ends in the same bits as one that was not.

    Args:
        path: folder of the run.
        backend: another backend than the run's, if given.
        network: the run's own, if it was given one from Python.
        progress: hears how it goes.
        report: whether to write `report.html`.

    Raises:
        ConfigError: the folder holds no run, its checkpoint is damaged or belongs to another recipe.
    """
    return _reported(training.resume(path, backend=backend, network=network, progress=progress), report)


def _reported(run: Run, report: bool) -> Run:
    if report:
        build_report(run.path)
    return run
