"""Selections: operations that pick one of their operands, so that nothing rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered
from emu.backends.registry import load
from emu.engine.operands import as_native
from emu.errors import ShapeError

Array = NDArray[Any]


def relu(x: Any, *, backend: str = "auto") -> Array:
    """Return x where x > 0, NaN where NaN, else +0. Any shape and carrier dtype; float16 is taken as float32.

    Examples:
        >>> relu(np.array([-1.0, -0.0, 2.0]), backend="reference")
        array([0., 0., 2.])
    """
    return load(backend).relu(as_native(x, "x"))


def relu_gradient(g: Any, x: Any, *, backend: str = "auto") -> Array:
    """Return the gradient that ReLU passes back: g where x > 0, else +0.

    Args:
        g: the arriving gradient, any carrier dtype.
        x: what ReLU was given, in the shape of `g`, any carrier dtype.
        backend: who computes.

    Examples:
        >>> relu_gradient(np.array([3.0, 3.0]), np.array([-1.0, 2.0]), backend="reference")
        array([0., 3.])
    """
    arrived, seen = as_native(g, "g"), as_native(x, "x")
    if arrived.shape != seen.shape:
        raise ShapeError(f"`g` and `x` must have one shape, got {arrived.shape} and {seen.shape}")
    return load(backend).relu_gradient(arrived, seen)


def largest_magnitudes(arrays: Sequence[Array], *, backend: str = "auto") -> list[float]:
    """Return the largest magnitude in each array of carriers: 0.0 of none, NaN where there is one."""
    return load(backend).largest_magnitudes(arrays)


def max_pool(windows: Any, *, backend: str = "auto") -> tuple[Array, NDArray[np.unsignedinteger[Any]]]:
    """Return the maximum of each window and the index of its first occurrence.

    Args:
        windows: shape `(*batch, n)`, n at least 1, any carrier dtype; or rows of gathered matrices.
        backend: who computes.

    Returns:
        Maxima and indices, shape `(*batch,)`; indices are uint8 up to n = 256, then uint16, from n = 65537 on uint32.
        If a window has NaN, the maximum is NaN. -0 counts as less than +0. Of equals the first is taken.

    Raises:
        ShapeError: a window holds no value.
    """
    if isinstance(windows, Gathered):
        return load(backend).max_pool(windows)
    windows = as_native(windows, "windows")
    if windows.ndim == 0 or windows.shape[-1] == 0:
        raise ShapeError(f"`windows` must hold at least one value along the last axis, got shape {windows.shape}")
    return load(backend).max_pool(windows)


def unpool(values: Any, index: Any, windows: Gathered, *, backend: str = "auto") -> Array:
    """Return zeros with each value at its window's index: the backward pass of `max_pool`.

    Args:
        values: one per window, any carrier dtype.
        index: place within each window, in the shape of `values`.
        windows: rows of gathered matrices, none of whose elements belongs to two of them; their data are not read.
        backend: who computes.

    Returns:
        As many elements as the windows' data have, `(windows.data.size,)`, in the dtype of `values`.
    """
    return load(backend).unpool(as_native(values, "values"), as_native(index, "index"), windows)
