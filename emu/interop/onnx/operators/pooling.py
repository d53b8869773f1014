"""Pooling: the largest value or the mean of windows, and of whole images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from emu.interop.onnx.node import Node, Tensor, Traced
from emu.interop.onnx.operators.products import as_before, as_images, windows_of


def _pooled(node: Node, primitive: str, **more: Any) -> Sequence[Tensor]:
    x = node.traced()
    kernel = list(node.get("kernel_shape"))
    options = windows_of(node, x.shape[2:], kernel)
    # of a sequence: windows of one row
    window = (kernel[0], kernel[1]) if len(kernel) == 2 else (1, kernel[0])
    images = as_images(node, x)
    beyond = (0, 0)
    if node.get("ceil_mode", 0):
        options, beyond = _with_last_windows(images, window, options)
    # what lies beyond the padding is never counted in a mean
    if primitive == "avg_pool":
        more["beyond"] = beyond
    elif not x.is_float:
        primitive = "integer_max_pool"
    return [as_before(node, node.apply(primitive, images, window=window, **options, **more), x)]


def _with_last_windows(
    x: Traced, window: tuple[int, int], options: dict[str, Any]
) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return options whose padding has room for the last, incomplete windows, and how much that is.

    A window that would begin beyond the image and its padding on the left is left out, as in PyTorch and onnxruntime.
    """
    sides: list[tuple[int, int]] = []
    beyond: list[int] = []
    for axis in (0, 1):
        size, (before, after) = x.shape[2 + axis], options["padding"][axis]
        step, extent = options["stride"][axis], (window[axis] - 1) * options["dilation"][axis] + 1
        # index of the last window: ceil(...) + 1 of them begin in the padded image
        last = math.ceil((size + before + after - extent) / step)
        if last * step >= size + before:
            last -= 1
        room = max(last * step + extent - (size + before + after), 0)
        sides.append((before, after + room))
        beyond.append(room)
    return {**options, "padding": tuple(sides)}, (beyond[0], beyond[1])


def _max_pool(node: Node) -> Sequence[Tensor]:
    if node.output_count > 1:
        raise node.refuse("have one output", f"{node.output_count}", "export the network without indices of maxima")
    return _pooled(node, "max_pool")


def _average_pool(node: Node) -> Sequence[Tensor]:
    return _pooled(node, "avg_pool", counts_padding=bool(node.get("count_include_pad", 0)))


def _global(primitive: str) -> Any:
    def row(node: Node) -> Sequence[Tensor]:
        x = node.traced()
        count = math.prod(x.shape[2:])
        flat = node.reshaped(x, (*x.shape[:2], 1, count), part="flat")
        y = node.apply(primitive, flat, window=(1, count), stride=(1, count))
        return [node.reshaped(y, (*x.shape[:2], *([1] * len(x.shape[2:]))), part="kept")]

    return row


ROWS = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global("avg_pool"),
    "GlobalMaxPool": _global("max_pool"),
}
