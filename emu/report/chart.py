"""Common parts of all charts: the Vega-Lite specification as data, colours that follow the page, scales of shares.

Colours are CSS variables (`var(--ink)`), so dark mode and print restyle a drawn chart without a script. A chart names
its data sets, which are stored next to it. Tests check charts against Vega-Lite's schema; building a page does not,
because the check takes half of the time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from emu.report.html import Html, element
from emu.report.words import percent

if TYPE_CHECKING:
    import altair as alt

Rows = Sequence[Mapping[str, Any]]
#: A Vega-Lite specification.
Spec = dict[str, Any]

#: Edges between the classes of a share: logarithmic below 1%, and finer above, because there the difference matters.
SHARE_EDGES = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
#: Colours of a share of 0 and of those classes; the page defines them for light, dark and print.
SHARE_COLOURS = ("var(--none)", *(f"var(--share-{i})" for i in range(len(SHARE_EDGES) + 1)))
#: Text colours that can be read on these colours.
SHARE_INKS = ("var(--quiet)", *(f"var(--share-ink-{i})" for i in range(len(SHARE_EDGES) + 1)))
#: A positive number below any share that a run can have: it separates a share of 0 from all others.
_NOTHING = 1e-300
#: Colours of series, safe for colour-blind readers. Source: Okabe and Ito, Color Universal Design, 2008.
SERIES_COLOURS = tuple(f"var(--series-{i})" for i in range(8))
SERIES_SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
_SHAPE_PATHS = {
    "circle": "M10.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "square": "M11 3h8v8h-8z",
    "triangle-up": "M15 2l5 9h-10z",
    "diamond": "M15 2l4 5l-4 5l-4-5z",
    "cross": "M13.5 2h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "triangle-down": "M15 12l5-9h-10z",
    "triangle-right": "M20 7l-9 5v-10z",
    "triangle-left": "M10 7l9 5v-10z",
}
# (1, 0) is a solid line. Dashes repeat after four series; colours and shapes do not, so no two series look alike.
SERIES_DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (1, 0), (6, 3), (2, 2), (8, 3, 2, 3))

#: Colours for a chart outside of a page: they can be read on light and on dark backgrounds.
ANYWHERE = {
    "ink": "#7d868e", "quiet": "#7d868e", "grid": "#8d97a055", "card": "transparent", "none": "#8d97a033",
    "outside": "#8d97a033", "line": "#cf6a14", "sums": "#c06a9b", "severe": "#d9541e", "accent": "#2f86c5",
    "series-0": "#2f86c5", "series-1": "#d9701e", "series-2": "#1a9b72", "series-3": "#c06a9b", "series-4": "#b98300",
    "series-5": "#4aa3df",
}  # fmt: skip
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")

#: Whether charts are checked against the schema of Vega-Lite.
VALIDATES = False
#: Most ticks of an axis of whole numbers.
MOST_TICKS = 7
#: Height of a bar of `layer_bars`.
ROW_PIXELS = 26
#: Height of the axis below the bars of `layer_bars`: its numbers and its title.
AXIS_PIXELS = 50

_INK, _QUIET, _GRID = "var(--ink)", "var(--quiet)", "var(--grid)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


@dataclass(frozen=True)
class Chart:
    """A chart, with a label for readers who cannot see it.

    Attributes:
        identifier: identifier of its element on the page.
        label: text for a screen reader.
        spec: the Vega-Lite specification, data included.
        height: pixels that the page reserves until it is drawn.
    """

    identifier: str
    label: str
    spec: Spec
    height: int

    def placeholder(self) -> Html:
        """Return the empty element into which the page's script draws the chart."""
        return element(
            "div",
            class_="chart",
            id=self.identifier,
            role="img",
            aria_label=self.label,
            style=f"min-height:{self.height}px",
        )


def specification(chart: Any, **datasets: Rows) -> Spec:
    """Return the specification of `chart`, as wide as its element on the page, with its named data.

    Args:
        chart: an Altair chart of `altair.NamedData`.
        datasets: name -> rows of plain JSON values.
    """
    spec: Spec = chart.to_dict(validate=VALIDATES)
    spec.pop("$schema", None)
    spec["datasets"] = spec.get("datasets", {}) | {name: list(rows) for name, rows in datasets.items()}
    spec["width"] = "container"
    # The width of the element counts axes and titles; the height is that of the drawing alone.
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["config"] = _config()
    return spec


def coloured(spec: Spec, colours: Mapping[str, str] = ANYWHERE) -> Spec:
    """Return a specification with colours instead of a page's variables.

    Examples:
        >>> coloured({"mark": {"type": "bar", "color": "var(--series-0)"}})
        {'mark': {'type': 'bar', 'color': '#2f86c5'}}
    """
    # By way of text: colours stand anywhere in a specification, in expressions of Vega, too.
    return json.loads(_VARIABLE.sub(lambda variable: colours[variable[1]], json.dumps(spec)))


def _config() -> Spec:
    axis = {
        "domainColor": _QUIET,
        "gridColor": _GRID,
        "tickColor": _QUIET,
        "labelColor": _INK,
        "titleColor": _QUIET,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 6,
        "domain": False,
        "ticks": False,
    }
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": None},
        "axis": axis,
        "axisQuantitative": {"labelOverlap": "greedy", "labelSeparation": 8},
        # Legends are HTML beside the chart: they wrap on narrow screens.
        "legend": {"disable": True},
        "title": {"color": _INK, "subtitleColor": _INK},
        # The placeholder has the label; Vega's own labels of every mark would only repeat the table.
        "aria": False,
    }


def whole_ticks(low: float, high: float) -> list[int]:
    """Return at most `MOST_TICKS` whole numbers from `low` to `high`, at distances of 1, 2, 5, 10 and so on.

    Vega divides a short axis of whole numbers at halves.

    Examples:
        >>> whole_ticks(15, 17), whole_ticks(0, 2000)
        ([15, 16, 17], [0, 500, 1000, 1500, 2000])
        >>> whole_ticks(0, 6), whole_ticks(0, 7), whole_ticks(-3, 20)
        ([0, 1, 2, 3, 4, 5, 6], [0, 2, 4, 6], [0, 5, 10, 15, 20])
    """
    # 1, 2, 5, 10, 20, 50 ...: the first distance that needs no more than MOST_TICKS ticks.
    distances = (digit * 10**power for power in count() for digit in (1, 2, 5))
    distance = next(distance for distance in distances if high - low <= distance * (MOST_TICKS - 1))
    # The first multiple of the distance from `low` on.
    return list(range(-(-math.floor(low) // distance) * distance, math.floor(high) + 1, distance))


def whole_axis(low: float, high: float) -> alt.Axis:
    """Return an axis of whole numbers, without lines across the picture."""
    import altair as alt

    return alt.Axis(grid=False, values=whole_ticks(low, high), format=",d")


def step_axis(last: int, field: str = "step") -> alt.X:
    """Return the channel of training's steps, from the start to the step `last`."""
    import altair as alt

    scale = alt.Scale(domain=[0, last], nice=False)
    return alt.X(f"{field}:Q", title="step", scale=scale, axis=whole_axis(0, last))


def share_scale(inks: bool = False) -> alt.Scale:
    """Return the scale that colours a share of 1 by its class; with `inks`, the scale of text on these colours."""
    import altair as alt

    # n edges separate n + 1 colours: below `_NOTHING` lies only a share of 0.
    return alt.Scale(
        type="threshold", domain=[_NOTHING, *SHARE_EDGES], range=list(SHARE_INKS if inks else SHARE_COLOURS)
    )


def series_legend(names: Sequence[str], series: Sequence[int]) -> Html:
    """Return the legend of lines as a list that wraps on narrow screens.

    Args:
        names: names of the lines.
        series: index of each line in `SERIES_COLOURS`, `SERIES_DASHES` and `SERIES_SHAPES`.
    """
    items = (element("li", _key(index), name) for name, index in zip(names, series, strict=True))
    return element("ul", *items, class_="legend")


def _key(index: int) -> Html:
    dashes = " ".join(str(length) for length in SERIES_DASHES[index]) if SERIES_DASHES[index] != (1, 0) else None
    line = element("path", d="M0 7H30", stroke=SERIES_COLOURS[index], stroke_width="2", stroke_dasharray=dashes)
    shape = element("path", d=_SHAPE_PATHS[SERIES_SHAPES[index]], fill=SERIES_COLOURS[index])
    return element("svg", line, shape, class_="key", viewBox="0 0 30 14", width="30", height="14", aria_hidden="true")


def swatch_legend(colours: Mapping[str, str], what: str = "") -> Html:
    """Return the legend of areas, name -> colour, as a list that wraps on narrow screens, with `what` before it."""
    swatches = (
        element("li", element("span", "", class_="swatch", style=f"background:{colour}", aria_hidden="true"), name)
        for name, colour in colours.items()
    )
    return element("ul", element("li", what, class_="what") if what else "", *swatches, class_="legend")


def layer_bars(
    rows: Rows, layers: Sequence[str], colours: Mapping[str, str], *, value: str, title: str, tips: Mapping[str, str]
) -> Spec:
    """Return a bar for each layer, stacked by kind.

    Args:
        rows: rows with `layer`, `kind`, `place` (rank of the kind within a bar), the value, and the fields of `tips`.
        layers: layers in the order of the bars.
        colours: kind -> its colour.
        value: name of the field that gives lengths.
        title: title of the axis.
        tips: field -> its name in the tooltip.
    """
    import altair as alt

    kinds = alt.Scale(domain=list(colours), range=list(colours.values()))
    chart = (
        alt.Chart(alt.NamedData("rows"), height=ROW_PIXELS * len(layers))
        .mark_bar(stroke="var(--card)", strokeWidth=1)
        .encode(
            x=alt.X(f"{value}:Q", title=title, axis=alt.Axis(tickCount=6)),
            y=alt.Y("layer:N", sort=list(layers), title=None, axis=alt.Axis(labelLimit=110, grid=False)),
            color=alt.Color("kind:N", scale=kinds),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip(f"{field}:N", title=name) for field, name in tips.items()],
        )
    )
    return specification(chart, rows=rows)


def step_lines(rows: Rows, lines: Mapping[str, Sequence[str]], y: Any, *, height: int, tip: str) -> Spec:
    """Return lines over steps, each with a colour and a dash of its own.

    Args:
        rows: rows with `step`, the field that names a line, and the value.
        lines: the field that names a line -> its values, in the order of the legend.
        y: axis of the value, `altair.Y`.
        height: height of the chart in pixels.
        tip: format of the value in tooltips.
    """
    import altair as alt

    # Exactly one item: the mapping is a pair with a name.
    ((field, names),) = lines.items()
    last, value = max(row["step"] for row in rows), y.shorthand
    colours, dashes = list(SERIES_COLOURS[: len(names)]), [list(dash) for dash in SERIES_DASHES[: len(names)]]
    chart = (
        alt.Chart(alt.NamedData("rows"), height=height)
        .mark_line(strokeWidth=2)
        .encode(
            x=step_axis(last),
            y=y,
            color=alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names), range=colours)),
            strokeDash=alt.StrokeDash(f"{field}:N", scale=alt.Scale(domain=list(names), range=dashes)),
            tooltip=[alt.Tooltip(f"{field}:N"), alt.Tooltip("step:Q"), alt.Tooltip(value, format=tip)],
        )
    )
    return specification(chart, rows=rows)


def share_legend(what: str) -> Html:
    """Return the legend of `share_scale` as a list that wraps on narrow screens."""
    within = (f"{percent(low).removesuffix('%')}\u2013{percent(high)}" for low, high in pairwise(SHARE_EDGES))
    # SHARE_COLOURS[0] is that of a share of 0, and has no name here.
    names = [f"under {percent(SHARE_EDGES[0])}", *within, f"over {percent(SHARE_EDGES[-1])}"]
    return swatch_legend(dict(zip(names, SHARE_COLOURS[1:], strict=True)), what)
