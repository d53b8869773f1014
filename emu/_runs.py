"""`emu.train` and `emu.resume`: training with emu's report. `emu.training` does not import the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from emu import training
from emu.hardware import Device
from emu.report import build_report
from emu.training import Recipe, Run
from emu.training.loop.begin import RunOptions


def train(
    recipe: str | Path | Recipe,
    device: str | Path | Device,
    *,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    report: bool = True,
    **options: Unpack[RunOptions],
) -> Run:
    """Train a recipe's network on a device and write the run's report.

    Args:
        recipe: network, data, training: a name as "lenet", the path of a `.toml` file, or what `emu.model` returns.
        device: formats and units: a name as "fixed16", a path, or what `emu.device` returns.
        out: folder of the run; must not exist or be empty.
        overrides: key path -> value, laid over the recipe, e.g. `{"training.steps": 20}`.
        report: whether to write `report.html`.
        options: `backend`: "auto", "reference", "numba" or "cuda", the bits are the same; `network`: a network from
            Python that is trained instead of the recipe's; `progress`: receives the progress of each step.

    Returns:
        The finished run.

    Raises:
        ConfigError: recipe, data or folder cannot be used; nothing is written then.
        BackendUnavailable: the backend cannot compute here.
    """
    # `emu.training` may not import `emu.report`, which stands above it. So the function is handed down.
    write_report = build_report if report else None
    return training.train(recipe, device, out=out, overrides=overrides, write_report=write_report, **options)


def resume(path: str | Path, *, report: bool = True, **options: Unpack[RunOptions]) -> Run:
    """Continue a run that was interrupted; it ends in the same bits as one that was not.

    Args:
        path: folder of the run.
        report: whether to write `report.html`.
        options: `backend`: another one than the run's; `network`: the network of the run, if it was given from Python;
            `progress`: receives the progress of each step.

    Raises:
        ConfigError: the folder holds no run, its checkpoint is damaged or belongs to another recipe.
    """
    return training.resume(path, write_report=build_report if report else None, **options)
