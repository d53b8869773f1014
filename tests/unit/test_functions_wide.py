"""Functions of inputs wider than 16 bits: what a double cannot say still reaches the output stage."""

import math
from fractions import Fraction

import numpy as np
import pytest

import emu
from emu.backends.functions import FUNCTIONS, evaluate_wide
from emu.backends.interface import encode_stage
from emu.backends.reference.stage import write
from emu.datapath import FLAG_NAMES, OutputStage
from emu.formats import parse


def written(name, x, target, rounding):
    exact = evaluate_wide(name, np.array([x])).exact
    values, masks = write(exact, encode_stage(OutputStage.of(target, rounding)), None)
    return values[0], {flag for flag, mask in zip(FLAG_NAMES, masks, strict=True) if mask[0]}


@pytest.mark.parametrize("target", ["fp32", "fp64", "bf16"])
def test_finite_values_beyond_float64_overflow_as_the_mode_directs(target):
    assert written("exp", 1000.0, target, "nearest_even") == (np.inf, {"overflow", "inexact"})
    assert written("exp", 1000.0, target, "floor") == (parse(target).max, {"overflow", "inexact"})
    assert written("exp", 1000.0, "fix16f8", "floor") == (parse("fix16f8").max, {"overflow", "inexact"})


@pytest.mark.parametrize("target", ["fp32", "fp64", "bf16"])
def test_values_below_float64_underflow_as_the_mode_directs(target):
    smallest = parse(target).smallest_positive
    assert written("exp", -1000.0, target, "nearest_even") == (0.0, {"underflow", "inexact"})
    assert written("exp", -1000.0, target, "ceil") == (smallest, {"inexact", "subnormal"})
    assert written("gelu", -1000.0, target, "floor") == (-smallest, {"inexact", "subnormal"})
    value, flags = written("gelu", -1000.0, target, "nearest_even")
    assert np.signbit(value)
    assert flags == {"underflow", "inexact"}


def test_a_nan_out_of_a_number_is_invalid_and_a_nan_out_of_a_nan_is_not():
    for name in ("log", "rsqrt"):
        value, flags = written(name, -1.0, "fp32", "nearest_even")
        assert np.isnan(value)
        assert flags == {"invalid"}
        assert evaluate_wide(name, np.array([np.nan])).exact is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_doubles_that_say_everything_come_alone(name):
    x = np.array([[0.5, 1.0, 2.0], [np.nan, np.inf, 0.0]])
    result = evaluate_wide(name, x)
    assert result.exact is None
    np.testing.assert_array_equal(result.doubles, FUNCTIONS[name](x))


def test_poles_and_limits_are_exact():
    assert evaluate_wide("log", np.array([0.0, 1.0])).exact is None
    assert evaluate_wide("rsqrt", np.array([0.0, np.inf])).exact is None
    assert evaluate_wide("exp", np.array([-np.inf])).exact is None


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(("x", "frac_bits", "code"), [(-700.0, 1022, 127), (-1000.0, 1022, 0), (1000.0, -1016, 127)])
def test_fixed_point_within_doubles_receives_what_a_double_cannot_say(backend, x, frac_bits, code):
    target = emu.Fixed(8, frac_bits)
    assert emu.exp([x], x_format="fp32", out_format=target, backend=backend) * 2.0**frac_bits == code


@pytest.mark.parametrize(("x", "frac_bits"), [(-1000.0, 1023), (-1000.0, 1445), (712.0, -1017), (720.0, -1030)])
def test_fixed_point_beyond_doubles_is_written_from_tables_alone(x, frac_bits):
    target = emu.Fixed(8, frac_bits)
    with pytest.raises(emu.FormatError, match="1022 fraction bits and magnitudes below 2\\*\\*1024, got fix8f"):
        emu.exp([x], x_format="fp32", out_format=target)
    exact = Fraction(math.exp(Fraction(x) / 2)) ** 2 * Fraction(2) ** frac_bits  # within 2**-50
    codes = emu.value(emu.exp([x], x_format="fp16", out_format=target), target).codes
    assert codes.item() == min(round(exact), 127)


def test_magnitudes_up_to_two_to_1024_are_taken_and_none_beyond():
    for within in (emu.Fixed(32, -992), emu.Fixed(32, -992, signed=False)):
        assert emu.exp([0.0], x_format="fp32", out_format=within).item() == 0
    for beyond in (emu.Fixed(33, -992), emu.Fixed(33, -992, signed=False)):
        with pytest.raises(emu.FormatError, match="magnitudes below 2\\*\\*1024"):
            emu.exp([0.0], x_format="fp32", out_format=beyond)
