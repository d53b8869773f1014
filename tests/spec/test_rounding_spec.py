"""docs/concepts/rounding.md: the ten modes, on the values around a tie."""

from __future__ import annotations

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
}


@pytest.mark.parametrize("mode", TABLE)
def test_fixed_point_results_go_where_the_table_says(mode, backend):
    want = np.array(TABLE[mode]) + 0.0  # no -0 in fixed point
    assert_bits_equal(emu.quantize(INPUTS, "fix8f0", rounding=mode, backend=backend), want, "fix8f0")


@pytest.mark.parametrize("mode", TABLE)
def test_float_results_go_where_the_table_says_on_the_subnormal_grid(mode, backend):
    fmt = emu.Float(4, 3, bias=-2)  # the subnormals are the integers 0..7, and so are the values up to 16
    assert_bits_equal(emu.quantize(INPUTS, fmt, rounding=mode, backend=backend), TABLE[mode], fmt)


def test_ties_to_even_look_at_the_code_also_where_there_are_no_fraction_bits(backend):
    """Ties to even code (docs/concepts/rounding.md): without fraction bits a code's last bit is the exponent's."""
    fmt = emu.Float(5, 0, nans="top")
    ties = [1.5, 3.0, 6.0, 12.0]  # 1 has code 15, 2 has code 16
    assert_bits_equal(emu.quantize(ties, fmt, backend=backend), [2.0, 2.0, 8.0, 8.0], fmt)
    assert_bits_equal(emu.quantize(ties, fmt, rounding="to_odd", backend=backend), [1.0, 4.0, 4.0, 16.0], fmt)


@pytest.mark.parametrize("fmt", ["fix8f4", "ufix8f4", "fp16", "fp8_e4m3", "e4m3fnuz", "e3m2 finite nans=none"])
@pytest.mark.parametrize("mode", [*TABLE, "stochastic"])
def test_values_of_the_format_never_move(fmt, mode, backend):
    fmt = emu.parse(fmt)
    values = fmt.decode(fmt.codes())
    values = values[np.isfinite(values)]
    largest_u = np.full(values.shape, 2**24 - 1, np.uint32) if mode == "stochastic" else None
    assert_bits_equal(emu.quantize(values, fmt, rounding=mode, rbits=largest_u, backend=backend), values, fmt)


@pytest.mark.parametrize("r", [1, 2, 3, 8, 24, 31, 32])
@pytest.mark.parametrize("fmt", ["fix8f0", "e4m3"])
def test_stochastic_rounding_moves_exactly_when_u_reaches_the_threshold(fmt, r, backend):
    """Up (float: away from zero) iff u >= 2**r - floor(f * 2**r), f the dropped fraction."""
    for negative in (False, True):
        for f in (2.0**-40, 0.125, 0.3125, 0.5, 0.9375, 1 - 2.0**-40):
            x = -(8 + f) if negative else 8 + f
            outward = negative and fmt == "e4m3"
            dropped = f if outward or not negative else 1 - f
            threshold = 2**r - int(dropped * 2**r)
            for u in (u for u in {0, threshold - 1, threshold, 2**r - 1} if u < 2**r):
                moved = u >= threshold
                want = np.floor(x) + moved if not outward else -(8 + moved)
                got = emu.quantize([x], fmt, rounding="stochastic", n_rbits=r, rbits=np.array([u]), backend=backend)
                assert got.tolist() == [want], (x, u, threshold)


def test_a_result_is_rounded_once(backend):
    """1 + 2**-11 + 2**-30 is above the tie of binary16; through binary32 it would be the tie, and go to even."""
    x = 1 + 2.0**-11 + 2.0**-30
    once = emu.quantize(x, "fp16", backend=backend)
    twice = emu.quantize(emu.quantize(x, "fp32", backend=backend), "fp16", backend=backend)
    assert (once, twice) == (1 + 2.0**-10, 1.0)
