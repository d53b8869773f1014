"""Cast a stored tensor into an operand of a product: `emu.datapath.cast` says how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.datapath import OutputStage, ScaleCounts
from emu.datapath.cast import Cast, Hadamard, Magnitudes
from emu.engine.description import UnitDescription
from emu.engine.products import matrices_of, write_product
from emu.engine.scaled import stage_of_elements, write_scaled
from emu.errors import ShapeError
from emu.formats import PRESETS, ScaledValue, Value

Array = NDArray[Any]


def stage_of_cast(cast: Cast) -> OutputStage:
    """Return the output stage of the elements."""
    usual = stage_of_elements(cast.format)
    return usual if cast.rounding is None else replace(usual, rounding=cast.rounding)


def write_cast(
    unit: UnitDescription,
    cast: Cast,
    x: Value,
    axis: int,
    counts: ScaleCounts | None = None,
    magnitudes: Magnitudes | None = None,
) -> ScaledValue:
    """Return a tensor cast along an axis, that of k.

    Args:
        unit: who writes the elements; its stage is `stage_of_cast`.
        cast: how.
        x: the stored tensor, with a format.
        axis: k, along which blocks lie; a last block may be short.
        counts: gets the counts of blocks; None counts nothing.
        magnitudes: of delayed scaling: the scale follows from the magnitude that it assumes, and the largest magnitude
            of `x` is noted in it; None: the scale follows from `x`.

    Raises:
        ShapeError: k is no multiple of the transform's size.
    """
    array = x.array
    if cast.transform is not None:
        array = _transformed(unit, cast.transform, x, axis)
    # points of calibration replace the scale that the rule would choose
    given = None if cast.points is None else (cast.points.scale, cast.points.zero)
    return write_scaled(
        unit, cast.format, array, x.format, axis, pad=True, counts=counts, given=given, magnitudes=magnitudes
    )


def _transformed(unit: UnitDescription, transform: Hadamard, x: Value, axis: int) -> Array:
    """Return runs along an axis times the matrix: exact sums, each rounded once to the stored format."""
    # the reshape below cuts runs from the last axis, so k becomes the last
    moved = np.moveaxis(np.asarray(on_host(x.array)), axis, -1)
    if moved.shape[-1] % transform.size:
        raise ShapeError(
            f"k must be a multiple of the {transform.size} numbers of {transform}, got {moved.shape[-1]}; choose a "
            "batch or layers of such sizes, or leave the transform out"
        )
    assert x.format is not None
    # (all other axes * runs, size): one matrix product transforms every run
    runs = np.ascontiguousarray(moved).reshape(-1, transform.size)
    # nearest even and the default overflow rule, whatever the unit's stage is: this is the rounding into the stored
    # format, before scales are chosen
    plain = UnitDescription.at(OutputStage.of(x.format), (0, 0, 0), unit.backend)
    # entries are plus or minus 1 / sqrt(size), powers of two: binary32 holds them, and the sum is exact up to its one
    # rounding
    matrices = matrices_of((runs, x.format), (transform.matrix, PRESETS["fp32"]), check=False)
    rotated = write_product(plain, matrices).reshape(moved.shape)
    return np.ascontiguousarray(np.moveaxis(rotated, -1, axis))
