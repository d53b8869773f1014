"""Types of high-level synthesis, Q notation, names of dtypes and of modes: what their own manuals say they are.

Sources: AMD UG1399, "Fixed-Point Identifier Summary", "Quantization Modes", "Overflow Modes"; Algorithmic C Datatypes;
IEEE 1666-2011 section 7.10; RISC-V Unprivileged ISA; IEEE 754-2019 section 4.3; docs/concepts/formats.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import emu
from emu import Fixed, Float, FormatError, Mac, OutputStage, Overflow, Rounding, Unit, parse
from emu.formats.notations import OVERFLOW_WORDS, ROUNDING_WORDS

FNUZ: dict[str, Any] = {"infinities": False, "nans": "negative_zero"}
FINITE: dict[str, Any] = {"infinities": False, "nans": "none"}
TOP: dict[str, Any] = {"infinities": False, "nans": "top"}


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        # AMD UG1399: W bits, I of them integer bits, the sign included; I may be negative
        ("ap_fixed<2, 0>", Fixed(2, 2)),
        ("ap_ufixed<1, 0>", Fixed(1, 1, signed=False)),
        ("ap_ufixed<1, -1>", Fixed(1, 2, signed=False)),
        ("ap_fixed<1, -7>", Fixed(1, 8)),
        ("ap_fixed<18, 6, AP_RND>", Fixed(18, 12)),
        ("ap_fixed<16,8,AP_RND_CONV,AP_SAT>", Fixed(16, 8)),
        ("ap_ufixed<16,8,AP_TRN,AP_WRAP,0>", Fixed(16, 8, signed=False)),
        ("ap_int<8>", Fixed(8, 0)),
        ("ap_uint<8>", Fixed(8, 0, signed=False)),
        # Algorithmic C: ac_fixed<W, I, S = true, Q = AC_TRN, O = AC_WRAP>, ac_int<W, S = true>
        ("ac_fixed<16,8>", Fixed(16, 8)),
        ("ac_fixed<16,8,true,AC_RND_CONV,AC_SAT>", Fixed(16, 8)),
        ("ac_fixed<16,8,false>", Fixed(16, 8, signed=False)),
        ("ac_fixed<4,7,1,AC_RND_CONV_ODD>", Fixed(4, -3)),
        ("ac_int<8>", Fixed(8, 0)),
        ("ac_int<8,false>", Fixed(8, 0, signed=False)),
        # IEEE 1666: sc_fixed<wl, iwl, q_mode = SC_TRN, o_mode = SC_WRAP, n_bits = 0>
        ("sc_fixed<16,8,SC_RND,SC_SAT>", Fixed(16, 8)),
        ("sc_ufixed<16,8,SC_RND,SC_WRAP,0>", Fixed(16, 8, signed=False)),
        ("sc_fixed_fast<16,8>", Fixed(16, 8)),
        ("sc_int<8>", Fixed(8, 0)),
        ("sc_biguint<64>", Fixed(64, 0, signed=False)),
        # hls4ml
        ("fixed<16,6>", Fixed(16, 10)),
        ("ufixed<8,3,RND_CONV,SAT>", Fixed(8, 5, signed=False)),
        ("int<8>", Fixed(8, 0)),
        ("uint<8>", Fixed(8, 0, signed=False)),
        # Q notation: integer bits without the sign; CMSIS q7, q15, q31
        ("Q7.8", Fixed(16, 8)),
        ("UQ8.8", Fixed(16, 8, signed=False)),
        ("q1.15", Fixed(17, 15)),
        ("Q7", Fixed(8, 7)),
        ("Q15", Fixed(16, 15)),
        ("q31", Fixed(32, 31)),
        # integers
        ("int8", Fixed(8, 0)),
        ("uint4", Fixed(4, 0, signed=False)),
        ("int4", Fixed(4, 0)),
        ("s8", Fixed(8, 0)),
        ("i16", Fixed(16, 0)),
        ("u32", Fixed(32, 0, signed=False)),
        # floats
        ("half", Float(5, 10)),
        ("f16", Float(5, 10)),
        ("float16", Float(5, 10)),
        ("bfloat16", Float(8, 7)),
        ("single", Float(8, 23)),
        ("f32", Float(8, 23)),
        ("double", Float(11, 52)),
        ("f64", Float(11, 52)),
        ("e4m3fn", Float(4, 3, **TOP)),
        ("float8_e4m3fn", Float(4, 3, **TOP)),
        ("f8E4M3FN", Float(4, 3, **TOP)),
        ("float8_e5m2", Float(5, 2)),
        ("float8_e4m3fnuz", Float(4, 3, 8, **FNUZ)),
        ("float8_e5m2fnuz", Float(5, 2, 16, **FNUZ)),
        ("float8_e4m3b11fnuz", Float(4, 3, 11, **FNUZ)),
        ("float8_e4m3", Float(4, 3)),
        ("float8_e3m4", Float(3, 4)),
        ("float6_e2m3fn", Float(2, 3, **FINITE)),
        ("float6_e3m2fn", Float(3, 2, **FINITE)),
        ("float4_e2m1fn", Float(2, 1, **FINITE)),
        ("float8_e8m0fnu", Float(8, 0, 127, **TOP, signed=False, zero=False)),
        ("float8_e4m3fn ftz", Float(4, 3, **TOP, ftz=True)),
        ("torch.float8_e4m3fn", Float(4, 3, **TOP)),
        ("torch.float16", Float(5, 10)),
        ("torch.uint8", Fixed(8, 0, signed=False)),
        ("ml_dtypes.bfloat16", Float(8, 7)),
    ],
)
def test_a_text_of_another_notation_names_the_format_that_its_manual_describes(text: str, fmt: Fixed | Float):
    assert parse(text) == fmt
    assert parse(str(parse(text))) == fmt


class TorchDtype:
    """What a dtype of PyTorch says of itself."""

    def __str__(self) -> str:
        return "torch.float8_e5m2"


TorchDtype.__module__ = "torch"


@pytest.mark.parametrize(
    ("dtype", "fmt"),
    [
        (np.dtype("float16"), Float(5, 10)),
        (np.dtype(">f4"), Float(8, 23)),
        (np.float32, Float(8, 23)),
        (np.float64, Float(11, 52)),
        (np.dtype("i8"), Fixed(64, 0)),
        (np.uint8, Fixed(8, 0, signed=False)),
        (TorchDtype(), Float(5, 2)),
    ],
)
def test_a_dtype_is_read_by_its_name(dtype: Any, fmt: Fixed | Float):
    assert parse(dtype) == fmt
    assert emu.value([1.0], dtype).format == fmt
    assert OutputStage.of(dtype) == OutputStage(fmt, overflow=OutputStage.of(fmt).overflow)
    assert emu.quantize([1.0], dtype).tolist() == [1.0]


# ---- what modes do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "given", "yields"),
    [
        # UG1399, "Quantization Modes"
        ("ap_fixed<3, 2, AP_RND, AP_SAT>", 1.25, 1.5),
        ("ap_fixed<3, 2, AP_RND, AP_SAT>", -1.25, -1.0),
        ("ap_fixed<3, 2, AP_RND_ZERO, AP_SAT>", 1.25, 1.0),
        ("ap_fixed<3, 2, AP_RND_ZERO, AP_SAT>", -1.25, -1.0),
        ("ap_fixed<3, 2, AP_RND_MIN_INF, AP_SAT>", 1.25, 1.0),
        ("ap_fixed<3, 2, AP_RND_MIN_INF, AP_SAT>", -1.25, -1.5),
        ("ap_fixed<3, 2, AP_RND_INF, AP_SAT>", 1.25, 1.5),
        ("ap_fixed<3, 2, AP_RND_INF, AP_SAT>", -1.25, -1.5),
        ("ap_fixed<3, 2, AP_RND_CONV, AP_SAT>", 0.75, 1.0),
        ("ap_fixed<3, 2, AP_RND_CONV, AP_SAT>", -1.25, -1.0),
        ("ap_fixed<3, 2, AP_TRN, AP_SAT>", 1.25, 1.0),
        ("ap_fixed<3, 2, AP_TRN, AP_SAT>", -1.25, -1.5),
        ("ap_fixed<3, 2, AP_TRN_ZERO, AP_SAT>", 1.25, 1.0),
        ("ap_fixed<3, 2, AP_TRN_ZERO, AP_SAT>", -1.25, -1.0),
        # UG1399, "Overflow Modes"
        ("ap_fixed<4, 4, AP_RND, AP_SAT>", 19.0, 7.0),
        ("ap_fixed<4, 4, AP_RND, AP_SAT>", -19.0, -8.0),
        ("ap_ufixed<4, 4, AP_RND, AP_SAT>", 19.0, 15.0),
        ("ap_ufixed<4, 4, AP_RND, AP_SAT>", -19.0, 0.0),
        ("ap_fixed<4, 4, AP_RND, AP_SAT_ZERO>", 19.0, 0.0),
        ("ap_fixed<4, 4, AP_RND, AP_SAT_ZERO>", -19.0, 0.0),
        ("ap_ufixed<4, 4, AP_RND, AP_SAT_ZERO>", 19.0, 0.0),
        ("ap_ufixed<4, 4, AP_RND, AP_SAT_ZERO>", -19.0, 0.0),
        ("ap_fixed<4, 4, AP_RND, AP_SAT_SYM>", 19.0, 7.0),
        ("ap_fixed<4, 4, AP_RND, AP_SAT_SYM>", -19.0, -7.0),
        ("ap_ufixed<4, 4, AP_RND, AP_SAT_SYM>", 19.0, 15.0),
        ("ap_ufixed<4, 4, AP_RND, AP_SAT_SYM>", -19.0, 0.0),
        ("ap_fixed<4, 4, AP_RND, AP_WRAP>", 31.0, -1.0),
        ("ap_fixed<4, 4, AP_RND, AP_WRAP>", -19.0, -3.0),
        ("ap_ufixed<4, 4, AP_RND, AP_WRAP>", 19.0, 3.0),
        ("ap_ufixed<4, 4, AP_RND, AP_WRAP>", -19.0, 13.0),
        # conversions of a fraction to an integer type: Vitis drops the magnitude's, Algorithmic C the word's
        ("ap_int<8>", -2.7, -2.0),
        ("ap_uint<8>", 200.5, 200.0),
        ("ap_int<8>", 200.5, -56.0),
        ("ac_int<8>", -2.7, -3.0),
        ("ac_int<8,false>", -2.7, 253.0),
        ("int<8>", -2.7, -2.0),
        # a notation's own defaults
        ("ap_fixed<10,4>", 8.99, -7.015625),
        ("ac_fixed<10,4>", 8.99, -7.015625),
        ("sc_fixed<10,4>", 8.99, -7.015625),
        ("fixed<10,4>", 8.99, -7.015625),
        ("ap_fixed<10,4,AP_RND>", 8.99, -7.015625),
        # texts that bring no modes
        ("fix10f6", 8.99, 7.984375),
        ("sfix10_En6", 8.99, 7.984375),
        ("Q3.6", 8.99, 7.984375),
        ("int8", 2.5, 2.0),
        ("int8", 200.5, 127.0),
    ],
)
def test_what_is_written_in_a_type_is_what_its_manual_yields(backend: str, declared: str, given: float, yields: float):
    assert emu.quantize([given], declared, backend=backend).tolist() == [yields]


def steps(word: str, scaled: Fraction) -> int:
    """A quantisation mode of UG1399 and of Algorithmic C, in units of the last place."""
    half = Fraction(1, 2)
    up, down = math.floor(scaled + half), math.ceil(scaled - half)
    even = round(scaled)
    return {
        "TRN": math.floor(scaled),
        "TRN_ZERO": math.trunc(scaled),
        "RND": up,
        "RND_MIN_INF": down,
        "RND_ZERO": down if scaled > 0 else up,
        "RND_INF": up if scaled > 0 else down,
        "RND_CONV": even,
        "RND_CONV_ODD": even if up == down else (up if up % 2 else down),
    }[word]


def bounded(word: str, raw: int, width: int, *, signed: bool) -> int:
    """An overflow mode of UG1399."""
    top = 2 ** (width - signed) - 1
    bottom = -top - 1 if signed else 0
    if word == "WRAP":
        return (raw - bottom) % 2**width + bottom
    if word == "SAT_SYM" and signed:
        bottom = -top
    if bottom <= raw <= top:
        return raw
    return 0 if word == "SAT_ZERO" else top if raw > top else bottom


SHAPES = [(8, 4), (6, -2), (5, 9), (16, 8), (33, 17), (3, 3)]


@pytest.mark.parametrize("rounding", ROUNDING_WORDS)
@pytest.mark.parametrize("overflow", OVERFLOW_WORDS)
def test_every_mode_of_every_type_is_what_fractions_say(backend: str, rounding: str, overflow: str):
    drawn = Random(f"{rounding} {overflow}")
    for width, integer_bits in SHAPES:
        frac = width - integer_bits
        raws = [drawn.randint(-(5 << width + 3), 5 << width + 3) for _ in range(60)]
        given = [math.ldexp(raw, -frac - drawn.choice([0, 1, 1, 2, 3])) for raw in raws]
        for signed in (True, False):
            text = f"ac_fixed<{width},{integer_bits},{str(signed).lower()},AC_{rounding},AC_{overflow}>"
            texts = [text, f"sc_{'' if signed else 'u'}fixed<{width},{integer_bits},SC_{rounding},SC_{overflow}>"]
            texts += [f"ap_{'' if signed else 'u'}fixed<{width},{integer_bits},AP_{rounding},AP_{overflow}>"]
            wanted = [
                bounded(overflow, steps(rounding, Fraction(x) * Fraction(2) ** frac), width, signed=signed) * 2.0**-frac
                for x in given
            ]
            for declared in texts[: 1 if rounding == "RND_CONV_ODD" else 3]:
                assert emu.quantize(given, declared, backend=backend).tolist() == wanted, declared


#: Names -> where -2.75, -2.5, -2.25, -1.5, -0.5, 0.5, 1.5, 2.25, 2.5, 2.75 go, by the sentence of the source.
NAMES_OF_MODES = [
    # RISC-V: to nearest, ties to even; IEEE 754 roundTiesToEven; Java, decimal; MATLAB Convergent
    (
        "RNE rne half_even HALF_EVEN ROUND_HALF_EVEN convergent Convergent roundTiesToEven TIES_EVEN TiesToEven "
        "AP_RND_CONV AC_RND_CONV SC_RND_CONV RND_CONV RTE",
        [-3, -2, -2, -2, 0, 0, 2, 2, 2, 3],
    ),
    # RISC-V: to nearest, ties to max magnitude; decimal: ties going away from zero
    ("RMM RNA roundTiesToAway ROUND_HALF_UP AP_RND_INF RND_INF half_away", [-3, -3, -2, -2, -1, 1, 2, 2, 3, 3]),
    # RISC-V V extension rnu; UG1399: round to plus infinity
    ("RNU rnu AP_RND RND SC_RND", [-3, -2, -2, -1, 0, 1, 2, 2, 3, 3]),
    ("AP_RND_MIN_INF AC_RND_MIN_INF", [-3, -3, -2, -2, -1, 0, 1, 2, 2, 3]),
    # decimal ROUND_HALF_DOWN: to nearest with ties going towards zero
    ("AP_RND_ZERO SC_RND_ZERO ROUND_HALF_DOWN", [-3, -2, -2, -1, 0, 0, 1, 2, 2, 3]),
    # RISC-V: down (towards minus infinity)
    ("RDN rdn AP_TRN TRN SC_TRN roundTowardNegative FLOOR Floor ROUND_FLOOR", [-3, -3, -3, -2, -1, 0, 1, 2, 2, 2]),
    ("RUP RTP roundTowardPositive ceiling CEILING Ceiling ROUND_CEILING", [-2, -2, -2, -1, 0, 1, 2, 3, 3, 3]),
    # decimal ROUND_DOWN: towards zero
    ("RTZ rtz AP_TRN_ZERO AC_TRN_ZERO roundTowardZero ROUND_DOWN Zero", [-2, -2, -2, -1, 0, 0, 1, 2, 2, 2]),
    # decimal ROUND_UP: away from zero
    ("ROUND_UP TO_AWAY", [-3, -3, -3, -2, -1, 1, 2, 3, 3, 3]),
    ("ROD rod JAM_UNBIASED", [-3, -3, -3, -1, -1, 1, 1, 3, 3, 3]),
    ("AC_RND_CONV_ODD TIES_ODD", [-3, -3, -2, -1, -1, 1, 1, 2, 3, 3]),
]


@pytest.mark.parametrize(("names", "wanted"), NAMES_OF_MODES)
def test_a_rounding_mode_by_any_name_goes_where_its_source_says(backend: str, names: str, wanted: list[int]):
    given = [-2.75, -2.5, -2.25, -1.5, -0.5, 0.5, 1.5, 2.25, 2.5, 2.75]
    for name in names.split():
        assert emu.quantize(given, "fix8f0", rounding=name, backend=backend).tolist() == wanted, name


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        ("AP_SAT AC_SAT SC_SAT SAT Saturate", "saturate"),
        ("AP_SAT_ZERO SC_SAT_ZERO", "saturate_zero"),
        ("AP_SAT_SYM AC_SAT_SYM SAT_SYM", "saturate_symmetric"),
        ("AP_WRAP AC_WRAP SC_WRAP WRAP Wrap", "wrap"),
    ],
)
def test_an_overflow_rule_by_any_name_is_one_of_ours(names: str, rule: str):
    assert {Overflow.named(name).value for name in names.split()} == {rule}
    assert {OutputStage.of("fix8f4", overflow=name).overflow.value for name in names.split()} == {rule}


def test_every_word_of_a_mode_is_a_mode_here():
    for prefix in ("", "AP_", "AC_", "SC_"):
        assert len({Rounding.parse(prefix + word) for word in ROUNDING_WORDS}) == len(ROUNDING_WORDS)
        assert len({Overflow.named(prefix + word) for word in OVERFLOW_WORDS}) == len(OVERFLOW_WORDS)


# ---- who brings modes --------------------------------------------------------------------------------------------


def modes(stage: OutputStage | Mac) -> tuple[str, str | None]:
    return stage.rounding.value, stage.overflow and stage.overflow.value


def test_a_text_brings_its_modes_wherever_it_is_what_is_written():
    text = "ap_fixed<10,4>"
    assert modes(OutputStage.of(text)) == ("floor", "wrap")
    assert modes(Unit(text).stage) == ("floor", "wrap")
    assert Unit(text).quantize(8.99).item() == -7.015625
    assert emu.add(8.0, 0.99, out_format=text).item() == -7.015625
    product = emu.matmul([[1.0]], [[8.99]], a_format="fix8f0", b_format="fp64", out_format=text)
    assert product.tolist() == [[-7.015625]]


def test_a_format_has_no_modes_and_operands_take_none():
    fmt = parse("ap_fixed<10,4,AP_RND_INF,AP_SAT_ZERO>")
    assert fmt == Fixed(10, 6)
    assert modes(OutputStage.of(fmt)) == ("nearest_even", "saturate")
    assert emu.value([7.984375], "ap_fixed<10,4>").format == fmt
    unit = Unit("fix4f0", inputs="ap_fixed<10,4,AP_RND,AP_WRAP>")
    assert modes(unit.stage) == ("nearest_even", "saturate")


def test_a_given_mode_replaces_a_notation_s_default():
    assert modes(OutputStage.of("ap_fixed<10,4>", "nearest_away")) == ("nearest_away", "wrap")
    assert modes(OutputStage.of("ap_fixed<10,4>", overflow="saturate")) == ("floor", "saturate")
    assert modes(OutputStage.of("ap_fixed<10,4,AP_RND>", overflow="AP_SAT")) == ("nearest_up", "saturate")


def test_a_given_mode_that_the_text_names_too_must_be_the_same():
    assert modes(OutputStage.of("ap_fixed<10,4,AP_RND,AP_SAT>", "nearest_up", "saturate")) == ("nearest_up", "saturate")
    for given in ({"rounding": "floor"}, {"overflow": "wrap"}):
        with pytest.raises(FormatError, match="leave one of them out"):
            OutputStage.of("ap_fixed<10,4,AP_RND,AP_SAT>", **given)


def test_a_unit_that_gets_another_text_gets_its_modes():
    unit = Unit("fix8f4", rounding="stochastic", overflow="saturate_zero")
    assert modes(unit.replace(out="ap_fixed<10,4>").stage) == ("floor", "wrap")
    assert modes(unit.replace(out="ap_fixed<10,4,AP_RND>", overflow="saturate").stage) == ("nearest_up", "saturate")
    assert modes(unit.replace(out="fix10f6").stage) == ("stochastic", "saturate_zero")
    assert modes(Unit("ap_fixed<10,4>").replace(backend="reference").stage) == ("floor", "wrap")


def test_an_accumulator_brings_its_modes_to_every_add(backend: str):
    mac = Mac(accumulator="ap_fixed<8,4>")
    assert modes(mac) == ("floor", "wrap")
    a, b = emu.value([[1.0, 1.0, 1.0]], "fix16f8"), emu.value([[7.97], [-0.02], [3.0]], "fp64")
    wanted = Fraction(0)
    for term in (7.97, -0.02, 3.0):
        raw = math.floor((wanted + Fraction(term)) * 16)
        wanted = Fraction(bounded("WRAP", raw, 8, signed=True), 16)
    assert Unit("fp64", mac=mac, backend=backend).matmul(a, b).item() == float(wanted)


@pytest.mark.parametrize(
    "formats",
    [
        {"product": "ap_fixed<8,4,AP_RND>", "accumulator": "ap_fixed<16,8>"},
        {"product": "fix8f4", "accumulator": "ap_fixed<16,8>"},
        {"product": "ap_fixed<8,4>", "accumulator": "fp32"},
    ],
)
def test_products_and_sums_with_different_modes_are_refused_unless_one_is_given(formats: dict[str, str]):
    with pytest.raises(FormatError, match="must serve products and sums"):
        Mac(**formats)
    if formats["accumulator"] != "fp32":
        given = "AP_RND" if "RND" in formats["product"] else "nearest_even"
        assert modes(Mac(**formats, rounding=given, overflow="wrap"))[1] == "wrap"
