"""The time of a run on the machine that it emulates: by layer and kind, and a step of each phase.

Simulated time is exact and the same on all computers: it depends only on the recipe and the device file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emu.errors import EmuError
from emu.hardware import Device, machine_of
from emu.hardware.machine import SECOND_PS, Roof
from emu.report.run_data import Columns, RunData
from emu.training.time.simulation import KINDS


@dataclass(frozen=True)
class SimulatedSpent:
    """Time and other resources that one kind of work has spent in one layer, over the whole run.

    Attributes:
        layer: layer whose results were written; empty for the batches.
        unit: unit that did the work, or `link`.
        kind: one of `KINDS`.
        calls: operations or transfers.
        cycles: cycles of the unit.
        seconds: simulated seconds.
        operations: multiply-adds, or results if there are none.
        bytes: bytes through the memory or the link.
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
class TracedStep:
    """A step whose events are in the trace.

    Attributes:
        step: number of the step.
        phase: phase of training.
        events: `place` (order and name of the resource), name, kind, operation, begin and duration in microseconds from
            the step's begin, cycles. With several nodes, the name of a resource begins with its node.
    """

    step: int
    phase: str
    events: list[dict[str, Any]]


@dataclass(frozen=True)
class SimulatedTime:
    """The simulated time of a run.

    Attributes:
        seconds: time of all steps.
        by_phase: seconds by phase of training.
        entries: what was spent by layer, unit and kind, in network order.
        roofs: limits of each unit; empty if the device cannot be read.
        steps: the first step of each phase.
    """

    seconds: float
    by_phase: dict[str, float]
    entries: list[SimulatedSpent]
    roofs: list[Roof]
    steps: list[TracedStep]

    def of(self, *kinds: str) -> list[SimulatedSpent]:
        """Return the entries of these kinds."""
        return [entry for entry in self.entries if entry.kind in kinds]

    def share(self, entries: Iterable[SimulatedSpent]) -> float:
        """Return the share of these entries in the sum over all entries, even if some ran at the same time."""
        return sum(entry.seconds for entry in entries) / (sum(entry.seconds for entry in self.entries) or 1.0)


def simulated_time(run: RunData) -> SimulatedTime | None:
    """Return the simulated time of a run; None if its device has no clock."""
    table, total = run.simulation, run.info.get("simulated_seconds")
    if table is None or not isinstance(total, int | float):
        return None
    phases = run.section("simulated_picoseconds_by_phase")
    by_phase = {str(name): int(spent) / SECOND_PS for name, spent in phases.items()}
    return SimulatedTime(float(total), by_phase, _entries(run, table), _roofs(run), _steps(run))


def _entries(run: RunData, table: Columns) -> list[SimulatedSpent]:
    rows: dict[tuple[str, str, str], list[int]] = {}
    names = (table[name].astype(str) for name in ("layer", "unit", "kind"))
    for row, (layer, unit, kind) in enumerate(zip(*names, strict=True)):
        # The table has a row for each log point and role; here only layer, unit and kind are kept apart.
        rows.setdefault((layer, unit, kind), []).append(row)
    index = {name: i for i, name in enumerate(run.layers)}
    order = sorted(
        rows, key=lambda key: (index.get(key[0], len(index)), KINDS.index(key[2]) if key[2] in KINDS else -1)
    )
    entries: list[SimulatedSpent] = []
    for layer, unit, kind in order:
        of_key = rows[layer, unit, kind]
        calls, cycles, ps, operations, size = (
            int(table[name][of_key].sum()) for name in ("calls", "cycles", "picoseconds", "operations", "bytes")
        )
        entries.append(SimulatedSpent(layer, unit, kind, calls, cycles, ps / SECOND_PS, operations, size))
    return entries


def _roofs(run: RunData) -> list[Roof]:
    try:
        machine = machine_of(Device.model_validate(run.section("device")))
    except (ValueError, EmuError):  # a device that this version no longer reads
        return []
    return machine.roofs() if machine else []


def _steps(run: RunData) -> list[TracedStep]:
    tracks = _tracks(run.trace)
    steps: dict[str, TracedStep] = {}
    for event in run.trace:
        # "X" is a complete event of Chrome's trace format: it has a begin, `ts`, and a duration, `dur`, both in
        # microseconds.
        about: dict[str, Any] = event.get("args") or {}
        if event.get("ph") != "X" or "phase" not in about:
            continue
        phase, number = str(about["phase"]), int(about["step"])
        # The first step of a phase that the trace has; later steps have another number and are left out.
        kept = steps.setdefault(phase, TracedStep(number, phase, []))
        if kept.step == number:
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
    for step in steps.values():
        # The trace counts from the begin of the run, the picture from that of the step.
        first = min((event["begin"] for event in step.events), default=0.0)
        for event in step.events:
            event["begin"] -= first
    return list(steps.values())


def _tracks(trace: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], tuple[int, str]]:
    """Return process and thread -> order and name of a resource: node by node, in the order of the trace."""
    named = [(event.get("pid"), event.get("tid"), str(event["args"]["name"]))
             for event in trace if event.get("name") == "thread_name"]  # fmt: skip
    nodes = list(dict.fromkeys(pid for pid, _, _ in named))
    several = len(nodes) > 1
    # Stable: within a node, resources keep the order of the trace.
    order = sorted(range(len(named)), key=lambda i: nodes.index(named[i][0]))
    return {
        named[i][:2]: (rank, f"node {named[i][0]}: {named[i][2]}" if several else named[i][2])
        for rank, i in enumerate(order)
    }
