"""Binary16 add and multiply on all 2**32 pairs, every operation and mode on slices, against integer arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from binary16_integers import MODES, OPERATIONS, compute
from binary16_pairs import CODES, RESULTS, scan, values_of
from binary16_pairs import OPERATIONS as SCANNED
from fast_suite import most_are_slow

import emu
from emu.testing import assert_bits_equal

RANDOM_BITS = 8
#: Exponent fields around subnormals, 1 and the largest numbers, and so far apart that sums fall on every rounding bit.
FIELDS = (0, 1, 2, 3, 4, 13, 14, 15, 16, 25, 26, 27, 28, 29, 30, 31)


def edge_pairs(fields: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of codes of both signs with the fractions at the ends and in the middle of these fields."""
    magnitudes = [field << 10 | fraction for field in fields for fraction in (0, 1, 0x200, 0x3FF)]
    codes = np.array([sign | magnitude for sign in (0, 0x8000) for magnitude in magnitudes], np.uint16)
    a, b = np.meshgrid(codes, codes, indexing="ij")
    return a.ravel(), b.ravel()


def seeded_codes(n: int, operands: int, seed: int) -> list[np.ndarray]:
    """Codes of which neighbours often cancel: half of them share their upper bits with the first operand."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, CODES, n, dtype=np.uint16) for _ in range(operands)]
    for other in codes[1:]:
        near = rng.random(n) < 0.5
        other[near] = codes[0][near] ^ (rng.integers(0, 64, n, dtype=np.uint16) | 0x8000)[near]
    return codes


def called(operation: str, codes: list[np.ndarray], **options: Any) -> np.ndarray:
    """emu's result for codes, as values."""
    values = [values_of(c) for c in codes]
    formats = {f"{name}_format": "fp16" for name, _ in zip("abc", values, strict=False)}
    return getattr(emu, operation)(*values, out_format="fp16", **formats, **options)


def wanted(operation: str, codes: list[np.ndarray], mode: str, u: np.ndarray) -> np.ndarray:
    """The integers' result for codes, as values."""
    three = [*codes, codes[0]][:3]
    return values_of(compute(OPERATIONS.index(operation), *three, MODES.index(mode), u, RANDOM_BITS))


def check(operation: str, codes: list[np.ndarray], mode: str, backend: str, seed: int = 0) -> None:
    u = np.random.default_rng(seed).integers(0, 2**RANDOM_BITS, codes[0].size, dtype=np.uint32)
    options: dict[str, Any] = {"rounding": mode, "backend": backend}
    if mode == "stochastic":
        options |= {"rbits": u, "n_rbits": RANDOM_BITS}
    assert_bits_equal(called(operation, codes, **options), wanted(operation, codes, mode, u), "fp16")


@pytest.mark.slow
@pytest.mark.parametrize("operation", SCANNED)
def test_all_pairs_equal_integer_arithmetic(operation: str):
    found = scan(operation, range(CODES))
    assert found.pairs == 2**32
    assert found.mismatches == 0, found.examples


@pytest.mark.parametrize("operation", SCANNED)
def test_every_right_operand_of_a_slice_of_left_ones_equals_integer_arithmetic(operation: str):
    found = scan(operation, np.random.default_rng(3).integers(0, CODES, 64))
    assert found.pairs == 2**22
    assert found.mismatches == 0, found.examples


@pytest.mark.parametrize("operation", SCANNED)
def test_a_wrong_bit_would_be_counted(operation: str, monkeypatch: pytest.MonkeyPatch):
    real = SCANNED[operation]

    def wrong(a: np.ndarray, b: np.ndarray, *, out: np.ndarray, **options: Any) -> None:
        real(a, b, out=out, **options)
        out.view(np.uint32)[1, 77] ^= 1 << 13
        out[2, 0] = np.nan  # for 0.5 + 0 and 0.5 * 0
        out[0, 0x7E00] = 1.0  # for NaN

    monkeypatch.setitem(SCANNED, operation, wrong)
    found = scan(operation, [0x3C00, 0x4248, 0x3800])
    assert found.mismatches == 3
    assert found.examples == [("0x3c00", 1), ("0x4248", 1), ("0x3800", 1)]


@pytest.mark.parametrize("operation", SCANNED)
def test_the_two_ways_of_the_integers_and_numpys_halves_agree(operation: str):
    random = seeded_codes(1 << 18, 2, 4)
    a, b = (np.concatenate(pair) for pair in zip(random, edge_pairs(range(32)), strict=True))
    fast = values_of(RESULTS[operation](a, b))
    assert_bits_equal(fast, wanted(operation, [a, b], "nearest_even", np.zeros(a.size, np.uint32)), "fp16")
    with np.errstate(all="ignore"):
        halves = getattr(np, operation)(a.view(np.float16), b.view(np.float16)).astype(np.float32)
    assert_bits_equal(fast, halves, "fp16")


@most_are_slow(
    ("operation", "mode"),
    product(OPERATIONS, MODES),
    keep=lambda operation, mode: (list(OPERATIONS).index(operation) + list(MODES).index(mode)) % 3 == 0,
)
def test_all_pairs_of_edges_in_every_mode(operation: str, mode: str, backend: str):
    a, b = edge_pairs(FIELDS if backend == "numba" else FIELDS[::3])
    codes = [a, b, np.roll(b, 7) ^ np.uint16(0x0201)] if operation == "fma" else [a, b]
    check(operation, codes, mode, backend)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_seeded_pairs_in_every_mode(operation: str, mode: str):
    check(operation, seeded_codes(1 << 13, 3 if operation == "fma" else 2, 5), mode, "numba")


@pytest.mark.parametrize("mode", MODES)
def test_fused_sums_that_nearly_cancel_in_every_mode(mode: str, backend: str):
    rng = np.random.default_rng(6)
    a, b = (rng.integers(0x3000, 0x4800, 1 << 11, dtype=np.uint16) for _ in range(2))
    product = RESULTS["multiply"](a, b)
    c = product ^ np.uint16(0x8000) ^ rng.integers(0, 2, a.size, dtype=np.uint16)
    check("fma", [a, b, c], mode, backend)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_millions_of_seeded_pairs_in_every_mode(operation: str, mode: str):
    check(operation, seeded_codes(1 << 22, 3 if operation == "fma" else 2, 7), mode, "numba")
