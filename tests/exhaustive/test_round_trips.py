"""Every code of every format of up to 16 bits decodes to the value the format's definition gives it, and back."""

from __future__ import annotations

import numpy as np
import pytest

from emu import Fixed, Float
from emu.testing import assert_bits_equal

NANS = ("ieee", "top", "negative_zero", "none")


def float_formats(widths) -> list[Float]:
    """Every exponent and fraction width of these widths, with every way to place NaN and infinity."""
    return [
        Float(exponent_bits, width - 1 - exponent_bits, infinities=infinities, nans=nans)
        for width in widths
        for exponent_bits in range(2, min(11, width - 1) + 1)
        for nans in NANS
        for infinities in (True, False)
        if is_possible(exponent_bits, width - 1 - exponent_bits, infinities, nans)
    ]


def is_possible(exponent_bits: int, fraction_bits: int, infinities: bool, nans: str) -> bool:
    if exponent_bits == 11 and not (nans == "ieee" and (fraction_bits > 0 or not infinities)):
        return False  # 2**1024 is no float64: these formats are refused
    return fraction_bits > 0 or nans != "ieee" or not infinities


def fixed_formats(frac_bits_of) -> list[Fixed]:
    return [Fixed(w, f, signed) for w in range(1, 17) for f in frac_bits_of(w) for signed in (True, False)]


def defined_values(fmt: Float) -> np.ndarray:
    """docs/concepts/formats.md, transcribed: value and special codes of every code."""
    codes = np.arange(2**fmt.width_bits)
    magnitude = codes & (2 ** (fmt.width_bits - 1) - 1)
    field, fraction = magnitude >> fmt.fraction_bits, magnitude & (2**fmt.fraction_bits - 1)
    part = fraction / 2**fmt.fraction_bits
    bias = 2 ** (fmt.exponent_bits - 1) - 1
    with np.errstate(over="ignore"):
        value = np.where(field > 0, np.ldexp(1 + part, field - bias), np.ldexp(part, 1 - bias))
    ones = magnitude.max()
    top_field = field == 2**fmt.exponent_bits - 1
    nan = {
        "ieee": top_field & ((fraction != 0) | (not fmt.infinities)),
        "top": magnitude == ones,
        "negative_zero": codes == ones + 1,
        "none": np.zeros(codes.shape, bool),
    }[fmt.nans]
    below_nans = {"ieee": ones + 1 - 2**fmt.fraction_bits, "top": ones - 1}.get(fmt.nans, ones)
    value = np.where(fmt.infinities & (magnitude == below_nans), np.inf, value)
    return np.where(nan, np.nan, np.where(codes > ones, -value, value))


def check_float(fmt: Float) -> None:
    codes, values = fmt.codes(), fmt.decode(fmt.codes())
    defined = defined_values(fmt)
    assert (np.isnan(values) == np.isnan(defined)).all(), fmt
    finite = ~np.isnan(defined)
    assert values.dtype == fmt.carrier
    assert (values.astype(np.float64).view(np.uint64)[finite] == defined.view(np.uint64)[finite]).all(), fmt
    back = fmt.encode(values)
    assert back.dtype == codes.dtype == fmt.code_dtype
    assert (back[finite] == codes[finite]).all(), fmt
    assert (back[~finite] == fmt.nan_code).all() if (~finite).any() else fmt.nan_code is None, fmt
    assert_bits_equal(fmt.decode(back), values)
    assert fmt.contains(values).all()


def check_fixed(fmt: Fixed) -> None:
    codes, values = fmt.codes(), fmt.decode(fmt.codes())
    raw = np.arange(2**fmt.width_bits)
    if fmt.signed:
        raw = np.where(raw >= 2 ** (fmt.width_bits - 1), raw - 2**fmt.width_bits, raw)
    assert_bits_equal(values.astype(np.float64), np.ldexp(raw.astype(np.float64), -fmt.frac_bits))
    assert values.dtype == np.float32
    back = fmt.encode(values)
    assert back.dtype == fmt.code_dtype
    assert (back == codes).all(), fmt
    assert (fmt.to_raw(values) == raw).all(), fmt
    assert_bits_equal(fmt.from_raw(raw), values)


def test_every_code_of_every_float_format_up_to_8_bits_round_trips():
    for fmt in float_formats(range(3, 9)):
        check_float(fmt)


@pytest.mark.parametrize("exponent_bits", [2, 5, 8, 11])
def test_every_code_of_some_16_bit_float_formats_round_trips(exponent_bits):
    for fmt in float_formats([16]):
        if fmt.exponent_bits == exponent_bits:
            check_float(fmt)


@pytest.mark.slow
@pytest.mark.parametrize("width", range(9, 17))
def test_every_code_of_every_float_format_up_to_16_bits_round_trips(width):
    for fmt in float_formats([width]):
        check_float(fmt)


def test_every_code_of_fixed_formats_up_to_16_bits_round_trips():
    for fmt in fixed_formats(lambda width: (-3, 0, width // 2, width, width + 5)):
        check_fixed(fmt)


@pytest.mark.slow
def test_every_code_of_fixed_formats_up_to_16_bits_round_trips_wherever_the_point_is():
    for fmt in fixed_formats(lambda width: range(-40, 60)):
        check_fixed(fmt)


@pytest.mark.parametrize("text", ["fp16 daz", "bf16 no-subnormals", "e4m3 daz", "e4m3fnuz daz"])
def test_under_daz_subnormal_codes_decode_to_zero_of_their_sign_and_all_others_round_trip(text):
    from emu import parse

    fmt = parse(text)
    codes, values = fmt.codes(), fmt.decode(fmt.codes())
    magnitude = codes & (fmt.sign_code - 1)
    subnormal = (magnitude > 0) & (magnitude < 2**fmt.fraction_bits)
    assert (values[subnormal] == 0).all()
    negative = (codes[subnormal] >= fmt.sign_code) & fmt.has_negative_zero
    assert (np.signbit(values[subnormal]) == negative).all()
    kept = ~subnormal & ~np.isnan(values)
    assert (fmt.encode(values[kept]) == codes[kept]).all()


def test_there_are_as_many_float_formats_as_widths_and_special_codes_allow():
    per_shape = len(NANS) * 2
    shapes = [(e, w - 1 - e) for w in range(3, 17) for e in range(2, min(11, w - 1) + 1)]
    without_fraction = sum(fraction_bits == 0 for _, fraction_bits in shapes)
    eleven = sum(exponent_bits == 11 for exponent_bits, _ in shapes)
    refused = without_fraction + eleven * (per_shape - 2)  # no IEEE infinity without fraction bits; 2**1024
    assert len(float_formats(range(3, 17))) == len(shapes) * per_shape - refused
