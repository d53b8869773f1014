"""Parts of testbenches in VHDL-2008, and what the ports of an entity are."""

from __future__ import annotations

import re

from emu.testing.rtl.bench import DRAINED_CYCLES, QUEUE, RESET_CYCLES, Bench, Input, Parameter, Signal
from emu.testing.rtl.languages.filled import Files, filled, require_different_signals
from emu.testing.rtl.languages.verilog import constants
from emu.testing.rtl.ports import FLAGS_WIDTH, Constant

TESTBENCH = "testbench.vhd"
#: A type that ports have unless the bench says otherwise.
PLAIN, BIT = "std_logic_vector", "std_logic"
#: Types of single bits.
BITS = {BIT, "std_ulogic"}
#: Packages of the types of ports beyond numeric_std.
PACKAGES = {
    "sfixed": "fixed_pkg",
    "ufixed": "fixed_pkg",
    "float": "float_pkg",
    "float32": "float_pkg",
    "float64": "float_pkg",
}


def testbench(bench: Bench, dump: str) -> Files:
    """Return the testbench.

    Raises:
        ConfigError: two ports have signals of one name.
    """
    inputs = bench.inputs
    widths = bench.widths()
    columns = [*bench.outs, *(["flags"] if bench.flags else [])]
    # signals of the testbench are plain vectors: types of ports appear only in conversions
    used = sorted({PACKAGES[t] for name in bench.ports if (t := _type(bench, name)) in PACKAGES})
    values = [*(f"digits_of({wire(name)})" for name in bench.outs), *(["digits_of(emu_flags)"] if bench.flags else [])]
    writes = [f"      write(row, {value});" for value in values]
    signals = [name for name in bench.ports if name not in bench.ends]
    # VHDL does not tell small letters from capital ones
    declared = [*signals, *(signal.name for signal in bench.watched())]
    require_different_signals(declared, lambda name: wire(name).lower())
    marks: dict[str, object] = {
        "TOP": bench.top,
        "FILES": ", ".join(f"{row.file}.hex" for row in inputs),
        "DUMP": dump,
        "COLUMNS": ", ".join(columns),
        "HANDSHAKE": " ".join([bench.handshake.name, *bench.handshake.names()]),
        "LIBRARIES": [f"use ieee.{package}.all;" for package in used],
        # GHDL sets generics of the top level with -gNAME=VALUE, as Verilog's plusargs are set
        "GENERICS": "".join(
            f";\n    {name} : integer := {next(iter(mode.codes.values()))}" for name, mode in bench.modes.items()
        ),
        "COUNT": bench.count,
        "LATENCY": bench.latency,
        "STEPS": bench.steps,
        "BOUND": bench.bound_cycles,
        "RESET_CYCLES": RESET_CYCLES,
        "DRAINED_CYCLES": DRAINED_CYCLES,
        "QUEUE": QUEUE,
        **constants(bench),
        "DECLARATIONS": [
            *(f"  signal {wire(name)} : std_logic_vector({widths[name] - 1} downto 0);" for name in signals),
            *(f"  signal {wire(signal.name)} : std_logic;" for signal in bench.watched()),
        ],
        "ACCEPTS": _accepts(bench),
        "RESULT": _active(bench.result) if bench.result else "'0'",
        "FLAGS": _flags(bench),
        "PARAMETERS": _generic_map(bench),
        "CONNECTIONS": ",\n".join(_connections(bench)),
        "FILE_DECLARATIONS": [f"    file file_{row.file} : text;" for row in inputs],
        "LOADS": [line for row in inputs for line in _load(row)],
        "SCRAMBLES": [line for row in inputs for line in _scramble(row)],
        "WRITES": [
            line
            for i, write in enumerate(writes)
            for line in ([write] if i == 0 else ["      write(row, ' ');", write])
        ],
        "OPENS": [f'    file_open(file_{row.file}, "{row.file}.hex", read_mode);' for row in inputs],
        "ZEROS": [
            *(f"    {wire(row.port)} <= (others => '0');" for row in inputs),
            *(
                f"    {wire(name)} <= {_code(name, port)};"
                for name, port in bench.ports.items()
                if name in bench.constants or name in bench.modes
            ),
        ],
        "STATE": ' & ", " & '.join(f'"{s.name}=" & to_string({wire(s.name)})' for s in bench.watched())
        or '"no signal"',
    }
    return {TESTBENCH: filled(TESTBENCH, marks)}


def wire(name: str) -> str:
    """Return the name that a port's signal has in a testbench; VHDL has no two underscores in a row."""
    return "unit_" + re.sub("__+", "_", name).strip("_")


def _type(bench: Bench, name: str) -> str:
    return bench.types.get(name.lower(), PLAIN)


def _code(name: str, port: object) -> str:
    if isinstance(port, Constant):
        return f'"{port.code:0{port.width_bits}b}"'
    width = port.width_bits  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    return f"std_logic_vector(to_unsigned({name}, {width}))"


def _active(signal: Signal) -> str:
    return ("not " if signal.is_low else "") + wire(signal.name)


def _accepts(bench: Bench) -> str:
    if not bench.accepts:
        return "(others => '1')"
    pairs = ", ".join(f"{i} => {_active(signal)}" for i, signal in enumerate(bench.accepts))
    return f"({pairs})"


def _flags(bench: Bench) -> list[str]:
    if not bench.flags:
        return ["  emu_flags <= (others => '0');"]
    wire_bits = [*bench.flag_bits, *([None] * (FLAGS_WIDTH - len(bench.flag_bits)))]
    bits = [f"{wire(wire_bit[0])}({wire_bit[1]})" if wire_bit else "'0'" for wire_bit in wire_bits]
    return [f"  emu_flags({i}) <= {bit};" for i, bit in enumerate(bits)]


def _literal(value: Parameter) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _generic_map(bench: Bench) -> str:
    if not bench.parameters:
        return ""
    return (
        "generic map (" + ", ".join(f"{name} => {_literal(value)}" for name, value in bench.parameters.items()) + ") "
    )


def _connections(bench: Bench) -> list[str]:
    lines: list[str] = []
    for name in bench.driven():
        kind = _type(bench, name)
        if name in bench.ends:
            lines.append(f"    {name} => emu_{bench.ends[name].of}")
        elif kind in BITS:
            lines.append(f"    {name} => {wire(name)}(0)")
        else:
            lines.append(f"    {name} => {wire(name) if kind == PLAIN else f'{kind}({wire(name)})'}")
    for name in bench.read():
        kind = _type(bench, name)
        if kind in BITS:
            lines.append(f"    {name} => {wire(name)}(0)")
        else:
            lines.append(f"    {name if kind == PLAIN else f'{PLAIN}({name})'} => {wire(name)}")
    pairs = [(signal, f"emu_offers({i})") for i, signal in enumerate(bench.offers)]
    if bench.take:
        pairs.append((bench.take, "emu_take"))
    if bench.reset_signal:
        pairs.append((bench.reset_signal, "emu_reset"))
    lines += [f"    {signal.name} => {'not ' if signal.is_low else ''}{value}" for signal, value in pairs]
    lines += [f"    {signal.name} => {wire(signal.name)}" for signal in bench.watched()]
    return lines + ([] if bench.clock is None else [f"    {bench.clock} => emu_clock"])


def _load(row: Input) -> list[str]:
    name, width = wire(row.port), row.width_bits
    if row.terms == 1:
        reading = [f"{name} <= next_code(file_{row.file}, {width});"]
    else:
        index = "i" if row.first_is_low else f"({row.terms - 1} - i)"
        reading = [
            f"for i in 0 to {row.terms - 1} loop",
            f"  {name}({index} * {width} + {width - 1} downto {index} * {width}) <=",
            f"    next_code(file_{row.file}, {width});",
            "end loop;",
        ]
    if row.once:
        reading = ["if step = 0 then", *(f"  {line}" for line in reading), "end if;"]
    return [f"      {line}" for line in reading]


def _scramble(row: Input) -> list[str]:
    noise = f"{wire(row.port)} <= noise({row.width_bits * row.terms});"
    return [f"        if pending({row.channel}) = '0' then", f"          {noise}", "        end if;"]
