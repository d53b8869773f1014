"""Devices as their vendors describe them, whose times are closed forms: no tiles, no starts, nothing below its peak."""

from __future__ import annotations

from emu.hardware import ComputeUnit, Device, load_device

_OF_UNITS = ("start_s", "efficiency", "count", "tiles", "splits", "fill_cycles")


def nominal(name: str) -> Device:
    """Return a shipped device without what was measured of it."""
    device = load_device(name)
    units = {key: _peak(unit) for key, unit in device.compute.units.items()}
    compute = device.compute.model_copy(update={"units": units, "memory_efficiency": None})
    links = tuple(link.model_copy(update={"efficiency": None}) for link in device.links)
    return device.model_copy(update={"compute": compute, "links": links})


def k20x() -> Device:
    """Return `k20x-8x` with products at the speed that the vendor printed for large ones: 2.90 TFLOP/s."""
    device = nominal("k20x-8x")
    unit = device.compute.units["sgemm"]
    assert unit.lanes is not None
    units = device.compute.units | {
        "sgemm": unit.model_copy(update={"lanes": unit.lanes.model_copy(update={"value": 1981})})
    }
    return device.model_copy(update={"compute": device.compute.model_copy(update={"units": units})})


def _peak(unit: ComputeUnit) -> ComputeUnit:
    return unit.model_copy(update=dict.fromkeys(_OF_UNITS)) if unit.tiles or unit.start_s else unit
