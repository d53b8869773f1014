"""Fixed point of 32 bits as gemmlowp has it, against the functions that it approximates."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np

from emu.operations.fixed_point import (
    exponential,
    exponentials,
    reciprocal_of_sum,
    rounded_high_half,
    rounded_shift,
    shifted_left,
)

RNG = np.random.default_rng(1)
INTEGERS = np.concatenate([RNG.integers(-(2**31) + 1, 2**31, 2000), [0, 1, -1, 2**31 - 1, -(2**31) + 1]])


def test_a_high_half_is_rounded_with_ties_up():
    other = RNG.permutation(INTEGERS)
    expected = [floor(Fraction(int(x) * int(y), 2**31) + Fraction(1, 2)) for x, y in zip(INTEGERS, other, strict=True)]
    assert rounded_high_half(INTEGERS, other).tolist() == expected
    assert rounded_high_half([1, -1, 3], 1 << 30).tolist() == [1, 0, 2]


def test_a_shift_is_rounded_with_ties_away_from_zero():
    assert rounded_shift([1, -1, 2, -2, 3, -3], 1).tolist() == [1, -1, 1, -1, 2, -2]
    for bits in (0, 1, 5, 31):
        away = [(abs(int(x)) * 2 + 2**bits) // 2 ** (bits + 1) * (1 if x >= 0 else -1) for x in INTEGERS]
        assert rounded_shift(INTEGERS, bits).tolist() == away


def test_a_shift_to_the_left_saturates():
    assert shifted_left([1, -1, 1 << 30, -(1 << 30)], 2).tolist() == [4, -4, 2**31 - 1, -(2**31)]


def test_exponentials_are_right_to_28_bits_and_start_at_1():
    """The polynomial of degree 4 leaves 1/120 * 8**-5 = 2.5e-7 of exp(-1/8); products round 2**-32 each."""
    x = -RNG.integers(0, 1 << 31, 5000)
    error = np.abs(exponential(x) / 2.0**31 - np.exp(x / 2.0**26))
    assert error.max() < 4e-7
    assert exponential([0]).tolist() == [2**31 - 1]


def test_a_table_of_exponentials_ends_where_the_operand_leaves_its_bits():
    """At a step of 1/2 the multiplier is 2**25 = 2**30 * 2**(26 - 31): 31 * 2**26 / 2**26 = 31 elements are near."""
    table = exponentials(0.5)
    assert (table > 0).tolist() == [k <= 31 for k in range(256)]
    assert np.abs(table[:32] / 2.0**31 - np.exp(-0.5 * np.arange(32))).max() < 4e-7


def test_from_a_step_of_16_on_a_table_of_exponentials_has_the_largest_element_alone():
    """The multiplier 2**30 has the shift 31: 31 * 2**26 // 2**31 = 0 elements are near."""
    for step in (16.0, 16 - 2.0**-28, 20.0, 32.0, 1e30):
        assert exponentials(step).tolist() == [2**31 - 1] + [0] * 255
    # the next smaller multiplier is rounded to 2**30 - 1/2: 31 * 2**26 // 2**30 = 1
    assert (exponentials(np.nextafter(16 - 2.0**-28, 0)) > 0).tolist() == [True, True] + [False] * 254


def test_reciprocals_are_right_to_27_bits():
    """They are written in units of 2**-29, one of which is at most 2**-28 of them; the last step rounds twice."""
    x = np.concatenate([RNG.integers(1 << 19, 1 << 31, 3000), [1 << 19, (1 << 20) - 1, 1 << 20]])
    r, n = reciprocal_of_sum(x, 19)
    error = np.abs(r / 2.0**31 / 2.0**n * (x / 2.0**19) - 1)
    assert error.max() < 2.0**-27
    assert r.min() >= 1 << 30
