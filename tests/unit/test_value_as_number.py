"""float() and int() of a value with one element: its exact value, or an error."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import emu
from emu import FormatError, Value, parse


def raw(element: int, fmt: str) -> Value:
    return Value(np.array([element], parse(fmt).carrier), parse(fmt))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (emu.value(0.5, "fix8f4"), 0.5),
        (emu.value([[-3.0]], "fp16"), -3.0),
        (emu.value([1.5, 2.5], "fp16")[1], 2.5),
        (emu.value(-math.inf, "fp16"), -math.inf),
        (emu.value(2.0**-149, "fp32"), 2.0**-149),
        (raw(8, "fix60f4"), 0.5),
        (raw(2**62, "fix64f70"), 2.0**-8),
        (Value(np.array(7)), 7.0),
    ],
)
def test_float_is_the_value(value: Value, number: float):
    assert float(value) == number
    assert type(float(value)) is float


def test_float_keeps_nan_and_the_sign_of_zero():
    assert math.isnan(float(emu.value(math.nan, "fp16")))
    assert math.copysign(1.0, float(emu.value(-0.0, "fp16"))) == -1.0


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (emu.value([3.0], "fix8f4"), 3),
        (emu.value(-0.0, "fp16"), 0),
        (emu.value(2.0**100, "fp32"), 2**100),
        (raw(2**53 + 1, "fix60f0"), 2**53 + 1),
        (raw(-48, "fix60f4"), -3),
        (raw(3, "fix60f-4"), 48),
    ],
)
def test_int_is_the_value(value: Value, number: int):
    assert int(value) == number


@pytest.mark.parametrize("number", [2.5, -0.5, math.nan, math.inf])
def test_int_of_what_is_no_integer_is_refused(number: float):
    said = (
        f"int() of a value must be exact, got {number!r}, which is no integer; take int(float(value)) to drop the "
        "fraction, or emu.round_to_integral"
    )
    with pytest.raises(FormatError, match=re.escape(said)):
        int(emu.value(number, "fp16"))


def test_float_of_what_is_no_float64_is_refused():
    for value, shown in (
        (raw(2**53 + 1, "fix60f0"), "9007199254740993 * 2**0"),
        (raw(2**40 + 1, "fix64f-2000"), "1099511627777 * 2**2000"),
    ):
        with pytest.raises(FormatError, match=re.escape(f"must be exact, got {shown}, which is no float64")):
            float(value)


@pytest.mark.parametrize(("elements", "shape"), [([1.0, 2.0], "(2,)"), (np.zeros((0,)), "(0,)")])
def test_other_numbers_of_elements_are_a_type_error(elements: object, shape: str):
    for function in (float, int):
        said = (
            f"{function.__name__}() of a value must have one element, got shape {shape}; select one, as v[0], or take "
            "`.tolist()`"
        )
        with pytest.raises(emu.ShapeError, match=re.escape(said)):
            function(emu.value(elements, "fp16"))
