"""Clipping layer by layer: how much of each layer's gradient was set to a threshold, over the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.formats.numerals import number
from emu.report.chart import Chart, Spec, series_legend, step_lines
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure, missing_section
from emu.report.run_data import Columns
from emu.report.words import NO_NUMBER, integer, percent

_TITLE = "Clipping"
_HEIGHT = 260
#: Layers that are drawn: those with the largest shares; the table has all.
_MOST_LAYERS = 8
_READING = (
    "The share of a layer's gradients that was clipped, of each logged interval, all workers together. A little at the "
    "beginning is what clipping is for. A share that stays high means that the thresholds, and no longer the data, "
    "decide the step."
)


def section(evidence: Evidence) -> Section | None:
    """Return shares over steps, and thresholds at the end; None for a run that clips nothing."""
    columns = evidence.run.table("clipping")
    if columns is None:
        return missing_section("clipping", _TITLE, evidence.run.missing.get("clipping.parquet"))
    shares = _shares(columns)
    clipped, elements = int(columns["clipped"].sum()), int(columns["elements"].sum())
    nonfinite = int(columns["nonfinite"].sum())
    summary = f"{percent(clipped / max(elements, 1))} of all gradients were clipped, {integer(clipped)} elements."
    if nonfinite:
        summary += f" {integer(nonfinite)} were NaN or infinite before."
    parts: list[Html] = [paragraph(summary, class_="summary")]
    charts: list[Chart] = []
    # By the worst interval of a layer: a short burst of clipping counts as much as a long one.
    drawn = sorted(shares, key=lambda layer: -max(share for _, share in shares[layer]))[:_MOST_LAYERS]
    if clipped:
        label = f"Share of clipped gradients of {', '.join(drawn)}. {summary}"
        charts.append(Chart("clipping-chart", label, _spec({name: shares[name] for name in drawn}), _HEIGHT))
        legend = series_legend(drawn, range(len(drawn)))
        parts.append(figure("Share of gradients that was clipped", legend, charts[0].placeholder(), reading=_READING))
    parts.append(disclosure("Thresholds at the end as a table", _table(columns)))
    return Section("clipping", _TITLE, join(parts), tuple(charts))


def _shares(columns: Columns) -> dict[str, list[tuple[int, float]]]:
    """Return layer -> (step, share) of its interval."""
    layers = columns["layer"].astype(str)
    shares: dict[str, list[tuple[int, float]]] = {}
    for layer in dict.fromkeys(layers.tolist()):
        for step in np.unique(columns["step"][layers == layer]).tolist():
            # A layer has a row for each of its parameters (`part`); their counts are added.
            rows = (layers == layer) & (columns["step"] == step)
            share = int(columns["clipped"][rows].sum()) / max(int(columns["elements"][rows].sum()), 1)
            shares.setdefault(layer, []).append((int(step), share))
    return shares


def _spec(shares: dict[str, list[tuple[int, float]]]) -> Spec:
    import altair as alt

    rows: list[dict[str, Any]] = [
        {"step": step, "layer": layer, "share": float(f"{share:.4g}")}
        for layer, points in shares.items()
        for step, share in points
    ]
    y = alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(zero=True))
    return step_lines(rows, {"layer": list(shares)}, y, height=_HEIGHT - 60, tip=".3%")


def _table(columns: Columns) -> Html:
    newest = columns["step"] == columns["step"].max()
    names = ("layer", "part", "clipped", "elements", "low", "high")
    rows = [
        [str(layer), str(part), integer(int(clipped)), percent(clipped / max(elements, 1)), _limit(low), _limit(high)]
        for layer, part, clipped, elements, low, high in zip(*(columns[name][newest] for name in names), strict=True)
    ]
    header = ["layer", "part", "clipped", "share", "lower threshold", "upper threshold"]
    return table("The last interval", header, rows, numeric_from=2)


def _limit(value: float) -> str:
    return NO_NUMBER if np.isnan(value) else number(float(value), 4)
