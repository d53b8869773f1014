"""Files of tensors: `.safetensors`, with the narrow floats that NumPy has no dtype for.

    file ──► header: dtype and shape of each tensor ──► bytes ──► NumPy's dtype, or codes that a format of emu decodes

Source: the format's page in github.com/huggingface/safetensors; OCP 8-bit Floating Point Specification 1.0; Noune et
al., "8-bit Numerical Formats for Deep Neural Networks" (fnuz).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.formats import PRESETS, Float

Array = NDArray[Any]

#: Dtypes of a header that NumPy has, little-endian.
_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "C64": "<c8", "BOOL": "?", "I64": "<i8", "U64": "<u8", "I32": "<i4",
    "U32": "<u4", "I16": "<i2", "U16": "<u2", "I8": "i1", "U8": "u1",
}  # fmt: skip
#: Dtypes of a header that are codes of a format.
_FORMATS = {
    "BF16": PRESETS["bf16"],
    "F8_E4M3": PRESETS["fp8_e4m3"],
    "F8_E5M2": PRESETS["fp8_e5m2"],
    "F8_E8M0": PRESETS["fp8_e8m0"],
    "F8_E4M3FNUZ": Float(4, 3, 8, infinities=False, nans="negative_zero"),
    "F8_E5M2FNUZ": Float(5, 2, 16, infinities=False, nans="negative_zero"),
}


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file by name, in their dtypes; narrow floats as float32, which holds them exactly.

    A tensor of any other dtype, such as the packed F4 and F6, is returned with its shape and one field that has the
    dtype's name, but without numbers: they mean nothing without the scales of their blocks.

    Raises:
        ConfigError: the file cannot be read, or is damaged.
    """
    safetensors = import_module("safetensors")
    try:
        tensors = safetensors.deserialize(path.read_bytes())
    except (safetensors.SafetensorError, OSError) as error:
        raise ConfigError(f"weights in {path} must be a safetensors file, got {error}; write it again") from None
    return {name: _array(tensor["dtype"], tuple(tensor["shape"]), tensor["data"]) for name, tensor in tensors}


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    fmt = _FORMATS.get(dtype)
    if fmt is not None:
        codes = np.frombuffer(data, np.dtype(fmt.code_dtype).newbyteorder("<"))
        return fmt.decode(codes.astype(fmt.code_dtype)).reshape(shape)
    if dtype in _NUMPY:
        return np.frombuffer(data, _NUMPY[dtype]).reshape(shape)
    return np.broadcast_to(np.zeros((), [(dtype, "V1")]), shape)
