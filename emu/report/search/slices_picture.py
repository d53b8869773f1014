"""Each variable alone: an objective of all trials over the variable's values."""

from __future__ import annotations

from typing import Any

from emu.report.chart import Chart, Spec, specification, swatch_legend, whole_axis
from emu.report.html import Html, element, join
from emu.report.page import figure
from emu.report.search.axes import axis_of
from emu.report.search.front_picture import KINDS, kind_of
from emu.report.search.trials import Searched
from emu.report.search.words import called, scale_of, value_in_words, values_in_words

_HEIGHT = 150
#: Most variables that have a picture: those that mattered most.
MOST = 24
_READING = (
    "A point is a trial, at its value of one variable, whatever its other values are. A cloud that rises or falls "
    "shows a variable that matters; one that is flat, a variable that does not."
)


def slices_picture(searched: Searched, index: int) -> tuple[Html, tuple[Chart, ...]]:
    """Return the figure of an objective over each variable, and its charts; nothing before a trial is finished.

    Args:
        searched: the search.
        index: number of the objective.
    """
    if not searched.finished:
        return Html(""), ()
    metric = searched.metrics[index]
    shares = searched.importances.get(metric, {})
    ranked = sorted(searched.search["variable"], key=lambda variable: -shares.get(variable["name"], 0.0))[:MOST]
    front = {trial.number for trial in searched.front()}
    charts = tuple(_chart(searched, index, front, variable, at) for at, variable in enumerate(ranked))
    panels = join([element("div", chart.placeholder()) for chart in charts])
    left = len(searched.search["variable"]) - len(ranked)
    note = f" {left} variables that mattered less are left out." if left else ""
    title = f"{called(metric)} by each variable"
    return figure(title, swatch_legend(KINDS), element("div", panels, class_="panels"), reading=_READING + note), charts


def _chart(searched: Searched, index: int, front: set[int], variable: dict[str, Any], at: int) -> Chart:
    metric, name = searched.metrics[index], variable["name"]
    scale = scale_of(metric, max(abs(trial.objectives[index]) for trial in searched.finished))
    rows: list[dict[str, Any]] = [
        {
            "x": trial.values[name],
            "y": round(trial.objectives[index] * scale.factor, 6),
            "kind": kind_of(trial, front),
            "trial": trial.number,
            "text": value_in_words(metric, trial.objectives[index]),
            "value": values_in_words({"": trial.values[name]}).strip(),
        }
        for trial in searched.finished
        if name in trial.values
    ]
    # False sorts first: points of the front are drawn last, on top.
    rows.sort(key=lambda row: row["kind"] == "front")
    label = f"{called(metric)} of {len(rows)} trials by {name}."
    spec = _spec(rows, variable, axis_of("y", metric, scale, [row["y"] for row in rows]))
    return Chart(f"slice-{index}-{at}", label, spec, _HEIGHT + 60)


def _spec(rows: list[dict[str, Any]], variable: dict[str, Any], y: dict[str, Any]) -> Spec:
    import altair as alt

    untitled: dict[str, Any] = {**y, "title": None}  # the figure's title names it
    if variable["choices"] is not None:
        x = alt.X("x:N", title=variable["name"], sort=list(variable["choices"]), axis=alt.Axis(labelAngle=0))
    else:
        ends = [variable["low"], variable["high"]]
        scale = alt.Scale(type="log" if variable["log"] else "linear", zero=False, padding=8, domain=ends)
        is_whole = all(isinstance(end, int) for end in ends)
        axis = whole_axis(*ends) if is_whole else alt.Axis(tickCount=5, grid=False)
        x = alt.X("x:Q", title=variable["name"], scale=scale, axis=axis)
    points = (
        alt.Chart(alt.NamedData("trials"), height=_HEIGHT)
        .mark_point(size=30, filled=True, opacity=0.8)
        .encode(
            x=x,
            y=alt.Y(**untitled),
            color=alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values()))),
            tooltip=[
                alt.Tooltip("trial:Q"),
                alt.Tooltip("value:N", title=variable["name"]),
                alt.Tooltip("text:N", title="reached"),
            ],
        )
    )
    return specification(points, trials=rows)
