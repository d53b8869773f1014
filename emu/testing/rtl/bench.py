r"""A testbench described: a unit's ports, clock, reset and handshake. The languages write it as text (`languages/`).

In every cycle the testbench sets the inputs while the clock is low, reads the outputs just before the rising edge, and
then raises the clock. So a unit without a register answers in the same cycle: its latency is 0.

                cycle 0         cycle 1         cycle 2
    clock   ______/~~~~~~~~~\______/~~~~~~~~~\______/~~~
    set     ^ operands 0    ^ operands 1    ^ operands 2
    read        ^               ^ result 0, if the latency is 1
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase

from emu.errors import ConfigError
from emu.formats.integers import as_integer
from emu.testing.rtl.handshakes import LOW, PORT, Handshake
from emu.testing.rtl.ports import FLAG_BITS, Constant, End, Flags, In, Mode, Out, Port, RandomBits

#: How a testbench drives a unit, by the number that testbenches are given; the last one is for finding the latency.
MANNERS = ("back to back", "held", "with stalls", "watched")
BACK_TO_BACK, HELD, STALLS, WATCHED = range(4)
#: Cycles in reset, and cycles after the last result in which another one would be a result too many.
RESET_CYCLES, DRAINED_CYCLES = 8, 16
#: Cycles without any transfer after which a unit counts as stuck.
BOUND_CYCLES = 1000
#: Largest latency and most results that are under way.
QUEUE = 4096
_ACTIVE_LOW = re.compile(r"(_n|_ni|_b|resetn|rstn|nreset|nrst)$", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")

Parameter = int | bool | str | float


@dataclass(frozen=True)
class Signal:
    """A one-bit port.

    Attributes:
        name: of the port.
        is_low: whether it is active when it is 0.
    """

    name: str
    is_low: bool = False

    @classmethod
    def of(cls, text: str) -> Signal:
        """Return the signal of `name`, or of `!name`, which is active when it is 0."""
        return cls(text.removeprefix(LOW), text.startswith(LOW))


@dataclass(frozen=True)
class Input:
    """An operand as the testbench drives it.

    Attributes:
        port: name of the port.
        file: name of its file, without the ending: a letter, or rbits.
        width_bits: bits of one number.
        terms: numbers in the port.
        first_is_low: whether the first of them has the lowest bits.
        channel: index of the handshake that it belongs to.
        once: whether a sum has one of it, not one for each term.
    """

    port: str
    file: str
    width_bits: int
    terms: int
    first_is_low: bool
    channel: int
    once: bool


@dataclass(frozen=True)
class Bench:
    """What a testbench drives.

    Attributes:
        top: module or entity.
        ports: what each port carries, by its name.
        handshake: how operands and results are exchanged.
        clock: name of the clock; None: the unit has none.
        reset: name of the reset, None without; `!name` is active low, and so is a name that ends in `_n`, `_ni`, `_b`,
            `resetn`, `rstn`, `nreset` or `nrst`.
        latency: cycles from operands to results if the handshake has no signal for them.
        parameters: of the module, or generics of the entity.
        types: VHDL types of ports that are no std_logic_vector.
        count: vectors, unless the testbench is told otherwise.
        depth: terms of each sum; 0: as many as the ports have.
        bound_cycles: cycles without a transfer after which the unit is stuck.

    Raises:
        ConfigError: a name is none or stands for two things, there is no operand or no result, the handshake needs a
            clock, or a number of cycles is none.
    """

    top: str
    ports: Mapping[str, Port]
    handshake: Handshake
    clock: str | None = "clk"
    reset: str | None = None
    latency: int = 0
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    count: int = 0
    depth: int = 1
    bound_cycles: int = BOUND_CYCLES

    def __post_init__(self) -> None:
        named = [*self.ports, *self._control_names()]
        for name in [self.top, *named, *self.parameters]:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"names of units and ports must be identifiers, got {name!r}; name them as the source does"
                )
        if not self.ins or not self.outs:
            missing = "an operand, In(format)" if not self.ins else "a result, Out(format)"
            raise ConfigError(f"`ports` must have {missing}, got {', '.join(self.ports) or 'none'}; add it")
        # a testbench would drive such a port as one of both, and leave the other out
        if twice := [name for name in dict.fromkeys(named) if named.count(name) > 1]:
            raise ConfigError(
                f"a port must be an operand, a result, clock, reset or a signal of the handshake, got {twice[0]} as "
                "two of them; name another port for one"
            )
        as_integer("latency", self.latency, 0, error=ConfigError)
        as_integer("bound_cycles", self.bound_cycles, 1, error=ConfigError)
        # a transfer happens at a clock edge
        if self.clock is None and self.handshake.offer is not None:
            raise ConfigError(f"handshake {self.handshake.name} must have a clock, got none; give `clock`")
        # the two factors of a sum must have as many terms to a transfer, and fill whole transfers
        if (self.depth and any(self.depth % port.terms for port in self._sums())) or len(
            {port.terms for port in self._sums()}
        ) > 1:
            terms = " and ".join(str(port.terms) for port in self._sums())
            raise ConfigError(f"a sum must fill the {terms} terms of its ports, got {self.depth} terms; pad it with 0")

    def _control_names(self) -> list[str]:
        """Return the names of clock, reset and the handshake's signals."""
        single = [[signal] for signal in (self.reset_signal, self.result, self.take) if signal is not None]
        # where only one of offer and accept is an operand's own, all operands share the other: its name counts once
        rows = [self.offers, self.accepts, *single]
        signals = [name for row in rows for name in dict.fromkeys(signal.name for signal in row)]
        return signals if self.clock is None else [self.clock, *signals]

    def _sums(self) -> list[In]:
        # the factors; a third operand is an addend
        return list(self.ins.values())[:2]

    @property
    def ins(self) -> dict[str, In]:
        """The operands."""
        return {name: port for name, port in self.ports.items() if isinstance(port, In)}

    @property
    def outs(self) -> dict[str, Out]:
        """The results."""
        return {name: port for name, port in self.ports.items() if isinstance(port, Out)}

    @property
    def flags(self) -> dict[str, Flags]:
        """The ports with flags."""
        return {name: port for name, port in self.ports.items() if isinstance(port, Flags)}

    @property
    def modes(self) -> dict[str, Mode]:
        """The ports that choose a rounding mode."""
        return {name: port for name, port in self.ports.items() if isinstance(port, Mode)}

    @property
    def constants(self) -> dict[str, Constant]:
        """The ports that never change."""
        return {name: port for name, port in self.ports.items() if isinstance(port, Constant)}

    @property
    def ends(self) -> dict[str, End]:
        """The ports that mark the first and the last term."""
        return {name: port for name, port in self.ports.items() if isinstance(port, End)}

    @property
    def is_serial(self) -> bool:
        """Whether terms of a sum come one after the other."""
        return bool(self.ends)

    @property
    def steps(self) -> int:
        """Transfers of a sum."""
        return max(self.depth // self._sums()[0].terms, 1) if self.is_serial else 1

    @property
    def offers(self) -> list[Signal]:
        """The signal of each channel that says operands are there; empty if there is none."""
        return self._of_channels(self.handshake.offer)

    @property
    def accepts(self) -> list[Signal]:
        """The signal of each channel that says operands are taken; empty if they always are."""
        return self._of_channels(self.handshake.accept)

    @property
    def channels(self) -> int:
        """How many operands have a handshake of their own; 1 if they share it."""
        return len(self.ins) if self._is_per_port() else 1

    @property
    def result(self) -> Signal | None:
        """The signal that says the result is there."""
        return self._of_result(self.handshake.result)

    @property
    def take(self) -> Signal | None:
        """The signal that says the result is taken."""
        return self._of_result(self.handshake.take)

    @property
    def reset_signal(self) -> Signal | None:
        """The reset, active low if it is marked so, or if its name says so."""
        if self.reset is None:
            return None
        signal = Signal.of(self.reset)
        return Signal(signal.name, signal.is_low or _ACTIVE_LOW.search(signal.name) is not None)

    @property
    def inputs(self) -> list[Input]:
        """Operands and random bits in the order of their files."""
        rows: list[Input] = []
        letters = iter(ascii_lowercase)
        channel = 0
        for name, port in self.ports.items():
            if isinstance(port, In):
                # of a sum whose terms come one after the other, the third operand is the addend: one for each sum
                once = self.is_serial and len(rows) > 1
                width = port.format.width_bits
                rows.append(Input(name, next(letters), width, port.terms, port.first_is_low, channel, once))
                # without signals for each port all operands share channel 0
                channel += self._is_per_port()
        rows += [
            # random bits belong to a result, and travel with the first operand's channel
            Input(name, "rbits", port.width_bits, 1, True, 0, self.is_serial)
            for name, port in self.ports.items()
            if isinstance(port, RandomBits)
        ]
        return rows

    @property
    def flag_bits(self) -> list[tuple[str, int] | None]:
        """Port and bit of each flag of `FLAG_BITS`; None where the unit lacks it."""
        wire_bits = {flag: (name, bit) for name, port in self.flags.items() for flag, bit in port.bits.items()}
        return [wire_bits.get(flag) for flag in FLAG_BITS]

    def widths(self) -> dict[str, int]:
        """Return the bits of each port with numbers, flags, modes, constants and ends."""
        return {name: port.width_bits for name, port in self.ports.items()}

    def driven(self) -> list[str]:
        """Return the inputs that are neither clock, reset nor handshake."""
        return [name for name, port in self.ports.items() if not isinstance(port, Out | Flags)]

    def read(self) -> list[str]:
        """Return the outputs that are no handshake."""
        return [name for name, port in self.ports.items() if isinstance(port, Out | Flags)]

    def watched(self) -> list[Signal]:
        """Return the handshake's outputs."""
        return [*self.accepts, *([self.result] if self.result else [])]

    def _is_per_port(self) -> bool:
        return any(text is not None and PORT in text for text in (self.handshake.offer, self.handshake.accept))

    def _of_channels(self, text: str | None) -> list[Signal]:
        if text is None:
            return []
        # a text without PORT in it names the same signal whatever it is filled with
        names = list(self.ins) if self._is_per_port() else [""]
        return [Signal.of(text.replace(PORT, name)) for name in names]

    def _of_result(self, text: str | None) -> Signal | None:
        # results share one handshake, named after the first
        return None if text is None else Signal.of(text.replace(PORT, next(iter(self.outs))))
