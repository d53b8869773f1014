"""Dtypes of `.safetensors` files: those that NumPy has, and those whose codes a format of emu decodes.

Source: the format's page in github.com/huggingface/safetensors; OCP 8-bit Floating Point Specification 1.0; Noune et
al., "8-bit Numerical Formats for Deep Neural Networks" (fnuz).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.formats import PRESETS, Float

#: Dtypes of a header that NumPy has, little-endian.
NUMPY_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "C64": "<c8", "BOOL": "?", "I64": "<i8", "U64": "<u8", "I32": "<i4",
    "U32": "<u4", "I16": "<i2", "U16": "<u2", "I8": "i1", "U8": "u1",
}  # fmt: skip
#: Dtypes of a header that are codes of a format.
FORMAT_DTYPES = {
    "BF16": PRESETS["bf16"],
    "F8_E4M3": PRESETS["fp8_e4m3"],
    "F8_E5M2": PRESETS["fp8_e5m2"],
    "F8_E8M0": PRESETS["fp8_e8m0"],
    # fnuz: the bias is one more than IEEE's 7 and 15, and the code of -0 is the only NaN
    "F8_E4M3FNUZ": Float(4, 3, 8, infinities=False, nans="negative_zero"),
    "F8_E5M2FNUZ": Float(5, 2, 16, infinities=False, nans="negative_zero"),
}


def dtype_of_codes(name: str) -> np.dtype[Any] | None:
    """Return NumPy's little-endian dtype of a tensor's stored elements: numbers, or codes; None if it has none.

    Args:
        name: dtype of a header.

    Examples:
        >>> dtype_of_codes("BF16"), dtype_of_codes("F32"), dtype_of_codes("F4")
        (dtype('uint16'), dtype('float32'), None)
    """
    if name in FORMAT_DTYPES:
        return np.dtype(f"<u{FORMAT_DTYPES[name].code_dtype.itemsize}")
    return np.dtype(NUMPY_DTYPES[name]) if name in NUMPY_DTYPES else None
