"""Training never waits for the reference: every kernel of every step runs compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu import training
from emu.backends.reference import ReferenceKernels
from emu.backends.reference.definition import Definition, SparseDefinition
from emu.hardware import Device, load_device
from emu.training.loop import Loop
from emu.training.workbench import Workbench

DEVICES = ("float32", "bf16-mixed", "fp16-mixed", "fp16", "fixed16", "fixed8")
#: One step of mlp.
STEP = {"training.steps": 1, "training.batch": 4, "data.test_images": 10}
#: Units and overflow rules no shipped device has.
UNITS: list[tuple[str, dict[str, Any]]] = [
    ("fp16", {"product": "exact", "accumulator": "exact"}),
    ("fp16", {"product": "fp16", "accumulator": "fp16", "order": "pairwise"}),
    ("bf16-mixed", {"product": "exact", "accumulator": "exact"}),
    ("bf16-mixed", {"accumulator": "bf16", "rounding": "stochastic"}),
    ("float32", {"product": "exact", "accumulator": "exact"}),
    ("float32", {"accumulator": "fp32", "order": "lanes(8)", "overflow": "satfinite"}),
    ("fixed8", {"accumulator": "fix24f12", "rounding": "stochastic"}),
    ("fixed16", {"accumulator": "fix20f12", "overflow": "saturate", "order": "lanes(4)"}),
]
#: Formats and rules of every role that no shipped device has.
ROLES: list[tuple[str, dict[str, Any]]] = [
    ("fp16", {"format": "fp16 no-subnormals"}),
    ("bf16-mixed", {"format": "bf16 daz"}),
    ("fp16", {"format": "fp16 ftz"}),
    ("fixed16", {"overflow": "wrap"}),
    ("fixed8", {"rounding": "stochastic", "overflow": "saturate_zero"}),
]


def left_to_the_reference(device: Device, monkeypatch: pytest.MonkeyPatch, model: str) -> list[str]:
    """Train a step and evaluate; return which kernels of the reference ran, and of what shapes, in order."""
    loop = Loop(Workbench.of(training.load_recipe(model).with_settings(STEP), device, "numba"))
    found: list[str] = []

    def watched(name: str, kernel: Any) -> Any:
        def run(self: Any, *arguments: Any) -> Any:
            arrays = [a for x in arguments for a in (x if type(x) is tuple else (x,)) if isinstance(a, np.ndarray)]
            found.append(f"{name} of {', '.join(str(a.shape) for a in arrays)}: {arguments!r:.200}")
            return kernel(self, *arguments)

        return run

    for owner in (ReferenceKernels, Definition, SparseDefinition):
        for name, kernel in vars(owner).items():
            if not name.startswith("_") and callable(kernel) and name not in ("declines", "proof"):
                monkeypatch.setattr(owner, name, watched(name, kernel))
    loop.advance()
    loop.log.evaluate()
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_no_kernel_of_a_shipped_device_is_the_references(device: str, monkeypatch: pytest.MonkeyPatch):
    assert left_to_the_reference(load_device(device), monkeypatch, "mlp") == []


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_no_kernel_of_a_convolution_is_the_references(device: str, monkeypatch: pytest.MonkeyPatch):
    assert left_to_the_reference(load_device(device), monkeypatch, "lenet") == []


@pytest.mark.slow
@pytest.mark.parametrize(("device", "mac"), UNITS, ids=str)
def test_no_kernel_of_another_unit_is_the_references(device: str, mac: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    table = load_device(device).model_dump(exclude_none=True)
    table["precision"]["mac"] = mac
    for model in ("mlp", "lenet"):
        assert left_to_the_reference(Device.model_validate(table), monkeypatch, model) == []


@pytest.mark.parametrize(
    ("device", "changes"), [ROLES[0], *(pytest.param(*role, marks=pytest.mark.slow) for role in ROLES[1:])], ids=str
)
def test_no_kernel_of_other_formats_and_rules_is_the_references(
    device: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    table = load_device(device).model_dump(exclude_none=True)
    for role in ("weight", "bias", "activation", "error", "gradient"):
        table["precision"][role] |= changes
    for model in ("mlp", "lenet"):
        assert left_to_the_reference(Device.model_validate(table), monkeypatch, model) == []


def test_what_the_reference_computes_is_seen(monkeypatch: pytest.MonkeyPatch):
    """Formats whose arrays hold raw integers are left to it."""
    table = load_device("fixed16").model_dump(exclude_none=True)
    table["precision"]["master"] = {"format": "fix60f40"}
    found = left_to_the_reference(Device.model_validate(table), monkeypatch, "mlp")
    assert any(line.startswith("elementwise of") for line in found)
