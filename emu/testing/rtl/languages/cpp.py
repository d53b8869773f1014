"""Parts of testbenches in C++ for Verilator, which wraps the unit in a module with ports of known names and widths."""

from __future__ import annotations

import re

from emu.testing.rtl.bench import DRAINED_CYCLES, QUEUE, RESET_CYCLES, Bench, Input, Signal
from emu.testing.rtl.languages.filled import Files, filled, require_different_signals
from emu.testing.rtl.languages.verilog import constants, parameters, vector

TESTBENCH, WRAPPER = "testbench.cpp", "emu_unit.sv"


def testbench(bench: Bench, dump: str) -> Files:
    """Return the testbench and the module around the unit.

    Raises:
        ConfigError: two ports have signals of one name.
    """
    inputs, state = bench.inputs, bench.watched()
    columns = [*bench.outs, *(["flags"] if bench.flags else [])]
    marks: dict[str, object] = {
        "TOP": bench.top,
        "FILES": ", ".join(f"{row.file}.hex" for row in inputs),
        "DUMP": dump,
        "COLUMNS": ", ".join(columns),
        "HANDSHAKE": " ".join([bench.handshake.name, *bench.handshake.names()]),
        "COUNT": bench.count,
        "LATENCY": bench.latency,
        "STEPS": bench.steps,
        "BOUND": bench.bound_cycles,
        "RESET_CYCLES": RESET_CYCLES,
        "DRAINED_CYCLES": DRAINED_CYCLES,
        "QUEUE": QUEUE,
        **constants(bench),
        "OPENS": [f'    FILE* const file_{row.file} = opened("{row.file}.hex", "r");' for row in inputs],
        "DRIVES": _drives(bench),
        "RISES": _clock(bench, 1),
        "FALLS": _clock(bench, 0),
        "LOADS": [line for row in inputs for line in _load(row)],
        "SCRAMBLES": [line for row in inputs for line in _scramble(row)],
        "WRITES": _writes(bench),
        "RESULT": _active(bench.result) if bench.result else "false",
        # bit i is channel i; `all` of the testbench has every channel's bit
        "ACCEPTS": " | ".join(f"uint64_t{{{_active(s)}}} << {i}" for i, s in enumerate(bench.accepts)) or "all",
        "ZEROS": [
            *(
                f'    unit->{port(name)} = number_of(argc, argv, "{name}", {next(iter(mode.codes.values()))});'
                for name, mode in bench.modes.items()
            ),
            *(f"    unit->{port(name)} = {constant.code};" for name, constant in bench.constants.items()),
        ],
        "STATE_FORMAT": ", ".join(f"{signal.name}=%d" for signal in state) or "no signal",
        "STATE_VALUES": "".join(f", static_cast<int>(unit->{port(signal.name)})" for signal in state),
    }
    return {TESTBENCH: filled(TESTBENCH, marks), WRAPPER: wrapper(bench)}


def port(name: str) -> str:
    """Return the name of a port of the wrapper: Verilator rewrites names with two underscores in a row."""
    return "unit_" + re.sub("__+", "_", name).strip("_")


def wrapper(bench: Bench) -> str:
    """Return the module that Verilator compiles: its ports have the described widths.

    Raises:
        ConfigError: two ports have signals of one name.
    """
    # Verilator compares these widths with those of the unit's ports, and warns: `Verilator.complaints` reads it
    widths = bench.widths()
    driven = {name: widths[name] for name in bench.driven()}
    singles = [
        *bench.offers,
        *([bench.take] if bench.take else []),
        *([bench.reset_signal] if bench.reset_signal else []),
    ]
    driven |= {signal.name: 1 for signal in singles} | ({} if bench.clock is None else {bench.clock: 1})
    read = {name: widths[name] for name in bench.read()} | {signal.name: 1 for signal in bench.watched()}
    require_different_signals([*driven, *read], port)
    heads = [f"  input wire {vector(width)} {port(name)}" for name, width in driven.items()]
    heads += [f"  output wire {vector(width)} {port(name)}" for name, width in read.items()]
    pins = [f"    .{name}({port(name)})" for name in [*driven, *read]]
    return (
        f"// {bench.top} with ports of the widths that its testbench drives and reads.\n"
        "module emu_unit (\n" + ",\n".join(heads) + "\n);\n"
        f"  {bench.top} {parameters(bench)}unit (\n" + ",\n".join(pins) + "\n  );\nendmodule\n"
    )


def _active(signal: Signal) -> str:
    return f"({'!' if signal.is_low else ''}unit->{port(signal.name)})"


def _drives(bench: Bench) -> list[str]:
    pairs = [(signal, f"offers >> {i} & 1") for i, signal in enumerate(bench.offers)]
    if bench.take:
        pairs.append((bench.take, "take"))
    if bench.reset_signal:
        pairs.append((bench.reset_signal, "reset"))
    lines = [f"        unit->{port(signal.name)} = {'!' if signal.is_low else ''}({value});" for signal, value in pairs]
    return lines + [f"        unit->{port(name)} = {end.of};" for name, end in bench.ends.items()]


def _clock(bench: Bench, level: int) -> list[str]:
    return [] if bench.clock is None else [f"        unit->{port(bench.clock)} = {level};"]


def _load(row: Input) -> list[str]:
    name, width = port(row.port), row.width_bits
    if row.terms == 1:
        line = f"set_bits(unit->{name}, 0, {width}, next_code(file_{row.file}));"
    else:
        # a file lists the first term first
        index = "i" if row.first_is_low else f"({row.terms - 1} - i)"
        line = (
            f"for (int i = 0; i < {row.terms}; ++i) "
            f"set_bits(unit->{name}, {index} * {width}, {width}, next_code(file_{row.file}));"
        )
    return [f"        {'if (step == 0) ' if row.once else ''}{line}"]


def _scramble(row: Input) -> list[str]:
    name, width = port(row.port), row.width_bits * row.terms
    # 64 bits at a time, as many as `random_bits` gives
    words = [
        f"set_bits(unit->{name}, {low}, {min(width - low, 64)}, random_bits(seed));" for low in range(0, width, 64)
    ]
    return [f"        if (!(pending >> {row.channel} & 1)) {{", *(f"            {word}" for word in words), "        }"]


def _writes(bench: Bench) -> list[str]:
    outs = [
        (f'%0{-(-out.width_bits // 4)}" PRIx64 "', f"static_cast<uint64_t>(unit->{port(name)})")
        for name, out in bench.outs.items()
    ]
    if bench.flags:
        bits = [
            # != 0 makes a bool, which fits the braces without narrowing
            f"uint64_t{{(unit->{port(wire_bit[0])} >> {wire_bit[1]} & 1u) != 0}} << {bit}"
            for bit, wire_bit in enumerate(bench.flag_bits)
            if wire_bit
        ]
        outs.append(('%02" PRIx64 "', " | ".join(bits)))
    formats, values = zip(*outs, strict=True)
    return [f'        std::fprintf(dump, "{" ".join(formats)}\\n", {", ".join(values)});']
