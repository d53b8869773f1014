"""Blocks of products: every backend returns the reference's bits, flags and registers, whatever the sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import assert_same
from fast_suite import most_are_slow
from kernel_inputs import random_values

import emu
from emu import Mac
from emu.backends.numba import compiling
from emu.datapath import MATRIX_UNITS, Blocks, Rounding
from tests.products import product

H100 = Mac.preset("h100", inputs="fp16", output="fp32")
CONVERTED = Mac.preset("h100", inputs="fp8_e5m2", output="fp16", instruction="mma")
FLOAT_UNITS = [unit for unit in MATRIX_UNITS if unit.inputs != "int8"]


def check(mac: Mac, fmt: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None, out: str, **options: object) -> None:
    formats = {"a_format": fmt, "b_format": fmt, "out_format": out}
    if c is not None:
        formats["addend_format"] = "fp32"
    assert_same(lambda **where: product(a, b, addend=c, mac=mac, **formats, **options, **where), out, (mac, a.shape))


@most_are_slow("depth", [0, 1, 2, 15, 16, 17, 33, 70], keep=[0, 17, 33])
@pytest.mark.parametrize("mac", [H100, CONVERTED], ids=["aligned", "after"])
def test_every_depth_is_padded_alike(mac: Mac, depth: int):
    for anything in (True, False):
        a = random_values("fp8_e5m2", (5, depth), 1, anything=anything)
        b = random_values("fp8_e5m2", (depth, 7), 2, anything=anything)
        for c in (None, random_values("fp32", (5, 7), 3, anything=anything)):
            check(mac, "fp8_e5m2", a, b, c, "fp16")


@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0), (1, 1), (2, 255), (1, 256), (2, 257), (3, 600)])
def test_every_number_of_rows_and_columns_is_the_same(m: int, n: int):
    check(H100, "fp16", random_values("fp16", (m, 18), 1), random_values("fp16", (18, n), 2), None, "fp32")


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 1), (1, 1, 6), (3, 5, 6), (3, 1, 6)])
def test_addends_broadcast(shape: tuple[int, ...]):
    a, b = random_values("bf16", (3, 5, 20), 1, anything=False), random_values("bf16", (3, 20, 6), 2, anything=False)
    check(H100, "bf16", a, b, random_values("fp32", shape, 3, anything=False), "fp32")


def test_arrays_may_lie_in_memory_in_any_way():
    a, b = random_values("fp16", (40, 24), 1, anything=False), random_values("fp16", (60, 40), 2, anything=False)
    check(H100, "fp16", a.T[::2, ::-1], b.T[:, ::3], None, "fp16")
    check(H100, "fp16", np.broadcast_to(a[:1], (3, 24)), b.T[:24], None, "fp16")


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("accumulator", ["fp32", "fp16", "fp8_e4m3", "e4m3fnuz"])
def test_every_mode_of_the_sums_is_the_same(accumulator: str, rounding: Rounding):
    a, b = random_values("fp8_e5m2", (4, 20), 1, anything=False), random_values("fp8_e5m2", (20, 5), 2, anything=False)
    for order in (Blocks(4, 13), Blocks(4, 9, "alternating_pairs", "after", min_exponent=-3)):
        check(Mac(accumulator=accumulator, order=order, rounding=rounding), "fp8_e5m2", a, b, None, "fp16")


@pytest.mark.parametrize("rounding", ["nearest_even", "stochastic", "floor"])
@pytest.mark.parametrize("out", ["fp16", "fix16f8", "fp8_e4m3"])
def test_output_stages_and_means_behind_blocks_are_the_same(out: str, rounding: str):
    a, b = random_values("fp16", (4, 20), 1, anything=False), random_values("fp16", (20, 5), 2, anything=False)
    for divisor in (1, 3, 8):
        check(H100, "fp16", a, b, None, out, rounding=rounding, divisor=divisor, seed=5)


@pytest.mark.parametrize("unit", FLOAT_UNITS, ids=str)
def test_every_float_preset_has_a_compiled_loop(unit):
    mac = Mac.preset(unit.gpu, inputs=unit.inputs, output=unit.output, instruction=unit.instruction)
    a, b = random_values(unit.inputs, (3, 64), 1), random_values(unit.inputs, (64, 3), 2)
    formats = {"a_format": unit.inputs, "b_format": unit.inputs, "out_format": unit.output}
    assert emu.explain(emu.matmul, a, b, mac=mac, backend="numba", **formats).fallback == ""
    check(mac, unit.inputs, a, b, random_values("fp32", (3, 3), 3), unit.output)


@pytest.mark.parametrize(
    ("order", "fmt", "accumulator", "reason"),
    [
        ("blocks(16, 25)", "fp64", "fp32", "operands of blocks are wider than float32 or flush subnormals"),
        ("blocks(16, 25)", "fp16 daz", "fp32", "operands of blocks are wider than float32 or flush subnormals"),
        ("blocks(16, 47)", "fp16", "fp32", "sums of blocks are wider than float64"),
        ("blocks(8, 25, min_exponent=-480)", "fp16", "fp32", "the alignment floor lies outside what float64 scales"),
        ("blocks(16, 25)", "fp16", "fp64", "this accumulator of blocks has no compiled loop"),
        ("blocks(16, 25)", "fp16", "fp16 ftz", "this accumulator of blocks has no compiled loop"),
        ("blocks(16, 25)", "fp16", "e8m49", "the accumulator of blocks is too wide for float64"),
    ],
)
def test_what_has_no_compiled_loop_is_left_to_the_reference(order: str, fmt: str, accumulator: str, reason: str):
    mac = Mac(accumulator=accumulator, order=order)
    a, b = random_values(fmt, (3, 20), 1, anything=False), random_values(fmt, (20, 4), 2, anything=False)
    formats = {"a_format": fmt, "b_format": fmt, "out_format": "fp32"}
    assert emu.explain(emu.matmul, a, b, mac=mac, backend="numba", **formats).fallback == reason
    check(mac, fmt, a, b, None, "fp32")


@pytest.mark.parametrize("order", [
    "blocks(8, 24, addend=after)", pytest.param("blocks(4, 23)", marks=pytest.mark.slow),
    pytest.param("blocks(16, 25)", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("options", [
    {"rounding": "stochastic"}, {"overflow": "satfinite"}, {"rounding": "stochastic", "overflow": "satfinite"},
    {"rounding": "floor", "overflow": "satfinite"}, {"overflow": "satpropagate"},
    {"rounding": "stochastic", "overflow": "satpropagate"},
], ids=str)  # fmt: skip
def test_stochastic_and_saturating_sums_have_compiled_loops(order: str, options: dict[str, object]):
    """Rows of 300 results begin anywhere within sixteen; random numbers and marks belong to the result's place."""
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32"}
    for accumulator in ("fp16", "fp8_e4m3", "fp32"):
        mac = Mac(accumulator=accumulator, order=order, **options)
        for shape, anything in (((3, 20, 4), True), ((2, 9, 300), False), ((2, 3, 5, 33), False)):
            a = random_values("fp16", shape[:-1], 1, anything=anything)
            b = random_values("fp16", (*shape[:-3], *shape[-2:]), 2, anything=anything)
            c = random_values("fp32", (shape[-3], 1), 3, anything=anything)
            assert emu.explain(emu.matmul, a, b, mac=mac, backend="numba", **formats).fallback == ""
            for addend in (None, c):
                check(mac, "fp16", a, b, addend, "fp32", seed=5, stream=6, step=7)


@pytest.mark.parametrize(
    "order", ["blocks(16, 46)", "blocks(32, 45)", "blocks(1, 50)", "blocks(4, 24, min_exponent=-479)"]
)
def test_the_widest_compiled_sums_are_exact(order: str):
    mac = Mac(accumulator="e8m45", order=order)
    a, b = (random_values("fp32", shape, seed) for seed, shape in enumerate(((8, 40), (40, 8))))
    a, b = (np.where(np.isfinite(x), x, 1).astype(np.float32) for x in (a, b))
    big = np.full((8, 40), np.float32(2 - 2.0**-23))  # every significand all ones: the largest sums
    formats = {"a_format": "fp32", "b_format": "fp32", "out_format": "e9m45"}
    assert emu.explain(emu.matmul, a, b, mac=mac, backend="numba", **formats).fallback == ""
    for left, right in ((a, b), (big, b), (big, np.ascontiguousarray(big.T))):
        check(mac, "fp32", left, right, None, "e9m45")


def test_the_number_of_threads_never_changes_a_bit(monkeypatch: pytest.MonkeyPatch):
    a, b = random_values("fp16", (70, 130), 1, anything=False), random_values("fp16", (130, 61), 2, anything=False)
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "backend": "numba"}
    results = set()
    for threads in (1, 2, 3):
        monkeypatch.setattr(compiling, "thread_count", lambda threads=threads: threads)
        results.add(emu.matmul(a, b, mac=H100, **formats).tobytes())
    assert len(results) == 1


def test_a_floor_below_every_term_changes_nothing():
    assert isinstance(H100.order, Blocks)
    a, b = random_values("fp16", (6, 40), 1, anything=False), random_values("fp16", (40, 6), 2, anything=False)
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32"}
    results = {
        emu.matmul(
            a, b, mac=Mac(accumulator="fp32", order=replace(H100.order, min_exponent=floor), rounding="toward_zero"),
            **formats,
        ).tobytes()
        for floor in (None, -28, -133)
    }  # fmt: skip
    assert len(results) == 1
