"""The second picture of a sensitivity analysis: points lost against energy saved, a point for each change."""

from __future__ import annotations

import math
from typing import Any

from emu.report.chart import SERIES_COLOURS, SERIES_SHAPES, Chart, Spec, series_legend, specification
from emu.report.html import join, paragraph
from emu.report.page import Section, figure
from emu.report.sensitivity.rows import Row, Sensitivity
from emu.report.sensitivity.words import lost, saving
from emu.report.words import ROLES

_HEIGHT = 340
_TITLE = "What is saved, and what it costs"
#: A wider picture, in points, has an axis that is logarithmic far from 0.
_WIDE = 20.0
#: Marks that are nearer than this share of the picture in both directions have one text together.
_NEAR = 0.035
_TICKS = [-10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100]
_READING = (
    "A mark is one change; the number beside it is the width that was tried, if there is room for it. Low and to the "
    "right is best: much energy saved, little accuracy lost. The dashed line is the loss that counts as tolerated."
)


def saving_section(measured: Sensitivity) -> Section | None:
    """Return the section of the picture; None if losses mean nothing."""
    if measured.is_at_chance:
        return None
    rows = [row for row in measured.rows if row.results and row.saving is not None]
    if not rows:
        why = str(measured.about["why_no_energy"])
        return Section("saving", _TITLE, paragraph(f"No energy is known: {why}", class_="missing")) if why else None
    roles = [role for role in ROLES if any(row.role == role for row in rows)]
    label = f"{len(rows)} changes by energy saved and points of accuracy lost. The table below has all."
    chart = Chart("loss-by-saving", label, _spec(measured, _labelled([_row(row) for row in rows]), roles), _HEIGHT + 60)
    legend = series_legend(roles, list(range(len(roles))))
    title = f"Points of accuracy lost, against the energy of {measured.about['energy_of']} saved"
    return Section("saving", _TITLE, figure(title, join([legend, chart.placeholder()]), reading=_READING), (chart,))


def _row(row: Row) -> dict[str, Any]:
    return {
        "layer": row.layer,
        "role": row.role,
        "bits": str(row.bits),
        "saved": round(100 * (row.saving or 0.0), 4),
        "lost": round(100 * (row.lost or 0.0), 4),
        "format": f"{row.own} to {row.format}",
        "lost_text": f"{lost(row)} points",
        "saved_text": saving(row),
    }


def _labelled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the text of their width; where marks lie close together, the first alone has one."""
    # If all marks lie on one line, any width will do.
    across = max(row["saved"] for row in rows) - min(row["saved"] for row in rows) or 1.0
    heights = [_height(row["lost"]) for row in rows]
    up = max(heights) - min(heights) or 1.0
    kept: list[tuple[float, float]] = []
    for row, height in zip(rows, heights, strict=True):
        x, y = row["saved"] / across, height / up
        # Compared only with marks that have a text themselves.
        has_room = all(abs(x - left) > _NEAR or abs(y - below) > _NEAR for left, below in kept)
        row["label"] = row["bits"] if has_room else ""
        kept += [(x, y)] if has_room else []
    return rows


def _height(lost: float) -> float:
    """Return where an axis that is logarithmic far from 0 draws a loss."""
    return math.copysign(math.log1p(abs(lost)), lost)


def _spec(measured: Sensitivity, rows: list[dict[str, Any]], roles: list[str]) -> Spec:
    import altair as alt

    losses = [row["lost"] for row in rows]
    is_wide = max(losses) - min(losses) > _WIDE
    scale = alt.Scale(type="symlog", constant=1, padding=12) if is_wide else alt.Scale(zero=True, padding=12)
    y_axis = alt.Axis(values=_TICKS) if is_wide else alt.Axis(tickCount=6)
    x_title = f"energy of {measured.about['energy_of']} saved (%)"
    x = alt.X("saved:Q", title=x_title, scale=alt.Scale(zero=True, padding=12), axis=alt.Axis(tickCount=6))
    y = alt.Y("lost:Q", title="points of accuracy lost", scale=scale, axis=y_axis)
    colours = alt.Scale(domain=roles, range=list(SERIES_COLOURS[: len(roles)]))
    shapes = alt.Scale(domain=roles, range=list(SERIES_SHAPES[: len(roles)]))
    colour = alt.Color("role:N", scale=colours, legend=None)
    tips = {"layer": "layer", "role": "role", "format": "format", "lost_text": "lost", "saved_text": "energy saved"}
    base = alt.Chart(alt.NamedData("rows"), height=_HEIGHT).encode(
        x=x, y=y, color=colour, tooltip=[alt.Tooltip(f"{field}:N", title=title) for field, title in tips.items()]
    )
    marks = base.mark_point(size=60, filled=True, opacity=0.8).encode(
        shape=alt.Shape("role:N", scale=shapes, legend=None)
    )
    widths = base.mark_text(dx=10, fontSize=11, align="left").encode(text="label:N")
    limit = (
        alt.Chart(alt.NamedData("limit"))
        .mark_rule(color="var(--quiet)", strokeDash=[4, 4])
        .encode(y=alt.Y("lost:Q", scale=scale, axis=y_axis, title="points of accuracy lost"))
    )
    return specification(alt.layer(limit, marks, widths), rows=rows, limit=[{"lost": 100 * measured.margin}])
