"""Checks the integers among a primitive's options when it is applied, so that rules and runners need not check them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emu.errors import ShapeError
from emu.formats.integers import LARGEST, as_axes, as_integer, as_pair


def _size(name: str, value: Any, ndim: int) -> int:
    return as_integer(name, value, 1, LARGEST, error=ShapeError)


def _axis(name: str, value: Any, ndim: int) -> int:
    return as_axes(name, as_integer(name, value, error=ShapeError), ndim)[0]


def _stride(name: str, value: Any, ndim: int) -> tuple[int, int]:
    return as_pair(name, value, 1)


def _padding(name: str, value: Any, ndim: int) -> tuple[int, int]:
    return as_pair(name, value, 0)


def _every_axis(name: str, value: Any, ndim: int) -> tuple[int, ...]:
    axes = as_axes(name, value, ndim)
    if len(axes) != ndim:
        raise ShapeError(f"`{name}` must name each axis of the array once, got {value!r} for {ndim}; add the others")
    return axes


#: Functions that check and convert options, by primitive and option. Each gets the option's name and value, and the
#: number of axes of the first operand.
_INTEGERS: dict[str, dict[str, Callable[[str, Any, int], Any]]] = {
    "conv2d": {"stride": _stride, "padding": _padding},
    "max_pool": {"window": _size, "stride": _size},
    "avg_pool": {"window": _size, "stride": _size},
    "sum": {"axis": as_axes},
    "transpose": {"axes": _every_axis},
    "normalise": {"axes": as_axes, "along": _axis},
}


def with_integers(primitive: str, options: Mapping[str, Any], ndim: int) -> dict[str, Any]:
    """Return the options of a primitive, counts and axes as Python's integers, axes counted from the front.

    Args:
        primitive: its name.
        options: as the caller gave them.
        ndim: axes of its first operand.

    Raises:
        ShapeError: an option is not an integer, or not in its range; the operand does not have an axis.
    """
    checks = _INTEGERS.get(primitive)
    if checks is None:
        return dict(options)
    return {name: checks[name](name, value, ndim) if name in checks else value for name, value in options.items()}
