"""The grids of a sensitivity analysis: layers and roles, coloured by the points that they lose, one for each width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from emu.report.chart import SHARE_COLOURS, SHARE_INKS, Chart, Spec, specification, swatch_legend
from emu.report.html import element, join
from emu.report.page import Section, figure
from emu.report.sensitivity.rows import Row, Sensitivity
from emu.report.sensitivity.words import answers, lost, saving
from emu.report.words import ROLES

#: Edges between the classes of a loss, in points; a loss of 0 or less has a colour of its own.
EDGES = (0.1, 0.25, 0.5, 1.0, 3.0, 10.0, 30.0)
#: A positive number below any loss: it separates no loss from all others.
_NOTHING = 1e-9
_CELL_PIXELS, _AXIS_PIXELS = 28, 34
_READING = (
    "A cell is one role of one layer, in the narrower format, while everything else stays as it is; the number is the "
    "points of accuracy that it loses, below 0 if it wins some. An empty place has no such tensor, or one that is as "
    "narrow already."
)


def grid_section(measured: Sensitivity) -> Section | None:
    """Return the section of the grids; None without rows, or if losses mean nothing."""
    if measured.is_at_chance or not any(row.results for row in measured.rows):
        return None
    columns = [column for column in measured.columns() if _rows(measured, column)]
    charts = [_chart(measured, column, index) for index, column in enumerate(columns)]
    figures = [figure(column, chart.placeholder(), reading="") for column, chart in zip(columns, charts, strict=True)]
    within = (f"{low:g}\u2013{high:g}" for low, high in pairwise(EDGES))
    names = ["nothing", f"under {EDGES[0]:g}", *within, f"over {EDGES[-1]:g}"]
    legend = swatch_legend(dict(zip(names, SHARE_COLOURS, strict=True)), "points lost:")
    reading = element("p", element("strong", "How to read it. "), _READING, class_="about")
    body = join([legend, element("div", *figures, class_="pair"), reading])
    return Section("grid", "Which layers lose what", body, tuple(charts))


def _rows(measured: Sensitivity, column: str) -> list[Row]:
    return [row for row in measured.rows if measured.column_of(row) == column and row.results]


def _chart(measured: Sensitivity, column: str, index: int) -> Chart:
    rows = _rows(measured, column)
    layers = list(dict.fromkeys(row.layer for row in measured.rows))
    roles = [role for role in ROLES if any(row.role == role for row in measured.rows)]
    drawn = [
        {
            "layer": row.layer,
            "role": row.role,
            "lost": round(100 * (row.lost or 0.0), 4),
            "shown": _short(100 * (row.lost or 0.0)),
            "format": f"{row.own} to {row.format}",
            "text": f"{lost(row)} points",
            "answers": answers(row),
            "saving": saving(row),
        }
        for row in rows
    ]
    worst = max(rows, key=lambda row: row.lost or 0.0)
    label = (
        f"Points of accuracy lost with {column}: {len(rows)} tensors, the most sensitive is {worst.role} of "
        f"{worst.layer} with {lost(worst)}. The table below has all."
    )
    return Chart(f"grid-{index}", label, _spec(drawn, layers, roles), _CELL_PIXELS * len(layers) + _AXIS_PIXELS)


def _short(value: float) -> str:
    """Return points for a small cell: two digits at most after a point.

    Examples:
        >>> [_short(value) for value in (0.0, 0.222, -0.222, 3.556, 12.44, 88.2)]
        ['0', '0.22', '-0.22', '3.56', '12', '88']
    """
    return f"{value:.0f}" if abs(value) >= 10 else f"{round(value, 2) + 0.0:g}"


def _spec(rows: list[dict[str, Any]], layers: Sequence[str], roles: Sequence[str]) -> Spec:
    import altair as alt

    domain = [_NOTHING, *EDGES]
    fills = alt.Scale(type="threshold", domain=domain, range=list(SHARE_COLOURS))
    inks = alt.Scale(type="threshold", domain=domain, range=list(SHARE_INKS))
    # The domain is named, so that all grids have the same rows and columns, and an empty place means the same in each.
    x = alt.X("role:N", sort=list(roles), scale=alt.Scale(domain=list(roles)), title=None,
              axis=alt.Axis(labelAngle=0, orient="top", grid=False))  # fmt: skip
    y = alt.Y("layer:N", sort=list(layers), scale=alt.Scale(domain=list(layers)), title=None,
              axis=alt.Axis(labelLimit=110, grid=False))  # fmt: skip
    tips = {"layer": "layer", "role": "role", "format": "format", "text": "lost", "answers": "answers changed",
            "saving": "energy saved"}  # fmt: skip
    base = alt.Chart(alt.NamedData("rows"), height=_CELL_PIXELS * len(layers)).encode(
        x=x, y=y, tooltip=[alt.Tooltip(f"{field}:N", title=title) for field, title in tips.items()]
    )
    cells = base.mark_rect(stroke="var(--card)", strokeWidth=1).encode(fill=alt.Fill("lost:Q", scale=fills))
    numbers = base.mark_text(fontSize=12).encode(text="shown:N", color=alt.Color("lost:Q", scale=inks))
    return specification(alt.layer(cells, numbers), rows=rows)
