"""What a run would have taken on the machine it emulates: time by layer and kind, and a step of each phase.

Simulated time is exact and the same on every computer: it follows from the device file alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emu.errors import EmuError
from emu.hardware import Device, machine_of
from emu.hardware.machine import SECOND_PS, Roof
from emu.report.run_data import Columns, Run
from emu.training.time.simulation import KINDS


@dataclass(frozen=True)
class SimulatedCost:
    """What one kind of work cost in one layer, over the whole run.

    Attributes:
        layer: whose results were written; empty for the batches.
        unit: that did it, or `link`.
        kind: one of `KINDS`.
        calls: operations or transfers.
        cycles: of the unit.
        seconds: simulated.
        operations: multiply-adds, or results where there are none.
        bytes: through the memory or the link.
    """

    layer: str
    unit: str
    kind: str
    calls: int
    cycles: int
    seconds: float
    operations: int
    bytes: int


@dataclass(frozen=True)
class SimulatedStep:
    """One step as the machine would run it.

    Attributes:
        step: its number.
        phase: of training.
        events: place (its order, resource), name, kind, operation, begin and duration in microseconds from the step's
            begin, cycles. Of several nodes, a resource has its node before it.
    """

    step: int
    phase: str
    events: list[dict[str, Any]]


@dataclass(frozen=True)
class SimulatedTime:
    """The simulated time of a run.

    Attributes:
        seconds: of all steps.
        by_phase: seconds by phase of training.
        costs: by layer, unit and kind, in network order.
        roofs: what bounds each unit; empty if the device cannot be read.
        steps: the first one of each phase.
    """

    seconds: float
    by_phase: dict[str, float]
    costs: list[SimulatedCost]
    roofs: list[Roof]
    steps: list[SimulatedStep]

    def of(self, *kinds: str) -> list[SimulatedCost]:
        """Return the costs of some kinds."""
        return [cost for cost in self.costs if cost.kind in kinds]

    def share(self, costs: Iterable[SimulatedCost]) -> float:
        """Return what part of all the work these make, whatever ran side by side."""
        return sum(cost.seconds for cost in costs) / (sum(cost.seconds for cost in self.costs) or 1.0)


def simulated_time(run: Run) -> SimulatedTime | None:
    """Return the simulated time, None for a run of a device without a clock."""
    table, total = run.simulation, run.info.get("simulated_seconds")
    if table is None or not isinstance(total, int | float):
        return None
    phases = run.section("simulated_picoseconds_by_phase")
    by_phase = {str(name): int(spent) / SECOND_PS for name, spent in phases.items()}
    return SimulatedTime(float(total), by_phase, _costs(run, table), _roofs(run), _steps(run))


def _costs(run: Run, table: Columns) -> list[SimulatedCost]:
    rows: dict[tuple[str, str, str], list[int]] = {}
    names = (table[name].astype(str) for name in ("layer", "unit", "kind"))
    for row, (layer, unit, kind) in enumerate(zip(*names, strict=True)):
        rows.setdefault((layer, unit, kind), []).append(row)
    place = {name: i for i, name in enumerate(run.layers)}
    order = sorted(rows, key=lambda at: (place.get(at[0], len(place)), KINDS.index(at[2]) if at[2] in KINDS else -1))
    costs: list[SimulatedCost] = []
    for layer, unit, kind in order:
        at = rows[layer, unit, kind]
        calls, cycles, ps, operations, size = (
            int(table[name][at].sum()) for name in ("calls", "cycles", "picoseconds", "operations", "bytes")
        )
        costs.append(SimulatedCost(layer, unit, kind, calls, cycles, ps / SECOND_PS, operations, size))
    return costs


def _roofs(run: Run) -> list[Roof]:
    try:
        machine = machine_of(Device.model_validate(run.section("device")))
    except (ValueError, EmuError):  # a device that this version no longer reads
        return []
    return machine.roofs() if machine else []


def _steps(run: Run) -> list[SimulatedStep]:
    tracks = _tracks(run.trace)
    found: dict[str, SimulatedStep] = {}
    for event in run.trace:
        about: dict[str, Any] = event.get("args") or {}
        if event.get("ph") != "X" or "phase" not in about:
            continue
        phase, step = str(about["phase"]), int(about["step"])
        kept = found.setdefault(phase, SimulatedStep(step, phase, []))
        if kept.step == step:
            kept.events.append(
                {
                    "place": tracks.get((event.get("pid"), event["tid"]), (0, str(event["tid"]))),
                    "name": str(event["name"]),
                    "kind": str(event["cat"]),
                    "operation": str(about.get("operation", "")),
                    "begin": float(event["ts"]),
                    "duration": float(event["dur"]),
                    "cycles": int(about.get("cycles", 0)),
                }
            )
    for step in found.values():
        first = min((event["begin"] for event in step.events), default=0.0)
        for event in step.events:
            event["begin"] -= first
    return list(found.values())


def _tracks(trace: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], tuple[int, str]]:
    """Return process and thread -> the order of a resource and its name: node by node, as they are named first."""
    named = [(event.get("pid"), event.get("tid"), str(event["args"]["name"]))
             for event in trace if event.get("name") == "thread_name"]  # fmt: skip
    nodes = list(dict.fromkeys(pid for pid, _, _ in named))
    several = len(nodes) > 1
    order = sorted(range(len(named)), key=lambda i: nodes.index(named[i][0]))
    return {
        named[i][:2]: (place, f"node {named[i][0]}: {named[i][2]}" if several else named[i][2])
        for place, i in enumerate(order)
    }
