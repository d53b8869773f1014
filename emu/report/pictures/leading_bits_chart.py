"""Charts over an axis of magnitudes, and the leading-bit heatmap of the report, without its data.

The page's script fills in the panel of the chosen tensor:

parameters   lo, hi (ends of the axis), ticks, names (tick -> label)
data         cells (shares), lines (ends of the ranges of format and accumulator), outside (bands beyond the format),
             trail (ends of a range that follows a point, and where an operation ran again for it)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.report.chart import Spec, share_scale, specification, step_axis

if TYPE_CHECKING:
    import altair as alt

#: Pixels of the chart, its axis included.
HEIGHT = 430
_TIPS = (("steps:N", "steps"), ("range:N", "magnitude"), ("text:N", "share"))
#: A line of the accumulator, as an expression of Vega; and the colour of such lines and of others.
_OF_SUMS = "datum.of === 'accumulator'"
LINE_COLOURS = {"accumulator": "var(--sums)", "format": "var(--line)"}
_DASHES: dict[str, list[float]] = {"largest": [1, 0], "normal": [2, 4], "smallest": [7, 4]}


@dataclass(frozen=True)
class Magnitudes:
    """An axis of magnitudes: powers of two, and names for separate rows such as zero; with the data of a chart.

    Attributes:
        ends: lowest and highest value of the axis.
        ticks: values that are labelled.
        label: expression of Vega for the text of a label.
        rows: returns the data of a layer of the chart by its name.
    """

    ends: list[Any]
    ticks: Any
    label: str
    rows: Callable[[str], Any]

    @classmethod
    def following(cls) -> Magnitudes:
        """Return an axis whose ends, labels and data the page's script sets."""
        import altair as alt

        ends = [alt.ExprRef("lo"), alt.ExprRef("hi")]
        return cls(ends, alt.ExprRef("ticks"), "names[datum.value]", alt.NamedData)

    def at(self, field: str) -> alt.Y:
        """Return a field as a channel on the axis."""
        import altair as alt

        axis = alt.Axis(values=self.ticks, labelExpr=self.label, title="magnitude", labelLimit=60, labelOverlap=False)
        return alt.Y(field, scale=alt.Scale(domain=self.ends, nice=False, zero=False), axis=axis)


def heatmap(last_step: int) -> Spec:
    """Return the specification of an empty heatmap from step 0 to `last_step`."""
    import altair as alt

    # Placeholders: the script sets all four before the reader sees the chart.
    first: dict[str, Any] = {"lo": -8, "hi": 8, "ticks": [], "names": {}}
    axis = Magnitudes.following()
    # From back to front: areas, cells, lines, points, and names on top.
    drawn = [outside(axis), _cells(axis, last_step), *lines(axis), *_trail(axis), *labels(axis)]
    chart = alt.layer(*drawn, height=HEIGHT - 60)
    chart = chart.add_params(*(alt.param(name=name, value=value) for name, value in first.items()))
    return specification(chart, cells=[], lines=[], outside=[], trail=[])


def outside(magnitudes: Magnitudes) -> alt.Chart:
    """Return the areas beyond the range of a format."""
    import altair as alt

    bands = alt.Chart(magnitudes.rows("outside")).mark_rect(color="var(--outside)")
    return bands.encode(x=alt.value(0), x2=alt.value("width"), y=magnitudes.at("low:Q"), y2="high:Q")


def _cells(magnitudes: Magnitudes, last_step: int) -> alt.Chart:
    import altair as alt

    return (
        alt.Chart(magnitudes.rows("cells"))
        .mark_rect()
        .encode(
            x=step_axis(last_step, "x0"),
            x2="x1:Q",
            y=magnitudes.at("y0:Q"),
            y2="y1:Q",
            color=alt.Color("share:Q", scale=share_scale()),
            tooltip=[alt.Tooltip(field, title=title) for field, title in _TIPS],
        )
    )


def lines(magnitudes: Magnitudes) -> list[alt.Chart]:
    """Return the ends of the ranges as lines, on a wider line that separates them from the cells."""
    import altair as alt

    ends = alt.Chart(magnitudes.rows("lines"))
    dashes = alt.Scale(domain=list(_DASHES), range=list(_DASHES.values()))
    return [
        ends.mark_rule(color="var(--card)", strokeWidth=6, opacity=0.85).encode(y=magnitudes.at("at:Q")),
        ends.mark_rule(strokeWidth=2).encode(
            y=magnitudes.at("at:Q"),
            color=_line_colour(),
            strokeDash=alt.StrokeDash("kind:N", scale=dashes, legend=None),
        ),
    ]


def _line_colour() -> Any:
    import altair as alt

    return alt.condition(_OF_SUMS, *(alt.value(LINE_COLOURS[of]) for of in ("accumulator", "format")))


def _trail(magnitudes: Magnitudes) -> list[alt.Chart]:
    """Return the ends of a range that follows a binary point, and triangles where the operation ran again."""
    import altair as alt

    trail = alt.Chart(magnitudes.rows("trail"))
    drawn: list[alt.Chart] = []
    for field, kind in (("top", "largest"), ("bottom", "smallest")):
        # A wide line in the colour of the background, below each line, keeps it visible on dark cells.
        for colour, width, opacity in (("var(--card)", 6, 0.85), ("var(--line)", 2, 1.0)):
            style: dict[str, Any] = {"interpolate": "step-after", "strokeDash": _DASHES[kind]}
            line = trail.mark_line(color=colour, strokeWidth=width, opacity=opacity, clip=True, **style)
            drawn.append(line.encode(x="x:Q", y=magnitudes.at(f"{field}:Q"), detail="part:N"))
    # not clipped: a mark of the first or last step would lose a half
    seen = "datum.redone && datum.top >= lo && datum.top <= hi"
    marks = trail.mark_point(shape="triangle-up", size=90, filled=True, color="var(--severe)", opacity=1)
    tip = [alt.Tooltip("text:N", title="point")]
    return [*drawn, marks.encode(x="x:Q", y=magnitudes.at("top:Q"), tooltip=tip).transform_filter(seen)]


def labels(magnitudes: Magnitudes) -> list[alt.Chart]:
    """Return the names of the lines, those of the accumulator at the left and others at the right.

    Names are below the line of the smallest value and above others, so that none overlap.
    """
    sides = [(below, left) for left in (False, True) for below in (True, False)]
    return [drawn for below, left in sides for drawn in _labels(magnitudes, below=below, left=left)]


def _labels(magnitudes: Magnitudes, *, below: bool, left: bool) -> list[alt.Chart]:
    import altair as alt

    position: dict[str, Any] = {"baseline": "top" if below else "bottom", "dy": 5 if below else -5}
    side: dict[str, Any] = {"align": "left", "dx": 6} if left else {"align": "right", "dx": -6}
    text: dict[str, Any] = {"fontSize": 12, "fontWeight": "bold", **position, **side}
    halo: dict[str, Any] = {"stroke": "var(--card)", "strokeWidth": 4, "opacity": 0.85}
    names = (
        alt.Chart(magnitudes.rows("lines"))
        .encode(x=alt.value(0 if left else "width"), y=magnitudes.at("at:Q"), text="label:N")
        .transform_filter(f"(datum.kind === 'smallest') === {str(below).lower()}")
        .transform_filter(f"({_OF_SUMS}) === {str(left).lower()}")
    )
    return [
        names.mark_text(**text, **halo),
        names.mark_text(**text, color=LINE_COLOURS["accumulator" if left else "format"]),
    ]
