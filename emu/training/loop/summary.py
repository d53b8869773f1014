"""The content of `run.json`: recipe, device, versions, results, and the arithmetic of each tensor."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from emu.datapath import Mac
from emu.formats import DynamicFixed, Fixed
from emu.hardware import OPTIONAL_ROLES, ROLES
from emu.nn import every
from emu.nn.network import INPUT_LAYER, LOSS_LAYER
from emu.optim import Optimiser
from emu.precision import DERIVED_ROLES, Policy
from emu.training.loop.loop import Loop
from emu.training.workbench.model import Model


def versions() -> dict[str, str]:
    """Return the versions of everything that computes."""
    known = {"python": platform.python_version(), "machine": platform.machine()}
    for name, distribution in (("emu", "emu-numerics"), ("numpy", "numpy"), ("numba", "numba")):
        try:
            known[name] = version(distribution)
        except PackageNotFoundError:
            known[name] = "not installed"
    return known


def described(loop: Loop, status: str) -> dict[str, Any]:
    """Return the content of `run.json`.

    Args:
        loop: the run, in progress or at its end.
        status: "running" or "finished"; a process that is stopped replaces "running" by "stopped" (`mark_stopped`).
    """
    bench, steps, log = loop.bench, loop.steps, loop.log
    recipe, data, model = bench.recipe, bench.batches.data, bench.model
    return {
        "status": status,
        "recipe": recipe.model_dump(mode="json"),
        "device": bench.device.model_dump(mode="json"),
        "network": None if bench.network is None else repr(bench.network),
        "data": {"source": data.source, "sha256": data.sha256},
        "seed": recipe.training.seed,
        "backend": bench.runners.backend,
        "versions": versions(),
        "emu_version": versions()["emu"],
        "weights_sha256": model.sha256(),
        "registers_sha256": log.registers().sha256(),
        "metrics": log.metrics(),
        "steps": steps.done,
        "steps_planned": steps.planned,
        "seconds": round(log.seconds, 3),
        # entries of systems, such as simulated_seconds, lie beside the others
        **log.about(),
        "parameters": sum(state.master.array.size for state in model.states),
        "layers": model.network.names,
        # formats may change from step to step; these are those of the last step that was taken
        "formats": formats_of(model, bench.update.optimiser, max(steps.done - 1, 0)),
        "cost": log.cost,
        "history": {"log_every": log.every},
        "started": log.started,
        "ended": datetime.now(UTC).isoformat(timespec="seconds") if status == "finished" else None,
        "failures": [],
    }


def formats_of(model: Model, optimiser: Optimiser, step: int) -> list[dict[str, Any]]:
    """Return format, rounding, overflow rule and unit of each role of each layer at a step."""
    policy = model.policy.at(step)
    return [
        _row(policy, name, role)
        for name, written in _written(model, optimiser).items()
        for role in (*ROLES, *OPTIONAL_ROLES, *DERIVED_ROLES)
        if role in written
    ]


def _row(policy: Policy, layer: str, role: str) -> dict[str, Any]:
    stage = policy.stage(layer, role)
    return {
        "layer": layer,
        "role": role,
        "format": str(policy.word(layer, role) or stage.format),
        "rounding": stage.rounding.value,
        "overflow": stage.overflow.value,
        "mac": _describe(policy.mac(layer, role=role), policy.table.has_open_accumulator(layer, role)),
    }


def _describe(mac: Mac, is_open: bool) -> str | dict[str, str]:
    if mac.is_exact:
        return "exact"
    parts = {
        "product": mac.product,
        "accumulator": _word_of(mac) if is_open else mac.accumulator,
        "order": mac.order,
        "rounding": mac.rounding.value,
    }
    return {name: str(part) for name, part in parts.items()}


def _word_of(mac: Mac) -> DynamicFixed:
    # only the width and the kind of its word: the point of an open accumulator changes
    assert isinstance(mac.accumulator, Fixed)
    return DynamicFixed(mac.accumulator.width_bits, mac.accumulator.signed, mac.accumulator.sign_magnitude)


def _written(model: Model, optimiser: Optimiser) -> dict[str, set[str]]:
    """Return the roles that each layer writes. Errors are not computed for layers before the first parameters."""
    tokens = model.network.layers[0].token_count
    # tokens are integers, which no stage writes
    roles: dict[str, set[str]] = {INPUT_LAYER: {"activation"} if tokens is None else set()}
    moved: dict[str, frozenset[str]] = {}
    for state in model.states:
        moved[state.layer] = moved.get(state.layer, frozenset()) | optimiser.roles(state)
    trained = {layer.name: {p.part for p in layer.parameters()} for layer in every(model.network.layers)}
    sloped = {name for layer in every(model.network.layers) for name in layer.slopes()}
    moving = {layer.name for layer in every(model.network.layers) if layer.only_moves}
    first = next((i for i, name in enumerate(model.network.names) if trained.get(name)), 0)
    for i, name in enumerate(model.network.names[1:-1], 1):
        written: set[str] = set() if name in moving else {"activation"}
        if i > first and written:
            written |= {"error"}
            written |= {"slope"} if name in sloped else set()
        if parts := trained.get(name, set()):
            written |= parts | {"gradient", "update", "master"} | moved[name]
        roles[name] = written
    return roles | {LOSS_LAYER: {"error", "loss"}}
