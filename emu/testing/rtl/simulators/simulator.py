"""What all simulators share: how one is found, builds a testbench with the sources, and is run."""

from __future__ import annotations

import os
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from emu.errors import BackendUnavailable, ConfigError
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.languages.filled import Files

#: Lines of a simulator's complaints that a message shows.
MOST_LINES = 5
VERILOG, VHDL = "verilog", "vhdl"
SUFFIXES = {".v": VERILOG, ".sv": VERILOG, ".vh": VERILOG, ".svh": VERILOG, ".vhd": VHDL, ".vhdl": VHDL}


@dataclass(frozen=True)
class Sources:
    """The files of a unit.

    Attributes:
        paths: in the order in which they are compiled.
        include: folders of included files.
        defines: macros of Verilog.
        options: further words of the simulator's command.
        data: files that the unit reads by their names while it runs.
    """

    paths: tuple[Path, ...]
    include: tuple[Path, ...] = ()
    defines: Mapping[str, str] = field(default_factory=dict[str, str])
    options: tuple[str, ...] = ()
    data: tuple[Path, ...] = ()

    @property
    def language(self) -> str:
        """Verilog or VHDL.

        Raises:
            ConfigError: there is no file, one is missing or of another kind, or there are both languages.
        """
        kinds: set[str] = set()
        for path in self.paths:
            if path.suffix.lower() not in SUFFIXES:
                raise ConfigError(f"sources must end in {', '.join(SUFFIXES)}, got {path}; rename it")
            if not path.is_file():
                raise ConfigError(f"sources must be files, got {path}, which does not exist; check the path")
            kinds.add(SUFFIXES[path.suffix.lower()])
        if len(kinds) != 1:
            got = "Verilog and VHDL" if kinds else "none"
            raise ConfigError(f"`sources` must be files of one language, got {got}; name those of one unit")
        return kinds.pop()


@dataclass(frozen=True)
class Complaint:
    """A sentence about ports in a simulator's output.

    Attributes:
        pattern: finds it; its groups are the port, then perhaps widths.
        text: the message, with `{port}` and `{0}` for the groups, and `{top}` and `{bits}` for what was described.
    """

    pattern: re.Pattern[str]
    text: str


TOP = "`top` must be a module or an entity of the sources, got {port}, which none of them has; correct the name"
PARAMETER = "`parameters` must be those of {top}, got {port}, which it does not have; correct the name"
MISSING = "`ports` must name ports of {top}, got {port}, which it does not have; correct the name"
WIDTH = "port {port} of {top} has {0} bits, and {bits} bits are described for it; correct the format, or `width_bits`"
SOME_WIDTH = "a port of {top} has another width than is described for it; compare the formats with its ports"
UNNAMED = (
    "`ports` must name every input of {top}, but {port} is missing; add it, name it as `clock` or `reset`, or give "
    "Constant(...) if it never changes"
)


class Simulator(ABC):
    """A simulator of one language. A new one is a file with a class, and its row in `SIMULATORS`."""

    name: str
    language: str
    #: How to get it.
    remedy: str
    #: Whether bits that nothing drives come out as x.
    has_unknown: bool = True
    #: Kinds of waveforms by the ending of their file; "" builds a testbench without.
    waveforms: tuple[str, ...] = (".vcd",)
    #: Whether a waveform needs a testbench of its own.
    builds_waveforms: bool = False
    complaints: tuple[Complaint, ...] = ()
    #: Finds the lines of errors, with file and line.
    error: re.Pattern[str]

    @abstractmethod
    def version(self) -> str | None:
        """Return its version, None if it cannot be run here."""

    @abstractmethod
    def texts(self, bench: Bench) -> Files:
        """Return the files of the testbench."""

    @abstractmethod
    def build(self, bench: Bench, sources: Sources, folder: Path, waveform: str) -> str:
        """Build the testbench, whose files are in a folder, with the sources; return what was printed.

        Raises:
            Uncompiled: it does not compile.
        """

    @abstractmethod
    def command(self, folder: Path, sources: Sources, arguments: Mapping[str, int], trace: Path | None) -> list[str]:
        """Return the command that runs what was built."""

    def described(self, bench: Bench, sources: Sources) -> Bench:
        """Return the testbench with what only the sources say, such as types of ports."""
        return bench

    def require(self) -> str:
        """Return the version.

        Raises:
            BackendUnavailable: the simulator cannot be run here.
        """
        version = self.version()
        if version is None:
            raise BackendUnavailable(f"`simulator` must be present, got {self.name}, which is not; {self.remedy}")
        return version

    def require_ports(self, bench: Bench, sources: Sources, printed: str) -> None:
        """Look for complaints about ports, parameters and the name of the unit.

        Raises:
            ConfigError: one is missing, or a port has another width.
        """
        for complaint in self.complaints:
            for match in complaint.pattern.finditer(printed):
                # the wrapper's ports and the testbench's signals are called unit_NAME
                port, *rest = (group or "" for group in match.groups())
                port = port.removeprefix("unit_")
                text = complaint.text
                if text is TOP and port.lower() != bench.top.lower():  # a file of the unit is missing
                    continue
                if text is MISSING and port.lower() in map(str.lower, bench.parameters):
                    text = PARAMETER
                if text is UNNAMED and not self.is_input(port, sources):
                    continue
                # ports that are not described are clock, reset and handshake, of one bit
                bits = bench.widths().get(port, 1)
                raise ConfigError(text.format(*rest, port=port, top=bench.top, bits=bits))

    def is_input(self, port: str, sources: Sources) -> bool:
        """Return whether a port without a connection is an input, where its simulator does not say."""
        return True

    def errors_of(self, printed: str) -> list[str]:
        """Return the first lines with errors, or the first lines if no error has a line."""
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        return ([line for line in lines if self.error.search(line)] or lines)[:MOST_LINES]


class Uncompiled(Exception):  # noqa: N818 - says what is the case
    """The sources do not compile; its text is what the simulator printed."""


def printed_by(words: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command that builds something; return what it printed.

    Raises:
        Uncompiled: it failed.
    """
    run = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    printed = run.stdout + run.stderr
    if run.returncode:
        raise Uncompiled(printed)
    return printed


def first_line(words: Sequence[str]) -> str | None:
    """Return the first line that a command prints; None if there is no such command."""
    # PATH is part of the key: a command that is installed later, or hidden by a test, is asked again
    return _first_line(tuple(words), os.environ.get("PATH", ""))


@lru_cache
def _first_line(words: tuple[str, ...], _path: str) -> str | None:
    """Ask a command once on each PATH."""
    try:
        run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # some print their version on the error channel
    return (run.stdout or run.stderr).partition("\n")[0]
