"""Softmax inside a network, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.backends.arrays import namespace
from emu.formats import Value
from emu.operations.asked import Asked, Options, Rule, Shape, size_of
from emu.operations.host import column, largest
from emu.operations.operands import rounded
from emu.operations.row import SUMS, DoneBy, Role, Row


def _softmax(role: Role, x: Value, *, scale: float, causal: bool) -> Value:
    """exp(z) over its sum along the last axis, z = scale * x less its largest; with `causal`, 0 where column > row."""
    scaled = x if scale == 1 else role.on_host("scaled").multiply(x, rounded(scale))
    seen, hidden = scaled.array, None
    xp = namespace(seen)
    if causal:
        rows, columns = (xp.arange(n) for n in seen.shape[-2:])
        hidden = columns > rows[:, None]
        least = -np.inf if seen.dtype.kind == "f" else np.iinfo(seen.dtype).min
        seen = xp.where(hidden, xp.asarray(least, seen.dtype), seen)
    shifted = role.on_host("shifted").subtract(scaled, largest(role, scaled, seen))
    exponentials = _cleared(role.on_host("exponentials").exp(_cleared(shifted, hidden)), hidden)
    sums = role.on_host("sums").total(exponentials, len(exponentials.shape) - 1)
    return role.unit().divide(exponentials, column(sums))


def _cleared(x: Value, hidden: Any) -> Value:
    """Return zeros where values are hidden, which are neither computed nor counted."""
    if hidden is None:
        return x
    xp = namespace(x.array)
    return x.with_array(xp.where(hidden, xp.zeros((), x.array.dtype), x.array))


def _softmax_float64(xp: Any, x: Any, *, scale: float, causal: bool) -> Any:
    hidden = xp.triu(xp.ones(x.shape[-2:], dtype=bool), 1) if causal else False
    z = xp.where(hidden, -xp.inf, x * scale)
    exponentials = xp.exp(z - z.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _gradient(role: Role, g: Value, y: Value, *, scale: float) -> Value:
    """Scale * y * (g - sum(g * y)) along the last axis."""
    shares = role.on_host("shares").total(role.on_host("products").multiply(g, y), len(y.shape) - 1)
    difference = role.on_host("difference").subtract(g, column(shares))
    if scale == 1:
        return role.unit().multiply(y, difference)
    return role.unit().multiply(role.on_host("unscaled").multiply(y, difference), rounded(scale))


def _gradient_float64(xp: Any, g: Any, y: Any, *, scale: float) -> Any:
    return scale * y * (g - (g * y).sum(axis=-1, keepdims=True))


def _asks(passes: int, summed: int) -> Rule:
    """Return the rule of a softmax or its gradient: one more pass if there is a scale."""

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[summed], size_of(operands[summed]), passes + (options["scale"] != 1))

    return rule


ROWS = (
    Row("softmax", _softmax, _softmax_float64, _asks(3, summed=0), DoneBy.HOST, SUMS),
    Row("softmax_gradient", _gradient, _gradient_float64, _asks(3, summed=1), DoneBy.HOST, SUMS),
)
