"""The picture of a search: all trials by two objectives, and the front of those that no other trial beats."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from emu.report.chart import ANYWHERE, Chart, Spec, coloured, specification, swatch_legend
from emu.report.html import join, paragraph
from emu.report.page import Section, figure
from emu.report.search.axes import axis_of
from emu.report.search.trials import Searched, Trial
from emu.report.search.words import Scale, called, scale_of, value_in_words, values_in_words
from emu.report.vega import as_svg

_WIDTH, _HEIGHT = 620, 380
_FRONT, _OTHER = "var(--series-1)", "var(--series-0)"
#: Kind of a trial -> its colour.
KINDS = {"front": _FRONT, "holds the constraints": _OTHER, "breaks a constraint": "var(--quiet)"}
_LEGEND = {"title": None, "orient": "top", "columnPadding": 40, "labelColor": ANYWHERE["ink"], "labelFontSize": 12}
_READING = (
    "A point is a trial; a click opens the report of its first run. The line joins the front: trials that hold every "
    "constraint, where no other one is as good in every objective and better in one. Hollow points break a "
    "constraint; dashed lines are its bounds. The ring is around the device as it is."
)


def front_section(searched: Searched) -> Section | None:
    """Return the pictures of the first objective against each other one; None if there is one objective."""
    metrics = searched.metrics
    if len(metrics) < 2 or not searched.finished:
        return None
    charts = [_chart(searched, 0, index) for index in range(1, len(metrics))]
    legend = swatch_legend(KINDS)
    drawn = [
        figure(f"{called(metrics[index])} by {called(metrics[0])}", legend, chart.placeholder(), reading=_READING)
        for index, chart in enumerate(charts, 1)
    ]
    front = searched.front()
    summary = (
        f"{len(front)} of {len(searched.finished)} finished trials are on the front."
        if front
        else ("No trial holds every constraint yet.")
    )
    return Section("front", "What is possible", join([paragraph(summary, class_="summary"), *drawn]), tuple(charts))


def front_svg(searched: Searched) -> str | None:
    """Return the picture of the first two objectives as SVG, for light and dark pages; None if there is none."""
    if len(searched.metrics) < 2 or not searched.finished:
        return None
    chart = _chart(searched, 0, 1)
    spec = coloured(chart.spec)
    spec |= {"width": _WIDTH, "background": "transparent"}
    # A page has its legend as HTML; a picture alone needs that of Vega. The points are the last layer.
    spec["layer"][-1]["encoding"]["fill"]["legend"] = _LEGEND
    return as_svg(spec, chart.label)


def _chart(searched: Searched, x: int, y: int) -> Chart:
    metrics = searched.metrics
    scales = [
        scale_of(metrics[axis], max(abs(trial.objectives[axis]) for trial in searched.finished)) for axis in (x, y)
    ]
    front = {trial.number for trial in searched.front()}
    rows = [_row(searched, trial, (x, y), scales, front) for trial in searched.finished]
    rows.sort(key=lambda row: row["kind"] == "front")  # drawn last: other trials may have the same values
    line = [row for row in rows if row["kind"] == "front"]
    label = (
        f"{len(rows)} trials by {called(metrics[x])} and {called(metrics[y])}, {len(line)} of them on the front. The "
        "table below has the front."
    )
    return Chart(f"front-{y}", label, _spec(searched, (x, y), scales, rows, line), _HEIGHT + 60)


def kind_of(trial: Trial, front: Container[int]) -> str:
    """Return the kind of a finished trial; see `KINDS`."""
    # The keys, in their order.
    first, holds, breaks = KINDS
    return first if trial.number in front else holds if trial.is_feasible else breaks


def _row(
    searched: Searched, trial: Trial, axes: tuple[int, int], scales: list[Scale], front: set[int]
) -> dict[str, Any]:
    x, y = (trial.objectives[axis] * scale.factor for axis, scale in zip(axes, scales, strict=True))
    row = {
        "x": round(x, 6),
        "y": round(y, 6),
        "kind": kind_of(trial, front),
        "trial": trial.number,
        "x_text": value_in_words(searched.metrics[axes[0]], trial.objectives[axes[0]]),
        "y_text": value_in_words(searched.metrics[axes[1]], trial.objectives[axes[1]]),
        "values": values_in_words(trial.values),
    }
    page = searched.page_of(trial)
    # Absent instead of False: Vega's filter takes a missing field for false, and the data stay small.
    row |= {"original": True} if trial is searched.original else {}
    return row | ({"page": page} if page else {})


def _bounds(searched: Searched, axes: tuple[int, int], scales: list[Scale]) -> list[dict[str, float]]:
    """Return the bounds of constraints on the drawn metrics."""
    lines: list[dict[str, float]] = []
    for name, axis, scale in zip("xy", axes, scales, strict=True):
        for constraint in searched.search["constraint"]:
            # A constraint has one of the two.
            bound = constraint["at_most"] if constraint["at_least"] is None else constraint["at_least"]
            if constraint["metric"] == searched.metrics[axis]:
                lines.append({name: bound * scale.factor})
    return lines


def _spec(
    searched: Searched,
    axes: tuple[int, int],
    scales: list[Scale],
    rows: list[dict[str, Any]],
    line: list[dict[str, Any]],
) -> Spec:
    import altair as alt

    x, y = (
        axis_of(name, searched.metrics[axis], scale, [row[name] for row in rows])
        for name, axis, scale in zip("xy", axes, scales, strict=True)
    )
    tips = [
        alt.Tooltip("trial:Q"),
        alt.Tooltip("x_text:N", title=called(searched.metrics[axes[0]])),
        alt.Tooltip("y_text:N", title=called(searched.metrics[axes[1]])),
        alt.Tooltip("values:N"),
    ]
    colours = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    # Hollow points break a constraint: they have a stroke alone.
    fills = alt.Scale(domain=list(KINDS), range=[_FRONT, _OTHER, "transparent"])
    joined = (
        alt.Chart(alt.NamedData("line"), height=_HEIGHT)
        .mark_line(color=_FRONT, strokeWidth=1.5, opacity=0.6)
        .encode(x=alt.X(**x), y=alt.Y(**y), order=alt.Order("x:Q"))
    )
    points = (
        alt.Chart(alt.NamedData("trials"))
        .mark_point(size=70, strokeWidth=1.5)
        .encode(
            x=alt.X(**x),
            y=alt.Y(**y),
            stroke=alt.Stroke("kind:N", scale=colours, legend=None),
            fill=alt.Fill("kind:N", scale=fills, legend=None),
            href="page:N",
            tooltip=tips,
        )
    )
    original = (
        alt.Chart(alt.NamedData("trials"))
        .transform_filter("datum.original")
        .mark_point(size=260, filled=False, stroke="var(--ink)", strokeWidth=1.5)
        .encode(x=alt.X(**x), y=alt.Y(**y), tooltip=tips)
    )
    bounds = _bounds(searched, axes, scales)
    rule = {"type": "rule", "color": "var(--quiet)", "strokeDash": [4, 4]}
    rules = [
        # As a dictionary, because the channel is x or y, and its axis must be that of the points.
        alt.Chart.from_dict({"data": {"name": f"bounds_{name}"}, "mark": rule, "encoding": {name: own}})
        for name, own in (("x", x), ("y", y))
        if any(name in bound for bound in bounds)
    ]
    datasets = {f"bounds_{name}": [bound for bound in bounds if name in bound] for name in "xy"}
    return specification(alt.layer(joined, *rules, original, points), trials=rows, line=line, **datasets)
