"""Convolutions: the product of the weights with the patches of the input.

k runs over channel, kernel row, kernel column; zero padding is part of the patches.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous, lasting, namespace, on_host
from emu.backends.gathered import Gathered
from emu.datapath.stage import require_placed
from emu.engine.delivery import written_to
from emu.engine.description import PRODUCT_OPTIONS, ProductOptions, call_of
from emu.engine.matrices import Matrices
from emu.engine.operands import in_format
from emu.engine.path import path_of
from emu.engine.planner import Plan
from emu.engine.products import as_addend_operand, write_product
from emu.errors import ShapeError
from emu.formats import Format, Value, parse
from emu.formats.integers import LARGEST, as_integer, as_pair

Array = NDArray[Any]


def patches_of(x: Array, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Gathered:
    """Return the patches that a convolution reads, as positions in the padded images.

    Args:
        x: images, shape `(N, C, H, W)`.
        kernel: rows and columns.
        stride: steps down and right.
        padding: zeros above and below, left and right.

    Returns:
        Shape `(N, C * kernel rows * kernel columns, OH * OW)`.

    Raises:
        ShapeError: images of other axes, integers that are none or too small, or a kernel larger than the padded image.
    """
    kernel, stride = as_pair("kernel", kernel, 1), as_pair("stride", stride, 1)
    _require_windows(x.shape, kernel, stride, padding := as_pair("padding", padding, 0), "kernel")
    return _patches_of(x, kernel, stride, padding)


def _patches_of(x: Array, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Gathered:
    images = _padded(x, padding)
    rows, columns = _offsets_of_patches(images.shape[1:], kernel, stride)
    return Gathered(images.reshape(-1), images.shape[0], math.prod(images.shape[1:]), rows, columns)


def windows_of(x: Array, window: int, stride: int) -> Gathered:
    """Return the windows that pooling reads, as positions in the images.

    Args:
        x: images, shape `(N, C, H, W)`.
        window: rows and columns of a window.
        stride: steps down and right.

    Returns:
        Shape `(N * C, OH * OW, window * window)`.

    Raises:
        ShapeError: images of other axes, integers that are none or too small, or a window larger than the image.
    """
    window, stride = (
        as_integer(name, size, 1, LARGEST, error=ShapeError) for name, size in (("window", window), ("stride", stride))
    )
    _require_windows(x.shape, (window, window), (stride, stride), (0, 0), "window")
    n, channels, height, width = x.shape
    elements, positions = _offsets_of_patches((1, height, width), (window, window), (stride, stride))
    return Gathered(contiguous(x).reshape(-1), n * channels, height * width, positions, elements)


def _require_windows(
    shape: tuple[int, ...], size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], name: str
) -> None:
    """Raise ShapeError unless windows of a size lie in images."""
    if len(shape) != 4:
        raise ShapeError(f"`x` must be images (N, C, H, W), got shape {shape}; give axes of size 1")
    if min(convolved_size(shape[2 + i], size[i], stride[i], padding[i]) for i in (0, 1)) < 1:
        raise ShapeError(
            f"`{name}` must fit the padded image, got {size[0]} x {size[1]} for x {shape}, padding {padding}; choose a "
            "smaller one"
        )


def _padded(x: Array, padding: tuple[int, int]) -> Array:
    down, right = padding
    if (down, right) == (0, 0):
        return contiguous(x)
    n, channels, height, width = x.shape
    # zeros are stored, so that every patch is read by the same offsets, without a test at the edges
    images = namespace(x).zeros((n, channels, height + 2 * down, width + 2 * right), x.dtype)
    images[:, :, down : down + height, right : right + width] = x
    return images


@lru_cache(maxsize=256)
def _offsets_of_patches(
    image: tuple[int, int, int], kernel: tuple[int, int], stride: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of the kernel's elements, and of the kernel's positions, in an image of (C, H, W)."""
    channels, height, width = image
    out = [convolved_size(image[1 + i], kernel[i], stride[i], 0) for i in (0, 1)]
    # element (c, i, j) of the kernel at position (p, q) is element (c, p * stride + i, q * stride + j) of the image:
    # the offset is a sum of both parts
    element = np.arange(channels)[:, None, None] * (height * width) + (
        np.arange(kernel[0])[:, None] * width + np.arange(kernel[1])
    )
    position = np.arange(out[0])[:, None] * (stride[0] * width) + np.arange(out[1]) * stride[1]
    return lasting(element.reshape(-1)), lasting(position.reshape(-1))


def convolved_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Return the output size of a convolution or pooling along one axis; below 1 if the kernel does not fit."""
    return (size + 2 * padding - kernel) // stride + 1


def conv2d(
    x: Any,
    w: Any,
    *,
    out_format: str | Format,
    x_format: str | Format | None = None,
    w_format: str | Format | None = None,
    bias: Any = None,
    bias_format: str | Format | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    **options: Unpack[ProductOptions],
) -> Array:
    """Return the two-dimensional convolution (cross-correlation) of images with kernels.

    Args:
        x: images, values of `x_format`, shape `(N, C, H, W)`; or an `emu.value`.
        w: kernels, values of `w_format`, shape `(O, C, KH, KW)`.
        out_format: format written.
        x_format: format of `x`; not needed of a value.
        w_format: format of `w`.
        bias: one value per output channel, shape `(O,)`: the unit's addend.
        bias_format: format of the bias.
        stride: steps down and right.
        padding: zeros around the image.
        **options: those of `matmul`; recorded random bits have the shape of the result.

    Returns:
        Carrier array of `out_format`, shape `(N, O, OH, OW)`.

    Raises:
        FormatError: an operand holds a value outside its format, or has none.
        ShapeError: channels differ, or the kernel is larger than the padded image.

    Source: docs/concepts/products.md, "The order of the terms".
    """
    unit, out, check = call_of("conv2d", out_format, options, PRODUCT_OPTIONS)
    given = (x, x_format), (w, w_format), (bias, bias_format)
    matrices = patches_and_kernels(*given, stride, padding, check=check)
    values = write_product(unit, matrices)
    return written_to(out, values)


def patches_and_kernels(
    x: tuple[Any, str | Format | None],
    w: tuple[Any, str | Format | None],
    bias: tuple[Any, str | Format | None],
    stride: tuple[int, int],
    padding: tuple[int, int],
    *,
    check: bool,
) -> Matrices:
    """Return a convolution as a matrix product, from arrays and their formats: kernels times patches, plus a bias.

    Args:
        x: images (N, C, H, W).
        w: kernels (O, C, KH, KW).
        bias: one value per output channel, (O,), or None.
        stride: steps down and right.
        padding: zeros around the image.
        check: whether operands are checked to belong to their formats.

    Returns:
        Matrices whose result has the shape (N, O, OH, OW).

    Raises:
        FormatError: an operand holds a value outside its format, or has none.
        ShapeError: channels differ, or the kernel is larger than the padded image.
    """
    stride, padding = as_pair("stride", stride, 1), as_pair("padding", padding, 0)
    images, fx = in_format(x[0], x[1], "x", check=check)
    kernels, fw = in_format(w[0], w[1], "w", check=check)
    third, fb = as_addend_operand(*bias, "bias", check=check)
    sizes = _sizes_of(images.shape, kernels.shape, stride, padding)
    channels = kernels.shape[0]
    return Matrices(
        kernels.reshape(1, channels, math.prod(kernels.shape[1:])),
        _patches_of(
            images, (kernels.shape[2], kernels.shape[3]), stride, padding
        ),  # `_sizes_of` has checked that it fits
        None if third is None else _one_per_channel(third, channels)[None],
        (fw, fx, fb),
        (images.shape[0], channels, *sizes),
    )


@lru_cache(maxsize=1024)
def _sizes_of(
    images: tuple[int, ...], kernels: tuple[int, ...], stride: tuple[int, int], padding: tuple[int, int]
) -> tuple[int, int]:
    """Return rows and columns of a convolution's result.

    Raises:
        ShapeError: channels differ, or the kernel is larger than the padded image.
    """
    if len(images) != 4 or len(kernels) != 4 or images[1] != kernels[1]:
        raise ShapeError(
            f"conv2d: x must be (N, C, H, W) and w (O, C, KH, KW) with the same C, got {images} and {kernels}; "
            "reshape one of them"
        )
    rows, columns = (convolved_size(images[2 + i], kernels[2 + i], stride[i], padding[i]) for i in (0, 1))
    if min(rows, columns) < 1:
        raise ShapeError(
            f"conv2d: the kernel must fit the padded image, got x {images}, w {kernels}, padding {padding}; "
            "pad more, or choose a smaller one"
        )
    return rows, columns


def _one_per_channel(bias: Array, channels: int) -> Array:
    if bias.shape != (channels,):
        raise ShapeError(
            f"conv2d: the bias must have one value per output channel, shape ({channels},), got {bias.shape}; "
            "reshape it"
        )
    return bias[:, None]


def _plan_conv2d(
    x: Any,
    w: Any,
    *,
    out_format: str | Format | None = None,
    x_format: str | Format | None = None,
    w_format: str | Format | None = None,
    bias: Any = None,
    bias_format: str | Format | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    **options: Unpack[ProductOptions],
) -> Plan:
    given = (on_host(x), x_format), (on_host(w), w_format), (None, None)
    matrices = patches_and_kernels(*given, stride, padding, check=False)
    third = bias.format if isinstance(bias, Value) else None if bias_format is None else parse(bias_format)
    formats = (*matrices.formats[:2], None if third is None else require_placed(third))
    written = formats[1] if out_format is None else out_format
    unit = call_of("conv2d", written, options, PRODUCT_OPTIONS)[0]
    return path_of(unit, matrices._replace(formats=formats)).plan


setattr(conv2d, "plan", _plan_conv2d)  # noqa: B010 - read by explain
