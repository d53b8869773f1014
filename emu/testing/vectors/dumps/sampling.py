r"""A waveform's signals at the rising edges of a clock.

    clock  __/--\__/--\__      a value counts as it is just before the edge, as a register takes it: what changes at
    y      ====A=====B===      the edge itself is there at the next one. The first edge here takes A, the second B.

An edge goes from 0 to 1; from x to 1 is none. With `valid` (and `ready`) only edges count at which it is 1.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from emu.errors import ConfigError, nearest_first
from emu.testing.vectors.dumps.dump import FLAGS, MOST_BITS, RESULT, Dump, Reading
from emu.testing.vectors.dumps.words import WEAK_BITS

#: Names that a message lists.
MOST_NAMES = 6
_RANGE = re.compile(r"(.+?)\s*\[(\d+)(?::(\d+))?\]")


@dataclass(frozen=True)
class Variable:
    """A variable that a waveform declares.

    Attributes:
        name: with its scopes, `tb.dut.y`.
        key: what its changes are marked with.
        width: its bits.
        left: index of its leftmost bit.
        right: index of its rightmost bit.
        is_real: whether it is a real number, which has no bits.
    """

    name: str
    key: str
    width: int
    left: int
    right: int
    is_real: bool = False


@dataclass
class Signal:
    """A signal that is sampled: variables beside each other, the leftmost bits first, and which of their bits count.

    Attributes:
        option: the option that names it.
        variables: one, or one for each bit.
        start: first of the bits that count, from the left.
        stop: the one after the last.
    """

    option: str
    variables: Sequence[Variable]
    start: int
    stop: int

    def bits(self, values: Mapping[str, str]) -> str:
        """Return its bits, the leftmost first."""
        if len(self.variables) == 1:
            return values[self.variables[0].key][self.start : self.stop]
        return "".join(values[variable.key] for variable in self.variables)[self.start : self.stop]


@dataclass
class Sampler:
    """Takes changes of values, step by step, and keeps what signals are at the edges.

    Attributes:
        path: of the waveform.
        widths: bits of the variables whose changes are wanted, by their keys.
    """

    path: Path
    clock: Signal
    taken: Mapping[str, Signal]
    gates: Sequence[Signal]
    widths: dict[str, int] = field(default_factory=dict[str, int])
    edges: int = 0

    def __post_init__(self) -> None:
        """Begin with no value known."""
        signals = [self.clock, *self.taken.values(), *self.gates]
        self.widths = {variable.key: variable.width for signal in signals for variable in signal.variables}
        self._values = {key: "x" * width for key, width in self.widths.items()}
        self._changes: dict[str, str] = {}
        self._clock_keys = {variable.key for variable in self.clock.variables}
        # nine bytes a sample
        self._codes = {role: array("Q") for role in self.taken}
        self._undriven = {role: bytearray() for role in self.taken}

    @classmethod
    def of(cls, path: Path, reading: Reading, variables: Iterable[Variable]) -> Sampler:
        """Return the sampler of what is wanted.

        Raises:
            ConfigError: signal or clock are not named, or there is no such signal.
        """
        named = _by_name(variables)
        if reading.signal is None or reading.clock is None:
            missing = "--signal" if reading.signal is None else "--clock"
            raise ConfigError(
                f"`{missing}` must be given to read a waveform, got nothing; add it: {path} has "
                f"{', '.join([*named][:MOST_NAMES])}, ..."
            )

        def signal(option: str, spec: str, most_bits: int) -> Signal:
            return _signal(path, option, spec, named, most_bits)

        taken = {RESULT: signal("--signal", reading.signal, MOST_BITS)}
        if reading.flags_signal is not None:
            taken[FLAGS] = signal("--flags-signal", reading.flags_signal, MOST_BITS)
        gates = {"--valid": reading.valid, "--ready": reading.ready}
        return cls(
            path,
            signal("--clock", reading.clock, 1),
            taken,
            [signal(option, spec, 1) for option, spec in gates.items() if spec is not None],
        )

    def change(self, key: str, bits: str) -> None:
        """Take a change of a variable; `bits` may lack leading ones, as IEEE 1800 section 21.7.2.1 has it.

        Raises:
            ConfigError: there is no bit, or one that is not 0 is beyond the width.
        """
        missing = self.widths[key] - len(bits)
        if not bits or (missing < 0 and bits[:-missing].strip("0")):
            raise ConfigError(
                f"a value of {self.path} must have 1..{self.widths[key]} bits, as its variable has, got {bits!r}; dump "
                "it again"
            )
        if missing < 0:
            bits = bits[-missing:]
        if missing > 0:
            # 0 and 1 are extended by 0, x and z by themselves
            bits = ("0" if bits[0] in "01" else bits[0]) * missing + bits
        self._changes[key] = bits

    def step(self) -> None:
        """End a step of time: its changes are complete."""
        changes = self._changes
        if not changes:
            return
        values = self._values
        rises = False
        if not self._clock_keys.isdisjoint(changes):
            # before and after all changes of the step: a clock that returns within it does not rise
            rises = self.clock.bits(values) == "0" and self.clock.bits({**values, **changes}) == "1"
        if rises:
            self.edges += 1
            if all(gate.bits(values) == "1" for gate in self.gates):
                self._take()
        # only behind `_take`, which sees values as they are before the edge
        values.update(changes)
        changes.clear()

    def _take(self) -> None:
        for role, signal in self.taken.items():
            bits = signal.bits(self._values)
            try:
                # `int` refuses x and z, and weak bits, which few samples have
                code, undriven = int(bits, 2), 0
            except ValueError:
                weak = bits.translate(WEAK_BITS)
                undriven = int(not set(weak) <= {"0", "1"})
                code = 0 if undriven else int(weak, 2)
            self._codes[role].append(code)
            self._undriven[role].append(undriven)

    def dump(self) -> Dump:
        """Return what was sampled.

        Raises:
            ConfigError: nothing was.
        """
        self.step()
        if not self._codes[RESULT]:
            why = "the clock never rises" if not self.edges else f"none of {self.edges} edges is valid"
            raise ConfigError(
                f"a dump must have a result for each vector, got none in {self.path}: {why}; check --clock, "
                "--valid and --ready"
            )
        columns = {role: np.frombuffer(codes, np.uint64) for role, codes in self._codes.items()}
        undriven = {role: np.frombuffer(mask, np.bool_) for role, mask in self._undriven.items()}
        return Dump(columns, undriven, str(self.path))


def _by_name(variables: Iterable[Variable]) -> dict[str, list[Variable]]:
    named: dict[str, list[Variable]] = {}
    for variable in variables:
        named.setdefault(variable.name, []).append(variable)
    return named


def _signal(path: Path, option: str, spec: str, named: Mapping[str, list[Variable]], most_bits: int) -> Signal:
    wanted = spec.strip().lstrip("/").replace("/", ".")
    name, high, low = wanted, None, None
    # the whole text first: a name may itself end in an index
    matches = _matches(wanted, named)
    if not matches and (parts := _RANGE.fullmatch(wanted)):
        name, high, low = parts[1], int(parts[2]), int(parts[3] or parts[2])
        matches = _matches(name, named)
    if not matches:
        nearest = ", ".join(nearest_first(wanted, named)[:MOST_NAMES])
        raise ConfigError(f"`{option}` must be a signal of {path}, got {spec!r}; nearest: {nearest}")
    if len(matches) > 1:
        listed = ", ".join(matches[:MOST_NAMES])
        raise ConfigError(f"`{option}` must be one signal, got {spec!r}, which may be {listed}; add its scopes")
    variables = _side_by_side(named[matches[0]])
    if any(variable.is_real for variable in variables):
        raise ConfigError(
            f"`{option}` must have bits, got {spec!r}, a real number; name the register that it is made of"
        )
    if any(variable.width < 1 for variable in variables):
        raise ConfigError(f"`{option}` must have bits, got {spec!r}, which {path} declares without; name another")
    left, right = variables[0].left, variables[-1].right
    width = sum(variable.width for variable in variables)
    start, stop = 0, width
    if high is not None and low is not None:
        # places from the left end, whichever way the indices run
        ends = sorted((abs(left - high), abs(left - low)))
        is_inside = all(min(left, right) <= end <= max(left, right) for end in (high, low))
        if not is_inside:
            raise ConfigError(f"`{option}` must take bits of {name}[{left}:{right}], got {spec!r}; take fewer")
        start, stop = ends[0], ends[1] + 1
    if stop - start > most_bits:
        part = f"{spec}[{most_bits - 1}:0]" if most_bits > 1 else f"{spec}[0]"
        raise ConfigError(
            f"`{option}` must have at most {most_bits} bits, got {spec!r} of {stop - start}; take a part, {part}"
        )
    return Signal(option, variables, start, stop)


def _matches(name: str, named: Mapping[str, list[Variable]]) -> list[str]:
    """Return the names that one may mean: itself, or the same within scopes; what is the same signal counts once."""
    if name in named:
        return [name]
    by_keys: dict[tuple[str, ...], str] = {}
    for full, variables in named.items():
        if full.endswith("." + name):
            by_keys.setdefault(tuple(variable.key for variable in variables), full)
    return list(by_keys.values())


def _side_by_side(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables of a signal, the leftmost bits first; some simulators declare each bit by itself."""
    # the same bits declared twice are one signal
    if len(variables) == 1 or len({variable.left for variable in variables}) < len(variables):
        return [variables[0]]
    return sorted(variables, key=lambda variable: -variable.left)
