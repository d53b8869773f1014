"""The energy of a training step and of an inference, and the area of the units: from shapes and formats alone.

recipe, device ──► demands (work.py) ──► uses of parts (emu.hardware.energy) ──► energy by layer, role, part and kind
                                                                            └──► area of a lane, times the lanes

Nothing is trained. A device needs no clock for it.

Source: docs/energy.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from emu._drawn import Drawn
from emu.errors import ConfigError
from emu.formats.integers import as_integer
from emu.hardware import Demand, Device, load_device, machine_of
from emu.hardware.cost_table import BASE_TABLE, CostTable, load_cost_table
from emu.hardware.device import HOST, STATISTICS
from emu.hardware.energy import (
    COUNTERS,
    MEMORY,
    PARTS,
    Datapath,
    Prices,
    Use,
    byte_pj,
    counts_leading_bits,
    energy_pj,
    has_host,
    lane_area_um2,
    memory_bytes,
    require_level,
    statistics_bits,
    uses_of,
)
from emu.precision import Policy
from emu.training.data import Dataset
from emu.training.recipe import Recipe, load_recipe
from emu.training.time.work import inference_of, work_of

#: Picojoules of a joule, and square micrometres of a square millimetre.
JOULE_PJ, MM2_UM2 = 10**12, 10**6
#: Name of the compute unit of a device that names none.
ONE_LANE = "lane"


@dataclass(frozen=True)
class EnergyRow:
    """The energy of one part of the datapath for one role of one layer.

    Attributes:
        layer: layer whose result is written.
        role: the result's role.
        unit: part of the datapath: one of `emu.hardware.energy.PARTS`.
        kind: forward, backward or update.
        uses: how often the part is used; for the memory, bytes.
        energy_pj: picojoules, exactly.
        share: share of the whole energy.
    """

    layer: str
    role: str
    unit: str
    kind: str
    uses: int
    energy_pj: Fraction
    share: float

    @property
    def joules(self) -> float:
        """The energy in joules."""
        return float(self.energy_pj / JOULE_PJ)

    def row(self) -> dict[str, Any]:
        """Return plain data (JSON)."""
        at = {"layer": self.layer, "role": self.role, "unit": self.unit, "kind": self.kind}
        return {**at, "uses": self.uses, "picojoules": float(self.energy_pj), "share": self.share}


@dataclass(frozen=True)
class AreaRow:
    """The area of one part of a compute unit.

    Attributes:
        compute_unit: name of the unit in the device; `lane` if the device names none.
        unit: part of the datapath.
        lanes: number of lanes of the unit.
        area_um2: square micrometres of the part in all lanes, exactly.
        share: share of the whole area.
    """

    compute_unit: str
    unit: str
    lanes: int
    area_um2: Fraction
    share: float

    def row(self) -> dict[str, Any]:
        """Return plain data (JSON)."""
        at = {"compute_unit": self.compute_unit, "unit": self.unit, "lanes": self.lanes}
        return {**at, "area_um2": float(self.area_um2), "share": self.share}


@dataclass(frozen=True, repr=False)
class Cost(Drawn):
    """Energy and area of a model on a device.

    Attributes:
        model: name of the model.
        device: name of the device.
        table: name of the cost table.
        memory: level of memory from which operands are read.
        batch: examples of a step.
        step_pj: energy of a step of training, picojoules, exactly.
        inference_pj: energy of a forward pass of one example, likewise.
        area_um2: area of the units, square micrometres, exactly; None if the table gives no areas.
        rows: energy by layer, role, part and kind: of a step, or of an inference if `inference` was given.
        areas: area by compute unit and part; empty if the table gives no areas.
    """

    model: str
    device: str
    table: str
    memory: str
    batch: int
    step_pj: Fraction
    inference_pj: Fraction
    area_um2: Fraction | None
    rows: tuple[EnergyRow, ...]
    areas: tuple[AreaRow, ...]

    @override
    def __repr__(self) -> str:
        """Return the totals: its rows are pages of fractions."""
        area = "unknown area" if self.area_mm2 is None else f"{self.area_mm2:.3g} mm2"
        step = f"{self.joules_per_step:.3g} J for a step of {self.batch} examples"
        totals = f"{step}, {self.joules_per_inference:.3g} J for an inference, {area}"
        return f"<Cost of {self.model} on {self.device}: {totals}, {len(self.rows)} rows>"

    @property
    def joules_per_step(self) -> float:
        """Energy of a step of training."""
        return float(self.step_pj / JOULE_PJ)

    @property
    def joules_per_inference(self) -> float:
        """Energy of a forward pass of one example."""
        return float(self.inference_pj / JOULE_PJ)

    @property
    def area_mm2(self) -> float | None:
        """Area of the units; None if the table gives no areas."""
        return None if self.area_um2 is None else float(self.area_um2 / MM2_UM2)

    @property
    def is_of_inference(self) -> bool:
        """Whether `rows` are those of an inference of one example; if not, they are those of a step."""
        # exact sums, so `==` decides; if both totals are equal, rows count as those of a step
        whole = sum((row.energy_pj for row in self.rows), Fraction(0))
        return whole == self.inference_pj != self.step_pj

    def area_shares(self) -> dict[str, float]:
        """Return the share of each part of the datapath in the area; empty if the table gives no areas."""
        # a table with areas of 0 has no shares; 1 only avoids the division by 0
        whole = self.area_um2 or Fraction(1)
        areas = {unit: sum((row.area_um2 for row in self.areas if row.unit == unit), Fraction(0)) for unit in PARTS}
        return {unit: float(own / whole) for unit, own in areas.items() if own}

    def shares(self) -> dict[str, float]:
        """Return the share of each part of the datapath in the energy of `rows`, the largest first."""
        spent = {unit: sum((r.energy_pj for r in self.rows if r.unit == unit), Fraction(0)) for unit in PARTS}
        whole = sum(spent.values()) or Fraction(1)
        named = [(unit, float(energy / whole)) for unit, energy in spent.items() if energy]
        return dict(sorted(named, key=lambda share: -share[1]))

    def summary(self) -> dict[str, Any]:
        """Return the totals as plain data (JSON)."""
        return {
            "table": self.table,
            "memory": self.memory,
            "batch": self.batch,
            "joules_per_step": self.joules_per_step,
            "joules_per_inference": self.joules_per_inference,
            "area_mm2": self.area_mm2,
            "shares": self.shares(),
        }

    def described(self) -> dict[str, Any]:
        """Return the entry of `run.json`: totals, energy by layer, part and kind, area by unit and part."""
        # run.json adds up the roles of a layer
        spent: dict[tuple[str, str, str], list[EnergyRow]] = {}
        for row in self.rows:
            spent.setdefault((row.layer, row.unit, row.kind), []).append(row)
        energy = [
            {
                "layer": layer,
                "unit": unit,
                "kind": kind,
                "uses": sum(row.uses for row in rows),
                "picojoules": float(sum((row.energy_pj for row in rows), Fraction(0))),
            }
            for (layer, unit, kind), rows in spent.items()
        ]
        return {**self.summary(), "energy": energy, "areas": [row.row() for row in self.areas]}


def cost_of(
    recipe: str | Path | Recipe,
    device: str | Path | Device,
    *,
    batch: int | None = None,
    inference: bool = False,
    table: str | Path | CostTable | None = None,
    data: Dataset | None = None,
) -> Cost:
    """Return the energy of a step and of an inference, and the area of the units; nothing is trained.

    Args:
        recipe: network and optimiser: a name, a path, or what `emu.model` returns.
        device: its formats and units: a name, a path, or what `emu.device` returns. It needs no clock.
        batch: examples of a step; None is the recipe's.
        inference: whether rows and area are those of an inference of one example; if not, those of a step.
        table: a cost table that replaces the device's: a name, a path, or a table.
        data: examples of a network that reads sparse inputs; None reads those that the recipe names.

    Raises:
        ConfigError: no such table, or it lacks an operation or the level of memory that the device names.

    Examples:
        >>> cost = cost_of("lenet", "fixed16")
        >>> f"{cost.joules_per_inference:.2e} J, {cost.area_mm2:.4f} mm2"
        '2.96e-06 J, 0.0126 mm2'
    """
    recipe = load_recipe(recipe)
    device = recipe.machine(load_device(device))
    prices = load_cost_table(table or (device.cost.table if device.cost else BASE_TABLE))
    costs = _Costs(device, prices)
    size = recipe.training.batch if batch is None else as_integer("batch", batch, 1, error=ConfigError)
    work = work_of(recipe, device, size, data=data)
    # one node: nothing arrives from an exchange, so `work.arrived` is empty here
    step = [costs.spent(demand) for demand in (*work.first_pass, *work.update)]
    # both are computed, because a Cost has both totals; `inference` chooses the rows and the units that have an area
    forward = [costs.spent(demand) for demand in inference_of(recipe, device, 1, data)]
    chosen = forward if inference else step
    # a unit that the chosen operations do not use has no area here
    areas = costs.areas(chosen)
    return Cost(
        recipe.name, device.name, prices.name, costs.level, size, _energy_pj(step), _energy_pj(forward),
        None if areas is None else sum((row.area_um2 for row in areas), Fraction(0)),
        _rows(chosen), tuple(areas or ()),
    )  # fmt: skip


class _Spent(NamedTuple):
    """The energy of one operation, and what it uses.

    Attributes:
        demand: the operation.
        uses: parts of the datapath that it uses.
        energy_pj: picojoules by part, the memory among them.
        moved_bytes: bytes of the memory.
    """

    demand: Demand
    uses: list[Use]
    energy_pj: dict[str, Fraction]
    moved_bytes: int

    def times(self, unit: str) -> int:
        """Return how often a part is used; for the memory, bytes."""
        return self.moved_bytes if unit == MEMORY else sum(use.times for use in self.uses if use.part == unit)


class _Costs:
    """Prices demands on a device."""

    def __init__(self, device: Device, table: CostTable) -> None:
        self._device, self._prices = device, Prices(table)
        self._policy = Policy(device.precision).at(0)  # formats of the first step, where they change from step to step
        self.level = require_level(table, device)
        self._byte_pj = byte_pj(table, self.level)
        self._counter_bits = device.precision.register.counter_bits if counts_leading_bits(device) else 0
        self._on_host = has_host(device)
        self._machine = machine_of(device)

    def spent(self, demand: Demand) -> _Spent:
        """Return the energy of an operation."""
        # the memory is a part beside those of the datapath: it is priced by bytes, not by uses
        uses, moved = self._uses(demand), memory_bytes(demand)
        return _Spent(demand, uses, {**energy_pj(uses, self._prices), MEMORY: moved * self._byte_pj}, moved)

    def areas(self, operations: Iterable[_Spent]) -> list[AreaRow] | None:
        """Return the area by compute unit and part; None if the table gives no areas."""
        by_unit: dict[str, list[list[Use]]] = {}
        for operation in operations:
            if not (operation.demand.passes and self._on_host):  # a host's area is not the device's
                by_unit.setdefault(self._unit_of(operation.demand), []).append(operation.uses)
        areas: list[tuple[str, str, int, Fraction]] = []
        for unit, uses in by_unit.items():
            lane = lane_area_um2(uses, self._prices)
            # one price that is missing makes the whole area unknown
            if lane is None:
                return None
            lanes = self._lanes(unit)
            # a lane can do every operation of its unit: each part is as large as its largest use
            areas += [(unit, part, lanes, lanes * area) for part, area in lane.items()]
        # one register for the device, whatever the number of lanes
        register = self._prices.table.register(statistics_bits(self._device), "area_um2")
        if register is None:
            return None
        if register:
            areas.append((STATISTICS, COUNTERS, 1, register))
        whole = sum((area for *_, area in areas), Fraction(0)) or Fraction(1)
        return [AreaRow(unit, part, lanes, area, float(area / whole)) for unit, part, lanes, area in areas]

    def _uses(self, demand: Demand) -> list[Use]:
        policy, layer, role = self._policy, demand.layer, demand.role
        # the formats of a product's factors decide its unit; an addend, the third operand, does not
        factors = [fmt for fmt, _ in demand.operands[:2] if fmt is not None] if demand.multiply_adds else []
        # a dynamic format gets the point with which its demand was made; other formats have their own or need none
        point = getattr(demand.result_format, "frac_bits", 0)
        path = Datapath(
            policy.mac(layer, *factors, role=role),
            policy.stage(layer, role, point),
            policy.stage(layer, "loss").format,
            self._counter_bits,
            self._on_host,
        )
        return uses_of(demand, path)

    def _unit_of(self, demand: Demand) -> str:
        # no clock, or no unit with lanes: there is no choice of units
        return ONE_LANE if self._machine is None else self._machine.unit_of(demand)

    def _lanes(self, unit: str) -> int:
        # a host, a unit without lanes and a device that names no unit count as one lane
        known = self._device.compute.units.get(unit)
        lanes = known.lanes if known and known.kind != HOST else None
        return 1 if lanes is None else int(lanes.value)


def _energy_pj(operations: Iterable[_Spent]) -> Fraction:
    # fractions: a sum of floats would depend on the order of operations
    return sum((energy for operation in operations for energy in operation.energy_pj.values()), Fraction(0))


def _rows(operations: Sequence[_Spent]) -> tuple[EnergyRow, ...]:
    """Return the energy by layer, role, part and kind, in the order of the run."""
    spent: dict[tuple[str, str, str, str], tuple[int, Fraction]] = {}
    for operation in operations:
        for unit, energy in operation.energy_pj.items():
            key = (operation.demand.layer, operation.demand.role, unit, operation.demand.kind)
            times, so_far = spent.get(key, (0, Fraction(0)))
            spent[key] = (times + operation.times(unit), so_far + energy)
    whole = sum((energy for _, energy in spent.values()), Fraction(0)) or Fraction(1)
    return tuple(EnergyRow(*key, times, energy, float(energy / whole)) for key, (times, energy) in spent.items())
