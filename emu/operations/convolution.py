"""Convolutions, and their gradients by images and by kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.backends.arrays import namespace
from emu.backends.gathered import Gathered
from emu.engine.convolution import convolved_size, patches_of
from emu.engine.matrices import Matrices
from emu.engine.products import write_product
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, size_of
from emu.operations.operands import carrier
from emu.operations.row import PRODUCTS, DoneBy, Role, Row


def _conv2d(role: Role, x: Value, w: Value, bias: Value | None = None, *, stride: Any, padding: Any) -> Value:
    return role.unit(w.format, x.format).conv2d(x, w, bias, stride=stride, padding=padding)


def _conv2d_float64(xp: Any, x: Any, w: Any, bias: Any = None, *, stride: Any, padding: Any) -> Any:
    y = xp.tensordot(_columns(xp, x, w.shape[2:], stride, padding), w, axes=((3, 4, 5), (1, 2, 3))).transpose(
        0, 3, 1, 2
    )
    return y if bias is None else y + bias[:, None, None]


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


def _conv2d_asks(operands: Sequence[Shape], options: Options) -> Asked:
    x, w = operands[:2]
    sizes = (convolved_size(x[2 + i], w[2 + i], options["stride"][i], options["padding"][i]) for i in (0, 1))
    shape = (x[0], w[0], *sizes)
    return Asked(shape, size_of(shape) * size_of(w[1:]))


def _input_gradient(role: Role, g: Value, w: Value, *, shape: Any, stride: Any, padding: Any) -> Value:
    """The errors, spread by the stride and padded, convolved with the flipped kernels.

    So each result is one sum of products, in the order in which a Mac adds them.
    """
    kernel = w.shape[2:]
    spread = namespace(g.array).zeros((*g.shape[:2], shape[2] + kernel[0] - 1, shape[3] + kernel[1] - 1), g.array.dtype)
    source, target = zip(
        *(_overlap(g.shape[2 + i], spread.shape[2 + i], stride[i], kernel[i] - 1 - padding[i]) for i in (0, 1)),
        strict=True,
    )
    spread[:, :, target[0], target[1]] = g.array[:, :, source[0], source[1]]
    flipped = w.with_array(w.array.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
    return _conv2d(role, g.with_array(spread), flipped, stride=(1, 1), padding=(0, 0))


def _overlap(size: int, room: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return which of `size` elements are within `room` when element i moves to offset + i * stride, and where to."""
    first = max(0, -(offset // stride))
    last = min(size - 1, (room - 1 - offset) // stride)
    start = offset + first * stride
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _input_gradient_float64(xp: Any, g: Any, w: Any, *, shape: Any, stride: Any, padding: Any) -> Any:
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


def _input_gradient_asks(operands: Sequence[Shape], options: Options) -> Asked:
    w, shape = operands[1], tuple(options["shape"])
    return Asked(shape, size_of(shape) * w[0] * size_of(w[2:]))


def _weight_gradient(role: Role, x: Value, g: Value, *, kernel: Any, stride: Any, padding: Any) -> Value:
    """One product per weight, k running over images, then output rows and columns."""
    inputs = patches_of(carrier(x), tuple(kernel), stride, padding).joined().transposed()
    errors = Gathered.of_axes(carrier(g), (1,), (0, 2, 3))
    shape = (g.shape[1], x.shape[1], *kernel)
    matrices = Matrices(errors, inputs, None, (g.format, x.format, None), shape)
    return role.value(write_product(role.unit(g.format, x.format).description, matrices))


def _weight_gradient_float64(xp: Any, x: Any, g: Any, *, kernel: Any, stride: Any, padding: Any) -> Any:
    return xp.tensordot(g, _columns(xp, x, kernel, stride, padding), axes=((0, 2, 3), (0, 1, 2)))


def _weight_gradient_asks(operands: Sequence[Shape], options: Options) -> Asked:
    x, g = operands
    shape = (g[1], x[1], *options["kernel"])
    return Asked(shape, size_of(shape) * g[0] * size_of(g[2:]))


ROWS = (
    Row("conv2d", _conv2d, _conv2d_float64, _conv2d_asks, DoneBy.UNIT, PRODUCTS),
    Row("conv2d_input_gradient", _input_gradient, _input_gradient_float64, _input_gradient_asks,
        DoneBy.UNIT, PRODUCTS),
    Row("conv2d_weight_gradient", _weight_gradient, _weight_gradient_float64, _weight_gradient_asks,
        DoneBy.UNIT, PRODUCTS),
)  # fmt: skip
