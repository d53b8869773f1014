"""Integers that a caller gives: counts, widths, axes, strides. Each is checked here, and becomes Python's `int`.

NumPy's integers are integers. A float is not, even 1.0, nor is a bool or a text. Since 1 == 1.0 == True, a cache would
take each for the other, and give every later caller what it has computed for the first.
"""

from __future__ import annotations

import operator
from typing import Any, cast

from emu.errors import EmuError, FormatError, ShapeError

#: Strides, windows and paddings are this at most: no place in an image overflows 64 bits.
LARGEST = 2**31 - 1


def as_integer(
    name: str, value: Any, low: int | None = None, high: int | None = None, *, error: type[EmuError] = FormatError
) -> int:
    """Return `value` as an int, NumPy's integers included.

    Args:
        name: what the caller calls it.
        value: what the caller gave.
        low: the least it may be; None is no limit.
        high: the most it may be; None is no limit.
        error: what is raised.

    Raises:
        EmuError: of the class `error`: not an integer (a bool is none), or outside `low..high`.

    Examples:
        >>> as_integer("stride", 2, 1)
        2
    """
    # `type(...) is int` is the fast way of plain integers; a bool, which is an int to isinstance, goes the other way
    number = value if type(value) is int else _index_of(value)
    if number is None:
        raise error(f"`{name}` must be an integer, got {value!r}; write a whole number")
    too_small = low is not None and number < low
    if too_small or (high is not None and number > high):
        rule = f"in {low}..{high}" if low is not None and high is not None else _one_sided(low, high)
        raise error(f"`{name}` must be {rule}, got {number}; choose a {'larger' if too_small else 'smaller'} one")
    return number


def as_pair(name: str, value: Any, low: int) -> tuple[int, int]:
    """Return two integers, at least `low` and below 2**31: down and right in an image.

    Raises:
        ShapeError: not two, or one of them is not such an integer.
    """
    if type(value) is tuple and len(pair := cast("tuple[Any, ...]", value)) == 2:  # fast: each convolution asks
        down, right = pair
        if type(down) is int and type(right) is int and low <= min(down, right) and max(down, right) <= LARGEST:
            return down, right
    # a list, NumPy's integers, or what is refused
    given = _items(value)
    numbers = () if given is None else tuple(map(_index_of, given))
    if len(numbers) != 2 or any(number is None or not low <= number <= LARGEST for number in numbers):
        raise ShapeError(
            f"`{name}` must be two integers of at least {low} (below 2**31), got {value!r}; write one for rows and one "
            f"for columns, as ({low}, {low})"
        )
    down, right = numbers
    assert down is not None
    assert right is not None
    return down, right


def as_axes(name: str, value: Any, ndim: int) -> tuple[int, ...]:
    """Return axes of an array, counted from the front, in the order given.

    Args:
        name: what the caller calls them.
        value: one axis or several; negative ones count from the end.
        ndim: axes of the array.

    Raises:
        ShapeError: an axis that is not an integer, that the array does not have, or that is there twice.

    Examples:
        >>> as_axes("axis", (0, -1), 3)
        (0, 2)
    """
    given = _items(value)
    axes: list[int] = []
    for axis in (value,) if given is None else given:
        number = _index_of(axis)
        if number is None:
            raise ShapeError(f"`{name}` must be an integer or several, got {value!r}; write whole numbers, as (0, 1)")
        if not -ndim <= number < ndim:
            rule = f"lie in {-ndim}..{ndim - 1} for" if ndim else "name no axis of"
            raise ShapeError(f"`{name}` must {rule} an array of {_axes(ndim)}, got {number}; choose one that it has")
        if number % ndim in axes:
            raise ShapeError(
                f"`{name}` must name each axis once, got {value!r} for an array of {_axes(ndim)}; leave out the second "
                f"{number % ndim}"
            )
        axes.append(number % ndim)
    return tuple(axes)


def _index_of(value: Any) -> int | None:
    """Return an integer as Python's, None of what is none: a bool, a float, a text."""
    # operator.index(True) is 1
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _items(value: Any) -> tuple[Any, ...] | None:
    """Return the items of a sequence, None of what is no sequence."""
    if isinstance(value, str | bytes):
        return None
    try:
        return tuple(value)
    except TypeError:
        return None


def _axes(count: int) -> str:
    return f"{count} ax{'i' if count == 1 else 'e'}s"


def _one_sided(low: int | None, high: int | None) -> str:
    return f"at most {high}" if low is None else f"at least {low}"
