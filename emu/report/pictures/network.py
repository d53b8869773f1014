"""The network drawn, with residual branches; a menu chooses the column that colours its layers."""

from __future__ import annotations

from typing import Any

from emu.report.chart import share_legend, swatch_legend
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, element, join, table
from emu.report.page import Section, figure
from emu.report.pictures.network_columns import DECIBEL_COLOURS, LayerColumn, layer_columns
from emu.report.pictures.network_drawing import Node, drawing, nodes_of
from emu.report.words import NO_NUMBER

_TITLE = "The network"
_READING = (
    "Layers in the order in which the network computes, from left to right and from row to row; inside a frame, from "
    "top to bottom. A line beside the layers of a frame is a residual branch: it carries the input of the frame, "
    "through the layers of the branch if it has any, to the sum at the bottom. A box has the colour and the number of "
    "the chosen column; a layer without such a number has none. Of several tensors of a layer, the worst counts."
)


def section(evidence: Evidence) -> Section | None:
    """Return the drawing, its menu and its numbers as a table; None for a run without layers or without columns."""
    nodes = nodes_of(evidence.run)
    names = [name for node in nodes for name in node.names()]
    columns = layer_columns(evidence, names)
    if not names or not columns:
        return None
    first = next(iter(columns))
    legends = {
        "share": share_legend("share of the results:"),
        "whole": share_legend("share of the step:"),
        "decibel": swatch_legend(DECIBEL_COLOURS, "signal-to-noise:"),
    }
    shown = {column.legend for column in columns.values()}
    keys = [
        # All legends are in the page; its script shows that of the chosen column.
        element("div", legends[name], data_legend=name, hidden=name != columns[first].legend)
        for name in legends
        if name in shown
    ]
    picture = figure(
        "Layers and residual branches",
        _controls(columns),
        *keys,
        drawing(nodes, columns[first].boxes),
        reading=_READING,
    )
    data: dict[str, Any] = {
        "columns": {key: column.boxes for key, column in columns.items()},
        "legends": {key: column.legend for key, column in columns.items()},
    }
    body = join([picture, disclosure("The columns as a table", _table(nodes, columns))])
    return Section("network", _TITLE, body, data={"network-data": data})


def _controls(columns: dict[str, LayerColumn]) -> Html:
    options = (element("option", column.title, value=key) for key, column in columns.items())
    menu = element("select", *options, id="network-column")
    return element("div", element("label", element("span", "Colour by"), menu), class_="controls")


def _table(nodes: list[Node], columns: dict[str, LayerColumn]) -> Html:
    flat = [each for node in nodes for each in node.every()]
    rows = (
        [node.name, node.kind or NO_NUMBER, *(column.texts[node.name] for column in columns.values())] for node in flat
    )
    header = ["layer", "type", *(column.title for column in columns.values())]
    return table("Layers in network order", header, rows, numeric_from=2)
