"""How long operations take on a device: cycles of its units, bytes of its memory, transfers to its host.

    product        each vector of results takes a cycle for each product of a result, or as many as the read ports need;
                   on multiprocessors, waves of tiles (`waves.py`)
    elementwise    each vector takes a cycle for each instruction of the lanes, or as many as its ports need; one
                   cycle if the unit gives no ports
    memory         each operand is read once and each result written once; the longer of unit and memory counts
    start          from one operation to the next, if the unit gives it
    host           operations that are left to it, and those whose formats no unit takes

A device without a clock computes bits and has no time. Times are integers, picoseconds.

Source: docs/design/machines.md, "Machines and simulated time"; docs/dynamic-fixed-point.md, "What it costs: the
machine with a clock"; Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009. That each operand is read once is
our choice: a lower bound on the bytes of any order of reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from emu.datapath.registers import DEFAULT_FLOAT_BINS
from emu.errors import ConfigError, EmuWarning
from emu.formats import Fixed, Format, Scaled, parse
from emu.formats.integers import as_integer
from emu.formats.scaled import bits_of
from emu.hardware.device import HOST, MAC_ARRAY, MATRIX_UNIT, STATISTICS, ComputeUnit, Device
from emu.hardware.precision_table import PrecisionTable
from emu.hardware.waves import Product, Way, ways_of
from emu.operations import OPERATIONS
from emu.operations.kinds import kind_of

#: Picoseconds of a second.
SECOND_PS = 10**12
#: Name of a demand without an operation: a register is read, and a binary point chosen from it.
DECISION = "decide points"
#: The same if registers of several nodes are added up first.
JOINT_DECISION = "decide points together"
DECISIONS = (DECISION, JOINT_DECISION)
#: Bytes of a row index, and of the index at which a column begins, of a transposed copy.
INDEX_BYTES = 4
#: Operands of a product without an addend.
PRODUCT_OPERANDS = 2


class Demand(NamedTuple):
    """The work that one operation asks of a machine.

    Attributes:
        layer: layer whose result is written.
        role: the result's role.
        operation: its name in `emu.operations.OPERATIONS`, or one of `DECISIONS`, "prepare", "copy".
        results: elements written.
        multiply_adds: multiply-adds of its products.
        passes: passes of a host over the largest operand; 0 if the datapath does everything.
        operands: formats and numbers of elements read; format None is an index or a mask, which is not counted.
        result_format: format of the result.
        again: whether the same operation ran before, at another binary point.
        index_bytes: bytes of the positions of a sparse operand's entries, which are read as well; of indices that are
            made, which are written.
    """

    layer: str
    role: str
    operation: str
    results: int
    multiply_adds: int
    passes: int
    operands: tuple[tuple[Format | None, int], ...]
    result_format: Format | None
    again: bool = False
    index_bytes: int = 0

    @property
    def kind(self) -> str:
        """The kind that its time and energy count as: forward, backward or update."""
        return kind_of(self.role)

    def to_list(self) -> list[Any]:
        """Return plain data (JSON) that `of_list` reads back: formats by their text."""
        operands = [[_text_of(fmt), size] for fmt, size in self.operands]
        # the first six are texts and integers already
        return [*self[:6], operands, _text_of(self.result_format), self.again, self.index_bytes]

    def require_integers(self) -> None:
        """Raise ConfigError unless every count is an integer from 0 on."""
        for name in ("results", "multiply_adds", "passes", "index_bytes"):
            as_integer(name, getattr(self, name), 0, error=ConfigError)
        for _, size in self.operands:
            as_integer("operands", size, 0, error=ConfigError)

    @classmethod
    def of_list(cls, data: Sequence[Any]) -> Demand:
        """Return what `to_list` wrote."""
        layer, role, operation, results, multiply_adds, passes, operands, result_format, again, index_bytes = data
        read = tuple((_format_of(text), size) for text, size in operands)
        written = _format_of(result_format)
        return cls(layer, role, operation, results, multiply_adds, passes, read, written, again, index_bytes)


class OperationTime(NamedTuple):
    """How long an operation takes, and why.

    Attributes:
        unit: unit that computes it.
        cycles: cycles of the unit.
        unit_ps: time of the unit.
        bytes: bytes that the memory moves, or the link for operations on a host.
        memory_ps: time of the memory; 0 if the device does not give its bandwidth.
        operations: multiply-adds, or if there are none passes times elements; on a host, both.
        start_ps: time from the operation before.
    """

    unit: str
    cycles: int
    unit_ps: int
    bytes: int
    memory_ps: int
    operations: int
    start_ps: int = 0

    @property
    def duration_ps(self) -> int:
        """The start, and the longer of unit and memory."""
        return self.start_ps + max(self.unit_ps, self.memory_ps)


class Roof(NamedTuple):
    """The bounds of a unit's speed.

    Attributes:
        unit: its name.
        operations_per_s: its peak, or the share of it that the device gives, in multiply-adds per second.
        bytes_per_s: what operations reach of the bandwidth of the memory; None if the device does not give it.
    """

    unit: str
    operations_per_s: float
    bytes_per_s: float | None


class Machine:
    """A device with its speed.

    Attributes:
        device: the device.
        host: name of the unit that is its host; None if it has none.
        link_bytes_per_s: bandwidth between device and host; None if there is no link.
        link_latency_ps: latency of a transfer's first byte.
        time_of: returns the `OperationTime` of a `Demand`.
    """

    def __init__(self, device: Device) -> None:
        """Take a device with a clock.

        Raises:
            ConfigError: no array of multiply-adds has lanes and a clock; see `machine_of`.
        """
        self.device = device
        self._units = {name: unit for name, unit in device.compute.units.items() if unit.lanes is not None}
        if not can_be_timed(device):
            raise ConfigError(
                f"a device must give a clock and the lanes of a {MAC_ARRAY!r} to have times, got none in "
                f"{device.name}; add `clock_hz` to [compute] and a unit of that kind, with `lanes`, to [compute.units]"
            )
        self.host = next((name for name, unit in self._units.items() if unit.kind == HOST), None)
        self._arrays = [name for name, unit in self._units.items() if unit.kind not in (HOST, STATISTICS)]
        link = next((link for link in device.links if link.to == HOST), None)
        self.link_bytes_per_s = None if link is None else link.bytes_per_s
        self.link_latency_ps = 0 if link is None else round(link.latency_s.value * SECOND_PS)
        self._bandwidth = device.compute.memory_bytes_per_s
        # a cache for each machine: a step asks for the same few demands again and again
        self.time_of = lru_cache(maxsize=4096)(self._find_time)
        self._decision_bytes = register_bytes(device.precision)

    def cost(self, demand: Demand) -> OperationTime:
        """Return `time_of` a demand, under its former name; warns."""
        warnings.warn(
            "Machine.cost is called Machine.time_of now, because it returns no price; call that instead",
            EmuWarning,
            stacklevel=2,
        )
        return self.time_of(demand)

    # ---- units ----

    def clock_hz(self, name: str) -> float:
        """Return the clock of a unit."""
        clock = self._units[name].clock_hz or self.device.compute.clock_hz
        assert clock is not None
        return clock.value

    def roofs(self) -> list[Roof]:
        """Return the bounds of each unit that computes."""
        roofs: list[Roof] = []
        for name in self._arrays:
            unit = self._units[name]
            assert unit.lanes is not None
            peak = unit.lanes.value * self.clock_hz(name) * _efficiency(unit)
            roofs.append(Roof(name, peak, self._bandwidth))
        return roofs

    def unit_of(self, demand: Demand) -> str:
        """Return the unit that computes: the first that takes the operands' formats, else the host, else the last.

        Matrix units compute products alone.

        Constants do not count, because they are part of the program. An operation that converts takes any format.
        """
        # an operation with passes is one that the datapath cannot do
        if demand.passes and self.host:
            return self.host
        row = OPERATIONS.get(demand.operation)
        read = () if row is not None and row.takes_any_format else demand.operands
        # an operation on constants alone is chosen by the format of its result
        formats = [fmt for fmt, size in read if fmt is not None and size > 1] or [demand.result_format]
        names = [str(fmt) for fmt in formats]
        is_product = _is_product(demand)
        able = [name for name in self._arrays if is_product or self._units[name].kind != MATRIX_UNIT]
        return self._first_that_takes(names, able) or self.host or able[-1]

    def _first_that_takes(self, formats: Sequence[str], units: Sequence[str]) -> str | None:
        """Return the first of some units that takes all of some formats; None if there is none."""
        for name in units:
            taken = self._units[name].operands
            # a unit without a list takes every format
            if not taken or all(any(fnmatchcase(fmt, pattern) for pattern in taken) for fmt in formats):
                return name
        return None

    # ---- times ----

    def _find_time(self, demand: Demand) -> OperationTime:
        demand.require_integers()  # 8.0 == 8: the cache would return its time for later demands as well
        name = self.unit_of(demand)
        unit = self._units[name]
        if name == self.host:
            largest = max([demand.results, *(size for _, size in demand.operands)])
            # a host computes its sums and passes one after the other, so that they add up
            operations = demand.multiply_adds + max(demand.passes, 1) * largest
            cycles = -(-operations // _lanes(unit))
            return OperationTime(
                name, cycles, self._cycles_ps(name, cycles), sum(self.host_bytes(demand)), 0, operations
            )
        operations = demand.multiply_adds or max(demand.passes, 1) * _in_lanes(demand)
        moved = demand.index_bytes + self._bytes([*demand.operands, (demand.result_format, demand.results)])
        if unit.tiles is not None and _is_product(demand) and not demand.index_bytes:  # entries fill no tiles
            ways = ways_of(unit, Product.of(demand.results, demand.multiply_adds, demand.operands[1][1]))
        else:
            ways = iter([Way(_cycles(unit, demand), 0)])
        times = (self._time_of_way(name, way, moved, operations) for way in ways)
        # a library is taken to choose the fastest
        return min(times, key=lambda time: time.duration_ps)

    def _time_of_way(self, name: str, way: Way, moved: int, operations: int) -> OperationTime:
        """Return the time of a way: operands move while the unit works, parts of sums after its multiply-adds."""
        moved_ps, parts_ps = (
            0 if self._bandwidth is None else _rounded_up(size, self._bandwidth) for size in (moved, way.moved_bytes)
        )
        unit_ps = self._cycles_ps(name, way.cycles) + parts_ps
        return OperationTime(
            name, way.cycles, unit_ps, moved + way.moved_bytes, moved_ps, operations, self.start_ps(name)
        )

    def start_ps(self, name: str) -> int:
        """Return how long a unit takes from one operation to the next."""
        start = self._units[name].start_s
        return round(start.value * SECOND_PS) if start else 0

    @property
    def kernel_start_ps(self) -> int:
        """How long the device takes from one kernel to the next that quantises gradients, which are float32.

        Its unit is chosen as `unit_of` chooses one, but never the host: that these kernels run on the device is given.
        """
        names = [name for name in self._arrays if self._units[name].kind != MATRIX_UNIT]
        # at least one is left: `can_be_timed` asks for a MAC array
        return self.start_ps(self._first_that_takes(["fp32"], names) or names[-1])

    def _cycles_ps(self, name: str, cycles: int) -> int:
        return _rounded_up(cycles, self.clock_hz(name))

    def transposed_copy(self, product: Demand, columns: int) -> OperationTime:
        """Return how long a transposed copy of a product's sparse operand would take; the product itself makes none.

        The copy reads entries, their columns and where rows begin, and writes entries, their rows and where columns
        begin, each once: a lower bound, as for any operand. Numbers that it writes beside entries have four bytes. The
        unit moves an entry in each lane in each cycle, or as its ports allow.

        Args:
            product: product whose first operand is the matrix.
            columns: columns of the matrix, those without entries among them.
        """
        fmt, entries = product.operands[0]
        read = self._bytes([(fmt, entries)]) + product.index_bytes
        moved = read + self._bytes([(fmt, entries)]) + INDEX_BYTES * (entries + columns + 1)
        name = self.unit_of(product)
        copy = Demand(product.layer, product.role, "copy", entries, 0, 0, ((fmt, entries),), fmt)
        if name == self.host:
            cycles = -(-entries // _lanes(self._units[name]))
            return OperationTime(name, cycles, self._cycles_ps(name, cycles), moved, 0, entries)
        cycles = _cycles(self._units[name], copy)
        memory_ps = 0 if self._bandwidth is None else _rounded_up(moved, self._bandwidth)
        return OperationTime(name, cycles, self._cycles_ps(name, cycles), moved, memory_ps, entries)

    @staticmethod
    def _bytes(parts: Sequence[tuple[Format | None, int]]) -> int:
        return sum(int(-(-_bits(fmt) * size // 8)) for fmt, size in parts)

    def host_bytes(self, demand: Demand) -> tuple[int, int]:
        """Return the bytes that an operation on the host sends up and down: floats are on the host already."""
        up = self._bytes([part for part in demand.operands if _is_fixed(part)])
        return up, self._bytes([part for part in [(demand.result_format, demand.results)] if _is_fixed(part)])

    def transfer_ps(self, size_bytes: int) -> int:
        """Return how long a transfer between device and host takes; 0 without a link."""
        if not self.link_bytes_per_s:
            return 0
        return self.link_latency_ps + _rounded_up(size_bytes, self.link_bytes_per_s)

    def decision_bytes(self) -> int:
        """Return the size of a statistics register that is sent to the host."""
        return self._decision_bytes


def register_bits(precision: PrecisionTable) -> int:
    """Return the bits of a statistics register: a count for each position, and one of all results.

    Positions are as many as `bins` says, else one for each bit of a fixed-point accumulator but its sign. An
    accumulator whose point follows its products always has one for each bit: there `bins` counts the positions of all
    points that it may have.
    """
    bins, accumulator = precision.register.bins, precision.mac_of("").accumulator
    if isinstance(accumulator, Fixed) and (bins is None or precision.has_open_accumulator("", "activation")):
        bins = max(accumulator.width_bits - accumulator.signed, 1)
    return ((bins or DEFAULT_FLOAT_BINS) + 1) * precision.register.counter_bits


def register_bytes(precision: PrecisionTable) -> int:
    """Return the size of a statistics register as it is sent, in whole bytes."""
    return -(-register_bits(precision) // 8)


def can_be_timed(device: Device) -> bool:
    """Return whether a device has an array that multiplies and adds, with lanes and a clock."""
    # an array of multiply-adds is required, since matrix units compute products alone
    return any(
        unit.lanes is not None and (unit.clock_hz or device.compute.clock_hz) is not None and unit.kind == MAC_ARRAY
        for unit in device.compute.units.values()
    )


def machine_of(device: Device) -> Machine | None:
    """Return a device as a machine; None if it cannot be timed."""
    return Machine(device) if can_be_timed(device) else None


def _efficiency(unit: ComputeUnit) -> float:
    return unit.efficiency.value if unit.efficiency else 1.0


def _lanes(unit: ComputeUnit) -> int:
    assert unit.lanes is not None
    return int(unit.lanes.value)


def _cycles(unit: ComputeUnit, demand: Demand) -> int:
    """Return the cycles of a unit: those of `VectorUnit` if its ports are given, else as if all lanes always worked."""
    lanes, ports = _lanes(unit), unit.read_ports and int(unit.read_ports.value)
    filled = int(unit.fill_cycles.value) if unit.fill_cycles and not unit.tiles else 0  # of tiles, each wave has it
    if not ports:
        # the longer of multiply-adds and elements counts, as lanes do both at once
        work = max(demand.multiply_adds, max(demand.passes, 1) * _in_lanes(demand))
        # a Fraction of the float's value: rounding up must not depend on the rounding of a quotient
        return -(-work // (lanes * Fraction(_efficiency(unit)))) + filled
    vectors = -(-_in_lanes(demand) // lanes)
    if demand.multiply_adds:
        # products of each result
        depth = -(-demand.multiply_adds // max(demand.results, 1))
        addends = len(demand.operands) > PRODUCT_OPERANDS  # loaded, and set before the first product
        # each product takes a cycle of the lanes and two loads; the slower of lanes and ports counts
        return vectors * max(depth + addends, -(-(2 * depth + addends) // ports)) + filled
    operands = sum(1 for _, size in demand.operands if size > 1)
    row = OPERATIONS.get(demand.operation)  # None for a copy, and for the preparation of a batch
    in_lanes = max(demand.passes, 1 if row is None else row.lane_instructions)
    return vectors * max(in_lanes, -(-operands // ports)) + filled


def _is_product(demand: Demand) -> bool:
    row = OPERATIONS.get(demand.operation)
    return row is not None and row.is_product and demand.multiply_adds > 0


def _in_lanes(demand: Demand) -> int:
    """Return how many elements lanes handle: each result, or each element to choose from."""
    row = OPERATIONS.get(demand.operation)
    return demand.operands[0][1] if row is not None and row.only_chooses else demand.results


def _is_fixed(part: tuple[Format | None, int]) -> bool:
    """Return whether an operand of the host is on the device: floats are on the host already."""
    return isinstance(part[0], Fixed)


def _text_of(fmt: Format | None) -> str | None:
    return None if fmt is None else str(fmt)


def _format_of(text: str | None) -> Format | None:
    return None if text is None else parse(text)


def _bits(fmt: Format | Scaled | None) -> float:
    return 0 if fmt is None else bits_of(fmt)


def _rounded_up(amount: int, per_second: float) -> int:
    # integers alone: the same on every computer
    return -(-amount * SECOND_PS // round(per_second))
