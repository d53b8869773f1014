"""A unit of a user: its ports, what each of them is, and its latency.

Its registers are unrolled: the operands enter in cycle 0, the result is read `latency` cycles later. What registers
hold before, and what other cycles bring, may be anything: a pipeline does not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.errors import ConfigError, nearest_name
from emu.formats.integers import as_integer
from emu.prove.circuit import Builder, Circuit
from emu.prove.elaborate import Netlist, Sources
from emu.prove.reference import N_FLAGS
from emu.testing.vectors.description import NAMES, TESTFLOAT_FLAGS, Description

#: What a port may be besides an operand, or a constant that is driven into it.
RANDOM, RESULT, FLAGS, CLOCK, FREE = "rbits", "result", "flags", "clock", "free"
#: What an undefined bit is called.
UNDEFINED = "undefined bits (x, or driven by nothing)"
#: Latencies that are tried to say which one is right, and the longest that is taken.
MOST_LATENCY, LONGEST = 16, 1024
_CONSTANT = re.compile(r"0x[0-9a-fA-F]+\Z|0b[01]+\Z|[0-9]+\Z")
#: What an input that is no operand is called: its port, this, and its cycle.
_OF_CYCLE = " of cycle "


@dataclass(frozen=True)
class Unit:
    """A unit and how it is used.

    Attributes:
        sources: its files and top module.
        ports: what each port is: an operand (a, b, c), rbits, result, flags, one flag by its name, clock, free, or a
            number that is driven into it.
        latency: cycles from operands to result; None for a unit without registers.
    """

    sources: Sources
    ports: Mapping[str, str]
    latency: int | None = None


def ports_of(text: str) -> dict[str, str]:
    """Return what each port is from text: a=x,b=y,result=z,0=rst.

    Raises:
        ConfigError: an entry is none, or a port is there twice.

    Examples:
        >>> ports_of("a=x, result=z, 0=rst")
        {'x': 'a', 'z': 'result', 'rst': '0'}
    """
    ports = dict[str, str]()
    for part in (part.strip() for part in text.split(",") if part.strip()):
        role, equals, port = (word.strip() for word in part.partition("="))
        if not (role and equals and port):
            raise ConfigError(f"an entry of `ports` must be ROLE=PORT, got {part!r}; write it like a=x or result=z")
        if port in ports:
            raise ConfigError(f"a port must be in `ports` once, got {port!r} twice; leave one of them out")
        ports[port] = role
    return ports


@dataclass(frozen=True)
class Unrolled:
    """A unit's outputs as a function of its operands.

    Attributes:
        circuit: its inputs are `free`, then the operands' bits, those of the first operand highest; its outputs are
            `given` and `given_flags`.
        bits: width of each operand and of the random bits, by name, in the order of the inputs from the highest down.
        free: each further input that the outputs depend on, in words.
        flags: which flags the unit has, a bit for each of `TESTFLOAT_FLAGS`.
    """

    circuit: Circuit
    bits: Mapping[str, int]
    free: tuple[str, ...]
    flags: int

    @property
    def n_bits(self) -> int:
        """Bits of all operands, random bits among them."""
        return sum(self.bits.values())


def unrolled_of(unit: Unit, netlist: Netlist, description: Description) -> Unrolled:
    """Return a unit's outputs as a function of its operands.

    Raises:
        ConfigError: a port is missing, has another width or direction, or is nothing that a port can be; or the unit
            has registers and no latency is given.
    """
    wanted = _wanted(description)
    _require_ports(unit, netlist, wanted)
    _require_widths(unit, netlist, description)
    return _unrolled(unit, netlist, wanted, _latency(unit, netlist, description))


def right_latency(unit: Unit, netlist: Netlist, description: Description) -> int | None:
    """Return the first latency at which the result depends on the operands of one cycle alone; None if none does."""
    for latency in range(MOST_LATENCY + 1):
        # by the gates that outputs read, without the solver: an answer for a message
        if not {*other_inputs(unit, _unrolled(unit, netlist, _wanted(description), latency))} - {UNDEFINED}:
            return latency
    return None


def other_inputs(unit: Unit, unrolled: Unrolled) -> list[str]:
    """Return what the outputs depend on besides the operands of one cycle and the ports that are free, each once."""
    free = tuple(name + _OF_CYCLE for name, role in unit.ports.items() if role == FREE)
    return [name for name in dict.fromkeys(unrolled.free) if not name.startswith(free)]


def _driven(role: str) -> int | None:
    """Return the number that is driven into a port; None if its role is a word."""
    if not _CONSTANT.match(role):
        return None
    # not int(role, 0), which takes no decimal number that begins with 0
    return int(role, {"0x": 16, "0b": 2}.get(role[:2], 10))


def _wanted(description: Description) -> dict[str, int]:
    """Return the width of each operand, and of random bits."""
    wanted = {name: fmt.width_bits for name, fmt in zip(NAMES, description.operand_formats, strict=False)}
    return wanted | ({RANDOM: description.n_rbits} if description.is_stochastic else {})


def _require_ports(unit: Unit, netlist: Netlist, wanted: Mapping[str, int]) -> None:
    top, ports = unit.sources.top, netlist.ports
    roles = [*wanted, RESULT, FLAGS, *TESTFLOAT_FLAGS, CLOCK, FREE]
    outputs = {RESULT, FLAGS, *TESTFLOAT_FLAGS}
    for name, role in unit.ports.items():
        if name not in ports:
            raise ConfigError(f"`ports` must name ports of {top}, got {name!r}{nearest_name(name, ports)}")
        driven = _driven(role)
        if role not in roles and driven is None:
            raise ConfigError(
                f"a port must be one of {', '.join(roles)}, or a number that is driven into it, got {role!r} for "
                f"{name!r}{nearest_name(role, roles)}"
            )
        direction = "output" if role in outputs else "input"
        if ports[name].direction != direction:
            raise ConfigError(
                f"{role} must be an {direction} of {top}, got {name!r}, an {ports[name].direction}; name another port"
            )
        if driven is not None and driven >> ports[name].width:
            raise ConfigError(f"{name!r} of {top} must be driven by {ports[name].width} bits, got {role}; correct it")
    _require_all_there(unit, netlist, wanted)


def _require_all_there(unit: Unit, netlist: Netlist, wanted: Mapping[str, int]) -> None:
    top, ports = unit.sources.top, netlist.ports
    for role in (*wanted, RESULT):
        count = list(unit.ports.values()).count(role)
        if count != 1:
            free = ", ".join(name for name in ports if name not in unit.ports) or "none"
            raise ConfigError(
                f"`ports` must name one port for {role}, got {count}; ports of {top} that have no part yet: {free}"
            )
    missing = [name for name, port in ports.items() if port.direction != "output" and name not in unit.ports]
    if missing:
        raise ConfigError(
            f"`ports` must name every input of {top}, got none for {', '.join(missing)}; say what is driven into it, "
            f"like 0={missing[0]}, or free={missing[0]} if it may be anything"
        )


def _require_widths(unit: Unit, netlist: Netlist, description: Description) -> None:
    d = description
    widths = {name: (fmt.width_bits, str(fmt)) for name, fmt in zip(NAMES, d.operand_formats, strict=False)}
    widths[RESULT] = (d.stage.format.width_bits, str(d.stage.format))
    widths[RANDOM] = (d.n_rbits, "the random bits")
    widths[FLAGS] = (N_FLAGS, "the flags " + ", ".join(TESTFLOAT_FLAGS))
    widths |= dict.fromkeys(TESTFLOAT_FLAGS, (1, "one flag"))
    widths[CLOCK] = (1, "a clock")
    for name, role in unit.ports.items():
        if role in widths and netlist.ports[name].width != widths[role][0]:
            width, what = widths[role]
            raise ConfigError(
                f"{role} must have {width} bit{'s' * (width > 1)}, those of {what}, got port {name!r} of "
                f"{unit.sources.top} with {netlist.ports[name].width}; give another format, or set the "
                "unit's parameters"
            )


def _latency(unit: Unit, netlist: Netlist, description: Description) -> int:
    top, registers = unit.sources.top, len(netlist.registers)
    if not registers:
        if unit.latency:
            raise ConfigError(
                f"`latency` must be left out of a unit without registers, got {unit.latency} for {top}; leave it out"
            )
        return 0
    if unit.latency is None:
        right = right_latency(unit, netlist, description)
        raise ConfigError(
            f"`latency` must be given of a clocked unit, got none for {top}, which has {registers} registers, the "
            f"first {netlist.register!r}; "
            + ("say after how many cycles the result is there" if right is None else f"give --latency {right}")
        )
    # each cycle is a copy of all gates
    latency = as_integer("latency", unit.latency, 0, LONGEST, error=ConfigError)
    clocks = [name for name, role in unit.ports.items() if role == CLOCK]
    if [*netlist.clocks] != clocks:
        raise ConfigError(
            "registers must be clocked by one port, on its rising edge, got "
            f"{', '.join(sorted(netlist.clocks)) or 'none'} for {top} and clock={', '.join(clocks) or 'none'} in "
            "`ports`; name the clock that all of them have, or give a version without clock gates and falling edges"
        )
    return latency


class _Frees:
    """Inputs that are no operand: each gets a number when it is first asked for."""

    def __init__(self) -> None:
        self.names = list[str]()

    def input(self, name: str) -> int:
        self.names.append(name)
        # the literal of the input just added: variables count from 1
        return 2 * len(self.names)


def _unrolled(unit: Unit, netlist: Netlist, wanted: Mapping[str, int], latency: int) -> Unrolled:
    frees, roles = _Frees(), unit.ports
    # the first inputs: registers, then what each cycle brings; operands come behind all of them
    state = [frees.input("what registers held before") for _ in netlist.registers]
    # all at once, because the builder must know how many inputs there are
    cycles = [_Cycle(netlist, roles, frees, cycle) for cycle in range(latency + 1)]
    total = sum(wanted.values())
    builder = Builder(len(frees.names) + total)
    at, operands = len(frees.names) + total, dict[str, list[int]]()
    for name, width in wanted.items():  # the first operand highest
        at -= width
        operands[name] = [2 * (1 + at + bit) for bit in range(width)]
    named = {f"next{i}": (literal,) for i, literal in enumerate(netlist.registers)}
    named |= {f"{name} {bit}": (literal,) for (name, bit), literal in netlist.outputs.items()}
    step = Circuit(netlist.circuit.n_inputs, netlist.circuit.gates, named)
    out = dict[str, tuple[int, ...]]()
    for cycle in cycles:
        out = builder.copied(step, [*cycle.inputs(operands), *state])
        # the outputs of the last copy are those after `latency` clock edges
        state = [out[f"next{i}"][0] for i in range(len(netlist.registers))]
    given, flags, mask = _outputs(unit, netlist, out)
    return _with_needed(builder, given, flags, mask, frees.names, wanted)


@dataclass
class _Cycle:
    """What enters in one cycle: operands in cycle 0, anything in the others."""

    netlist: Netlist
    roles: Mapping[str, str]
    frees: _Frees
    cycle: int

    def __post_init__(self) -> None:
        netlist, self.free = self.netlist, dict[int, int]()
        of_number = {number: key for key, number in netlist.inputs.items()}
        # inputs of ports and undefined bits; registers come behind them
        for number in range(netlist.circuit.n_inputs - len(netlist.registers)):
            key = of_number.get(number)
            if key is None:
                self.free[number] = self.frees.input(UNDEFINED)
                continue
            role = self.roles[key[0]]
            if role == CLOCK or _driven(role) is not None or (self.cycle == 0 and role != FREE):
                continue
            self.free[number] = self.frees.input(f"{key[0]}{_OF_CYCLE}{self.cycle}")

    def inputs(self, operands: Mapping[str, Sequence[int]]) -> list[int]:
        """Return the literal of each input."""
        # a clock counts as 0: each copy of the gates is one cycle, and registers are literals between copies
        literals = [0] * (self.netlist.circuit.n_inputs - len(self.netlist.registers))
        for (name, bit), number in self.netlist.inputs.items():
            role = self.roles[name]
            if (driven := _driven(role)) is not None:
                literals[number] = driven >> bit & 1
            elif role in operands:
                literals[number] = operands[role][bit]
        for number, literal in self.free.items():
            literals[number] = literal
        return literals


def _outputs(unit: Unit, netlist: Netlist, out: Mapping[str, tuple[int, ...]]) -> tuple[list[int], list[int], int]:
    """Return the literals of result and flags, and which flags there are."""
    given, flags, mask = list[int](), [0] * N_FLAGS, 0
    for name, role in unit.ports.items():
        bits = [out[f"{name} {bit}"][0] for bit in range(netlist.ports[name].width) if f"{name} {bit}" in out]
        if role == RESULT:
            given = bits
        elif role == FLAGS:
            flags, mask = bits, (1 << N_FLAGS) - 1
        elif role in TESTFLOAT_FLAGS:
            number = TESTFLOAT_FLAGS.index(role)
            flags[number], mask = bits[0], mask | 1 << number
    return given, flags, mask


def _with_needed(
    builder: Builder, given: list[int], flags: list[int], mask: int, names: Sequence[str], wanted: Mapping[str, int]
) -> Unrolled:
    """Return the outputs as a function of operands, and of those other inputs that they depend on."""
    whole = builder.built({"given": given, "given_flags": flags})
    bits = [bit for bits in whole.outputs.values() for bit in bits]
    # free inputs that no gate of the outputs reads are dropped; operands keep their places even if nothing reads them
    needed = sorted(i for i in whole.support(bits) if i < len(names))
    total = sum(wanted.values())
    renumbered = {number: 2 * (1 + i) for i, number in enumerate(needed)}
    small = Builder(len(needed) + total)
    inputs = [renumbered.get(i, 0) for i in range(len(names))] + [2 * (1 + len(needed) + i) for i in range(total)]
    circuit = small.built(small.copied(whole, inputs))
    return Unrolled(circuit, dict(wanted), tuple(names[i] for i in needed), mask)
