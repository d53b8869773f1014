"""`out`: results land there, also where it overlaps with an operand; anything else is refused and stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu import engine
from emu.testing import assert_bits_equal

#: Views that overlap with the first COUNT numbers, or with those from the third on: more than kernels take at once.
VIEWS = ("m[:n]", "m[1 : n + 1]", "m[2 : n + 2]", "m[n - 1 :: -1]", "m[n:0:-1]", "m[: 2 * n : 2]", "m[1 : 2 * n : 2]")
COUNT = 20_000


def numbers(count: int = 9) -> Any:
    return np.arange(count, dtype=np.float32) % 251


@pytest.mark.parametrize("view", VIEWS)
def test_a_result_written_over_its_operands_is_that_of_other_memory(view: str, backend: str):
    n, fresh = COUNT, numbers(2 * COUNT)
    for out_format in ("fp32", "fp16", "fix16f2"):
        m = fresh.copy()
        out = eval(view)
        assert emu.add(m[:n], m[2 : n + 2], out=out, out_format=out_format, backend=backend) is out
        assert_bits_equal(out, fresh[:n] + fresh[2 : n + 2], out_format)
        m = fresh.copy()
        out = eval(view)
        assert emu.quantize(m[:n], out_format, out=out, backend=backend) is out
        assert_bits_equal(out, fresh[:n], out_format)


def test_a_broadcast_operand_may_lie_in_the_result(backend: str):
    m = np.ones((3, 3), np.float32)
    m[0] = [1, 2, 3]
    emu.add(m, m[0], out=m, out_format="fp32", backend=backend)
    assert m.tolist() == [[2, 4, 6], [2, 3, 4], [2, 3, 4]]
    m = numbers()
    emu.multiply(m, m[2], out=m, out_format="fp32", backend=backend)
    assert m.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    m = numbers()
    emu.fma(m[:4], m[1:5], m[2:6], out=m[2:6], out_format="fp32", backend=backend)
    assert m.tolist() == [0, 1, 2, 5, 10, 17, 6, 7, 8]


def test_raws_and_codes_may_be_written_over_the_numbers(backend: str):
    for dtype, right in (("i1", [0, 4, 8, 12]), ("u1", [0, 4, 8, 12]), ("i4", [0, 4, 8, 12]), ("i2", [0, 4, 8, 12])):
        m = numbers()
        out = m.view(dtype)[4 : 4 + 4]
        emu.quantize(m[:4], "fix8f2", out=out, backend=backend)
        assert out.tolist() == right


def test_a_product_may_be_written_over_its_operand(backend: str):
    m = np.array([[1, 2], [3, 4]], np.float32)
    emu.matmul(m, m, a_format="fp32", b_format="fp32", out_format="fp32", out=m.T, backend=backend)
    assert m.T.tolist() == [[7, 10], [15, 22]]


def test_what_cannot_receive_a_result_is_refused_with_what_would():
    x = np.ones((2, 2), np.float32)
    formats = {"a_format": "fix8f2", "b_format": "fix8f2", "out_format": "fix8f2"}
    for out, message in (
        (np.zeros((2, 2)), r"`out` must be a float32 array of shape \(2, 2\), got float64 .*; make it with np.empty"),
        (
            np.zeros((4,), np.float32),
            r"`out` must be a float32 array of shape \(2, 2\), got float32 of shape \(4,\); make",
        ),
        (
            np.ma.array(np.zeros((2, 2), np.float32), mask=True),
            "`out` must be an array without a mask, got a masked array",
        ),
    ):
        for call in (emu.add, emu.matmul):
            with pytest.raises(emu.ShapeError, match=message):
                call(x, x, out=out, **formats)
        assert not np.asarray(out).any()


@pytest.mark.parametrize("rbits", [[[1, 2], [3]], "x", None, object(), [0.5] * 4, np.zeros(4, complex), [2**70] * 4])
def test_random_bits_must_be_integers(rbits: Any, backend: str):
    with pytest.raises(emu.FormatError, match=r"`rbits` must be integers below 2\*\*24, got dtype"):
        emu.quantize(np.ones(4), "fix8f2", rounding="stochastic", random=emu.RecordedBits(rbits), backend=backend)
    empty = emu.quantize([], "fix8f2", rounding="stochastic", rbits=[], backend=backend)
    assert empty.shape == (0,)


def test_random_bits_out_of_range_are_named():
    for bits, got in (
        ([0, 5, 1 << 30, 7], "got 1073741824; shift or mask them to 24 bits"),
        ([0, -3, 1, 2], "got -3; "),
    ):
        with pytest.raises(emu.FormatError, match=got):
            emu.quantize(np.ones(4), "fix8f2", rounding="stochastic", rbits=bits)


@pytest.mark.parametrize("shape", [(7,), (1, 2, 2)])
def test_a_call_that_is_refused_for_its_out_has_counted_nothing(shape: tuple[int, ...]):
    x, out = np.full((2, 2), 1.3, np.float32), np.zeros(shape, np.float32)
    register, flags = emu.StatisticsRegister(), emu.Flags()
    counted: Any = {"register": register, "flags": flags, "out": out, "out_format": "fix8f4"}
    scaled, mac = emu.quantize(x, "fp8_tensor"), emu.Mac.preset("h100", inputs="fp8_tensor")
    images = emu.quantize(x[None, None], "fp8_tensor")
    calls: list[Any] = [
        lambda: emu.matmul(x, x, a_format="fp32", b_format="fp32", **counted),
        lambda: emu.matmul(scaled, scaled, mac=mac, **counted),
        lambda: emu.conv2d(x[None, None], x[None, None], x_format="fp32", w_format="fp32", **counted),
        lambda: emu.conv2d(images, images, mac=mac, **counted),
        lambda: engine.total(x, x_format="fp32", **counted),
        lambda: engine.average(x, x_format="fp32", axis=-1, **counted),
        lambda: emu.add(x, x, **counted),
        lambda: emu.quantize(x, "fix8f4", register=register, flags=flags, out=out),
    ]
    for call in calls:
        with pytest.raises(emu.ShapeError, match="`out` must be a float32 array of shape"):
            call()
    assert not register.total
    assert not any(flags.counts())


def test_a_call_that_is_refused_for_its_scales_has_counted_nothing():
    register = emu.StatisticsRegister()
    for scale in (-1.0, [1.0, 2.0, 3.0]):
        with pytest.raises((emu.FormatError, emu.ShapeError), match="`scale`"):
            emu.quantize(np.ones((2, 3)), "int8_tensor", scale=scale, register=register)
    a, b = (emu.quantize(x, "int8_tensor") for x in (np.full((2, 2), np.nan, np.float32), np.ones((2, 2), np.float32)))
    unit = emu.Unit("int8_tensor", requantise="exact", scale=1.0, register=register)
    with pytest.raises(emu.FormatError, match="must have finite scales"):
        unit.matmul(a, b)
    assert not register.total
