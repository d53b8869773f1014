"""Laws of formats: codes, values, text, and the comparison of bits itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.testing import arrays, assert_bits_equal, codes, formats, values


@given(st.data(), formats(raws=True))
def test_decode_inverts_encode(data, fmt):
    x = data.draw(arrays(fmt, (3, 4)))
    again = fmt.decode(fmt.encode(x))
    assert again.dtype == fmt.carrier
    assert_bits_equal(again, x, fmt)


@given(st.data(), formats(raws=True))
def test_encode_inverts_decode_except_for_nan_codes_and_under_daz_subnormals(data, fmt):
    given_codes = data.draw(codes(fmt, 12))
    x = fmt.decode(given_codes)
    back = fmt.encode(x)
    assert back.dtype == given_codes.dtype == fmt.code_dtype
    if isinstance(fmt, emu.Float):
        nan = np.isnan(x)
        assert (back[nan] == fmt.nan_code).all()
        magnitudes = given_codes.astype(np.uint64) % fmt.sign_code
        subnormal = magnitudes < 2**fmt.fraction_bits
        flushed = subnormal if fmt.daz else np.zeros(12, bool)
        assert (back[flushed].astype(np.uint64) % fmt.sign_code == 0).all()
        given_codes, back = given_codes[~nan & ~flushed], back[~nan & ~flushed]
    elif fmt.sign_magnitude:  # the sign alone is read as 0
        given_codes = np.where(given_codes == fmt.max_raw + 1, 0, given_codes)
    assert (back == given_codes).all()


@given(st.data(), formats(raws=True))
def test_values_are_ordered_as_their_codes(data, fmt):
    first, second = sorted(data.draw(st.tuples(codes(fmt), codes(fmt))))
    a, b = fmt.decode(np.array([first, second], np.uint64))
    sign = 1 << (fmt.width_bits - fmt.signed)
    if isinstance(fmt, emu.Fixed):
        same_side = not fmt.signed or (first < sign) == (second < sign)
        rises = same_side and not (fmt.sign_magnitude and first >= sign)
        assert (a < b) == ((first < second) == rises) or first == second or (fmt.sign_magnitude and a == b == 0)
    elif second < sign and not np.isnan(b) and not np.isnan(a):
        assert a < b or first == second or (fmt.daz and second < 2**fmt.fraction_bits)


@given(formats(raws=True))
def test_text_and_repr_read_back_to_an_equal_format(fmt):
    assert emu.parse(str(fmt)) == fmt
    assert eval(repr(fmt), {"Fixed": emu.Fixed, "Float": emu.Float}) == fmt


@given(formats())
def test_the_extreme_values_belong_to_the_format_and_the_next_ones_do_not(fmt):
    extremes = np.array([fmt.min, fmt.max], np.float64)
    assert fmt.contains(extremes).all()
    step = float(fmt.ulp(float(fmt.max)))
    with np.errstate(over="ignore"):
        beyond = extremes + np.array([-step, step])
    moved = (beyond != extremes) & np.isfinite(beyond)
    assert not fmt.contains(beyond[moved]).any()
    assert fmt.contains(np.array([0.0]))[0] == (isinstance(fmt, emu.Fixed) or fmt.zero)


@given(st.data(), formats())
def test_half_an_ulp_off_a_value_is_no_value(data, fmt):
    x = data.draw(values(fmt, representable=True, nan=False, infinity=False))
    half = float(fmt.ulp(x)) / 2
    between = x + half if x >= 0 else x - half
    if between != x and np.float64(between) - np.float64(x) == (half if x >= 0 else -half):
        assert not fmt.contains(np.array([between]))[0]


@given(st.data(), formats(raws=True))
def test_bits_equal_themselves_and_a_flipped_code_is_seen(data, fmt):
    given_codes = data.draw(codes(fmt, 6))
    canonical = fmt.encode(fmt.decode(given_codes))
    assert_bits_equal(fmt.decode(given_codes), canonical, fmt)
    index = data.draw(st.integers(0, 5))
    other = data.draw(codes(fmt))
    changed = given_codes.copy()
    changed[index] = other
    if isinstance(fmt, emu.Float) and (fmt.daz or np.isnan(fmt.decode(changed[index]))):
        return
    if fmt.encode(fmt.decode(np.array(other))) != canonical[index]:
        with pytest.raises(AssertionError, match=rf"first at index \({index},\)"):
            assert_bits_equal(changed, given_codes, fmt)
