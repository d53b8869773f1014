"""Sums of more bits than floats have: whole and broken tiles, the largest terms, wrapped and rounded."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu.testing import assert_bits_equal


def raws(fmt: str, shape: tuple[int, ...], *, extremes: bool) -> np.ndarray:
    word = emu.parse(fmt)
    assert isinstance(word, emu.Fixed)
    rng = np.random.default_rng(sum(shape))
    ends = [word.min_raw, word.max_raw, 0, 1, word.max_raw - 1]
    if extremes:
        codes = rng.choice(np.array([end % word.n_codes for end in ends], np.uint64), shape)
    else:
        codes = rng.integers(0, word.n_codes - 1, shape, np.uint64, endpoint=True)
    return word.decode(codes.astype(word.code_dtype))


@pytest.mark.parametrize("extremes", [False, True])
@pytest.mark.parametrize(("a_format", "b_format"), [
    ("fix32f8", "fix32f20"), ("fix28f0", "ufix31f2"), ("ufix32f8", "fix32f8"), ("fix64f3", "fix64f9"),
    ("ufix63f0", "fix48f40"),
])  # fmt: skip
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 0, 2), (64, 8, 64), (65, 9, 70), (2, 130, 129)])
@pytest.mark.parametrize(("out", "overflow", "rounding"), [
    ("fix32f4", "saturate", "nearest_even"), ("fix64f12", "wrap", "floor"), ("fp32", "ieee", "to_odd"),
])  # fmt: skip
def test_tiles_of_integers_write_the_references_bits(
    cuda: str,
    a_format: str,
    b_format: str,
    m: int,
    k: int,
    n: int,
    out: str,
    overflow: str,
    rounding: str,
    extremes: bool,
):
    a, b = raws(a_format, (2, m, k), extremes=extremes), raws(b_format, (1, k, n), extremes=extremes)
    results = []
    for backend in (cuda, "reference"):
        register, flags = emu.StatisticsRegister(), emu.Flags()
        values = emu.matmul(
            a, b, a_format=a_format, b_format=b_format, out_format=out, overflow=overflow, rounding=rounding,
            register=register, flags=flags, backend=backend,
        )  # fmt: skip
        results.append((values, register.to_dict(), flags.counts()))
    assert_bits_equal(results[0][0], results[1][0], emu.parse(out))
    assert results[0][1:] == results[1][1:]
