"""Products of matrices: measured, simulated, and the numbers of a device that fit some of them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from emu.formats import Float, Format
from emu.hardware import ComputeUnit, Demand, Device, Machine, load_device
from emu.hardware.waves import LEAST_DEPTH, PART_BYTES

Floats = npt.NDArray[np.float64]

ROWS = Path(__file__).with_name("products.csv")
FP16, BF16, FP32 = Float(5, 10), Float(8, 7), Float(8, 23)


class Row(NamedTuple):
    """A measured product, (rows, depth) times (depth, columns).

    Attributes:
        unit: key of `UNITS`.
        rows: rows of the result.
        columns: columns of the result.
        depth: products of each result.
        seconds: measured time.
        is_fitted: whether the device's numbers were fitted to it.
    """

    unit: str
    rows: int
    columns: int
    depth: int
    seconds: float
    is_fitted: bool


@dataclass(frozen=True)
class Unit:
    """A unit of a card on which products were measured.

    Attributes:
        device: device file that describes it, or a card with the same processor.
        name: the unit.
        operand: format of operands and results.
        clock_hz: the card's clock, if it is another one than the device's.
        multiprocessors: how many the card has, if it is another number.
        bytes_per_s: the card's nominal memory bandwidth, if it is another one.
    """

    device: str
    name: str
    operand: Format
    clock_hz: float | None = None
    multiprocessors: int | None = None
    bytes_per_s: float | None = None

    def card(self) -> Device:
        """Return the device with the numbers of the card."""
        device = load_device(self.device)
        unit, compute = device.compute.units[self.name], device.compute
        changed: dict[str, Any] = {}
        if self.clock_hz:
            changed["clock_hz"] = compute.clock_hz.model_copy(update={"value": self.clock_hz})  # type: ignore[union-attr]
        if self.bytes_per_s:
            rate = compute.memory_bandwidth_bytes_per_s
            changed["memory_bandwidth_bytes_per_s"] = rate.model_copy(update={"value": self.bytes_per_s})  # type: ignore[union-attr]
        if self.multiprocessors:
            assert unit.count is not None
            assert unit.lanes is not None
            lanes = unit.lanes.value / unit.count.value * self.multiprocessors
            numbers = {"count": self.multiprocessors, "lanes": lanes}
            unit = unit.model_copy(
                update={key: getattr(unit, key).model_copy(update={"value": value}) for key, value in numbers.items()}
            )
        changed["units"] = compute.units | {self.name: unit}
        return device.model_copy(update={"compute": compute.model_copy(update=changed)})


#: What was measured, and on which card; `SOURCES.md` says what is known of each.
UNITS = {
    "k40": Unit("k20x-8x", "sgemm", FP32, clock_hz=875e6, multiprocessors=15, bytes_per_s=288e9),
    "p100": Unit("p100", "fp32", FP32, clock_hz=1303e6),
    "v100 fp32": Unit("v100", "fp32", FP32),
    "v100 fp16": Unit("v100", "matrix", FP16),
    "a100": Unit("a100", "matrix", BF16),
    "h100": Unit("h100", "matrix", BF16),
    "h200": Unit("dgx-h200-8x", "matrix", BF16),
}


def rows() -> list[Row]:
    """Return all measured products."""
    with ROWS.open(newline="") as file:
        return [
            Row(
                row["unit"], int(row["rows"]), int(row["columns"]), int(row["depth"]),
                float(row["microseconds"]) * 1e-6, row["use"] == "fit",
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def demand_of(row: Row, fmt: Format) -> Demand:
    """Return a product as emu describes it."""
    results = row.rows * row.columns
    operands = ((fmt, row.rows * row.depth), (fmt, row.depth * row.columns))
    return Demand("product", "activation", "matmul", results, results * row.depth, 0, operands, fmt)


def simulated(of: Sequence[Row]) -> Floats:
    """Return the seconds that emu says for some rows."""
    machines = {key: Machine(UNITS[key].card()) for key in {row.unit for row in of}}
    return (
        np.array([machines[row.unit].time_of(demand_of(row, UNITS[row.unit].operand)).duration_ps for row in of]) / 1e12
    )


# ---- fitting ----


#: Between which numbers a fit chooses: a start in seconds (the measured floors of small kernels are 2 us and more),
#: cycles, and shares of the peak.
START, FILL, EFFICIENCY = (2e-6, 8e-6), (0, 5000), (0.2, 1.0)


class Fit(NamedTuple):
    """Numbers of a unit that a fit chooses.

    Attributes:
        start_s: from one operation to the next.
        fill_cycles: cycles that fill a wave.
        efficiencies: of each tile.
    """

    start_s: float
    fill_cycles: float
    efficiencies: tuple[float, ...]


def times(fit: Fit, unit: ComputeUnit, sizes: Floats, clock_hz: float, bytes_per_s: float, width: int) -> Floats:
    """Return the seconds of products (n, 3): the formulas of `emu.hardware.waves`, for many rows at once."""
    assert unit.tiles is not None
    assert unit.count is not None
    assert unit.lanes is not None
    m, n, k = sizes.T
    count, peak = unit.count.value, unit.lanes.value / unit.count.value
    best = np.full(len(sizes), np.inf)
    for tile, efficiency in zip(unit.tiles.value, fit.efficiencies, strict=True):
        for r, c in {(tile.rows, tile.columns), (tile.columns, tile.rows)}:
            tiles = np.ceil(m / r) * np.ceil(n / c)
            for parts in range(1, int(unit.splits.value if unit.splits else 1) + 1):
                depth = np.ceil(k / parts)
                cycles = np.ceil(tiles * parts / count) * (r * c * depth / peak / efficiency + fit.fill_cycles)
                moved = PART_BYTES * parts * m * n if parts > 1 else 0
                usable = (parts == 1) | (depth >= LEAST_DEPTH)
                best = np.minimum(best, np.where(usable, cycles / clock_hz + moved / bytes_per_s, np.inf))
    return np.maximum(best, (m * k + k * n + m * n) * width / bytes_per_s) + fit.start_s


def fitted(key: str, seed: int = 0, rounds: int = 400) -> tuple[Fit, float]:
    """Return the numbers that fit the rows of a unit best, and the root mean square of their logarithmic errors.

    A search by random steps from several beginnings, of a width that shrinks: six numbers need no more.

    Args:
        key: key of `UNITS`.
        seed: of the random steps.
        rounds: steps of each beginning, a hundred tries each.
    """
    about, of = UNITS[key], [row for row in rows() if row.unit == key and row.is_fitted]
    machine = Machine(about.card())
    unit = machine.device.compute.units[about.name]
    assert unit.tiles is not None
    sizes, measured = np.array([row[1:4] for row in of], np.float64), np.array([row.seconds for row in of])
    bytes_per_s = machine.device.compute.memory_bytes_per_s or np.inf
    low = np.array([START[0], FILL[0], *[EFFICIENCY[0]] * len(unit.tiles.value)])
    high = np.array([START[1], FILL[1], *[EFFICIENCY[1]] * len(unit.tiles.value)])
    rng = np.random.default_rng(seed)

    def fit_of(x: Floats) -> Fit:
        # no smaller tile is more efficient than a larger one, which reads fewer operands for each result
        return Fit(float(x[0]), float(x[1]), tuple(np.minimum.accumulate(x[2:]).tolist()))

    def error(x: Floats) -> float:
        found = times(
            fit_of(x), unit, sizes, machine.clock_hz(about.name), bytes_per_s,
            about.operand.width_bits // 8,
        )  # fmt: skip
        return float(np.sqrt(np.mean(np.log(found / measured) ** 2)))

    best: tuple[float, Floats] = (np.inf, low)
    for _ in range(24):
        x = rng.uniform(low, high)
        least, width = error(x), 0.3
        for _ in range(rounds):
            tried = np.clip(x + rng.normal(0, width, len(x)) * (high - low) * (rng.random(len(x)) < 0.5), low, high)
            now = error(tried)
            if now < least:
                x, least = tried, now
            else:
                width = max(width * 0.985, 0.003)
        best = min(best, (least, x), key=lambda pair: pair[0])
    least, x = best
    return fit_of(x), least
