"""Softmax inside a network, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.backends.arrays import namespace
from emu.errors import ShapeError
from emu.formats import Value
from emu.operations.asked import Asked, Options, Rule, Shape, size_of
from emu.operations.host import column, largest
from emu.operations.operands import rounded
from emu.operations.row import SUMS, DoneBy, Role, Row


def _softmax(role: Role, x: Value, *, scale: float, causal: bool) -> Value:
    """Return exp(z) / sum(exp(z)) along the last axis, where z is scale * x minus its largest value.

    With `causal`, values whose column is greater than their row are hidden: 0, and in no sum.
    """
    scaled = x if scale == 1 else role.on_host("scaled").multiply(x, rounded(scale))
    visible, hidden = scaled.array, None  # `visible`: what the largest value is chosen from
    xp = namespace(visible)
    if causal:
        if visible.ndim < 2:
            raise ShapeError(
                f"a causal softmax must have rows and columns as its last two axes, got shape {visible.shape}; give an "
                "axis of size 1"
            )
        rows, columns = (xp.arange(n) for n in visible.shape[-2:])
        hidden = columns > rows[:, None]
        # below every visible number, or equal to the lowest: the largest of a row is a visible one
        least = -np.inf if visible.dtype.kind == "f" else np.iinfo(visible.dtype).min
        visible = xp.where(hidden, xp.asarray(least, visible.dtype), visible)
    shifted = role.on_host("shifted").subtract(scaled, largest(role, scaled, visible))
    # A hidden difference may be large: exp takes 0 in its place, and exp(0) = 1 is cleared again.
    exponentials = _cleared(role.on_host("exponentials").exp(_cleared(shifted, hidden)), hidden)
    sums = role.on_host("sums").total(exponentials, len(exponentials.shape) - 1)
    return role.unit().divide(exponentials, column(sums))


def _cleared(x: Value, hidden: Any) -> Value:
    """Return x with 0 where `hidden` is true; None hides nothing."""
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
    """Return scale * y * (g - sum(g * y)), the sum along the last axis."""
    # sum(g * y), one number for each row
    shares = role.on_host("shares").total(role.on_host("products").multiply(g, y), len(y.shape) - 1)
    difference = role.on_host("difference").subtract(g, column(shares))
    if scale == 1:
        return role.unit().multiply(y, difference)
    return role.unit().multiply(role.on_host("unscaled").multiply(y, difference), rounded(scale))


def _gradient_float64(xp: Any, g: Any, y: Any, *, scale: float) -> Any:
    return scale * y * (g - (g * y).sum(axis=-1, keepdims=True))


def _asks(passes: int, summed: int) -> Rule:
    """Return the rule of a softmax or its gradient.

    Args:
        passes: passes of the host without a scale, which takes one more.
        summed: index of an operand with the shape of what is summed, which is the result's too.
    """

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[summed], size_of(operands[summed]), passes + (options["scale"] != 1))

    return rule


ROWS = (
    Row("softmax", _softmax, _softmax_float64, _asks(3, summed=0), DoneBy.HOST, SUMS),
    Row("softmax_gradient", _gradient, _gradient_float64, _asks(3, summed=1), DoneBy.HOST, SUMS),
)
