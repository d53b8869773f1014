"""Drawn formats, stages, units and shapes: what the CUDA kernels write and count is what the reference writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_vectors import FOLDER, RUNS, VECTORS, text_of

import emu
from emu.datapath import Flags, Rounding, StatisticsRegister
from emu.datapath.order import Blocks
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed, Format
from emu.testing import assert_bits_equal, bulk_arrays, formats, macs

SIZES = st.integers(0, 70)
OPERATIONS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3, "sqrt": 1, "remainder": 2, "round_to_integral": 1,
}  # fmt: skip


def stages(draw: Any, fmt: Format) -> dict[str, Any]:
    """Draw the options of an output stage that writes `fmt`."""
    return {
        "out_format": fmt,
        "rounding": draw(st.sampled_from(list(Rounding))),
        "overflow": draw(st.sampled_from(FIXED_RULES if isinstance(fmt, Fixed) else FLOAT_RULES)),
        "n_rbits": draw(st.integers(1, 32)),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "stream": draw(st.integers(0, 2**32 - 1)),
        "tininess": draw(st.sampled_from([None, "before_rounding", "after_rounding"])),
    }


def assert_references(call: Callable[..., np.ndarray], fmt: Format, backend: str, options: dict[str, Any]) -> None:
    results, tininess = [], options.pop("tininess")
    for name in (backend, "reference"):
        register, flags = StatisticsRegister(), Flags(tininess=tininess)
        with np.errstate(all="ignore"):
            values = call(register=register, flags=flags, backend=name, **options)
        results.append((values, register.to_dict(), flags.counts()))
    (values, *counts), (expected, *expected_counts) = results
    assert_bits_equal(values, expected, fmt)
    assert counts == expected_counts


@given(st.data())
def test_any_stage_writes_the_references_bits(cuda: str, data: st.DataObject):
    fmt = data.draw(formats(raws=True))
    x = data.draw(bulk_arrays(fmt, st.tuples(SIZES), representable=False))
    with np.errstate(all="ignore"):
        x = x.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    x = x[data.draw(st.integers(0, 3)) :]  # anywhere in memory
    options = stages(data.draw, fmt)
    options["fmt"] = options.pop("out_format")
    assert_references(lambda **given: emu.quantize(x, **given), fmt, cuda, options)


@given(st.data())
def test_values_of_any_format_are_written_in_any_other(cuda: str, data: st.DataObject):
    source, fmt = data.draw(formats(raws=True)), data.draw(formats(raws=True))
    x = data.draw(bulk_arrays(source, st.tuples(SIZES)))
    options = stages(data.draw, fmt)
    options["fmt"] = options.pop("out_format")
    assert_references(lambda **given: emu.quantize(x, x_format=source, **given), fmt, cuda, options)


@given(st.data())
def test_any_operation_on_any_formats_writes_the_references_bits(cuda: str, data: st.DataObject):
    name, fmt, shape = data.draw(st.sampled_from(list(OPERATIONS))), data.draw(formats()), (data.draw(SIZES),)
    sources = [data.draw(formats()) for _ in range(OPERATIONS[name])]
    operands = [data.draw(bulk_arrays(source, shape)) for source in sources]
    options = stages(data.draw, fmt)
    options |= {f"{letter}_format": source for letter, source in zip("abc", sources, strict=False)}
    assert_references(lambda **given: getattr(emu, name)(*operands, **given), fmt, cuda, options)


def assert_product(cuda: str, data: st.DataObject, mac: emu.Mac, sources: list[Format], fmt: Format) -> None:
    batch, m, k, n = (data.draw(st.integers(0 if i else 1, most)) for i, most in enumerate((2, 5, 19, 5)))
    a = data.draw(bulk_arrays(sources[0], (batch, m, k)))
    b = data.draw(bulk_arrays(sources[1], (data.draw(st.sampled_from([1, batch])), k, n)))
    options = {**stages(data.draw, fmt), "a_format": sources[0], "b_format": sources[1], "mac": mac}
    if data.draw(st.booleans()):
        options["addend"] = data.draw(bulk_arrays(sources[2], data.draw(st.sampled_from([(n,), (m, 1), (m, n)]))))
        options["addend_format"] = sources[2]
    assert_references(lambda **given: emu.matmul(a, b, **given), fmt, cuda, options)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_any_unit_writes_the_references_bits(cuda: str, data: st.DataObject):
    mac = data.draw(macs(blocks=True))
    fixed = not isinstance(mac.order, Blocks)  # matrix units take floats
    sources = [data.draw(formats(fixed=fixed, max_width_bits=24)) for _ in range(3)]
    assert_product(cuda, data, mac, sources, data.draw(formats()))


@given(st.data())
def test_exact_sums_of_fixed_operands_write_the_references_bits_by_any_plan(cuda: str, data: st.DataObject):
    """The vendor's products of 8-bit integers, float32 and float64; tiles of wider integers, any addend."""
    widths = data.draw(st.sampled_from([4, 8, 11, 16, 24, 32, 64]))
    sources: list[Format] = [data.draw(formats(floats=False, raws=True, max_width_bits=widths)) for _ in range(2)]
    sources.append(data.draw(formats(raws=True)))
    assert_product(cuda, data, emu.Mac(), sources, data.draw(formats(raws=True)))


@pytest.mark.slow
@pytest.mark.parametrize("bins", [180, 300, 7000])
def test_registers_of_more_positions_than_a_block_has_room_for_count_the_same(bins: int, cuda: str):
    x = np.ldexp(np.random.default_rng(1).normal(0, 1, 99), np.random.default_rng(2).integers(-90, 90, 99))
    found = []
    for name in (cuda, "reference"):
        register, options = emu.StatisticsRegister(-80, bins), {"backend": name}
        emu.quantize(x.astype(np.float32), "fp16", register=register, **options)
        halves = np.clip(x, -60000, 60000).astype(np.float16).astype(np.float32)
        emu.exp(halves, x_format="fp16", out_format="fp16", register=register, **options)
        emu.engine.total(x, x_format="fp64", out_format="fp32", register=register, **options)
        found.append(register.to_dict())
    assert found[0] == found[1]


def test_means_that_wrap_are_the_references(cuda: str):
    x = np.ldexp(np.random.default_rng(1).normal(0, 1, (4, 7)), [[300], [0], [90], [-80]])
    options = {"x_format": "fp64", "axis": 1, "out_format": "fix16f8", "overflow": "wrap"}
    means = [emu.engine.average(x, backend=name, **options) for name in (cuda, "reference")]
    assert_bits_equal(*means, emu.parse("fix16f8"))


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data())
def test_float32_in_order_writes_the_references_bits(cuda: str, data: st.DataObject):
    sources = [
        data.draw(st.sampled_from(["fp16", "bf16", "fp32", "fp8_e5m2", "fp16 daz", "e4m3fnuz daz", "fix16f8"]))
        for _ in range(3)
    ]
    assert_product(cuda, data, emu.Mac(accumulator="fp32"), [emu.parse(s) for s in sources], data.draw(formats()))


def test_flushed_operands_of_formats_with_one_zero_have_no_sign(cuda: str):
    source = emu.parse("e4m3fnuz daz")
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    negative = -one * 2.0**-10  # subnormal
    options = {"mac": emu.Mac(accumulator="fp32"), "out_format": "fp32"}
    options |= {f"{name}_format": source for name in ("a", "b", "addend")}
    for a, b in [(zero, zero), (negative, one), (one, negative)]:
        found = [emu.matmul(a, b, addend=negative, backend=name, **options) for name in (cuda, "reference")]
        assert_bits_equal(*found, emu.parse("fp32"))
        assert not np.signbit(found[1]).any()


@pytest.mark.parametrize("name", [name for name in VECTORS if name not in RUNS])
def test_bits_are_those_of_the_golden_vectors(name: str, cuda: str):
    assert text_of(name, cuda).splitlines() == (FOLDER / f"{name}.txt").read_text().splitlines()


@pytest.mark.slow
def test_training_ends_in_the_golden_hashes(cuda: str):
    assert text_of("training", cuda).splitlines() == (FOLDER / "training.txt").read_text().splitlines()
