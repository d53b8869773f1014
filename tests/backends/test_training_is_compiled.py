"""Training never waits for the reference: every product of every step runs compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu import training
from emu.backends.numba import NumbaKernels
from emu.hardware import Device, load_device

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


def reasons(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch, model: str, **settings: Any) -> list[str]:
    """Train a step; return why products were left to the reference, in order."""
    found: list[str] = []
    asked = NumbaKernels.declines

    def recording(self: NumbaKernels, *arguments: Any) -> str:
        found.append(asked(self, *arguments))
        return found[-1]

    monkeypatch.setattr(NumbaKernels, "declines", recording)
    recipe = training.load_recipe(model)
    training.train(recipe, device, out=folder, backend="numba", overrides=STEP | settings)
    assert found
    return [reason for reason in found if reason]


@pytest.mark.parametrize("device", DEVICES)
def test_no_product_of_a_shipped_device_falls_back(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert reasons(load_device(device), tmp_path, monkeypatch, "mlp") == []


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_no_convolution_of_a_shipped_device_falls_back(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert reasons(load_device(device), tmp_path, monkeypatch, "lenet") == []


@pytest.mark.slow
@pytest.mark.parametrize(("device", "mac"), UNITS, ids=str)
def test_no_product_of_another_unit_falls_back(
    device: str, mac: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = load_device(device).model_dump(exclude_none=True)
    table["precision"]["mac"] = mac
    for model in ("mlp", "lenet"):
        assert reasons(Device.model_validate(table), tmp_path / model, monkeypatch, model) == []
