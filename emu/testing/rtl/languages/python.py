"""Testbenches in Python, for cocotb: what is a testbench elsewhere is `emu.testing.rtl.cocotb.Bench` there."""

from __future__ import annotations

from emu.testing.rtl.bench import Bench
from emu.testing.rtl.handshakes import HANDSHAKES, ROLES
from emu.testing.rtl.languages.filled import Files, filled
from emu.testing.rtl.ports import Constant, End, Flags, In, Mode, Out, Port, RandomBits

TESTBENCH = "testbench.py"


def testbench(bench: Bench, dump: str) -> Files:
    """Return the testbench."""
    row = bench.handshake
    # only what differs from the named row is written out
    usual = HANDSHAKES.get(row.name, row)
    changed = {role: getattr(row, role) for role in ROLES if getattr(row, role) != getattr(usual, role)}
    arguments = {
        "clock": bench.clock,
        "reset": bench.reset,
        "handshake": row.name,
        **({"signals": changed} if changed else {}),
        **({"holds": True} if row.holds else {}),
        "latency": bench.latency,
    }
    kinds = sorted({type(port).__name__ for port in bench.ports.values()})
    marks: dict[str, object] = {
        "TOP": bench.top,
        "DUMP": dump,
        "COLUMNS": ", ".join([*bench.outs, *(["flags"] if bench.flags else [])]),
        "HANDSHAKE": " ".join([row.name, *row.names()]),
        "PORT_KINDS": ", ".join(kinds),
        "PORTS": [f'    "{name}": {_constructor(port)},' for name, port in bench.ports.items()],
        "ARGUMENTS": ", ".join(f"{name}={value!r}" for name, value in arguments.items()),
    }
    return {TESTBENCH: filled(f"{TESTBENCH}.in", marks)}


def _constructor(port: Port) -> str:
    """Return the call that makes a port."""
    match port:
        case In():
            terms = f", {port.terms}" if port.terms > 1 else ""
            side = "" if port.first_is_low else ", first_is_low=False"
            return f'In("{port.format}"{terms}{side})'
        case Out():
            return f'Out("{port.format}")'
        case Flags():
            return f"Flags({dict(port.bits)!r}, {port.width_bits})"
        case Mode():
            return f"Mode({ {mode.value: code for mode, code in port.codes.items()}!r}, {port.width_bits})"
        case RandomBits():
            return f"RandomBits({port.width_bits})"
        case Constant():
            return f"Constant({port.code}, {port.width_bits})"
        case End():
            return f'End("{port.of}")'
