"""The columns that colour the layers of the drawn network: a colour, an ink and a text for each layer."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from emu.report.chart import SHARE_COLOURS, SHARE_EDGES, SHARE_INKS
from emu.report.evidence import Evidence
from emu.report.run_data import tables_of
from emu.report.words import NO_NUMBER, decibels, duration, energy, percent
from emu.training.cost import JOULE_PJ

#: Edges between the classes of a ratio in dB, from the least noise to the most; 6 dB are a bit.
_DECIBEL_EDGES = (60, 50, 40, 30, 20, 10, 0)
#: Colours of those classes, in the words of the legend.
DECIBEL_COLOURS: Mapping[str, str] = dict(
    zip(
        ("identical", "over 60 dB", "50\u201360", "40\u201350", "30\u201340", "20\u201330", "10\u201320", "0\u201310",
         "under 0 dB"),
        SHARE_COLOURS,
        strict=True,
    )
)  # fmt: skip
#: A layer's colour, the colour of text on it, and its text.
Box = tuple[str, str, str]
_NOTHING: Box = ("var(--card)", "var(--quiet)", NO_NUMBER)


@dataclass(frozen=True)
class LayerColumn:
    """A column.

    Attributes:
        title: its name in the menu.
        legend: name of its legend: "share" of results, "whole" for a share of the step, "decibel".
        boxes: layer -> how its box is drawn, for every layer.
        texts: layer -> its text in the table, which has more room than a box.
    """

    title: str
    legend: str
    boxes: Mapping[str, Box]
    texts: Mapping[str, str]


def layer_columns(evidence: Evidence, names: Sequence[str]) -> dict[str, LayerColumn]:
    """Return the columns that a run has numbers for, by key.

    Args:
        evidence: the run.
        names: layers that are drawn; tables may also name parts of them, such as `heads.query` of `heads`.
    """
    known = set(names)
    columns = {
        flag: _column(f"{flag} share", "share", names, _worst(_flags(evidence, flag), known, max), _share_box)
        for flag in ("underflow", "overflow")
    }
    noise = {tensor: each.last for tensor, each in evidence.noise.items() if not math.isnan(each.last)}
    # The worst ratio is the lowest, the worst share the highest.
    columns["noise"] = _column("signal-to-noise", "decibel", names, _worst(noise, known, min), _decibel_box)
    amounts = {
        "energy": ("energy of a step", _energies(evidence), energy),
        "time": ("time of the emulation, a step", _times(evidence), duration),
        "simulated": ("simulated time of a step", _simulated(evidence), duration),
    }
    for key, (title, by_layer, write) in amounts.items():
        columns[key] = _amounts(title, names, by_layer, known, write)
    # A column in which no layer has a number is not offered.
    return {key: column for key, column in columns.items() if any(box != _NOTHING for box in column.boxes.values())}


def _column(
    title: str, legend: str, names: Sequence[str], values: Mapping[str, float], box: Callable[[float], Box]
) -> LayerColumn:
    boxes = {name: box(values[name]) if name in values else _NOTHING for name in names}
    return LayerColumn(title, legend, boxes, {name: text for name, (_, _, text) in boxes.items()})


def _amounts(
    title: str, names: Sequence[str], by_layer: Mapping[str, float], known: set[str], write: Callable[[float], str]
) -> LayerColumn:
    """Return a column of amounts that add up to those of a step; the part that no drawn layer has counts as well."""
    values: dict[str, float] = {}
    for layer, amount in by_layer.items():
        if name := _drawn(layer, known):
            values[name] = values.get(name, 0.0) + amount
    # Shares are of the whole step, so the boxes may add up to less than 100 %.
    whole = sum(by_layer.values()) or 1.0

    def box(amount: float) -> Box:
        colour, ink, _ = _share_box(amount / whole)
        return colour, ink, write(amount)

    column = _column(title, "whole", names, values, box)
    shares = {name: f"{write(amount)}, {percent(amount / whole)}" for name, amount in values.items()}
    return replace(column, texts={**column.texts, **shares})


def _drawn(layer: str, known: set[str]) -> str | None:
    """Return the drawn layer that a layer of a table is, or is a part of."""
    name = layer
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def _worst(
    by_tensor: Mapping[tuple[str, str], float], known: set[str], pick: Callable[[float, float], float]
) -> dict[str, float]:
    values: dict[str, float] = {}
    for (layer, _), value in by_tensor.items():
        if name := _drawn(layer, known):
            # The first value stands for itself: `pick` of it and itself.
            values[name] = pick(values.get(name, value), value)
    return values


def _flags(evidence: Evidence, flag: str) -> dict[tuple[str, str], float]:
    return {tensor: history.share(flag) for tensor, history in evidence.flags.items()}


def _energies(evidence: Evidence) -> dict[str, float]:
    by_layer: dict[str, float] = {}
    for row in tables_of(evidence.run.section("cost").get("energy")):
        layer = str(row["layer"])
        by_layer[layer] = by_layer.get(layer, 0.0) + row["picojoules"] / JOULE_PJ
    return by_layer


def _times(evidence: Evidence) -> dict[str, float]:
    by_layer: dict[str, float] = {}
    if (spent := evidence.time) is not None:
        for entry in spent.entries:
            of_a_step = entry.typical_seconds / max(spent.steps, 1)
            by_layer[entry.layer] = by_layer.get(entry.layer, 0.0) + of_a_step
    return by_layer


def _simulated(evidence: Evidence) -> dict[str, float]:
    by_layer: dict[str, float] = {}
    for entry in evidence.simulated.entries if evidence.simulated else ():
        of_a_step = entry.seconds / max(evidence.outcome.steps, 1)
        by_layer[entry.layer] = by_layer.get(entry.layer, 0.0) + of_a_step
    return by_layer


def _share_box(share: float) -> Box:
    # Place 0 is the colour of nothing; a share on an edge belongs to the class above it, as in Vega's threshold scales.
    place = 0 if share <= 0 else 1 + bisect_right(SHARE_EDGES, share)
    return SHARE_COLOURS[place], SHARE_INKS[place], percent(share)


def _decibel_box(ratio: float) -> Box:
    # Edges descend: the more of them lie above the ratio, the more noise there is.
    place = 0 if math.isinf(ratio) and ratio > 0 else 1 + sum(ratio < edge for edge in _DECIBEL_EDGES)
    return SHARE_COLOURS[place], SHARE_INKS[place], decibels(ratio)
