"""Sums and means: products with ones, through the same unit and output stage."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import lasting
from emu.backends.gathered import Gathered
from emu.datapath import Mac
from emu.engine.elementwise import require_options
from emu.engine.products import PRODUCT_OPTIONS, product, write_product
from emu.engine.request import Request, as_operand
from emu.engine.sources import take_source
from emu.engine.work import WorkRecord
from emu.formats import Fixed, Format

Array = NDArray[Any]


@lru_cache(maxsize=1024)
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
    return _sum("total", x, x_format, out_format, axis, options, averaged=False)


def average(
    x: Any, *, x_format: str | Format, out_format: str | Format, axis: int | tuple[int, ...], **options: Any
) -> Array:
    """Return the mean of `x` over `axis`: the unit's sum divided by the count, rounded once.

    Args:
        x: values of `x_format`, any shape.
        x_format: format of `x`.
        out_format: format written.
        axis: axes to average.
        **options: those of `matmul`; the register observes the sums with their point moved by floor(log2 count): what
            a power of two divides exactly, and else up to twice the mean.

    Returns:
        Carrier array of `out_format`; the averaged axes are gone.
    """
    return _sum("average", x, x_format, out_format, axis, options, averaged=True)


def _sum(
    name: str,
    x: Any,
    x_format: str | Format,
    out_format: str | Format,
    axis: int | tuple[int, ...] | None,
    options: dict[str, Any],
    *,
    averaged: bool,
) -> Array:
    require_options(name, options, PRODUCT_OPTIONS)
    array, fmt = as_operand(x, x_format, "x", check=options.pop("check", True))
    assert fmt is not None
    rows, ones, kept, divisor = _as_product(array, fmt, axis, averaged=averaged)
    formats: dict[str, Any] = {"a_format": fmt, "b_format": one_of(fmt), "out_format": out_format}
    source = take_source(options, kept, (1, rows.shape[1], 1))
    return product(rows, ones, **formats, random=source, check=False, divisor=divisor, **options).reshape(kept)


def write_total(
    array: Array,
    fmt: Format,
    axis: int | tuple[int, ...] | None,
    mac: Mac,
    request: Request,
    *,
    averaged: bool = False,
    log: list[WorkRecord] | None = None,
) -> Array:
    """Write the sum of carriers over `axis`, or their mean, as the request says.

    Args:
        array: carriers, any shape.
        fmt: their format.
        axis: axes to sum; None sums all of them.
        mac: the unit.
        request: stage, random bits, register, flags, backend.
        averaged: whether to divide by the count, before the one rounding.
        log: is given a record of the work.
    """
    rows, ones, kept, divisor = _as_product(array, fmt, axis, averaged=averaged)
    formats = (fmt, one_of(fmt), None)
    return write_product(rows, ones, None, formats, mac, request, divisor, log).reshape(kept)


@lru_cache(maxsize=64)
def _ones(depth: int, dtype: np.dtype[Any]) -> Array:
    """Return a column of ones. It is shared; nobody writes to it."""
    return lasting(np.ones((1, depth, 1), dtype))


def _as_product(
    array: Array, fmt: Format, axis: int | tuple[int, ...] | None, *, averaged: bool
) -> tuple[Gathered, Array, tuple[int, ...], int]:
    """Return the elements to sum as rows, in C order of the summed axes; ones; the shape that is left; the divisor."""
    axes = tuple(range(array.ndim)) if axis is None else tuple(int(a) % array.ndim for a in np.atleast_1d(axis))
    kept = tuple(a for a in range(array.ndim) if a not in axes)
    rows = Gathered.of_axes(array, kept, axes)
    depth = rows.shape[2]
    ones, shape = _ones(depth, one_of(fmt).carrier), tuple(array.shape[a] for a in kept)
    return rows, ones, shape, max(depth, 1) if averaged else 1
