"""docs/concepts/formats.md and overflow.md: floats without a sign, without a zero, with one exponent bit or none."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import Float, FormatError, parse
from emu.testing import assert_bits_equal

SCALE = Float(8, 0, infinities=False, nans="top", signed=False, zero=False)


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("ue4m3", Float(4, 3, signed=False)),
        ("ue8m0 finite nans=top no-zero", SCALE),
        ("e8m0", SCALE),
        ("e8m0fnu", SCALE),
        ("fp8_e8m0", SCALE),
        ("e8m0 finite nans=none", Float(8, 0, infinities=False, nans="none")),
        ("e0m3 finite nans=none", Float(0, 3, infinities=False, nans="none")),
        ("e1m2", Float(1, 2)),
        ("p3109_k8p4", Float(4, 3, 8, nans="negative_zero")),
        ("p3109_k8p4sf", parse("e4m3fnuz")),
        ("p3109_k8p4ue", Float(5, 3, 16, nans="top", signed=False)),
        ("p3109_k6p6uf", Float(1, 5, 1, infinities=False, nans="top", signed=False)),
        ("p3109_k6p6sf", Float(0, 5, infinities=False, nans="negative_zero")),
    ],
)
def test_text_forms_of_unusual_floats_name_their_format_and_read_back(text: str, fmt: Float):
    assert parse(text) == fmt
    assert parse(str(fmt)) == fmt
    assert eval(repr(fmt)) == fmt


def test_the_scale_of_ocp_mx_has_powers_of_two_and_one_nan_and_nothing_else():
    """OCP Microscaling Formats 1.0, section 5.4.1: bias 127, exponents -127..127, NaN 0xFF, no zero, no infinity."""
    values = SCALE.decode(SCALE.codes())
    assert values[:255].tolist() == [2.0**e for e in range(-127, 128)]
    assert np.isnan(values[255])
    assert (SCALE.width_bits, SCALE.carrier, SCALE.nan_code) == (8, np.float32, 0xFF)
    assert not SCALE.contains(np.array([0.0, -0.0, -1.0, np.inf, -np.inf, 1.5, 2.0**-128])).any()


def test_values_of_p3109_have_one_zero_and_one_nan():
    values = parse("p3109_k4p2").decode(np.arange(16))
    assert_bits_equal(values[:8].astype(np.float64), np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, np.inf]), "fp64")
    assert np.isnan(values[8])
    assert values[9:].tolist() == (-values[1:8]).tolist()


def test_without_exponent_bits_all_values_are_subnormal_and_evenly_spaced(backend: str):
    fmt, flags = parse("e0m3 finite nans=none"), emu.Flags()
    assert fmt.decode(np.arange(8)).tolist() == [i / 4 for i in range(8)]
    assert (fmt.has_normals, fmt.max, fmt.emax) == (False, 1.75, 0)
    assert emu.quantize([0.3, 1.9, -7.0], fmt, flags=flags, backend=backend).tolist() == [0.25, 1.75, -1.75]
    assert (flags.subnormal, flags.overflow) == (3, 2)


def written(x, fmt: str, backend: str, **options) -> tuple[np.ndarray, dict[str, int]]:
    flags = emu.Flags()
    values = emu.quantize(np.array(x), fmt, flags=flags, backend=backend, **options)
    names = ("overflow", "underflow", "inexact", "invalid", "subnormal")
    return values, {name: getattr(flags, name) for name in names if getattr(flags, name)}


def test_negative_results_of_an_unsigned_float_saturate_at_zero(backend: str):
    values, flags = written([-3.0, -np.inf, -0.0, -1e-9], "ue4m3", backend, overflow="satfinite")
    assert_bits_equal(values, np.zeros(4, np.float32), "ue4m3")
    assert flags == {"overflow": 2, "inexact": 3, "underflow": 1}  # -1e-9 rounds to 0, which is inside


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("nearest_even", np.nan), ("floor", np.nan), ("ceil", 0.0), ("toward_zero", 0.0), ("to_odd", 0.0)],
)
def test_negative_results_of_an_unsigned_float_are_nan_where_minus_infinity_would_be(mode, expected, backend: str):
    values, flags = written([-3.0], "ue4m3", backend, rounding=mode)
    assert_bits_equal(values, np.float32([expected]), "ue4m3")
    assert flags == {"overflow": 1, "inexact": 1} | ({"invalid": 1} if np.isnan(expected) else {})


def test_an_infinity_stays_and_minus_infinity_becomes_nan(backend: str):
    values, flags = written([np.inf, -np.inf], "ue4m3", backend, rounding="toward_zero")
    assert_bits_equal(values, np.float32([np.inf, np.nan]), "ue4m3")
    assert flags == {"overflow": 1, "inexact": 1, "invalid": 1}


def test_what_a_format_without_zero_writes_for_zero_is_its_smallest_value(backend: str):
    tiny = 2.0**-127
    for mode in emu.Rounding:
        values, flags = written([0.0, -0.0, 2.0**-140, -(2.0**-140), tiny * 0.99], "e8m0", backend, rounding=mode)
        assert values.tolist() == [tiny] * 5, mode
        assert flags == {"inexact": 5, "underflow": 3}, mode  # a zero did not become small


def test_a_format_without_zero_and_nan_writes_its_smallest_value_for_nan(backend: str):
    values, flags = written([np.nan, -1.0, 1e9], "ue3m2 finite nans=none no-zero", backend)
    assert values.tolist() == [0.125, 0.125, 28.0]
    assert flags == {"invalid": 1, "overflow": 2, "inexact": 2}


def test_ties_of_scales_look_at_the_exponents_last_bit(backend: str):
    """Code 127 is 1 and odd, 128 is 2 and even."""
    assert written([1.5, 3.0, 6.0], "e8m0", backend)[0].tolist() == [2.0, 2.0, 8.0]
    assert written([1.5, 3.0, 6.0], "e8m0", backend, rounding="to_odd")[0].tolist() == [1.0, 4.0, 4.0]


def test_unsigned_operands_and_results_pass_every_operation(backend: str):
    a, b = np.float32([1.5, 0.0, 3.5]), np.float32([0.5, 2.0, 3.0])
    formats = {"a_format": "ue4m3", "b_format": "ue3m2 finite nans=top", "out_format": "ue5m3 nans=top bias=16"}
    assert emu.add(a, b, backend=backend, **formats).tolist() == [2.0, 2.0, 6.5]
    assert emu.subtract(b, a, backend=backend, **{**formats, "a_format": "ue3m2", "b_format": "ue4m3"})[1] == 2.0
    product = emu.matmul(
        a[None], b[:, None], backend=backend, **formats, mac=emu.Mac(accumulator="ue4m3", overflow="satfinite")
    )
    assert product.item() == 11.0
    assert emu.sigmoid(a, x_format="ue4m3", out_format="ue0m8 finite nans=none", backend=backend)[1] == 0.5
    assert emu.exp(np.float32([1.0, 2.0]), x_format="e8m0", out_format="e8m0", backend=backend).tolist() == [2.0, 8.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"exponent_bits": 0, "fraction_bits": 3},
            "a format with IEEE NaNs must have exponent bits, got 0 exponent and 3",
        ),
        ({"nans": "negative_zero", "signed": False}, "`nans` of an unsigned format must not be negative_zero"),
        ({"zero": False}, "a format without zero must be unsigned, got signed=True; set `signed=False`"),
        ({"zero": False, "signed": False, "ftz": True}, "a format without zero must not have `ftz` or `daz`"),
        ({"exponent_bits": 1, "daz": True}, "must have normal values, got only subnormals; leave both"),
        (
            {"exponent_bits": 1, "fraction_bits": 0, "nans": "negative_zero"},
            "must have a finite value above zero, got 1 exponent and 0 fraction bits, and special values take all",
        ),
    ],
)
def test_an_unusual_float_that_cannot_be_is_named(options, message):
    with pytest.raises(FormatError, match=message):
        Float(**{"exponent_bits": 4, "fraction_bits": 3, **options})


def test_units_that_sum_need_a_zero_and_blocks_a_sign():
    for part in ("product", "accumulator"):
        with pytest.raises(FormatError, match=f"`{part}` must be a format with zero, got fp8_e8m0; choose another"):
            emu.Mac(**{part: "e8m0"})
    with pytest.raises(FormatError, match=r"`accumulator` must have a sign where `order` is blocks, got ue8m23"):
        emu.Mac(accumulator="ue8m23", order="blocks(4, 23)")


def test_a_p3109_name_of_too_much_precision_is_refused():
    with pytest.raises(FormatError, match=r"a P3109 format must have a precision in 1..8, its width, got 9"):
        parse("p3109_k8p9")
