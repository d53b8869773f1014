"""Sums along axes, means of windows, and the sum of squares of a norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, size_of
from emu.operations.row import MULTIPLIES, PRODUCTS, SUMS, DoneBy, Role, Row


def _sum(role: Role, x: Value, *, axis: tuple[int, ...]) -> Value:
    return role.unit(x.format).total(x, axis)


def _sum_float64(xp: Any, a: Any, *, axis: Any) -> Any:
    return a.sum(axis=axis)


def _sum_asks(operands: Sequence[Shape], options: Options) -> Asked:
    x = operands[0]
    axes = {axis % len(x) for axis in options["axis"]}
    return Asked(tuple(n for i, n in enumerate(x) if i not in axes), size_of(x))


def _average(role: Role, windows: Value) -> Value:
    """The mean of the last axis: the accumulator's content divided by the count, rounded once."""
    return role.unit(windows.format).average(windows, len(windows.shape) - 1)


def _average_asks(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(operands[0][:-1], size_of(operands[0]))


def _squared_norm(role: Role, x: Value, factor: Value | None = None) -> Value:
    """The sum of squares, pairwise in C order; with a factor, of elements multiplied by it."""
    scaled = x if factor is None else role.on_host("scaled").multiply(x, factor)
    # pairwise, in the host's format, as all sums of the host
    return role.reduced().total(role.on_host("squares").multiply(scaled, scaled))


def _squared_norm_float64(xp: Any, x: Any, factor: Any = 1.0) -> Any:
    scaled = x * factor
    return (scaled * scaled).sum()


def _squared_norm_asks(operands: Sequence[Shape], options: Options) -> Asked:
    """A pass that squares and adds; a factor takes a pass of its own."""
    return Asked((), multiply_adds=size_of(operands[0]), passes=len(operands))


ROWS = (
    Row("sum", _sum, _sum_float64, _sum_asks, DoneBy.UNIT, SUMS),
    Row("average", _average, lambda xp, a: a.mean(axis=-1), _average_asks, DoneBy.UNIT, MULTIPLIES),
    Row("squared_norm", _squared_norm, _squared_norm_float64, _squared_norm_asks, DoneBy.HOST, PRODUCTS),
)
