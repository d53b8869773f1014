"""The output stage and what feeds it element by element: reference, vector code and plain loops give the same bits."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
from kernel_inputs import random_values, reals
from variants import VARIANTS, assert_same_everywhere, needs_vectors, running

import emu
from emu import engine
from emu.backends.interface import NO_QUANTUM, RegisterCode, encode_stage
from emu.backends.modes import HAND_WRITTEN
from emu.backends.numba import machine
from emu.backends.numba.vector import choosing
from emu.backends.numba.vector.choosing import shape_for
from emu.backends.numba.vector.stage import CHUNK
from emu.datapath import OutputStage, Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed
from emu.testing import assert_bits_equal

HAS_DIRECTIONS = machine.has_directed_rounding()
MODES = tuple(mode.value for mode in Rounding)
#: Vector code has these alone; `test_rounding_table.py` compares all.
WRITTEN = MODES[:HAND_WRITTEN]
SIZES = (*range(71), CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 1)
ODD = ("nan", "inf", "subnormal")


def smooth(fmt: str, n: int, seed: int, dtype: type = np.float32) -> np.ndarray:
    """Numbers that vector code takes: zeros and normal ones, ties, neighbours, extremes."""
    x = reals(fmt, 256, seed, dtype)
    magnitude = np.abs(x)
    return np.resize(x[np.isfinite(x) & ((magnitude >= np.finfo(dtype).tiny) | (x == 0))], n)


def oddity(kind: str, dtype: type) -> float:
    return {"nan": np.nan, "inf": -np.inf, "subnormal": float(np.finfo(dtype).smallest_subnormal) * 5}[kind]


def lane_of(fmt: str, rounding: str, dtype: type, *, n_rbits: int = 24, bins: int | None = 40) -> str | None:
    """Name the float type vector code computes a stage in, None where plain loops do."""
    code = encode_stage(OutputStage.of(fmt, rounding, None, n_rbits))
    register = None if bins is None else RegisterCode(0, bins, NO_QUANTUM)
    shape = shape_for("quantize", (np.dtype(dtype),), emu.parse(fmt).carrier, code, register, False)
    return None if shape is None else shape.lane


def rules_of(fmt: str) -> tuple[str, ...]:
    return tuple(rule.value for rule in (FIXED_RULES if isinstance(emu.parse(fmt), Fixed) else FLOAT_RULES))


@pytest.mark.parametrize("fmt", ["fix16f8", "fp16"])
def test_every_size_at_odd_addresses_is_the_same(fmt: str):
    pool = smooth(fmt, 2 * CHUNK + 2, 1)
    for n in SIZES:
        x, room = pool[1 : n + 1], np.full(n + 2, 7.0, np.float32)
        y = assert_same_everywhere(lambda **where: emu.quantize(x, fmt, out=room[1 : n + 1], **where), fmt, n)
        assert y.size == n
        assert room[0] == room[-1] == 7.0


STAGES = [
    ("fix16f8", "floor", "wrap", np.float32), ("ufix8f3", "nearest_away", "saturate_zero", np.float32),
    ("fix25f12", "nearest_up", "wrap", np.float32), ("fix54f10", "to_odd", "wrap", np.float64),
    ("fix8f4", "nearest_zero", "saturate_symmetric", np.float64), ("e4m3fnuz", "ceil", "ieee", np.float32),
    ("fp8_e4m3", "toward_zero", "satfinite", np.float32), ("bf16 ftz", "nearest_down", "ieee", np.float64),
    ("fp8_e5m2", "floor", "satpropagate", np.float32),
]  # fmt: skip


@pytest.mark.parametrize(
    "stage", [*STAGES[:4], *(pytest.param(s, marks=pytest.mark.slow) for s in STAGES[4:])], ids=str
)
def test_modes_and_rules_are_the_same(stage: tuple[str, str, str, type]):
    """Each mode once; one shape of code, many numbers."""
    fmt, rounding, overflow, dtype = stage
    assert {s[1] for s in STAGES} | {"nearest_even", "stochastic"} == set(WRITTEN)
    options = {"rounding": rounding, "overflow": overflow}
    for x in (smooth(fmt, 3 * CHUNK + 5, 2, dtype), reals(fmt, 200, 3, dtype)):
        assert_same_everywhere(lambda **where: emu.quantize(x, fmt, **options, **where), fmt, stage)


FIXED = [
    "fix8f4",
    "fix16f8",
    "fix25f24",
    "fix26f20",
    "ufix24f3",
    "fix8f126",
    "fix8f127",
    "fix1f0",
    "ufix1f0",
    "fix54f9",
]
FLOATS = [
    "fp16", "bf16", "fp32", "fp8_e4m3", "e4m3fnuz", "e2m1 finite nans=none", "e2m3 finite nans=top", "fp16 ftz",
    "e8m3 bias=140", "e8m20 bias=129 ftz", "e5m10 bias=-90", "e8m24",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fmt", FIXED + FLOATS)
def test_every_mode_rule_and_dtype_is_the_same(fmt: str):
    for rounding, overflow, dtype in product(WRITTEN, rules_of(fmt), (np.float32, np.float64)):
        options = {"rounding": rounding, "overflow": overflow, "seed": 2**63 + 1, "stream": 2**32 - 1, "step": 3}
        for x in (smooth(fmt, 2 * CHUNK + 77, 4, dtype), reals(fmt, 300, 5, dtype)):
            assert_same_everywhere(lambda **where: emu.quantize(x, fmt, **options, **where), fmt, (options, dtype))


@pytest.mark.parametrize("n_rbits", [9, 16, 17, 24, *(pytest.param(r, marks=pytest.mark.slow) for r in (1, 8, 25, 32))])
def test_every_number_of_random_bits_is_the_same(n_rbits: int):
    """Fields of 8, 16 and 32 bits; lanes of float32 up to 24 bits."""
    random = {"rounding": "stochastic", "n_rbits": n_rbits, "seed": 2**63 + 1, "stream": 2**32 - 1, "step": 2**31}
    x = smooth("fix16f8", 3 * CHUNK + 41, 6)
    x[[CHUNK + 3, 3 * CHUNK + 1]] = np.nan
    assert_same_everywhere(lambda **where: emu.quantize(x, "fix16f8", **random, **where), "fix16f8", n_rbits)


@needs_vectors
def test_lanes_are_as_wide_as_numbers_need():
    for fmt, rounding, n_rbits, lane in (
        ("fix16f126", "nearest_even", 24, "f32"), ("fix16f127", "nearest_even", 24, "f64"),
        ("fix25f8", "nearest_even", 24, "f32"), ("fix26f8", "nearest_even", 24, "f64"),
        ("ufix24f8", "nearest_even", 24, "f32"), ("ufix25f8", "nearest_even", 24, "f64"),
        ("fix16f8", "stochastic", 24, "f32"), ("fix16f8", "stochastic", 25, "f64"),
        ("fp16", "nearest_even", 24, "f32"), ("fp32", "nearest_even", 24, "f32"), ("e8m24", "nearest_even", 24, "f64"),
        ("e8m3 bias=149", "nearest_even", 24, "f64"), ("e8m3 bias=147", "nearest_even", 24, "f32"),
        ("fix16f0", "nearest_even", 24, "f32"), ("fix16f-1", "nearest_even", 24, "f64"),
    ):  # fmt: skip
        assert lane_of(fmt, rounding, np.float32, n_rbits=n_rbits) == lane, (fmt, rounding, n_rbits)
        assert lane_of(fmt, rounding, np.float64, n_rbits=n_rbits) == (None if lane is None else "f64")
        with running("generic"):
            assert lane_of(fmt, rounding, np.float32, n_rbits=n_rbits) is None
    for bins, lane in (*((bins, "f32") for bins in (31, 57, 58, 89, 90, 185, None)), (186, None)):
        assert lane_of("fix16f8", "nearest_even", np.float32, bins=bins) == lane


@pytest.mark.parametrize("fmt", ["fix16f126", "fix16f127", "fix25f0", "fix26f0", "ufix24f0", "e8m3 bias=147", "fp32"])
def test_stages_at_the_ends_of_float32_lanes_are_the_same(fmt: str):
    """Just inside and just outside: last places near 2**-126, words of 24 bits beside the sign, subnormals below."""
    rng = np.random.default_rng(7)
    near = np.ldexp(rng.standard_normal(2 * CHUNK + 3), rng.integers(-128, -118, 2 * CHUNK + 3)).astype(np.float32)
    wide = rng.integers(-(2**26), 2**26, CHUNK + 3).astype(np.float32) + rng.choice(np.float32([0, 0.5]), CHUNK + 3)
    for x in (near, np.where(np.abs(near) < np.finfo(np.float32).tiny, 0, near), wide, smooth(fmt, CHUNK + 9, 8)):
        assert_same_everywhere(lambda **where: emu.quantize(x, fmt, **where), fmt, "nearest_even")


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fmt", ["fix16f8", "fp16"])
def test_chunks_that_plain_loops_must_do_are_the_same(fmt: str, dtype: type):
    n = 5 * CHUNK + 33
    for seed, kind in enumerate(ODD):
        for places in ([0], [n - 1], [CHUNK], [2 * CHUNK - 1, 2 * CHUNK], [5 * CHUNK], list(range(0, n, 300))):
            x = smooth(fmt, n, 9 + seed, dtype)
            x[places] = oddity(kind, dtype)
            assert_same_everywhere(lambda **where: emu.quantize(x, fmt, **where), fmt, (kind, places))


def test_results_land_in_place_in_strides_and_beside_overlaps():
    x = smooth("fix16f8", 6 * CHUNK, 20)
    grid = x[: 40 * 61].reshape(40, 61)
    for view in (grid[::2, ::-3], grid.T, np.broadcast_to(grid[0], (13, 61)), grid[:, 5]):
        assert_same_everywhere(lambda **where: emu.quantize(view, "fix16f8", **where), "fix16f8")
        room = np.empty((2 * view.shape[0], *view.shape[1:]), np.float32)[::2]
        assert_same_everywhere(lambda **where: emu.quantize(view, "fix16f8", out=room, **where).copy(), "fix16f8")
    for source, target in ((0, 0), (0, 1), (1, 0), (0, 16), (600, 0)):
        n = x.size - 600

        def call(**where):
            room = x.copy()
            emu.quantize(room[source : source + n], "fix16f8", out=room[target : target + n], **where)
            return room

        assert_same_everywhere(call, None, (source, target))


@pytest.mark.parametrize("bins", [1, 31, 32, 57, 58, 89, 90, 185, 186])
def test_registers_of_every_length_count_the_same(bins: int):
    """Two words hold 57 positions, the one above and six tallies; three hold 89, six 185.

    Lowest positions around the smallest normal float32.
    """
    rng = np.random.default_rng(10)
    x = np.ldexp(rng.choice([1.0, -1.0, 1.5, -1.25], 2 * CHUNK + 7), rng.integers(-126, 127, 2 * CHUNK + 7))
    x[rng.integers(0, x.size, 40)] = 0
    for lowest in (-127, -126, -149, -40, 0, 96, 127, -5000, 5000):
        assert_same_everywhere(
            lambda **where: emu.quantize(x.astype(np.float32), "fp16", **where), "fp16", lowest=lowest, bins=bins
        )


def test_the_largest_exponent_is_that_of_tiny_and_of_huge_numbers():
    for e in (-149, -127, -126, -125, 0, 126, 127):
        for sign in (1, -1):
            x = np.zeros(CHUNK + 5, np.float32)
            for place in (0, CHUNK + 4):
                x[place] = sign * np.ldexp(1.0, e)
                register = emu.StatisticsRegister()
                assert_same_everywhere(lambda **where: emu.quantize(x, "fp16", **where), "fp16", (e, place))
                emu.quantize(x, "fp16", register=register, backend="numba")
                assert register.max_exponent == e


@pytest.mark.slow
def test_counters_of_more_chunks_than_they_hold_are_exact():
    """2047 chunks fill the counters' planes; 2**21 results are twice as many."""
    x = np.full(2**21 + 13, -1.5, np.float32)
    x[::3] = 2.0
    expected = {"positive": {1: -(-x.size // 3)}, "negative": {0: x.size - -(-x.size // 3)}, "total": x.size}
    for name in VARIANTS:
        register, flags = emu.StatisticsRegister(), emu.Flags()
        with running(name):
            emu.quantize(x, "fix16f0", rounding="floor", register=register, flags=flags, backend="numba")
        assert {key: getattr(register, key) for key in expected} == expected, name
        assert flags.inexact == expected["negative"][0]


def slow_but(names: Iterable[str], *fast: str) -> list[Any]:
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


OPERATIONS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3, "sqrt": 1, "remainder": 2, "round_to_integral": 1,
}  # fmt: skip
FAST = [
    ("add", "fp16", "floor"), ("fma", "fp16", "floor"), ("multiply", "fix16f8", "nearest_even"),
    ("divide", "fix16f8", "stochastic"), ("sqrt", "fix16f8", "ceil"),
]  # fmt: skip


def compare_elementwise(name: str, fmt: str, rounding: str) -> None:
    rng = np.random.default_rng(11)
    options = {"out_format": fmt, "rounding": rounding, "seed": 3}
    for x in (smooth(fmt, 2 * CHUNK + 19, 12), reals(fmt, 60, 13, np.float32), np.float32([0.0, -0.0] * 300)):
        operands = [x, rng.permutation(x), rng.permutation(-x)][: OPERATIONS[name]]
        for n in (0, 1, 16, 33, CHUNK, x.size):
            cut = [o[:n] for o in operands]
            assert_same_everywhere(lambda **where: getattr(emu, name)(*cut, **options, **where), fmt, (name, n))


@pytest.mark.parametrize("case", [FAST[1], *(pytest.param(c, marks=pytest.mark.slow) for c in FAST[2:])], ids=str)
def test_elementwise_operations_are_the_same(case: tuple[str, str, str]):
    compare_elementwise(*case)


@needs_vectors
@pytest.mark.parametrize("name", slow_but(OPERATIONS, "fma"))
def test_rounding_to_odd_by_errors_gives_what_directions_give(name: str, monkeypatch: pytest.MonkeyPatch):
    """Narrow and wide operands side by side: sums that cancel, that are far apart, and products of 55 bits."""
    rng = np.random.default_rng(21)
    n = 3 * CHUNK + 7
    wide = emu.quantize(np.ldexp(rng.standard_normal(n), rng.integers(-20, 3, n)), "fix32f28", backend="reference")
    narrow = np.where(rng.integers(0, 2, n) == 0, wide, np.ldexp(rng.standard_normal(n), -9)).astype(np.float32)
    operands = (wide, narrow, np.where(rng.integers(0, 3, n) == 0, -narrow, wide.astype(np.float32)))[
        : OPERATIONS[name]
    ]
    known = {"a_format": "fix32f28", "b_format": "fp32", "c_format": "fp32"}
    formats = dict(list(known.items())[: len(operands)])
    for by_directions in (True, False):
        monkeypatch.setattr(choosing, "has_directed_rounding", lambda on=by_directions: on and HAS_DIRECTIONS)
        for rounding in ("nearest_even", "floor"):
            options = {"out_format": "fix32f20", "rounding": rounding}
            with np.errstate(invalid="ignore"):
                assert_same_everywhere(
                    lambda **where: getattr(emu, name)(*operands, **formats, **options, **where),
                    "fix32f20",
                    (name, by_directions),
                )


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("fmt", ["fix16f8", "fp16", "fp32", "fix25f10", "e4m3fnuz", "bf16 ftz"])
def test_elementwise_operations_are_the_same_in_every_mode(name: str, fmt: str):
    for rounding in MODES:
        compare_elementwise(name, fmt, rounding)


@pytest.mark.parametrize("name", VARIANTS)
def test_selections_are_the_same(name: str):
    x = random_values("fp16", (41, 4), 1)
    with running(name):
        for n in (0, 1, 7, 41):
            assert_bits_equal(engine.relu(x[:n], backend="numba"), engine.relu(x[:n], backend="reference"))
            for mine, theirs in zip(*(engine.max_pool(x[:n], backend=b) for b in ("numba", "reference")), strict=True):
                assert_bits_equal(mine, theirs)


def everything() -> str:
    """Hash of one result of each kernel, its register and its flags."""
    register, flags = emu.StatisticsRegister(), emu.Flags()
    where = {"backend": "numba", "register": register, "flags": flags}
    x, digest = smooth("fix16f8", 3 * CHUNK + 5, 30), hashlib.sha256()
    a, b = random_values("fix8f4", (9, 70), 1), random_values("fix8f4", (70, 33), 2)
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix16f8"}
    for y in (
        emu.quantize(x, "fix16f8", rounding="stochastic", seed=3, **where),
        emu.add(x, x[::-1], out_format="fp16", rounding="floor", **where),
        emu.matmul(a, b, **formats, **where),
        emu.matmul(a, b, mac=emu.Mac(accumulator="fix16f8"), **formats, **where),
    ):
        digest.update(y.tobytes())
    digest.update(repr((register.to_dict(), flags.counts())).encode())
    return digest.hexdigest()


def test_emu_cpu_generic_forces_plain_loops_and_keeps_every_bit():
    script = (
        "import test_kernel_table as t, emu.backends.numba.machine as m;"
        "print(m.processor(), m.has_vectors(), m.has_dot_products(),"
        " t.lane_of('fix16f8', 'nearest_even', 'float32'), t.everything())"
    )
    environment = os.environ | {"EMU_CPU": "generic", "EMU_THREADS": "2", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["generic", "False", "False", "None", everything()]


@needs_vectors
def test_raw_minus_one_of_a_fixed_accumulator_is_counted_nowhere_wherever_the_register_begins():
    """Positions that begin below the accumulator's last place, 2**-8, at it and above it, and that end below it."""
    raws = np.resize(np.arange(-9, 9), 3 * CHUNK + 7)
    a, b = (raws / 16).astype(np.float32)[:, None], np.float32([[1 / 16]])
    for lowest, bins in product(range(-19, -5), (1, 4, 10, 40)):
        positions = {"lowest": lowest, "bins": bins}

        def multiply(**where: Any) -> np.ndarray:
            return emu.matmul(a, b, a_format="fix8f4", b_format="fix8f4", out_format="fix8f4", **where)

        assert_same_everywhere(multiply, "fix8f4", "raw -1", **positions)
        code = encode_stage(OutputStage.of("fix8f4", "nearest_even", None, 24))
        taken = choosing.shape_for(
            "quantize", (np.dtype(np.float64),), np.dtype(np.float32), code, RegisterCode(lowest, bins, -8), False
        )
        # In one of the positions, or below them if they begin at the last place.
        assert (taken is not None) == (lowest <= -8 and -9 - lowest < bins)
