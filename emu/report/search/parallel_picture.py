"""All trials as lines over the variables, each from its first value at the bottom to its last at the top."""

from __future__ import annotations

from typing import Any

from emu.report.chart import Chart, Spec, specification, swatch_legend
from emu.report.html import Html
from emu.report.page import figure
from emu.report.search.front_picture import KINDS, kind_of
from emu.report.search.trials import Searched, Trial
from emu.report.search.words import called, value_in_words, values_in_words

_HEIGHT = 260
_READING = (
    "A line is a trial. It crosses each variable at its value: at the bottom is the least value or the first choice, "
    "at the top the largest or the last. Lines of the front lie on top: where they run together, the front agrees."
)


def parallel_picture(searched: Searched) -> tuple[Html, tuple[Chart, ...]]:
    """Return the figure and its chart; nothing for a single variable."""
    variables = searched.search["variable"]
    if len(variables) < 2 or not searched.finished:
        return Html(""), ()
    front = {trial.number for trial in searched.front()}
    rows = [row for trial in searched.finished for row in _rows(searched, trial, kind_of(trial, front))]
    names = [variable["name"] for variable in variables]
    # Drawn in this order: broken constraints first, the front on top.
    rank = {kind: rank for rank, kind in enumerate(reversed(KINDS))}
    rows.sort(key=lambda row: (rank[row["kind"]], row["trial"]))
    label = f"{len(searched.finished)} trials over {len(names)} variables: {', '.join(names)}."
    chart = Chart("parallel-chart", label, _spec(rows, names), _HEIGHT + 90)
    legend = swatch_legend(KINDS)
    return figure("All trials over all variables", legend, chart.placeholder(), reading=_READING), (chart,)


def height_of(variable: dict[str, Any], value: Any) -> float:
    """Return where a value is between the first and the last value of its variable, 0..1."""
    if variable["choices"] is not None:
        # A variable has two choices at least, and two ends that differ.
        return variable["choices"].index(value) / (len(variable["choices"]) - 1)
    return (value - variable["low"]) / (variable["high"] - variable["low"])


def _rows(searched: Searched, trial: Trial, kind: str) -> list[dict[str, Any]]:
    texts = [
        f"{called(metric)} {value_in_words(metric, value)}"
        for metric, value in zip(searched.metrics, trial.objectives, strict=True)
    ]
    return [
        {
            "trial": trial.number,
            "kind": kind,
            "variable": variable["name"],
            "height": round(height_of(variable, trial.values[variable["name"]]), 4),
            "value": values_in_words({"": trial.values[variable["name"]]}).strip(),
            "reached": ", ".join(texts),
        }
        for variable in searched.search["variable"]
        if variable["name"] in trial.values
    ]


def _spec(rows: list[dict[str, Any]], names: list[str]) -> Spec:
    import altair as alt

    colours = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    strengths = alt.Scale(domain=list(KINDS), range=[0.95, 0.45, 0.3])
    tips = [alt.Tooltip("trial:Q"), alt.Tooltip("variable:N"), alt.Tooltip("value:N"), alt.Tooltip("reached:N")]
    x = alt.X("variable:N", sort=names, title=None, axis=alt.Axis(labelAngle=-40, labelLimit=120, grid=True))
    y = alt.Y("height:Q", title="first value to last", scale=alt.Scale(domain=[0, 1], padding=6), axis=alt.Axis(
        values=[0, 1], labelExpr="datum.value ? 'last' : 'first'", grid=False))  # fmt: skip
    drawn = alt.Chart(alt.NamedData("lines"), height=_HEIGHT)
    colour, strength = alt.Color("kind:N", scale=colours), alt.Opacity("kind:N", scale=strengths)
    lines = drawn.mark_line(strokeWidth=1.6).encode(
        x=x, y=y, detail="trial:Q", tooltip=tips, color=colour, opacity=strength
    )
    points = drawn.mark_point(filled=True, size=26).encode(x=x, y=y, tooltip=tips, color=colour, opacity=strength)
    return specification(alt.layer(lines, points), lines=rows)
