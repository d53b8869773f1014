"""IEEE 754-2019 sections 5.3.1, 5.9, 6.3 and 7.2: remainder and rounding to an integer, clause by clause."""

from __future__ import annotations

import math

import numpy as np
import pytest

import emu
from emu.testing import assert_bits_equal


def integral(x, backend: str, **options):
    flags = emu.Flags()
    return emu.round_to_integral(x, backend=backend, flags=flags, **{"out_format": "fp16", **options}), flags


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("nearest_even", [0.0, 2.0, 2.0, -0.0, -2.0]),  # roundToIntegralTiesToEven
        ("nearest_away", [1.0, 2.0, 3.0, -1.0, -2.0]),  # roundToIntegralTiesToAway
        ("toward_zero", [0.0, 1.0, 2.0, -0.0, -1.0]),  # roundToIntegralTowardZero
        ("ceil", [1.0, 2.0, 3.0, -0.0, -1.0]),  # roundToIntegralTowardPositive
        ("floor", [0.0, 1.0, 2.0, -1.0, -2.0]),  # roundToIntegralTowardNegative
    ],
)
def test_the_five_operations_of_5_9_are_the_modes_of_one(mode: str, expected: list[float], backend: str):
    """5.9: the operand is rounded to an integral value in the direction named."""
    assert_bits_equal(integral([0.5, 1.5, 2.5, -0.5, -1.5], backend, rounding=mode)[0], np.float32(expected), "fp16")


def test_inexact_is_raised_where_the_result_differs_from_the_operand_and_nothing_else(backend: str):
    """5.9: roundToIntegralExact signals inexact if the result does not have the value of the operand."""
    written, flags = integral([0.25, 3.0, -7.5, 2048.0, 2.0**-24], backend)
    assert written.tolist() == [0.0, 3.0, -8.0, 2048.0, 0.0]
    assert flags.counts() == emu.Flags(inexact=3).counts()


def test_the_sign_of_a_zero_result_is_that_of_the_operand(backend: str):
    """6.3: "the sign of a zero result of roundToIntegral operations is the sign of the operand"."""
    zeros = integral([-0.25, 0.25, -0.0, 0.0], backend)[0]
    assert_bits_equal(zeros, np.float32([-0.0, 0.0, -0.0, 0.0]), "fp16")


def test_infinities_and_nans_stay(backend: str):
    written, flags = integral([np.inf, -np.inf, np.nan], backend)
    assert_bits_equal(written, np.float32([np.inf, -np.inf, np.nan]), "fp16")
    assert not any(flags.counts())


def test_an_integer_the_written_format_lacks_is_rounded_once_more(backend: str):
    written, flags = integral([16.75, 17.25, 250.0], backend, out_format="fp8_e4m3")
    assert written.tolist() == [16.0, 16.0, 256.0]  # 17 is a tie of 16 and 18
    assert flags.inexact == 3
    assert integral([7.6, -8.5], backend, out_format="fix8f4", rounding="floor")[0].tolist() == [7.0, -8.0]


def test_an_inexact_integer_is_counted_once(backend: str):
    """It moved to an integer, and that integer moved again."""
    assert integral([449.5, 1e9, 0.5], backend, out_format="e4m3 finite nans=top", overflow="satfinite")[1].inexact == 3


def remainder(a, b, backend: str, **options):
    flags = emu.Flags()
    return emu.remainder(a, b, backend=backend, flags=flags, **{"out_format": "fp64", **options}), flags


def test_the_quotient_is_the_nearest_integer_and_in_a_tie_the_even_one(backend: str):
    """5.3.1: r = x - y*n, n nearest to x/y; "whenever |n - x/y| = 1/2, then n is even"."""
    written, flags = remainder([5.0, 6.0, 10.0, -6.0, 7.0, 2.0], [4.0, 4.0, 4.0, 4.0, -4.0, 4.0], backend)
    assert written.tolist() == [1.0, -2.0, 2.0, 2.0, -1.0, 2.0]
    assert not any(flags.counts())


def test_remainders_of_doubles_are_those_of_the_c_library(backend: str):
    rng = np.random.default_rng(1)
    a, b = np.ldexp(rng.standard_normal((2, 500)), rng.integers(-300, 300, (2, 500)))
    expected = np.array([math.remainder(x, y) for x, y in zip(a, b, strict=True)])
    assert_bits_equal(remainder(a, b, backend)[0], expected, "fp64")


def test_a_zero_remainder_has_the_sign_of_the_dividend(backend: str):
    """5.3.1: "if r = 0, its sign shall be that of x"."""
    zeros = remainder([8.0, -8.0, 8.0, -0.0, 0.0], [4.0, 4.0, -4.0, 4.0, -np.inf], backend)[0]
    assert_bits_equal(zeros, np.array([0.0, -0.0, 0.0, -0.0, 0.0]), "fp64")


def test_a_finite_number_by_an_infinity_is_itself(backend: str):
    """5.3.1: "if y is infinite and x is finite, remainder(x, y) is x"."""
    written, flags = remainder([3.5, -(2.0**-1074), 1e300], [np.inf, -np.inf, np.inf], backend)
    assert_bits_equal(written, np.array([3.5, -(2.0**-1074), 1e300]), "fp64")
    assert not any(flags.counts()[:4])


def test_a_remainder_by_zero_or_of_an_infinity_is_invalid_and_no_division_by_zero(backend: str):
    """7.2 f: "remainder(x, y), when y is zero or x is infinite and neither is a NaN"."""
    written, flags = remainder(
        [1.0, np.inf, 0.0, -np.inf, np.nan, np.inf], [0.0, 2.0, -0.0, np.inf, 0.0, np.nan], backend
    )
    assert np.isnan(written).all()
    assert (flags.invalid, flags.division_by_zero, flags.inexact) == (4, 0, 0)


def test_remainders_of_fixed_point_numbers_are_exact_in_the_finer_operands_units(backend: str):
    formats = {"a_format": "fix16f8", "b_format": "fix8f6", "out_format": "fix16f8"}
    flags, register = emu.Flags(), emu.StatisticsRegister()
    written = emu.remainder([100.25, -3.0], [0.75, 1.25], backend=backend, flags=flags, register=register, **formats)
    assert written.tolist() == [-0.25, -0.5]
    assert flags.inexact == 0
    assert (register.lowest, register.bins) == (-8, 15)  # of fix16f8, which holds them


def test_the_register_of_integers_observes_integers(backend: str):
    register = emu.StatisticsRegister()
    formats = {"a_format": "fix8f4", "out_format": "fix8f4"}
    written = emu.round_to_integral([7.9375, -8.0, 0.5, -0.625], register=register, backend=backend, **formats)
    assert written.tolist() == [7.9375, -8.0, 0.0, -1.0]
    assert (register.lowest, register.bins, register.none) == (0, 4, 2)  # 5 bits hold +8; 0 and raw -1 show no bit
    assert register.histogram() == {2: 1, 3: 1}


def test_units_have_both_as_methods(backend: str):
    unit = emu.Unit("fix8f4", rounding="floor", backend=backend)
    assert unit.round_to_integral(2.75).item() == 2.0
    assert unit.remainder(5.0, 3.0).item() == -1.0
