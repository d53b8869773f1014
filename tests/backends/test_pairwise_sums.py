"""Pairwise float32 sums: the tree of the definition, whatever the depth and wherever the terms lie."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import engine
from emu.testing import assert_bits_equal

UNIT = emu.Mac(product="fp32", accumulator="fp32", order="pairwise")
DEPTHS = [*range(20), 63, 64, 65, 511, 512, 513, 1024, 1025, 1537, 4097]


def summed(x: np.ndarray, axis: int | tuple[int, ...], backend: str, fmt: str = "fp32", **options: object) -> list:
    register, flags = emu.StatisticsRegister(), emu.Flags()
    options = {"mac": UNIT, "x_format": fmt, "out_format": "fp32", "axis": axis, **options}
    with np.errstate(all="ignore"):
        values = engine.total(x, register=register, flags=flags, backend=backend, **options)
    return [values, register.to_dict(), flags.counts()]


def assert_sums(x: np.ndarray, axis: int | tuple[int, ...], fmt: str = "fp32", **options: object) -> None:
    found, expected = (summed(x, axis, backend, fmt, **options) for backend in ("numba", "reference"))
    assert_bits_equal(found[0], expected[0], "fp32")
    assert found[1:] == expected[1:]


def drawn(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.standard_normal(shape), rng.integers(-30, 30, shape)).astype(np.float32)


@pytest.mark.parametrize("depth", DEPTHS)
def test_sums_along_and_across_rows_are_the_references(depth: int):
    x = drawn((depth, 70))
    assert_sums(x, 0)
    assert_sums(np.ascontiguousarray(x.T), 1)


def test_sums_of_axes_in_pieces_are_the_references():
    x = drawn((5, 6, 33, 7))
    for axes in ((0, 2, 3), (0,), (0, 1), (1, 3), (0, 1, 2, 3), (3,)):
        assert_sums(x, axes)
        assert_sums(x.transpose(2, 0, 3, 1)[::2], axes)


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8, 600, 1024])
def test_a_sum_of_negative_zeros_is_one_only_where_nothing_is_padded(depth: int):
    x = np.full((2, depth), -0.0, np.float32)
    assert_sums(x, 1)
    assert_sums(np.ascontiguousarray(x.T), 0)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38, 1e-45])
def test_what_is_not_finite_or_nearly_so_is_the_references(special: float):
    x = drawn((40, 9))
    x[::7, 3] = special
    x[5, 4] = -special
    for axis in (0, 1):
        assert_sums(x, axis)


@pytest.mark.parametrize("mac", [
    emu.Mac(product="fp32", accumulator="fp32", order="pairwise"), emu.Mac(accumulator="fp32", order="pairwise"),
    emu.Mac(accumulator="fp32", order="pairwise", rounding="floor"), emu.Mac(accumulator="fp16", order="pairwise"),
])  # fmt: skip
@pytest.mark.parametrize("fmt", ["fp16", "fix16f8", "e5m10 daz", "bf16"])
def test_units_at_the_edge_of_the_fast_sums_are_the_references(fmt: str, mac: emu.Mac):
    x = emu.quantize(drawn((100, 9)), fmt)
    for axis in (0, 1):
        assert_sums(x, axis, fmt, mac=mac)
        divided = [
            engine.average(x, x_format=fmt, out_format="fp16", axis=axis, mac=mac, backend=backend)
            for backend in ("numba", "reference")
        ]
        assert_bits_equal(*divided, "fp16")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_threads_do_not_change_the_sums(threads: str, monkeypatch: pytest.MonkeyPatch):
    from emu.backends.numba.compiling import thread_count

    monkeypatch.setenv("EMU_THREADS", threads)
    thread_count.cache_clear()
    try:
        assert_sums(drawn((3000, 130)), 0)
        assert_sums(drawn((130, 3000)), 1)
    finally:
        monkeypatch.undo()
        thread_count.cache_clear()
