"""Vega in Python: charts as SVG, and the program that draws them in a page. No other module calls vl-convert."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from emu.report.chart import Spec


def as_svg(spec: Spec) -> str:
    """Return the chart of a Vega-Lite specification as SVG."""
    return str(_converter().vegalite_to_svg(spec, vl_version=_vega_lite_version()))


@lru_cache(maxsize=1)
def drawing_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one program, in the version that Altair targets; about 0.9 MB."""
    return str(_converter().javascript_bundle(vl_version=_vega_lite_version()))


def _vega_lite_version() -> str:
    """Return the version of Vega-Lite that Altair targets, or the newest that vl-convert has."""
    import altair as alt

    wanted = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = _converter().get_vegalite_versions()
    return str(wanted if wanted in known else known[-1])


def _converter() -> Any:
    return import_module("vl_convert")  # untyped here: its stubs make an optional argument required
