"""Raws and codes straight out of the output stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import ShapeError

RNG = np.random.default_rng(5)
X = (RNG.standard_normal(1300) * 20).astype(np.float32)
X[[3, 700, 1299]] = [np.nan, np.inf, -0.0]
BACKENDS = ("reference", "numba")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("fmt", "dtype"), [("fix8f4", np.int8), ("fix6f2", np.int8), ("fix16f8", np.int16), ("fix16f8", np.int32)]
)
def test_a_signed_integer_array_receives_raws(backend: str, fmt: str, dtype: Any) -> None:
    out = np.full(X.shape, 77, dtype)
    flags, same = emu.Flags(), emu.Flags()
    returned = emu.quantize(X, fmt, out=out, flags=flags, backend=backend)
    values = emu.quantize(X, fmt, flags=same, backend="reference")
    assert returned is out
    assert np.array_equal(out, np.ldexp(values, emu.parse(fmt).frac_bits))
    assert flags == same


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fmt", ["fix8f4", "fix16f8", "fix6f2", "ufix8f3", "fp16", "fp8_e4m3", "fix40f20"])
def test_an_unsigned_array_of_the_codes_dtype_receives_codes(backend: str, fmt: str) -> None:
    codes = emu.parse(fmt).encode(emu.quantize(X, fmt, backend="reference"))
    out = np.zeros(X.shape, codes.dtype)
    assert emu.quantize(X, fmt, out=out, backend=backend) is out
    assert np.array_equal(out, codes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unsigned_formats_write_their_raws_to_a_wider_signed_array(backend: str) -> None:
    out = np.zeros(X.shape, np.int16)
    emu.quantize(X, "ufix8f3", out=out, backend=backend)
    assert np.array_equal(out, np.ldexp(emu.quantize(X, "ufix8f3", backend="reference"), 3))


@pytest.mark.parametrize(
    ("fmt", "dtype"), [("fix16f8", np.int8), ("ufix8f3", np.int8), ("fp16", np.int16), ("fp16", np.uint8)]
)
def test_an_integer_array_that_cannot_hold_them_is_refused(fmt: str, dtype: Any) -> None:
    with pytest.raises(ShapeError, match="`out` must be a float32 array"):
        emu.quantize(X, fmt, out=np.zeros(X.shape, dtype))
