"""Convolutions: the product of the weights with the patches of the input.

k runs over channel, kernel row, kernel column; zero padding is part of the patches.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous, lasting, namespace, on_host
from emu.backends.gathered import Gathered
from emu.datapath import Mac
from emu.engine.elementwise import require_options
from emu.engine.planner import Plan, explain
from emu.engine.products import PRODUCT_OPTIONS, matmul, product, write_product, written_to
from emu.engine.request import Request, as_operand
from emu.engine.sources import take_source
from emu.engine.work import WorkRecord
from emu.errors import FormatError, ShapeError
from emu.formats import Format

Array = NDArray[Any]


def patches_of(x: Array, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Gathered:
    """Return the patches a convolution sees, as places in the padded images.

    Args:
        x: images, shape `(N, C, H, W)`.
        kernel: rows and columns.
        stride: steps down and right.
        padding: zeros above and below, left and right.

    Returns:
        Shape `(N, C * kernel rows * kernel columns, OH * OW)`.
    """
    images = _padded(x, padding)
    rows, columns = _places_of_patches(images.shape[1:], tuple(kernel), tuple(stride))
    return Gathered(images.reshape(-1), images.shape[0], math.prod(images.shape[1:]), rows, columns)


def windows_of(x: Array, window: int, stride: int) -> Gathered:
    """Return the windows that pooling sees, as places in the images.

    Args:
        x: images, shape `(N, C, H, W)`.
        window: rows and columns of a window.
        stride: steps down and right.

    Returns:
        Shape `(N * C, OH * OW, window * window)`.
    """
    n, channels, height, width = x.shape
    elements, places = _places_of_patches((1, height, width), (window, window), (stride, stride))
    return Gathered(contiguous(x).reshape(-1), n * channels, height * width, places, elements)


def _padded(x: Array, padding: tuple[int, int]) -> Array:
    down, right = padding
    if (down, right) == (0, 0):
        return contiguous(x)
    n, channels, height, width = x.shape
    images = namespace(x).zeros((n, channels, height + 2 * down, width + 2 * right), x.dtype)
    images[:, :, down : down + height, right : right + width] = x
    return images


@lru_cache(maxsize=256)
def _places_of_patches(
    image: tuple[int, int, int], kernel: tuple[int, int], stride: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offset of each kernel element and of each place it is laid on, in an image of (C, H, W)."""
    channels, height, width = image
    out = [convolved_size(image[1 + i], kernel[i], stride[i], 0) for i in (0, 1)]
    element = np.arange(channels)[:, None, None] * (height * width) + (
        np.arange(kernel[0])[:, None] * width + np.arange(kernel[1])
    )
    place = np.arange(out[0])[:, None] * (stride[0] * width) + np.arange(out[1]) * stride[1]
    return lasting(element.reshape(-1)), lasting(place.reshape(-1))


def convolved_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Return the output size of a convolution or pooling along one axis; below 1 if the kernel does not fit."""
    return (size + 2 * padding - kernel) // stride + 1


def conv2d(
    x: Any,
    w: Any,
    *,
    x_format: str | Format,
    w_format: str | Format,
    out_format: str | Format,
    bias: Any = None,
    bias_format: str | Format | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    out: Array | None = None,
    check: bool = True,
    **options: Any,
) -> Array:
    """Return the two-dimensional convolution (cross-correlation) of images with kernels.

    Args:
        x: images, values of `x_format`, shape `(N, C, H, W)`.
        w: kernels, values of `w_format`, shape `(O, C, KH, KW)`.
        x_format: format of `x`.
        w_format: format of `w`.
        out_format: format written.
        bias: one value per output channel, shape `(O,)`: the unit's addend.
        bias_format: format of the bias.
        stride: steps down and right.
        padding: zeros around the image.
        out: where to write: carrier dtype of `out_format`, shape of the result.
        check: whether to check that operands hold values of their formats.
        **options: those of `matmul`; recorded random bits have the shape of the result.

    Returns:
        Carrier array of `out_format`, shape `(N, O, OH, OW)`.

    Raises:
        ShapeError: channels differ, or the kernel is larger than the padded image.
    """
    require_options("conv2d", options, PRODUCT_OPTIONS)
    stride, padding = _pair(stride), _pair(padding)
    images, fx = as_operand(x, x_format, "x", check=check)
    kernels, fw = as_operand(w, w_format, "w", check=check)
    assert fx is not None
    assert fw is not None
    sizes = _sizes_of(images.shape, kernels.shape, stride, padding)
    shape, flat = (images.shape[0], kernels.shape[0], *sizes), (images.shape[0], kernels.shape[0], math.prod(sizes))
    source = take_source(options, shape, flat)
    addend = None if bias is None else _bias_column(bias, bias_format, kernels.shape[0], check=check)
    y = product(
        kernels.reshape(kernels.shape[0], -1),
        patches_of(images, (kernels.shape[2], kernels.shape[3]), stride, padding),
        a_format=fw,
        b_format=fx,
        out_format=out_format,
        addend=addend,
        addend_format=bias_format,
        random=source,
        check=False,
        **options,
    ).reshape(shape)
    return y if out is None else written_to(out, y)


def _pair(given: Any) -> Any:
    """Return what was given as a tuple; `_sizes_of` says so where it is no pair."""
    pair: Any = tuple(given) if hasattr(given, "__iter__") else (given,)
    return pair


@lru_cache(maxsize=1024)
def _sizes_of(
    images: tuple[int, ...], kernels: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> tuple[int, int]:
    """Return rows and columns of a convolution's result.

    Raises:
        ShapeError: channels differ, the stride or padding is none, or the kernel is larger than the padded image.
    """
    if len(images) != 4 or len(kernels) != 4 or images[1] != kernels[1]:
        raise ShapeError(
            f"conv2d: x must be (N, C, H, W) and w (O, C, KH, KW) with the same C, got {images} and {kernels}"
        )
    if any(len(pair) != 2 for pair in (stride, padding)) or min(stride) < 1 or min(padding) < 0:
        raise ShapeError(
            "conv2d: `stride` must be two integers of at least 1 and `padding` two of at least 0, "
            f"got {stride} and {padding}"
        )
    rows, columns = (convolved_size(images[2 + i], kernels[2 + i], stride[i], padding[i]) for i in (0, 1))
    if min(rows, columns) < 1:
        raise ShapeError(
            f"conv2d: the kernel must fit the padded image, got x {images}, w {kernels}, padding {padding}"
        )
    return rows, columns


def write_convolution(
    images: Array,
    kernels: Array,
    bias: Array | None,
    formats: tuple[Format, Format, Format | None],
    stride: tuple[int, int],
    padding: tuple[int, int],
    mac: Mac,
    request: Request,
    log: list[WorkRecord] | None = None,
) -> Array:
    """Write the convolution of images with kernels as the request says.

    Args:
        images: carriers (N, C, H, W).
        kernels: carriers (O, C, KH, KW).
        bias: carriers (O,), or None.
        formats: of the kernels, the images and the bias.
        stride: steps down and right.
        padding: zeros around the image.
        mac: the unit.
        request: stage, random bits, register, flags, backend.
        log: is given a record of the work.

    Returns:
        Carriers (N, O, OH, OW).

    Raises:
        ShapeError: as `conv2d`.
    """
    sizes = _sizes_of(images.shape, kernels.shape, tuple(stride), tuple(padding))
    out_channels, kernel = kernels.shape[0], (kernels.shape[2], kernels.shape[3])
    rows = kernels.reshape(1, out_channels, -1)
    addend = None if bias is None else _one_per_channel(bias, out_channels)[None]
    columns = patches_of(images, kernel, stride, padding)
    values = write_product(rows, columns, addend, formats, mac, request, 1, log)
    return values.reshape(images.shape[0], out_channels, *sizes)


def _bias_column(bias: Any, fmt: str | Format | None, channels: int, *, check: bool) -> Array:
    if fmt is None:
        raise FormatError("`bias_format` must be given with `bias`")
    return _one_per_channel(as_operand(bias, fmt, "bias", check=check)[0], channels)


def _one_per_channel(bias: Array, channels: int) -> Array:
    if bias.shape != (channels,):
        raise ShapeError(
            f"conv2d: the bias must have one value per output channel, shape ({channels},), got {bias.shape}"
        )
    return bias[:, None]


def _plan_conv2d(
    x: Any,
    w: Any,
    *,
    x_format: str | Format,
    w_format: str | Format,
    bias_format: str | Format | None = None,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    **options: Any,
) -> Plan:
    kernels, images = np.asarray(on_host(w)), np.asarray(on_host(x))
    _sizes_of(images.shape, kernels.shape, tuple(stride), tuple(padding))
    columns = patches_of(images, (kernels.shape[2], kernels.shape[3]), stride, padding).array()
    formats: dict[str, Any] = {"a_format": w_format, "b_format": x_format, "addend_format": bias_format}
    return explain(matmul, kernels.reshape(kernels.shape[0], -1), columns, **formats, **options)


setattr(conv2d, "plan", _plan_conv2d)  # noqa: B010 - read by explain
