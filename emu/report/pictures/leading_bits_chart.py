"""The leading-bit heatmap without its data: the page's script fills in the panel of the tensor chosen.

parameters   lo, hi (ends of the axis), ticks, names (tick -> label)
data         cells (shares), lines (ends of the format's range), outside (bands beyond them), trail (ends of a range
             that follows a point, and where an operation ran again for it)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.report.chart import Spec, share_scale, specification

if TYPE_CHECKING:
    import altair as alt

#: Pixels of the chart, its axis included.
HEIGHT = 430
_TIPS = (("steps:N", "steps"), ("range:N", "magnitude"), ("text:N", "share"))
_DASHES: dict[str, list[float]] = {"largest": [1, 0], "normal": [2, 4], "smallest": [7, 4]}


def heatmap(last_step: int) -> Spec:
    """Return the specification of a heatmap from step 0 to `last_step`, as yet empty."""
    import altair as alt

    first: dict[str, Any] = {"lo": -8, "hi": 8, "ticks": [], "names": {}}
    drawn = [_outside(), _cells(last_step), *_lines(), *_trail(), *_labels("smallest"), *_labels("largest")]
    chart = alt.layer(*drawn, height=HEIGHT - 60)
    chart = chart.add_params(*(alt.param(name=name, value=value) for name, value in first.items()))
    return specification(chart, cells=[], lines=[], outside=[], trail=[])


def _magnitude(field: str) -> alt.Y:
    """The axis of magnitudes: powers of two, with names for the rows apart from the others."""
    import altair as alt

    ticks: Any = alt.ExprRef("ticks")
    axis = alt.Axis(values=ticks, labelExpr="names[datum.value]", title="magnitude", labelLimit=60)
    ends = [alt.ExprRef("lo"), alt.ExprRef("hi")]
    return alt.Y(field, scale=alt.Scale(domain=ends, nice=False, zero=False), axis=axis)


def _outside() -> alt.Chart:
    import altair as alt

    bands = alt.Chart(alt.NamedData("outside")).mark_rect(color="var(--outside)")
    return bands.encode(x=alt.value(0), x2=alt.value("width"), y=_magnitude("low:Q"), y2="high:Q")


def _cells(last_step: int) -> alt.Chart:
    import altair as alt

    steps = alt.Scale(domain=[0, last_step], nice=False)
    return (
        alt.Chart(alt.NamedData("cells"))
        .mark_rect()
        .encode(
            x=alt.X("x0:Q", title="step", scale=steps, axis=alt.Axis(grid=False, tickCount=6)),
            x2="x1:Q",
            y=_magnitude("y0:Q"),
            y2="y1:Q",
            color=alt.Color("share:Q", scale=share_scale()),
            tooltip=[alt.Tooltip(field, title=title) for field, title in _TIPS],
        )
    )


def _lines() -> list[alt.Chart]:
    """The ends of the range, upon a wider line that sets them off from any cell."""
    import altair as alt

    lines = alt.Chart(alt.NamedData("lines"))
    dashes = alt.Scale(domain=list(_DASHES), range=list(_DASHES.values()))
    return [
        lines.mark_rule(color="var(--card)", strokeWidth=6, opacity=0.85).encode(y=_magnitude("at:Q")),
        lines.mark_rule(color="var(--line)", strokeWidth=2).encode(
            y=_magnitude("at:Q"), strokeDash=alt.StrokeDash("kind:N", scale=dashes)
        ),
    ]


def _trail() -> list[alt.Chart]:
    """The ends of a range that follows a point, step by step, and triangles where the operation ran again."""
    import altair as alt

    trail = alt.Chart(alt.NamedData("trail"))
    drawn: list[alt.Chart] = []
    for field, kind in (("top", "largest"), ("bottom", "smallest")):
        for colour, width, opacity in (("var(--card)", 6, 0.85), ("var(--line)", 2, 1.0)):
            style: dict[str, Any] = {"interpolate": "step-after", "strokeDash": _DASHES[kind]}
            line = trail.mark_line(color=colour, strokeWidth=width, opacity=opacity, clip=True, **style)
            drawn.append(line.encode(x="x:Q", y=_magnitude(f"{field}:Q"), detail="part:N"))
    marks = trail.mark_point(shape="triangle-up", size=90, filled=True, color="var(--severe)", clip=True, opacity=1)
    tip = [alt.Tooltip("text:N", title="point")]
    return [*drawn, marks.encode(x="x:Q", y=_magnitude("top:Q"), tooltip=tip).transform_filter("datum.redone")]


def _labels(kind: str) -> list[alt.Chart]:
    """Names of the lines: below the line of the smallest value, above the others, so that they never meet."""
    import altair as alt

    below = kind == "smallest"
    place: dict[str, Any] = {"baseline": "top" if below else "bottom", "dy": 5 if below else -5, "dx": -6}
    text: dict[str, Any] = {"align": "right", "fontSize": 12, "fontWeight": "bold", **place}
    halo: dict[str, Any] = {"stroke": "var(--card)", "strokeWidth": 4, "opacity": 0.85}
    labels = (
        alt.Chart(alt.NamedData("lines"))
        .encode(x=alt.value("width"), y=_magnitude("at:Q"), text="label:N")
        .transform_filter(f"(datum.kind === 'smallest') === {str(below).lower()}")
    )
    return [labels.mark_text(**text, **halo), labels.mark_text(**text, color="var(--line)")]
