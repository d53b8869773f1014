"""A register as bars: the magnitudes of results against the range of a format.

The axis, the areas beyond the range and the lines are those of the report's heatmap, with bars instead of its cells.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.datapath import StatisticsRegister
from emu.formats import DynamicFixed, Format
from emu.formats.numerals import power_of_two
from emu.report.histories import SCALAR_KINDS, LeadingBits
from emu.report.pictures.leading_bits_chart import Magnitudes, labels, lines, outside
from emu.report.pictures.leading_bits_panel import Scene, summary_of, visible
from emu.report.range_of_format import FormatRange, range_of
from emu.report.words import integer, percent

if TYPE_CHECKING:
    import altair as alt

#: Pixels of the chart, without its axes.
WIDTH, HEIGHT = 420, 300
#: What happens beyond each end of a range.
_BEYOND = {"largest": "overflow above", "smallest": "underflow below"}


def history_of(register: StatisticsRegister) -> LeadingBits:
    """Return a register as the history of one interval."""
    counts = register.histogram()
    lowest = min(counts, default=0)
    # Without counts the width is 0: (lowest - 1) - lowest + 1.
    row = np.zeros((1, max(counts, default=lowest - 1) - lowest + 1), np.int64)
    for exponent, count in counts.items():
        row[0, exponent - lowest] = count
    scalars = {kind: np.array([getattr(register, kind)]) for kind in SCALAR_KINDS}
    return LeadingBits(np.array([0]), lowest, row, scalars)


def bars(register: StatisticsRegister, fmt: Format | DynamicFixed | None = None) -> alt.LayerChart:
    """Return the histogram of a register; with a format, the ends of its range and what lies beyond them.

    Colours are the page's variables; `emu.report.chart.coloured` gives them values.

    Args:
        register: the register.
        fmt: format whose range is drawn; a word with an open binary point has none.
    """
    import altair as alt

    history = history_of(register)
    covered = range_of(None if fmt is None else str(fmt))
    ends = [line.at for line in covered.lines] if covered else []
    # A register alone knows no unit, so there are no lines of an accumulator.
    scene = Scene.of(history, covered, (), *visible(history, covered, ends))
    rows = {"bars": _rows(history, scene, covered), "outside": scene.outside, "lines": _lines(scene)}
    # an expression of Vega that looks the label of a tick up
    names = f"{json.dumps(scene.names, ensure_ascii=False)}[datum.value]"
    axis = Magnitudes(list(scene.domain), scene.ticks, names, lambda name: alt.InlineData(values=rows[name]))
    ranged = [outside(axis), _bars(axis), *lines(axis), *labels(axis)] if covered else [_bars(axis)]
    against = "" if covered is None else f" against {fmt}"
    title = alt.Title(
        f"Leading bits of {integer(register.total)} results{against}", subtitle=sentences(history, covered)
    )
    drawn: Any = alt.layer(*ranged, _counts(axis), width=WIDTH, height=HEIGHT, title=title)
    return drawn


def sentences(history: LeadingBits, covered: FormatRange | None) -> list[str]:
    """Return sentences about the bars, each of which becomes a line of the subtitle."""
    if not history.scalars["total"].any():
        return ["Nothing was observed yet."]
    # true of a tensor of the report; here `covered` is also None if no format was given to compare with
    summary = summary_of(history, covered, moves=False).replace(
        " The range of the format is not fixed, so none is drawn.", ""
    )
    # Split at ". " the last sentence keeps its point, and the others have lost theirs.
    return [sentence.rstrip(".") + "." for sentence in summary.split(". ")]


def _rows(history: LeadingBits, scene: Scene, covered: FormatRange | None) -> list[dict[str, Any]]:
    """Return a bar for each position, and bars set apart for results that have none, such as zeros.

    A bar is `inside` if the format holds its results. Of the bars apart only that of zeros, kind `none`, is: the others
    count NaN, infinities, and leading bits that lie outside of the register.
    """
    total = max(int(history.scalars["total"][0]), 1)
    rows: list[dict[str, Any]] = []
    for column in np.flatnonzero(history.counts[0]).tolist():
        exponent, count = history.lowest + column, int(history.counts[0, column])
        # A bar reaches from 2**exponent to twice that, so the highest one inside ends at `top`.
        inside = covered is None or covered.bottom <= exponent < covered.top
        magnitude = f"{power_of_two(exponent)} to {power_of_two(exponent + 1)}"
        rows.append(_row(exponent, exponent + 1, count, total, magnitude) | {"inside": inside})
    for low, name, kind in scene.special:
        count = int(history.scalars[kind][0])
        rows.append(_row(low, low + scene.thick, count, total, name) | {"inside": kind == "none", "apart": True})
    return rows


def _row(low: float, high: float, count: int, total: int, magnitude: str) -> dict[str, Any]:
    text = f"{integer(count)} ({percent(count / total)})"
    return {"y0": round(low, 2), "y1": round(high, 2), "share": count / total, "magnitude": magnitude, "text": text}


def _lines(scene: Scene) -> list[dict[str, Any]]:
    return [
        line | {"label": ", ".join(filter(None, [line["label"], _BEYOND.get(line["kind"])]))} for line in scene.lines
    ]


def _bars(axis: Magnitudes) -> alt.Chart:
    import altair as alt

    colour = alt.condition("datum.inside", alt.value("var(--series-0)"), alt.value("var(--severe)"))
    share = alt.X("share:Q", title="share of the results", axis=alt.Axis(format="~%", tickCount=5))
    tips = [alt.Tooltip("magnitude:N"), alt.Tooltip("text:N", title="results")]
    drawn = alt.Chart(axis.rows("bars")).mark_rect(stroke="var(--card)", strokeWidth=1)
    return drawn.encode(x=share, x2=alt.datum(0), y=axis.at("y0:Q"), y2="y1:Q", color=colour, tooltip=tips)


def _counts(axis: Magnitudes) -> alt.Chart:
    """Return the counts of the bars that are set apart, as text next to them."""
    import altair as alt

    drawn = alt.Chart(axis.rows("bars")).transform_filter("datum.apart")
    drawn = drawn.transform_calculate(middle="(datum.y0 + datum.y1) / 2").mark_text(
        align="left", dx=5, fontSize=11, color="var(--ink)"
    )
    return drawn.encode(x="share:Q", y=axis.at("middle:Q"), text="text:N")
