"""The functions beside `emu.add`: formats taken from dtypes, `out`, options; comparing; pooling; integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import emu
from emu import engine
from emu.testing import assert_bits_equal

FUNCTIONS = ("erf", "exp", "gelu", "log", "rsqrt", "sigmoid", "tanh")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_the_engines_function_of_that_name(name: str, backend: str):
    x = np.array([0.25, 1.0, 2.5])
    for x_format in ("fp16", "fp32", "fix16f8"):
        options = {"x_format": x_format, "out_format": "bf16", "rounding": "floor", "backend": backend}
        assert_bits_equal(getattr(emu, name)(x, **options), engine.function(name, x, **options), "bf16")


def test_the_format_of_a_functions_operand_is_its_dtypes(backend: str):
    for dtype, x_format in ((np.float16, "fp32"), (np.float32, "fp32"), (np.float64, "fp64"), (np.int8, "fp64")):
        x = np.arange(1, 5).astype(dtype)
        y = emu.exp(x, out_format="fp32", backend=backend)
        assert_bits_equal(y, emu.exp(x, x_format=x_format, out_format="fp32", backend=backend), "fp32")
    assert emu.exp(0, out_format="fp16", backend=backend) == 1.0
    with pytest.raises(emu.FormatError, match="`x`"):
        emu.exp(np.array([2**53 + 1]), out_format="fp32", backend=backend)


@pytest.mark.parametrize("x_format", ["fp16", "fp64"])
def test_functions_write_into_out(x_format: str, backend: str):
    x = np.array([0.5, 1.0])
    out = np.zeros(2, np.float32)
    y = emu.tanh(x, x_format=x_format, out_format="fp16", out=out, backend=backend)
    assert y is out
    assert_bits_equal(out, emu.tanh(x, x_format=x_format, out_format="fp16", backend=backend), "fp16")
    with pytest.raises(emu.ShapeError, match="`out`"):
        emu.tanh(x, x_format=x_format, out_format="fp16", out=np.zeros(3, np.float32), backend=backend)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("x", [1.0, 0.0, 1000.0, -1000.0, np.inf, np.nan])
def test_a_function_of_one_number_is_that_of_an_array_of_it(name: str, x: float, backend: str):
    """Also where float64 cannot say the result: exp(1000), gelu(-1000), the logarithm of a negative number."""
    for out_format in ("fp16", "fp64", "fix16f8"):
        options = {"x_format": "fp32", "out_format": out_format, "backend": backend}
        flags, alone = emu.Flags(), emu.Flags()
        y = getattr(emu, name)(np.float32([x]), flags=flags, **options)
        value = getattr(emu, name)(x, flags=alone, **options)
        assert np.shape(value) == ()
        assert_bits_equal(np.reshape(value, 1), y, out_format)
        assert alone == flags


def test_a_misspelt_option_names_the_operation_and_the_nearest_option():
    with pytest.raises(TypeError, match=r"^add\(\) has no option 'roundin'; did you mean 'rounding'\?$"):
        emu.add(1.0, 2.0, out_format="fp16", roundin="floor")
    with pytest.raises(TypeError, match=r"^exp\(\) has no option 'flag'; did you mean 'flags'\?$"):
        emu.exp(1.0, out_format="fp16", flag=None)


def test_compare_orders_exactly_and_tells_unordered_apart(backend: str):
    values = [-math.inf, -3.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.0 + 2.0**-52, 1.7e308, math.inf, math.nan]
    a, b = np.array(values)[:, None], np.array(values)[None, :]
    expected = [[2 if x != x or y != y else (x > y) - (x < y) for y in values] for x in values]
    order = emu.compare(a, b, backend=backend)
    assert order.dtype == np.int8
    assert order.tolist() == expected
    assert emu.compare(2**53 + 1, 2.0**53, backend=backend) == 1
    assert emu.compare(3, 1.5, a_format="fix8f1", b_format="fp8_e4m3", backend=backend) == 1


def test_max_pool_takes_integers_that_float64_alone_holds(backend: str):
    values, index = engine.max_pool([[1, 2**1023]], backend=backend)
    assert (values.tolist(), values.dtype, index.tolist()) == ([2.0**1023], np.float64, [1])
    with pytest.raises(emu.FormatError, match=f"got {2**70 + 1}; round it"):
        engine.max_pool([[1, 2**70 + 1, 2**1023]], backend=backend)


@pytest.mark.parametrize(("n", "dtype"), [(1, "uint8"), (256, "uint8"), (257, "uint16"), (289, "uint16")])
def test_max_pool_indexes_windows_of_every_size(n: int, dtype: str, backend: str):
    best, index = engine.max_pool(np.arange(float(n))[None], backend=backend)
    assert (best.tolist(), index.tolist(), index.dtype) == ([n - 1.0], [n - 1], np.dtype(dtype))


def test_max_pool_indexes_a_window_beyond_16_bits(backend: str):
    windows = np.zeros((1, 65537), np.float32)
    windows[0, -1] = 1
    _, index = engine.max_pool(windows, backend=backend)
    assert (index.tolist(), index.dtype) == ([65536], np.uint32)


def test_a_window_without_values_has_no_maximum(backend: str):
    with pytest.raises(emu.ShapeError, match="`windows` must hold at least one value"):
        engine.max_pool(np.zeros((3, 0)), backend=backend)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_dtype_of_integers_changes_nothing(dtype: str, backend: str):
    x = np.array([0, 1, 5, 100, 127])
    for call in (
        lambda x, **o: emu.quantize(x, "fix8f2", **o),
        lambda x, **o: emu.add(x, x, out_format="fp8_e4m3", **o),
        lambda x, **o: emu.multiply(x, x, out_format="bf16", rounding="floor", **o),
    ):
        results = []
        for array in (x.astype(dtype), x):
            register, flags = emu.StatisticsRegister(), emu.Flags()
            y = call(array, backend=backend, register=register, flags=flags)
            results.append((y.tolist(), y.dtype, register, flags))
        assert results[0] == results[1]


def test_uint64_and_bool_are_integers(backend: str):
    assert emu.quantize(np.array([2**64 - 1], np.uint64), "ufix64f0", backend=backend).tolist() == [2**64 - 1]
    register, other = emu.StatisticsRegister(), emu.StatisticsRegister()
    y = emu.quantize(np.array([True, False]), "fix8f4", backend=backend, register=register)
    emu.quantize(np.array([1, 0]), "fix8f4", backend=backend, register=other)
    assert y.tolist() == [1.0, 0.0]
    assert register == other


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", ">i2", ">i8"])
def test_big_endian_arrays_are_accepted(dtype: str, backend: str):
    x = np.array([1, -2, 3]).astype(dtype)
    assert emu.quantize(x, "fix8f4", backend=backend).tolist() == [1.0, -2.0, 3.0]
    assert emu.add(x, x, out_format="fp16", a_format="fp16", backend=backend).tolist() == [2.0, -4.0, 6.0]
    assert emu.relu(x, backend=backend).tolist() == [1, 0, 3]
    assert engine.max_pool(x, backend=backend)[1] == 2
