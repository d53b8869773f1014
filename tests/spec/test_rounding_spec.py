"""docs/concepts/rounding.md: every mode, on the values around a tie; stochastic ones by their formula."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

import emu
from emu.testing import assert_bits_equal

#: Rounded to integers: ties above even and odd numbers, and either side of a tie, of both signs.
INPUTS = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1.25, 1.75, -1.25, -1.75, 2.0, -3.0]
TABLE = {
    "nearest_even": [0, 2, 2, -0.0, -2, -2, 1, 2, -1, -2, 2, -3],
    "nearest_away": [1, 2, 3, -1, -2, -3, 1, 2, -1, -2, 2, -3],
    "nearest_up": [1, 2, 3, -0.0, -1, -2, 1, 2, -1, -2, 2, -3],
    "nearest_down": [0, 1, 2, -1, -2, -3, 1, 2, -1, -2, 2, -3],
    "nearest_zero": [0, 1, 2, -0.0, -1, -2, 1, 2, -1, -2, 2, -3],
    "floor": [0, 1, 2, -1, -2, -3, 1, 1, -2, -2, 2, -3],
    "ceil": [1, 2, 3, -0.0, -1, -2, 2, 2, -1, -1, 2, -3],
    "toward_zero": [0, 1, 2, -0.0, -1, -2, 1, 1, -1, -1, 2, -3],
    "to_odd": [1, 1, 3, -1, -1, -3, 1, 1, -1, -1, 2, -3],
    "nearest_odd": [1, 1, 3, -1, -1, -3, 1, 2, -1, -2, 2, -3],
    "away_from_zero": [1, 2, 3, -1, -2, -3, 2, 2, -2, -2, 2, -3],
}
#: What each makes of f * 2**r, where f is the dropped fraction, before u is added.
STOCHASTIC = {
    "stochastic": floor,
    "stochastic_nearest_even": round,
    "stochastic_nearest_odd": lambda f: round(f - 1) + 1,
    "stochastic_nearest_up": lambda f: floor(f + Fraction(1, 2)),
}
#: Two modes move values too, and negative ones as two's complement or sign and magnitude has it.
MOVING = {
    ("jamming", "fixed"): [1, 1, 3, -1, -1, -3, 1, 1, -1, -1, 3, -3],
    ("jamming", "float"): [1, 1, 3, -1, -1, -3, 1, 1, -1, -1, 3, -3],
    ("magnitude_truncation", "fixed"): [0, 1, 2, 0, -1, -2, 1, 1, -1, -1, 2, -2],
    ("magnitude_truncation", "float"): [0, 1, 2, -0.0, -1, -2, 1, 1, -1, -1, 2, -3],
}


@pytest.mark.parametrize("mode", TABLE)
def test_fixed_point_results_go_where_the_table_says(mode, backend):
    want = np.array(TABLE[mode]) + 0.0  # no -0 in fixed point
    assert_bits_equal(emu.quantize(INPUTS, "fix8f0", rounding=mode, backend=backend), want, "fix8f0")


@pytest.mark.parametrize("mode", TABLE)
def test_float_results_go_where_the_table_says_on_the_subnormal_grid(mode, backend):
    fmt = emu.Float(4, 3, bias=-2)  # the subnormals are the integers 0..7, and so are the values up to 16
    assert_bits_equal(emu.quantize(INPUTS, fmt, rounding=mode, backend=backend), TABLE[mode], fmt)


@pytest.mark.parametrize("mode", ["jamming", "magnitude_truncation"])
def test_results_go_where_the_table_says_also_where_they_are_exact(mode, backend):
    """docs/concepts/rounding.md: jamming and magnitude truncation."""
    fmt = emu.Float(4, 3, bias=-2)
    for target, family in (("fix8f0", "fixed"), (fmt, "float")):
        assert_bits_equal(emu.quantize(INPUTS, target, rounding=mode, backend=backend), MOVING[mode, family], target)


def test_values_that_move_are_inexact_and_zeros_have_their_own_rule(backend):
    """docs/concepts/rounding.md: a zero of fixed point is positive and jammed; a zero of floats stays."""
    for mode, fmt, x, y in (
        ("jamming", "fix8f0", [0.0, -0.0, 2.0, -2.0, -4.0, 3.0], [1, 1, 3, -1, -3, 3]),
        ("jamming", "fp16", [0.0, -0.0, 1.0, -1.0, 1 + 2.0**-10], [0, -0.0, 1 + 2.0**-10, -1 - 2.0**-10, 1 + 2.0**-10]),
        ("magnitude_truncation", "fix8f0", [0.0, -0.0, 2.0, -2.0, -1.0], [0, 0, 2, -1, 0]),
        ("magnitude_truncation", "fp16", [0.0, -0.0, 2.0, -2.0], [0, -0.0, 2, -2]),
    ):
        flags = emu.Flags()
        assert_bits_equal(emu.quantize(x, fmt, rounding=mode, flags=flags, backend=backend), np.array(y, float), fmt)
        assert flags.inexact == sum(np.array(x) != y)
        assert flags.underflow == sum((np.array(y) == 0) & (np.array(x) != 0))


def test_ties_to_even_look_at_the_code_also_where_there_are_no_fraction_bits(backend):
    """Ties to even code (docs/concepts/rounding.md): without fraction bits a code's last bit is the exponent's."""
    fmt = emu.Float(5, 0, nans="top")
    ties = [1.5, 3.0, 6.0, 12.0]  # 1 has code 15, 2 has code 16
    assert_bits_equal(emu.quantize(ties, fmt, backend=backend), [2.0, 2.0, 8.0, 8.0], fmt)
    assert_bits_equal(emu.quantize(ties, fmt, rounding="to_odd", backend=backend), [1.0, 4.0, 4.0, 16.0], fmt)
    assert_bits_equal(emu.quantize(ties, fmt, rounding="nearest_odd", backend=backend), [1.0, 4.0, 4.0, 16.0], fmt)
    assert_bits_equal(emu.quantize([2.0, 4.0], fmt, rounding="jamming", backend=backend), [4.0, 4.0], fmt)


@pytest.mark.parametrize("fmt", ["fix8f4", "ufix8f4", "fp16", "fp8_e4m3", "e4m3fnuz", "e3m2 finite nans=none"])
@pytest.mark.parametrize("mode", [*TABLE, *STOCHASTIC])
def test_values_of_the_format_never_move(fmt, mode, backend):
    fmt = emu.parse(fmt)
    values = fmt.decode(fmt.codes())
    values = values[np.isfinite(values)]
    largest_u = np.full(values.shape, 2**24 - 1, np.uint32) if mode in STOCHASTIC else None
    assert_bits_equal(emu.quantize(values, fmt, rounding=mode, rbits=largest_u, backend=backend), values, fmt)


@pytest.mark.parametrize("mode", STOCHASTIC)
@pytest.mark.parametrize("r", [1, 2, 3, 8, 24, 31, 32])
@pytest.mark.parametrize("fmt", ["fix8f0", "e4m3"])
def test_stochastic_rounding_moves_exactly_when_u_reaches_the_threshold(fmt, r, mode, backend):
    """Up (float: away from zero) iff u >= 2**r - F, F the dropped fraction, in units of 2**-r as the mode rounds it."""
    for negative in (False, True):
        for f in (2.0**-40, 0.125, 0.3125, 0.5, 0.9375, 1 - 2.0**-40, 2.0 ** -(r + 1), 3 * 2.0 ** -(r + 1)):
            if f >= 1:
                continue
            x = -(8 + f) if negative else 8 + f
            outward = negative and fmt == "e4m3"
            dropped = Fraction(f) if outward or not negative else 1 - Fraction(f)
            threshold = 2**r - STOCHASTIC[mode](dropped * 2**r)
            for u in (u for u in {0, threshold - 1, threshold, 2**r - 1} if 0 <= u < 2**r):
                moved = u >= threshold
                want = np.floor(x) + moved if not outward else -(8 + moved)
                got = emu.quantize([x], fmt, rounding=mode, n_rbits=r, rbits=np.array([u]), backend=backend)
                assert got.tolist() == [want], (x, u, threshold)


def test_a_result_is_rounded_once(backend):
    """1 + 2**-11 + 2**-30 is above the tie of binary16; through binary32 it would be the tie, and go to even."""
    x = 1 + 2.0**-11 + 2.0**-30
    once = emu.quantize(x, "fp16", backend=backend)
    twice = emu.quantize(emu.quantize(x, "fp32", backend=backend), "fp16", backend=backend)
    assert (once, twice) == (1 + 2.0**-10, 1.0)
