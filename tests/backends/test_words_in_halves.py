"""Products of words of 17 to 32 bits by their halves: the exact sums, rounded once."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from variants import assert_same_everywhere, needs_pairs

import emu
from emu.backends.numba.ways import halves, wide_sums
from emu.formats import Fixed

WORDS = ["fix17f8", "fix24f20", "fix31f3", "fix32f16", "ufix24f10", "ufix31f0", "ufix16f4"]
OUT = [("fix32f8", "nearest_even"), ("fp32", "to_odd"), ("fix16f4", "floor"), ("fp16", "stochastic")]


def words(name: str, shape: tuple[int, ...], seed: int, *, extremes: bool = True) -> np.ndarray:
    """Raws over all bits, half of them at the ends and next to a half's."""
    fmt, rng = emu.parse(name), np.random.default_rng(seed)
    assert isinstance(fmt, Fixed)
    raws = rng.integers(fmt.min_raw, fmt.max_raw, shape, endpoint=True)
    edges = np.array(
        [fmt.min_raw, 0, 1, -1, 2**15 - 1, 2**15, 2**16 - 1, 2**16, -(2**15), -(2**15) - 1, fmt.max_raw // 2]
    )
    chosen = rng.choice(edges[(edges >= fmt.min_raw) & (edges <= fmt.max_raw)], shape)
    raws = np.where(rng.integers(0, 2, shape) == 0, chosen, raws) if extremes else raws
    return np.ldexp(np.minimum(raws, 2**31 - 2**15 - 1).astype(np.float64), -fmt.frac_bits).astype(fmt.carrier)


@needs_pairs
@pytest.mark.parametrize("a", WORDS)
@pytest.mark.parametrize("b", ["fix16f8", "fix32f20"])
def test_sums_of_wide_words_are_rounded_once(a: str, b: str):
    x, y = words(a, (5, 70), 1), words(b, (70, 37), 2)
    for addend, third in ((None, None), (words("fix20f0", (1, 37), 3), "fix20f0")):
        for out, rounding in OUT:
            options: dict[str, Any] = {"a_format": a, "b_format": b, "out_format": out, "rounding": rounding}
            if third is not None:
                options |= {"addend": addend, "addend_format": third}
            if third is None and emu.parse(a).width_bits + emu.parse(b).width_bits > 53:
                with patch.object(wide_sums, "contents", side_effect=AssertionError("not by halves")):
                    emu.matmul(x, y, backend="numba", **options)
            assert_same_everywhere(lambda **where: emu.matmul(x, y, **options, **where), out, (a, b, rounding, third))


@needs_pairs
def test_every_depth_and_batch_is_the_same():
    formats = {"a_format": "fix32f16", "b_format": "fix24f12", "out_format": "fix32f10"}
    for depth in (0, 1, 2, 3, 17, 64, 70):
        x, y = words("fix32f16", (3, 2, depth), depth), words("fix24f12", (3, depth, 5), depth + 1)
        assert_same_everywhere(lambda **where: emu.matmul(x, y, **formats, **where), "fix32f10", depth)


@needs_pairs
def test_numbers_without_halves_go_the_general_way():
    """2**31 - 1 would need a half of 2**15."""
    x = np.full((2, 3), 2.0**31 - 1)
    assert halves._halves(x, halves.encode_format(Fixed(32, 0))) is None
    formats = {"a_format": "fix32f0", "b_format": "fix32f0", "out_format": "fp32"}
    y = assert_same_everywhere(lambda **where: emu.matmul(x, x.T, **formats, **where), "fp32")
    assert np.array_equal(y, np.full((2, 2), np.float32(3 * (2**31 - 1) ** 2)))


@needs_pairs
def test_exact_sums_near_a_tie_are_told_from_it():
    """2**62 and half of the last place of binary32, less or more one unit."""
    for excess, expected in ((-1, 2.0**62), (0, 2.0**62), (1, 2.0**62 + 2.0**39)):
        a = np.array([[2.0**32, 2.0**20, 4.0 * excess]])
        b = np.array([[2.0**30], [2.0**18], [1.0]])
        y = emu.matmul(a, b, a_format="fix32f-2", b_format="fix32f0", out_format="fp32", backend="numba")
        assert y.item() == expected, excess
