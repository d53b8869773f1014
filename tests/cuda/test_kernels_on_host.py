"""The CUDA kernels, as source and as what NVIDIA's compiler made of it, run by the host: the reference's bits."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from host_devices import GPU, device_of, name_of
from kernel_inputs import patterns, random_values, reals

import emu
from emu import Mac
from emu.backends.cuda import CudaKernels
from emu.backends.functions import FUNCTIONS, function_table
from emu.backends.interface import (
    NO_QUANTUM,
    Outcome,
    RandomCode,
    RegisterCode,
    Write,
    encode_format,
    encode_mac,
    encode_stage,
)
from emu.backends.reference import ReferenceKernels
from emu.datapath import OutputStage, Overflow, Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.engine.sliding import windows_of
from emu.formats import Fixed, Scaled
from emu.testing import assert_bits_equal
from tests.backends.table_products import fallback, written

MODES = tuple(mode.value for mode in Rounding)
FIXED = ["fix8f4", "ufix7f3", "fix16f8", "fix1f0", "fix12f-3", "fix53f20", "fix64f30", "ufix64f60"]
FLOATS = [
    "fp16", "bf16", "fp32", "fp64", "fp8_e4m3", "e4m3fnuz", "fp8_e5m2", "e2m1 finite nans=none", "fp16 ftz",
    "e8m0 finite nans=top", "e5m10 bias=-90", "e8m24", "fp8_e8m0", "e1m6", "ue5m3 nans=top bias=16",
    "ue4m2 finite ftz", "e0m7 finite nans=negative_zero", "ue3m4 finite nans=none no-zero", "ue8m20 nans=top",
]  # fmt: skip
OPERATIONS = {
    "quantize": 1, "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3, "sqrt": 1, "remainder": 2,
    "round_to_integral": 1,
}  # fmt: skip

#: Kernels as they are chosen, and with the widest integers, whatever is computed.
WAYS = [
    ("", 1),
    pytest.param(("", 4), marks=pytest.mark.slow),
    pytest.param(("80", 1), marks=pytest.mark.slow),
    pytest.param(("90", 1), marks=pytest.mark.slow),
    pytest.param((GPU, 1), marks=pytest.mark.gpu),
]


@pytest.fixture(params=WAYS, ids=lambda way: f"{name_of(way[0])}-{way[1]}")
def kernels(request: pytest.FixtureRequest) -> CudaKernels:
    return table_of(*request.param)


@lru_cache
def table_of(architecture: str, least_words: int) -> CudaKernels:
    return CudaKernels(device_of(architecture), least_words)


def rules_of(fmt: str) -> tuple[str, ...]:
    return tuple(rule.value for rule in (FIXED_RULES if isinstance(emu.parse(fmt), Fixed) else FLOAT_RULES))


def assert_same(actual: Outcome, expected: Outcome, fmt: str, note: Any) -> None:
    try:
        assert actual.values.dtype == expected.values.dtype
        assert_bits_equal(actual.values, expected.values, emu.parse(fmt))
        assert actual.flags.tolist() == expected.flags.tolist()
        assert actual.max_exponent == expected.max_exponent
        assert (actual.register is None) == (expected.register is None)
        if expected.register is not None:
            assert actual.register is not None
            assert actual.register.tolist() == expected.register.tolist()
    except AssertionError as error:
        error.add_note(str(note))
        raise


def compare(
    ours: CudaKernels, operation: str, operands: tuple[np.ndarray, ...], fmt: str, rounding: str, rule: str
) -> None:
    stage = encode_stage(OutputStage.of(fmt, rounding, rule, 7))
    random, formats = RandomCode(2**63 + 5, 2**32 - 1, 3, 0, None), (None,) * len(operands)
    for register in (RegisterCode(-6, 20, NO_QUANTUM), None):
        results = [
            table.elementwise(operation, operands, formats, Write(stage, random, register), None)
            if operation != "quantize"
            else table.quantize(operands[0], None, Write(stage, random, register), None)
            for table in (ours, ReferenceKernels())
        ]
        assert_same(results[0], results[1], fmt, (operation, rounding, rule, register))


@most_are_slow("fmt", FIXED + FLOATS, keep=(FIXED + FLOATS)[::2])
def test_every_mode_and_rule_of_the_output_stage_is_the_references(fmt: str, kernels: CudaKernels):
    for rounding, rule, dtype in product(MODES, rules_of(fmt), (np.float32, np.float64)):
        x = reals(fmt, 24, 1, dtype)
        with np.errstate(all="ignore"):
            compare(kernels, "quantize", (x,), fmt, rounding, rule)


@pytest.mark.parametrize("name", ["mxfp8_e4m3 even", "nvfp4"])
def test_elements_that_share_scales_are_the_references(name: str, kernels: CudaKernels):
    fmt, x = emu.parse(name), np.resize(reals("fp8_e4m3", 40, 9, np.float32), (3, 64))
    assert isinstance(fmt, Scaled)
    stage = encode_stage(OutputStage(fmt.element, Rounding.STOCHASTIC, Overflow.SATFINITE, 7))
    write = Write(stage, RandomCode(5, 1, 3, 0, None), None)
    results = [table.quantize_blocks(x, fmt, -1, write, counted=True) for table in (kernels, ReferenceKernels())]
    (actual, scales), (expected, its_scales) = results
    assert_same(actual, expected, str(fmt.element), name)
    for level, mine, theirs in zip(fmt.levels, scales, its_scales, strict=True):
        assert_bits_equal(mine, theirs, level.scale)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "quantize"])
@pytest.mark.parametrize("fmt", ["fix16f8", "fp16", "fp32", "e4m3fnuz", "fp64"])
def test_every_elementwise_operation_is_the_references(operation: str, fmt: str, kernels: CudaKernels):
    rng = np.random.default_rng(2)
    for rounding in MODES:
        x = np.concatenate([reals(fmt, 12, 3, np.float32), patterns(60, 4, np.float32)])
        operands = tuple(rng.permutation(x) for _ in range(OPERATIONS[operation]))
        compare(kernels, operation, operands, fmt, rounding, rules_of(fmt)[0])


@pytest.mark.parametrize("operation", ["add", "subtract", "fma", "divide", "sqrt"])
def test_results_beyond_every_word_wrap_to_the_references_bits(operation: str, kernels: CudaKernels):
    rng = np.random.default_rng(5)
    large = np.ldexp(rng.integers(1, 2**20, 40), rng.integers(-20, 500, 40)) * rng.choice([-1, 1], 40)
    small = np.ldexp(rng.integers(1, 2**20, 40), rng.integers(-200, 20, 40)) * rng.choice([-1, 1], 40)
    operands = {"fma": (large, np.ldexp(1.0, rng.integers(0, 300, 40)), small), "sqrt": (abs(large),)}.get(
        operation, (large, small)
    )
    for rounding in MODES:
        for fmt in ("fix16f8", "ufix8f-3", "fix64f30"):
            compare(kernels, operation, operands, fmt, rounding, "wrap")


UNITS = [
    pytest.param((Mac(), "fp64", "fp64", "fp64", "fix16f8"), marks=pytest.mark.slow),
    (Mac(accumulator="fix16f8", overflow="wrap", rounding="ceil"), "fp32", "fp32", "fp64", "fix16f8"),
    (Mac(), "fix16f8", "fix16f8", "fix16f8", "fix16f8"),
    (Mac(), "fp16", "fp16", "fp32", "fp16"),
    (Mac(), "bf16", "fp32", None, "fp32"),
    (Mac(), "fp64", "fp64", "fp64", "fp64"),
    (Mac(), "fix64f30", "ufix40f3", None, "fix64f30"),
    (Mac(product="fp16"), "fp16", "fp16", "fp16", "bf16"),
    (Mac(product="fix12f6", overflow="saturate"), "fix16f8", "fix16f8", None, "fix16f8"),
    (Mac(accumulator="fp32"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="fp16", product="fp16", rounding="stochastic"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="fix20f12", order="pairwise"), "fix16f8", "fix8f4", "fix16f8", "fix16f8"),
    (Mac(accumulator="fix20f12", overflow="wrap", rounding="floor"), "fix16f8", "fix8f4", None, "fix16f8"),
    (Mac(accumulator="bf16", order="lanes(3)", rounding="stochastic"), "bf16", "bf16", "fp32", "bf16"),
    (Mac(accumulator="fp16", order="lanes(37)", rounding="stochastic"), "fp16", "fp16", "fp32", "fp16"),
    (Mac("fp16", "fp16", order="lanes(99999999)", rounding="floor"), "fp16", "fp16", "fp32", "fp16"),
    (Mac(accumulator="fp8_e4m3", order="lanes(8)", rounding="to_odd"), "fp8_e4m3", "fp16 daz", "fp16", "fp8_e5m2"),
    (Mac(accumulator="fix20f16", rounding="jamming"), "fix16f8", "fix8f4", "fix16f8", "fix16f8"),
    (Mac("fix12f6", "fix20f12", "lanes(37)", "jamming", "wrap"), "fix16f8", "fix8f4", "fix16f8", "fix16f8"),
    (Mac(accumulator="fix24f12", order="lanes(3)", rounding="magnitude_truncation"), "fix16f8", "fix8f4", None, "fp16"),
    (Mac("fp16", "fp16", "pairwise", "stochastic_nearest_odd"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="fp16", order="blocks(4, 12)", rounding="stochastic_nearest_up"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="fp16", order="blocks(4, 12)", rounding="jamming"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="bf16", rounding="nearest_odd"), "bf16", "bf16", "fp32", "bf16"),
    (Mac("fp8_e5m2", "fp8_e5m2", overflow="satfinite"), "fp16", "fp16", "fp16", "fp16"),
    (Mac("fp8_e5m2", "fp8_e5m2", "lanes(3)", "floor", "satpropagate"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="fp8_e4m3", order="pairwise", overflow="satpropagate"), "fp16", "fp16", "fp16", "fp16"),
    (Mac(accumulator="fp16", order="blocks(4, 12)", overflow="satpropagate"), "fp16", "fp16", "fp16", "fp16"),
    (Mac.preset("v100", inputs="fp16", output="fp16"), "fp16", "fp16", "fp16", "fp16"),
    (Mac.preset("h100", inputs="bf16", output="fp32"), "bf16", "bf16", "fp32", "fp32"),
    (Mac.preset("h100", inputs="fp8_e4m3", output="fp32", instruction="mma"), "fp8_e4m3", "fp8_e4m3", "fp32", "fp32"),
    (Mac.preset("ada", inputs="fp8_e5m2", output="fp32"), "fp8_e5m2", "fp8_e5m2", None, "fp32"),
]


#: Depth, divisor, rounding of the output stage, whether operands are any codes.
CASES = [
    (0, 1, "nearest_even", True),
    (1, 1, "floor", True),
    (7, 1, "stochastic", False),
    (21, 3, "nearest_even", True),
    (9, 4, "ceil", False),
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit[0]} {unit[1]} {unit[4]}")
def test_every_unit_adds_as_the_reference(unit: tuple, kernels: CudaKernels):
    mac, *names, fmt = unit
    random = RandomCode(7, 1, 2, 0, None)
    formats = tuple(None if name is None else encode_format(emu.parse(name)) for name in names)
    for depth, divisor, rounding, anything in CASES:
        if divisor > 1 and emu.parse(fmt).carries_raws:
            continue
        a, b = (
            random_values(n, s, i, anything=anything)
            for i, (n, s) in enumerate(zip(names[:2], [(2, 3, depth), (2, depth, 5)], strict=True))
        )
        addend = None if names[2] is None else random_values(names[2], (1, 3, 1), 3, anything=anything)
        wraps = names[0] == "fp64" and isinstance(emu.parse(fmt), Fixed)
        stage = encode_stage(OutputStage.of(fmt, rounding, "wrap" if wraps else None, 9))
        register = RegisterCode(-9, 25, NO_QUANTUM)
        arguments = ((a, b, addend), formats, encode_mac(mac), "definition", Write(stage, random, register), divisor)
        results = [written(table, *arguments) for table in (kernels, ReferenceKernels())]
        assert_same(results[0], results[1], fmt, (mac, depth, divisor, rounding))


@pytest.mark.parametrize("order", ["blocks(4, 12)", "blocks(4, 12, addend=after)", "sequential", "pairwise"])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_negative_zero_beside_no_products_and_beside_zeros_is_the_references(
    order: str, depth: int, kernels: CudaKernels
):
    fp16, addend = encode_format(emu.parse("fp16")), np.array([[[-0.0], [0.0]]], np.float32)
    a, b = np.full((1, 2, depth), -1, np.float32), np.zeros((1, depth, 1), np.float32)
    for rounding in ("nearest_even", "floor"):
        mac = encode_mac(Mac(accumulator="fp16", order=order, rounding=rounding))
        stage, random = encode_stage(OutputStage.of("fp32")), RandomCode(0, 0, 0, 0, None)
        arguments = ((a, b, addend), (fp16, fp16, fp16), mac, "definition", Write(stage, random, None))
        assert not fallback(kernels, (fp16, fp16, fp16), mac, "definition", stage)
        results = [written(table, *arguments) for table in (kernels, ReferenceKernels())]
        assert_same(*results, "fp32", (order, rounding))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_the_references(name: str, kernels: CudaKernels):
    x = np.concatenate(
        [
            np.random.default_rng(1).normal(0, 4, 300),
            patterns(300, 2, np.float64),
            [0.0, -0.0, np.inf, -np.inf, 1.0, 800, -800],
        ]
    )
    for source, fmt in (("fp64", "fix16f8"), ("fp16", "fp16"), ("e4m3fnuz", "fix8f4"), ("fix8f4", "bf16")):
        with np.errstate(all="ignore"):
            values = x if source == "fp64" else emu.quantize(x, source, backend="reference")
        for rounding in ("nearest_even", "stochastic", "stochastic_nearest_odd", "jamming"):
            stage = OutputStage.of(fmt, rounding, None, 5)
            code, random, register = encode_stage(stage), RandomCode(3, 2, 1, 0, None), RegisterCode(-5, 9, NO_QUANTUM)
            results = [
                table.tabled(function_table(name, emu.parse(source), stage), values, Write(code, random, register))
                if source != "fp64"
                else table.function(name, values, None, Write(code, random, register))
                for table in (kernels, ReferenceKernels())
            ]
            assert_same(results[0], results[1], fmt, (name, source, rounding))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64])
def test_selections_are_the_references(dtype: type, kernels: CudaKernels):
    x = np.random.default_rng(1).choice(np.array([0, 1, 2, 3], dtype), (2, 3, 7, 9))
    if np.dtype(dtype).kind == "f":
        x = np.random.default_rng(1).choice(np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], dtype), (2, 3, 7, 9))
    reference = ReferenceKernels()
    assert_bits_equal(kernels.relu(x), reference.relu(x))
    for window, stride in ((2, 2), (3, 3), (3, 1)):
        windows = windows_of(x, window, stride)
        found, expected = kernels.max_pool(windows), reference.max_pool(windows)
        for one, other in zip(found, expected, strict=True):
            assert_bits_equal(
                one.astype(np.float64) if one.dtype.kind == "u" else one,
                other.astype(np.float64) if other.dtype.kind == "u" else other,
            )
        if stride >= window:
            assert_bits_equal(kernels.unpool(*found, windows), reference.unpool(*expected, windows))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_unpool_writes_nothing_outside_its_windows(kernels: CudaKernels, dtype: Any):
    windows = windows_of(np.zeros((1, 1, 4, 4)), 2, 2)
    index = np.array([3, 4, np.iinfo(dtype).max, 0], dtype)
    spread = kernels.unpool(np.float32([1, 2, 3, 4]), index, windows)
    assert_bits_equal(spread, ReferenceKernels().unpool(np.float32([1, 2, 3, 4]), index, windows))
    assert np.flatnonzero(spread).tolist() == [5, 10]


@pytest.mark.parametrize("n", [1, 4, 7, 1024])
@pytest.mark.parametrize("beyond", [0, 1])
def test_blocks_up_to_a_kernels_width_run_on_the_device_and_wider_ones_by_the_reference(
    kernels: CudaKernels, n: int, beyond: int
):
    fraction_bits = 256 - 3 - n.bit_length() + beyond
    mac = encode_mac(Mac(accumulator="fp32", order=f"blocks({n}, {fraction_bits})"))
    fp16 = encode_format(emu.parse("fp16"))
    a, b = (np.full(shape, 1.9990234375, np.float32) for shape in ((1, 2, 2 * n), (1, 2 * n, 2)))
    a[0, 1] *= -1
    stage = encode_stage(OutputStage.of("fp32"))
    write = Write(stage, RandomCode(0, 0, 0, 0, None), None)
    arguments = ((a, b, None), (fp16, fp16, None), mac, "reference", write)
    assert bool(fallback(kernels, (fp16, fp16, None), mac, "reference", stage)) == bool(beyond)
    assert_same(written(kernels, *arguments), written(ReferenceKernels(), *arguments), "fp32", fraction_bits)


@pytest.mark.parametrize(("addend", "declined"), [("fix8f0", False), ("fix64f4096", True)])
def test_an_exact_sum_wider_than_a_kernels_integers_is_computed_by_the_reference(
    kernels: CudaKernels, addend: str, declined: bool
):
    fp64, third = encode_format(emu.parse("fp64")), encode_format(emu.parse(addend))
    a = np.array([[[-(2.0**1000), 2.0**-1000], [3.0, -(2.0**500)]]])
    b = np.array([[[2.0**1000, 1.0], [2.0**-1000, 2.0**-500]]])
    c = np.array([[[5], [-7]]], np.int64 if declined else np.float32)
    stage, mac = encode_stage(OutputStage.of("fix32f8")), encode_mac(Mac())
    formats = (fp64, fp64, third)
    arguments = ((a, b, c), formats, mac, "reference", Write(stage, RandomCode(0, 0, 0, 0, None), None))
    assert bool(fallback(kernels, formats, mac, "reference", stage)) == declined
    assert_same(written(kernels, *arguments), written(ReferenceKernels(), *arguments), "fix32f8", addend)
