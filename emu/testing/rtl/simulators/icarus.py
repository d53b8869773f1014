"""Icarus Verilog: compiles in a moment, and shows x and z."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from emu.testing.rtl.bench import Bench
from emu.testing.rtl.languages import verilog
from emu.testing.rtl.languages.filled import Files
from emu.testing.rtl.simulators.simulator import (
    MISSING,
    PARAMETER,
    TOP,
    UNNAMED,
    VERILOG,
    WIDTH,
    Complaint,
    Simulator,
    Sources,
    first_line,
    printed_by,
)

_PROGRAM = "testbench.vvp"


class Icarus(Simulator):
    """`iverilog` and `vvp`."""

    name = "icarus"
    language = VERILOG
    remedy = "install it: apt-get install iverilog, or brew install icarus-verilog"
    waveforms = (".vcd", ".fst")
    error = re.compile(r"^\S+?:\d+: .*(error|sorry)|syntax error|Unknown module|Unable to open|No such file")
    complaints = (
        Complaint(re.compile(r"Unknown module type: (\w+)"), TOP),
        Complaint(re.compile(rf"{verilog.TESTBENCH}:\d+: warning: parameter (\w+) not found in"), PARAMETER),
        Complaint(re.compile(r"port ``(\w+)'' is not a port of unit"), MISSING),
        Complaint(
            re.compile(rf"{verilog.TESTBENCH}:\d+: warning: Port \d+ \((\w+)\) of \S+ expects (\d+) bits"), WIDTH
        ),
        Complaint(
            re.compile(rf"{verilog.TESTBENCH}:\d+: warning: .*dangling input port \d+ \((\w+)\) floating"), UNNAMED
        ),
    )

    @override
    def version(self) -> str | None:
        return first_line(["iverilog", "-V"])

    @override
    def texts(self, bench: Bench) -> Files:
        return verilog.testbench(bench, "dump.hex")

    @override
    def build(self, bench: Bench, sources: Sources, folder: Path, waveform: str) -> str:
        return printed_by(
            [
                # -Wportbind warns of ports without a connection, from which UNNAMED is made
                *("iverilog", "-g2012", "-Wportbind", "-s", "emu_testbench", "-o", _PROGRAM),
                *(f"-I{path.resolve()}" for path in sources.include),
                *(f"-D{name}={value}" for name, value in sources.defines.items()),
                *sources.options,
                verilog.TESTBENCH,
                *(path.resolve() for path in sources.paths),
            ],
            folder,
        )

    @override
    def command(self, folder: Path, sources: Sources, arguments: Mapping[str, int], trace: Path | None) -> list[str]:
        # -n: $stop ends the simulation instead of waiting for a command
        words = ["vvp", "-n", str(folder / _PROGRAM)]
        if trace is not None:
            words += ["-fst"] * (trace.suffix == ".fst") + [f"+trace={trace}"]
        return [*words, *(f"+{name}={value}" for name, value in arguments.items())]
