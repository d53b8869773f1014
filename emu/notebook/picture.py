"""Find the function that draws an object, and put a frame around its drawing."""

from __future__ import annotations

from functools import singledispatch
from importlib import import_module

from emu._drawn import Drawn
from emu.report.html import Html, element

#: Package of a class -> module that draws it.
DRAWN_BY = {
    "emu.formats": "emu.notebook.formats",
    "emu.datapath": "emu.notebook.datapath",
    "emu.engine": "emu.notebook.units",
    "emu.training": "emu.notebook.runs",
}
_STYLE = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;max-width:56em;margin:.3em 0"


@singledispatch
def picture(thing: Drawn) -> Html:
    """Return the picture of `thing`; for a class without a picture, its text."""
    return element("pre", repr(thing))


def html_of(thing: Drawn) -> str:
    """Return the picture of `thing` as HTML that needs no other file."""
    # Importing the module registers its pictures with `picture`. Bases count, so that a subclass of the user's is drawn
    # as emu's class is.
    for base in type(thing).__mro__:
        package = ".".join(base.__module__.split(".")[:2])
        if package in DRAWN_BY:
            import_module(DRAWN_BY[package])
    return str(element("div", picture(thing), class_="emu", style=_STYLE))
