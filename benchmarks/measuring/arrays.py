"""Arrays to measure with: on a cache line, and with the numbers a row asks for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from emu.formats import Fixed, Float, Format

Array = NDArray[Any]
CACHE_LINE_BYTES = 64
SEED = 2026
#: A normal number beyond three deviations leaves a fixed range: 0.27% of them overflow.
DEVIATIONS = 3.0
#: Every so many floats one is this small, so that subnormals and zeros come out as well.
TINY_EVERY, TINY = 7, 1e-6


def aligned(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
    """Return zeros whose first element begins a cache line; every page has been touched."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    buffer = np.empty(size + CACHE_LINE_BYTES, np.uint8)
    buffer.fill(0)
    start = -buffer.ctypes.data % CACHE_LINE_BYTES
    return buffer[start : start + size].view(kind).reshape(shape)


def reals(size: int, fmt: Format) -> Array:
    """Return float32 that overflow, vanish and round now and then when written in `fmt`."""
    x = aligned((size,))
    x[:] = np.random.default_rng(SEED).standard_normal(size, dtype=np.float32)
    if isinstance(fmt, Float):
        x[::TINY_EVERY] *= np.float32(TINY)
    else:
        x *= np.float32(math.ldexp(fmt.max_raw + 1, -fmt.frac_bits) / DEVIATIONS)
    return x


def integers(shape: tuple[int, int], fmt: Fixed, bits: int, seed: int) -> Array:
    """Return values of `fmt` whose raws are uniform over a signed integer of `bits` bits, in the carrier."""
    limit = 1 << (bits - 1)
    raw = np.random.default_rng(SEED + seed).integers(-limit, limit, shape)
    return lay(fmt.from_raw(raw))


def floats(shape: tuple[int, int], fmt: Float, seed: int, *, deviation: float = 1.0) -> Array:
    """Return normal numbers written in `fmt`, in the carrier."""
    x = np.random.default_rng(SEED + seed).standard_normal(shape) * deviation
    codes = fmt.codes() if fmt.width_bits <= 16 else None
    if codes is None:
        return lay(x.astype(fmt.carrier))
    grid = np.unique(fmt.decode(codes)[np.isfinite(fmt.decode(codes))])
    return lay(grid[np.clip(np.searchsorted(grid, x), 0, len(grid) - 1)].astype(fmt.carrier))


def lay(x: Array) -> Array:
    """Return a copy that begins a cache line."""
    copy = aligned(x.shape, x.dtype)
    copy[...] = x
    return copy
