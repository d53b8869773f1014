"""Products: matrix products, convolutions and sums, all through a multiply-accumulate unit and one output stage.

A convolution is the product of the weights with the patches of its input (zero padding included), k running over
channel, kernel row, kernel column. A sum is a product with ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import encode_format, encode_mac
from emu.datapath import Flags, Mac, Overflow, Rounding, StatisticsRegister
from emu.engine.planner import Plan, plan_product
from emu.engine.request import Request, as_operand
from emu.errors import FormatError, ShapeError
from emu.formats import Fixed, Format, parse

Array = NDArray[Any]
EXACT = Mac()
MAX_WIDTH_BITS = 64


def matmul(
    a: Any,
    b: Any,
    *,
    a_format: str | Format,
    b_format: str | Format,
    out_format: str | Format,
    addend: Any = None,
    addend_format: str | Format | None = None,
    mac: Mac = EXACT,
    rounding: str | Rounding = "nearest_even",
    overflow: str | Overflow | None = None,
    n_rbits: int = 24,
    rbits: Array | None = None,
    seed: int = 0,
    stream: int = 0,
    step: int = 0,
    register: StatisticsRegister | None = None,
    flags: Flags | None = None,
    out: Array | None = None,
    backend: str = "auto",
    check: bool = True,
    divisor_exponent: int = 0,
) -> Array:
    """Return the matrix product a @ b + addend as a multiply-accumulate unit and its output stage compute it.

    Args:
        a: values of `a_format`, shape `(*batch, M, K)` or `(K,)`.
        b: values of `b_format`, shape `(*batch, K, N)` or `(K,)`; shapes as in numpy.matmul.
        a_format: format of `a`.
        b_format: format of `b`.
        out_format: format written.
        addend: values of `addend_format` that broadcast to the result: bias, C matrix.
        addend_format: format of the addend.
        mac: product and accumulator formats, order, rounding of each add.
        rounding: mode of the output stage.
        overflow: rule of the output stage; None is the format family's default.
        n_rbits: random bits of stochastic rounding.
        rbits: recorded random bits, shape of the result.
        seed: key of Philox.
        stream: stream of Philox.
        step: step of Philox.
        register: observes the accumulator's final content, addend included.
        flags: counts per written element.
        out: where to write: carrier dtype of `out_format`, shape of the result.
        backend: "auto", "reference" or "numba".
        check: whether to check that operands hold values of their formats.
        divisor_exponent: the accumulator's content is divided by 2**divisor_exponent before the output stage (average
            pooling).

    Returns:
        Carrier array of `out_format`, shape `(*batch, M, N)`.

    Raises:
        FormatError: an operand holds a value outside its format; names the first one.
        ShapeError: the shapes do not fit together.

    Example:
        >>> formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
        >>> matmul([[0.5, -1.0]], [[0.25], [0.125]], **formats, backend="reference")
        array([[0.]], dtype=float32)

    Source: NUMERICS 5 and 7.
    """
    left, fa = as_operand(a, a_format, "a", check=check)
    right, fb = as_operand(b, b_format, "b", check=check)
    assert fa is not None
    assert fb is not None
    left, right, shape, batch_shape = _as_batches(left, right)
    third, fc = _as_addend(addend, addend_format, shape, (*batch_shape, left.shape[1], right.shape[2]), check=check)
    request = Request.of(
        out_format, rounding, overflow, n_rbits, rbits, seed, stream, step, register, flags, backend, shape
    )
    if rbits is not None:
        recorded = request.random.recorded
        assert recorded is not None
        request = _with_recorded(request, recorded.reshape(left.shape[0], left.shape[1], right.shape[2]))
    codes = (encode_format(fa), encode_format(fb), None if fc is None else encode_format(fc))
    place = request.place(accumulator_of(fa, fb, fc, left.shape[2], mac))
    plan = Plan("definition", "the reference runs the definition", mac)
    if request.kernels.name != "reference":
        plan = plan_product(fa, fb, fc, left.shape[2], mac, lambda: (_largest(left), _largest(right)))
    outcome = request.kernels.product(
        left,
        right,
        third,
        codes,
        encode_mac(plan.mac),
        request.stage_code,
        request.random,
        place,
        plan.path,
        divisor_exponent,
    )
    values = request.account(outcome).reshape(shape)
    if out is None:
        return values
    if out.shape != shape or out.dtype != values.dtype:
        raise ShapeError(f"`out` must be a {values.dtype} array of shape {shape}, got {out.dtype} of shape {out.shape}")
    out[...] = values
    return out


def _with_recorded(request: Request, recorded: Array) -> Request:
    random = request.random._replace(recorded=recorded)
    return Request(request.stage, request.stage_code, random, request.kernels, request.register, request.flags)


def _plan_matmul(
    a: Any, b: Any, *, a_format: Any, b_format: Any, addend_format: Any = None, mac: Mac = EXACT, **_: Any
) -> Plan:
    left, right = np.asarray(a), np.asarray(b)
    fc = None if addend_format is None else parse(addend_format)
    return plan_product(
        parse(a_format), parse(b_format), fc, left.shape[-1], mac, lambda: (_largest(left), _largest(right))
    )


setattr(matmul, "plan", _plan_matmul)  # noqa: B010 - read by explain


def _largest(x: Array) -> float:
    return float(max(np.max(x, initial=0), -np.min(x, initial=0)))


def _as_batches(a: Array, b: Array) -> tuple[Array, Array, tuple[int, ...], tuple[int, ...]]:
    """Return (B, M, K), (B, K, N), the result's shape and its batch shape, as numpy.matmul defines them."""
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul: operands must have at least one dimension, got shapes {a.shape} and {b.shape}")
    wide_a = a[None, :] if a.ndim == 1 else a
    wide_b = b[:, None] if b.ndim == 1 else b
    if wide_a.shape[-1] != wide_b.shape[-2]:
        raise ShapeError(
            f"matmul: inner sizes must agree, got shapes {a.shape} and {b.shape}: "
            f"{wide_a.shape[-1]} against {wide_b.shape[-2]}"
        )
    try:
        batch = np.broadcast_shapes(wide_a.shape[:-2], wide_b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: batch dimensions must broadcast, got shapes {a.shape} and {b.shape}") from None
    m, n = wide_a.shape[-2], wide_b.shape[-1]
    shape = (*batch, *([m] if a.ndim > 1 else []), *([n] if b.ndim > 1 else []))
    count = math.prod(batch)
    flat_a = np.broadcast_to(wide_a, (*batch, *wide_a.shape[-2:])).reshape(count, *wide_a.shape[-2:])
    flat_b = np.broadcast_to(wide_b, (*batch, *wide_b.shape[-2:])).reshape(count, *wide_b.shape[-2:])
    return flat_a, flat_b, shape, batch


def _as_addend(
    addend: Any, fmt: str | Format | None, shape: tuple[int, ...], full: tuple[int, ...], *, check: bool
) -> tuple[Array | None, Format | None]:
    if addend is None:
        return None, None
    if fmt is None:
        raise FormatError("`addend_format` must be given with `addend`")
    array, parsed = as_operand(addend, fmt, "addend", check=check)
    try:
        np.broadcast_to(array, shape)
    except ValueError:
        raise ShapeError(f"matmul: the addend must broadcast to the result {shape}, got shape {array.shape}") from None
    if len(shape) < len(full):
        array = np.broadcast_to(array, shape).reshape(full)
    if array.ndim <= 3 and len(full) <= 3:
        return array.reshape((1,) * (3 - array.ndim) + array.shape), parsed
    return np.broadcast_to(array, full).reshape(math.prod(full[:-2]), *full[-2:]), parsed


def accumulator_of(a: Format, b: Format, addend: Format | None, depth: int, mac: Mac) -> Fixed | None:
    """Return the fixed-point accumulator a statistics register observes, None where the result is a float.

    An exact accumulator is as wide as the worst case needs, at most 64 bits.
    """
    if mac.accumulator != "exact":
        return mac.accumulator if isinstance(mac.accumulator, Fixed) else None
    if not isinstance(a, Fixed) or not isinstance(b, Fixed) or not isinstance(addend, (Fixed, type(None))):
        return None
    frac = a.frac_bits + b.frac_bits if mac.product == "exact" else getattr(mac.product, "frac_bits", 0)
    if addend is not None:
        frac = max(frac, addend.frac_bits)
    return Fixed(min(a.width_bits + b.width_bits + max(depth, 1).bit_length(), MAX_WIDTH_BITS), frac)


def one_of(fmt: Format) -> Fixed | Format:
    """Return the format of a sum's factor 1: one unsigned bit beside fixed operands, else the operand's own."""
    return Fixed(1, 0, signed=False) if isinstance(fmt, Fixed) else fmt


def total(
    x: Any,
    *,
    x_format: str | Format,
    out_format: str | Format,
    axis: int | tuple[int, ...] | None = None,
    **options: Any,
) -> Array:
    """Return the sum of `x` over `axis`: a product with ones, in C order of the summed axes.

    Args:
        x: values of `x_format`, any shape.
        x_format: format of `x`.
        out_format: format written.
        axis: axes to sum; None sums all of them.
        **options: those of `matmul`.

    Returns:
        Carrier array of `out_format`; the summed axes are gone.
    """
    array, fmt = as_operand(x, x_format, "x", check=options.pop("check", True))
    assert fmt is not None
    axes = tuple(range(array.ndim)) if axis is None else tuple(a % array.ndim for a in np.atleast_1d(axis))
    kept = [a for a in range(array.ndim) if a not in axes]
    rows = array.transpose(*kept, *axes).reshape(
        math.prod(array.shape[a] for a in kept), math.prod(array.shape[a] for a in axes)
    )
    ones = np.ones(rows.shape[1], one_of(fmt).carrier)
    sums = matmul(rows, ones, a_format=fmt, b_format=one_of(fmt), out_format=out_format, check=False, **options)
    return sums.reshape([array.shape[a] for a in kept])


def patches_of(x: Array, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Array:
    """Return the patches a convolution sees.

    Args:
        x: images, shape `(N, C, H, W)`.
        kernel: rows and columns.
        stride: steps down and right.
        padding: zeros above and below, left and right.

    Returns:
        Shape `(N, C * kernel rows * kernel columns, OH * OW)`, a copy.
    """
    if padding != (0, 0):
        x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]
    n, channels, out_rows, out_columns = windows.shape[:4]
    return windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, channels * kernel[0] * kernel[1], out_rows * out_columns)


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
        check: whether to check that operands hold values of their formats.
        **options: those of `matmul`.

    Returns:
        Carrier array of `out_format`, shape `(N, O, OH, OW)`.

    Raises:
        ShapeError: channels differ, or the kernel is larger than the padded image.
    """
    images, fx = as_operand(x, x_format, "x", check=check)
    kernels, fw = as_operand(w, w_format, "w", check=check)
    assert fx is not None
    assert fw is not None
    if images.ndim != 4 or kernels.ndim != 4 or images.shape[1] != kernels.shape[1]:
        raise ShapeError(
            "conv2d: x must be (N, C, H, W) and w (O, C, KH, KW) with the same C, "
            f"got {images.shape} and {kernels.shape}"
        )
    sizes = [convolved_size(images.shape[2 + i], kernels.shape[2 + i], stride[i], padding[i]) for i in (0, 1)]
    if min(sizes) < 1:
        raise ShapeError(
            f"conv2d: the kernel must fit the padded image, got x {images.shape}, w {kernels.shape}, padding {padding}"
        )
    columns = patches_of(images, (kernels.shape[2], kernels.shape[3]), stride, padding)
    addend = None if bias is None else _bias_column(bias, bias_format, kernels.shape[0], check=check)
    y = matmul(
        kernels.reshape(kernels.shape[0], -1),
        columns,
        a_format=fw,
        b_format=fx,
        out_format=out_format,
        addend=addend,
        addend_format=bias_format,
        check=False,
        **options,
    )
    return y.reshape(images.shape[0], kernels.shape[0], *sizes)


def _bias_column(bias: Any, fmt: str | Format | None, channels: int, *, check: bool) -> Array:
    if fmt is None:
        raise FormatError("`bias_format` must be given with `bias`")
    column, _ = as_operand(bias, fmt, "bias", check=check)
    if column.shape != (channels,):
        raise ShapeError(
            f"conv2d: the bias must have one value per output channel, shape ({channels},), got {column.shape}"
        )
    return column[:, None]


def _plan_conv2d(
    x: Any, w: Any, *, x_format: Any, w_format: Any, bias_format: Any = None, mac: Mac = EXACT, **_: Any
) -> Plan:
    kernels, images = np.asarray(w), np.asarray(x)
    fc = None if bias_format is None else parse(bias_format)
    depth = math.prod(kernels.shape[1:])
    return plan_product(parse(w_format), parse(x_format), fc, depth, mac, lambda: (_largest(kernels), _largest(images)))


setattr(conv2d, "plan", _plan_conv2d)  # noqa: B010 - read by explain

__all__ = ["accumulator_of", "conv2d", "convolved_size", "matmul", "one_of", "patches_of", "total"]
