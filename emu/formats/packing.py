"""Codes as bytes: elements of 4 and 6 bits side by side, and the order in which matrix units read scales.

    codes of 4 bits    c0 c1 c2 c3    ──► bytes    c1c0 c3c2           the first in the low bits
    codes of 6 bits    c0 c1 c2 c3    ──► 3 bytes, from the lowest bit on

Source: the PTX ISA and torchao for 4 bits; for 6 bits, which no standard orders in memory, the same rule continued.
cuBLAS, "1D Block Scaling Factors Layout", for the layout 128x4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emu.errors import ShapeError

Codes = NDArray[np.unsignedinteger]
#: Rows and columns of scales that a matrix unit reads together.
ROWS, COLUMNS = 128, 4


def pack(codes: Codes, width_bits: int) -> NDArray[np.uint8]:
    """Return codes as bytes along the last axis, the first code in the lowest bits.

    Args:
        codes: (..., K).
        width_bits: bits of a code, 1..32; K * width_bits is a multiple of 8.

    Returns:
        Bytes (..., K * width_bits / 8).

    Raises:
        ShapeError: the codes of a row do not fill bytes.

    Examples:
        >>> pack(np.array([1, 2, 3, 4], np.uint8), 4).tolist()
        [33, 67]
    """
    size = codes.shape[-1]
    if size * width_bits % 8:
        raise ShapeError(
            f"codes of {width_bits} bits must fill whole bytes, got {size} along the axis of the blocks; pad it to a "
            f"multiple of {8 // np.gcd(8, width_bits)}"
        )
    # (..., K, width_bits): the bits of each code, the lowest first; packbits fills each byte from its lowest bit
    bits = (codes[..., None].astype(np.uint32) >> np.arange(width_bits, dtype=np.uint32)) & np.uint32(1)
    return np.packbits(bits.astype(np.uint8).reshape(*codes.shape[:-1], size * width_bits), axis=-1, bitorder="little")


def unpack(packed: NDArray[np.uint8], width_bits: int) -> Codes:
    """Return the codes in bytes, the inverse of `pack`.

    Args:
        packed: bytes (..., n).
        width_bits: bits of a code, 1..32; 8 * n is a multiple of it.

    Raises:
        ShapeError: bytes are left over.
    """
    count, left = divmod(8 * packed.shape[-1], width_bits)
    if left:
        raise ShapeError(
            f"bytes must hold whole codes of {width_bits} bits, got {packed.shape[-1]} along the last axis"
        )
    bits = np.unpackbits(packed, axis=-1, bitorder="little").reshape(*packed.shape[:-1], count, width_bits)
    code = np.uint8 if width_bits <= 8 else np.uint32
    # (..., count, width_bits) bits times their weights; the sum is below 2**width_bits, so the dtype holds it
    return (bits.astype(code) << np.arange(width_bits, dtype=code)).sum(axis=-1, dtype=code)


def swizzle(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a matrix of scale codes in the layout 128x4, zeros beyond its end.

    Args:
        scales: (rows, k blocks).

    Returns:
        Bytes, one line: 512 for each 128 rows and 4 blocks. Within these, row i and column j lie at
        i % 32 * 16 + i % 128 // 32 * 4 + j.

    Raises:
        ShapeError: not two axes.
    """
    if scales.ndim != 2:
        raise ShapeError(f"the layout 128x4 must be that of a matrix of scales, got shape {scales.shape}; reshape it")
    rows, columns = scales.shape
    # rows and blocks that the matrix does not have get the code 0
    padded = np.pad(scales, [(0, -rows % ROWS), (0, -columns % COLUMNS)])
    # (tiles down, 4 groups, 32 rows, tiles along, 4 columns): row i of a tile is i % 32 of group i // 32
    tiles = padded.reshape(-1, ROWS // 32, 32, padded.shape[1] // COLUMNS, COLUMNS)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-1)


def unswizzle(line: NDArray[np.uint8], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the matrix of scale codes in a line of the layout 128x4, the inverse of `swizzle`.

    Args:
        line: bytes.
        shape: rows, k blocks.

    Raises:
        ShapeError: the line has another length.
    """
    rows, columns = (-(-size // unit) for size, unit in zip(shape, (ROWS, COLUMNS), strict=True))
    if line.size != rows * columns * ROWS * COLUMNS:
        raise ShapeError(
            f"the layout 128x4 of {shape[0]} rows and {shape[1]} blocks must have {rows * columns * ROWS * COLUMNS} "
            f"bytes, got {line.size}; give the scales of the whole matrix"
        )
    # the axes of `swizzle` in their order in memory; the same transpose exchanges groups and rows back
    tiles = line.reshape(rows, columns, 32, ROWS // 32, COLUMNS).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(tiles.reshape(rows * ROWS, columns * COLUMNS)[: shape[0], : shape[1]])
