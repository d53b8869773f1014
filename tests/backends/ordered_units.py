"""A unit for each adder of the tiles that add in order along k, and values for it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import HAS_DOTS

import emu
from emu import Mac
from emu.backends.numba.ways import in_tiles

#: For each adder: formats of left operands, right ones and results, and the unit. Where the processor lacks what an
#: adder needs, another one computes it.
UNITS = {
    "fused": ("fp32", "fp16", "fp32", Mac(accumulator="fp32")),
    "float32": ("fp32", "fp32", "fp32", Mac(product="fp32", accumulator="fp32")),
    "binary16": ("fp16", "fp16", "fp16", Mac(product="fp16", accumulator="fp16")),
    "fused16": ("fp16", "fp16", "fp16", Mac(accumulator="fp16")),
    "half": ("fp16", "fp8_e5m2", "fp16", Mac(product="fp16", accumulator="fp16")),
    "fused_half": ("fix11f6", "fp16", "fp16", Mac(accumulator="fp16")),
    "words": ("fix16f8", "fix16f8", "fix16f8", Mac(accumulator="fix32f16")),
    "marked": ("fix12f6", "fix12f6", "fix16f8", Mac(accumulator="fix24f12")),
    "saturating": ("fix8f4", "ufix8f4", "fix8f4", Mac(accumulator="fix20f8")),
}
#: Those of floats.
FLOATS = [name for name, (left, right, _, _) in UNITS.items() if "fix" not in left + right]
#: Those that tell where a limit was touched. Without dot products no tile adds words.
LIMITED = [*(["words"] if HAS_DOTS else []), "marked", "saturating"]


@contextmanager
def using(adder: str) -> Generator[None, None, None]:
    """Let an adder of binary16 sums compute where the processor has arithmetic that would do without it."""
    with pytest.MonkeyPatch.context() as patch:
        if adder in ("binary16", "fused16"):
            patch.setattr(in_tiles, "has_half_arithmetic", lambda: False)
        in_tiles.unit_for.cache_clear()
        yield
    in_tiles.unit_for.cache_clear()


def values(fmt: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random values: of floats near 1."""
    return random_values(fmt, shape, seed, anything=not isinstance(emu.parse(fmt), emu.Float))


def holed(fmt: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random values of which some are 0 along the whole first axis, and half of the others."""
    rng = np.random.default_rng(seed)
    return values(fmt, shape, seed) * (rng.random(shape) < 0.5) * (rng.random((1, *shape[1:])) < 0.7)
