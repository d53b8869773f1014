"""Gradients of sparse layers: the time of their products, and of a transposed copy of each input."""

from __future__ import annotations

from typing import Any, NamedTuple

from emu.hardware.machine import SECOND_PS
from emu.report.chart import AXIS_PIXELS, ROW_PIXELS, SERIES_COLOURS, Chart, layer_bars, swatch_legend
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure, missing_section
from emu.report.run_data import Columns
from emu.report.words import byte_count, duration, integer, percent

_TITLE = "Sparse gradients without a transpose"
_PRODUCT, _COPY = "product", "transposed copy"
_COLOURS = {_PRODUCT: SERIES_COLOURS[2], _COPY: SERIES_COLOURS[1]}
#: V1 and V2 are the indices of a sparse gradient, as in docs/sparse.md.
_READING = (
    "The upper bar of a layer is what the product of its gradient takes on the emulated machine in a step, from the "
    "rows of its input as they lie. The lower bar has what a transposed copy of the input would add before an equal "
    "product. The run is charged the upper bar alone. A copy reads and writes each of its bytes once, so it would take "
    "at least this long. Which columns have entries (V1 and V2) comes with the batch, and is in neither bar."
)


class _Layer(NamedTuple):
    """The gradients of a layer over the whole run; fields but the name are columns of the table `sparse`."""

    name: str
    entries: int
    rows: int
    product_ps: int
    transpose_ps: int
    product_bytes: int
    transpose_bytes: int


def section(evidence: Evidence) -> Section | None:
    """Return bars and a table, or why they are missing; None for a run without sparse layers or simulated time."""
    columns = evidence.run.table("sparse")
    if columns is None:
        return missing_section("sparse-products", _TITLE, evidence.run.missing.get("sparse.parquet"))
    layers, steps = _layers(columns), max(evidence.outcome.steps, 1)
    # All of the run, as are the sums of a layer: the quotient is the share of a step.
    whole_ps = round(evidence.simulated.seconds * SECOND_PS) if evidence.simulated else 0
    summary = " ".join(_sentence(layer, steps, whole_ps) for layer in layers)
    chart = _bars(layers, steps, summary)
    parts: list[Html] = [
        paragraph(summary, class_="summary"),
        figure("A step's sparse gradients", swatch_legend(_COLOURS), chart.placeholder(), reading=_READING),
        disclosure("Sparse gradients as a table", _table(layers, steps)),
    ]
    return Section("sparse-products", _TITLE, join(parts), (chart,))


def _layers(columns: Columns) -> list[_Layer]:
    names = columns["layer"].astype(str)
    return [
        _Layer(name, *(int(columns[field][names == name].sum()) for field in _Layer._fields[1:]))
        for name in dict.fromkeys(names.tolist())
    ]


def _sentence(layer: _Layer, steps: int, whole_ps: int) -> str:
    """Return a sentence about the time of a layer's gradient in a step, and of a transposed copy."""
    product, copy = (_time(ps, steps) for ps in (layer.product_ps, layer.transpose_ps))
    shares = [f", {percent(ps / whole_ps)} of the step" if whole_ps else ""
              for ps in (layer.product_ps, layer.transpose_ps)]  # fmt: skip
    return (
        f"The gradient of {layer.name} takes {product} in a step{shares[0]}: {integer(layer.entries // steps)} entries "
        f"give {integer(layer.rows // steps)} rows. A transposed copy of its input would add {copy}{shares[1]}."
    )


def _time(ps: int, steps: int) -> str:
    return duration(ps / steps / SECOND_PS)


def _bars(layers: list[_Layer], steps: int, summary: str) -> Chart:
    rows: list[dict[str, Any]] = []
    for layer in layers:
        copied = f"{layer.name}, copied"
        # Two bars a layer: the product alone, and the copy with an equal product behind it.
        bars = ((layer.name, _PRODUCT), (copied, _COPY), (copied, _PRODUCT))
        for rank, (name, kind) in enumerate(bars):
            ps = layer.product_ps if kind == _PRODUCT else layer.transpose_ps
            us = float(f"{ps / steps / 1e6:.4g}")  # a bar shows no more digits
            rows.append({"layer": name, "kind": kind, "place": rank, "us": us, "time": _time(ps, steps)})
    names = list(dict.fromkeys(row["layer"] for row in rows))
    tips = {"layer": "gradient", "kind": "work", "time": "per step"}
    title = "simulated microseconds per step"
    spec = layer_bars(rows, names, _COLOURS, value="us", title=title, tips=tips)
    return Chart("sparse-products-chart", f"Sparse gradients. {summary}", spec, ROW_PIXELS * len(names) + AXIS_PIXELS)


def _table(layers: list[_Layer], steps: int) -> Html:
    header = ["layer", "entries", "rows", "product", "copy", "product's bytes", "copy's bytes"]
    rows = [
        [
            layer.name,
            integer(layer.entries // steps),
            integer(layer.rows // steps),
            *(_time(ps, steps) for ps in (layer.product_ps, layer.transpose_ps)),
            *(byte_count(size // steps) for size in (layer.product_bytes, layer.transpose_bytes)),
        ]
        for layer in layers
    ]
    return table("A step, on average", header, rows, numeric_from=1)
