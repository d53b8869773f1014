"""float32 to binary16 on every input, and to other narrow floats on many, against NumPy and ml_dtypes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.testing import assert_bits_equal

#: Inputs at a time: what lies in the cache, and what shows a binade of the reference.
CHUNK, REFERENCE_CHUNK = 1 << 18, 1 << 22
#: The sign: NumPy is slow where it raises flags, and rounding to nearest even is the same on both sides of zero.
SIGN = np.uint32(1 << 31)
#: Odd, so that a stride walks through every pattern of low bits; about a million inputs.
STRIDE = 4099


def sample() -> np.ndarray:
    return np.arange(0, 2**32, STRIDE, dtype=np.uint64).astype(np.uint32).view(np.float32)


def numpy_fp16(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(np.float16).astype(np.float32)


def first_difference(start: int, count: int, backend: str) -> int | None:
    """Return the first code of a chunk whose conversion differs from NumPy's, for the numbers or their opposites."""
    codes = np.arange(count, dtype=np.uint32) + np.uint32(start)
    want = numpy_fp16(codes.view(np.float32)).view(np.uint32)
    for sign in (np.uint32(0), SIGN):
        got = emu.quantize((codes ^ sign).view(np.float32), "fp16", backend=backend).view(np.uint32)
        if (got == want ^ sign).all():
            continue
        differs = (got != want ^ sign) & ~(np.isnan(want.view(np.float32)) & np.isnan(got.view(np.float32)))
        if differs.any():
            return int((codes ^ sign)[np.argmax(differs)])
    return None


def test_float32_to_fp16_equals_numpy_on_a_stride_of_inputs(backend):
    x = sample()
    assert_bits_equal(emu.quantize(x, "fp16", backend=backend), numpy_fp16(x), "fp16")


@pytest.mark.slow
def test_float32_to_fp16_equals_numpy_on_all_inputs():
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda start: first_difference(start, CHUNK, "numba"), range(0, 2**31, CHUNK))
        differences = [code for code in found if code is not None]
    assert not differences, f"first at float32 code {differences[0]:#010x}"


@pytest.mark.slow
def test_float32_to_fp16_of_the_reference_equals_numpy_around_every_binade():
    for start in range(0, 2**31, 1 << 26):
        assert first_difference(start, REFERENCE_CHUNK, "reference") is None


#: ml_dtypes' name, our text form. Each overflows as `ieee` says: to infinity, or to NaN without one.
ML_DTYPES = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "float8_e4m3": "e4m3",
    "float8_e3m4": "e3m4",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e4m3b11fnuz": "e4m3b11fnuz",
}
#: Formats without NaN and infinity: ml_dtypes saturates them.
ML_DTYPES_FINITE = {"float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2", "float4_e2m1fn": "e2m1"}


@most_are_slow("name", ML_DTYPES, keep=["bfloat16", "float8_e4m3fn", "float8_e5m2fnuz"])
def test_float32_to_narrow_floats_equals_ml_dtypes(name, backend):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = sample()
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(getattr(ml_dtypes, name)).astype(np.float32)
    assert_bits_equal(emu.quantize(x, ML_DTYPES[name], backend=backend), want, ML_DTYPES[name])


@most_are_slow("name", ML_DTYPES_FINITE, keep=["float6_e3m2fn"])
def test_float32_to_floats_without_nan_and_infinity_equals_ml_dtypes(name, backend):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = sample()
    x = x[~np.isnan(x)]  # ml_dtypes turns NaN into -0, we into +0 (docs/concepts/overflow.md)
    fmt = emu.parse(f"{ML_DTYPES_FINITE[name]} finite nans=none")
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(getattr(ml_dtypes, name)).astype(np.float32)
    assert_bits_equal(emu.quantize(x, fmt, overflow="satfinite", backend=backend), want, fmt)


@pytest.mark.parametrize("name", [*ML_DTYPES, *ML_DTYPES_FINITE])
def test_codes_of_narrow_floats_decode_as_ml_dtypes_has_them(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    fmt = emu.parse(ML_DTYPES.get(name) or f"{ML_DTYPES_FINITE[name]} finite nans=none")
    codes = fmt.codes()
    assert_bits_equal(fmt.decode(codes), codes.view(getattr(ml_dtypes, name)).astype(np.float32), fmt)
