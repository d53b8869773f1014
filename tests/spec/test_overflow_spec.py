"""docs/concepts/overflow.md: every overflow rule, case by case, with the flags of docs/concepts/flags.md."""

from __future__ import annotations

import math

import numpy as np
import pytest

import emu
from emu.testing import assert_bits_equal

INF, NAN = math.inf, math.nan
MODES = [
    "nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero",
    "floor", "ceil", "toward_zero", "to_odd", "stochastic",
]  # fmt: skip


def written(x, fmt, backend, **options):
    flags = emu.Flags()
    value = emu.quantize([x], fmt, flags=flags, backend=backend, **options)
    return value, {name for name, count in vars(flags).items() if count}


@pytest.mark.parametrize(
    ("fmt", "rule", "x", "want"),
    [
        ("fix8f0", "saturate", 130, 127),
        ("fix8f0", "saturate", -130, -128),
        ("fix8f0", "saturate", 127.5, 127),
        ("fix8f0", "saturate", INF, 127),
        ("fix8f0", "saturate", -INF, -128),
        ("ufix8f0", "saturate", -3, 0),
        ("ufix8f0", "saturate", 256, 255),
        ("fix8f0", "saturate_symmetric", -128, -127),
        ("fix8f0", "saturate_symmetric", -130, -127),
        ("fix8f0", "saturate_symmetric", 130, 127),
        ("ufix8f0", "saturate_symmetric", -3, 0),
        ("fix8f0", "saturate_zero", 130, 0),
        ("fix8f0", "saturate_zero", -130, 0),
        ("fix8f0", "saturate_zero", INF, 0),
        ("fix8f0", "saturate_zero", -INF, 0),
        ("fix8f0", "wrap", 128, -128),
        ("fix8f0", "wrap", 130, -126),
        ("fix8f0", "wrap", 127.5, -128),
        ("fix8f0", "wrap", -129, 127),
        ("fix8f0", "wrap", 2.0**70 + 2.0**20, 0),
        ("fix8f4", "wrap", 1000.25, -7.75),
        ("ufix8f0", "wrap", -1, 255),
        ("ufix8f0", "wrap", 257, 1),
        ("fix8f0", "wrap", INF, 127),
        ("fix8f0", "wrap", -INF, -128),
        ("ufix8f0", "wrap", -INF, 0),
    ],
)
def test_a_fixed_point_rule_writes_and_raises_overflow(fmt, rule, x, want, backend):
    value, flags = written(x, fmt, backend, overflow=rule)
    assert_bits_equal(value, [want], fmt)
    assert flags == {"overflow", "inexact"}


@pytest.mark.parametrize("rule", ["saturate", "saturate_symmetric", "saturate_zero", "wrap"])
def test_the_largest_values_are_no_overflow(rule, backend):
    low = -127 if rule == "saturate_symmetric" else -128
    flags = emu.Flags()
    emu.quantize([low, 127, 0], "fix8f0", overflow=rule, flags=flags, backend=backend)
    assert flags == emu.Flags()


@pytest.mark.parametrize("rule", ["saturate", "saturate_symmetric", "saturate_zero", "wrap"])
@pytest.mark.parametrize("fmt", ["fix8f4", "ufix8f4", "fix60f4"])
def test_nan_into_fixed_is_code_0_and_invalid(fmt, rule, backend):
    value, flags = written(NAN, fmt, backend, overflow=rule)
    assert_bits_equal(value, np.zeros(1, emu.parse(fmt).carrier), fmt)
    assert flags == {"invalid"}


#: Where a binary16 result beyond the maximum goes under `ieee`: (above +max, below -max).
MAX = 65504.0
DIRECTED = {"toward_zero": (MAX, -MAX), "to_odd": (MAX, -MAX), "floor": (MAX, -INF), "ceil": (INF, -MAX)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sign", [1, -1])
def test_ieee_overflow_goes_to_infinity_or_the_maximum_as_the_mode_directs(mode, sign, backend):
    value, flags = written(sign * 1e6, "fp16", backend, rounding=mode)
    want = DIRECTED.get(mode, (INF, -INF))[sign < 0]
    assert_bits_equal(value, [want], "fp16")
    assert flags == {"overflow", "inexact"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sign", [1, -1])
def test_without_infinities_nan_takes_their_place(mode, sign, backend):
    value, flags = written(sign * 1e6, "fp8_e4m3", backend, rounding=mode)
    limits = {"toward_zero": (448, -448), "to_odd": (448, -448), "floor": (448, NAN), "ceil": (NAN, -448)}
    want = limits.get(mode, (NAN, NAN))[sign < 0]
    assert_bits_equal(value, [want], "fp8_e4m3")
    assert flags == {"overflow", "inexact"} | ({"invalid"} if math.isnan(want) else set())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fmt", "largest"), [("fp16", MAX), ("fp8_e4m3", 448.0), ("e3m2 finite nans=none", 28.0)])
@pytest.mark.parametrize("x", [1e6, -1e6, INF, -INF])
def test_satfinite_writes_the_maximum_for_overflow_and_infinity(fmt, largest, mode, x, backend):
    value, flags = written(x, fmt, backend, rounding=mode, overflow="satfinite")
    assert_bits_equal(value, [math.copysign(largest, x)], fmt)
    assert flags == {"overflow", "inexact"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fmt", "largest"), [("fp16", MAX), ("fp8_e4m3", 448.0), ("e3m2 finite nans=none", 28.0)])
@pytest.mark.parametrize("x", [1e6, -1e6, 1e308, -1e308])
def test_satpropagate_writes_the_maximum_for_finite_results(fmt, largest, mode, x, backend):
    value, flags = written(x, fmt, backend, rounding=mode, overflow="satpropagate")
    assert_bits_equal(value, [math.copysign(largest, x)], fmt)
    assert flags == {"overflow", "inexact"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("fmt", "largest"), [("fp8_e4m3", 448.0), ("e3m2 finite nans=none", 28.0)])
@pytest.mark.parametrize("x", [INF, -INF])
def test_satpropagate_writes_the_maximum_for_an_infinity_the_format_lacks(fmt, largest, mode, x, backend):
    """IEEE P3109, saturation mode SatPropagate: in a finite domain an infinity becomes the limit of its side."""
    value, flags = written(x, fmt, backend, rounding=mode, overflow="satpropagate")
    assert_bits_equal(value, [math.copysign(largest, x)], fmt)
    assert flags == {"overflow", "inexact"}


@pytest.mark.parametrize("mode", MODES)
def test_satpropagate_writes_0_for_what_lies_below_an_unsigned_format(mode, backend):
    """IEEE P3109: an unsigned format has no minus infinity, whatever its domain; plus infinity stays."""
    for x in (-INF, -1e6):
        value, flags = written(x, "ue4m3", backend, rounding=mode, overflow="satpropagate")
        assert_bits_equal(value, [0.0], "ue4m3")
        assert flags == {"overflow", "inexact"}
    value, flags = written(INF, "ue4m3", backend, rounding=mode, overflow="satpropagate")
    assert_bits_equal(value, [INF], "ue4m3")
    assert flags == set()


@pytest.mark.parametrize("rule", ["ieee", "satfinite", "satpropagate"])
def test_infinite_results_of_finite_operands_follow_the_same_rules(rule, backend):
    """Exact infinities, of x/0 and log(0), are infinite results; what is only too large is finite (exp(1000))."""
    flags, options = emu.Flags(), {"out_format": "fp16", "overflow": rule, "backend": backend}
    infinite, huge = {"ieee": (INF, INF), "satfinite": (MAX, MAX), "satpropagate": (INF, MAX)}[rule]
    assert emu.divide(-1.0, 0.0, a_format="fp16", b_format="fp16", flags=flags, **options) == -infinite
    assert emu.log(0.0, x_format="fp32", flags=flags, **options) == -infinite
    assert flags.overflow == 2 * (infinite == MAX)
    assert emu.exp(1000.0, x_format="fp32", flags=flags, **options) == huge
    assert emu.multiply(6e4, 2.0, a_format="fp16", b_format="fp16", flags=flags, **options) == huge
    assert flags.overflow == 2 * (infinite == MAX) + 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", ["ieee", "satpropagate"])
@pytest.mark.parametrize("x", [INF, -INF])
def test_an_infinity_the_format_has_stays_and_raises_nothing(rule, mode, x, backend):
    value, flags = written(x, "fp16", backend, rounding=mode, overflow=rule)
    assert_bits_equal(value, [x], "fp16")
    assert flags == set()


@pytest.mark.parametrize("rule", ["ieee", "satfinite", "satpropagate"])
def test_a_format_without_nan_writes_plus_zero_and_raises_invalid(rule, backend):
    value, flags = written(-NAN, "e3m2 finite nans=none", backend, overflow=rule)
    assert_bits_equal(value, [0.0], "e3m2 finite nans=none")
    assert flags == {"invalid"}


def test_nan_into_a_format_with_nan_raises_nothing(backend):
    value, flags = written(NAN, "fp16", backend)
    assert np.isnan(value).all()
    assert flags == set()


@pytest.mark.parametrize(
    ("x", "mode", "want"),
    [
        (65519.99, "nearest_even", MAX),
        (65520, "nearest_even", INF),
        (65520, "nearest_zero", MAX),
        (65520, "nearest_down", MAX),
        (-65520, "nearest_up", -MAX),
        (65520, "nearest_away", INF),
        (65535, "floor", MAX),
        (65504.1, "ceil", INF),
    ],
)
def test_rounding_comes_before_overflow_on_the_grid_continued_beyond_the_maximum(x, mode, want, backend):
    assert_bits_equal(emu.quantize([x], "fp16", rounding=mode, backend=backend), [want], "fp16")


@pytest.mark.parametrize(("x", "want"), [(464.0, 448.0), (464.1, NAN), (-464.0, -448.0), (480.0, NAN)])
def test_ocp_e4m3_has_its_tie_at_464(x, want, backend):
    assert_bits_equal(emu.quantize([x], "fp8_e4m3", backend=backend), [want], "fp8_e4m3")


@pytest.mark.parametrize(
    ("fmt", "rule"),
    [("fp16", "saturate"), ("fp16", "wrap"), ("fix8f4", "ieee"), ("fix8f4", "satfinite"), ("fix8f4", "satpropagate")],
)
def test_a_rule_of_the_other_family_is_refused(fmt, rule):
    with pytest.raises(emu.FormatError, match="that rule belongs to the other family of formats"):
        emu.quantize([1.0], fmt, overflow=rule)


def test_the_default_is_saturate_for_fixed_and_ieee_for_float(backend):
    assert emu.quantize([1e6], "fix8f0", backend=backend) == 127
    assert emu.quantize([1e6], "fp16", backend=backend) == INF
