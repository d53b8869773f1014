"""Vectors of drawn descriptions are made, told of and explained, whatever formats and conventions meet in them."""

from __future__ import annotations

import numpy as np
import pytest

from emu.errors import ConfigError
from emu.testing.vectors import Description, make_vectors, what_they_tell
from emu.testing.vectors.check import compare
from emu.testing.vectors.description import OPERANDS

FORMATS = (
    "fix8f4", "ufix8f3", "fix8f4 sign-magnitude", "fix12f6 sign-magnitude", "fp16", "e5m2", "fp8_e4m3", "ue4m3",
    "e3m2 finite nans=none", "e4m3 hidden-one", "e4m7 hidden-one", "e4m3 ftz daz",
)  # fmt: skip
MODES = ("nearest_even", "floor", "toward_zero", "nearest_away", "stochastic")


def drawn(rng: np.random.Generator) -> Description:
    """A description that is possible."""
    while True:
        operation = str(rng.choice(list(OPERANDS)))
        table: dict[str, object] = {
            "operation": operation,
            "formats": [str(rng.choice(FORMATS)) for _ in range(OPERANDS[operation])],
            "out_format": str(rng.choice(FORMATS)),
            "rounding": str(rng.choice(MODES)),
            "depth": 3 if operation == "matmul" else 1,
            "count": 120,
            "seed": int(rng.integers(100)),
        }
        choices = {
            "stages": [str(rng.choice(FORMATS))],
            "invalid": str(rng.choice(["largest", "indefinite"])),
            "nan": str(rng.choice(["first", "signalling_first"])),
            "zero_sign": "ieee",
            "flags": str(rng.choice(["emu", "ieee"])),
        }
        table |= {key: value for key, value in choices.items() if rng.random() < 0.3}
        try:
            return Description.model_validate(table)
        except (ConfigError, ValueError):
            continue


def explain(seed: int) -> None:
    """Make vectors, turn a bit in some of their results and flags, and have it explained."""
    rng = np.random.default_rng(seed)
    d = drawn(rng)
    vectors = make_vectors(d)
    assert what_they_tell(vectors)
    assert compare(vectors, vectors.results, vectors.flags) is None
    turned, bit = rng.choice(d.count, 15, replace=False), np.uint64(rng.integers(d.stage.format.width_bits))
    codes, flags = vectors.results.copy(), vectors.flags.copy()
    codes[turned] ^= np.uint64(1) << bit
    flags[turned] ^= np.uint64(1)
    assert compare(vectors, codes) is not None
    assert compare(vectors, vectors.results, flags) is not None


@pytest.mark.parametrize("seed", range(6))
def test_a_drawn_description_is_made_and_explained(seed: int):
    explain(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_drawn_descriptions_are_made_and_explained(part: int):
    for seed in range(100 + 12 * part, 112 + 12 * part):
        explain(seed)
