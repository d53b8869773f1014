"""The units of `tests/rtl/units/` as functions, and marks of tests that need a simulator."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from emu.testing.rtl import End, Flags, In, Mode, Out, Unit
from emu.testing.rtl.simulators import SIMULATORS
from emu.testing.vectors import Description, Vectors, make_vectors

UNITS = Path(__file__).parent / "units"
#: Modes of multiply16, as RISC-V numbers them.
MODES = {"nearest_even": 0, "toward_zero": 1, "floor": 2, "ceil": 3, "nearest_away": 4}
FLAGS = Flags(["inexact", "underflow", "overflow", "infinite", "invalid"])
PRODUCT = {"a": In("fp16"), "b": In("fp16"), "mode": Mode(MODES, 3), "y": Out("fp16"), "flags": FLAGS}
WITHOUT_FLAGS = {"a": In("fp16"), "b": In("fp16"), "y": Out("fp16")}
MAC = {"a": In("fix8f4"), "b": In("fix8f4"), "c": In("fix16f8"), "y": Out("fix16f8")}
SUM = {"a": In("fix8f4"), "b": In("fix8f4"), "first": End("first"), "last": End("last"), "y": Out("fix16f8")}
ROUNDED = {"x": In("fix24f12"), "y": Out("fix12f4"), "inexact": Flags(["inexact"])}
QUOTIENT = {"a": In("fix8f0"), "b": In("fix8f0"), "q": Out("fix8f0"), "r": Out("fix8f0")}
CLOCKED = {"clock": "clk", "reset": "rst_n"}
#: Options of each unit.
OPTIONS: dict[str, dict[str, Any]] = {
    "multiply16": {"ports": PRODUCT},
    "multiply16_pipe": {"ports": PRODUCT, **CLOCKED},
    "multiply16_stream": {"ports": PRODUCT, **CLOCKED, "handshake": "valid_ready"},
    "multiply16_strobes": {"ports": WITHOUT_FLAGS, "clock": "clk", "reset": "rst", "handshake": "stb_ack"},
    "mac8_start": {"ports": MAC, **CLOCKED, "handshake": "start_done"},
    "dot4": {"ports": SUM, **CLOCKED, "handshake": "valid_ready", "signals": {"accept": None, "take": None}},
    "dot4_half": {"ports": {"a": In("fp16", 4), "b": In("fp16", 4), "y": Out("fp16")}},
    "divide8": {"ports": QUOTIENT},
    "round24": {"ports": ROUNDED},
    "round24_stream": {"ports": ROUNDED, **CLOCKED, "handshake": "valid_ready"},
}
SOURCES = {"round24": ["round24.vhd"], "round24_stream": ["round24.vhd"]}


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(SIMULATORS[name].version() is None, reason=f"{name} is not installed here")


def cocotb_runner() -> Any:
    """What builds and runs cocotb's simulations; without it, or the library of Python, the test is skipped."""
    runner = pytest.importorskip("cocotb_tools.runner", reason="cocotb is not installed here")
    library = pytest.importorskip("find_libpython", reason="cocotb is not installed here")
    if library.find_libpython() is None:
        pytest.skip("cocotb needs Python as a shared library, which is not installed here")
    return runner


def sources_of(top: str) -> list[Path]:
    files = SOURCES.get(top, ["multiply16.v"] * (top.startswith("multiply16") or top == "dot4_half") + [f"{top}.v"])
    return [UNITS / name for name in dict.fromkeys(files)]


def unit_of(top: str, fault: int = 0, **options: Any) -> Unit:
    given = {"bound_cycles": 200, **OPTIONS[top], **options}
    language = "ghdl" if top.startswith("round24") else "icarus"
    parameters = {"FAULT": fault} if top != "dot4_half" else {}
    given = {"simulator": language, "parameters": parameters, **given}
    return Unit(sources_of(top), top, given.pop("ports"), **given)


@cache
def product_vectors(rounding: str = "nearest_even", count: int = 300) -> Vectors:
    """Products of binary16 with the flags of IEEE 754."""
    formats = {"formats": ("fp16", "fp16"), "out_format": "fp16"}
    return make_vectors(
        Description(operation="multiply", **formats, count=count, rounding=rounding, tininess="before_rounding")
    )
