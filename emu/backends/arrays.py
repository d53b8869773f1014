"""Arrays of the host and of a device: what the engine asks of them, whichever they are.

A device's arrays never turn into the host's by themselves: CuPy's refuse it. What is asked of them is what NumPy's have
under the same name.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Array = Any


def is_on_device(x: object) -> bool:
    """Return whether `x` is an array in a device's memory."""
    return not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "__cuda_array_interface__")


def namespace(x: Array) -> Any:
    """Return the array's namespace: NumPy, the one it names, or the package its class is from (CuPy names none)."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    named = getattr(x, "__array_namespace__", None)
    return sys.modules[type(x).__module__.partition(".")[0]] if named is None else named()


def contiguous(x: Array) -> Array:
    """Return the array in C order, copied only if it is in another one."""
    return x if x.flags.c_contiguous else x.copy(order="C")


def on_host(x: Array) -> Array:
    """Return the array in the host's memory."""
    return x.get() if is_on_device(x) else x
