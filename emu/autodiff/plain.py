"""A runner in plain float64: the mathematics of every operation.

For checking derivatives and for measuring what a datapath loses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emu.autodiff.rules import windows_of
from emu.autodiff.runner import Operation
from emu.autodiff.value import Value
from emu.backends.arrays import namespace


class PlainRunner:
    """Runs every operation in the arrays' own floating-point arithmetic; formats are ignored."""

    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return the operation's result in float64."""
        arrays = [value.array for value in operation.operands]
        xp = namespace(arrays[0])
        return Value(_OPERATIONS[operation.name](xp, *arrays, **operation.options))

    def place(self, array: Any) -> Any:
        """Return the array: operations compute in its own namespace."""
        return array

    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of tasks, one after the other."""
        return [task() for task in tasks]


def _matmul(xp: Any, a: Any, b: Any, bias: Any = None) -> Any:
    return a @ b if bias is None else a @ b + bias


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
    return 1 / (1 + xp.exp(-x)) if function == "sigmoid" else getattr(xp, function)(x)


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
    "select": lambda xp, a, mask: xp.where(mask, a, 0.0),
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **_OF_ONE,
    **_OF_TWO,
    "divide_by": _divide_by,
    "sum": _sum,
    "matmul": _matmul,
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
}
