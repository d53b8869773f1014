"""Checks the integers among a primitive's options when it is applied, so that rules and runners need not check them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emu.engine.sliding import as_padding
from emu.errors import ShapeError
from emu.formats.integers import LARGEST, as_axes, as_integer, as_pair


def _size(name: str, value: Any, ndim: int) -> int:
    return as_integer(name, value, 1, LARGEST, error=ShapeError)


def _axis(name: str, value: Any, ndim: int) -> int:
    # counted from the front, so that rules can compare axes and index shapes
    return as_axes(name, as_integer(name, value, error=ShapeError), ndim)[0]


def _stride(name: str, value: Any, ndim: int) -> tuple[int, int]:
    return as_pair(name, value, 1)


def _square(name: str, value: Any, ndim: int) -> tuple[int, int]:
    """Return an integer for rows and one for columns; one integer is both."""
    if isinstance(value, tuple | list):
        return as_pair(name, value, 1)
    size = _size(name, value, ndim)
    return size, size


def _border(name: str, value: Any, ndim: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return as_padding(value)


def _every_axis(name: str, value: Any, ndim: int) -> tuple[int, ...]:
    axes = as_axes(name, value, ndim)
    if len(axes) != ndim:
        raise ShapeError(f"`{name}` must name each axis of the array once, got {value!r} for {ndim}; add the others")
    return axes


_CONVOLUTION: dict[str, Callable[[str, Any, int], Any]] = {
    "stride": _stride,
    "padding": _border,
    "dilation": _stride,
    "groups": _size,
}
#: Functions that check and convert options, by primitive and option. Each gets the option's name and value, and the
#: number of axes of the first operand.
_INTEGERS: dict[str, dict[str, Callable[[str, Any, int], Any]]] = {
    "conv2d": _CONVOLUTION,
    "transposed_conv2d": {**_CONVOLUTION, "sizes": _stride},
    "max_pool": {"window": _square, "stride": _square, "padding": _border, "dilation": _stride},
    "avg_pool": {"window": _square, "stride": _square, "padding": _border, "dilation": _stride},
    "sum": {"axis": as_axes},
    "transpose": {"axes": _every_axis},
    "concatenate": {"axis": _axis},
    "take": {"axis": _axis},
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
