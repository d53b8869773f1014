"""The course of a search: the objectives of all trials in their order, and the best so far."""

from __future__ import annotations

from typing import Any

from emu.report.chart import Chart, Spec, specification, swatch_legend, whole_axis
from emu.report.html import join
from emu.report.page import Section, figure
from emu.report.search.axes import axis_of
from emu.report.search.trials import Searched
from emu.report.search.words import called, scale_of, value_in_words

_HEIGHT = 180
_HOLDS, _BREAKS, _BEST = "var(--series-0)", "var(--quiet)", "var(--series-1)"
_READING = (
    "A point is a trial, in the order of their numbers; hollow ones break a constraint. The line is the best so far of "
    "those that hold every constraint."
)


def history_section(searched: Searched) -> Section | None:
    """Return a picture for each objective; None if no trial is finished."""
    if not searched.finished:
        return None
    charts = [_chart(searched, index) for index in range(len(searched.metrics))]
    legend = swatch_legend({"a trial": _HOLDS, "breaks a constraint": _BREAKS, "best so far": _BEST})
    figures = [
        figure(called(metric), legend if not index else "", chart.placeholder(), reading="" if index else _READING)
        for index, (metric, chart) in enumerate(zip(searched.metrics, charts, strict=True))
    ]
    return Section("history", "How the search went on", join(figures), tuple(charts))


def _chart(searched: Searched, index: int) -> Chart:
    metric, sign = searched.metrics[index], searched.signs[index]
    scale = scale_of(metric, max(abs(trial.objectives[index]) for trial in searched.finished))
    rows: list[dict[str, Any]] = []
    best: list[dict[str, Any]] = []
    for trial in searched.finished:
        value = trial.objectives[index]
        rows.append(
            {
                "trial": trial.number,
                "value": round(value * scale.factor, 6),
                "text": value_in_words(metric, value),
                "holds": trial.is_feasible,
            }
        )
        # `sign` makes less the better in both directions.
        if trial.is_feasible and (not best or sign * value < sign * best[-1]["raw"]):
            best.append({"trial": trial.number, "value": rows[-1]["value"], "raw": value})
    if best:
        # The line goes on to the last trial.
        best.append({**best[-1], "trial": searched.finished[-1].number})
    label = f"{called(metric)} of {len(rows)} trials in their order."
    axis = axis_of("value", metric, scale, [row["value"] for row in rows])
    drawn = [{"trial": point["trial"], "value": point["value"]} for point in best]
    return Chart(f"history-{index}", label, _spec(axis, rows, drawn), _HEIGHT + 60)


def _spec(axis: dict[str, Any], rows: list[dict[str, Any]], best: list[dict[str, Any]]) -> Spec:
    import altair as alt

    trials = whole_axis(rows[0]["trial"], rows[-1]["trial"])
    x = alt.X("trial:Q", title="trial", axis=trials, scale=alt.Scale(padding=8, nice=False))
    y = alt.Y(**axis)
    points = (
        alt.Chart(alt.NamedData("trials"), height=_HEIGHT)
        .mark_point(size=40, strokeWidth=1.5)
        .encode(
            x=x,
            y=y,
            stroke=alt.condition("datum.holds", alt.value(_HOLDS), alt.value(_BREAKS)),
            fill=alt.condition("datum.holds", alt.value(_HOLDS), alt.value("transparent")),
            tooltip=[alt.Tooltip("trial:Q"), alt.Tooltip("text:N", title="value")],
        )
    )
    line = alt.Chart(alt.NamedData("best")).mark_line(interpolate="step-after", color=_BEST).encode(x=x, y=y)
    return specification(alt.layer(points, line), trials=rows, best=best)
