"""Casts of stored tensors into operands of products."""

from __future__ import annotations

from typing import Any

from emu.datapath.cast import Cast
from emu.formats import ScaledValue, Value
from emu.operations.asked import as_first
from emu.operations.row import ROUNDS, DoneBy, Role, Row


def _cast(role: Role, x: Value, *, cast: Cast, axis: int) -> Any:
    """Return the tensor in the cast's format, its blocks along an axis."""
    return role.cast(x, cast, axis)


def _cast_float64(xp: Any, x: Any, *, cast: Cast, axis: int) -> Any:
    return x


def _without_scales(array: Any, fmt: Any) -> Any:
    """Return a result of which only the shape is known."""
    return ScaledValue(array, (), fmt, -1)


#: A lane reads a number to find the largest of its block, and once more to write it.
_READ_AND_WRITE = 2

ROWS = (
    Row("cast", _cast, _cast_float64, as_first, DoneBy.LANES, ROUNDS, takes_any_format=True, is_counted=False,
        lane_instructions=_READ_AND_WRITE, format_of=lambda options: options["cast"].format, made=_without_scales),
)  # fmt: skip
