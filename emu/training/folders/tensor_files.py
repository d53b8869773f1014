"""Files of tensors: `.safetensors`, with the narrow floats that NumPy has no dtype for.

    file ──► header: dtype and shape of each tensor ──► bytes ──► NumPy's dtype, or codes that a format of emu decodes

Source: the format's page in github.com/huggingface/safetensors.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.checkpoints.dtypes import FORMAT_DTYPES, NUMPY_DTYPES
from emu.errors import ConfigError

Array = NDArray[Any]


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
    fmt = FORMAT_DTYPES.get(dtype)
    if fmt is not None:
        # files are little-endian, and `decode` takes codes in the computer's own order
        codes = np.frombuffer(data, np.dtype(fmt.code_dtype).newbyteorder("<"))
        return fmt.decode(codes.astype(fmt.code_dtype)).reshape(shape)
    if dtype in NUMPY_DTYPES:
        return np.frombuffer(data, NUMPY_DTYPES[dtype]).reshape(shape)
    # one byte for any shape; the field's name carries the dtype to the message that refuses the array
    return np.broadcast_to(np.zeros((), [(dtype, "V1")]), shape)
