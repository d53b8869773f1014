"""Checkpoints for tests, as other programs write them: tensors of every convention, and the numbers that they mean.

The numbers are computed here from tables and ml_dtypes, in the operations of the convention's own code.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

#: The sixteen codes of E2M1.
E2M1 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
E4M3, E8M0, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16
DTYPES = {"uint8": "U8", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "bfloat16": "BF16", "float32": "F32"}
RANDOM = np.random.default_rng(20261127)

Tensors = dict[str, np.ndarray[Any, Any]]


def save(path: Path, tensors: Tensors) -> Path:
    """Write a file as the format's page describes it, the tensors in their order."""
    header, content = {}, b""
    for name, array in tensors.items():
        start, content = len(content), content + array.tobytes()
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [start, len(content)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def nibbles(packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers of bytes that hold two E2M1 codes each, the first in the low bits."""
    return E2M1[np.stack([packed % 16, packed // 16], axis=-1)].reshape(*packed.shape[:-1], -1)


def powers(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers of E8M0 codes."""
    return np.float32([2.0 ** (code - 127) for code in range(255)] + [np.nan])[codes]


def of_blocks(scales: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    return np.repeat(scales, size, axis=-1)


def times(elements: np.ndarray[Any, Any], scales: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Products in float32, rounded once; 6 * 2**127 is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return elements.astype(np.float32) * scales.astype(np.float32)


def some(*shape: int, dtype: Any = np.uint8, top: int = 256) -> np.ndarray[Any, Any]:
    """Codes of every kind."""
    codes = np.resize(RANDOM.permutation(np.arange(top)), int(np.prod(shape)))
    return codes.reshape(shape).astype(np.uint8).view(dtype)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    return np.array(np.exp(RANDOM.normal(-4, 2, shape)), np.float32)


def mxfp4(elements: str, scales: str, *, has_blocks: bool) -> tuple[Tensors, str, np.ndarray[Any, Any]]:
    codes, exponents = some(2, 64, 4 * 16), some(2, 64, 4)
    numbers = times(nibbles(codes), of_blocks(powers(exponents), 32))
    return {elements: codes.reshape(2, 64, 4, 16) if has_blocks else codes, scales: exponents}, "mxfp4_e2m1", numbers


def nvfp4() -> tuple[Tensors, str, np.ndarray[Any, Any]]:
    codes, scales, scale = some(8, 128), some(8, 16, top=128, dtype=E4M3), positive()
    numbers = times(nibbles(codes), of_blocks(times(scales, scale), 16))
    return {"w": codes, "w_scale": scales, "w_scale_2": scale}, "nvfp4 nvfp4_torchao", numbers


def tiles(name: str) -> tuple[Tensors, str, np.ndarray[Any, Any]]:
    codes, scales = some(300, 200, dtype=E4M3), positive(3, 2)
    each = np.kron(scales, np.ones((128, 128), np.float32))[:300, :200]
    return {"w": codes, name: scales}, "fp8_tile_128x128", times(codes, each)


def fp8(scales: np.ndarray[Any, Any], fmt: str) -> tuple[Tensors, str, np.ndarray[Any, Any]]:
    codes = some(16, 48, dtype=E4M3)
    return {"w": codes, "w_scale": scales}, fmt, times(codes, scales)


def mxfp8(dtype: Any) -> tuple[Tensors, str, np.ndarray[Any, Any]]:
    codes, exponents = some(64, 128, dtype=E4M3), some(64, 4)
    numbers = times(codes, of_blocks(powers(exponents), 32))
    return {"w": codes, "w_scale": exponents.view(dtype)}, "mxfp8_e4m3", numbers


#: Tensors, the format of the value `w`, and its numbers; by the name of the convention.
CASES = {
    "gpt-oss": mxfp4("w_blocks", "w_scales", has_blocks=True),
    "gpt-oss-original": mxfp4("w.blocks", "w.scales", has_blocks=True),
    "modelopt-nvfp4": nvfp4(),
    "modelopt-mxfp4": mxfp4("w", "w_scale", has_blocks=False),
    "compressed-tensors-mxfp4": mxfp4("w_packed", "w_scale", has_blocks=False),
    "deepseek": tiles("w_scale_inv"),
    "fp8-tensor": fp8(positive(), "fp8_tensor"),
    "fp8-row": fp8(positive(16, 1), "fp8_row"),
    "fp8-row-bf16": fp8(positive(16, 1).astype(BF16), "fp8_row"),
    "fp8-tile": tiles("w_scale"),
    "mxfp8": mxfp8(np.uint8),
    "mxfp8-e8m0": mxfp8(E8M0),
}
