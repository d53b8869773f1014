"""Languages of testbenches. Each is a file that writes one from its description, and a row: how it is run.

The commands are run in the folder of the vectors, `SOURCES` stands for the files of the unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emu.errors import ConfigError, nearest_name
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.languages import cpp, python, verilog, vhdl
from emu.testing.rtl.languages.filled import Files


@dataclass(frozen=True)
class Language:
    """A language.

    Attributes:
        name: as `--testbench` takes it.
        testbench: returns the files for a description and the name of the dump.
        commands: that build and run it; the first one that is present will do.
    """

    name: str
    testbench: Callable[[Bench, str], Files]
    commands: tuple[str, ...]


LANGUAGES = {
    row.name: row
    for row in (
        Language(
            "sv",
            verilog.testbench,
            (
                "iverilog -g2012 -s emu_testbench -o testbench.vvp testbench.sv SOURCES && vvp -n testbench.vvp",
                "verilator --binary --timing -Wno-fatal --top-module emu_testbench testbench.sv SOURCES "
                "&& obj_dir/Vemu_testbench",
            ),
        ),
        Language(
            "vhdl",
            vhdl.testbench,
            (
                "ghdl -a --std=08 SOURCES testbench.vhd && ghdl -e --std=08 emu_testbench "
                "&& ghdl -r --std=08 emu_testbench",
            ),
        ),
        Language(
            "cpp",
            cpp.testbench,
            (
                "verilator --cc --exe --build -Wno-fatal --top-module emu_unit -o emu_unit emu_unit.sv testbench.cpp "
                "SOURCES && obj_dir/emu_unit",
            ),
        ),
        Language(
            "cocotb", python.testbench, ("python testbench.py SOURCES", "SIM=verilator python testbench.py SOURCES")
        ),
    )
}


def language_of(name: str) -> Language:
    """Return a row of the list.

    Raises:
        ConfigError: there is none.
    """
    if name not in LANGUAGES:
        raise ConfigError(
            f"`testbench` must be one of {', '.join(LANGUAGES)}, got {name!r}{nearest_name(name, LANGUAGES)}"
        )
    return LANGUAGES[name]
