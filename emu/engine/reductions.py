"""Sums and means: products with ones, through the same unit and output stage."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import lasting
from emu.backends.gathered import Gathered
from emu.engine.delivery import require_out, written_to
from emu.engine.description import PRODUCT_OPTIONS, ProductOptions, UnitDescription, call_of
from emu.engine.matrices import Matrices
from emu.engine.operands import in_format
from emu.engine.products import write_product
from emu.formats import Fixed, Float, Format
from emu.formats.integers import as_axes

Array = NDArray[Any]
_ONE_BIT = Fixed(1, 0, signed=False)
#: Bias 1: its values are 0, 1, 2 and 4, of either sign.
_POWERS_OF_TWO = Float(2, 0, infinities=False, nans="none")


@lru_cache(maxsize=1024)
def one_of(fmt: Format) -> Fixed | Float:
    """Return the format of a sum's factor 1: one unsigned bit beside fixed operands, else the operand's own.

    A float format may not hold 1, or read it as 0 (`daz`, if 1 is subnormal). Then the factor has a format of its own.
    """
    # a factor of one bit does not widen the planner's bound K * max|a| * max|b|
    if not isinstance(fmt, Float):
        return _ONE_BIT
    reads_as_zero = fmt.daz and fmt.smallest_normal > 1
    return fmt if fmt.contains(np.array(1.0)) and not reads_as_zero else _POWERS_OF_TWO


def total(
    x: Any,
    *,
    out_format: str | Format,
    x_format: str | Format | None = None,
    axis: int | tuple[int, ...] | None = None,
    **options: Unpack[ProductOptions],
) -> Array:
    """Return the sum of `x` over `axis`: a product with ones, in C order of the summed axes.

    Args:
        x: values of `x_format`, any shape; or an `emu.value`.
        out_format: format written.
        x_format: format of `x`; not needed of a value.
        axis: axes to sum, each once; None sums all of them.
        **options: those of `matmul`.

    Returns:
        Carrier array of `out_format`; the summed axes are gone.

    Raises:
        FormatError: `x` has no format, or holds a value outside it.
        ShapeError: an axis that is no integer, that `x` does not have, or that is there twice.

    Source: docs/concepts/products.md, "The order of the terms".
    """
    unit, out, check = call_of("total", out_format, options, PRODUCT_OPTIONS)
    array, fmt = in_format(x, x_format, "x", check=check)
    # asked first: a wrong `out` fails before anything is counted
    _, _, shape = _split(axis, array.shape)
    require_out(out, shape, unit.stage.format)
    return written_to(out, write_total(unit, array, fmt, axis))


def average(
    x: Any,
    *,
    out_format: str | Format,
    axis: int | tuple[int, ...],
    x_format: str | Format | None = None,
    **options: Unpack[ProductOptions],
) -> Array:
    """Return the mean of `x` over `axis`: the unit's sum divided by the count, rounded once.

    Args:
        x: values of `x_format`, any shape; or an `emu.value`.
        out_format: format written.
        axis: axes to average, each once.
        x_format: format of `x`; not needed of a value.
        **options: those of `matmul`; the register observes the sums with their point moved by floor(log2 count): what
            a power of two divides exactly, and else up to twice the mean.

    Returns:
        Carrier array of `out_format`; the averaged axes are gone.

    Raises:
        FormatError: `x` has no format, or holds a value outside it.
        ShapeError: an axis that is no integer, that `x` does not have, or that is there twice.

    Source: docs/concepts/products.md, "The order of the terms".
    """
    unit, out, check = call_of("average", out_format, options, PRODUCT_OPTIONS)
    array, fmt = in_format(x, x_format, "x", check=check)
    _, _, shape = _split(axis, array.shape)
    require_out(out, shape, unit.stage.format)
    return written_to(out, write_total(unit, array, fmt, axis, averaged=True))


def write_total(
    unit: UnitDescription,
    array: Array,
    fmt: Format,
    axis: int | tuple[int, ...] | None,
    *,
    averaged: bool = False,
) -> Array:
    """Write the sum of carriers over `axis`, or their mean, through a unit.

    Args:
        unit: who computes and writes.
        array: carriers, any shape.
        fmt: their format.
        axis: axes to sum; None sums all of them.
        averaged: whether to divide by the count, before the one rounding.

    Raises:
        ShapeError: an axis that is no integer, that the array does not have, or that is there twice.
    """
    axes, kept, shape = _split(axis, array.shape)
    # by offsets: kept axes run down the rows, summed ones along k
    rows, one = Gathered.of_axes(array, kept, axes), one_of(fmt)
    depth = rows.columns.size
    matrices = Matrices(rows, _ones(depth, one.carrier), None, (fmt, one, None), shape)
    return write_product(unit, matrices, max(depth, 1) if averaged else 1)  # the mean of nothing is 0


def _split(
    axis: int | tuple[int, ...] | None, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the axes that are summed, those that are kept, and the sum's shape.

    Raises:
        ShapeError: an axis that is no integer, that the array does not have, or that is there twice.
    """
    axes = tuple(range(len(shape))) if axis is None else as_axes("axis", axis, len(shape))
    return axes, *_kept(axes, shape)


@lru_cache(maxsize=256)
def _kept(axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes that are not summed, and the result's shape."""
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    return kept, tuple(shape[a] for a in kept)


@lru_cache(maxsize=64)
def _ones(depth: int, dtype: np.dtype[Any]) -> Array:
    """Return a column of ones. It is shared; nobody writes to it."""
    return lasting(np.ones((1, depth, 1), dtype))
