"""Arrays of the host and of a device, with the same functions for both.

An array of a device never becomes one of the host by itself: CuPy refuses that. Methods and attributes that are used
here have the same names in CuPy and NumPy.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

Array = Any
#: Arrays of the host that never change, by `id`. An `id` may come back after its array is gone: `is_lasting` compares.
_LASTING: WeakValueDictionary[int, NDArray[Any]] = WeakValueDictionary()


def is_on_device(x: object) -> bool:
    """Return whether `x` is an array in a device's memory."""
    return not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "__cuda_array_interface__")


def namespace(x: Array) -> Any:
    """Return the array's namespace: NumPy, the one it names, or the package its class is from (CuPy names none)."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    named = getattr(x, "__array_namespace__", None)
    return sys.modules[type(x).__module__.partition(".")[0]] if named is None else named()


def lasting(x: NDArray[Any]) -> NDArray[Any]:
    """Declare that nobody writes to an array of the host from now on, so that a device copies it once; return it."""
    # weakly: the array can still be freed
    _LASTING[id(x)] = x
    return x


def frozen(x: NDArray[Any]) -> NDArray[Any]:
    """Make an array of the host read-only, and return it; nobody else may have a view of it."""
    x.flags.writeable = False
    return x


def is_lasting(x: object) -> bool:
    """Return whether `x` is an array of the host that never changes."""
    return x is not None and _LASTING.get(id(x)) is x


def negated(x: Array) -> Array:
    """Return 0 - x, exact, and +0 for 0: NumPy's -x would give -0.

    On a device by the bits of floats: CuPy's own arithmetic takes float32 subnormals for 0.
    """
    if not is_on_device(x) or x.dtype.kind != "f":
        return 0 - x
    sign = 1 << (8 * x.itemsize - 1)
    # the sign bit is a float's highest
    xp, bits = namespace(x), x.view(np.dtype(f"u{x.itemsize}"))
    dtype = bits.dtype.type
    # 0 of either sign becomes +0, all others change their sign, NaN included
    return xp.where((bits & dtype(sign - 1)) != dtype(0), bits ^ dtype(sign), dtype(0)).view(x.dtype)


def largest_magnitude(x: Array) -> float:
    """Return the largest magnitude in an array of the host, 0 of none; NaN if there is one."""
    if not x.size:
        return 0.0
    if x.dtype.kind == "f":
        # NaN is the first argument if there is a NaN: Python's `max` keeps it, since no comparison with it is true
        return float(max(x.max(), -x.min(), 0))
    return float(max(int(x.max()), -int(x.min())))  # of Python: -x would overflow at the smallest int64


def contiguous(x: Array) -> Array:
    """Return the array in C order, copied only if it is in another one."""
    return x if x.flags.c_contiguous else x.copy(order="C")


def on_host(x: Array) -> Array:
    """Return the array in the host's memory."""
    return x.get() if is_on_device(x) else x
