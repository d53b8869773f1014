"""Selections: operations that pick one of their operands, so that nothing rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.registry import load

Array = NDArray[Any]


def relu(x: Array, *, backend: str = "auto") -> Array:
    """Return x where x > 0, NaN where NaN, else +0. Any shape and carrier dtype.

    Example:
        >>> relu(np.array([-1.0, -0.0, 2.0]), backend="reference")
        array([0., 0., 2.])
    """
    return load(backend).relu(x)


def max_pool(windows: Array, *, backend: str = "auto") -> tuple[Array, NDArray[np.uint8]]:
    """Return the maximum of each window and the index of its first occurrence.

    Args:
        windows: shape `(*batch, n)`, n at most 256, any carrier dtype.
        backend: who computes.

    Returns:
        Maxima and uint8 indices, shape `(*batch,)`. NaN wins, -0 < +0, the first of equals is taken.
    """
    return load(backend).max_pool(windows)
