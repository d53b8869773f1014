"""The compiled test whether numbers belong to a format says what the format says, at every edge of both."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.backends.numba import compiling, members
from emu.backends.numba.members import are_members, limits_of
from emu.engine import operands
from emu.engine.operands import COMPILED_FROM, as_operand
from emu.errors import FormatError

FIXED = [
    "fix8f4", "ufix8f3", "fix16f-3", "fix16f20", "ufix1f0", "fix1f0", "fix53f20", "fix8f800", "fix8f-800", "fix8f1022",
    "ufix53f0", "smfix8f4",
]  # fmt: skip
FLOATS = [
    "fp16", "bf16", "fp32", "fp64", "fp8_e4m3", "fp8_e5m2", "e4m3fnuz", "e2m1 finite nans=none", "e5m10 ftz",
    "e8m3 bias=140", "e5m10 bias=-90", "e8m24", "e11m20", "e8m23", "e4m32", "e5m24",
]  # fmt: skip
#: Formats about which only `contains` decides, for a dtype at least.
LEFT_OUT = ["fix54f9", "fix8f801", "fix8f-801", "ue4m3 finite nans=top", "e3m2 bias=-200"]
DTYPES = [np.float32, np.float64]


def edges(fmt: emu.Fixed | emu.Float, dtype: type) -> np.ndarray:
    """Numbers at and beside every edge of a format and a dtype, of both signs."""
    info = np.finfo(dtype)
    quantum = -fmt.frac_bits if isinstance(fmt, emu.Fixed) else fmt.emin - fmt.fraction_bits
    largest = math.ldexp(float(fmt.max_raw), quantum) if isinstance(fmt, emu.Fixed) else fmt.max
    powers = [
        math.ldexp(1.0, e)
        for e in {quantum, quantum - 1, quantum + 1, -149, -126, -1074, -1022, 0, 127, 1023}
        if -1074 <= e <= 1023
    ]
    steps = [n * math.ldexp(1.0, quantum) for n in (3, 5, 127, 128, 129, 255, 257, 1023, 1025)]
    with np.errstate(over="ignore"):
        tops = [largest, *(float(np.nextafter(largest, way)) for way in (0.0, math.inf)), float(info.max)]
    if isinstance(fmt, emu.Float):
        normal = math.ldexp(1.0, fmt.emin)
        tops += [normal, normal + math.ldexp(1.0, quantum), normal * 0.5, normal * 1.25]
    with np.errstate(over="ignore"):
        base = np.array([0.0, *powers, *steps, *tops], np.float64).astype(dtype)
        near = np.concatenate([base, np.nextafter(base, dtype(0)), np.nextafter(base, dtype(np.inf))])
    every = np.concatenate([near, -near, np.array([-0.0, np.inf, -np.inf, np.nan], dtype)])
    return np.unique(every.view(f"u{info.dtype.itemsize}")).view(dtype)  # -0 is not 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*FIXED, *FLOATS, *LEFT_OUT])
def test_each_number_at_an_edge_is_judged_as_the_format_judges_it(name: str, dtype: type):
    fmt = emu.parse(name)
    is_decided = limits_of(fmt, np.dtype(dtype)) is not None
    x = edges(fmt, dtype)
    assert x.size > 30
    for number, inside in zip(x, fmt.contains(x), strict=True):
        is_member, is_negative_zero = are_members(np.array([number]), fmt)
        assert is_member == (is_decided and bool(inside) and bool(np.isfinite(number))), (name, number)
        assert is_negative_zero == (is_decided and number == 0 and bool(np.signbit(number))), (name, number)


def test_the_formats_that_are_left_out_are_these():
    left_out = {
        name
        for name in [*FIXED, *FLOATS, *LEFT_OUT]
        for dtype in DTYPES
        if limits_of(emu.parse(name), np.dtype(dtype)) is None
    }
    # scales beyond those of a dtype; numbers that are normal in the format and subnormal in float32
    beyond = {"fix16f-3", "fix8f-800", "fix8f1022", "fp64", "e11m20", "e8m3 bias=140", "e8m24"}
    assert left_out <= {*LEFT_OUT, *beyond, "e5m10 bias=-90"}
    assert set(LEFT_OUT) <= left_out


@given(st.sampled_from([*FIXED, *FLOATS]), st.sampled_from(DTYPES), st.integers(0, 2**32 - 1))
def test_drawn_numbers_are_judged_as_the_format_judges_them(name: str, dtype: type, seed: int):
    fmt, draw = emu.parse(name), np.random.default_rng(seed)
    if limits_of(fmt, np.dtype(dtype)) is None:
        return
    with np.errstate(all="ignore"):
        wide = np.ldexp(draw.standard_normal(40), draw.integers(-30, 30, 40)).astype(dtype)
        written = emu.quantize(wide, fmt, check=False, backend="reference").astype(dtype)
    for x in (wide, written):
        for part in (x[:1], x[1:9], x):
            expected = bool(fmt.contains(part).all() and np.isfinite(part).all())
            assert are_members(part, fmt)[0] == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["fix8f4", "fp16"])
def test_an_outsider_and_a_negative_zero_are_noticed_wherever_they_are(
    name: str, dtype: type, monkeypatch: pytest.MonkeyPatch
):
    fmt, n = emu.parse(name), 300
    share = compiling.over_ranges
    monkeypatch.setenv("EMU_THREADS", "3")
    monkeypatch.setattr(members, "over_ranges", lambda work, size, align, _=1: share(work, size, align, 1))
    compiling.thread_count.cache_clear()
    try:
        for place in range(n):
            x = np.ones(n, dtype)
            assert are_members(x, fmt) == (True, False)
            x[place] = -0.0
            assert are_members(x, fmt) == (True, True)
            x[place] = 1.0 + 2.0**-20
            assert are_members(x, fmt)[0] is False
    finally:
        compiling.thread_count.cache_clear()


def test_arrays_that_are_not_contiguous_are_left_to_the_format():
    x = np.ones((8, 8), np.float32)
    assert are_members(x, emu.parse("fix8f4"))[0]
    assert not are_members(x[:, ::2], emu.parse("fix8f4"))[0]
    assert not are_members(x.T[::-1], emu.parse("fix8f4"))[0]


@pytest.mark.parametrize("size", [COMPILED_FROM - 1, COMPILED_FROM, COMPILED_FROM + 1])
def test_operands_of_any_size_are_refused_in_the_same_words_and_have_no_negative_zero(size: int):
    x = np.full(size, 0.5, np.float32)
    x[size // 2] = 0.53
    words = (
        rf"`a`: every value must belong to fix8f4, got np.float32\(0\.53\) at index \({size // 2},\); quantize it first"
    )
    with pytest.raises(FormatError, match=words):
        as_operand(x, "fix8f4", "a", check=True)
    x[size // 2] = -0.0
    carrier, _ = as_operand(x, "fix8f4", "a", check=True)
    assert not np.signbit(carrier).any()
    assert np.signbit(x[size // 2]), "the caller's array is unchanged"
    kept, _ = as_operand(x, "fp16", "a", check=True)
    assert np.signbit(kept[size // 2])


def test_a_large_operand_is_read_by_compiled_code_and_not_copied(monkeypatch: pytest.MonkeyPatch):
    x = np.full(COMPILED_FROM, 0.5, np.float32)

    def refuse(*_: object) -> None:
        raise AssertionError("read a second time")

    monkeypatch.setattr(operands, "require_all", refuse)
    assert as_operand(x, "fix8f4", "a", check=True)[0] is x
    with pytest.raises(AssertionError, match="second time"):
        as_operand(x[1:], "fix8f4", "a", check=True)
    monkeypatch.delitem(operands.sys.modules, "emu.backends.numba")
    with pytest.raises(AssertionError, match="second time"):
        as_operand(x, "fix8f4", "a", check=True)


def test_numbers_with_a_nan_or_an_infinity_are_left_to_the_format():
    x = np.ones(2 * COMPILED_FROM, np.float32)
    for special in (np.nan, np.inf):
        x[7] = special
        assert not are_members(x, emu.parse("fp16"))[0]
        assert as_operand(x, "fp16", "a", check=True)[0] is x
        with pytest.raises(FormatError, match="fix8f4"):
            as_operand(x, "fix8f4", "a", check=True)


def test_small_float32_numbers_of_formats_with_finer_steps_belong_to_them_in_arrays_of_any_size():
    """The steps of float32 are coarser: all its numbers above the smallest one belong."""
    fmt = emu.Float(4, 32)
    x = np.float32([0.015624999, 2.0**-7 + 2.0**-30, 3 * 2.0**-38])
    assert fmt.contains(x).all()
    assert not fmt.contains(np.float32([2.0**-39])).any()
    for size in (3, 4 * COMPILED_FROM):
        assert as_operand(np.resize(x, size), fmt, "a", check=True)[0].size == size


def test_limits_are_those_of_the_format_for_each_dtype():
    for name in ("fp16", "bf16"):
        fmt = emu.parse(name)
        narrow, wide = (limits_of(fmt, np.dtype(dtype)) for dtype in DTYPES)
        assert narrow is not None
        assert wide is not None
        assert (narrow.tail, wide.tail) == (2 ** (23 - fmt.fraction_bits) - 1, 2 ** (52 - fmt.fraction_bits) - 1)
        assert np.int32(narrow.largest).view(np.float32) == np.int64(wide.largest).view(np.float64) == fmt.max
    scales = [limits_of(emu.parse(f"fix8f{bits}"), np.dtype(np.float64)) for bits in range(4)]
    assert all(b.scale == 2 * a.scale for a, b in pairwise(scale for scale in scales if scale is not None))
