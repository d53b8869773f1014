"""The parts of pictures: title, facts, tables, shapes of SVG, and charts as SVG."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from emu.report.chart import ANYWHERE, Spec, coloured
from emu.report.html import Html, element, join
from emu.report.vega import as_svg

#: Colours of areas, readable on light and dark backgrounds; under text they are nearly transparent.
BLUE, ORANGE, GREEN, QUIET = ANYWHERE["series-0"], ANYWHERE["series-1"], ANYWHERE["series-2"], ANYWHERE["quiet"]
_CELL = "padding:.1em .9em .1em 0;text-align:{side};border:0;vertical-align:top;background:none{more}"
_TABLE = "border-collapse:collapse;margin:.3em 0;color:inherit;font:inherit"
#: Texts around a drawing have the colour of the page that it is in.
_OUTSIDE = ANYWHERE | dict.fromkeys(("ink", "quiet"), "currentColor")


def title(kind: str, name: str) -> Html:
    """Return the first line of a picture."""
    return element("div", element("strong", kind), " ", element("code", name), style="margin-bottom:.3em")


def sentence(text: str) -> Html:
    """Return a line of text."""
    return element("div", text)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return terms and their descriptions as a table of two columns."""
    # Each cell has a style of its own, against those that notebooks give to all tables.
    rows = (element("tr", _cell(term, "left", quiet=True), _cell(description, "left")) for term, description in pairs)
    return element("table", *rows, style=_TABLE)


def numbers(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> Html:
    """Return a table whose columns after the first `texts` hold numbers."""
    sides = ["left" if i < texts else "right" for i in range(len(header))]
    head = element("tr", *(_cell(name, side, quiet=True) for name, side in zip(header, sides, strict=True)))
    body = (element("tr", *(_cell(text, side) for text, side in zip(row, sides, strict=True))) for row in rows)
    return element("table", head, *body, style=_TABLE)


def _cell(text: str, side: str, *, quiet: bool = False) -> Html:
    more = ";opacity:.7;white-space:nowrap" if quiet else ";overflow-wrap:anywhere"
    return element("td", text, style=_CELL.format(side=side, more=more))


def svg(width: float, height: float, label: str, *shapes: Html) -> Html:
    """Return a picture of shapes; `label` is the text for a screen reader."""
    return element(
        "svg",
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        aria_label=label,
        style="max-width:100%",
        font_family="ui-monospace,monospace",
        font_size="12",
        fill="currentColor",
    )


def box(x: float, y: float, width: float, height: float, colour: str) -> Html:
    """Return an area for text."""
    position = {name: f"{value:g}" for name, value in (("x", x), ("y", y), ("width", width), ("height", height))}
    return element("rect", **position, rx="2", fill=colour, fill_opacity=".25", stroke=colour)


def text(x: float, y: float, content: str, *, anchor: str = "middle") -> Html:
    """Return text whose baseline is at `y`."""
    return element("text", content, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor)


def path(commands: str, colour: str = "currentColor") -> Html:
    """Return a line."""
    return element("path", d=commands, stroke=colour, stroke_width="1.5", fill="none")


def arrow(x: float, y: float, length: float) -> Html:
    """Return an arrow to the right."""
    end = x + length
    return path(f"M{x:g} {y:g}H{end:g}M{end - 5:g} {y - 4:g}L{end:g} {y:g}L{end - 5:g} {y + 4:g}")


def chart(spec: Spec, label: str, width: int) -> Html:
    """Return a chart of the report as SVG.

    Args:
        spec: specification of `emu.report.chart.specification`, with a page's colours.
        label: text for a screen reader.
        width: width in pixels, axes and titles included.
    """
    texts = {"config": coloured(spec["config"], _OUTSIDE)}
    # Axes and titles take the text colour of the page around them. The rest has fixed colours that can be read on light
    # and dark backgrounds.
    whole = coloured({**spec, "config": {}}) | texts | {"width": width}
    drawn = as_svg(whole, label)
    # A hash of the specification, so equal charts give equal text.
    own = "e" + hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:8]
    for mark in ('id="', "url(#"):  # identifiers must be unique, because a page may have several charts
        drawn = drawn.replace(f"{mark}clip", f"{mark}{own}clip")
    return element("div", Html(drawn), style="max-width:100%;overflow-x:auto")


def legend(colours: Mapping[str, str]) -> Html:
    """Return the names of a chart's lines or bars in their colours, which are variables of a report's page."""
    values = coloured(dict(colours))
    spans = (
        element("span", f"\u2501 {name}", style=f"color:{colour};margin-right:1em") for name, colour in values.items()
    )
    return element("div", *spans)


def column(*parts: Html | None) -> Html:
    """Return parts below each other, without those that are None."""
    return join(part for part in parts if part is not None)
