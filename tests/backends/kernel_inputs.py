"""Numbers on which kernels go wrong: ties and their neighbours, extremes, subnormals, specials, random bit patterns."""

from __future__ import annotations

import numpy as np

import emu
from emu.formats import Fixed, Format

SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.0, -4.0, 5e-324, -5e-324)


def spacing(fmt: Format, values: np.ndarray) -> np.ndarray:
    """Distance between neighbours of the format's grid around each value, as float64."""
    if isinstance(fmt, Fixed):
        return np.full(values.shape, np.ldexp(1.0, -fmt.frac_bits))
    exponent = np.maximum(np.frexp(values)[1] - 1, fmt.emin)
    return np.ldexp(1.0, exponent - fmt.fraction_bits)


def finite_values(fmt: Format, n: int, rng: np.random.Generator) -> np.ndarray:
    """Random finite values of a format as float64 (rounded, where its raws have more bits), crowded at both ends."""
    codes = (
        rng.integers(0, fmt.n_codes, n, dtype=np.uint64, endpoint=False) if fmt.width_bits < 64 else rng.bytes(8 * n)
    )
    codes = np.frombuffer(codes, np.uint64) if isinstance(codes, bytes) else codes
    shift = rng.integers(0, fmt.width_bits, n).astype(np.uint64)
    codes = np.where(rng.integers(0, 2, n) == 0, codes >> shift, codes)
    values = fmt.decode(codes)
    if fmt.carries_raws:
        values = np.ldexp(values.astype(np.float64), -fmt.frac_bits)
    values = values.astype(np.float64)
    return np.where(np.isfinite(values), values, 1.0)


def reals(name: str, n: int, seed: int, dtype: type = np.float64) -> np.ndarray:
    """Return about 8 * n numbers to be rounded into a format, shuffled."""
    fmt, rng = emu.parse(name), np.random.default_rng(seed)
    values = finite_values(fmt, n, rng)
    step = spacing(fmt, values)
    with np.errstate(all="ignore"):
        ties = values + step / 2
        largest = np.array([fmt.max, fmt.min, 2.0 * fmt.max, 1.5 * fmt.max])
        edges = (largest[:, None] + np.outer(spacing(fmt, largest), np.arange(-6, 7) / 4)).reshape(-1)
        parts = [
            values,
            ties,
            np.nextafter(ties, np.inf),
            np.nextafter(ties, -np.inf),
            values + step * rng.integers(0, 64, n) / 64,
            step * rng.integers(-8, 9, n) / 8,
            rng.standard_normal(n),
            edges,
            np.array(SPECIALS),
            patterns(n, seed, np.float64),
        ]
        x = np.concatenate(parts).astype(dtype)
    if dtype == np.float32:
        x = np.concatenate([x, patterns(n, seed, np.float32)])
    return rng.permutation(x)


def patterns(n: int, seed: int, dtype: type) -> np.ndarray:
    """Random bit patterns of a float dtype, signalling NaNs included."""
    return np.frombuffer(np.random.default_rng(seed).bytes(n * np.dtype(dtype).itemsize), dtype)


def random_values(name: str, shape: tuple[int, ...], seed: int, *, anything: bool = True) -> np.ndarray:
    """Values of a format as carriers: of random codes (`anything`), or near 1."""
    fmt, rng = emu.parse(name), np.random.default_rng(seed)
    if not anything:
        return emu.quantize(rng.standard_normal(shape), fmt, backend="reference")
    size = int(np.prod(shape))
    codes = np.frombuffer(rng.bytes(8 * size), np.uint64) >> np.uint64(64 - fmt.width_bits)
    return fmt.decode(codes.reshape(shape))
