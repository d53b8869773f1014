"""A runner in plain float64: the mathematics of every operation.

It is used to check derivatives, and to measure the errors of a datapath.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from emu.autodiff.rules import windows_of
from emu.autodiff.runner import Operation, Runner
from emu.autodiff.value import SparseValue
from emu.backends.arrays import namespace
from emu.backends.reference.philox import random_integers
from emu.formats import Value


class PlainRunner(Runner):
    """Runs every operation in the arrays' own floating-point arithmetic; formats are ignored."""

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return the operation's result in float64."""
        arrays = [_whole(value) for value in operation.operands]
        xp = namespace(arrays[0])
        return Value(_OPERATIONS[operation.name](xp, *arrays, **operation.options))

    @override
    def place(self, array: Any) -> Any:
        """Return the array: operations compute in its own namespace."""
        return array

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of tasks, one after the other."""
        return [task() for task in tasks]


def _whole(value: Value) -> Any:
    """Return all elements of an operand: a sparse matrix as a dense one, entries of one place added up."""
    if not isinstance(value, SparseValue):
        return value.array
    xp, x = namespace(value.array), value.structure
    dense = xp.zeros(x.shape, value.array.dtype)
    xp.add.at(dense, (x.rows, x.indices), value.array)
    return dense


def _matmul(xp: Any, a: Any, b: Any, bias: Any = None) -> Any:
    return a @ b if bias is None else a @ b + bias


def _sparse_matmul(xp: Any, x: Any, w: Any, bias: Any = None, *, entries: int) -> Any:
    return _matmul(xp, x, w, bias)


def _sparse_transposed_matmul(xp: Any, x: Any, g: Any, *, entries: int) -> Any:
    return x.T @ g


def _columns(xp: Any, x: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    """Return (N, OH, OW, C, KH, KW): every patch of a padded image."""
    x = xp.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    rows, columns = ((x.shape[2 + i] - kernel[i]) // stride[i] + 1 for i in (0, 1))
    picked = [
        [
            x[:, :, i : i + stride[0] * (rows - 1) + 1 : stride[0], j : j + stride[1] * (columns - 1) + 1 : stride[1]]
            for j in range(kernel[1])
        ]
        for i in range(kernel[0])
    ]
    return xp.stack([xp.stack(row, axis=-1) for row in picked], axis=-2).transpose(0, 2, 3, 1, 4, 5)


def _conv2d(xp: Any, x: Any, w: Any, bias: Any = None, *, stride: Any, padding: Any) -> Any:
    y = xp.tensordot(_columns(xp, x, w.shape[2:], stride, padding), w, axes=((3, 4, 5), (1, 2, 3))).transpose(
        0, 3, 1, 2
    )
    return y if bias is None else y + bias[:, None, None]


def _conv2d_weight_gradient(xp: Any, x: Any, g: Any, *, kernel: Any, stride: Any, padding: Any) -> Any:
    return xp.tensordot(g, _columns(xp, x, kernel, stride, padding), axes=((0, 2, 3), (0, 1, 2)))


def _conv2d_input_gradient(xp: Any, g: Any, w: Any, *, shape: Any, stride: Any, padding: Any) -> Any:
    padded = xp.zeros((shape[0], shape[1], shape[2] + 2 * padding[0], shape[3] + 2 * padding[1]), dtype=g.dtype)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = xp.tensordot(g, w[:, :, i, j], axes=((1,), (0,))).transpose(0, 3, 1, 2)
            padded[
                :,
                :,
                i : i + stride[0] * (g.shape[2] - 1) + 1 : stride[0],
                j : j + stride[1] * (g.shape[3] - 1) + 1 : stride[1],
            ] += part
    return padded[:, :, padding[0] : padding[0] + shape[2], padding[1] : padding[1] + shape[3]]


def _function(xp: Any, x: Any, *, function: str) -> Any:
    if function == "gelu":
        return x * _normal_share(xp, x)
    return 1 / (1 + xp.exp(-x)) if function == "sigmoid" else getattr(xp, function)(x)


def _normal_share(xp: Any, x: Any) -> Any:
    """Return the normal distribution's share below x."""
    error = xp.asarray([math.erf(float(z) / math.sqrt(2)) for z in x.ravel()]).reshape(x.shape)
    return (1 + error) / 2


def _gelu_slope(xp: Any, x: Any) -> Any:
    return _normal_share(xp, x) + x * xp.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _max_pool(xp: Any, x: Any, *, window: int, stride: int) -> Any:
    windows = windows_of(x, window, stride)
    return windows.max(axis=-1), windows.argmax(axis=-1)


def _unpool(xp: Any, g: Any, x: Any, *, saved: Any, window: int, stride: int) -> Any:
    spread = xp.zeros(x.shape, dtype=g.dtype)
    for place in range(window * window):
        down, right = (
            slice(at, at + stride * (size - 1) + 1, stride)
            for at, size in zip(divmod(place, window), g.shape[2:], strict=True)
        )
        spread[:, :, down, right] = xp.where(saved == place, g, 0.0)
    return spread


def _softmax_cross_entropy(xp: Any, x: Any, labels: Any) -> Any:
    shifted = x - x.max(axis=1, keepdims=True)
    exponentials = xp.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    picked = xp.take_along_axis(shifted, labels[:, None], axis=1)
    return (xp.log(sums) - picked).mean(), exponentials / sums


def _softmax_cross_entropy_gradient(xp: Any, g: Any, x: Any, labels: Any, *, saved: Any) -> Any:
    return g * (saved[0] - (xp.arange(x.shape[1]) == labels[:, None])) / x.shape[0]


def _one_hot(xp: Any, x: Any, labels: Any) -> Any:
    return (xp.arange(x.shape[1]) == labels[:, None]) * 1.0


def _mse(xp: Any, x: Any, labels: Any) -> Any:
    difference = x - _one_hot(xp, x, labels)
    return (difference * difference).mean(), difference


def _mse_gradient(xp: Any, g: Any, x: Any, labels: Any, *, saved: Any) -> Any:
    return g * 2 * saved[0] / x.size


def _euclidean(xp: Any, x: Any, labels: Any) -> Any:
    difference = x - _one_hot(xp, x, labels)
    distances = xp.sqrt((difference * difference).sum(axis=1, keepdims=True))
    is_there = distances != 0
    return distances.mean(), xp.where(is_there, difference, 0.0) / xp.where(is_there, distances, 1.0)


def _euclidean_gradient(xp: Any, g: Any, x: Any, labels: Any, *, saved: Any) -> Any:
    return g * saved[0] / x.shape[0]


def _softmax(xp: Any, x: Any, *, scale: float, causal: bool) -> Any:
    hidden = xp.triu(xp.ones(x.shape[-2:], dtype=bool), 1) if causal else False
    z = xp.where(hidden, -xp.inf, x * scale)
    exponentials = xp.exp(z - z.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _softmax_gradient(xp: Any, g: Any, y: Any, *, scale: float) -> Any:
    return scale * y * (g - (g * y).sum(axis=-1, keepdims=True))


def _normalise(
    xp: Any, x: Any, gamma: Any, beta: Any, *running: Any, axes: Any, along: int, eps: float, momentum: float,
    training: bool,
) -> Any:  # fmt: skip
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    moments: tuple[Value, ...] = ()
    if running and training:
        batch = (mean.ravel(), variance.ravel())
        moments = tuple(Value((1 - momentum) * a + momentum * b) for a, b in zip(running, batch, strict=True))
    elif running:
        mean, variance = (moment.reshape(mean.shape) for moment in running)
    inverse = 1 / xp.sqrt(variance + eps)
    normalised = (x - mean) * inverse
    return normalised * _along(gamma, along, x.ndim) + _along(beta, along, x.ndim), (normalised, inverse), moments


def _along(parameter: Any, along: int, dimensions: int) -> Any:
    shape = [1] * dimensions
    shape[along] = parameter.size
    return parameter.reshape(shape)


def _normalise_gradient(xp: Any, g: Any, gamma: Any, *, saved: Any, axes: Any, along: int) -> Any:
    (normalised, inverse), d = saved, g * _along(gamma, along, g.ndim)
    slopes = (d * normalised).mean(axis=axes, keepdims=True)
    return (d - d.mean(axis=axes, keepdims=True) - normalised * slopes) * inverse


def _beta_gradient(xp: Any, g: Any, *, along: int) -> Any:
    return g.sum(axis=tuple(axis for axis in range(g.ndim) if axis != along % g.ndim))


def _gamma_gradient(xp: Any, g: Any, *, saved: Any, along: int) -> Any:
    return _beta_gradient(xp, g * saved[0], along=along)


def _embedding(xp: Any, table: Any, tokens: Any) -> Any:
    return table[tokens]


def _embedding_gradient(xp: Any, g: Any, tokens: Any, *, rows: int) -> Any:
    chosen = xp.arange(rows)[:, None] == tokens.ravel()
    return chosen.astype(g.dtype) @ g.reshape(-1, g.shape[-1])


def _dropout(xp: Any, x: Any, *, rate: float) -> Any:
    """Return what is kept, by numbers that are the same at every call, and where that is."""
    drawn = random_integers(x.size, 32, seed=0, stream=0, step=0, draw=0).reshape(x.shape)
    kept = xp.asarray(drawn >= round(rate * 2**32))
    return _dropout_gradient(xp, x, saved=kept, rate=rate), kept


def _dropout_gradient(xp: Any, g: Any, *, saved: Any, rate: float) -> Any:
    return xp.where(saved, g, 0.0) / (1 - rate)


def _divide_by(xp: Any, a: Any, *, divisor: int) -> Any:
    return a / divisor


def _sum(xp: Any, a: Any, *, axis: Any) -> Any:
    return a.sum(axis=axis)


_OF_ONE: dict[str, Callable[[Any, Any], Any]] = {
    "negate": lambda xp, a: -a,
    "average": lambda xp, a: a.mean(axis=-1),
    "relu": lambda xp, a: xp.maximum(a, 0.0),
    "sigmoid_slope": lambda xp, y: y * (1 - y),
    "tanh_slope": lambda xp, y: 1 - y * y,
}
_OF_TWO: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda xp, a, b: a + b,
    "subtract": lambda xp, a, b: a - b,
    "multiply": lambda xp, a, b: a * b,
    "divide": lambda xp, a, b: a / b,
    "select": lambda xp, g, x: xp.where(x > 0, g, 0.0),
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **_OF_ONE,
    **_OF_TWO,
    "divide_by": _divide_by,
    "sum": _sum,
    "matmul": _matmul,
    "sparse_matmul": _sparse_matmul,
    "sparse_transposed_matmul": _sparse_transposed_matmul,
    "conv2d": _conv2d,
    "conv2d_weight_gradient": _conv2d_weight_gradient,
    "conv2d_input_gradient": _conv2d_input_gradient,
    "function": _function,
    "max_pool": _max_pool,
    "unpool": _unpool,
    "softmax_cross_entropy": _softmax_cross_entropy,
    "softmax_cross_entropy_gradient": _softmax_cross_entropy_gradient,
    "mse": _mse,
    "mse_gradient": _mse_gradient,
    "euclidean": _euclidean,
    "euclidean_gradient": _euclidean_gradient,
    "softmax": _softmax,
    "softmax_gradient": _softmax_gradient,
    "normalise": _normalise,
    "normalise_gradient": _normalise_gradient,
    "gamma_gradient": _gamma_gradient,
    "beta_gradient": _beta_gradient,
    "embedding": _embedding,
    "embedding_gradient": _embedding_gradient,
    "dropout": _dropout,
    "dropout_gradient": _dropout_gradient,
    "gelu_slope": _gelu_slope,
}
