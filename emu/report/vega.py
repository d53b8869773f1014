"""Vega in Python: charts as SVG, and the program that draws them in a page. No other module calls vl-convert."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from emu.report.chart import Spec
from emu.report.html import escape

#: Pixels around a drawing: texts are measured in one font and shown in another, which may be wider.
PADDING = {"left": 16, "top": 5, "right": 16, "bottom": 5}


def as_svg(spec: Spec, label: str) -> str:
    """Return the chart of a Vega-Lite specification as SVG; `label` is the text for a screen reader."""
    drawn = str(_converter().vegalite_to_svg({"padding": PADDING, **spec}, vl_version=_vega_lite_version()))
    # The first tag alone: a drawing may have others inside.
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


@lru_cache(maxsize=1)
def drawing_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one program, in the version that Altair targets; about 0.9 MB."""
    return str(_converter().javascript_bundle(vl_version=_vega_lite_version()))


def _vega_lite_version() -> str:
    """Return the version of Vega-Lite that Altair targets, or the newest that vl-convert has."""
    import altair as alt

    # Altair names a patch level, and vl-convert does not: v6.4.1 is 6.4 there.
    wanted = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = _converter().get_vegalite_versions()
    return str(wanted if wanted in known else known[-1])


def _converter() -> Any:
    return import_module("vl_convert")  # untyped here: its stubs make an optional argument required
