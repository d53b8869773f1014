"""The testbench that `emu vectors --testbench` writes beside its vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emu.cli.options import BenchOptions
from emu.errors import ConfigError
from emu.testing.vectors import Description


@dataclass(frozen=True)
class WrittenTestbench:
    """What a command prints about a testbench; empty if none was asked for.

    Attributes:
        paths: its files.
        lines: how to run it.
        data: the same as values.
    """

    paths: list[Path] = field(default_factory=list[Path])
    lines: list[str] = field(default_factory=list[str])
    data: dict[str, Any] = field(default_factory=dict[str, Any])


def options_of_testbench(given: dict[str, Any], style: str) -> dict[str, Any]:
    """Take the options of a testbench out of all options, and return them.

    Raises:
        ConfigError: an option is of a testbench, but none is asked for, or vectors are TestFloat's lines.
    """
    # `given` loses them: what stays are keys of a description, which refuses others.
    options = {key: given.pop(key) for key in BenchOptions.__annotations__ if key in given}
    if options and "testbench" not in options:
        name = next(iter(options))
        raise ConfigError(f"`--{name}` is of a testbench, got no `--testbench`; add it: sv, vhdl, cpp or cocotb")
    if options and style == "testfloat":
        raise ConfigError("a testbench must read hexadecimal columns, got --style testfloat; leave it out")
    return options


def written_testbench(description: Description, folder: Path, options: dict[str, Any]) -> WrittenTestbench:
    """Write a testbench, if one is asked for.

    Raises:
        ConfigError: an option is wrong.
    """
    if not options:
        return WrittenTestbench()
    from emu.testing.rtl.testbenches import run_lines, write_testbench  # what few commands need

    language = options.pop("testbench")
    written = write_testbench(description, folder, language, **options)
    return WrittenTestbench(written.paths, run_lines(written, folder), {"commands": list(written.commands)})
