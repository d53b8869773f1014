"""What `run.json` says of a run besides its results: versions, and the arithmetic of every tensor."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from emu.datapath import Mac
from emu.hardware import ROLES
from emu.nn import Activation, Flatten
from emu.nn.network import INPUT_LAYER, LOSS_LAYER
from emu.precision import DERIVED_ROLES
from emu.training.model import Model


def versions() -> dict[str, str]:
    """Return the versions of everything that computes."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name, distribution in (("emu", "emu-numerics"), ("numpy", "numpy"), ("numba", "numba")):
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def formats_of(model: Model) -> list[dict[str, Any]]:
    """Return what each role of each layer is written in: format, rounding, overflow, unit."""
    return [
        _row(model, name, role)
        for name, written in _written(model).items()
        for role in (*ROLES, *DERIVED_ROLES)
        if role in written
    ]


def _row(model: Model, layer: str, role: str) -> dict[str, Any]:
    stage = model.policy.stage(layer, role)
    return {
        "layer": layer,
        "role": role,
        "format": str(stage.format),
        "rounding": stage.rounding.value,
        "overflow": stage.overflow.value,
        "mac": _describe(model.policy.mac(layer)),
    }


def _describe(mac: Mac) -> str | dict[str, str]:
    if mac.is_exact:
        return "exact"
    parts = {"product": mac.product, "accumulator": mac.accumulator, "order": mac.order, "rounding": mac.rounding.value}
    return {name: str(part) for name, part in parts.items()}


def _written(model: Model) -> dict[str, set[str]]:
    """Return the roles that each layer writes; errors go back no further than the first parameters."""
    roles: dict[str, set[str]] = {INPUT_LAYER: {"activation"}}
    behind_parameters = False
    for layer in model.network.layers:
        parts = {parameter.part for parameter in layer.parameters()}
        here: set[str] = set() if isinstance(layer, Flatten) else {"activation"}
        if behind_parameters and here:
            here |= {"error"}
            here |= {"slope"} if isinstance(layer, Activation) and layer.function != "relu" else set()
        if parts:
            behind_parameters = True
            here |= parts | {"gradient", "update", "master", "momentum"}
        roles[layer.name] = here
    return roles | {LOSS_LAYER: {"error", "loss"}}
