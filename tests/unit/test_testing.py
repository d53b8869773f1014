"""emu.testing: the picture of a difference, and what the strategies reach."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

import emu
from emu.testing import arrays, assert_bits_equal, codes, formats, values
from emu.testing.bits import describe_code


def picture(*arguments) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_bits_equal(*arguments)
    return str(caught.value)


def test_the_picture_of_floats_shows_index_codes_fields_values_and_distance():
    actual = np.array([[1.0, 2.0], [1.0009765625, 4.0]])
    expected = np.array([[1.0, 2.0], [1.0, 4.0]])
    assert picture(actual, expected, "fp16") == (
        "actual differs from expected in 1 of 4 elements of fp16\n"
        "first at index (1, 0)\n"
        "  actual    0x3c01  0|01111|0000000001  1.0009765625\n"
        "  expected  0x3c00  0|01111|0000000000  1.0\n"
        "  distance  1 ulp"
    )


def test_the_picture_of_fixed_point_shows_sign_integer_and_fraction():
    assert picture([-1.5], [1.25], "fix8f4").splitlines()[2:] == [
        "  actual    0xe8  1 110.1000  -1.5",
        "  expected  0x14  0 001.0100  1.25",
        "  distance  44 ulp",
    ]


@pytest.mark.parametrize(
    ("fmt", "code", "text"),
    [
        ("fix8f7", 0x81, "0x81  1 .0000001  -0.9921875"),
        ("fix8f0", 0x81, "0x81  1 0000001  -127.0"),
        ("fix8f9", 0x81, "0x81  1 0000001  -0.248046875"),
        ("ufix8f4", 0x81, "0x81  1000.0001  8.0625"),
        ("fix1f0", 1, "0x1  1  -1.0"),
        ("fp8_e4m3", 0x7F, "0x7f  0|1111|111  nan"),
        ("fix60f3", 2**60 - 5, "0xffffffffffffffb  1 " + 56 * "1" + ".011  raw -5"),
    ],
)
def test_a_code_is_described_in_hex_fields_and_value(fmt, code, text):
    assert describe_code(emu.parse(fmt), code) == text


def test_only_the_first_few_differences_are_shown_and_all_are_counted():
    text = picture(np.zeros(100), np.ones(100), "fp16")
    assert text.startswith("actual differs from expected in 100 of 100 elements")
    assert text.count("at index") == 4
    assert text.endswith("... and 96 more")


def test_every_nan_is_one_nan_and_zeros_of_other_signs_are_different():
    nans = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32).view(np.float32)
    assert_bits_equal(nans, np.full(3, np.nan, np.float32))
    assert_bits_equal(np.array([0x7E01], np.uint16), [np.nan], "fp16")
    assert picture([0.0], [-0.0], "fp16").endswith("0 ulp: the zeros differ in sign")
    assert "-0.0, which the format does not have" in picture([-0.0], [0.0], "fix8f4")
    assert picture([np.nan], [1.0], "fp16").endswith("undefined: one is NaN")


def test_codes_raws_and_values_of_one_format_compare():
    assert_bits_equal(np.array([0x3C00], np.uint16), [1.0], "fp16")
    assert_bits_equal(np.array([-5]), np.array([2**60 - 5], np.uint64), "fix60f3")
    assert_bits_equal(np.float16([1.5, np.inf]), np.float32([1.5, np.inf]), "fp16")
    assert_bits_equal([], [], "fp16")


def test_subnormal_codes_of_a_format_that_flushes_operands_are_not_zero():
    with pytest.raises(AssertionError, match="differs from expected in 1 of 2 elements"):
        assert_bits_equal(np.uint8([1, 8]), np.uint8([0, 8]), "e4m3 daz")


def test_shapes_dtypes_and_values_outside_the_format_are_named():
    assert picture(np.zeros(3), np.zeros((3, 1))) == "shapes must be equal, got (3,) and (3, 1)"
    assert "got float32 and float64; name the format with `fmt=`" in picture(np.zeros(1, np.float32), np.zeros(1))
    assert picture([0.3], [0.5], "fp8_e4m3").startswith(
        "`actual` does not hold values of fp8_e4m3: every value must belong"
    )


@pytest.mark.parametrize(
    "wanted",
    [
        lambda fmt: isinstance(fmt, emu.Fixed) and not fmt.signed,
        lambda fmt: isinstance(fmt, emu.Fixed) and fmt.frac_bits > fmt.width_bits,
        lambda fmt: isinstance(fmt, emu.Float) and fmt.nans == "negative_zero" and fmt.infinities,
        lambda fmt: isinstance(fmt, emu.Float) and fmt.ftz and not fmt.daz,
        lambda fmt: isinstance(fmt, emu.Float) and fmt.fraction_bits == 0,
        lambda fmt: fmt == emu.parse("bf16"),
    ],
)
def test_random_formats_reach_every_kind(wanted):
    assert wanted(find(formats(), wanted, settings=settings(max_examples=5000, database=None, derandomize=True)))


@given(formats(fixed=False, presets=False, min_width_bits=9, max_width_bits=12, flushing=False))
def test_formats_can_be_restricted(fmt):
    assert isinstance(fmt, emu.Float)
    assert 9 <= fmt.width_bits <= 12
    assert not fmt.ftz
    assert not fmt.daz


@pytest.mark.parametrize(
    "wanted",
    [
        lambda x: x == 65520.0,
        lambda x: x == 2.0**-25,
        lambda x: np.isnan(x),
        lambda x: 65504 < x < 65520,
        lambda x: x > 1e5,
    ],
)
def test_values_reach_ties_at_both_ends_and_their_neighbours(wanted):
    assert wanted(find(values("fp16"), wanted, settings=settings(max_examples=20000, database=None, derandomize=True)))


@given(st.data(), formats())
def test_arrays_are_carriers_of_values_and_codes_are_codes(data, fmt):
    x = data.draw(arrays(fmt, (2, 3), nan=False, infinity=False))
    assert (x.shape, x.dtype) == ((2, 3), fmt.carrier)
    assert np.isfinite(x).all()
    assert 0 <= data.draw(codes(fmt)) < fmt.n_codes
    assert data.draw(codes(fmt, 4)).dtype == fmt.code_dtype


def test_without_hypothesis_the_strategies_say_what_to_install_and_the_comparison_works():
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from emu.testing import assert_bits_equal, formats\n"
        "assert_bits_equal([1.0], [1.0], 'fp16')\n"
        "try: formats()\n"
        "except ImportError as error: print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == (
        "the strategies of emu.testing need hypothesis, which is not installed; pip install 'emu-numerics[test]'\n"
    )


def test_options_that_leave_no_format_are_refused():
    with pytest.raises(emu.FormatError, match=r"`formats\(\)` must leave a family of formats"):
        formats(floats=False, min_width_bits=60)
