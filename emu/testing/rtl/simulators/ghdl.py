"""GHDL, for units in VHDL: shows U and X as x."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from emu.errors import ConfigError
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.languages import vhdl
from emu.testing.rtl.languages.entity import EntityPort, ports_of_entity
from emu.testing.rtl.languages.filled import Files
from emu.testing.rtl.simulators.simulator import (
    MISSING,
    SOME_WIDTH,
    TOP,
    UNNAMED,
    VHDL,
    WIDTH,
    Complaint,
    Simulator,
    Sources,
    first_line,
    printed_by,
)

# VHDL-2008: the testbench needs its to_string
_STANDARD = "--std=08"


class Ghdl(Simulator):
    """`ghdl`."""

    name = "ghdl"
    language = VHDL
    remedy = "install it: apt-get install ghdl, or brew install ghdl"
    waveforms = (".vcd", ".fst", ".ghw")
    error = re.compile(r"^\S+?:\d+:\d+:|error")
    complaints = (
        Complaint(re.compile(rf'{vhdl.TESTBENCH}:\d+:\d+: unit "(\w+)" not found in library'), TOP),
        Complaint(re.compile(rf'{vhdl.TESTBENCH}:\d+:\d+: no declaration for "(\w+)"'), MISSING),
        Complaint(re.compile(rf'{vhdl.TESTBENCH}:\d+:\d+: port "(\w+)" of mode IN must be connected'), UNNAMED),
        # GHDL names no port here
        Complaint(re.compile(rf"(bound check failure) at {vhdl.TESTBENCH}"), SOME_WIDTH),
    )

    @override
    def version(self) -> str | None:
        return first_line(["ghdl", "--version"])

    @override
    def described(self, bench: Bench, sources: Sources) -> Bench:
        ports: dict[str, EntityPort] = {}
        # types of ports are needed before anything is compiled: the testbench converts its vectors to them
        for path in sources.paths:
            ports |= ports_of_entity(path.read_text(encoding="utf-8", errors="replace"), bench.top, bench.parameters)
        for name, bits in bench.widths().items():
            if (port := ports.get(name.lower())) is not None and port.width_bits not in (None, bits):
                raise ConfigError(WIDTH.format(port.width_bits, port=name, top=bench.top, bits=bits))
        # types that were given win over those read from the source
        return replace(bench, types={**{name: port.type for name, port in ports.items()}, **bench.types})

    @override
    def texts(self, bench: Bench) -> Files:
        return vhdl.testbench(bench, "dump.hex")

    @override
    def build(self, bench: Bench, sources: Sources, folder: Path, waveform: str) -> str:
        paths = [*(path.resolve() for path in sources.paths), vhdl.TESTBENCH]
        printed = printed_by(["ghdl", "-a", _STANDARD, *sources.options, *paths], folder)
        printed += printed_by(["ghdl", "-e", _STANDARD, *sources.options, "emu_testbench"], folder)
        # some builds of GHDL elaborate only when they run: then widths are compared here
        return printed + printed_by(["ghdl", "-r", _STANDARD, *sources.options, "emu_testbench", "--no-run"], folder)

    @override
    def command(self, folder: Path, sources: Sources, arguments: Mapping[str, int], trace: Path | None) -> list[str]:
        words = ["ghdl", "-r", _STANDARD, *sources.options, f"--workdir={folder}", "emu_testbench"]
        # the arguments are generics of the testbench
        words += [f"-g{name}={value}" for name, value in arguments.items()]
        if trace is not None:
            words.append({".fst": "--fst", ".ghw": "--wave"}.get(trace.suffix, "--vcd") + f"={trace}")
        return words
