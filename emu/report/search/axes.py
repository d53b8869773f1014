"""Axes of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.report.search.words import POINTS, Scale, called

#: A wider picture, in points, has an axis that is logarithmic far from 0.
_WIDE = 20.0
_TICKS = [-100, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10]


def axis_of(field: str, metric: str, scale: Scale, values: Sequence[float]) -> dict[str, Any]:
    """Return a channel of a picture for a metric.

    Args:
        field: field of the rows.
        metric: name of the metric.
        scale: scale of the metric.
        values: scaled values that are drawn.
    """
    title = called(metric) + (f" ({scale.unit})" if scale.unit else "")
    drawn: dict[str, Any] = {"zero": False, "padding": 10}
    axis: dict[str, Any] = {"tickCount": 6}
    if scale.unit == POINTS and max(values) - min(values) > _WIDE:
        # Symlog is linear around 0 and logarithmic far from it: one trial that learned nothing must not press all
        # others together.
        drawn |= {"type": "symlog", "constant": 1}
        axis = {"values": _TICKS}
    return {"field": field, "type": "quantitative", "title": title, "scale": drawn, "axis": axis}
