"""Convolutions and products of matrices. A constant factor is the weight of its step, a constant addend its bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.interop.onnx.node import Dequantised, Known, Node, Tensor, Traced


def windows_of(node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> dict[str, Any]:
    """Return how the windows of a node slide over rows and columns; one axis is the columns of a single row.

    Args:
        node: a convolution or pooling.
        sizes: of the images, along the axes that windows slide along.
        kernel: of a window, along the same axes.

    Raises:
        Refused: there are more than two axes.
    """
    axes = len(sizes)
    if axes not in (1, 2):
        raise node.refuse("slide along one or two axes", f"{axes}", "only sequences and images are computed")
    strides = list(node.get("strides") or [1] * axes)
    dilations = list(node.get("dilations") or [1] * axes)
    pads = list(node.get("pads") or [0] * (2 * axes))
    automatic = node.get("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        # SAME: ceil(size / stride) windows; the padding that these need in all
        whole = [
            max((math.ceil(size / step) - 1) * step + (n - 1) * apart + 1 - size, 0)
            for size, step, n, apart in zip(sizes, strides, kernel, dilations, strict=True)
        ]
        # SAME_UPPER has the odd row at the end, SAME_LOWER at the beginning
        lesser, greater = [pad // 2 for pad in whole], [pad - pad // 2 for pad in whole]
        pads = lesser + greater if automatic == "SAME_UPPER" else greater + lesser
    elif automatic == "VALID":
        pads = [0] * (2 * axes)
    sides = [(pads[i], pads[i + axes]) for i in range(axes)]
    if any(pad < 0 for side in sides for pad in side):
        raise node.refuse("have `pads` of at least 0", pads, "slice the images before it")
    options: dict[str, Any] = {"stride": tuple(strides), "padding": tuple(sides), "dilation": tuple(dilations)}
    # a sequence is an image of one row
    if axes == 1:
        options = {"stride": (1, strides[0]), "padding": ((0, 0), sides[0]), "dilation": (1, dilations[0])}
    return options


def as_images(node: Node, x: Traced) -> Traced:
    """Return (N, C, L) as (N, C, 1, L), and images as they are."""
    return node.reshaped(x, (*x.shape[:2], 1, x.shape[2]), part="rows") if len(x.shape) == 3 else x


def as_before(node: Node, y: Traced, x: Traced | Dequantised) -> Traced:
    """Return images of one row as sequences, if `x` is one."""
    return node.reshaped(y, (*y.shape[:2], y.shape[3]), part="columns") if len(x.shape) == 3 else y


def _conv(node: Node) -> Sequence[Tensor]:
    x, w = node.traced(), node.operand(1)
    options = windows_of(node, x.shape[2:], w.shape[2:])
    groups = int(node.get("group", 1))
    operands: list[Tensor] = [as_images(node, x), as_kernels(node, w)]
    bias = node.given(2)
    if bias is not None:
        operands.append(bias)
    area = math.prod(w.shape[2:])
    # inputs of an output: channels of a group times the area; outputs of an input likewise
    fans = (w.shape[1] * area, w.shape[0] // groups * area)
    y = node.apply("conv2d", *operands, own={1: "weight", 2: "bias"}, fans=fans, groups=groups, **options)
    return [as_before(node, y, x)]


def _transposed_conv(node: Node) -> Sequence[Tensor]:
    """The way back of a convolution with the same kernels, whole; then what `pads` name is cut off.

    `output_padding` adds rows and columns at the end, beyond every window: zeros.
    """
    x, w = node.traced(), node.operand(1)
    axes = len(x.shape) - 2
    if axes not in (1, 2):
        raise node.refuse("slide along one or two axes", f"{axes}", "only sequences and images are computed")
    strides, dilations, more = (
        list(node.get(name) or [default] * axes)
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    # size without padding: every input's window is in it
    whole = [
        step * (size - 1) + (n - 1) * apart + 1
        for step, size, n, apart in zip(strides, x.shape[2:], w.shape[2:], dilations, strict=True)
    ]
    cut = _cut_of(node, x, [size + add for size, add in zip(whole, more, strict=True)], strides)
    images, kernels = as_images(node, x), as_kernels(node, w)
    options: dict[str, Any] = {"groups": int(node.get("group", 1)), "padding": ((0, 0), (0, 0))}
    first = [1] if axes == 1 else []
    pairs = {"stride": first + strides, "dilation": first + dilations, "sizes": first + whole}
    options |= {name: tuple(pair) for name, pair in pairs.items()}
    fans = (w.shape[0] * math.prod(w.shape[2:]), w.shape[1] * math.prod(w.shape[2:]))
    y = node.apply("transposed_conv2d", images, kernels, own={1: "weight"}, fans=fans, **options)
    rows = [(0, 0)] if axes == 1 else []
    # (before, after) of N, C, rows, columns: below 0 cuts, above 0 adds zeros
    sides = [(0, 0), (0, 0), *rows, *((-before, add - after) for (before, after), add in zip(cut, more, strict=True))]
    y = _surrounded(node, y, sides)
    bias = node.given(2)
    if bias is not None:
        column = (y.shape[1], 1, 1)
        addend = (
            Known(bias.array.reshape(column), bias.name or "bias")
            if isinstance(bias, Known)
            else node.reshaped(bias, column, part="bias")
        )
        y = node.elementwise("add", y, addend, part="add")
    return [as_before(node, y, x)]


def _cut_of(node: Node, x: Traced, whole: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return what is cut off at both ends of each axis of a transposed convolution."""
    axes = len(whole)
    pads, wanted, automatic = node.get("pads"), node.get("output_shape"), node.get("auto_pad", "NOTSET")
    # explicit pads; else they follow from the size of the result
    if wanted is None and automatic in ("NOTSET", "VALID"):
        given = [0] * (2 * axes) if pads is None or automatic == "VALID" else list(pads)
        return [(given[i], given[i + axes]) for i in range(axes)]
    sizes = wanted or [size * step for size, step in zip(x.shape[2:], strides, strict=True)]
    cut = [size - want for size, want in zip(whole, sizes, strict=True)]
    halves = [(n // 2, n - n // 2) for n in cut]
    # SAME_UPPER cuts the odd row at the end; all others at the beginning
    return halves if automatic == "SAME_UPPER" else [(after, before) for before, after in halves]


def _surrounded(node: Node, y: Traced, sides: Sequence[tuple[int, int]]) -> Traced:
    """Write steps that cut off what is below 0 at the ends of axes, and add zeros for what is above."""
    for axis, (before, after) in enumerate(sides):
        if min(before, after) < 0:
            places = np.arange(max(-before, 0), y.shape[axis] - max(-after, 0))
            y = node.apply("take", y, part=f"cut{axis}", axis=axis, places=places)
    added = tuple((max(before, 0), max(after, 0)) for before, after in sides)
    return node.apply("surround", y, part="zeros", pads=added, value=0.0) if any(map(any, added)) else y


def as_kernels(node: Node, w: Tensor) -> Tensor:
    """Return (O, C, K) as (O, C, 1, K), and kernels of images as they are."""
    if isinstance(w, Traced):
        return as_images(node, w)
    return Known(w.array[:, :, None] if w.array.ndim == 3 else w.array, w.name or "weight")


def _gemm(node: Node) -> Sequence[Tensor]:
    """Alpha * a b + beta * c; constants alpha and beta are taken into b and c."""
    alpha, beta = float(node.get("alpha", 1.0)), float(node.get("beta", 1.0))
    a, b, c = node.operand(0), node.operand(1), node.given(2)
    # no constant weight on the right: alpha and beta are steps of their own
    if isinstance(a, Known) or isinstance(b, Traced):
        a = _transposed(node, a, "a") if node.get("transA", 0) else a
        b = _transposed(node, b, "b") if node.get("transB", 0) else b
        y = _product(node, a, b)
        y = y if alpha == 1 else node.apply("multiply", y, alpha, part="scaled")
        return [y if c is None else _plus(node, y, c, beta)]
    a = _transposed(node, a, "a") if node.get("transA", 0) else a
    weight = b.array if node.get("transB", 0) else b.array.T
    y, rest = _linear(node, a, np.ascontiguousarray(weight * np.float32(alpha)), c, beta)
    return [y if rest is None else _plus(node, y, rest, beta)]


def _transposed(node: Node, x: Tensor, part: str) -> Tensor:
    if isinstance(x, Known):
        return Known(np.ascontiguousarray(x.array.T), x.name)
    return node.transposed(x, (1, 0), part=f"{part}_transposed")


def _linear(node: Node, x: Tensor, weight: Any, c: Tensor | None, beta: float = 1.0) -> tuple[Traced, Tensor | None]:
    """Write a product with a constant matrix (out, in), and return it with the addend that is not part of it."""
    fans = (weight.shape[1], weight.shape[0])
    bias: list[Known] = []
    # one number, or one for each output: anything else is added after the product
    if isinstance(c, Known) and c.array.size in (1, weight.shape[0]) and max(c.shape[:-1], default=1) == 1:
        whole = np.broadcast_to(c.array.reshape(-1), (weight.shape[0],))
        bias, c = [Known(np.ascontiguousarray(whole * np.float32(beta)), "bias")], None
    own = {1: "weight", 2: "bias"}
    return node.apply("linear", x, Known(weight, "weight"), *bias, own=own, fans=fans), c


def _plus(node: Node, y: Traced, c: Tensor, beta: float) -> Traced:
    if beta != 1:
        c = (
            Known(c.array * np.float32(beta), c.name)
            if isinstance(c, Known)
            else node.apply("multiply", c, beta, part="c")
        )
    return node.elementwise("add", y, c, part="add")


def _product(node: Node, a: Tensor, b: Tensor, part: str = "") -> Traced:
    """Write a product of matrices with shapes as in numpy.matmul; a constant factor is the weight."""
    own = {i: "weight" for i, x in enumerate((a, b)) if isinstance(x, Known)}
    # as numpy.matmul: a vector on the left is a row, on the right a column, and that axis goes away again
    vectors = len(a.shape) == 1, len(b.shape) == 1
    left, right = (
        _with_axis(node, x, axis, f"{part}{side}") if is_vector else x
        for x, axis, side, is_vector in ((a, 0, "row", vectors[0]), (b, 1, "column", vectors[1]))
    )
    y = node.apply("matmul", left, right, part=part, own=own)
    shape = list(y.shape)
    if vectors[1]:
        del shape[-1]
    if vectors[0]:
        del shape[-1 if vectors[1] else -2]
    return node.reshaped(y, shape, part=f"{part}vector") if any(vectors) else y


def _with_axis(node: Node, x: Tensor, axis: int, part: str) -> Tensor:
    shape = (1, *x.shape) if axis == 0 else (*x.shape, 1)
    return Known(x.array.reshape(shape), x.name) if isinstance(x, Known) else node.reshaped(x, shape, part=part)


def _matmul(node: Node) -> Sequence[Tensor]:
    a, b = node.operand(0), node.operand(1)
    if isinstance(a, Traced) and isinstance(b, Known) and b.array.ndim == 2 and len(a.shape) > 1:
        return [_linear(node, a, np.ascontiguousarray(b.array.T), None)[0]]
    return [_product(node, a, b)]


ROWS = {"Conv": _conv, "ConvTranspose": _transposed_conv, "Gemm": _gemm, "MatMul": _matmul}
