"""docs/concepts/index.md and docs/concepts/formats.md: carriers, codes, text forms, special codes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emu import DynamicFixed, Fixed, Float, FormatError, parse
from emu.formats import PRESETS


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("fix16f8", Fixed(16, 8)),
        ("ufix8f0", Fixed(8, 0, signed=False)),
        ("fix8f-2", Fixed(8, -2)),
        ("sfix16_En8", Fixed(16, 8)),
        ("ufix16_En8", Fixed(16, 8, signed=False)),
        ("sfix16_E3", Fixed(16, -3)),
        ("ap_fixed<16,8>", Fixed(16, 8)),
        ("ap_ufixed<16, 8>", Fixed(16, 8, signed=False)),
        ("sc_fixed<16,8>", Fixed(16, 8)),
        ("ap_fixed<8,10>", Fixed(8, -2)),
        ("Q7.8", Fixed(16, 8)),
        ("uQ8.8", Fixed(16, 8, signed=False)),
        ("fix16f?", DynamicFixed(16)),
        ("e5m10", Float(5, 10)),
        ("fp16", Float(5, 10)),
        ("bf16", Float(8, 7)),
        ("tf32", Float(8, 10)),
        ("fp32", Float(8, 23)),
        ("e4m3", Float(4, 3)),
        ("fp8_e4m3", Float(4, 3, infinities=False, nans="top")),
        ("fp8_e5m2", Float(5, 2)),
        ("e4m3fnuz", Float(4, 3, bias=8, infinities=False, nans="negative_zero")),
    ],
)
def test_every_text_form_and_alias_names_its_format(text, fmt):
    assert parse(text) == fmt


def test_the_text_form_of_a_preset_is_its_name_and_reads_back():
    for name, fmt in PRESETS.items():
        assert str(fmt) == name
        assert parse(name) == fmt


@pytest.mark.parametrize(
    ("fmt", "largest"),
    [
        ("e4m3", 240.0),
        ("fp8_e4m3", 448.0),
        ("fp8_e5m2", 57344.0),
        ("fp16", 65504.0),
        ("e4m3fnuz", 240.0),
        ("e5m2fnuz", 57344.0),
        ("fp32", float(np.finfo(np.float32).max)),
        ("fp64", float(np.finfo(np.float64).max)),
    ],
)
def test_the_largest_value_is_the_one_the_standards_print(fmt, largest):
    fmt = parse(fmt)
    assert (fmt.min, fmt.max) == (-largest, largest)


@pytest.mark.parametrize(
    ("fmt", "code"), [("fp16", 0x7E00), ("fp8_e4m3", 0x7F), ("fp8_e5m2", 0x7E), ("e4m3fnuz", 0x80)]
)
def test_nan_is_written_as_the_canonical_code(fmt, code):
    assert parse(fmt).encode(np.array(np.nan)) == code
    assert parse(fmt).encode(np.array(-np.nan)) == code


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [
        ("fp16", "float32"),
        ("bf16", "float32"),
        ("fp32", "float32"),
        ("fp64", "float64"),
        ("e5m24", "float64"),
        ("e9m3", "float64"),
        ("fix16f8", "float32"),
        ("fix25f0", "float32"),
        ("fix26f0", "float64"),
        ("ufix24f0", "float32"),
        ("ufix25f0", "float64"),
        ("fix54f20", "float64"),
        ("fix55f20", "int64"),
        ("ufix53f0", "float64"),
        ("ufix54f0", "uint64"),
        ("fix64f10", "int64"),
    ],
)
def test_the_carrier_is_the_narrowest_array_that_holds_every_value(fmt, dtype):
    assert parse(fmt).carrier == np.dtype(dtype)


@pytest.mark.parametrize(
    ("width", "dtype"), [(1, "uint8"), (8, "uint8"), (9, "uint16"), (16, "uint16"), (17, "uint32"), (33, "uint64")]
)
def test_codes_have_the_smallest_unsigned_dtype_that_fits(width, dtype):
    assert Fixed(width, 0).encode(np.zeros(3)).dtype == np.dtype(dtype)


def test_fixed_carriers_never_hold_minus_zero():
    fmt = parse("fix8f4")
    assert fmt.encode(np.array([-0.0])) == 0
    assert not np.signbit(fmt.decode(fmt.codes())[fmt.codes() == 0]).any()


def test_infinities_and_nans_of_top_formats_sit_below_and_at_the_all_ones_code():
    fmt = Float(4, 3, infinities=True, nans="top")
    assert np.isnan(fmt.decode(np.array([0x7F, 0xFF]))).all()
    assert fmt.decode(np.array([0x7E, 0xFE])).tolist() == [math.inf, -math.inf]
    assert fmt.max == 416.0


def test_repr_reads_back_to_an_equal_format():
    for fmt in (
        Fixed(16, 8),
        Fixed(8, 0, signed=False),
        Float(5, 10),
        Float(4, 3, 11, False, "negative_zero", ftz=True),
    ):
        assert eval(repr(fmt)) == fmt


@pytest.mark.parametrize(
    ("fmt", "value", "ulp"),
    [
        ("fp16", 1.0, 2**-10),
        ("fp16", 1023.5, 2**-1),
        ("fp16", 0.0, 2**-24),
        ("fp16", -1e-7, 2**-24),
        ("fp16", 1e9, 2.0**19),
        ("fp16 hidden-one", 0.0, 2**-25),  # its smallest value is 2**-15 * (1 + 2**-10): the step right above that
        ("fp16 hidden-one", 2**-15 * (1 + 2**-10), 2**-25),
        ("bf16", 1.0, 2**-7),
        ("fix16f8", 100.0, 2**-8),
        ("fix8f-2", 0.0, 4.0),
    ],
)
def test_the_ulp_is_the_distance_to_the_next_value_outward(fmt, value, ulp):
    assert parse(fmt).ulp(value) == ulp


@pytest.mark.parametrize("width", [0, 65, -1])
def test_words_of_no_bits_or_more_than_64_are_refused(width):
    with pytest.raises(FormatError, match=r"`width_bits` must be in 1..64, got " + str(width)):
        Fixed(width, 0)


@pytest.mark.parametrize("fmt", ["fix16f8", "ufix8f0", "fix3f7", "fp16", "fp8_e4m3"])
def test_a_value_outside_the_format_is_refused_by_encode_and_named(fmt):
    x = np.array([[0.0, 1e30], [0.1, 0.0]])
    with pytest.raises(FormatError, match=r"got .*1e\+30.* at index \(0, 1\) \(2 such elements\); quantize it first"):
        parse(fmt).encode(x)


@pytest.mark.parametrize("text", ["e8m7", "e8m7 bias=128", "e8m7 bias=129", "e8m3 bias=130", "e11m4 bias=1040"])
def test_every_number_of_a_format_belongs_to_it_and_no_neighbour_does(text: str):
    """Biases beyond the carrier's put normal numbers of the format among the carrier's subnormal ones."""
    fmt = parse(text)
    values = fmt.decode(np.arange(fmt.n_codes))
    values = values[np.isfinite(values)]
    assert fmt.contains(values).all()
    assert not fmt.contains(np.nextafter(values, np.inf, dtype=values.dtype)).any()
