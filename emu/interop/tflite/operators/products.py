"""Products: exact sums of elements less their zero points, and what makes elements of the sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emu.datapath import Affine, Requantiser
from emu.interop.steps import Known, Tensor
from emu.interop.tflite.node import Node

#: Rounding of multiplications by integers of 31 bits, as TensorFlow Lite is built unless it is told otherwise.
KIND = "double_rounding"
#: Rows and columns of a window, dilation included: more are a damaged file's.
LARGEST_WINDOW = 1 << 14


def padding_of(node: Node, sizes: tuple[int, ...], window: tuple[int, int], slide: dict[str, Any]) -> dict[str, Any]:
    """Return options of a window with the padding that field 0 names; of an odd number, SAME has more at the end.

    Args:
        node: the operator.
        sizes: of the image.
        window: of the kernel.
        slide: stride and dilation, if there is one.
    """
    if (
        max(extent * apart for extent, apart in zip(window, slide.get("dilation", (1, 1)), strict=True))
        > LARGEST_WINDOW
    ):
        raise node.refuse(
            f"have windows of at most {LARGEST_WINDOW} rows", (window, slide), "convert the network again"
        )
    # 0 is SAME, 1 is VALID
    if node.number(0, "Int8") == 1:
        return {**slide, "padding": ((0, 0), (0, 0))}
    pads: list[tuple[int, int]] = []
    for size, extent, stride, apart in zip(sizes, window, slide["stride"], slide.get("dilation", (1, 1)), strict=True):
        # what ceil(size / stride) windows need beyond the image
        needed = max((-(-size // stride) - 1) * stride + (extent - 1) * apart + 1 - size, 0)
        pads.append((needed // 2, needed - needed // 2))
    return {**slide, "padding": tuple(pads)}


def _weights(node: Node, axis: int) -> tuple[Any, Affine]:
    """Return constant weights and their scales, whose zero points are 0."""
    weights, how = node.constant(1), node.affine(node.stored(1), axis=axis)
    if how.zero.any():
        raise node.refuse("have weights with the zero point 0", int(how.zero.flat[0]), "convert the network again")
    return weights, how


def _bias(node: Node, count: int) -> tuple[Known, ...]:
    """Return the bias, int32 in units of the sums, if there is one."""
    if not node.is_given(2):
        return ()
    bias = node.constant(2)
    if bias.dtype != np.int32 or bias.shape != (count,):
        raise node.refuse(
            f"have an int32 bias of {count}", f"{bias.dtype} of {bias.shape}", "convert the network again"
        )
    return (Known(bias),)


def _convolution(node: Node, kernels: Any, scales: Affine, groups: int, fields: dict[str, int]) -> Tensor:
    """Write a convolution.

    Args:
        node: the operator.
        kernels: (O, C / groups, KH, KW).
        scales: of the kernels, one or one for each output channel.
        groups: of channels.
        fields: where the options have the activation and the dilation, width first.
    """
    x, of = node.images(), node.affine(node.stored(0))
    slide = {
        "stride": (node.number(2, "Int32"), node.number(1, "Int32")),
        # the options have widths first; 1 is the default of a dilation
        "dilation": tuple(node.number(fields["dilation"] + i, "Int32", 1) for i in (1, 0)),
    }
    if min(*slide["stride"], *slide["dilation"]) < 1:
        raise node.refuse("have strides and dilations of at least 1", slide, "convert the network again")
    to = node.to(fields["activation"])
    by = Requantiser(KIND, float(to.how.scale), int(to.how.zero), to.lowest, to.highest)
    options = padding_of(node, x.shape[2:], kernels.shape[2:], slide)
    bias = _bias(node, kernels.shape[0])
    given = {"of": (of, scales), "by": by, "to": to.how.format, "names": ("bias",) if bias else (), "groups": groups}
    y = node.apply("integer_conv2d", x, Known(np.ascontiguousarray(kernels)), *bias, **given, **options)
    return node.from_images(y)


def _conv(node: Node) -> Tensor:
    weights, how = _weights(node, 0)
    channels = node.traced().shape[-1]
    if weights.ndim != 4 or channels % weights.shape[3]:
        raise node.refuse(
            f"have kernels (O, H, W, C) that divide {channels} channels", weights.shape, "convert the network again"
        )
    fields = {"activation": 3, "dilation": 4}
    # (O, H, W, C) to (O, C, H, W); channels over those of a kernel are the groups
    return _convolution(node, weights.transpose(0, 3, 1, 2), how, channels // weights.shape[3], fields)


def _depthwise(node: Node) -> Tensor:
    weights, how = _weights(node, 3)
    channels = node.traced().shape[-1]
    if weights.ndim != 4 or weights.shape[0] != 1 or weights.shape[3] % channels:
        raise node.refuse(
            f"have kernels (1, H, W, O) with a multiple of {channels} channels", weights.shape,
            "convert the network again",
        )  # fmt: skip
    # kernels have the channels last in the file, and first after the transpose
    scales = Affine.of(how.format, how.scale, how.zero, 0)
    # (1, H, W, O) to (O, 1, H, W): each channel is a group
    return _convolution(node, weights.transpose(3, 0, 1, 2), scales, channels, {"activation": 4, "dilation": 5})


def _fully_connected(node: Node) -> Tensor:
    """Its reference kernel multiplies sums by scale * scale / scale of the result in binary64."""
    if node.number(1, "Int8") or node.number(3, "Bool"):
        raise node.refuse("have weights of the format DEFAULT and elements", "another one", "convert the network again")
    x, of = node.traced(), node.affine(node.stored(0))
    weights, how = node.constant(1), node.affine(node.stored(1), axis=0)
    # one zero point for the tensor is allowed, one for each row is not
    if how.scale.ndim and how.zero.any():
        raise node.refuse("have weights with the zero point 0", int(how.zero[0]), "convert the network again")
    count, length = weights.shape[0], weights.shape[-1]
    # only if the last axis is the depth; else the result has two axes
    keeps = node.number(2, "Bool") and x.shape[-1] == length
    if weights.ndim != 2 or int(np.prod(x.shape)) % length:
        raise node.refuse(f"have a matrix for {x.shape}", weights.shape, "convert the network again")
    rows = node.reshaped(x, (int(np.prod(x.shape)) // length, length), part="rows")
    bias = _bias(node, count)
    sums = node.apply(
        "integer_matmul", rows, Known(np.ascontiguousarray(weights.T)), *bias, part="sums",
        of=(of, Affine.of(how.format, 1.0, int(how.zero.flat[0]))), names=("bias",) if bias else (),
    )  # fmt: skip
    to = node.to(0)
    y = node.apply("scale_sums", sums, of=(of.scale, how.scale), to=to)
    return node.reshaped(y, (*x.shape[:-1], count), part="kept") if keeps else y


ROWS: dict[str, Callable[[Node], Tensor]] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
}
