"""The energy of a step by layer and part of the datapath, and the area of the units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from emu.hardware.energy import ADDER, COUNTERS, MEMORY, MULTIPLIER, ON_HOST, PARTS, REGISTERS, ROUNDING
from emu.report.chart import AXIS_PIXELS, ROW_PIXELS, SERIES_COLOURS, Chart, layer_bars, swatch_legend
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure
from emu.report.run_data import table_of, tables_of
from emu.report.words import NO_NUMBER, area, energy, integer, percent, sentence_case
from emu.training.cost import JOULE_PJ, MM2_UM2

_TITLE = "Energy and area"
_COLOURS = {
    MEMORY: "var(--quiet)",
    MULTIPLIER: SERIES_COLOURS[0],
    ADDER: SERIES_COLOURS[2],
    REGISTERS: SERIES_COLOURS[4],
    ROUNDING: SERIES_COLOURS[1],
    COUNTERS: SERIES_COLOURS[3],
    ON_HOST: SERIES_COLOURS[5],
}
_READING = (
    "Each bar is the energy that a step's work for one layer takes, after the cost table that the device names: every "
    "multiplication, addition and rounding by its format, every bit of a register that is written, every byte of the "
    "memory. It follows from shapes and formats alone. Operations that run again are not in it, nor is what no table "
    "gives: leakage, clocks, control, links."
)


class _Spent(NamedTuple):
    """Energy of a part of the datapath in a layer: joules per step, and number of uses."""

    layer: str
    unit: str
    kind: str
    joules: float
    uses: int


def section(evidence: Evidence) -> Section | None:
    """Return sentences, bars and tables; None for a run without costs."""
    cost = evidence.run.section("cost")
    spent = _spent(["input", *evidence.run.layers], cost)
    if not spent:
        return None
    chart = _bars(spent, "a step")
    parts: list[Html] = [
        paragraph(" ".join(_sentences(evidence, cost)), class_="summary"),
        figure(
            "Energy of a step by layer",
            swatch_legend({unit: _COLOURS[unit] for unit in _units(spent)}),
            chart.placeholder(),
            reading=_READING,
        ),
        disclosure("Energy as a table", _energy_table(spent)),
    ]
    if areas := tables_of(cost.get("areas")):
        parts.append(disclosure("Area as a table", _area_table(areas)))
    return Section("energy", _TITLE, join(parts), (chart,))


def energy_chart(described: dict[str, Any], of: str) -> tuple[Chart, dict[str, str]]:
    """Return the energy of a cost by layer as bars, and the colours of its parts.

    Args:
        described: what `Cost.described` returns; its forward work is in the order of the network.
        of: "a step" or "an inference", of which the cost is.
    """
    # The sort is stable: forward work, which is in the network's order, gives the order of the layers.
    forward_first = sorted(described["energy"], key=lambda row: row["kind"] != "forward")
    spent = _spent(list(dict.fromkeys(row["layer"] for row in forward_first)), described)
    return _bars(spent, of), {unit: _COLOURS[unit] for unit in _units(spent)}


def _spent(layers: Sequence[str], cost: dict[str, Any]) -> list[_Spent]:
    index = {name: i for i, name in enumerate(layers)}
    spent = [
        _Spent(str(row["layer"]), str(row["unit"]), str(row["kind"]), row["picojoules"] / JOULE_PJ, int(row["uses"]))
        for row in tables_of(cost.get("energy"))
        if row.get("unit") in PARTS
    ]
    return sorted(spent, key=lambda part: (index.get(part.layer, len(index)), PARTS.index(part.unit), part.kind))


def _units(spent: list[_Spent]) -> list[str]:
    return [unit for unit in PARTS if any(part.unit == unit for part in spent)]


def _sentences(evidence: Evidence, cost: dict[str, Any]) -> list[str]:
    """Return sentences about the energy of a step and an inference, its parts, and the area of the units."""
    _, device = evidence.run.name()
    shares = [(unit, float(share)) for unit, share in table_of(cost.get("shares")).items() if float(share) >= 0.0005]
    sentences = [
        f"On {device}, a step of {integer(int(cost['batch']))} examples takes {energy(cost['joules_per_step'])}, and "
        f"an inference {energy(cost['joules_per_inference'])}, after cost table {cost['table']} with memory "
        f"{cost['memory']}.",
        sentence_case(", ".join(f"{unit} {percent(share)}" for unit, share in shares)) + ".",
    ]
    if cost.get("area_mm2") is None:
        return [*sentences, "The table gives no areas."]
    return [*sentences, f"The units take {area(cost['area_mm2'])}, without memories."]


def _bars(spent: list[_Spent], of: str) -> Chart:
    layers = list(dict.fromkeys(part.layer for part in spent))
    whole = sum(part.joules for part in spent) or 1.0
    rows: list[dict[str, Any]] = []
    for layer in layers:
        for unit in _units(spent):
            # A part has an entry for each kind of work, forward, backward and update; a bar is their sum.
            own = [part.joules for part in spent if (part.layer, part.unit) == (layer, unit)]
            if own:
                joules = sum(own)
                texts = {"energy": energy(joules), "share": percent(joules / whole)}
                # Microjoules, in four digits: a bar shows no more.
                length = float(f"{joules * 1e6:.4g}")
                rows.append({"layer": layer, "kind": unit, "place": PARTS.index(unit), "uj": length, **texts})
    tips = {"layer": "layer", "kind": "part", "energy": "energy", "share": "share"}
    colours = {unit: _COLOURS[unit] for unit in _units(spent)}
    spec = layer_bars(rows, layers, colours, value="uj", title=f"microjoules of {of}", tips=tips)
    # The layer whose bar is the longest.
    most = max(layers, key=lambda layer: sum(part.joules for part in spent if part.layer == layer))
    label = f"Energy of {of} by layer, {energy(whole)} in all; {most} takes most."
    return Chart("energy-chart", label, spec, ROW_PIXELS * len(layers) + AXIS_PIXELS)


def _energy_table(spent: list[_Spent]) -> Html:
    whole = sum(part.joules for part in spent) or 1.0
    rows = (
        [part.layer, part.unit, part.kind, integer(part.uses), energy(part.joules), percent(part.joules / whole)]
        for part in spent
    )
    header = ["layer", "part", "work", "uses (bytes of the memory)", "energy", "share"]
    return table("Energy of a step", header, rows, numeric_from=3)


def _area_table(areas: list[dict[str, Any]]) -> Html:
    rows = (
        [
            str(row["compute_unit"]),
            str(row["unit"]),
            integer(int(row["lanes"])),
            area(row["area_um2"] / MM2_UM2) if row.get("area_um2") else NO_NUMBER,
            percent(float(row["share"])),
        ]
        for row in areas
    )
    return table("Area of the units", ["unit", "part", "lanes", "area", "share"], rows, numeric_from=2)
