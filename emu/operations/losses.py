"""Losses, and their gradients by the output of the network.

A loss returns the mean over the batch, and what its gradient reads. Each intermediate result that the host writes
(`on_host`) is a pass of the host, which the rows at the end count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.backends.arrays import namespace
from emu.formats import Value
from emu.operations.asked import Asked, Options, Rule, Shape, size_of
from emu.operations.host import as_saved, column, largest
from emu.operations.operands import FP32, number
from emu.operations.row import SUMS, TABLE_AND_LINE, DoneBy, Role, Row, one_array


def _softmax_cross_entropy(role: Role, x: Value, labels: Value) -> Value:
    """The mean of log(sum(exp(z))) - z[label], z = x - max(x); and the probabilities, for the backward pass."""
    shifted = role.on_host("shifted").subtract(x, largest(role, x, x.array))
    exponentials = role.on_host("exponentials").exp(shifted)
    sums = role.on_host("sums").total(exponentials, 1)
    # the shifted logit of each label
    picked = shifted.array[namespace(shifted.array).arange(len(labels.array)), labels.array]
    logarithms = role.on_host("logarithms").log(sums)
    # log(sum) - z[label] needs no quotient: probabilities are written for the backward pass alone
    losses = role.on_host("losses").subtract(logarithms, shifted.with_array(picked))
    probabilities = role.on_host("probabilities").divide(exponentials, column(sums))
    return _mean_loss(role, losses, probabilities)


def _softmax_cross_entropy_float64(xp: Any, x: Any, labels: Any) -> Any:
    shifted = x - x.max(axis=1, keepdims=True)
    exponentials = xp.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    picked = xp.take_along_axis(shifted, labels[:, None], axis=1)
    return (xp.log(sums) - picked).mean(), exponentials / sums


def _softmax_cross_entropy_gradient(role: Role, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The probabilities less the one-hot labels, times g, over N.

    Difference and product are written on the host, in the format of role `loss`; the quotient is written as an error.
    """
    difference = role.on_host("difference").subtract(as_saved(role, saved[0]), _one_hot(x, labels))
    # the division by N is the one writing of the role
    return _shared_out(role, g, difference, x.shape[0])


def _softmax_cross_entropy_gradient_float64(xp: Any, g: Any, x: Any, labels: Any, *, saved: Any) -> Any:
    return g * (saved[0] - (xp.arange(x.shape[1]) == labels[:, None])) / x.shape[0]


def _mse(role: Role, x: Value, labels: Value) -> Value:
    """The mean of squared differences from one-hot targets; and the differences, for the backward pass."""
    difference = role.on_host("difference").subtract(x, _one_hot(x, labels))
    return _mean_loss(role, role.on_host("squares").multiply(difference, difference), difference)


def _mse_float64(xp: Any, x: Any, labels: Any) -> Any:
    difference = x - _one_hot_float64(xp, x, labels)
    return (difference * difference).mean(), difference


def _mse_gradient(role: Role, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    # g is one number: doubled once, not in each element
    twice = role.on_host("twice").multiply(g, number(2))
    # the mean is over all elements, of all classes, not over the batch
    return _shared_out(role, twice, as_saved(role, saved[0]), saved[0].size)


def _mse_gradient_float64(xp: Any, g: Any, x: Any, labels: Any, *, saved: Any) -> Any:
    return g * 2 * saved[0] / x.size


def _euclidean(role: Role, x: Value, labels: Value) -> Value:
    """The mean distance from one-hot targets; and the directions, for the backward pass.

    A direction is difference / distance, and 0 where the distance is 0: a difference need not be 0 there, since its
    square may have been rounded to 0.
    """
    difference = role.on_host("difference").subtract(x, _one_hot(x, labels))
    sums = role.on_host("sums").total(role.on_host("squares").multiply(difference, difference), 1)
    distances = role.on_host("distances").sqrt(sums)
    xp, far = namespace(distances.array), column(distances).array
    is_apart = far != 0
    numerators = difference.with_array(xp.where(is_apart, difference.array, xp.zeros((), difference.array.dtype)))
    divisor = xp.asarray(float(distances.format.max), far.dtype)  # 0 / max is 0, without a flag; a format may have no 1
    directions = role.on_host("directions").divide(numerators, distances.with_array(xp.where(is_apart, far, divisor)))
    return _mean_loss(role, distances, directions)


def _euclidean_float64(xp: Any, x: Any, labels: Any) -> Any:
    difference = x - _one_hot_float64(xp, x, labels)
    distances = xp.sqrt((difference * difference).sum(axis=1, keepdims=True))
    is_apart = distances != 0
    return distances.mean(), xp.where(is_apart, difference, 0.0) / xp.where(is_apart, distances, 1.0)


def _euclidean_gradient(role: Role, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The directions, times g, over N."""
    return _shared_out(role, g, as_saved(role, saved[0]), x.shape[0])


def _euclidean_gradient_float64(xp: Any, g: Any, x: Any, labels: Any, *, saved: Any) -> Any:
    return g * saved[0] / x.shape[0]


# ---- what losses have in common -------------------------------------------------------------------------------------


def _mean_loss(role: Role, losses: Value, saved: Value) -> Value:
    """Return the mean of losses, and beside it an array saved for the backward pass (`Row.beside`)."""
    total = role.on_host("total").total(losses)
    # the one writing of the role: register and flags see the mean, nothing before it
    mean = role.unit().divide(total, number(losses.array.size))
    return Value((mean.array, saved.array), mean.format)


def _shared_out(role: Role, g: Value, difference: Value, count: int) -> Value:
    return role.unit().divide(role.on_host("scaled").multiply(g, difference), number(count))


def _one_hot(x: Value, labels: Value) -> Value:
    # 0 and 1 are exact in binary32, whatever the layer's format
    classes = namespace(labels.array).arange(x.shape[1])
    return Value((classes == labels.array[:, None]).astype(np.float32), FP32)


def _one_hot_float64(xp: Any, x: Any, labels: Any) -> Any:
    return (xp.arange(x.shape[1]) == labels[:, None]) * 1.0


def _loss(passes: int, *, by_row: bool) -> Rule:
    """Return the rule of a loss: it adds up all elements of its operand, or of as many intermediate results.

    Args:
        passes: passes of the host: one for each intermediate result.
        by_row: whether it first adds up each row, and then the numbers of the rows; else all elements in one sum.
    """

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        x = operands[0]
        return Asked((), size_of(x) + (x[0] if by_row else 0), passes)

    return rule


def _loss_gradient(passes: int) -> Rule:
    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[1], 0, passes)

    return rule


ROWS = (
    Row("softmax_cross_entropy", _softmax_cross_entropy, _softmax_cross_entropy_float64, _loss(7, by_row=True),
        DoneBy.HOST, SUMS, beside=one_array),
    Row("softmax_cross_entropy_gradient", _softmax_cross_entropy_gradient, _softmax_cross_entropy_gradient_float64,
        _loss_gradient(2), DoneBy.HOST, TABLE_AND_LINE),
    Row("mse", _mse, _mse_float64, _loss(3, by_row=False), DoneBy.HOST, SUMS, beside=one_array),
    Row("mse_gradient", _mse_gradient, _mse_gradient_float64, _loss_gradient(2), DoneBy.HOST, TABLE_AND_LINE),
    Row("euclidean", _euclidean, _euclidean_float64, _loss(6, by_row=True), DoneBy.HOST, SUMS, beside=one_array),
    Row("euclidean_gradient", _euclidean_gradient, _euclidean_gradient_float64, _loss_gradient(1),
        DoneBy.HOST, TABLE_AND_LINE),
)  # fmt: skip
