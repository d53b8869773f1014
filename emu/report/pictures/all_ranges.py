"""All tensors in one picture: the magnitudes of their results in front of the range of their format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.formats import DynamicFixed
from emu.formats.numerals import power_of_two
from emu.report.chart import Chart, Spec, specification, swatch_legend
from emu.report.evidence import Evidence
from emu.report.histories import LeadingBits
from emu.report.html import Html, disclosure, element, join, table
from emu.report.page import Section, figure
from emu.report.range_of_format import range_of
from emu.report.run_data import Tensor
from emu.report.words import NO_NUMBER, parse_or_none, percent, role_order

_TITLE = "Every tensor against its format"
#: Share of the results outside of zero that lie in the thick bar.
BULK = 0.98
#: Ends of formats are in the picture if they are at most this many powers of two beyond all results.
_NEAR = 6
_ROW_PIXELS, _MANY_ROW_PIXELS, _MANY = 20, 15, 40
_AXIS_PIXELS = 60
_FORMAT, _BULK, _SEEN = "var(--edge)", "var(--series-0)", "var(--quiet)"
_ABOVE, _BELOW = "var(--severe)", "var(--series-4)"
_READING = (
    "Each row is a tensor: its results over the whole run, as the datapath computed them before rounding. The thick "
    f"bar holds {percent(BULK)} of the results that are not zero, the thin line all of them. The area behind is the "
    "range of the format, which may go on beyond the picture. A line that leaves the area on the right overflowed; on "
    "the left, results were smaller than anything the format can write. Area to the right of a line is headroom that "
    "this tensor did not use. A binary point that moves is drawn where it ended."
)
#: Label of a row on the axis: the end of a long layer's name, and the role.
_LABEL = (
    "truncate(slice(datum.label, 0, lastindexof(datum.label, ' ')), 18, 'left')"
    " + slice(datum.label, lastindexof(datum.label, ' '))"
)
#: Order of rows -> its name in the menu.
_ORDERS = {
    "layer": "layer, as the network computes",
    "role": "role",
    "room": "headroom, least first",
    "below": "below the range, most first",
}
_ALL = "all roles"


@dataclass(frozen=True)
class TensorRange:
    """The magnitudes of a tensor's results and of its format, as powers of two.

    Attributes:
        tensor: layer and role.
        format: text of the format; empty if it is not known.
        covered: lowest and highest end of the format's range; None if it is not known.
        seen: lower edge of the smallest result and upper edge of the largest; None if all results were zero, or the
            register's positions end below results that the format holds.
        bulk: the same for `BULK` of the results.
        above: share of all results beyond the range.
        below: share of all results that are not zero and below the range; None if the register's positions start above
            results that the format holds.
    """

    tensor: Tensor
    format: str
    covered: tuple[int, int] | None
    seen: tuple[int, int] | None
    bulk: tuple[int, int] | None
    above: float
    below: float | None

    @property
    def name(self) -> str:
        """Layer and role."""
        return " ".join(self.tensor)

    @property
    def room(self) -> int | None:
        """Powers of two between the largest result and the end of the format; negative beyond it."""
        return self.covered[1] - self.seen[1] if self.covered and self.seen else None


def section(evidence: Evidence) -> Section | None:
    """Return the picture with menus for its order and roles; None for a run without registers."""
    ranges = [tensor_range(evidence, tensor, history) for tensor, history in evidence.bits.items()]
    if not any(each.seen for each in ranges):
        return None
    chart = _chart(ranges)
    legend = swatch_legend(
        {"range of the format": _FORMAT, f"{percent(BULK)} of the results": _BULK, "all results": _SEEN,
         "beyond the range": _ABOVE, "below the range": _BELOW}
    )  # fmt: skip
    picture = figure("Magnitudes of all tensors", _controls(ranges), legend, chart.placeholder(), reading=_READING)
    return Section("ranges", _TITLE, join([picture, disclosure("The ranges as a table", _table(ranges))]), (chart,))


def tensor_range(evidence: Evidence, tensor: Tensor, history: LeadingBits) -> TensorRange:
    """Return the magnitudes of a tensor over the whole run."""
    datapath = evidence.run.formats.get(tensor)
    text = datapath.format if datapath else ""
    covered, exponents = _covered(evidence, tensor, text), history.exponents()
    # Without a known format there is no range: then these are the results outside of the register.
    below: int | None
    above, below = (int(history.scalars[kind].sum()) for kind in ("above", "below"))
    if covered:
        beyond, below = history.beyond(covered[1]), history.below(covered[0])
        if beyond is None:  # most of its results may be anywhere
            return TensorRange(tensor, text, covered, None, None, 0.0, 0.0)
        above = beyond
    total = max(int(history.scalars["total"].sum()), 1)
    return TensorRange(
        tensor,
        text,
        covered,
        # An exponent counts magnitudes up to twice its power of two, so the upper edge is one higher.
        (exponents[0], exponents[1] + 1) if exponents else None,
        _bulk(history) if exponents else None,
        above / total,
        None if below is None else below / total,
    )


def _covered(evidence: Evidence, tensor: Tensor, text: str) -> tuple[int, int] | None:
    """Return the ends of a format's range; of one whose point moves, from its parts at their last points."""
    if fixed := range_of(text):
        return fixed.bottom, fixed.top
    word, trajectories = parse_or_none(text), evidence.points.get(tensor, [])
    points = [int(trajectory.points[-1]) for trajectory in trajectories if len(trajectory.points)]
    if not isinstance(word, DynamicFixed) or not points:
        return None
    # Parts of a tensor have points of their own; the area covers all of them.
    return -max(points), word.width_bits - word.signed - min(points)


def _bulk(history: LeadingBits) -> tuple[int, int]:
    """Return the edges of `BULK` of the results, in whole powers of two: half of the rest is cut at each end."""
    counts = history.counts.sum(axis=0)
    up, cut = np.cumsum(counts), counts.sum() * (1 - BULK) / 2
    low = int(np.flatnonzero(up > cut)[0])
    high = int(np.flatnonzero(up >= counts.sum() - cut)[0])
    return history.lowest + low, history.lowest + high + 1


def _controls(ranges: list[TensorRange]) -> Html:
    order = (element("option", name, value=key) for key, name in _ORDERS.items())
    shown, pixels = [each for each in ranges if each.seen], _row_pixels(ranges)
    rows = {_ALL: len(shown)} | {
        role: sum(each.tensor[1] == role for each in shown)
        for role in sorted({each.tensor[1] for each in shown}, key=role_order)
    }
    # The page's script makes the chart as high as the rows of the chosen role.
    role = (element("option", name, value=name, data_height=str(count * pixels)) for name, count in rows.items())
    return element(
        "div",
        _select("Order", "ranges-order", "order", *order),
        _select("Role", "ranges-role", "role", *role),
        class_="controls",
    )


def _row_pixels(ranges: list[TensorRange]) -> int:
    return _ROW_PIXELS if len(ranges) <= _MANY else _MANY_ROW_PIXELS


def _select(title: str, identifier: str, signal: str, *options: Html) -> Html:
    menu = element("select", *options, id=identifier, data_chart="ranges-chart", data_signal=signal)
    return element("label", element("span", title), menu)


def _chart(ranges: list[TensorRange]) -> Chart:
    shown = [each for each in ranges if each.seen]
    low, high = _domain(shown)
    row_pixels = _row_pixels(ranges)
    beyond = sum(1 for each in shown if each.above > 0)
    tight = min((each for each in shown if each.room is not None), key=lambda each: each.room or 0, default=None)
    least = f" Least headroom has {tight.name}: {tight.room} powers of two." if tight else ""
    label = f"Magnitudes of {len(shown)} tensors in front of the ranges of their formats; {beyond} have results beyond."
    spec = _spec(_rows(shown, low), low, high, row_pixels)
    return Chart("ranges-chart", label + least, spec, row_pixels * len(shown) + _AXIS_PIXELS)


def _domain(ranges: list[TensorRange]) -> tuple[int, int]:
    """Return the ends of the axis: all results, and the ends of formats that are near."""
    seen = [end for each in ranges for end in each.seen or ()]
    low, high = min(seen), max(seen)
    ends = [end for each in ranges for end in each.covered or () if low - _NEAR <= end <= high + _NEAR]
    return min([low, *ends]) - 1, max([high, *ends]) + 1


def _rows(ranges: list[TensorRange], low: int) -> list[dict[str, Any]]:
    """Return a row for each tensor; a bar that it lacks has no width, beyond the end of the axis."""
    # Marks are clipped at the ends of the axis, so a bar left of `low` is not seen.
    nothing, roles = (low - 1, low - 1), sorted({each.tensor[1] for each in ranges}, key=role_order)
    # False sorts first: tensors whose headroom is not known come last.
    room = sorted(range(len(ranges)), key=lambda i: (ranges[i].room is None, ranges[i].room or 0))
    below = sorted(range(len(ranges)), key=lambda i: -(ranges[i].below or 0.0))
    rows: list[dict[str, Any]] = []
    for i, each in enumerate(ranges):
        bars = {
            "covered": each.covered or nothing,
            "seen": each.seen or nothing,
            "bulk": each.bulk or nothing,
            "above": _beyond(each, above=True) or nothing,
            "below": _beyond(each, above=False) or nothing,
        }
        ends = {f"{name}{side}": end for name, pair in bars.items() for side, end in zip("01", pair, strict=True)}
        ranks = {
            "by_layer": i,
            # Role first, and within a role the order of the network.
            "by_role": roles.index(each.tensor[1]) * len(ranges) + i,
            "by_room": room.index(i),
            "by_below": below.index(i),
        }
        rows.append({"tensor": each.name, "role": each.tensor[1], **ends, **ranks, **_texts(each)})
    return rows


def _beyond(each: TensorRange, *, above: bool) -> tuple[int, int] | None:
    """Return the part of the results that lies above, or else below, the range."""
    if not (each.covered and each.seen):
        return None
    (bottom, top), (low, high) = each.covered, each.seen
    part = (max(low, top), high) if above else (low, min(high, bottom))
    return part if part[0] < part[1] else None


def _texts(each: TensorRange) -> dict[str, str]:
    return {
        "format": each.format or NO_NUMBER,
        "range": _span(each.covered),
        "results": _span(each.seen),
        "most": _span(each.bulk),
        "room": NO_NUMBER if each.room is None else str(each.room),
        "over": percent(each.above) if each.covered else NO_NUMBER,
        "under": percent(each.below) if each.covered and each.below is not None else NO_NUMBER,
    }


def _span(ends: tuple[int, int] | None) -> str:
    return f"{power_of_two(ends[0])} to {power_of_two(ends[1])}" if ends else NO_NUMBER


#: Field of `_texts` -> its name in tooltip and table.
_COLUMNS = {
    "format": "format",
    "range": "range of the format",
    "results": "results",
    "most": f"{percent(BULK)} of them",
    "room": "headroom, powers of two",
    "over": "beyond the range",
    "under": "below the range",
}


def _spec(rows: list[dict[str, Any]], low: int, high: int, row_pixels: int) -> Spec:
    import altair as alt

    # At most ten ticks, unless the axis is wider than 9 * 128 powers of two.
    stride = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128) if (high - low) / s <= 9 or s == 128)
    ticks = list(range(-(-low // stride) * stride, high + 1, stride))
    names = json.dumps({str(tick): power_of_two(tick) for tick in ticks}, ensure_ascii=False)
    axis = alt.Axis(values=ticks, labelExpr=f"({names})[datum.value]", orient="top", labelOverlap=False)
    y = alt.Y(
        "tensor:N",
        title=None,
        sort=alt.EncodingSortField(field="rank", op="min", order="ascending"),
        axis=alt.Axis(labelExpr=_LABEL, labelLimit=170, labelFontSize=11, grid=False, labelOverlap=False),
    )
    tips = [alt.Tooltip("tensor:N"), *(alt.Tooltip(f"{field}:N", title=name) for field, name in _COLUMNS.items())]

    def bars(name: str, colour: str, height: float) -> Any:
        return (
            alt.Chart()
            .mark_bar(color=colour, height=height, clip=True)
            .encode(
                x=alt.X(
                    f"{name}0:Q",
                    title=None,
                    scale=alt.Scale(domain=[low, high], nice=False, zero=False),
                    axis=axis,
                ),
                x2=f"{name}1:Q",
                y=y,
                tooltip=tips,
            )
        )

    thick = row_pixels * 0.45
    layers = [
        bars("covered", _FORMAT, row_pixels - 2),
        bars("seen", _SEEN, 2),
        bars("bulk", _BULK, thick),
        bars("above", _ABOVE, 4),
        bars("below", _BELOW, 4),
    ]
    chart: Any = (
        alt.layer(*layers, data=alt.NamedData("rows"), height=row_pixels * len(rows))
        .add_params(alt.param(name="order", value="layer"), alt.param(name="role", value=_ALL))
        # `role` is the parameter that the menu sets, `datum.role` the field of a row.
        .transform_filter(f"role == '{_ALL}' || datum.role == role")
        # `order` is the parameter of the other menu; it names one of the ranks of `_rows`.
        .transform_calculate(rank="datum['by_' + order]")
    )
    return specification(chart, rows=rows)


def _table(ranges: list[TensorRange]) -> Html:
    rows = ([each.name, *_texts(each).values()] for each in ranges)
    caption = "Magnitudes of the results of every tensor, and the range of its format"
    return table(caption, ["tensor", *_COLUMNS.values()], rows, numeric_from=2)
