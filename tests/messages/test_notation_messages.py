"""The text of each error about another notation: what is meant, or how it is written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu import FormatError, Mac, OutputStage, Overflow, Rounding, parse
from emu.errors import ConfigError
from emu.hardware import load_device

FORMS = (
    "fix16f8, ufix8f0, fix16f?, e5m10, ue4m3, sfix16_En8, ap_fixed<16,8>, Q7.8, mxfp8_e4m3 or one of fp16, bf16, tf32, "
    "fp32, fp64, fp8_e4m3, fp8_e5m2, fp8_e8m0, fp8_ue4m3, fp6_e2m3, fp6_e3m2, fp4_e2m1, p3109_k8p3, p3109_k8p4"
)


def said(action: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(FormatError) as caught:
        action(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ap_fixed<16>",
            "`ap_fixed` must have 2 to 5 arguments, ap_fixed<W,I,Q,O,N>, got 1 in ap_fixed<16>",
        ),
        ("ap_int<8,3>", "`ap_int` must have 1 argument, ap_int<W>, got 2 in ap_int<8,3>"),
        ("ap_int<>", "`ap_int` must have 1 argument, ap_int<W>, got 0 in ap_int<>"),
        (
            "ap_fixed<16, x>",
            "`I` of ap_fixed<W,I,Q,O,N> must be an integer, got 'x' in ap_fixed<16, x>; write digits",
        ),
        (
            "ac_fixed<16,8,yes>",
            "`S` of ac_fixed<W,I,S,Q,O> must be true (signed) or false, got 'yes' in ac_fixed<16,8,yes>",
        ),
        (
            "ap_fixed<16,8,AP_RND_CNV>",
            "the rounding mode of ap_fixed<16,8,AP_RND_CNV> must be known, got 'AP_RND_CNV'; did you mean "
            "'AP_RND_CONV'?",
        ),
        (
            "ap_fixed<16,8,AP_RND_CONV_ODD>",
            "the rounding mode of ap_fixed<16,8,AP_RND_CONV_ODD> must be known, got 'AP_RND_CONV_ODD'; did you mean "
            "'AP_RND_CONV'?",
        ),
        (
            "ap_fixed<16,8,AP_SAT>",
            "the rounding mode of ap_fixed<16,8,AP_SAT> must be known, got 'AP_SAT', an overflow mode, which comes "
            "after the rounding mode; write AP_TRN before it",
        ),
        (
            "sc_fixed<8,4,SC_TRN,SC_WRAP_SM>",
            "the overflow mode of sc_fixed<8,4,SC_TRN,SC_WRAP_SM> must be known, got 'SC_WRAP_SM': no overflow rule "
            "here wraps two's complement as a sign and a magnitude; choose another mode",
        ),
        (
            "ap_fixed<8,4,AP_TRN,AP_WRAP,2>",
            "`N` of ap_fixed<W,I,Q,O,N> must be 0, got 2 in ap_fixed<8,4,AP_TRN,AP_WRAP,2>: no overflow rule here "
            "saturates some bits and wraps the others; leave it out",
        ),
        (
            "ap_fixed<1,1,AP_TRN,AP_SAT_SYM>",
            "a signed word of 1 bit must not saturate symmetrically, got ap_fixed<1,1,AP_TRN,AP_SAT_SYM>: 0 is its "
            "only symmetric value, and the headers of its notation write -1; choose another overflow mode",
        ),
        (
            "apfixed<16,8>",
            "a type of high-level synthesis must be known, got 'apfixed<16,8>'; did you mean 'ap_fixed'?",
        ),
        (
            "ap_float<32,8>",
            "a type of high-level synthesis must be known, got 'ap_float<32,8>'; write a float by its fields, as e8m23",
        ),
        ("ap_fixed<65,8>", "`width_bits` must be in 1..64, got 65; choose a smaller one"),
        (
            "i8",
            "a format must mean one thing, got 'i8', which stands for NumPy's int64 and int8 of others; write int64 or "
            "int8",
        ),
        (
            "U4",
            "a format must mean one thing, got 'U4', which stands for NumPy's uint32 and uint4 of others; write uint32 "
            "or uint4",
        ),
        (
            "f8",
            "a format must mean one thing, got 'f8', which stands for NumPy's float64 and floats of 8 bits; write "
            "float64, float8_e4m3fn or float8_e5m2",
        ),
        (
            "torch.int",
            "a format must mean one thing, got 'torch.int', which stands for integers of any width; write it, as int32",
        ),
        (
            "Q8",
            "a format must say its width, got 'Q8', 8 fraction bits of an unknown word; write fix16f8 for one "
            "of 16 bits",
        ),
        (
            "UQ16",
            "a format must say its width, got 'UQ16', 16 fraction bits of an unknown word; write ufix16f16 for "
            "one of 16 bits",
        ),
        (
            "float8_e5m3",
            "the width of a float must be that of its fields, got 'float8_e5m3', whose fields have 9 bits; write e5m3",
        ),
        (
            "fix24",
            "a fixed-point format must say where its point is, got 'fix24'; write fix24f0 for whole numbers, fix24f12 "
            "for 12 fraction bits, or fix24f? for a point that moves while a network trains",
        ),
        (
            "ufix16_8",
            "a fixed-point format must say where its point is, got 'ufix16_8'; did you mean ufix16f8, which has 8 "
            "fraction bits?",
        ),
        ("", f"a format must be written as {FORMS}; got ''"),
        (" ", f"a format must be written as {FORMS}; got ''"),
        ("complex64", f"a format must be written as {FORMS}; got 'complex64'"),
        (
            "fix" + "9" * 5000 + "f0",
            f"a format must be written as {FORMS}; got 5005 characters, 'fix99999999999999999' ...",
        ),
        (np.dtype(complex), f"a format must be written as {FORMS}; got 'complex128'"),
        (float, f"a format must be text, a format or a dtype, got <class 'float'>; write it as {FORMS}"),
    ],
)  # fmt: skip
def test_a_format_that_is_none_or_several_is_told_how_to_be_written(text: Any, message: str):
    assert said(parse, text) == message


HALF_UP = (
    ", which may be 'nearest_away' (Java, decimal) or 'nearest_up' (add half, drop bits); write the one that is meant"
)
DROPPED = (
    ", which may be 'toward_zero' (of a magnitude, C's trunc) or 'floor' (of a two's complement word, SystemC's TRN); "
    "write the one that is meant"
)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("half_up", HALF_UP),
        ("HALF_UP", HALF_UP),
        ("round_half_up", HALF_UP),
        (
            "half_down",
            ", which may be 'nearest_zero' (Java, decimal) or 'nearest_down'; write the one that is meant",
        ),
        ("trunc", DROPPED),
        ("truncate", DROPPED),
        (
            "round",
            ", which may be 'nearest_even' (Python, NumPy), 'nearest_away' (C, MATLAB) or 'nearest_up' (JavaScript); "
            "write the one that is meant",
        ),
        (
            "up",
            ", which may be 'ceil' (RISC-V's RUP) or 'away_from_zero' (Java, decimal); write the one that is meant",
        ),
        (
            "Down",
            ", which may be 'floor' (RISC-V's RDN) or 'toward_zero' (Java, decimal); write the one that is meant",
        ),
        (
            "RTN",
            ", which may be 'floor' (SMT-LIB, OpenCL) or 'nearest_even' (round to nearest); write the one that is "
            "meant",
        ),
        (
            "Stochastic",
            ", which may be 'stochastic' (drops bits) or 'stochastic_nearest_even' (gfloat's Stochastic); write the "
            "one that is meant",
        ),
        (
            "Nearest",
            ", which may be 'nearest_even' (IEEE 754, the default) or 'nearest_up' (MATLAB); write the one that is "
            "meant",
        ),
    ],
)
def test_a_rounding_mode_that_may_be_several_names_them(name: str, end: str):
    assert said(Rounding.parse, name) == f"`rounding` must be a rounding mode, got {name!r}{end}"


@pytest.mark.parametrize(
    ("name", "end"),
    [
        *(
            (name, ", which may be 'saturate' of fixed point or 'satfinite' of floats; write the one that is meant")
            for name in ("sat", "clip", "clamp", "saturation")
        ),
        ("AP_WRAP_SM", ": no rule here wraps two's complement as a sign and a magnitude; choose 'wrap' or 'saturate'"),
    ],
)
def test_an_overflow_rule_that_may_be_several_names_them(name: str, end: str):
    assert said(Overflow.named, name) == f"`overflow` must be an overflow rule, got {name!r}{end}"


def test_a_given_mode_beside_another_one_in_the_text():
    assert said(OutputStage.of, "ap_fixed<8,4,AP_RND>", "floor") == (
        "`rounding` must be what the format's text names, AP_RND of ap_fixed<8,4,AP_RND>, which is 'nearest_up', got "
        "'floor'; leave one of them out"
    )
    assert said(OutputStage.of, "ap_fixed<8,4,AP_TRN,AP_SAT>", overflow="AP_WRAP") == (
        "`overflow` must be what the format's text names, AP_SAT of ap_fixed<8,4,AP_TRN,AP_SAT>, which is 'saturate', "
        "got 'AP_WRAP'; leave one of them out"
    )


def test_products_and_sums_whose_texts_bring_different_modes():
    assert said(Mac, product="fix8f4", accumulator="ap_fixed<16,8>") == (
        "`rounding` of a Mac must serve products and sums, got none from `product`, fix8f4 and AP_TRN from "
        "`accumulator`, ap_fixed<16,8>; give `rounding`, or write fix16f8 for ap_fixed<16,8>"
    )
    assert said(Mac, product="ap_fixed<8,4>", accumulator="fp32", rounding="floor") == (
        "`overflow` of a Mac must serve products and sums, got AP_WRAP from `product`, ap_fixed<8,4> and none from "
        "`accumulator`, fp32; give `overflow`, or write fix8f4 for ap_fixed<8,4>"
    )


def test_a_device_file_whose_text_names_another_mode_than_its_key(tmp_path: Path):
    roles = ("weight", "bias", "activation", "error", "gradient", "update", "master")
    tables = "".join(f"[precision.{role}]\nformat = 'fp16'\n" for role in roles)
    tables = tables.replace("'fp16'", "'ap_fixed<8,4,AP_RND>'\nrounding = 'floor'", 1)
    path = tmp_path / "x.toml"
    path.write_text("name = 'x'\ndescription = 'x'\nsource = 'x'\n" + tables)
    with pytest.raises(ConfigError) as caught:
        load_device(path)
    assert str(caught.value) == (
        "`rounding` must be what the format's text names, AP_RND of ap_fixed<8,4,AP_RND>, which is 'nearest_up', got "
        f"'floor'; leave one of them out (in {path}: precision.weight)"
    )
