"""Scale rules against their definitions in fractions, on blocks with every kind of awkward number."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scaled_model as model
from gfloat import decode_float
from gfloat import formats as gfloat_formats
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.formats import ScaledValue, parse
from emu.formats.scale_rules import SCALE_RULES

POWERS = [rule.name for rule in SCALE_RULES.values() if rule.stores == "power"]
SINGLE = ["deepgemm", "deepseek", "te"]
DOUBLE = ["nvfp4", "nvfp4_paper", "nvfp4_torchao"]
SIZE = 8
#: Where the tie of each element format lies above its largest value, and where binary32 begins and ends.
MANTISSAS = [1.0, 1.25, 1.5, 1.75, 1.8125, 1.875, 1.9375, 2 - 2**-23, 1 + 2**-23, 1.75 + 2**-23, 1.5 + 2**-23]


def float32s(*, special: bool = True) -> st.SearchStrategy[float]:
    ordinary = st.floats(width=32, allow_nan=special, allow_infinity=special)
    exponents = st.sampled_from([-149, -140, -127, -126, -30, -9, -1, 0, 8, 100, 126, 127])
    beside = st.builds(
        lambda m, e, s: s * math.ldexp(m, e), st.sampled_from(MANTISSAS), exponents, st.sampled_from([1, -1])
    )
    near = st.builds(lambda m, e: math.ldexp(m, e), st.integers(0, 2**12).map(float), st.integers(-20, 2))
    return st.one_of(ordinary, beside, near, st.just(0.0), st.just(-0.0)).map(lambda x: float(np.float32(x)))


#: Some blocks, the second of a pair with ordinary numbers alone.
blocks = st.lists(st.lists(float32s(), min_size=SIZE, max_size=SIZE), min_size=6, max_size=6)
pairs = st.tuples(
    st.lists(float32s(), min_size=SIZE, max_size=SIZE), st.lists(float32s(special=False), min_size=SIZE, max_size=SIZE)
)


def as_float(x: model.Number | None) -> float:
    assert x is not None
    return float(x)


def assert_equal(v: ScaledValue, expected: list[model.Block]) -> None:
    """Raise AssertionError unless scales and codes of each row are those expected, NaN for NaN."""
    for row, block in enumerate(expected):
        assert np.array_equal(float(v.scales[0][row, 0]), float(block.scale), equal_nan=True), (row, block)
        assert v.codes[row].tolist() == block.codes, (row, block)


@pytest.mark.parametrize("special", ["nan_block", "ignore_nan"])
@pytest.mark.parametrize("rule", POWERS)
@pytest.mark.parametrize("element", model.ELEMENTS)
@settings(max_examples=12)
@given(x=blocks)
def test_rules_of_powers_of_two_give_the_scales_and_codes_of_their_definition(
    element: str, rule: str, special: str, x: list[list[float]]
) -> None:
    v = emu.quantize(
        np.array(x, np.float32), f"block({element}, fp8_e8m0 1x{SIZE} {rule} {special})", flags=emu.Flags()
    )
    assert_equal(v, [model.powers_of_two(rule, row, element, ignore_nan=special == "ignore_nan") for row in x])


@pytest.mark.parametrize("rule", SINGLE)
@pytest.mark.parametrize("element", ["fp8_e4m3", "fp8_e5m2"])
@settings(max_examples=30)
@given(x=blocks)
def test_rules_of_float32_scales_give_the_scales_and_codes_of_their_definition(
    element: str, rule: str, x: list[list[float]]
) -> None:
    v = emu.quantize(np.array(x, np.float32), f"block({element}, fp32 1x{SIZE} {rule})")
    assert_equal(v, [model.floats(rule, row, element, None) for row in x])


@pytest.mark.parametrize("rule", DOUBLE)
@settings(max_examples=60)
@given(x=pairs)
def test_rules_of_two_levels_give_the_scales_and_codes_of_their_definition(
    rule: str, x: tuple[list[float], list[float]]
) -> None:
    fmt = f"block(fp4_e2m1, fp8_ue4m3 1x{SIZE} {rule}, fp32 tensor)"
    v = emu.quantize(np.array(x, np.float32), fmt, flags=emu.Flags())
    magnitudes = np.abs(np.ravel(x))
    is_nan = np.isnan(magnitudes)
    top = model.of_float(float(np.max(np.where(is_nan, 0, magnitudes))))
    if rule == "nvfp4_torchao" and is_nan.any():
        top = math.nan
    expected = [model.floats(rule, row, "fp4_e2m1", top) for row in x]
    assert_equal(v, expected)
    assert np.array_equal(v.scales[1].ravel(), np.float32([as_float(expected[0].outer)]), equal_nan=True)


@settings(max_examples=30)
@given(x=blocks)
def test_the_rule_of_one_narrow_level_gives_the_scales_and_codes_of_its_definition(x: list[list[float]]) -> None:
    v = emu.quantize(np.array(x, np.float32), f"block(fp4_e2m1, fp8_ue4m3 1x{SIZE} nvfp4_one_level)")
    assert_equal(v, [model.floats("nvfp4_one_level", row, "fp4_e2m1", None) for row in x])


@pytest.mark.parametrize(
    ("name", "dtype", "gfloat_name"),
    [
        ("fp8_e4m3", ml_dtypes.float8_e4m3fn, "format_info_ocp_e4m3"),
        ("fp8_e5m2", ml_dtypes.float8_e5m2, "format_info_ocp_e5m2"),
        ("fp6_e2m3", ml_dtypes.float6_e2m3fn, "format_info_ocp_e2m3"),
        ("fp6_e3m2", ml_dtypes.float6_e3m2fn, "format_info_ocp_e3m2"),
        ("fp4_e2m1", ml_dtypes.float4_e2m1fn, "format_info_ocp_e2m1"),
        ("fp8_e8m0", ml_dtypes.float8_e8m0fnu, "format_info_ocp_e8m0"),
    ],
)
def test_every_code_of_elements_and_scales_is_that_of_ml_dtypes_and_gfloat(
    name: str, dtype: Any, gfloat_name: str
) -> None:
    fmt = parse(name)
    codes = fmt.codes()
    values = fmt.decode(codes).astype(np.float64)
    theirs = codes.view(np.dtype(dtype)).astype(np.float64)
    info = getattr(gfloat_formats, gfloat_name)
    decoded = np.array([decode_float(info, int(code)).fval for code in codes])
    for other in (theirs, decoded):
        assert np.array_equal(values, other, equal_nan=True)
        assert np.array_equal(np.signbit(values), np.signbit(other)) or np.isnan(values).any()


def test_every_code_of_the_scales_of_nvfp4_is_that_of_e4m3_without_its_sign() -> None:
    fmt = parse("fp8_ue4m3")
    theirs = fmt.codes().view(np.dtype(ml_dtypes.float8_e4m3fn)).astype(np.float64)
    assert np.array_equal(fmt.decode(fmt.codes()).astype(np.float64), theirs, equal_nan=True)
