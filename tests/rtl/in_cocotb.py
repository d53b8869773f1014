"""What runs inside of a cocotb simulation; `test_cocotb.py` starts it for one unit after the other."""

from __future__ import annotations

import os
import time
from typing import Any

import cocotb  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest
from cocotb.types import LogicArray  # pyright: ignore[reportMissingImports]
from rtl_units import OPTIONS, product_vectors

from emu.errors import ConfigError, RtlError
from emu.testing.rtl import In
from emu.testing.rtl.arrays import operands_of
from emu.testing.rtl.cocotb import Bench, Monitor, Word
from emu.testing.vectors import Description, make_vectors

FAULT = int(os.environ.get("FAULT", "0"))


def bench_of(dut: Any) -> Bench:
    options = dict(OPTIONS[str(dut._name)])
    latency = {"multiply16_pipe": 3}.get(str(dut._name), 0)
    return Bench(dut, options.pop("ports"), **options, latency=latency, bound_cycles=200)


def vectors_of(dut: Any) -> Any:
    if str(dut._name).startswith("multiply16"):
        return product_vectors()
    if str(dut._name) == "dot4":
        formats = {"formats": ("fix8f4", "fix8f4"), "out_format": "fix16f8", "mac": {"accumulator": "fix16f8"}}
        return make_vectors(Description(operation="matmul", **formats, depth=5, count=100))
    formats = {"formats": ("fix8f4", "fix8f4", "fix16f8"), "out_format": "fix16f8"}
    return make_vectors(Description(operation="fma", **formats, count=100))


@cocotb.test(skip=FAULT != 0)
async def every_vector_is_right_in_every_manner(dut: Any) -> None:
    bench, counted = bench_of(dut), []

    def cells(golden: Any) -> dict[str, int]:
        counted.append(golden)
        return {"vectors": len(golden.results)}

    await bench.start()
    for manner in ("back to back", "held", "with stalls"):
        finding = await bench.check(vectors_of(dut), manner=manner, cells=cells)
        assert finding is None, f"{manner}: {finding}"
    assert len(counted) == 3


@cocotb.test(skip=FAULT != 0 or os.environ["TOP"] != "multiply16_stream")
async def arrays_words_and_a_monitor(dut: Any) -> None:
    bench = bench_of(dut)
    await bench.start()
    monitor = Monitor(bench)
    monitor.start()
    x = np.arange(1.0, 41.0)
    assert (await bench.run(x, 0.5, rounding="floor")).tolist() == (x / 2).tolist()
    assert (await bench.run(np.uint16([0x3C00]), np.uint16([0x4000]))).tolist() == [0x4000]
    assert Word(dut.y, "fp16").value == 2.0
    assert Word(dut.y, "fp16").code == 0x4000
    Word(dut.a, "fp16").value = -1.5
    await bench.edge()
    assert Word(dut.a, "fp16").code == 0xBE00
    description = Description(
        operation="multiply", formats=("fp16", "fp16"), out_format="fp16", tininess="before_rounding"
    )
    assert monitor.compare(description) is None
    assert monitor.vectors(description).description.count == 41
    assert monitor.cover(description, lambda seen: {"all": seen.description.count}) == {"all": 41}


@cocotb.test(skip=FAULT != 0)
async def empty_arrays_have_empty_results(dut: Any) -> None:
    bench = bench_of(dut)
    await bench.start()
    shape = (0, 4) if bench.plan.is_serial else (0,)
    none = [np.zeros(shape)] * 2 + [np.zeros(0)] * (len(bench.plan.ins) - 2)
    for manner in ("back to back", "held", "with stalls"):
        assert (await bench.run(*none, manner=manner)).shape == (0,)


@cocotb.test(skip=FAULT != 0 or os.environ["TOP"] != "multiply16_stream")
async def a_monitor_names_an_operand_that_is_undriven_when_it_is_taken(dut: Any) -> None:
    bench = bench_of(dut)
    await bench.start()
    task = Monitor(bench).start()
    dut.b.value = LogicArray("X" * 16)
    dut.in_valid.value = 1
    with pytest.raises(RtlError, match=r"bits of b must be driven, got X{16}; drive operands while they are offered"):
        await task


@cocotb.test(skip=FAULT != 7)
async def a_result_too_many_behind_the_last_vector_is_seen(dut: Any) -> None:
    """Only a result that waits is given twice."""
    bench = bench_of(dut)
    await bench.start()
    one = operands_of(bench.plan, (np.uint16([0x3C00]), np.uint16([0x4000])), None)
    answers = [await bench.answers(one, manner="with stalls", seed=seed) for seed in range(8)]
    assert {seen.extra for seen in answers} == {(0, 0), (1, 0)}


@cocotb.test(skip=FAULT != 0 or os.environ["TOP"] != "multiply16_stream")
async def handles_that_are_missing_or_of_another_width_are_said(dut: Any) -> None:
    options = dict(OPTIONS["multiply16_stream"])
    ports = options.pop("ports")
    with pytest.raises(ConfigError, match="`ports` must name ports of multiply16_stream, got aa, which"):
        Bench(dut, {"aa": In("fp16"), **{name: port for name, port in ports.items() if name != "a"}}, **options)
    with pytest.raises(ConfigError, match="port a of multiply16_stream has 16 bits, and 32 bits are described"):
        Bench(dut, {**ports, "a": In("fp32")}, **options)
    with pytest.raises(ConfigError, match="got strobe, which"):
        Bench(dut, ports, **{**options, "signals": {"offer": "strobe"}})


@cocotb.test(skip=FAULT != 1)
async def a_lost_carry_is_found(dut: Any) -> None:
    bench = bench_of(dut)
    await bench.start()
    monitor = Monitor(bench)
    monitor.start()
    finding = await bench.check(product_vectors())
    assert finding is not None
    assert finding.wrong > 1
    assert "carry" in finding.causes[0]
    seen = monitor.compare(product_vectors().description)
    assert seen is not None
    assert seen.index == finding.index


@cocotb.test(skip=FAULT != 2)
async def an_undriven_bit_is_named(dut: Any) -> None:
    bench = bench_of(dut)
    await bench.start()
    with pytest.raises(RtlError, match="got x or z in 1 of 2, driven back to back, the first in vector 1") as raised:
        await bench.run(np.array([0x3C00, 0x3555], np.uint16), np.uint16(0x3C00))
    assert "0x3555" in str(raised.value)
    assert "0b001101010101X101" in str(raised.value)


@cocotb.test(skip=FAULT != 6)
async def a_hang_is_named(dut: Any) -> None:
    bench = bench_of(dut)
    await bench.start()
    with pytest.raises(RtlError, match=r"got none to vector 1 within 200 cycles(.|\n)*in_ready=0"):
        await bench.run(np.array([1.0, 1.0]), np.array([2.0, 42.0]))


@cocotb.test(skip=FAULT != 0 or os.environ["TOP"] not in ("multiply16_stream", "multiply16_pipe"))
async def comparisons_a_second(dut: Any) -> None:
    """The simulation's log says how many; docs/howto/cocotb.md says what to expect."""
    bench, vectors = bench_of(dut), product_vectors(count=1000)
    await bench.start()
    start = time.process_time()
    assert await bench.check(vectors) is None
    speed = vectors.description.count / (time.process_time() - start)
    dut._log.info("%.0f comparisons a second", speed)
