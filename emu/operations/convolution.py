"""Convolutions, and their gradients by images and by kernels.

Each has the options of `emu.engine.sliding.Sliding`: `stride` and `padding`, and `dilation` and `groups` where they are
not 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.backends.arrays import namespace
from emu.backends.gathered import Gathered
from emu.engine.matrices import Matrices
from emu.engine.products import write_product
from emu.engine.sliding import Sliding
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, size_of
from emu.operations.operands import carrier
from emu.operations.row import PRODUCTS, DoneBy, Role, Row


def _conv2d(role: Role, x: Value, w: Value, bias: Value | None = None, **slide: Any) -> Value:
    return role.unit(w.format, x.format).conv2d(x, w, bias, **slide)


def conv2d_float64(xp: Any, x: Any, w: Any, bias: Any = None, **slide: Any) -> Any:
    """Return a convolution in the arrays' own arithmetic."""
    how = Sliding.of(**slide)
    columns = _columns(xp, x, w.shape[2:], how)
    # output channels of a group
    share = w.shape[0] // how.groups
    parts = [
        xp.tensordot(part, w[share * group : share * (group + 1)], axes=((3, 4, 5), (1, 2, 3)))
        for group, part in enumerate(xp.split(columns, how.groups, axis=3))
    ]
    y = xp.concatenate(parts, axis=3).transpose(0, 3, 1, 2)
    return y if bias is None else y + bias[:, None, None]


def _columns(xp: Any, x: Any, kernel: Any, how: Sliding) -> Any:
    """Return (N, OH, OW, C, KH, KW): every patch of a padded image."""
    x = xp.pad(x, ((0, 0), (0, 0), *how.padding))
    rows, columns = Sliding(how.stride, dilation=how.dilation).sizes(x.shape[2:], kernel)
    stride, apart = how.stride, how.dilation
    # slices of the whole image, one for each element of the kernel: (N, C, OH, OW) each
    picked = [
        [
            x[:, :, i : i + stride[0] * (rows - 1) + 1 : stride[0], j : j + stride[1] * (columns - 1) + 1 : stride[1]]
            for j in range(0, kernel[1] * apart[1], apart[1])
        ]
        for i in range(0, kernel[0] * apart[0], apart[0])
    ]
    return xp.stack([xp.stack(row, axis=-1) for row in picked], axis=-2).transpose(0, 2, 3, 1, 4, 5)


def conv2d_asks(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for an image for each kernel."""
    x, w = operands[:2]
    shape = (x[0], w[0], *Sliding.of(**options).sizes((x[2], x[3]), (w[2], w[3])))
    return Asked(shape, size_of(shape) * size_of(w[1:]))


def _input_gradient(role: Role, g: Value, w: Value, *, shape: Any, **slide: Any) -> Value:
    """The errors, spread by the stride and padded, convolved with the flipped kernels.

    So each result is one sum of products, in the order in which a Mac adds them.
    """
    how = Sliding.of(**slide)
    extent = how.extent((w.shape[2], w.shape[3]))
    # room for the full correlation: extent - 1 more than the image, so that each element of the image has a result
    spread = namespace(g.array).zeros((*g.shape[:2], shape[2] + extent[0] - 1, shape[3] + extent[1] - 1), g.array.dtype)
    # error i lies at extent - 1 - padding + i * stride of what the flipped kernel slides over
    source, target = zip(
        *(
            _overlap(g.shape[2 + i], spread.shape[2 + i], how.stride[i], extent[i] - 1 - how.padding[i][0])
            for i in (0, 1)
        ),
        strict=True,
    )
    # errors between the strides stay +0: products with 0
    spread[:, :, target[0], target[1]] = g.array[:, :, source[0], source[1]]
    # inputs and outputs change places, and both axes are reversed: a correlation with it is the transpose of the first
    flipped = w.with_array(_exchanged(w.array, how.groups)[:, :, ::-1, ::-1])
    return _conv2d(role, g.with_array(spread), flipped, dilation=how.dilation, groups=how.groups)


def _exchanged(w: Any, groups: int) -> Any:
    """Return kernels (O, C / groups, KH, KW) as those of the way back: (C, O / groups, KH, KW)."""
    if groups == 1:
        return w.transpose(1, 0, 2, 3)
    outputs, channels, *kernel = w.shape
    grouped = w.reshape(groups, outputs // groups, channels, *kernel)
    return grouped.transpose(0, 2, 1, 3, 4).reshape(groups * channels, outputs // groups, *kernel)


def _overlap(size: int, room: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return which of `size` elements are within `room` when element i moves to offset + i * stride, and where to."""
    # the first i with offset + i * stride >= 0, and the last one below `room`; a negative offset comes from padding
    # beyond the extent
    first = max(0, -(offset // stride))
    last = min(size - 1, (room - 1 - offset) // stride)
    start = offset + first * stride
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _input_gradient_float64(xp: Any, g: Any, w: Any, *, shape: Any, **slide: Any) -> Any:
    how = Sliding.of(**slide)
    (above, below), (left, right) = how.padding
    padded = xp.zeros((shape[0], shape[1], above + shape[2] + below, left + shape[3] + right), dtype=g.dtype)
    errors, kernels = xp.split(g, how.groups, axis=1), xp.split(w, how.groups, axis=0)
    (down, along), apart = how.stride, how.dilation
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            parts = [
                xp.tensordot(part, kernel[:, :, i, j], axes=((1,), (0,))).transpose(0, 3, 1, 2)
                for part, kernel in zip(errors, kernels, strict=True)
            ]
            # element (i, j) of the kernel met the padded image at (i, j) + stride * position: there its product is
            # added back
            rows, columns = i * apart[0], j * apart[1]
            padded[
                :,
                :,
                rows : rows + down * (g.shape[2] - 1) + 1 : down,
                columns : columns + along * (g.shape[3] - 1) + 1 : along,
            ] += xp.concatenate(parts, axis=1)
    return padded[:, :, above : above + shape[2], left : left + shape[3]]


def _input_gradient_asks(operands: Sequence[Shape], options: Options) -> Asked:
    w, shape = operands[1], tuple(options["shape"])
    return Asked(shape, size_of(shape) * w[0] // options.get("groups", 1) * size_of(w[2:]))


def _weight_gradient(role: Role, x: Value, g: Value, *, kernel: Any, **slide: Any) -> Value:
    """One product per weight, k running over images, then output rows and columns."""
    how = Sliding.of(**slide)
    inputs = how.joined_patches(carrier(x), tuple(kernel))
    errors = _errors_of_groups(carrier(g), how.groups)
    # each weight is a sum of N * OH * OW products, in that order along k
    shape = (g.shape[1], x.shape[1] // how.groups, *kernel)
    matrices = Matrices(errors, inputs, None, (g.format, x.format, None), shape)
    return role.value(write_product(role.unit(g.format, x.format).description, matrices))


def _errors_of_groups(g: Any, groups: int) -> Gathered:
    """Return errors (N, O, OH, OW) as one matrix for each group: O / groups rows, N * OH * OW columns."""
    whole = Gathered.of_axes(g, (1,), (0, 2, 3))
    if groups == 1:
        return whole
    # the errors of a group begin `share` rows further on in memory
    share = whole.rows.size // groups
    return Gathered(whole.data, groups, int(whole.rows[share] - whole.rows[0]), whole.rows[:share], whole.columns)


def _weight_gradient_float64(xp: Any, x: Any, g: Any, *, kernel: Any, **slide: Any) -> Any:
    how = Sliding.of(**slide)
    columns = _columns(xp, x, kernel, how)
    parts = [
        xp.tensordot(errors, part, axes=((0, 2, 3), (0, 1, 2)))
        for errors, part in zip(xp.split(g, how.groups, axis=1), xp.split(columns, how.groups, axis=3), strict=True)
    ]
    return xp.concatenate(parts, axis=0)


def _weight_gradient_asks(operands: Sequence[Shape], options: Options) -> Asked:
    x, g = operands
    shape = (g[1], x[1] // options.get("groups", 1), *options["kernel"])
    return Asked(shape, size_of(shape) * g[0] * size_of(g[2:]))


ROWS = (
    Row("conv2d", _conv2d, conv2d_float64, conv2d_asks, DoneBy.UNIT, PRODUCTS),
    Row("conv2d_input_gradient", _input_gradient, _input_gradient_float64, _input_gradient_asks,
        DoneBy.UNIT, PRODUCTS),
    Row("conv2d_weight_gradient", _weight_gradient, _weight_gradient_float64, _weight_gradient_asks,
        DoneBy.UNIT, PRODUCTS),
)  # fmt: skip
