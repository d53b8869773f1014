"""What `emu.explain` says of products on a GPU, asked with its own arrays or with the host's."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
from device_arrays import DeviceArray, StrictDevice
from host_devices import as_backend

import emu


@pytest.fixture(autouse=True)
def strict_device() -> Generator[None, None, None]:
    with as_backend(StrictDevice()):
        yield


@pytest.mark.parametrize(("fmt", "mac", "depth", "way"), [
    ("fix8f4", emu.Mac(), 9, "by cuBLAS in int8, sums in int32"),
    ("fix8f4", emu.Mac(), 131072, "by cuBLAS in float64"),
    ("fix11f4", emu.Mac(), 2, "by cuBLAS in float32"),
    ("fix16f8", emu.Mac(), 9, "by cuBLAS in float64"),
    ("fix32f8", emu.Mac(), 9, "in tiles of int32, sums of 128 bits"),
    ("ufix32f8", emu.Mac(), 9, "in tiles of int64, sums of 192 bits"),
    ("fix32f8", emu.Mac(product="fix32f8"), 9, "one thread per result, in integers"),
    ("fp16", emu.Mac(accumulator="fp32"), 9, "in tiles of fused multiply-adds"),
    ("e4m3fnuz daz", emu.Mac(accumulator="fp32"), 9, "one thread per result, in integers"),
    ("fp16", emu.Mac(accumulator="fp16"), 9, "one thread per result, in integers"),
    ("fp16", emu.Mac(accumulator="fp32", order="pairwise"), 9, "one thread per result, in integers"),
])  # fmt: skip
def test_explain_names_the_way_a_product_takes(fmt: str, mac: emu.Mac, depth: int, way: str):
    large = 2.0**20 if fmt.endswith("32f8") else 1.0  # else a float's 24 bits would do
    a, b = (np.full(shape, large, np.float32) for shape in ((2, depth), (depth, 3)))
    formats = {"a_format": fmt, "b_format": fmt, "mac": mac, "backend": "cuda"}
    assert emu.explain(emu.matmul, DeviceArray(a), DeviceArray(b), **formats).proof.endswith(f"; {way}")
    assert emu.explain(emu.matmul, a, b, **formats).proof.endswith(f"; {way}")


def test_a_convolution_is_explained_with_the_devices_arrays():
    x, w = np.ones((2, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)
    plans = [
        emu.explain(emu.conv2d, *operands, x_format="fix8f4", w_format="fix8f4", out_format="fix8f4", backend="cuda")
        for operands in ((x, w), (DeviceArray(x), DeviceArray(w)))
    ]
    assert plans[0] == plans[1]
    assert plans[0].proof.endswith("by cuBLAS in int8, sums in int32")


def test_arrays_of_the_device_are_compared():
    x = np.arange(6, dtype=np.float32)
    assert emu.compare(DeviceArray(x), DeviceArray(x[::-1].copy())).tolist() == [-1, -1, -1, 1, 1, 1]
