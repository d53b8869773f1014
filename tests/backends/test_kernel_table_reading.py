"""How kernels read their operands and keep their room: one number for all, rows where they lie, windows as they lie."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values
from variants import VARIANTS, assert_same_everywhere, running

import emu
from emu import engine
from emu.backends import memory
from emu.backends.gathered import Gathered
from emu.backends.numba import single_column
from emu.backends.numba.vector.stage import CHUNK
from emu.engine.sliding import windows_of
from emu.testing import assert_bits_equal


@pytest.mark.parametrize("name", ["native", "generic"])
def test_a_result_gives_its_room_back_with_its_last_reference(name: str, monkeypatch: pytest.MonkeyPatch):
    """Rooms come from a list, or the collector would have to find rings of objects that hold them."""
    monkeypatch.setenv("EMU_CPU", name)
    x, a = np.ones(1 << 16, np.float32), np.ones((256, 256), np.float32)
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "out_format": "fix24f0"}
    calls: list[Any] = [
        lambda: emu.quantize(x, "fix16f8", register=emu.StatisticsRegister(), backend="numba"),
        lambda: emu.multiply(x, x, out_format="fp16", backend="numba"),
        lambda: emu.matmul(a, a, **formats, backend="numba"),
        lambda: emu.matmul(a, a, mac=emu.Mac(accumulator="fix20f0"), **formats, backend="numba"),
        lambda: engine.relu(x, backend="numba"),
    ]
    gc.disable()
    try:
        for call in calls:
            kept = call()
            address = kept.ctypes.data
            del kept
            rooms = [room.ctypes.data for free in memory._free.values() for room in free]
            assert any(room <= address < room + memory.ALIGNMENT for room in rooms)
    finally:
        gc.enable()


NUMBERS = (0.0, -0.0, 3.0, -0.40625, 2.0**-149, np.inf, np.nan)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_one_number_that_stands_for_all_gives_what_its_copies_give(name: str):
    """On either side, for every kind of chunk: whole, the last one, one that plain loops must do."""
    x = np.concatenate([random_values("fp16", (CHUNK + 7,), 1), random_values("fp16", (CHUNK,), 2, anything=False)])
    operation = getattr(emu, name)
    for number in NUMBERS:
        for n in (1, 2, 17, x.size):
            for one, other in ((np.float32(number), x[:n]), (x[:n], np.float64(number))):

                def call(one: Any = one, other: Any = other, **where: Any) -> Any:
                    return operation(one, other, out_format="fp16", rounding="floor", **where)

                assert_same_everywhere(call, "fp16", (number, n))


def test_one_number_among_three_operands_gives_what_its_copies_give():
    x, y = (random_values("fix32f20", (3 * CHUNK + 5,), seed) for seed in (1, 2))
    formats = {"a_format": "fp32", "b_format": "fix32f20", "c_format": "fix32f20", "out_format": "fix32f20"}
    for number in (np.float32(0.9), np.float32(-3)):
        assert_same_everywhere(lambda **where: emu.fma(number, x, y, **formats, **where), "fix32f20")
        copies = emu.fma(np.full(x.shape, number), x, y, **formats, backend="numba")
        assert_bits_equal(emu.fma(number, x, y, **formats, backend="numba"), copies)


@pytest.mark.parametrize("shape", [(3, 5, 16), (2, 4, 7, 9), (1, 30), (17, 40), (40, 2), (3, 1), (1, 1)])
def test_sums_of_rows_and_columns_are_exact(shape: tuple[int, ...]):
    """Of 16-bit extremes, along axes and across them, where runs are long enough and where they are not."""
    x = np.where(np.random.default_rng(1).integers(0, 2, shape) == 0, -(2.0**15), 2.0**15 - 1).astype(np.float32)
    taken = 0
    for axis in [(len(shape) - 1,), tuple(range(1, len(shape))), (0, len(shape) - 1), (0,)]:
        rows = Gathered.of_axes(x, tuple(a for a in range(x.ndim) if a not in axis), tuple(sorted(set(axis))))
        ones = Gathered.of(np.ones((1, rows.columns.size, 1), np.float32))
        taken += single_column.applies(rows, ones)
        options = {"x_format": "fix16f0", "out_format": "fix40f0", "axis": axis}
        total = assert_same_everywhere(lambda **where: engine.total(x, **options, **where), "fix40f0", axis)
        assert np.array_equal(total, x.astype(np.int64).sum(axis=tuple(set(axis))))
    assert taken or max(shape) == 1


def test_a_column_of_any_numbers_and_an_addend_are_exact():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-(2**15), 2**15, s).astype(np.float32) for s in ((9, 70), (70, 1)))
    formats = {"a_format": "fix16f0", "b_format": "fix16f0", "out_format": "fix48f0", "addend_format": "fix16f0"}
    for addend in (np.full((9, 1), -(2.0**15), np.float32), np.arange(9.0)[:, None], np.ones((1,), np.float32)):
        for left in (a, np.asfortranarray(a)):

            def call(left: np.ndarray = left, addend: np.ndarray = addend, **where: Any) -> Any:
                return emu.matmul(left, b, addend=addend, **formats, **where)

            y = assert_same_everywhere(call, "fix48f0")
            assert np.array_equal(y, a.astype(np.int64) @ b.astype(np.int64) + addend.astype(np.int64))


@pytest.mark.parametrize(("window", "stride"), [(2, 2), (3, 2), (1, 2), (2, 1), (3, 3), (5, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows_are_pooled_alike_however_far_apart(window: int, stride: int, dtype: type):
    """Zeros of both signs, infinities and NaN among few values, so that ties are the rule; rows of 1 to 40 windows."""
    rng = np.random.default_rng(3)
    for height, width in ((5, 6), (7, 35), (6, 82)):
        values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
        x = rng.choice(values, (2, 3, height, width), p=[0.3, 0.3, 0.1, 0.1, 0.05, 0.1, 0.05])
        windows = windows_of(x, window, stride)
        best, first = engine.max_pool(windows, backend="reference")
        for name in VARIANTS:
            with running(name):
                its_best, its_first = engine.max_pool(windows, backend="numba")
            assert_bits_equal(its_best, best)
            assert np.array_equal(its_first, first), name


@pytest.mark.parametrize(("window", "stride"), [(2, 2), (1, 1), (2, 3), (3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_values_return_to_the_places_of_their_windows(window: int, stride: int, dtype: type):
    rng = np.random.default_rng(4)
    for height, width in ((4, 4), (7, 35), (6, 82)):
        x = rng.integers(-9, 10, (2, 3, height, width)).astype(dtype)
        windows = windows_of(x, window, stride)
        best, first = engine.max_pool(windows, backend="reference")
        spread = engine.unpool(best, first, windows, backend="reference")
        assert spread.sum() == best.sum()
        kept = spread != 0
        assert np.array_equal(spread[kept], x.reshape(-1)[kept])
        for name in VARIANTS:
            with running(name):
                assert_bits_equal(engine.unpool(best, first, windows, backend="numba"), spread)
