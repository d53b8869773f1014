"""Sums of products that the fast output stage writes on a device: the reference's bits, flags and registers.

rows 2**k, 1 times columns high, low: the sum 2**k high + low may have any bits, so it lies beside every tie
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from host_devices import as_backend, device_of
from numpy.typing import NDArray

import emu
from emu.backends.modes import HAND_WRITTEN
from emu.datapath import Rounding
from emu.testing import assert_bits_equal

Array = NDArray[Any]
#: Format of the operands, k, and how their exact sums are computed.
SUMS = {"int32": ("fix8f3", 6), "float32": ("fix12f5", 10), "float64": ("fix24f9", 22)}
MODES = [mode.value for mode in Rounding if mode.number < HAND_WRITTEN]
RESULTS = ["fix8f4", "fix16f8", "fix24f-3", "ufix9f2", "fp16", "bf16 ftz", "fp8_e4m3", "fp32", "e4m3fnuz"]


def operands(fmt: str, shift: int) -> tuple[Array, Array]:
    """Return 3 rows and 80 columns: cuBLAS wants multiples of 16 of int8, and what it pads passes another kernel."""
    rng, word = np.random.default_rng(1), emu.parse(fmt)
    bits = word.width_bits - 2
    sizes = 2 ** rng.integers(0, bits, 72)
    high = np.concatenate([rng.integers(-sizes, sizes + 1), [0, 0, 1, -1, 2**bits - 1, 0, 3, 12]])
    near = [0, 1, -1, 1, 0, -1, 0, 2]
    low = np.concatenate([rng.integers(-1, 2, 36), rng.integers(-sizes[:36], sizes[:36] + 1), near])
    rows = np.array([[2**shift, 1], [-(2**shift), -1], [1, 0]])
    codes = [
        raws.astype(word.code_dtype) & word.code_dtype.type(word.n_codes - 1) for raws in (rows, np.stack([high, low]))
    ]
    return word.decode(codes[0]), word.decode(codes[1])


def written(backend: str, a: Array, b: Array, **options: Any) -> tuple[Array, Any, Any]:
    register, flags = emu.StatisticsRegister(-20, 40), emu.Flags()
    y = emu.matmul(a, b, register=register, flags=flags, backend=backend, **options)
    return y, register.to_dict(), flags.counts()


def assert_same(cuda: str, a: Array, b: Array, out: str, **options: Any) -> None:
    (ours, *counts), (expected, *of_reference) = (
        written(backend, a, b, out_format=out, **options) for backend in (cuda, "reference")
    )
    assert_bits_equal(ours, expected, emu.parse(out))
    assert counts == of_reference


@pytest.mark.parametrize("sums", SUMS)
@most_are_slow("out", RESULTS, keep=["fix8f4", "fp16", "fp32"])
def test_exact_sums_beside_every_tie_are_written_in_every_mode(cuda: str, sums: str, out: str):
    fmt, shift = SUMS[sums]
    a, b = operands(fmt, shift)
    for rounding in MODES:
        options: dict[str, Any] = {"n_rbits": 9, "seed": 3} if rounding == "stochastic" else {}
        assert_same(cuda, a, b, out, a_format=fmt, b_format=fmt, rounding=rounding, **options)


@pytest.mark.parametrize("out", ["fp32", "fix8f-14", "fp16"])
def test_integer_sums_wider_than_a_significand_of_float32_are_rounded_once(cuda: str, out: str):
    rng = np.random.default_rng(2)
    a = np.full((3, 1100), 127.0)
    a[1] = rng.integers(120, 128, 1100)
    b = rng.integers(100, 128, (1100, 32)) * rng.choice([-1.0, 1.0], 32)  # sums of 2**24 and more, of one sign
    for rounding in MODES:
        assert_same(cuda, a, b, out, a_format="fix8f0", b_format="fix8f0", rounding=rounding)


@pytest.mark.parametrize("columns", [4, 7])
def test_accumulators_in_order_keep_zeros_nan_and_marks_of_overflow(cuda: str, columns: int):
    """Seven columns of three rows: the last results of a thread are not four."""
    huge = 2.0**127
    a = np.array([[huge, huge, 1.0], [-0.0, 0.0, -0.0], [np.nan, 1.0, 1.0], [np.inf, 1.0, -np.inf], [2.0**-126, 0, 0]])
    b = np.resize(np.array([1.0, -1.0, 2.0**-60, 1.5, 0.0, np.inf, -(2.0**-24)]), (3, columns))
    for out in ("fp32", "fp16", "bf16", "fix8f4", "fp8_e4m3"):
        for addend in (None, np.full((1, 1), -0.0)):
            given = {} if addend is None else {"addend": addend, "addend_format": "fp32"}
            mac = emu.Mac(accumulator="fp32")
            assert_same(cuda, a, b, out, a_format="bf16", b_format="bf16", mac=mac, **given)


def test_sums_that_lie_as_results_do_pass_the_fast_kernel_and_others_do_not(monkeypatch: pytest.MonkeyPatch):
    launched: list[str] = []
    device = device_of("")
    launch = device.launch

    def listed(source: str, kernel: str, *rest: Any) -> None:
        launched.append(kernel)
        launch(source, kernel, *rest)

    monkeypatch.setattr(device, "launch", listed)

    def last(columns: int, out: str = "fix8f4", fmt: str = "fix8f3", **options: Any) -> str:
        a, b = np.ones((2, 3)), np.ones((3, columns))
        emu.matmul(a, b, a_format=fmt, b_format=fmt, out_format=out, backend="cuda", **options)
        return launched[-1]

    with as_backend(device):
        in_order = last(5, fmt="fp16", mac=emu.Mac(accumulator="fp32"))
        assert {last(16), last(16, "fp32"), last(5, fmt="fix24f9"), in_order} == {"narrow_sums"}
        added = last(16, addend=np.ones((1, 1)), addend_format="fix8f3")
        other_modes = last(16, rounding="jamming"), last(16, "e8m0 finite nans=top")
        assert {last(5), last(16, "fix53f9"), added, *other_modes} == {"settle"}
