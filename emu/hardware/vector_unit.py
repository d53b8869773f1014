"""The vector unit, instruction by instruction: lanes, register file, memory ports, D_CNV, and the tap before it.

    read ports ──► register file ──► lanes: multiply, add, saturate to A bits ──┬──► D_CNV ──► register file ──► write
                                                                                └──► statistics unit

A program has the instructions for one vector of results; all other vectors run the same instructions on addresses of
their own. So values are computed for all vectors of a program at once, one array operation for each instruction, and
the time of one vector gives that of all. The model shares no arithmetic with the kernels: each tests the other.

Each unit takes its instructions in order, one in each cycle. An instruction starts when its unit is free, its operands
are ready and the register it writes is no longer read; registers and accumulators are allocated in turn. A word of the
program can have an instruction for each unit.

Source: US 2020/0134434, block diagram, and US 11,593,620. Widths of ports, sizes of files and latencies are our choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Rounding
from emu.errors import ConfigError
from emu.formats import Fixed
from emu.formats.integers import as_integer
from emu.hardware.statistics_unit import STAGES, Signs, StatisticsUnit

Words = NDArray[np.int64]
#: Vectors whose values are computed at a time, so that their registers stay in the cache of the host.
CHUNK_VECTORS = 8192
#: Words of memory are in -2**31..2**31 - 1, so that each product, at most 2**62, fits an int64.
WORD_LIMIT = 2**31
#: Longest shift of a word to an accumulator that is computed; a longer one is computed as this one.
MAX_SHIFT = 62
#: Bits of the magnitude of an int64.
_MAGNITUDE_BITS = 63
#: Bits of the widest accumulator: its content, up to 2**(A - 1), and a shifted word, up to 2**A, have a sum in int64.
MAX_BITS = 62


class Opcode(StrEnum):
    """The operation of an instruction; r is a register, a an accumulator."""

    #: r <- memory
    LOAD = "load"
    #: a <- r * 2**shift
    SET = "set"
    #: a <- a + r * 2**shift
    ADD = "add"
    #: a <- a - r * 2**shift
    SUBTRACT = "subtract"
    #: a <- r * r
    MULTIPLY = "multiply"
    #: a <- a + r * r
    MAC = "mac"
    #: r <- round(a / 2**shift), saturated; the statistics unit sees a
    CONVERT = "convert"
    #: memory <- r
    STORE = "store"


#: The unit of instructions that the lanes do not take.
_UNITS = {Opcode.LOAD: "read", Opcode.CONVERT: "convert", Opcode.STORE: "write"}
_ACCUMULATES = (Opcode.ADD, Opcode.SUBTRACT, Opcode.MAC)


class Instruction(NamedTuple):
    """One instruction of a program.

    Attributes:
        opcode: what it does.
        to: name of the register or accumulator it writes, or of the addresses it stores to.
        reads: names of registers or accumulators it reads.
        base: name of the addresses it loads from.
        offset: added to every address.
        shift: bits; of `CONVERT` those dropped (negative: appended).
    """

    opcode: Opcode
    to: str
    reads: tuple[str, ...] = ()
    base: str = ""
    offset: int = 0
    shift: int = 0


@dataclass(frozen=True)
class Program:
    """Instructions for vectors of results, and their operands.

    Attributes:
        instructions: for one vector.
        addresses: name -> addresses of the first element of every lane, int64, (vectors, lanes); -1 reads as 0.
        valid: lanes that hold results, bool, (vectors, lanes); only they are stored and counted.
        target: format of the results.
        rounding: D_CNV's.
        register_set: set that counts the results; None counts nothing.
        signs: signs whose results are counted.
    """

    instructions: Sequence[Instruction]
    addresses: Mapping[str, Words]
    valid: NDArray[np.bool_]
    target: Fixed
    rounding: Rounding = Rounding.NEAREST_EVEN
    register_set: int | None = 0
    signs: Signs = Signs.BOTH

    @property
    def vectors(self) -> int:
        """Number of vectors of results."""
        return len(self.valid)


@dataclass(frozen=True)
class VectorUnit:
    """The unit's sizes.

    Attributes:
        lanes: results per vector.
        accumulator_bits: A, 1..62; each add saturates to so many bits.
        read_ports: vectors that memory delivers per cycle.
        write_ports: vectors that memory takes per cycle.
        registers: registers of the register file, each with a word per lane.
        accumulators: accumulators per lane.
        latency: cycles from the start of an instruction until its result can be read, by opcode; 1 where not given.

    Examples:
        >>> unit = VectorUnit()
        >>> unit.cycles(unit.product(rows=2, depth=25, columns=8, target=Fixed(16, 8), drops=8))
        54
    """

    lanes: int = 8
    accumulator_bits: int = 40
    read_ports: int = 2
    write_ports: int = 1
    registers: int = 16
    accumulators: int = 4
    latency: Mapping[str, int] = field(default_factory=lambda: {Opcode.LOAD: 2})

    def __post_init__(self) -> None:
        """Take every size as Python's integer."""
        for item in fields(self):
            # annotations are texts here, by the import from __future__
            if item.type == "int":
                most = MAX_BITS if item.name == "accumulator_bits" else None
                number = as_integer(item.name, getattr(self, item.name), 1, most, error=ConfigError)
                object.__setattr__(self, item.name, number)

    # ---- programs ----

    def product(
        self,
        rows: int,
        depth: int,
        columns: int,
        target: Fixed,
        drops: int,
        *,
        a: int = 0,
        b: int | None = None,
        out: int | None = None,
        **options: Any,
    ) -> Program:
        """Return the program of a matrix product: (rows, depth) times (depth, columns), all in C order.

        Args:
            rows: rows of the first matrix.
            depth: products added up per result, in order of k.
            columns: columns of the second matrix.
            target: format of the results.
            drops: fraction bits of the accumulator that D_CNV drops.
            a: address of the first matrix.
            b: address of the second; after the first if None.
            out: address of the results; after the second if None.
            **options: of `Program`.

        Raises:
            ConfigError: a size is not an integer, or below 0; or `depth` is 0.
        """
        rows, depth, columns = (
            as_integer(name, size, 0, error=ConfigError)
            for name, size in (("rows", rows), ("depth", depth), ("columns", columns))
        )
        b = a + rows * depth if b is None else b
        out = b + depth * columns if out is None else out
        result, valid = self.lanes_of(rows * columns)
        row, column = np.divmod(result, columns)
        addresses = {"a": a + row * depth, "b": b + column, "out": out + result}
        # no range with this step: without columns it would be 0
        rows_of_b = [k * columns for k in range(depth)]
        return self.sum_of_products(range(depth), rows_of_b, addresses, valid, target, drops, **options)

    def sum_of_products(
        self,
        a_offsets: Sequence[int],
        b_offsets: Sequence[int],
        addresses: Mapping[str, Words],
        valid: NDArray[np.bool_],
        target: Fixed,
        drops: int,
        **options: Any,
    ) -> Program:
        """Return the program of one sum of products per result: products, convolutions and their gradients.

        Args:
            a_offsets: added to the addresses `a` for each product in turn.
            b_offsets: added to the addresses `b`.
            addresses: `a`, `b`, `out`, and `addend` if there is one, whose words have the products' point.
            valid: lanes that hold results.
            target: format of the results.
            drops: fraction bits of the accumulator that D_CNV drops.
            **options: of `Program`.

        Raises:
            ConfigError: there is neither a product nor an addend.
        """
        if not a_offsets and "addend" not in addresses:
            raise ConfigError(
                "a sum must have a product or an addend, got neither: no instruction makes a 0; store zeros instead"
            )
        instructions: list[Instruction] = []
        if "addend" in addresses:
            instructions.append(Instruction(Opcode.LOAD, "addend", base="addend"))
            instructions.append(Instruction(Opcode.SET, "sum", ("addend",)))
        for i, (at_a, at_b) in enumerate(zip(a_offsets, b_offsets, strict=True)):
            instructions.append(Instruction(Opcode.LOAD, "a", base="a", offset=at_a))
            instructions.append(Instruction(Opcode.LOAD, "b", base="b", offset=at_b))
            # without an addend the first product sets the accumulator, so that nothing has to clear it
            fresh = i == 0 and "addend" not in addresses
            instructions.append(Instruction(Opcode.MULTIPLY if fresh else Opcode.MAC, "sum", ("a", "b")))
        return Program([*instructions, *_written("sum", drops)], addresses, valid, target, **options)

    def elementwise(
        self, opcode: Opcode, results: int, target: Fixed, drops: int, shifts: tuple[int, int] = (0, 0), **options: Any
    ) -> Program:
        """Return the program of `add`, `subtract` or `multiply` of two arrays and their results, one after the other.

        Args:
            opcode: what it does with two elements.
            results: how many.
            target: format of the results.
            drops: fraction bits of the accumulator that D_CNV drops.
            shifts: shifts of both operands, to the accumulator's point; none for `multiply`.
            **options: of `Program`.
        """
        result, valid = self.lanes_of(results)
        addresses = {"a": result, "b": results + result, "out": 2 * results + result}
        instructions = [Instruction(Opcode.LOAD, name, base=name) for name in ("a", "b")]
        if opcode is Opcode.MULTIPLY:
            instructions.append(Instruction(opcode, "sum", ("a", "b")))
        else:
            instructions.append(Instruction(Opcode.SET, "sum", ("a",), shift=shifts[0]))
            instructions.append(Instruction(opcode, "sum", ("b",), shift=shifts[1]))
        return Program([*instructions, *_written("sum", drops)], addresses, valid, target, **options)

    def lanes_of(self, results: int) -> tuple[Words, NDArray[np.bool_]]:
        """Return which result each lane of each vector makes, and whether there is one (the last may be partial)."""
        vectors = -(-results // self.lanes)
        index = np.arange(vectors * self.lanes, dtype=np.int64).reshape(vectors, self.lanes)
        # lanes behind the last result have its address: they read memory that exists, and nothing of theirs is stored
        return np.minimum(index, max(results - 1, 0)), index < results

    # ---- values ----

    def run(self, program: Program, memory: Words, statistics: StatisticsUnit | None = None) -> int:
        """Run a program; return the cycles it takes.

        Args:
            program: what to do.
            memory: words, int64, one-dimensional; results are stored there.
            statistics: counts the accumulators that D_CNV reads, before it does.

        Raises:
            ConfigError: the unit and the statistics unit do not fit each other, or a word does not fit 32 bits.
        """
        # -n - 1 is the complement: it compares the lowest number, which has no positive twin, as the largest of its
        # width
        if memory.size and max(int(memory.max()), -int(memory.min()) - 1) >= WORD_LIMIT:
            raise ConfigError(
                f"words of memory must fit 32 bits, got {memory.min()} to {memory.max()}; take narrower ones"
            )
        if statistics is not None and (statistics.lanes, statistics.width_bits) != (self.lanes, self.accumulator_bits):
            raise ConfigError(
                f"a statistics unit must have the vector unit's {self.lanes} lanes of {self.accumulator_bits} bits, "
                f"got {statistics.lanes} of {statistics.width_bits}"
            )
        tapped: list[Words] = []
        for begin in range(0, program.vectors, CHUNK_VECTORS):
            tapped += self._run_chunk(program, slice(begin, begin + CHUNK_VECTORS), memory)
        cycles = self.cycles(program)
        if statistics is not None and program.register_set is not None and program.vectors:
            # the accumulators of all chunks, in the order of the vectors
            statistics.run(np.concatenate(tapped), program.valid, program.register_set, program.signs)
            cycles += STAGES - 1  # after the last D_CNV
        return cycles

    def _run_chunk(self, program: Program, part: slice, memory: Words) -> list[Words]:
        """Run some vectors; return the accumulators that D_CNV read, 0 in lanes without a result."""
        valid, seen = program.valid[part], list[Words]()
        values: dict[str, Words] = {}
        for instruction in program.instructions:
            if instruction.opcode is Opcode.LOAD:
                at = program.addresses[instruction.base][part]
                # addresses of padding are -1: they read as 0, whatever the offset
                values[instruction.to] = np.where(at < 0, 0, memory[np.maximum(at, 0) + instruction.offset])
            elif instruction.opcode is Opcode.STORE:
                at = program.addresses[instruction.base][part]
                memory[at[valid] + instruction.offset] = values[instruction.reads[0]][valid]
            elif instruction.opcode is Opcode.CONVERT:
                tapped = values[instruction.reads[0]]
                seen.append(np.where(valid, tapped, 0))
                values[instruction.to] = convert(tapped, instruction.shift, program.target, program.rounding)
            else:
                values[instruction.to] = self._in_lanes(instruction, values)
        return seen

    def _in_lanes(self, instruction: Instruction, values: Mapping[str, Words]) -> Words:
        """Return an accumulator after an instruction, saturated to A bits."""
        first = values[instruction.reads[0]]
        value = (
            self._shifted(first, instruction.shift)
            if len(instruction.reads) == 1
            else first * values[instruction.reads[1]]
        )
        if instruction.opcode is Opcode.SUBTRACT:
            value = values[instruction.to] - value
        elif instruction.opcode in _ACCUMULATES:
            value = values[instruction.to] + value
        # `value` fits an int64 before it is bounded: see MAX_BITS and WORD_LIMIT
        limit = 1 << (self.accumulator_bits - 1)
        return np.clip(value, -limit, limit - 1)

    def _shifted(self, words: Words, shift: int) -> Words:
        """Return words times 2**shift, those beyond an accumulator cut to a value beyond it: no int64 wraps."""
        if shift < 0:
            raise ConfigError(
                f"a word must be shifted to the left when it is added to an accumulator, got {shift} bits; give the "
                "accumulator at least as many fraction bits as its operands have"
            )
        # what the clip changes lies beyond the accumulator in any case; from a shift of A bits on, so does 1
        most = max((1 << self.accumulator_bits) >> min(shift, MAX_SHIFT), 1)
        return np.clip(words, -most, most) << min(shift, MAX_SHIFT)

    # ---- time ----

    def cycles(self, program: Program) -> int:
        """Return the cycles from the first load to the last store.

        Vectors are timed one by one until the unit is in a state in which it was before; from then on times repeat.
        """
        board, ends = _Scoreboard(self, program.instructions), [0]
        seen: dict[tuple[int, ...], int] = {}
        for vector in range(program.vectors):
            before = seen.setdefault(board.state(), vector)
            if before < vector:
                # from vector `before` on, times repeat every `vector - before` vectors, each period later by the same
                # cycles
                periods, rest = divmod(program.vectors - before, vector - before)
                return ends[before + rest] + periods * (ends[vector] - ends[before])
            ends.append(board.advance())
        return ends[-1]


class _Scoreboard:
    """The cycles at which units, registers and accumulators are free, vector after vector."""

    def __init__(self, unit: VectorUnit, instructions: Sequence[Instruction]) -> None:
        self._latency, self._instructions = unit.latency, instructions
        ports = {"read": unit.read_ports, "write": unit.write_ports, "lanes": 1, "convert": 1}
        self._ports = {name: [0] * size for name, size in ports.items()}
        self._registers, self._accumulators = _File(unit.registers), _File(unit.accumulators)

    def advance(self) -> int:
        """Time one more vector; return the cycle at which it is stored."""
        end = 0
        for instruction in self._instructions:
            # only D_CNV reads accumulators, and writes a register from one
            sources = self._accumulators if instruction.opcode is Opcode.CONVERT else self._registers
            target = self._registers if instruction.opcode in (Opcode.LOAD, Opcode.CONVERT) else self._accumulators
            ports = self._ports[_UNITS.get(instruction.opcode, "lanes")]
            port = min(range(len(ports)), key=ports.__getitem__)
            # the last 0 gives `max` a second number if nothing is read
            start = max(ports[port], *(sources.ready(name) for name in instruction.reads), 0)
            # an add continues the accumulator that its name has; every other result gets a register of its own
            if instruction.opcode in _ACCUMULATES:
                start = max(start, target.ready(instruction.to))
            elif instruction.opcode is not Opcode.STORE:
                start = max(start, target.allocate(instruction.to))
            done = start + self._latency.get(instruction.opcode, 1)
            # pipelined: a unit takes the next instruction a cycle later, whenever this one's result is ready
            ports[port] = start + 1
            for name in instruction.reads:
                sources.read(name, start)
            if instruction.opcode is not Opcode.STORE:
                target.write(instruction.to, done)
            end = max(end, done)
        return end

    def state(self) -> tuple[int, ...]:
        """Return the state that decides all later times, in cycles after the first port is free."""
        now = min(cycle for ports in self._ports.values() for cycle in ports)
        # ports of a unit are alike: only when they are free counts, not which of them
        ports = (cycle - now for name in self._ports for cycle in sorted(self._ports[name]))
        return (*ports, *self._registers.state(now), *self._accumulators.state(now))


class _File:
    """Registers allocated in turn, with the cycles from which they can be read and written."""

    def __init__(self, size: int) -> None:
        self._turn = 0
        self._ready, self._last_read = [0] * size, [-1] * size
        self._at: dict[str, int] = {}

    def allocate(self, name: str) -> int:
        """Give a name the next register; return the cycle from which on it may be written."""
        at = self._at[name] = self._turn
        self._turn = (at + 1) % len(self._ready)
        # after the last read of its old content, and not before that was written
        return max(self._last_read[at] + 1, self._ready[at])

    def write(self, name: str, ready: int) -> None:
        """Note the cycle from which a name's register can be read."""
        self._ready[self._at[name]] = ready

    def ready(self, name: str) -> int:
        """Return the cycle from which a name's register can be read."""
        return self._ready[self._at[name]]

    def read(self, name: str, cycle: int) -> None:
        """Note that a name is read in a cycle."""
        at = self._at[name]
        self._last_read[at] = max(self._last_read[at], cycle)

    def state(self, now: int) -> Iterator[int]:
        """Yield when each register can be written, from the next one to allocate on, in cycles after `now`."""
        size = len(self._ready)
        for i in range(size):
            at = (self._turn + i) % size
            yield max(self._last_read[at] + 1, self._ready[at], now) - now


def _written(name: str, drops: int) -> list[Instruction]:
    """Return the instructions that end each program: D_CNV and the store."""
    return [
        Instruction(Opcode.CONVERT, "result", (name,), shift=drops),
        Instruction(Opcode.STORE, "memory", ("result",), base="out"),
    ]


def convert(words: Words, drops: int, target: Fixed, rounding: Rounding = Rounding.NEAREST_EVEN) -> Words:
    """D_CNV: return words shifted right, rounded and saturated.

    Args:
        words: accumulators, int64 above -2**63.
        drops: bits dropped; negative appends zeros.
        target: format whose range results are saturated to.
        rounding: any mode that draws no random bits.

    Raises:
        ConfigError: the mode draws random bits.

    Examples:
        >>> convert(np.array([-37883392]), 14, Fixed(16, 10)).tolist()
        [-2312]
    """
    if rounding.draws:
        raise ConfigError(
            f"`rounding` of D_CNV must not be stochastic, got {str(rounding)!r}; choose another one, e.g. nearest_even"
        )
    low, high = target.min_raw, target.max_raw
    # as in the rounding table: 0 exact, 1 below half, 2 half, 3 above half
    kept, remainder, beyond = np.abs(words), np.zeros_like(words), np.zeros(words.shape, bool)
    if drops <= 0:
        # from a shift of all bits on, every number but 0 lies beyond the range or is the lowest one
        up = min(-drops, _MAGNITUDE_BITS)
        # words * 2**up is above `high` if and only if the word is above high >> up, and below `low` likewise: no shift
        # wraps
        beyond = (words > high >> up) | (words < -(-low >> up))
        kept = np.where(beyond, 0, kept) << up
    else:
        if drops > _MAGNITUDE_BITS:
            # all words are below half, as 1 is
            kept, drops = np.minimum(kept, 1), _MAGNITUDE_BITS
        kept, rest, half = kept >> drops, kept & ((1 << drops) - 1), 1 << (drops - 1)
        remainder = (rest > 0) + (rest >= half).astype(np.int64) + (rest > half)
    # `Steps.table`: steps of the magnitude at place + 4 * odd + 8 * negative
    increments = np.array(rounding.meaning.steps_of(target).table)
    rounded = kept + increments[remainder + 4 * (kept & 1) + 8 * (words < 0)]
    signed = np.where(words < 0, -rounded, rounded)
    return np.where(beyond, np.where(words > 0, high, low), np.clip(signed, low, high))
