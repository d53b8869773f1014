"""Shapes of a claim's picture: SVG that is equal, byte for byte, wherever it is drawn from the same data.

Pictures are as wide as a phone shows without making their text small. Colours can be read on light and dark pages.
"""

from __future__ import annotations

from emu.report.chart import ANYWHERE
from emu.report.html import Html, element

#: Pixels of a picture's width, and of a letter's height.
WIDTH, FONT = 460, 14
INK, GRID = ANYWHERE["ink"], ANYWHERE["grid"]
BLUE, ORANGE = ANYWHERE["series-0"], ANYWHERE["series-1"]
_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def svg(height: float, label: str, *shapes: Html) -> str:
    """Return a picture; `label` is its text for a screen reader."""
    size = {"width": f"{WIDTH}", "height": f"{height:g}", "viewBox": f"0 0 {WIDTH} {height:g}"}
    title = element("title", label)
    fonts = {"font_family": _FAMILY, "font_size": f"{FONT}", "fill": INK}
    whole = element("svg", title, *shapes, xmlns="http://www.w3.org/2000/svg", role="img", **size, **fonts)
    return whole.replace("><", ">\n<") + "\n"


def text(x: float, y: float, content: str, *, anchor: str = "start", colour: str = INK) -> Html:
    """Return text whose baseline is at `y`."""
    return element("text", content, x=f"{x:.4g}", y=f"{y:.4g}", text_anchor=anchor, fill=colour)


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> Html:
    """Return a thin line."""
    ends = {"x1": f"{x1:.4g}", "y1": f"{y1:.4g}", "x2": f"{x2:.4g}", "y2": f"{y2:.4g}"}
    return element("line", **ends, stroke=colour)


def curve(points: list[tuple[float, float]], colour: str, dashes: str) -> Html:
    """Return a line through points."""
    through = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
    return element("polyline", points=through, fill="none", stroke=colour, stroke_width="2", stroke_dasharray=dashes)


def circle(x: float, y: float, colour: str, *, filled: bool = True) -> Html:
    """Return a small disc, or a ring."""
    return element("circle", cx=f"{x:.4g}", cy=f"{y:.4g}", r="4", fill=colour if filled else "none", stroke=colour)


def box(x: float, y: float, width: float, height: float, colour: str, *, filled: bool = True) -> Html:
    """Return a rectangle, or its outline."""
    place = {"x": f"{x:.4g}", "y": f"{y:.4g}", "width": f"{width:.4g}", "height": f"{height:.4g}"}
    return element("rect", **place, fill=colour if filled else "none", stroke=colour)
