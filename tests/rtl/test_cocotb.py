"""The bench for cocotb drives every handshake, finds faults, and compares through emu."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rtl_units import cocotb_runner, needs, sources_of

from emu.datapath import Flags
from emu.errors import BackendUnavailable, ConfigError, FormatError, RtlError
from emu.testing.rtl import In, Out
from emu.testing.rtl.cocotb import Bench, Monitor
from emu.testing.vectors import Description, make_vectors
from emu.testing.vectors.definition import further_results

HERE = Path(__file__).parent


class Bits(int):
    """What a handle of cocotb gives."""

    is_resolvable = True


class Handle:
    """A handle of cocotb without a simulation."""

    def __init__(self, name: str, width_bits: int) -> None:
        self._name, self.width_bits, self.value = name, width_bits, Bits(0)

    def __len__(self) -> int:
        return self.width_bits


class NoMoreCyclesError(Exception):
    """All cycles are over."""


class Replayed(Bench):
    """A bench whose signals have the values of a list, cycle by cycle."""

    def __init__(self, ports: dict[str, Any], cycles: list[dict[str, int]]) -> None:
        names = {name: port.width_bits for name, port in ports.items()}
        names |= dict.fromkeys(("clk", "in_valid", "in_ready", "out_valid", "out_ready"), 1)
        dut = SimpleNamespace(_name="unit", **{name: Handle(name, width) for name, width in names.items()})
        super().__init__(dut, ports, clock="clk", handshake="valid_ready")
        self.cycles = iter(cycles)

    async def edge(self) -> None:
        for name in ("in_valid", "in_ready", "out_valid", "out_ready"):
            self.handle(name).value = Bits(0)
        for name, value in next(self.cycles, {"": -1}).items():
            if value < 0:
                raise NoMoreCyclesError
            self.handle(name).value = Bits(value)


def seen_by_monitor(ports: dict[str, Any], cycles: list[dict[str, int]]) -> Monitor:
    monitor = Monitor(Replayed(ports, cycles))
    with pytest.raises(NoMoreCyclesError):
        monitor._watch().send(None)
    return monitor


TAKEN, GIVEN = {"in_valid": 1, "in_ready": 1}, {"out_valid": 1, "out_ready": 1}


@pytest.mark.parametrize("first_is_low", [True, False])
def test_a_monitor_splits_the_words_of_ports_into_the_terms_of_sums(first_is_low: bool):
    formats = {"formats": ("fp16", "fp16"), "out_format": "fp16", "mac": {"accumulator": "fp16"}}
    d = Description(operation="matmul", **formats, depth=5, count=20)  # pyright: ignore
    golden = make_vectors(d)

    def word(codes: Any) -> int:
        return sum(int(code) << 16 * i for i, code in enumerate(codes if first_is_low else codes[::-1]))

    rows = [{"a": word(a), "b": word(b)} for a, b in zip(*golden.operands, strict=True)]
    cycles = [
        each for row, y in zip(rows, golden.results, strict=True) for each in (TAKEN | row, GIVEN | {"y": int(y)})
    ]
    ports = {name: In("fp16", 5, first_is_low=first_is_low) for name in "ab"} | {"y": Out("fp16")}
    monitor = seen_by_monitor(ports, cycles)
    assert monitor.compare(d) is None
    for ours, theirs in zip(monitor.vectors(d).operands, golden.operands, strict=True):
        assert np.array_equal(ours, theirs)
    cycles[-1] = {**cycles[-1], "y": cycles[-1]["y"] ^ 1}
    finding = seen_by_monitor(ports, cycles).compare(d)
    assert finding is not None
    assert finding.index == 19


def test_a_monitor_that_saw_more_results_than_operands_says_so():
    ports = {"x": In("fp16"), "y": Out("fp16")}
    monitor = seen_by_monitor(ports, [GIVEN | {"y": 1}, TAKEN | {"x": 2}, GIVEN | {"y": 2}])
    message = "unit must give one result for each vector, got 2 to 1; start the monitor before the unit is driven"
    with pytest.raises(RtlError, match=message):
        monitor.compare(Description(operation="quantize", formats=("fp16",), out_format="fp16"))


def test_a_bench_refuses_a_mode_and_flags_that_no_port_has():
    bench = Replayed({"x": In("fp16"), "y": Out("fp16")}, [])
    with pytest.raises(ConfigError, match="`rounding` must be left out, got floor: no port of unit chooses a mode"):
        bench.run([1.0], rounding="floor").send(None)
    with pytest.raises(FormatError, match="`flags` must be left out, got some: no port of unit has flags"):
        bench.run([1.0], flags=Flags()).send(None)


def test_a_dump_of_a_bench_has_a_column_for_each_result(tmp_path: Path):
    formats = {"formats": ("fix8f0", "fix8f0"), "out_format": "fix8f0"}
    d = Description(operation="divide", **formats, also=["remainder fix12f0"], count=10)  # pyright: ignore
    golden = make_vectors(d)
    results = (golden.results, *(each.results for each in further_results(golden)))
    cycles = [GIVEN | TAKEN | {"q": int(q), "r": int(r)} for q, r in zip(*results, strict=True)]
    ports = {"a": In("fix8f0"), "b": In("fix8f0"), "q": Out("fix8f0"), "r": Out("fix12f0")}
    bench = Replayed(ports, [*cycles, *[{}] * 20])
    with pytest.raises(StopIteration) as ended:
        bench.check(golden, dump=tmp_path / "dump.hex").send(None)
    assert ended.value.value is None
    lines = [f"{int(q):02x} {int(r):03x}" for q, r in zip(*results, strict=True)]
    assert (tmp_path / "dump.hex").read_text().splitlines() == lines


@pytest.mark.slow
@needs("icarus")
@pytest.mark.parametrize(
    ("top", "fault"),
    [
        *((top, 0) for top in ("multiply16_stream", "mac8_start", "dot4")),
        *(("multiply16_stream", fault) for fault in (1, 2, 6, 7)),
    ],
)  # fmt: skip
def test_in_a_simulation(top: str, fault: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runner_module = cocotb_runner()
    monkeypatch.setenv("FAULT", str(fault))
    monkeypatch.setenv("TOP", top)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    runner = runner_module.get_runner("icarus")
    runner.build(
        sources=sources_of(top),
        hdl_toplevel=top,
        parameters={"FAULT": fault},
        build_dir=tmp_path,
        timescale=("1ns", "1ps"),
    )
    results = runner.test(hdl_toplevel=top, test_module="in_cocotb", build_dir=tmp_path, test_dir=tmp_path)
    ran, failed = runner_module.get_results(results)
    assert ran > 0
    assert failed == 0


@pytest.mark.slow
@needs("icarus")
def test_the_page_of_cocotb_runs_as_it_stands(tmp_path: Path):
    cocotb_runner()
    pages = HERE.parents[1] / "docs" / "howto"
    for page, comment in (("rtl", "//"), ("cocotb", "#")):
        text = (pages / f"{page}.md").read_text()
        for name, block in re.findall(rf"^```\w+\n{comment} (\S+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            (tmp_path / name).write_text(block)
    done = subprocess.run([sys.executable, "run_mul8.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "TESTS=3 PASS=3 FAIL=0 SKIP=0" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(find_spec("cocotb") is not None, reason="cocotb is installed here")
def test_a_bench_says_that_cocotb_is_missing():
    library = import_module("emu.testing.rtl.cocotb")
    with pytest.raises(
        BackendUnavailable, match=r"needs cocotb, which is not installed; pip install 'emu-numerics\[cocotb\]'"
    ):
        library._library("cocotb")
