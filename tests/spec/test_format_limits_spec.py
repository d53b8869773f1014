"""docs/concepts/formats.md, at its limits: which formats exist, which codes and integers belong to them."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import Fixed, Float, FormatError, parse


def test_codes_are_listed_up_to_16_bits():
    assert Fixed(16, 3).codes().tolist() == list(range(2**16))
    for fmt in (Fixed(17, 3), Float(8, 8)):
        with pytest.raises(FormatError, match=f"must have at most 16 bits, {fmt} has 17; encode the values you need"):
            fmt.codes()


@pytest.mark.parametrize("bias", [-2049, 2049])
def test_a_bias_beyond_any_machine_is_named(bias: int):
    with pytest.raises(FormatError, match=rf"`bias` must be in -2048..2048, got {bias}"):
        Float(5, 10, bias)


@pytest.mark.parametrize("exponent_bits", [2, 5, 11])
def test_ieee_special_codes_need_a_fraction_bit_to_tell_infinity_from_nan(exponent_bits: int):
    with pytest.raises(FormatError, match=f"must have fraction bits, got {exponent_bits} exponent and 0 fraction bits"):
        Float(exponent_bits, 0)


@pytest.mark.parametrize(("fmt", "low", "high"), [("fix60f4", -(2**59), 2**59 - 1), ("ufix60f4", 0, 2**60 - 1)])
def test_raws_belong_to_their_format_between_both_limits(fmt: str, low: int, high: int):
    fmt = parse(fmt)
    assert fmt.carries_raws
    raws = np.array([low, high], fmt.carrier)
    assert fmt.contains(raws).all()
    assert fmt.encode(raws).tolist() == [low % fmt.n_codes, high]
    assert fmt.contains(np.array([low, high]) + np.array([-1, 1])).tolist() == [False, False]


def test_integers_are_numbers_not_raws_where_the_carrier_holds_values():
    """fix16f8 holds 127 and not 128; fix8f-2 holds multiples of 4 from -512 to 508."""
    for dtype in (np.int16, np.int64):
        assert parse("fix16f8").contains(np.array([1, 127, 128, -128, -129], dtype)).tolist() == [1, 1, 0, 1, 0]
        assert parse("fix16f8").to_raw(np.array([1, 127, -128], dtype)).tolist() == [256, 127 * 256, -(2**15)]
        assert parse("fix8f-2").contains(np.array([4, 3, 508, 512, -512, -516], dtype)).tolist() == [1, 0, 1, 0, 1, 0]
        assert parse("fix8f-2").to_raw(np.array([[4, 508, -512]], dtype)).tolist() == [[1, 127, -128]]


@pytest.mark.parametrize("fmt", ["fix8f4", "ufix8f0", "fp8_e4m3", "e4m3fnuz", "fp8_e5m2"])
def test_a_code_that_does_not_fit_the_width_is_named(fmt: str):
    assert parse(fmt).decode(np.array([0, 255])).shape == (2,)
    for wrong in (256, -1):
        with pytest.raises(FormatError, match=rf"every code must belong to .*\({wrong}\) at index \(1,\); mask it"):
            parse(fmt).decode(np.array([0, wrong, 255]))


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("e8m7 bias=127", 2.0**127, "float32"),
        ("e8m7 bias=126", 2.0**128, "float64"),
        ("e8m7 bias=143", 2.0**-149, "float32"),
        ("e8m7 bias=144", 2.0**-150, "float64"),
        ("e8m0 finite nans=none bias=128", 2.0**127, "float32"),
        ("e8m0 finite nans=none bias=127", 2.0**128, "float64"),
        ("fix9f149", 2.0**-149, "float32"),
        ("fix9f150", 2.0**-150, "float64"),
        ("fix9f-119", 2.0**126, "float32"),
        ("fix9f-120", 2.0**127, "float64"),
    ],
)
def test_results_at_the_ends_of_float32_are_written_into_the_carrier_that_holds_them(
    text: str, value: float, dtype: str, backend: str
):
    fmt = parse(text)
    y = emu.quantize(np.array([value, -value, 0.0]), fmt, backend=backend)
    assert (y.dtype, fmt.carrier) == (np.dtype(dtype), np.dtype(dtype))
    assert y.tolist() == [value, -value, 0.0]


@pytest.mark.parametrize(
    ("exponent_bits", "fraction_bits", "bias"), [(5, 10, 1065), (5, 0, 1075), (2, 52, 1023), (8, 20, 1055)]
)
def test_every_value_of_a_float_format_is_a_float64_down_to_its_last_subnormal(
    exponent_bits: int, fraction_bits: int, bias: int
):
    """1 - bias - fraction_bits is -1074, and may not be one less."""
    nans = {"infinities": False, "nans": "none"}
    assert Float(exponent_bits, fraction_bits, bias, **nans).smallest_positive == 2.0**-1074
    with pytest.raises(FormatError, match=r"every value of a float format must be a float64, got exponents -1075\.\."):
        Float(exponent_bits, fraction_bits, bias + 1, **nans)


def test_every_value_of_a_float_format_is_a_float64_up_to_its_largest():
    """Of e5m10 the largest finite exponent field is 30: 30 + 993 is float64's largest exponent."""
    assert Float(5, 10, -993).max == (2.0 - 2.0**-10) * 2.0**1023
    with pytest.raises(FormatError, match=r"every value of a float format must be a float64, got exponents .*\.\.1024"):
        Float(5, 10, -994)


@pytest.mark.parametrize(
    ("text", "smallest"),
    [("fp16", 2.0**-24), ("fp16 ftz", 2.0**-14), ("fp16 daz", 2.0**-24), ("e8m0 finite nans=top", 2.0**-126)],
)
def test_the_smallest_positive_value_is_what_an_operation_can_write(text: str, smallest: float, backend: str):
    assert parse(text).smallest_positive == smallest
    written = emu.quantize([smallest, smallest / 2], text, rounding="toward_zero", backend=backend)
    assert written.tolist() == [smallest, 0.0]


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("ap_int<8>", Fixed(8, 0)),
        ("ap_uint<12>", Fixed(12, 0, signed=False)),
        ("sc_int<5>", Fixed(5, 0)),
        ("sc_uint<9>", Fixed(9, 0, signed=False)),
        ("sc_ufixed<16,20>", Fixed(16, -4, signed=False)),
        ("uQ4.4", Fixed(8, 4, signed=False)),
        ("Q0.15", Fixed(16, 15)),
        ("sfix8", Fixed(8, 0)),
        ("ufix8_E2", Fixed(8, -2, signed=False)),
    ],
)
def test_integer_types_and_rarer_aliases_name_their_format(text: str, fmt: Fixed):
    assert parse(text) == fmt


@pytest.mark.parametrize(
    ("text", "smallest"),
    [("fix8f4", 2.0**-4), ("ufix8f0", 1.0), ("fix8f-2", 4.0), ("fix1f3", 0.0), ("ufix1f3", 2.0**-3)],
)
def test_the_smallest_positive_fixed_point_value_is_one_unit_unless_the_sign_is_the_only_bit(
    text: str, smallest: float
):
    assert parse(text).smallest_positive == smallest


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("fix9f1074", "float64"),
        ("fix9f1075", "int64"),
        ("ufix9f1075", "uint64"),
        ("fix9f-1015", "float64"),
        ("fix9f-1016", "int64"),
        ("ufix9f-1014", "float64"),
        ("ufix9f-1015", "uint64"),
    ],
)
def test_a_fixed_point_format_beyond_the_exponents_of_float64_carries_raws(text: str, dtype: str):
    assert parse(text).carrier == np.dtype(dtype)


@pytest.mark.parametrize(
    ("exponent_bits", "fraction_bits", "message"),
    [
        (-1, 10, r"`exponent_bits` must be in 0..11, got -1; choose a larger one"),
        (12, 10, r"`exponent_bits` must be in 0..11, got 12; choose a smaller one"),
        (5, -1, r"`fraction_bits` must be in 0..52, got -1; choose a larger one"),
        (5, 53, r"`fraction_bits` must be in 0..52, got 53; choose a smaller one"),
        (5.0, 10, r"`exponent_bits` must be an integer, got 5.0"),
        (5, "10", r"`fraction_bits` must be an integer, got '10'"),
    ],
)
def test_a_field_of_a_float_format_that_cannot_be_is_named(exponent_bits: int, fraction_bits: int, message: str):
    with pytest.raises(FormatError, match=message):
        Float(exponent_bits, fraction_bits)


@pytest.mark.parametrize("frac_bits", [-1100, -1023, -1022, -900, -300, -100, 0, 100, 300, 900, 1022, 1023, 1060])
def test_floats_belong_to_a_fixed_point_format_wherever_its_binary_point_lies(frac_bits: int):
    """Of 8 bits: raws from -128 to 127, nothing between two of them and nothing beyond; too small ones are no 0."""
    fmt = Fixed(8, frac_bits)
    raws = np.array([-129.0, -128.0, -127.5, -3.0, 0.0, 1.0, 1.5, 127.0, 128.0])
    with np.errstate(over="ignore", under="ignore"):
        values = np.ldexp(raws, -frac_bits)
    exact = np.isfinite(values) & (np.ldexp(values, frac_bits) == raws)
    inside = (raws >= -128) & (raws <= 127) & (raws == np.floor(raws))
    assert fmt.contains(values)[exact].tolist() == inside[exact].tolist()
    if frac_bits < -100:
        assert not fmt.contains(np.array([2.0**-1000]))[0]


def test_binary_points_reach_4096_places_to_either_side():
    assert Fixed(8, 4096).frac_bits == 4096
    assert Fixed(8, -4096).frac_bits == -4096
    for frac_bits in (4097, -4097):
        with pytest.raises(emu.FormatError, match="4096"):
            Fixed(8, frac_bits)


def test_without_subnormals_they_are_neither_read_nor_written():
    fmt = emu.parse("fp16 no-subnormals")
    assert isinstance(fmt, emu.Float)
    assert (fmt.ftz, fmt.daz) == (True, True)
