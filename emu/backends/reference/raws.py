"""Raw integers of fixed-point carriers: int64 where every raw fits it, else Python's integers.

NumPy promotes int64 and uint64 together to float64, which drops bits. So no kernel of the reference sees both: each
carrier passes `raw_of` before anything is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import FormatCode

Array = NDArray[Any]
_LARGEST_INT64 = (1 << 63) - 1


def raw_of(x: Array, fmt: FormatCode) -> Array:
    """Return the raw integers of a fixed-point carrier.

    Args:
        x: carriers of `fmt`, any shape.
        fmt: a fixed-point format.

    Returns:
        int64; Python integers (object) if a raw of an unsigned format is 2**63 or more.
    """
    if not fmt.carries_raws:
        return np.ldexp(x.astype(np.float64), -fmt.quantum).astype(np.int64)  # integers of at most 53 bits: exact
    fits = x.dtype != np.uint64 or int(x.max(initial=0)) <= _LARGEST_INT64
    return x.astype(np.int64 if fits else object, copy=False)
