"""Operands in a device's memory: checked as the host's are, and left where they are."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
from device_arrays import WORK, DeviceArray, StrictDevice
from host_devices import as_backend

import emu
from emu.errors import FormatError
from emu.formats import parse


@pytest.fixture(autouse=True)
def strict_device() -> Generator[None, None, None]:
    with as_backend(StrictDevice()):
        WORK.clear()
        yield


@pytest.mark.parametrize("backend", ["reference", "numba", "auto"])
def test_arrays_of_a_device_are_refused_by_backends_of_the_host(backend: str):
    x, host = DeviceArray(np.ones((2, 2), np.float32)), np.ones((2, 2), np.float32)
    sparse = emu.sparse.CSR.from_dense(host, "fp32")
    formats = {"a_format": "fp32", "b_format": "fp32", "out_format": "fp32", "backend": backend}
    calls = {
        "quantize": lambda: emu.quantize(x, "fp16", backend=backend),
        "add": lambda: emu.add(host, x, **formats),
        "exp": lambda: emu.exp(x, x_format="fp16", out_format="fp16", backend=backend),
        "matmul": lambda: emu.matmul(host, x, **formats),
        "sparse": lambda: emu.sparse.matmul(sparse, emu.value(x, "fp32"), out_format="fp32", backend=backend),
    }
    for name, call in calls.items():
        with pytest.raises(
            emu.BackendUnavailable, match=r"must lie in the host's memory, got .*; write backend='cuda'"
        ):
            pytest.fail(f"{name}: {call()}")


def test_a_number_that_is_no_value_of_its_format_is_refused_as_on_the_host():
    x = np.array([0.5, 0.3, 0.25], np.float32)
    with pytest.raises(FormatError) as host:
        emu.add(x, 0.0, a_format="fix8f4", out_format="fp32", backend="reference")
    with pytest.raises(FormatError) as device:
        emu.add(DeviceArray(x), 0.0, a_format="fix8f4", out_format="fp32", backend="cuda")
    assert str(device.value) == str(host.value)
    assert "`a`: every value must belong to fix8f4, got np.float32(0.3) at index (1,)" in str(device.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_checked_never_come_to_the_host(dtype: type):
    x = np.array([0.5, 0.3, 2.0**-149], dtype)
    y = emu.quantize(DeviceArray(x), "fp32", x_format="fix8f4", check=False, backend="cuda")
    assert WORK.sizes == []
    assert y.get().tolist() == [0.5, float(np.float32(0.3)), 2.0**-149]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64])
def test_an_array_that_is_its_own_carrier_is_not_copied(dtype: type):
    x = np.array([3, 4], dtype)
    y = emu.quantize(DeviceArray(x), "fp32", backend="cuda")
    assert WORK.operations["astype"] == 0
    assert y.get().tolist() == [3, 4]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, bool])
def test_every_narrower_integer_is_observed_as_one_of_64_bits(dtype: type):
    x = np.array([1, 0, 1, 1], dtype)
    on_device, on_host = emu.StatisticsRegister(), emu.StatisticsRegister()
    emu.quantize(DeviceArray(x), "fp32", register=on_device, backend="cuda")
    emu.quantize(x, "fp32", register=on_host, backend="reference")
    assert on_device == on_host
    assert (on_device.lowest, on_device.bins) == (0, 63)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fmt", ["fix60f4", "ufix60f4"])
@pytest.mark.parametrize("check", [False, True])
def test_floats_of_a_format_that_carries_raws_become_raws(dtype: type, fmt: str, check: bool):
    x = np.array([0.5, 0.0, 3.0625], dtype)
    v = emu.value(DeviceArray(x), fmt, check=check)
    assert isinstance(v.array, DeviceArray)
    found = v.array.get()
    assert (found.dtype, found.tolist()) == (parse(fmt).carrier, [8, 0, 49])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers_of_a_format_that_carries_raws_are_raws_and_unchecked_never_come_to_the_host(dtype: type):
    v = emu.value(DeviceArray(np.array([-8, 0, 49], dtype)), "fix60f4", check=False)
    assert WORK.sizes == []
    assert (v.array.dtype, v.array.get().tolist()) == (np.int64, [-8, 0, 49])
