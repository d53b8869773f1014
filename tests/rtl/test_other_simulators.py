"""The same units in GHDL and Verilator: results, faults and latency are those that Icarus shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtl_units import OPTIONS, needs, product_vectors, unit_of

import emu
from emu.errors import ConfigError, RtlError
from emu.testing import check_backend
from emu.testing.rtl import In, Out
from emu.testing.vectors import Description, make_vectors

FORMATS = {"formats": ("fix24f12",), "out_format": "fix12f4"}


def raws(count: int) -> Any:
    return np.random.default_rng(5).integers(0, 1 << 24, count, np.uint32)


@needs("ghdl")
@pytest.mark.parametrize("top", ["round24", "round24_stream"])
def test_a_stage_in_vhdl_rounds(top: str):
    unit, codes = unit_of(top), raws(300)
    signed = codes.astype(np.int64) - ((codes >> 23).astype(np.int64) << 24)
    wanted = np.clip(np.rint(signed / 256), -2048, 2047)  # NumPy's ties go to the even integer
    assert unit(codes).astype(np.int64).tolist() == (wanted.astype(np.int64) & 0xFFF).tolist()
    flags = emu.Flags()
    assert unit([1.0, 1 / 4096, 200.0], flags=flags).tolist() == [1.0, 0.0, 127.9375]
    assert flags.inexact == 2
    assert unit.check(make_vectors(Description(operation="quantize", **FORMATS, count=200))) is None


@needs("ghdl")
def test_faults_in_vhdl_are_named(tmp_path: Path):
    finding = unit_of("round24_stream", 1).check(
        make_vectors(Description(operation="quantize", **FORMATS)), keep=tmp_path
    )
    assert finding is not None
    assert "nearest_away" in str(finding)
    assert "$enddefinitions" in next(tmp_path.glob("*.vcd")).read_text()
    with pytest.raises(RtlError, match=r"got x or z in 1 of 2, (.|\n)*0x000800(.|\n)*y +0xxxx"):
        unit_of("round24", 2)(np.array([0, 0x800], np.uint32))
    with pytest.raises(RtlError, match=r"0x7fffff(.|\n)*its operands to be taken \(in_ready=0, out_valid=0\)"):
        unit_of("round24_stream", 3)(np.array([0x7FFFFF], np.uint32))
    difference = unit_of("round24_stream", 4).compare(raws(40))
    assert difference is not None
    assert difference.manner == "with stalls"
    assert "was lost" in str(difference)


@needs("ghdl")
def test_the_latency_of_a_unit_in_vhdl_is_found_and_checked():
    assert unit_of("round24_stream").latency == 1
    with pytest.raises(ConfigError, match="`latency` of round24_stream must be 1, got 2"):
        unit_of("round24_stream", latency=2)([1.0])


@needs("ghdl")
@pytest.mark.parametrize("ending", [".vcd", ".fst", ".ghw"])
def test_waveforms_of_vhdl_are_of_three_kinds(ending: str, tmp_path: Path):
    path = unit_of("round24_stream", verify=False).trace([[1.0, 2.0]], tmp_path / f"wave{ending}")
    assert path.stat().st_size > 0


@needs("ghdl")
def test_the_contract_is_checked_on_vhdl():
    report = check_backend(unit_of("round24").as_function("quantize"), formats=["fix12f4"], operations=["quantize"])
    assert not report.failed
    assert "operands of round24 are fix24f12, and not every number asked for is one" in str(report)


@pytest.mark.slow
@needs("verilator")
@pytest.mark.parametrize("top", ["multiply16", "multiply16_pipe", "multiply16_stream", "multiply16_strobes"])
def test_products_in_verilator_are_right(top: str):
    unit = unit_of(top, simulator="verilator")
    assert unit.check(product_vectors()) is None
    assert unit.latency == {"multiply16": 0, "multiply16_pipe": 3, "multiply16_stream": 1, "multiply16_strobes": 3}[top]


@pytest.mark.slow
@needs("verilator")
def test_sums_in_verilator_are_right():
    product = {"formats": ("fix8f4", "fix8f4", "fix16f8"), "out_format": "fix16f8"}
    unit = unit_of("mac8_start", simulator="verilator")
    assert unit.check(make_vectors(Description(operation="fma", **product, count=200))) is None
    formats = {"formats": ("fix8f4", "fix8f4"), "out_format": "fix16f8", "mac": {"accumulator": "fix16f8"}}
    assert (
        unit_of("dot4", simulator="verilator").check(make_vectors(Description(operation="matmul", **formats, depth=6)))
        is None
    )
    a, b = np.arange(4.0), np.arange(4.0)[::-1].copy()
    assert unit_of("dot4_half", simulator="verilator")(a, b).item() == 4.0  # ports of 64 bits


@pytest.mark.slow
@needs("verilator")
def test_faults_in_verilator_are_named(tmp_path: Path):
    finding = unit_of("multiply16_stream", 1, simulator="verilator").check(product_vectors(), keep=tmp_path)
    assert finding is not None
    assert "$enddefinitions" in next(tmp_path.glob("*.vcd")).read_text()
    with pytest.raises(RtlError, match="got others with stalls than back to back"):
        unit_of("multiply16_stream", 5, simulator="verilator").check(product_vectors(), keep=tmp_path)
    ports = OPTIONS["multiply16"]["ports"]
    for changed, message in (
        ({"z": Out("fp16")}, "must name ports of multiply16, got z, which it does not have"),
        ({"a": In("fp32")}, "port a of multiply16 has 16 bits, and 32 bits are described for it"),
        ({"y": Out("fp32")}, "port y of multiply16 has 16 bits, and 32 bits are described for it"),
    ):
        with pytest.raises(ConfigError, match=message):
            unit_of("multiply16", ports={**ports, **changed}, simulator="verilator")([1.0], [1.0])
    without = {name: port for name, port in ports.items() if name != "mode"}
    with pytest.raises(ConfigError, match="must name every input of multiply16, but mode is missing"):
        unit_of("multiply16", ports=without, simulator="verilator")([1.0], [1.0])


@pytest.mark.slow
@needs("verilator")
def test_sources_that_verilator_does_not_compile_show_file_and_line(tmp_path: Path):
    source = tmp_path / "broken.v"
    source.write_text("module broken(input [15:0] x, output [15:0] y);\n  assign y = x +;\nendmodule\n")
    with pytest.raises(ConfigError, match=rf"from verilator\n  %Error: {source}:2:"):
        unit_of("multiply16").__class__(source, "broken", {"x": In("fp16"), "y": Out("fp16")}, simulator="verilator")(
            [1.0]
        )
