"""docs/concepts/formats.md, "Sign and magnitude", "A hidden bit that is always one": texts, limits, who takes them."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import DynamicFixed
from emu.errors import FormatError
from emu.testing import assert_bits_equal, check_backend
from emu.testing.hard import Places, hard_codes, negated
from emu.testing.vectors import Description, make_vectors
from emu.testing.vectors.evidence import special_codes


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("fix16f8 sign-magnitude", emu.Fixed(16, 8, sign_magnitude=True)),
        ("fix16f8 sign_magnitude", emu.Fixed(16, 8, sign_magnitude=True)),
        ("smfix16f8", emu.Fixed(16, 8, sign_magnitude=True)),
        ("int8 sign-magnitude", emu.Fixed(8, 0, sign_magnitude=True)),
        ("Q7.8 sign-magnitude", emu.Fixed(16, 8, sign_magnitude=True)),
        ("sfix16_En8 sign-magnitude", emu.Fixed(16, 8, sign_magnitude=True)),
        ("fix16f? sign-magnitude", DynamicFixed(16, sign_magnitude=True)),
        ("smfix16f?", DynamicFixed(16, sign_magnitude=True)),
        ("e6m10 hidden-one", emu.Float(6, 10, hidden_one=True)),
        ("fp16 hidden-one", emu.Float(5, 10, hidden_one=True)),
        ("ue4m3 finite nans=top bias=3 hidden-one",
         emu.Float(4, 3, 3, infinities=False, nans="top", signed=False, hidden_one=True)),
    ],
)  # fmt: skip
def test_a_text_names_the_format_and_is_written_back(text: str, fmt: emu.Fixed | emu.Float | DynamicFixed):
    assert emu.parse(text) == fmt
    assert emu.parse(str(fmt)) == fmt
    assert emu.parse(str(fmt)) != emu.parse(text.replace("sm", "").replace(" hidden-one", "").rsplit(" sign")[0])


def test_the_shortest_text_is_written():
    assert str(emu.parse("smfix16f8")) == "fix16f8 sign-magnitude"
    assert repr(emu.parse("smfix16f8")) == "Fixed(16, 8, sign_magnitude=True)"
    assert str(emu.parse("fp16 hidden-one")) == "e5m10 hidden-one"
    assert DynamicFixed(8, sign_magnitude=True).at(3) == emu.Fixed(8, 3, sign_magnitude=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ufix8f0 sign-magnitude", "must be signed, got signed=False; leave out one of `signed` and `sign_magnitude`"),
        ("ufix8f? sign-magnitude", "must be signed, got signed=False; leave out one of `signed` and `sign_magnitude`"),
        ("fix1f0 sign-magnitude", "must be in 2..64, got 1; choose a larger one"),
        ("fix16 sign-magnitude", "must say where its point is, got 'fix16 sign-magnitude'"),
        ("ap_fixed<8,4> sign-magnitude", "must be written as"),
        ("e4m0 finite hidden-one", "must have fraction bits, got 0"),
        ("e4m3 hidden-one ftz", "must not have `ftz` or `daz`: it has no subnormals; leave both out"),
        ("e4m3 hidden-one daz", "must not have `ftz` or `daz`: it has no subnormals; leave both out"),
        ("ue4m3 hidden-one no-zero", "must have a zero, got zero=False"),
        ("e4m3 sign-magnitude", "an option of a float format must be one of"),
    ],
)
def test_impossible_formats_are_refused(text: str, message: str):
    with pytest.raises(FormatError) as error:
        emu.parse(text)
    assert message in str(error.value)
    with pytest.raises(FormatError, match="must be True or False, got 2"):
        emu.Fixed(8, 4, sign_magnitude=2)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("width", [8, 25, 26, 54, 55, 63, 64])
def test_the_ends_of_words_of_every_carrier_are_exact(width: int):
    """float32 to 25 bits, float64 to 54, then raws: the number below the smallest one is no value."""
    fmt = emu.Fixed(width, 3, sign_magnitude=True)
    low = -(2 ** (width - 1) - 1)
    ends = fmt.from_raw(np.array([low, -1, 0, 1, -low]))
    sign = 1 << (width - 1)
    assert fmt.encode(ends).tolist() == [sign - 1 + sign, sign + 1, 0, 1, sign - 1]
    assert_bits_equal(fmt.decode(fmt.encode(ends)), ends, fmt)
    assert fmt.to_raw(fmt.decode(np.array([sign], np.uint64))).tolist() == [0]
    below = np.ldexp(np.array([low - 1.0]), -3)  # minus a power of two
    assert not fmt.contains(below).any()
    assert not fmt.contains(below.astype(np.float32)).any()
    assert fmt.contains(-2 * np.ldexp(np.array([1.0]), -3))[0]
    with pytest.raises(FormatError, match="every raw must belong to"):
        fmt.from_raw(np.array([low - 1]))
    for backend in ("reference", "numba"):
        written = emu.quantize([-1e30, 1e30, -np.inf], fmt, backend=backend)
        assert fmt.to_raw(written).tolist() == [low, -low, low]
        wrapped = emu.quantize(np.ldexp([-9.0 - 2 ** (width - 1)], -3), fmt, overflow="wrap", backend=backend)
        assert width > 50 or fmt.to_raw(wrapped).tolist() == [-9]


@pytest.mark.parametrize("bits", [23, 29, 30])
def test_the_power_of_two_without_a_code_is_no_value_however_fine_the_fraction(bits: int):
    fmt = emu.Float(5, bits, hidden_one=True)
    power = np.array([2.0**-15])
    assert not fmt.contains(power).any()
    assert not fmt.contains(power.astype(np.float32)).any()
    assert fmt.contains(np.nextafter(power, 1) if bits == 52 else power * (1 + 2.0**-bits)).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.float32])
def test_out_holds_codes_raws_or_values(dtype: type):
    """A signed dtype takes raws, an unsigned one of the word's width codes."""
    x = np.array([1.5, -1.5, -20.0])
    for backend in ("reference", "numba"):
        out = np.zeros(3, dtype)
        emu.quantize(x, "smfix8f4", out=out, backend=backend)
        raws = [24, -24, -127]
        expected = {np.uint8: [24, 0x80 | 24, 0xFF], np.float32: [1.5, -1.5, -7.9375]}.get(dtype, raws)
        assert out.tolist() == expected, backend


def test_functions_of_such_formats_are_those_of_their_values():
    for source, out in (("smfix8f4", "smfix8f3"), ("e4m3 hidden-one", "e4m3 hidden-one"), ("smfix8f4", "fp16")):
        fmt, plain = emu.parse(source), emu.parse("fp32")
        x = fmt.decode(fmt.codes())
        for backend in ("reference", "numba"):
            got = emu.tanh(x, x_format=fmt, out_format=out, backend=backend)
            wide = emu.quantize(emu.tanh(x.astype(np.float32), x_format=plain, out_format="fp32"), out)
            assert_bits_equal(got, wide, out)  # tanh in binary32 is far from every tie of these


def test_numba_passes_the_contract_with_such_formats():
    report = check_backend(
        "numba", formats=["smfix6f3", "e3m2 hidden-one"], roundings=["nearest_even", "jamming"], elements=40
    )
    assert report.passed, report


def test_edges_and_negatives_are_codes_of_the_word():
    fmt = emu.parse("smfix6f3")
    codes = hard_codes(fmt, Places.of(1, (4000,)))
    assert {0, 1, 31, 32, 33, 63} <= set(codes.tolist())
    every = fmt.codes().astype(np.uint64)
    assert (fmt.decode(negated(fmt, every)) == -fmt.decode(every)).all()


def test_golden_vectors_have_the_special_codes_of_such_formats():
    assert special_codes(emu.parse("smfix6f3")) == {
        "0": 0, "smallest": 1, "largest": 31, "1": 8, "-0": 32, "-smallest": 33, "-largest": 63,
    }  # fmt: skip
    specials = special_codes(emu.parse("e3m2 hidden-one"))
    assert "smallest normal" not in specials
    assert (specials["smallest"], specials["1"], specials["-0"]) == (1, 12, 32)


@pytest.mark.parametrize("name", ["smfix8f4", "e4m3 hidden-one"])
def test_golden_vectors_of_such_formats_are_the_definition_s(name: str):
    fmt = emu.parse(name)
    d = Description(operation="add", formats=(name, name), out_format=name, count=500)
    vectors = make_vectors(d)
    a, b = (fmt.decode(codes) for codes in vectors.operands)
    expected = emu.add(a, b, a_format=fmt, b_format=fmt, out_format=fmt, backend="reference")
    assert vectors.results.tolist() == fmt.encode(expected).tolist()


def test_the_number_below_the_smallest_one_is_no_value_where_the_point_lies_beyond_float64():
    fmt = emu.Fixed(8, 1030, sign_magnitude=True)
    assert fmt.contains(np.ldexp(np.array([-128.0, -127.0, 127.0, 128.0]), -1030)).tolist() == [
        False,
        True,
        True,
        False,
    ]
