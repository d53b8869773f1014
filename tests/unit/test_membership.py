"""Which floats belong to a format: exhaustively for float16, at every edge and at random for float32 and float64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import emu
from emu.formats import Fixed, Float
from emu.formats.membership import PIECE

FORMATS = [
    "fp16", "bf16", "tf32", "fp32", "fp64", "fp8_e4m3", "fp8_e5m2", "e4m3fnuz", "e2m1 finite nans=none",
    "e2m3 finite nans=top", "fp16 ftz", "e8m0 finite nans=top", "e5m0 finite nans=none", "e8m3 bias=140",
    "e3m2 bias=150", "e3m24 bias=140", "e8m23 bias=128", "e8m30", "e5m10 bias=-900", "e2m1 bias=-100",
    "e5m10 bias=900", "e11m20", "e2m23 bias=-200",
    "fix8f4", "ufix8f4", "fix16f8", "fix25f24", "fix25f0", "fix53f10", "fix54f0", "fix64f0", "ufix64f0", "fix1f0",
    "ufix1f0", "fix8f-3", "fix8f-60", "fix8f-126", "fix8f-127", "fix8f126", "fix8f127", "fix8f140",
    "fix32f149", "fix8f-900", "fix8f1000", "fix8f1022", "fix8f1023", "fix8f-1023", "fix64f1070",
]  # fmt: skip


def by_definition(x: np.ndarray, fmt: Fixed | Float) -> np.ndarray:
    """A whole number of last places at its exponent, and not beyond the largest: in float64, scaled in small steps."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = x.astype(np.float64)
    finite = np.isfinite(wide)
    magnitude = np.abs(np.where(finite, wide, 0.0))
    if isinstance(fmt, Fixed):
        raw = scaled(np.where(finite, wide, 0.5), np.full(x.shape, fmt.frac_bits))
        return finite & (raw == np.floor(raw)) & (raw >= fmt.min_raw) & (raw < float(fmt.max_raw + 1))
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, fmt.emin)
    significand = scaled(magnitude, fmt.fraction_bits - exponent)
    special = np.where(np.isnan(wide), fmt.nans != "none", fmt.infinities)
    return np.where(finite, (significand == np.floor(significand)) & (magnitude <= fmt.max), special)


def scaled(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """x * 2**shift, a half where it is not 0 and far below 1: no whole number becomes one or stops being one."""
    significand, exponent = np.frexp(x)
    total = exponent + shift
    return np.where((x != 0) & (total < -60), 0.5, np.ldexp(significand, np.clip(total, -60, 1023)))


def edges(fmt: Fixed | Float, dtype: type, n: int, seed: int) -> np.ndarray:
    """Values of the format, their neighbours, halves and doubles, every power of two, and random bit patterns."""
    rng = np.random.default_rng(seed)
    size = np.dtype(dtype).itemsize
    with np.errstate(all="ignore"):
        codes = np.frombuffer(rng.bytes(8 * n), np.uint64) >> np.uint64(64 - fmt.width_bits)
        values = fmt.decode(codes)
        if fmt.carries_raws:
            values = np.ldexp(values.astype(np.float64), -fmt.frac_bits)
        values = values.astype(dtype)
        bits = values.view(f"u{size}")
        powers = np.ldexp(dtype(1), np.arange(np.finfo(dtype).minexp - 53, np.finfo(dtype).maxexp))
        parts = [
            values, (bits + 1).view(dtype), (bits - 1).view(dtype), values * dtype(2), values / dtype(2), -values,
            values * dtype(1.5), powers, powers * dtype(1.5), np.frombuffer(rng.bytes(size * n), dtype),
            dtype([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]),
        ]  # fmt: skip
    return rng.permutation(np.concatenate(parts))


@pytest.mark.parametrize("name", FORMATS)
def test_membership_is_the_definition_s(name: str):
    fmt = emu.parse(name)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert (fmt.contains(halves) == by_definition(halves, fmt)).all()
    for dtype in (np.float32, np.float64):
        x = edges(fmt, dtype, 2000, 1)
        inside = fmt.contains(x)
        assert inside.dtype == bool
        wrong = np.flatnonzero(inside != by_definition(x, fmt))
        assert not wrong.size, (x[wrong[:5]], inside[wrong[:5]])


@pytest.mark.parametrize("name", FORMATS)
def test_membership_is_that_of_rational_numbers(name: str):
    fmt = emu.parse(name)
    for x in edges(fmt, np.float64, 20, 2)[::40]:
        if np.isfinite(x):
            exact = abs(Fraction(float(x)))
            if isinstance(fmt, Fixed):
                raw = Fraction(float(x)) * Fraction(2) ** fmt.frac_bits
                expected = raw.denominator == 1 and fmt.min_raw <= raw <= fmt.max_raw
            else:
                last = max(np.frexp(float(exact))[1] - 1, fmt.emin) - fmt.fraction_bits if exact else 0
                expected = (exact / Fraction(2) ** int(last)).denominator == 1 and exact <= Fraction(fmt.max)
            assert bool(fmt.contains(np.array(x))) == expected, x


def test_tiny_numbers_are_no_values_of_a_format_of_huge_ones():
    fmt = emu.parse("e5m10 bias=-900")
    assert not fmt.contains(np.array([1e-298, -5e-324])).any()
    with pytest.raises(emu.FormatError, match="every value must belong to"):
        fmt.encode(np.array([1e-298]))


def test_a_nan_beside_fractions_belongs_to_formats_that_have_it():
    numbers = [Fraction(1, 3), float("nan"), float("inf"), 0.5, 10**400]
    assert emu.parse("fp16").contains(np.array(numbers, object)).tolist() == [False, True, True, True, False]
    assert emu.parse("fp8_e4m3").contains(np.array(numbers, object)).tolist() == [False, True, False, True, False]
    assert not emu.parse("fp4_e2m1").contains(np.array(numbers[:3], object)).any()


def test_a_float32_zero_is_no_value_of_a_format_whose_numbers_lie_below_those_of_float32():
    fmt = Float(8, 0, 1000, infinities=False, nans="top", signed=False, zero=False)
    assert fmt.contains(np.float32([0, 2.0**-149, np.nan])).tolist() == [False, False, True]
    with pytest.raises(emu.FormatError, match=r"every value must belong to .*, got .*0\.0.* at index"):
        fmt.encode(np.zeros(1, np.float32))


@pytest.mark.parametrize("name", ["fp8_e8m0", "fp16 hidden-one", "ue4m3"])
@pytest.mark.filterwarnings("error")
def test_signalling_nans_belong_without_a_warning(name: str):
    signalling = np.array([0x7F800001, 0xFF800001, 0x3F800000], np.uint32).view(np.float32)
    assert emu.parse(name).contains(signalling).all()


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
@pytest.mark.parametrize("name", ["fp8_e4m3", "fix8f4"])
def test_one_offender_is_found_wherever_it_stands(name: str, size: int):
    fmt = emu.parse(name)
    x = np.resize(np.float32([0.0, 1.5, -2.0, 0.25]), size)
    assert fmt.contains(x).all()
    for place in {0, size // 2, size - 1} if size else ():
        for wrong in (0.001, 1.03, 1e6):
            y = x.copy()
            y[place] = wrong
            inside = fmt.contains(y)
            assert not inside[place]
            assert inside.sum() == size - 1


def test_layout_and_dtype_never_matter():
    fmt = emu.parse("fp16")
    x = np.linspace(-3, 3, 1001).astype(np.float32)[:1000].reshape(20, 50)
    x[::3] = np.float16(x[::3])
    expected = by_definition(x, fmt)
    assert 0 < expected.sum() < x.size
    assert (fmt.contains(x[::-2, 1::3]) == expected[::-2, 1::3]).all()
    assert (fmt.contains(np.asfortranarray(x)) == expected).all()
    assert (fmt.contains(x.astype(">f4")) == expected).all()
    assert (fmt.contains(x.astype(">f8")) == expected).all()
    assert (fmt.contains(np.broadcast_to(x[0], (3, 50))) == expected[0]).all()
    assert fmt.contains(np.array(1.5)).shape == ()
    assert fmt.contains([2049, 2048]).tolist() == [False, True]
    assert fmt.contains(np.array([2**53 + 1, 2**15])).tolist() == [False, True]
