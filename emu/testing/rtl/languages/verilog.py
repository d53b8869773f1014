"""Parts of testbenches in SystemVerilog, and of the module that Verilator wraps around a unit."""

from __future__ import annotations

from emu.testing.rtl.bench import DRAINED_CYCLES, QUEUE, RESET_CYCLES, Bench, Input, Parameter, Signal
from emu.testing.rtl.languages.filled import Files, filled
from emu.testing.rtl.ports import FLAGS_WIDTH, Mode

TESTBENCH = "testbench.sv"


def wire(port: str) -> str:
    """Return the name that a port's signal has in a testbench."""
    return f"unit_{port}"


def vector(width_bits: int) -> str:
    """Return the range of a signal."""
    return f"[{width_bits - 1}:0]"


def testbench(bench: Bench, dump: str) -> Files:
    """Return the testbench."""
    ports = bench.widths()
    state = [signal.name for signal in bench.watched()]
    columns = [*bench.outs, *(["flags"] if bench.flags else [])]
    digits = ["%h" for _ in columns]
    # %h without a width prints all digits of a vector, with x and z in their places
    values = [*(wire(name) for name in bench.outs), *(["flags"] if bench.flags else [])]
    reads = [f"  wire {vector(ports[name])} {wire(name)};" for name in bench.read()]
    marks: dict[str, object] = {
        "TOP": bench.top,
        "FILES": ", ".join(f"{row.file}.hex" for row in bench.inputs),
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
        "DECLARATIONS": [
            *(f"  reg {vector(ports[name])} {wire(name)};" for name in bench.driven() if name not in bench.ends),
            *reads,
            *(f"  wire {wire(signal.name)};" for signal in bench.watched()),
            *(f"  integer file_{row.file};" for row in bench.inputs),
        ],
        # a concatenation lists the highest bit first: channel 0 comes last
        "ACCEPTS": "{" + ", ".join(_active(s) for s in reversed(bench.accepts)) + "}" if bench.accepts else "~0",
        "RESULT": _active(bench.result) if bench.result else "1'b0",
        "FLAGS": _flags(bench),
        "PARAMETERS": parameters(bench),
        "CONNECTIONS": ",\n".join(connections(bench)),
        "LOADS": [line for row in bench.inputs for line in _load(row)],
        "SCRAMBLES": [f"      if (!pending[{row.channel}]) {wire(row.port)} = {_noise(row)};" for row in bench.inputs],
        "FORMAT": " ".join(digits),
        "VALUES": "".join(f", {value}" for value in values),
        "MODES": [line for name, mode in bench.modes.items() for line in _mode(name, mode)],
        "OPENS": [f'    file_{row.file} = $fopen("{row.file}.hex", "r");' for row in bench.inputs],
        "ZEROS": [
            *(f"    {wire(row.port)} = 0;" for row in bench.inputs),
            # with its width: a number without one has 32 bits
            *(f"    {wire(name)} = {port.width_bits}'d{port.code};" for name, port in bench.constants.items()),
        ],
        "STATE_FORMAT": ", ".join(f"{name}=%b" for name in state) or "no signal",
        "STATE_VALUES": "".join(f", {wire(name)}" for name in state),
    }
    return {TESTBENCH: filled(TESTBENCH, marks)}


def constants(bench: Bench) -> dict[str, object]:
    """Return the handshake as numbers."""
    row = bench.handshake
    return {
        "CHANNELS": bench.channels,
        "HAS_OFFER": int(row.offer is not None),
        "HAS_TAKE": int(row.take is not None),
        "HAS_RESULT": int(row.result is not None),
        "OVERLAPS": int(row.overlaps),
        "AT_ONCE": int(row.result_at_once),
        "MAY_STAY": int(row.result_may_stay),
        "FIRST_ALONE": int(row.offers_first_alone),
        "HOLDS": int(row.holds),
    }


def parameters(bench: Bench) -> str:
    """Return the parameters of an instance."""
    if not bench.parameters:
        return ""
    return "#(" + ", ".join(f".{name}({_literal(value)})" for name, value in bench.parameters.items()) + ") "


def connections(bench: Bench) -> list[str]:
    """Return the connections of an instance in a testbench."""
    wires = {name: wire(name) for name in bench.ports} | {name: end.of for name, end in bench.ends.items()}
    wires |= {signal.name: wire(signal.name) for signal in bench.watched()}
    wires |= {signal.name: _driven(signal, f"offers[{i}]") for i, signal in enumerate(bench.offers)}
    if bench.take:
        wires[bench.take.name] = _driven(bench.take, "take")
    if bench.reset_signal:
        wires[bench.reset_signal.name] = _driven(bench.reset_signal, "reset")
    if bench.clock is not None:
        wires[bench.clock] = "clock"
    return [f"    .{port}({expression})" for port, expression in wires.items()]


def _literal(value: Parameter) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return f'"{value}"' if isinstance(value, str) else str(value)


def _active(signal: Signal) -> str:
    return ("~" if signal.is_low else "") + wire(signal.name)


def _driven(signal: Signal, expression: str) -> str:
    return ("~" if signal.is_low else "") + expression


def _flags(bench: Bench) -> str:
    # highest bit first again; flags that the unit lacks are 0
    bits = [f"{wire(wire_bit[0])}[{wire_bit[1]}]" if wire_bit else "1'b0" for wire_bit in reversed(bench.flag_bits)]
    return "{" + ", ".join(["1'b0"] * (FLAGS_WIDTH - len(bits)) + bits) + "}"


def _load(row: Input) -> list[str]:
    """Return the lines that read an operand."""
    name, width = wire(row.port), row.width_bits
    if row.terms == 1:
        reading = [f'ok = $fscanf(file_{row.file}, "%h", {name});']
    else:
        # a file lists the first term first
        index = "i" if row.first_is_low else f"({row.terms - 1} - i)"
        reading = [
            f"for (i = 0; i < {row.terms}; i = i + 1) begin",
            f'  ok = $fscanf(file_{row.file}, "%h", word);',
            f"  {name}[{index} * {width} +: {width}] = word[{width - 1}:0];",
            "end",
        ]
    if row.once:
        reading = ["if (step == 0) begin", *(f"  {line}" for line in reading), "end"]
    return [f"      {line}" for line in reading]


def _noise(row: Input) -> str:
    # $random gives 32 bits; an assignment cuts what is too many
    words = -(-row.width_bits * row.terms // 32)
    return "$random(seed)" if words == 1 else "{" + ", ".join(["$random(seed)"] * words) + "}"


def _mode(name: str, mode: Mode) -> list[str]:
    # a run chooses the mode with +PORT=CODE; without, it is the first that the port lists
    default = f"{mode.width_bits}'d{next(iter(mode.codes.values()))}"
    return [f'    if (!$value$plusargs("{name}=%d", {wire(name)})) {wire(name)} = {default};']
