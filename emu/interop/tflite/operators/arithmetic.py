"""Two tensors element by element, pools, means, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emu.formats import Fixed
from emu.interop.steps import Tensor, Traced
from emu.interop.tflite.node import Node
from emu.interop.tflite.operators.products import padding_of
from emu.operations.fixed_point import OPERAND_BITS, exponentials
from emu.operations.reference_integers import LEFT_SHIFT, SUM_FRACTION_BITS, Written

#: Scale and zero point of shares: 0..1 in 256 steps.
SHARES = (1 / 256, -128)


def _both(node: Node) -> tuple[tuple[Tensor, Tensor], tuple[Any, Any]]:
    (a, of_a), (b, of_b) = node.elements(0), node.elements(1)
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        raise node.refuse("read what the network computes", "two constants", "fold them beforehand")
    return (a, b), (of_a, of_b)


def _added(sign: int) -> Callable[[Node], Tensor]:
    def row(node: Node) -> Tensor:
        operands, of = _both(node)
        to = node.to(0)
        # the kernel's multipliers must be below 1: 2 * largest scale / (2**20 * scale of the result)
        if 2.0 * max(float(how.scale) for how in of) >= 2.0**LEFT_SHIFT * float(to.how.scale):
            raise node.refuse(
                "have a result's scale above 2**-19 of its operands'", float(to.how.scale), "calibrate it again"
            )
        return node.apply("add_shifted", *operands, of=of, to=to, sign=sign)

    return row


def _multiply(node: Node) -> Tensor:
    operands, of = _both(node)
    return node.apply("multiply_requantised", *operands, of=of, to=node.to(0))


def _window(node: Node, x: Traced) -> dict[str, Any]:
    """Return window, stride and padding of a pool, whose options have widths first."""
    stride_w, stride_h, width, height = (node.number(field, "Int32") for field in (1, 2, 3, 4))
    if min(stride_w, stride_h, width, height) < 1:
        raise node.refuse("have windows and strides of at least 1", (height, width), "convert the network again")
    return {
        "window": (height, width),
        **padding_of(node, x.shape[2:], (height, width), {"stride": (stride_h, stride_w)}),
    }


def _average_pool(node: Node) -> Tensor:
    to = node.to(5)
    node.require_same_scale(to, 0)
    x = node.images()
    return node.from_images(node.apply("average_windows", x, to=to, **_window(node, x)))


def _max_pool(node: Node) -> Tensor:
    to = node.to(5)
    node.require_same_scale(to, 0)
    x = node.images()
    y = node.apply("integer_max_pool", x, **_window(node, x))
    return node.from_images(_bounded(node, y, to))


def _bounded(node: Node, y: Traced, to: Written) -> Traced:
    """Return elements bounded as a fused activation does, by a step if it bounds any."""
    fmt = to.how.format
    assert isinstance(fmt, Fixed)
    if (to.lowest, to.highest) == (fmt.min, fmt.max):
        return y
    return node.table(y, lambda q: q, to, part="bounded")


def _mean(node: Node) -> Tensor:
    x, of = node.traced(), node.affine(node.stored(0))
    axes = tuple(sorted({node.axis(int(axis), len(x.shape)) for axis in node.constant(1).reshape(-1)}))
    if 0 in axes:
        raise node.refuse("keep the first axis, that of examples", f"the axes {axes}", "take the mean outside")
    y = node.apply("mean_of_axes", x, axes=axes, of=of, to=node.to())
    if not node.number(0, "Bool"):
        return y
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    # the primitive leaves the axes out
    return node.reshaped(y, kept, part="kept")


def _softmax(node: Node) -> Tensor:
    x, of = node.traced(), node.affine(node.stored(0))
    to = node.to()
    require_scale(node, to, *SHARES)
    # each share is at most 1: fewer than 2**12 of them fit the 12 bits above the fraction bits of their sum
    most = 1 << (31 - SUM_FRACTION_BITS)
    if x.shape[-1] >= most:
        raise node.refuse(f"have fewer than {most} classes", x.shape[-1], "compute it outside the network")
    step = float(np.float32(node.number(0, "Float32"))) * float(of.scale)
    # the multiplier of distances, step * 2**26, must be above 1: it is shifted to the left only
    if step * (1 << (31 - OPERAND_BITS)) <= 1:
        raise node.refuse("have a scale times beta above 2**-26", step, "calibrate it again")
    return node.apply("softmax_of_table", x, table=exponentials(step), to=to)


def require_scale(node: Node, to: Written, scale: float, zero: int) -> None:
    """Raise Refused unless the result has the scale and the zero point that the kernel takes for granted."""
    if (float(to.how.scale), int(to.how.zero)) != (scale, zero):
        raise node.refuse(
            f"write the scale {scale:g} and the zero point {zero}",
            f"{float(to.how.scale):g} and {int(to.how.zero)}",
            "convert the network again",
        )


ROWS: dict[str, Callable[[Node], Tensor]] = {
    "ADD": _added(1),
    "SUB": _added(-1),
    "MUL": _multiply,
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "MEAN": _mean,
    "SOFTMAX": _softmax,
}
