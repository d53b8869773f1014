"""Selections: operations that pick one of their operands, so that nothing rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_on_device, on_host
from emu.backends.gathered import Gathered
from emu.backends.registry import load
from emu.engine.operands import as_native
from emu.errors import FormatError, ShapeError
from emu.formats.arrays import code_dtype_for
from emu.formats.numbers import as_numbers

Array = NDArray[Any]


def relu(x: Any, *, backend: str = "auto") -> Array:
    """Return x where x > 0, NaN where NaN, else +0. Any shape and carrier dtype; float16 is taken as float32.

    Examples:
        >>> relu(np.array([-1.0, -0.0, 2.0]), backend="reference")
        array([0., 0., 2.])
    """
    return load(backend).relu(as_native(x, "x"))


def relu_gradient(g: Any, x: Any, *, backend: str = "auto") -> Array:
    """Return the gradient that ReLU passes back: g where x > 0, else (where x is NaN, too) +0.

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
        raise ShapeError(
            f"`g` and `x` must have one shape, got {arrived.shape} and {seen.shape}; give what ReLU was given"
        )
    return load(backend).relu_gradient(arrived, seen)


def largest_magnitudes(arrays: Sequence[Array], *, backend: str = "auto") -> list[float]:
    """Return the largest magnitude in each array of a carrier's dtype: 0.0 if it is empty, NaN if it has a NaN."""
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
        ShapeError: a window holds no value, or gathered matrices name a place outside their data.
    """
    if isinstance(windows, Gathered):
        # compiled loops read offsets as they are: places outside the data would be memory of others
        windows.require_inside()
        if windows.columns.size == 0:
            raise ShapeError(
                f"`windows` must hold at least one value in each, got shape {windows.shape}; leave empty ones out"
            )
        return load(backend).max_pool(windows)
    windows = as_native(windows, "windows")
    if windows.ndim == 0 or windows.shape[-1] == 0:
        raise ShapeError(
            f"`windows` must hold at least one value along the last axis, got shape {windows.shape}; leave "
            "empty ones out"
        )
    return load(backend).max_pool(windows)


def unpool(values: Any, index: Any, windows: Gathered, *, backend: str = "auto", check: bool = True) -> Array:
    """Return zeros with each value at its window's index: the backward pass of `max_pool`.

    Args:
        values: one per window, any carrier dtype.
        index: place within each window, integers from 0 on, in the shape of `values`.
        windows: rows of gathered matrices that do not overlap; their data are not read.
        backend: who computes.
        check: whether to check that places lie in their windows. False is for the indices of `max_pool`: other ones may
            give any result.

    Returns:
        As many elements as the windows' data have, `(windows.data.size,)`, in the dtype of `values`.

    Raises:
        ShapeError: a place outside its window, not one value and place per window, or gathered matrices that name a
            place outside their data.
        FormatError: `index` does not hold integers.
    """
    given, places = as_native(values, "values"), _places(index, windows.columns.size, check=check)
    # a value and a place for each window, in whatever shape the caller keeps them
    count = windows.batches * windows.rows.size
    if given.size != count or places.size != count:
        raise ShapeError(
            f"`values` and `index` must have one element for each of the {count} windows, got shapes {given.shape} and "
            f"{places.shape}; give what `max_pool` returned for these windows"
        )
    windows.require_inside()
    return load(backend).unpool(given, places, windows)


def _places(index: Any, length: int, *, check: bool) -> Array:
    """Return places within windows of a length, in the narrowest unsigned dtype that holds them.

    Raises:
        ShapeError: one lies outside its window.
        FormatError: they are not integers.
    """
    # `as_numbers` would widen 8 bits to 64, so an array that can be read as it is does not pass it
    is_readable = is_on_device(index) or (
        type(index) is np.ndarray and index.dtype.kind in "iu" and index.dtype.isnative
    )
    array = index if is_readable else as_numbers(index, "index")
    if array.dtype.kind not in "iu":
        raise FormatError(f"`index` must hold integers, got dtype {array.dtype}; give what `max_pool` returned")
    if check and array.size and not 0 <= int(array.min()) <= int(array.max()) < length:
        places = on_host(array)
        # places come to the host for the message alone
        first = tuple(map(int, np.argwhere((places < 0) | (places >= length))[0]))
        raise ShapeError(
            f"`index` must be places 0..{length - 1} of its window, got {places[first]} at index {first}; give what "
            "`max_pool` returned for these windows"
        )
    return array.astype(code_dtype_for(max(length - 1, 0).bit_length()), copy=False)
