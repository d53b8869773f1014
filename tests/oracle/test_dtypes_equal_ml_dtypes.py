"""The formats that dtypes of ml_dtypes name decode every code as ml_dtypes does."""

from __future__ import annotations

import numpy as np
import pytest

from emu import parse

ml_dtypes = pytest.importorskip("ml_dtypes")
FLOATS = [
    name
    for name in sorted(dir(ml_dtypes))
    if name.startswith(("float", "bfloat")) and isinstance(getattr(ml_dtypes, name), type)
]
INTEGERS = [name for name in sorted(dir(ml_dtypes)) if name.startswith(("int", "uint"))]


def test_ml_dtypes_has_the_floats_that_are_compared():
    assert {"bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn"} <= set(FLOATS)


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_of_a_float_dtype_is_the_same_number(name: str):
    scalar = getattr(ml_dtypes, name)
    fmt = parse(scalar)
    assert fmt == parse(np.dtype(scalar)) == parse(name) == parse(f"torch.{name}")
    codes = np.arange(fmt.n_codes).astype(fmt.code_dtype)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        theirs = codes.view(scalar).astype(np.float64)
    np.testing.assert_array_equal(fmt.decode(codes), theirs)
    finite = ~np.isnan(theirs)
    assert (np.signbit(fmt.decode(codes)) == np.signbit(theirs))[finite].all()


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_dtype_has_the_range_that_ml_dtypes_says(name: str):
    scalar = getattr(ml_dtypes, name)
    fmt, said = parse(scalar), ml_dtypes.iinfo(scalar)
    assert (fmt.min, fmt.max, fmt.frac_bits) == (said.min, said.max, 0)
