"""Arrays of the host and of a device: what the engine asks of them, whichever they are.

A device's arrays never turn into the host's by themselves: CuPy's refuse it. They have the namespace of the array API
standard, from which everything here comes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def is_on_device(x: object) -> bool:
    """Return whether `x` is an array in a device's memory."""
    return not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "__cuda_array_interface__")


def namespace(x: Array) -> Any:
    """Return the array's namespace: NumPy, or the device's."""
    return x.__array_namespace__()


def contiguous(x: Array) -> Array:
    """Return the array in C order, copied only if it is in another one."""
    return x if x.flags.c_contiguous else x.copy(order="C")


def on_host(x: Array) -> Array:
    """Return the array in the host's memory."""
    return x.get() if is_on_device(x) else x
