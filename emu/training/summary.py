"""What `run.json` says of a run besides its results: versions, and the arithmetic of every tensor."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from emu.datapath import Mac
from emu.hardware import ROLES
from emu.nn import Activation, Layer
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
    layers = {layer.name: layer for layer in model.network.layers}
    return [
        _row(model, name, role)
        for name in model.network.names
        for role in (*ROLES, *DERIVED_ROLES)
        if _occurs(name, layers.get(name), role)
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


def _occurs(name: str, layer: Layer | None, role: str) -> bool:
    """Return whether a layer writes a role."""
    if name == INPUT_LAYER:
        return role == "activation"
    if name == LOSS_LAYER:
        return role in ("error", "loss")
    if role in ("activation", "error"):
        return True
    if role == "slope":
        return isinstance(layer, Activation) and layer.function != "relu"
    return role != "loss" and layer is not None and bool(layer.parameters())
