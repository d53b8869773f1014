"""Convolutions: the product of the weights with the patches of the input.

k runs over the channels of a group, kernel rows, kernel columns; zero padding is part of the patches.
"""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.datapath.stage import require_placed
from emu.engine.advice import plan_of
from emu.engine.delivery import require_out, written_to
from emu.engine.description import PRODUCT_OPTIONS, ProductOptions, call_of
from emu.engine.matrices import Matrices
from emu.engine.operands import in_format
from emu.engine.planner import Plan
from emu.engine.products import as_addend_operand, plan_of_scaled, write_product, write_scaled_matrices
from emu.engine.scaled_products import scaled_patches
from emu.engine.sliding import SLIDES, Slides, Sliding
from emu.formats import Format, ScaledValue, Value, parse

Array = NDArray[Any]


class ConvolutionOptions(ProductOptions, Slides, total=False):
    """The options of convolutions: those of products, and how the kernels slide."""


CONVOLUTION_OPTIONS = PRODUCT_OPTIONS | SLIDES


def conv2d(
    x: Any,
    w: Any,
    *,
    out_format: str | Format,
    x_format: str | Format | None = None,
    w_format: str | Format | None = None,
    bias: Any = None,
    bias_format: str | Format | None = None,
    **options: Unpack[ConvolutionOptions],
) -> Array:
    """Return the two-dimensional convolution (cross-correlation) of images with kernels.

    Args:
        x: images, values of `x_format`, shape `(N, C, H, W)`; or an `emu.value`.
        w: kernels, values of `w_format`, shape `(O, C / groups, KH, KW)`.
        out_format: format written.
        x_format: format of `x`; not needed of a value.
        w_format: format of `w`.
        bias: one value per output channel, shape `(O,)`: the unit's addend.
        bias_format: format of the bias.
        **options: those of `matmul`, where recorded random bits have the shape of the result; and
            `stride`: steps down and right, (1, 1) by default;
            `padding`: zeros around the image, for rows and columns, or ((above, below), (left, right));
            `dilation`: distance of a kernel's rows, and of its columns;
            `groups`: parts of the channels: the kernels of a part meet its channels alone. A depthwise convolution has
            `C` parts.

    Returns:
        Carrier array of `out_format`, shape `(N, O, OH, OW)`.

    Raises:
        FormatError: an operand holds a value outside its format, or has none.
        ShapeError: channels differ, or the kernel is larger than the padded image.

    Source: docs/concepts/products.md, "The order of the terms".
    """
    unit, out, check = call_of("conv2d", out_format, options, CONVOLUTION_OPTIONS)
    slide = Sliding.among(options)
    if isinstance(x, ScaledValue) or isinstance(w, ScaledValue):
        third = as_addend_operand(bias, bias_format, "bias", check=check)
        product = scaled_patches(unit.mac, x, w, third, slide)
        require_out(out, product.matrices.shape, unit.stage.format)
        return written_to(out, write_scaled_matrices(unit, product))
    # plain operands: their product takes the way of `matmul`, from patches that are read by offsets
    given = (x, x_format), (w, w_format), (bias, bias_format)
    matrices = patches_and_kernels(*given, slide, check=check)
    # asked first: a wrong `out` fails before anything is counted
    require_out(out, matrices.shape, unit.stage.format)
    values = write_product(unit, matrices)
    return written_to(out, values)


def patches_and_kernels(
    x: tuple[Any, str | Format | None],
    w: tuple[Any, str | Format | None],
    bias: tuple[Any, str | Format | None],
    slide: Sliding,
    *,
    check: bool,
) -> Matrices:
    """Return a convolution as a matrix product, from arrays and their formats: kernels times patches, plus a bias.

    Args:
        x: images (N, C, H, W).
        w: kernels (O, C / groups, KH, KW).
        bias: one value per output channel, (O,), or None.
        slide: how the kernels slide.
        check: whether operands are checked to belong to their formats.

    Returns:
        Matrices whose result has the shape (N, O, OH, OW).

    Raises:
        FormatError: an operand holds a value outside its format, or has none.
        ShapeError: channels differ, or the kernel is larger than the padded image.
    """
    images, kernels = in_format(x[0], x[1], "x", check=check), in_format(w[0], w[1], "w", check=check)
    return slide.matrices(images, kernels, as_addend_operand(*bias, "bias", check=check))


def _plan_conv2d(
    x: Any,
    w: Any,
    *,
    out_format: str | Format | None = None,
    x_format: str | Format | None = None,
    w_format: str | Format | None = None,
    bias: Any = None,
    bias_format: str | Format | None = None,
    **options: Unpack[ConvolutionOptions],
) -> Plan:
    if isinstance(x, ScaledValue) or isinstance(w, ScaledValue):
        unit = call_of("conv2d", "fp32" if out_format is None else out_format, options, CONVOLUTION_OPTIONS)[0]
        given = as_addend_operand(bias, bias_format, "bias", check=False)
        return plan_of_scaled(unit, scaled_patches(unit.mac, x, w, given, Sliding.among(options)))
    # a plan needs sizes and formats, no numbers but the largest magnitudes: the bias is left out, its format alone
    # enters
    given = (on_host(x), x_format), (on_host(w), w_format), (None, None)
    matrices = patches_and_kernels(*given, Sliding.among(options), check=False)
    third = bias.format if isinstance(bias, Value) else None if bias_format is None else parse(bias_format)
    formats = (*matrices.formats[:2], None if third is None else require_placed(third))
    # without `out_format` the plan is of a unit that writes the format of the images
    written = formats[1] if out_format is None else out_format
    unit = call_of("conv2d", written, options, CONVOLUTION_OPTIONS)[0]
    return plan_of(unit, matrices._replace(formats=formats))


setattr(conv2d, "plan", _plan_conv2d)  # noqa: B010 - read by explain
