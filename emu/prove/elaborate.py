"""Sources to circuits: Yosys reads, flattens and maps them to AND gates, inverters and registers."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.errors import ConfigError, nearest_name
from emu.prove import yosys
from emu.prove.circuit import Circuit, read_aiger

#: Types of Yosys' cells: registers, as $dff or $aldff before mapping and $_DFF_P_ after it, and latches.
_REGISTER = re.compile(r"^\$(a|s|al)?dffs?r?e?$|^\$sdffce$|^\$_(S|AL)?DFF")
_LATCH = re.compile(r"^\$(a)?dlatch(sr)?$|^\$sr$|^\$_DLATCH|^\$_SR_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*\Z")
#: Endings of files that sources may include.
_INCLUDED = {".v", ".vh", ".sv", ".svh", ".h", ".inc"}
_MACRO = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(=[^\s;\"#]*)?\Z")
_MODULE = re.compile(r"^\s*module\s+(?:automatic\s+|static\s+)?([A-Za-z_][A-Za-z0-9_$]*)", re.MULTILINE)

# of "file:line.column-line.column|more": "file:line"
_PLACE = re.compile(r"(.+?:\d+)\.\d+-\d+\.\d+")


@dataclass(frozen=True)
class PortOf:
    """A port of a module: `input` or `output`, and its width."""

    direction: str
    width: int


@dataclass(frozen=True)
class Netlist:
    """A module as gates and registers.

    Attributes:
        ports: by name.
        circuit: its inputs are those of `inputs`, then undefined bits, then registers.
        inputs: number of each bit of an input port, by (port, bit).
        outputs: literal of each bit of an output port.
        registers: literal of each register's next value.
        register: name of a register, for people; "" without any.
        clocks: ports that registers are clocked by; "" for another signal.
    """

    ports: Mapping[str, PortOf]
    circuit: Circuit
    inputs: Mapping[tuple[str, int], int]
    outputs: Mapping[tuple[str, int], int]
    registers: tuple[int, ...]
    register: str
    clocks: frozenset[str]

    @property
    def n_undefined(self) -> int:
        """How many bits are x or driven by nothing."""
        # what remains: each undefined bit has become an input of its own (`anyseq`)
        return self.circuit.n_inputs - len(self.registers) - len(self.inputs)


@dataclass(frozen=True)
class Sources:
    """Files, their top module, and how they are read.

    Attributes:
        files: Verilog or SystemVerilog.
        top: the module.
        parameters: values of its parameters, by name.
        include: folders of included files.
        define: macros, NAME or NAME=VALUE.
    """

    files: tuple[Path, ...]
    top: str
    parameters: Mapping[str, int] | None = None
    include: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()


def netlist_of(sources: Sources) -> Netlist:
    """Return a module as gates and registers.

    Raises:
        ConfigError: a file is missing, Yosys does not take the sources, the top module is missing, or it has a latch.
        BackendUnavailable: there is no Yosys.
    """
    _require(sources)
    with tempfile.TemporaryDirectory(prefix="emu-prove-") as name:
        folder = Path(name)
        copies = _copied(sources, folder)
        try:
            yosys.run(_script(sources, copies), folder)
        except yosys.YosysError as error:
            raise _explained(_with_paths(str(error), copies), sources) from None
        module = _top(json.loads((folder / "unit.json").read_text(encoding="utf-8")))
        _require_no_latch(module, sources.top, copies)
        following, out, circuit = read_aiger(folder / "unit.aag")
        rows = [line.split() for line in (folder / "unit.map").read_text(encoding="utf-8").splitlines()]
        mapped = _top(json.loads((folder / "mapped.json").read_text(encoding="utf-8")))
    # Bits of outputs that are constants are no outputs of the AIGER file.
    constants = {
        (port, bit): int(value)
        for port, content in mapped["ports"].items()
        for bit, value in enumerate(content["bits"])
        if value in ("0", "1")
    }
    return _netlist(module, following, out, circuit, rows, constants)


def _require(sources: Sources) -> None:
    if not sources.files:
        raise ConfigError("`sources` must be one Verilog file or more, got none; give --sources")
    for path in sources.files:
        if not path.is_file():
            raise ConfigError(f"`sources` must be files, got {str(path)!r}, which is none; correct the path")
    # names and macros are written into a script of Yosys, so nothing else than a word may pass
    names = {"top": sources.top, **{f"parameter {name}": name for name in sources.parameters or {}}}
    for what, name in names.items():
        if not _NAME.match(name):
            raise ConfigError(f"`{what}` must be a Verilog name, got {name!r}; write it as the source does")
    for macro in sources.define:
        if not _MACRO.match(macro):
            raise ConfigError(
                f"`define` must be NAME or NAME=VALUE without blanks, quotes, `;` and `#`, got {macro!r}; put the "
                "macro into a file"
            )
    for path in sources.include:
        if not path.is_dir():
            raise ConfigError(f"`include` must be folders, got {str(path)!r}, which is none; correct the path")
    for path in sources.files:
        if '"' in str(path) or "\n" in str(path):
            raise ConfigError(f"paths of `sources` must be without quotes, got {str(path)!r}; rename it")


def _copied(sources: Sources, folder: Path) -> dict[str, Path]:
    """Copy sources into a folder, each into one of its own; return where each copy comes from.

    Folders of included files get names there, too, which have no spaces. The wheel of Yosys runs in a sandbox that has
    a `/tmp` of its own and follows no links out of it: there, what sources may include is copied.
    """
    copies = dict[str, Path]()
    for number, path in enumerate(sources.files):
        (folder / str(number)).mkdir()
        copies[f"{number}/{path.name}"] = path
        shutil.copyfile(path, folder / str(number) / path.name)
    for number, path in enumerate(_folders(sources)):
        linked = folder / f"include{number}"
        if not yosys.is_wheel():
            linked.symlink_to(path, target_is_directory=True)
            continue
        linked.mkdir()
        for header in path.iterdir():
            if header.suffix in _INCLUDED and header.is_file():
                shutil.copyfile(header, linked / header.name)
    return copies


def _folders(sources: Sources) -> list[Path]:
    """Return the folders of included files, those of the sources last."""
    return [*dict.fromkeys(path.resolve() for path in (*sources.include, *(path.parent for path in sources.files)))]


def _script(sources: Sources, copies: Mapping[str, Path]) -> str:
    options = [f"-Iinclude{number}" for number in range(len(_folders(sources)))]
    options += [f"-D{macro}" for macro in sources.define]
    # Names in quotes are single words, spaces included.
    files = " ".join(f'"{copy}"' for copy in copies)
    parameters = " ".join(f"-chparam {name} {value}" for name, value in (sources.parameters or {}).items())
    return "\n".join(
        [
            f"read_verilog -sv {' '.join(options)} {files}",
            f"hierarchy -check -top {sources.top} {parameters}",
            "proc",
            "flatten",
            # What nobody drives (z) is undefined (x). Several drivers of a wire, and loops, are refused.
            "setundef -undef",
            "setundef -undriven -anyseq",
            "check -assert",
            # Assertions of the source are no gates; an assumption is not believed: all inputs are proved.
            "chformal -remove",
            "memory",
            "opt_expr",
            "opt_muxtree",
            "opt_reduce",
            "opt_clean",
            # An undefined bit is any bit, another one in each place: the proof must hold for all of them.
            "setundef -undriven -anyseq",
            "opt_clean",
            "write_json unit.json",
            # asynchronous resets become synchronous ones; enables and resets then become gates in front of plain
            # registers
            "async2sync",
            "dffunmap",
            "techmap",
            "opt_expr",
            "opt_merge",
            "opt_clean",
            # A bit that is selected beyond a word is undefined, and appears here.
            "setundef -undriven -anyseq",
            "aigmap",
            "opt_clean",
            "write_aiger -ascii -no-startoffset -map unit.map unit.aag",
            "write_json mapped.json",
            "",
        ]
    )


def _with_paths(text: str, copies: Mapping[str, Path]) -> str:
    """Return a message of Yosys, which names the copies of the sources, with the paths that users know."""
    # in one pass, because a path may contain the name of a copy; 0/a.v is no part of 10/a.v
    names = "|".join(re.escape(copy) for copy in copies)
    return re.sub(rf"(?<!\w)(?:{names})", lambda name: str(copies[name[0]]), text)


def _explained(text: str, sources: Sources) -> ConfigError:
    if f"`\\{sources.top}' not found" in text or f"`{sources.top}' not found" in text:
        modules = [name for path in sources.files for name in _MODULE.findall(path.read_text(errors="replace"))]
        return ConfigError(
            f"`top` must be a module of the sources, got {sources.top!r}{nearest_name(sources.top, modules)}"
        )
    return ConfigError(
        f"sources must be what {yosys.version()} reads, got: {text}; correct them, or give a version without what it "
        "does not know"
    )


def _top(netlist: Any) -> Any:
    modules: dict[str, Any] = netlist["modules"]
    return next(module for module in modules.values() if int(module["attributes"].get("top", "0"), 2))


def _require_no_latch(module: Any, top: str, copies: Mapping[str, Path]) -> None:
    latches = [
        cell["attributes"].get("src", name) for name, cell in module["cells"].items() if _LATCH.match(cell["type"])
    ]
    if latches:
        place = _PLACE.match(str(latches[0]))
        place = _with_paths(place[1] if place else str(latches[0]), copies)
        raise ConfigError(
            f"a unit must be without latches, got {len(latches)} in {top}, the first at {place}; assign its output in "
            "every branch"
        )


def _netlist(
    module: Any,
    following: list[int],
    out: list[int],
    circuit: Circuit,
    rows: list[list[str]],
    constants: dict[tuple[str, int], int],
) -> Netlist:
    ports = {name: PortOf(port["direction"], len(port["bits"])) for name, port in module["ports"].items()}
    # net -> port, by which a clock's net is known
    owner = {bit: name for name, port in module["ports"].items() for bit in port["bits"] if isinstance(bit, int)}
    clocks = {
        owner.get(cell["connections"]["CLK"][0], "")
        + ("" if int(str(cell["parameters"].get("CLK_POLARITY", "1")), 2) else " (falling)")
        for cell in module["cells"].values()
        if _REGISTER.match(cell["type"]) and "CLK" in cell["connections"]
    }
    # a row of the map: kind, number in the AIGER file, bit of the port, name of the port
    inputs = {(row[3], int(row[2])): int(row[1]) for row in rows if row[0] == "input"}
    outputs = {(row[3], int(row[2])): out[int(row[1])] for row in rows if row[0] == "output"}
    outputs = constants | outputs
    return Netlist(ports, circuit, inputs, outputs, tuple(following), _first_register(module), frozenset(clocks))


def _first_register(module: Any) -> str:
    """Return the name of the first register that has one in the source."""
    written = {
        bit
        for cell in module["cells"].values()
        if _REGISTER.match(cell["type"])
        for bit in cell["connections"].get("Q", [])
    }
    names = [
        name
        for name, net in module["netnames"].items()
        if not int(str(net.get("hide_name", 0))) and written & {*net["bits"]}
    ]
    return min(names, default="")
