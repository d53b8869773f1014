"""Which function draws an object, and the frame around what it draws."""

from __future__ import annotations

from functools import singledispatch
from importlib import import_module

from emu._drawn import Drawn
from emu.report.html import Html, element

#: Package of a class -> the file that draws it.
DRAWN_BY = {
    "emu.formats": "emu.notebook.formats",
    "emu.datapath": "emu.notebook.datapath",
    "emu.engine": "emu.notebook.units",
    "emu.training": "emu.notebook.runs",
}
_STYLE = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;max-width:56em;margin:.3em 0"


@singledispatch
def picture(thing: Drawn) -> Html:
    """Return what shows `thing`: of a class without a picture, its text."""
    return element("pre", repr(thing))


def html_of(thing: Drawn) -> str:
    """Return the picture of `thing` as HTML that is complete in itself."""
    for one in type(thing).__mro__:
        package = ".".join(one.__module__.split(".")[:2])
        if package in DRAWN_BY:
            import_module(DRAWN_BY[package])
    return str(element("div", picture(thing), class_="emu", style=_STYLE))
