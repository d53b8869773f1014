"""Gradient codecs in every way they can be told, and columns on which kernels go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.cluster.codecs import Address, Memory, Quantiser

#: Every option, and what goes together.
TWO_STEPS: list[dict[str, Any]] = [
    {},
    {"threshold": "mean"},
    {"threshold": "previous_mean"},
    {"levels": "ends"},
    {"outliers": 1.5},
    {"left_out": 0.3},
    {"levels": "ends", "outliers": 1.0, "left_out": 0.2},
    {"interval": 2},
    {"interval": 2, "at_random": True},
    {"lag": 1, "smoothing": "window", "window": 2},
    {"threshold": "previous_mean", "threshold_lag": 2, "residual_lag": 2},
    {"smoothing": "exponential"},
]
MORE_STEPS: list[dict[str, Any]] = [
    options | {"steps": steps}
    for steps in (3, 4, 5, 16, 37, 100, 256)
    for options in (
        {},
        {"levels": "means"},
        {"deviations": 0.7},
        {"levels": "means", "outliers": 2.0, "left_out": 0.3},
        {"smoothing": "exponential", "interval": 2},
        {"levels": "means", "lag": 1},
    )
]
#: Steps of a given range, and codes that take two bytes.
OF_A_RANGE: list[dict[str, Any]] = [
    {"steps": 4, "range": (0.0, 1.0)},
    {"steps": 37, "range": (-2.0, 0.5)},
    {"steps": 5, "levels": "means", "range": (-1.0, 1.0), "outliers": 2.0},
    {"steps": 16, "levels": "means", "range": (-1.0, 1.0), "smoothing": "window"},
]
WIDE: list[dict[str, Any]] = [
    {"steps": 257},
    {"steps": 1 << 9, "range": (0.0, 1.0)},
    {"steps": 5000, "smoothing": "exponential"},
    {"steps": 1 << 16},
]
OPTIONS = TWO_STEPS + MORE_STEPS + OF_A_RANGE + WIDE
#: What two steps can be told, all numbers of steps, and what more of them can be told.
ONE_OF_EACH = TWO_STEPS + MORE_STEPS[::7] + OF_A_RANGE[::3] + WIDE[1::2]
ROWS = (0, 1, 31, 32, 33, 63, 64, 65, 130)
DTYPES = (np.float32, np.float64)
KINDS = ("normal", "odd", "finite", "negative zero")
_ODD = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-40, 3e38, -3e38, 1e300)
MINI_BATCHES = 3


def columns_of(kind: str, columns: int, rows: int, dtype: Any, seed: int) -> np.ndarray:
    """Columns of normal numbers of several magnitudes, strewn with what the kind says."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((columns, rows)) * 2.0 ** rng.integers(-6, 6, (columns, 1))).astype(dtype)
    strewn = [v for v in _ODD if kind == "odd" or (kind == "finite" and abs(v) < 1e30)]
    for value in strewn if x.size else ():
        with np.errstate(over="ignore"):
            x.reshape(-1)[rng.integers(0, x.size, max(1, x.size // 150))] = dtype(value)
    if kind == "negative zero":
        x[...] = -0.0
    return x


def run(backend: str, options: dict[str, Any], columns: int, rows: int, dtype: Any, kind: str) -> dict[str, Any]:
    """What a codec sends, what a receiver makes of it, and what is remembered, over several mini-batches, as bytes."""
    codec, memory = Quantiser(**options, backend=backend), Memory.empty(columns, rows, dtype)
    total, found = columns_of("finite", columns, rows, dtype, 99), dict[str, Any]()
    for step in range(MINI_BATCHES):
        message = codec.encode(columns_of(kind, columns, rows, dtype, step), memory, Address(1, 2, step))
        decoded = codec.decode(message, rows)
        codec.decode_and_add(message, total)
        assert message.words.dtype == np.uint32
        assert message.levels.dtype == decoded.dtype == np.float32
        found |= {f"message {step}": message.to_bytes(), f"decoded {step}": decoded.tobytes()}
        found |= {f"sum {step}": total.tobytes()}
        found |= {f"{name} {step}": (array.dtype, array.tobytes()) for name, array in memory.arrays().items()}
    return found


def differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Names of what is not the same."""
    return [name for name in first if first[name] != second.get(name)] + sorted(second.keys() - first.keys())
