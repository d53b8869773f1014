"""emu.testing: what the strategies reach, and what large arrays shrink to."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

import emu
from emu.datapath.order import Blocks, Lanes
from emu.testing import arrays, assert_bits_equal, bulk_arrays, codes, formats, macs
from emu.testing.hard import Places, hard_codes, hard_reals, hard_values, negated

SEARCH = settings(max_examples=2000, database=None, derandomize=True)
KINDS = ["fp16", "fp64", "fix16f8", "ufix64f3", "fix64f0", "fix1f0", "e4m3fnuz", "e2m0 finite nans=none", "bf16 ftz"]


def found(strategy, wanted):
    return find(strategy, wanted, settings=SEARCH)


# Shrinking: the promise of the module's docstring


@pytest.mark.parametrize(
    "wrong", [lambda x: x == 2.0**-14, lambda x: x > 60000, lambda x: np.signbit(x) & (x == 0), lambda x: x == -1]
)
def test_a_large_array_shrinks_to_its_failing_element_among_zeros(wrong):
    x = found(bulk_arrays("fp16", (64, 64), nan=False, infinity=False), lambda x: wrong(x).any())
    assert x.shape == (64, 64)
    assert wrong(x).sum() == 1 or wrong(np.zeros(1)).any()
    assert (x != 0).sum() <= 1


def test_outside_the_window_stands_the_smallest_value_of_a_format_without_zero():
    fmt = emu.parse("ue3m3 nans=top no-zero")
    x = found(bulk_arrays(fmt, (8, 8), nan=False), lambda x: (x > 2).any())
    assert (x == float(fmt.min)).sum() == 63
    assert fmt.contains(x).all()


def test_an_array_of_a_drawn_shape_shrinks_to_one_element():
    shapes = st.tuples(st.integers(1, 50), st.integers(1, 50), st.integers(1, 3))
    x = found(bulk_arrays("bf16", shapes, nan=False), lambda x: np.isinf(x).any())
    assert x.shape == (1, 1, 1)
    assert np.isinf(x).all()


def test_reals_shrink_as_values_do():
    x = found(bulk_arrays("fp16", 300, representable=False, nan=False), lambda x: (x == 65520).any())
    assert (x.shape, (x != 0).sum(), x[x != 0]) == ((300,), 1, [65520.0])


def test_an_element_depends_on_seed_and_place_alone():
    fmt = emu.parse("fp16")
    whole = hard_codes(fmt, Places.of(7, (20, 30)))
    assert (hard_codes(fmt, Places(7, (3, 11), (5, 6))) == whole[3:8, 11:17]).all()
    assert (hard_codes(fmt, Places.of(8, (20, 30))) != whole).any()


# Contents


@given(st.data(), formats(raws=True))
def test_large_arrays_hold_values_of_their_format(data, fmt):
    x = data.draw(bulk_arrays(fmt, (5, 17), nan=False, infinity=False))
    assert (x.shape, x.dtype) == ((5, 17), fmt.carrier)
    assert fmt.contains(x).all()
    assert np.isfinite(x.astype(np.float64)).all()
    reals = data.draw(bulk_arrays(fmt, 9, representable=False, nan=False, infinity=False))
    assert (reals.shape, reals.dtype) == ((9,), np.float64)
    assert np.isfinite(reals).all()


@pytest.mark.parametrize("text", KINDS)
def test_large_arrays_reach_zeros_extremes_carries_ties_and_cancelling_pairs(text):
    fmt = emu.parse(text)
    values = hard_values(fmt, Places.of(1, (40, 40)))
    drawn = set(values[np.isfinite(values)].ravel().tolist())
    assert {0, fmt.max_raw if fmt.carries_raws else float(fmt.max)} <= drawn
    assert (fmt.min_raw if fmt.carries_raws else float(fmt.min)) in drawn
    got = hard_codes(fmt, Places.of(1, (120, 120)))
    left, right = got[:, 0::2], got[:, 1::2]
    assert (right == negated(fmt, left)).sum() > 40
    lengths = [k for k in range(fmt.width_bits) if (got & np.uint64((2 << k) - 1) == (1 << k) - 1).any()]
    assert lengths == list(range(fmt.width_bits))  # 0111..1 of every length
    reals = hard_reals(fmt, Places.of(1, (60, 60)))
    assert np.isnan(reals).any()
    assert np.isinf(reals).any()


def test_reals_crowd_at_ties_of_binary16_and_one_step_beside_them():
    x = np.abs(hard_reals(emu.parse("fp16"), Places.of(0, (100, 100))).ravel())
    x = x[(x > 1) & (x < 60000)]
    ulp = 2.0 ** (np.floor(np.log2(x)) - 10)
    assert (x / ulp % 1 == 0.5).sum() > 100
    assert ((x / ulp % 1 != 0.5) & (np.abs(x / ulp % 1 - 0.5) < 1e-9)).sum() > 100


@given(st.data(), formats(raws=True))
def test_the_negative_of_a_code_is_the_code_of_the_negative(data, fmt):
    code = data.draw(codes(fmt, 6)).astype(np.uint64)
    back = negated(fmt, negated(fmt, code))
    assert (back == code).all()
    x, other = fmt.decode(code), fmt.decode(negated(fmt, code))
    if isinstance(fmt, emu.Float) and fmt.signed:
        keeps = np.isnan(x) if fmt.has_negative_zero else np.isnan(x) | (x == 0)
        assert_bits_equal(other[~keeps], -x[~keeps], fmt)
    elif not fmt.signed:
        assert_bits_equal(other, x, fmt)
    elif not fmt.carries_raws:
        has_no_negative = (x == fmt.min) & (not fmt.sign_magnitude)
        assert (other == np.where(has_no_negative, fmt.min, -x)).all()


def test_single_codes_reach_long_carries():
    assert found(codes("fix16f8"), lambda code: code == 0b0000_0011_1111_1111)


def test_small_arrays_reach_cancelling_pairs():
    x = found(arrays("fp16", 4, nan=False, infinity=False), lambda x: x[0] == -x[1] != 0 and x[2] == -x[3] != x[0])
    assert x.shape == (4,)


# Speed and units


def test_drawing_a_64_by_64_array_takes_milliseconds():
    """Elementwise drawing of as many takes a thousand times longer than the fill; the bound leaves room for any CPU."""
    fmt = emu.parse("fp16")
    hard_values(fmt, Places.of(0, (64, 64)))
    best = min(_seconds(lambda i=i: hard_values(fmt, Places.of(i, (64, 64)))) for i in range(5))
    assert best < 0.02


def _seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    [
        lambda mac: isinstance(mac.order, Lanes) and mac.order.count > 4 and mac.rounding == "stochastic",
        lambda mac: isinstance(mac.product, emu.Fixed) and isinstance(mac.accumulator, emu.Float),
        lambda mac: mac.overflow == "wrap",
        lambda mac: isinstance(mac.order, Blocks) and mac.order.addend == "after" and mac.overflow == "satfinite",
    ],
)
def test_random_units_reach_every_kind(wanted):
    assert wanted(found(macs(blocks=True), wanted))


@pytest.mark.slow
def test_units_shrink_to_the_exact_sequential_one():
    assert found(macs(blocks=True), lambda mac: True) == emu.Mac()


@given(macs(fixed=False, exact=False, products=False, stochastic=False, max_width_bits=16))
def test_units_can_be_restricted(mac):
    assert mac.product == "exact"
    assert isinstance(mac.accumulator, emu.Float)
    assert mac.accumulator.width_bits <= 16
    assert mac.rounding != "stochastic"
    assert not isinstance(mac.order, Blocks)


@settings(max_examples=25)
@given(st.data(), macs(max_width_bits=16))
def test_every_unit_multiplies(data, mac):
    a = data.draw(bulk_arrays("fix8f4", (2, 5)))
    y = emu.matmul(a, a.T, a_format="fix8f4", b_format="fix8f4", out_format="fp32", mac=mac, backend="reference")
    assert y.shape == (2, 2)
