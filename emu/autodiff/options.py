"""Checks the integers among a primitive's options when it is applied, so that rules and runners need not check them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    try:
        return as_pair(name, value, 1)
    except ShapeError:
        pass
    try:
        size = _size(name, value, ndim)
    except ShapeError:
        raise ShapeError(
            f"`{name}` must be an integer of at least 1 (below 2**31), or two, got {value!r}; write one for both rows "
            "and columns, as 2, or one for each, as (2, 3)"
        ) from None
    return size, size


def _several(value: Any) -> tuple[Any, ...]:
    """Return the items of a sequence, or what is none alone."""
    if isinstance(value, str | bytes):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        return (value,)


def _shape_from(low: int) -> Callable[[str, Any, int], tuple[int, ...]]:
    """Return the check of a shape whose sizes are at least `low`."""

    def shape(name: str, value: Any, ndim: int) -> tuple[int, ...]:
        return tuple(as_integer(name, size, low, error=ShapeError) for size in _several(value))

    return shape


def _pads(name: str, value: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    pads = _several(value)
    if len(pads) != ndim:
        raise ShapeError(
            f"`{name}` must be two integers, before and after, for each of {ndim} axes, got {value!r}; write (0, 0) "
            "for an axis that stays"
        )
    return tuple(as_pair(name, pair, 0) for pair in pads)


def _places(name: str, value: Any, ndim: int) -> NDArray[np.int64]:
    given: NDArray[Any] = np.asarray(value, getattr(value, "dtype", object))
    if given.dtype.kind in "iu" and np.can_cast(given.dtype, np.int64):
        return given.astype(np.int64, copy=False)
    # by elements: NumPy would cut 0.9 to 0, take True for 1, and 2**64 - 1 for -1
    numbers = [as_integer(name, place, -LARGEST, LARGEST, error=ShapeError) for place in given.flat]
    return np.array(numbers, np.int64).reshape(given.shape)


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
    "take": {"axis": _axis, "places": _places},
    # -1 is what the other sizes leave, as NumPy has it
    "reshape": {"shape": _shape_from(-1)},
    "expand": {"shape": _shape_from(0)},
    "surround": {"pads": _pads},
    "integer_surround": {"pads": _pads},
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
