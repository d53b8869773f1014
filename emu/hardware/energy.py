"""The energy of an operation and the area of its unit, from the parts of the datapath and how often each is used.

    operand registers ──► multiplier ──► adder ──► accumulator register ──► rounding ──► memory
                                                                              └──► statistics register

A `Use` is one part of a unit and how often an operation uses it. Energy is the sum over uses. The area of a part is
that of its widest use. Both follow from formats and sizes alone, in exact fractions.

Source: docs/energy.md, which gives the rule of each part and says what is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from emu.datapath import Mac, OutputStage, Rounding
from emu.datapath.order import Blocks, Promote
from emu.formats import Fixed, Float, Format
from emu.formats.scaled import bits_of, element_of
from emu.hardware.cost_table import Column, CostTable, Family, exactly, significand_bits
from emu.hardware.device import HOST, STATISTICS, Device
from emu.hardware.machine import Demand, register_bits
from emu.operations import OPERATIONS
from emu.operations.row import Energy

#: Parts of a datapath, in the order of a report.
MULTIPLIER, ADDER, ROUNDING, REGISTERS = "multiplier", "adder", "rounding", "registers"
COUNTERS, MEMORY, ON_HOST = "statistics", "memory", "host"
PARTS = (MULTIPLIER, ADDER, ROUNDING, REGISTERS, COUNTERS, MEMORY, ON_HOST)

#: Modes that need no adder, by family: they drop bits, or set the last one kept. All others may add 1 to it.
_DROPPING: dict[Family, frozenset[Rounding]] = {
    "fixed": frozenset((Rounding.FLOOR, Rounding.TO_ODD, Rounding.JAMMING)),
    "float": frozenset((Rounding.TOWARD_ZERO, Rounding.MAGNITUDE_TRUNCATION, Rounding.TO_ODD, Rounding.JAMMING)),
}
#: Bits of an aligned product above its fraction: its sign, and two before the point, since a product of two
#: significands below 2 is below 4.
_BITS_ABOVE = 3


class Use(NamedTuple):
    """One part of a datapath, and how often an operation uses it.

    Attributes:
        part: one of `PARTS`.
        operation: what it does: `add`, `multiply`, or `register`: it is written.
        family: whether its words are fixed-point or float.
        size: bits of an adder or a register, pairs of bits of a multiplier.
        times: how often the operation uses it.
    """

    part: str
    operation: Literal["add", "multiply", "register"]
    family: Family
    size: int
    times: int


class Prices:
    """Prices of uses by a cost table; each is looked up once.

    Attributes:
        table: the table.
    """

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self._prices: dict[tuple[str, Family, int, Column], Fraction | None] = {}

    def of(self, use: Use, column: Column) -> Fraction | None:
        """Return the energy of one use, or the area of its part; None if the table gives no area.

        Raises:
            ConfigError: the table has no such operation.
        """
        key = (use.operation, use.family, use.size, column)
        if key not in self._prices:
            self._prices[key] = (
                self.table.register(use.size, column)
                if use.operation == "register"
                else self.table.cost(use.operation, use.family, use.size, column)
            )
        return self._prices[key]


class Datapath(NamedTuple):
    """The hardware that computes an operation.

    Attributes:
        mac: unit of its products and sums.
        stage: output stage of its results.
        host_format: format in which a host computes.
        counter_bits: bits of a counter of its statistics register; 0 if there is none.
        on_host: whether a host computes operations that ask for passes.
    """

    mac: Mac
    stage: OutputStage
    host_format: Format
    counter_bits: int
    on_host: bool


def uses_of(demand: Demand, path: Datapath) -> list[Use]:
    """Return the parts of a datapath that an operation uses, without the memory."""
    demand = _of_elements(demand)
    largest = max([demand.results, *(size for _, size in demand.operands)])
    if demand.passes and path.on_host:
        return _host_uses(demand, path.host_format, largest)
    energy = OPERATIONS[demand.operation].energy
    if energy.moves:
        # the largest of n numbers takes n - 1 comparisons
        compared = largest - demand.results if energy.compares else 0
        return [Use(ADDER, "add", *_adder_of(_formats(demand)[:1]), compared)] if compared else []
    uses = _reduction_uses(demand, path.mac, multiplies=energy.pairs) if demand.multiply_adds else []
    uses += _result_uses(demand, energy, largest)
    uses += _rounding_uses(path.stage, demand.results)
    if path.counter_bits:
        uses += [Use(COUNTERS, "add", "fixed", path.counter_bits, demand.results)]
        uses += [Use(COUNTERS, "register", "fixed", path.counter_bits, demand.results)]
    return [use for use in uses if use.times]


def memory_bytes(demand: Demand) -> int:
    """Return the bytes that the memory moves: each operand is read once, each result written once."""
    parts = [*demand.operands, (demand.result_format, demand.results)]
    # in whole bytes for each operand; elements that share scales have a fraction of a bit more each
    return demand.index_bytes + sum(int(-(-bits_of(fmt) * size // 8)) for fmt, size in parts if fmt is not None)


def byte_pj(table: CostTable, level: str) -> Fraction:
    """Return the energy of a byte at a level of memory."""
    memory = table.level(level, "a device's `memory`")
    return exactly(memory.energy_pj) * 8 / memory.access_bits


def energy_pj(uses: Iterable[Use], prices: Prices) -> dict[str, Fraction]:
    """Return the energy of uses by part, exactly, in picojoules.

    Raises:
        ConfigError: the table has no such operation.
    """
    by_part: dict[str, Fraction] = {}
    for use in uses:
        price = prices.of(use, "energy_pj")
        assert price is not None, "each row has an energy"
        by_part[use.part] = by_part.get(use.part, Fraction(0)) + use.times * price
    return by_part


def lane_area_um2(operations: Iterable[Sequence[Use]], prices: Prices) -> dict[str, Fraction] | None:
    """Return the area of one lane that can do all given operations, by part; None if the table gives no areas.

    Each part is as large as its largest use. Adders of fixed and of floating point are two parts.
    """
    # within one operation uses of a part add up, as they work side by side; of all operations the largest counts
    largest: dict[tuple[str, Family], Fraction] = {}
    for uses in operations:
        lane: dict[tuple[str, Family], Fraction] = {}
        for use in uses:
            area = prices.of(use, "area_um2")
            if area is None:
                return None
            lane[use.part, use.family] = lane.get((use.part, use.family), Fraction(0)) + area
        for key, area in lane.items():
            largest[key] = max(largest.get(key, Fraction(0)), area)
    by_part: dict[str, Fraction] = {}
    for (part, _), area in largest.items():
        by_part[part] = by_part.get(part, Fraction(0)) + area
    return by_part


def counts_leading_bits(device: Device) -> bool:
    """Return whether a device has a statistics register: its file gives positions, or a unit that counts."""
    units = device.compute.units.values()
    return device.precision.register.bins is not None or any(unit.kind == STATISTICS for unit in units)


def statistics_bits(device: Device) -> int:
    """Return the bits of a device's statistics register; 0 without one."""
    return register_bits(device.precision) if counts_leading_bits(device) else 0


def has_host(device: Device) -> bool:
    """Return whether a host computes losses: the device's file gives one, or no unit that computes."""
    kinds = [unit.kind for unit in device.compute.units.values()]
    return HOST in kinds or not any(kind != STATISTICS for kind in kinds)


# ---- parts ----


def _of_elements(demand: Demand) -> Demand:
    """Return a demand whose operands and results have the formats of elements, where these share scales."""
    operands = tuple((fmt and element_of(fmt), size) for fmt, size in demand.operands)
    result = demand.result_format
    return demand._replace(operands=operands, result_format=result and element_of(result))


def _formats(demand: Demand) -> list[Format]:
    """Return the formats of an operation's words: those of operands that are not constants, else of its result."""
    # a constant is one number, whatever its format
    read = [fmt for fmt, size in demand.operands if fmt is not None and size > 1]
    return read or [fmt for fmt in (demand.result_format,) if fmt is not None]


def _family(formats: Iterable[Format]) -> Family:
    return "float" if any(isinstance(fmt, Float) for fmt in formats) else "fixed"


def _adder_of(formats: Sequence[Format]) -> tuple[Family, int]:
    return _family(formats), max(significand_bits(fmt) for fmt in formats)


def _word_bits(fmt: Format) -> int:
    """Return the bits of the fixed-point word that holds every value of a format."""
    if isinstance(fmt, Fixed):
        return fmt.width_bits
    # from the finest digit, 2**(emin - fraction_bits), up to the first digit of the largest value, and a sign
    return fmt.signed + fmt.emax - (fmt.emin - fmt.fraction_bits) + 1


def exact_bits(formats: Sequence[Format], terms: int) -> int:
    """Return the bits of an accumulator that never rounds or overflows: those of a product, and log2 of the terms.

    A product of words of a and b bits has at most a + b bits, and each doubling of the terms adds one.

    Examples:
        >>> from emu.formats import parse
        >>> exact_bits([parse("fix16f9"), parse("fix16f13")], 25), exact_bits([parse("fp16")] * 2, 25)
        (37, 87)
    """
    # (n - 1).bit_length() is ceil(log2(n))
    return sum(_word_bits(fmt) for fmt in formats) + (max(terms, 1) - 1).bit_length()


def _reduction_uses(demand: Demand, mac: Mac, *, multiplies: bool) -> list[Use]:
    """Return the uses of products and sums: multipliers, adders, and the registers around them."""
    times = demand.multiply_adds
    # factors if pairs are multiplied, else the terms; if all operands are indices or masks, the format of the result
    operands = [fmt for fmt, _ in demand.operands[: 2 if multiplies else 1] if fmt is not None] or _formats(demand)
    uses: list[Use] = []
    if multiplies:
        a, b = significand_bits(operands[0]), significand_bits(operands[-1])
        uses.append(Use(MULTIPLIER, "multiply", _family(operands), a * b, times))
        if isinstance(mac.product, Fixed):
            uses += _rounding_uses(mac.stage_of(mac.product), times)
    summed = [mac.product] if mac.product != "exact" and multiplies else operands
    accumulator_bits, adders = _adder_uses(summed, mac, demand)
    # every multiply-add writes the registers of both operands and the accumulator
    latched = sum(fmt.width_bits for fmt in operands) + accumulator_bits
    return [*uses, *adders, Use(REGISTERS, "register", "fixed", latched, times)]


def _adder_uses(summed: Sequence[Format], mac: Mac, demand: Demand) -> tuple[int, list[Use]]:
    """Return the bits of the accumulator, and the uses of the adder in front of it."""
    accumulator, times = mac.accumulator, demand.multiply_adds
    if isinstance(mac.order, Promote):
        # the inner unit adds each product, and each run ends with a multiplication and an add in the wider accumulator
        assert accumulator != "exact"
        runs = _groups(demand, mac.order.n)
        bits, uses = _adder_uses(summed, mac.inner, demand)
        if isinstance(accumulator, Fixed):
            return bits + accumulator.width_bits, [*uses, Use(ADDER, "add", "fixed", accumulator.width_bits, runs)]
        size = significand_bits(accumulator)
        outer = [Use(MULTIPLIER, "multiply", "float", size * size, runs), Use(ADDER, "add", "float", size, runs)]
        return bits + accumulator.width_bits, uses + outer
    if accumulator == "exact":
        # terms of each result, an addend among them
        terms = -(-times // max(demand.results, 1)) + (len(demand.operands) > 2)
        bits = exact_bits(summed, terms)
        return bits, [Use(ADDER, "add", "fixed", bits, times)]
    bits = accumulator.width_bits
    if isinstance(accumulator, Fixed):
        uses = [Use(ADDER, "add", "fixed", bits, times)]
        # products of fixed-point words have as many fraction bits as both factors together
        fraction = sum(fmt.frac_bits for fmt in summed if isinstance(fmt, Fixed))
        # floats are taken to have digits below those of a fixed-point accumulator
        rounds = _family(summed) == "float" or fraction > accumulator.frac_bits
        return bits, uses + (_rounding_uses(mac.stage_of(accumulator), times) if rounds else [])
    size = significand_bits(accumulator)
    if isinstance(mac.order, Blocks):
        aligned = mac.order.fraction_bits + _BITS_ABOVE
        blocks = _groups(demand, mac.order.n)
        uses = [Use(ADDER, "add", "fixed", aligned, times), Use(ADDER, "add", "float", size, blocks)]
        return bits, uses + _random_uses(mac.stage_of(accumulator), blocks)
    # the table's adders of floats round; random bits come from a register beside them
    uses = [Use(ADDER, "add", "float", size, times)]
    return bits, uses + _random_uses(mac.stage_of(accumulator), times)


def _groups(demand: Demand, n: int) -> int:
    """Return how many groups of up to n products an operation adds: a group has products of one result."""
    depth, more = divmod(demand.multiply_adds, max(demand.results, 1))
    return demand.results * -(-depth // n) + -(-more // n)


def _result_uses(demand: Demand, energy: Energy, largest: int) -> list[Use]:
    """Return the uses of an operation on single elements: a multiplier, an adder, registers of operands and result."""
    multiplies, adds = energy.multiplications, energy.additions
    if demand.multiply_adds and not (multiplies or adds):
        return []  # the registers around products and sums are those of the accumulator
    # without a host, the lanes make the passes
    times = demand.passes * largest if demand.passes else demand.results
    formats = _formats(demand)
    family, size = _adder_of(formats)
    operands = [fmt for fmt, _ in demand.operands if fmt is not None] or formats
    uses: list[Use] = []
    if multiplies:
        a, b = significand_bits(operands[0]), significand_bits(operands[min(1, len(operands) - 1)])
        uses.append(Use(MULTIPLIER, "multiply", family, a * b, times))
        # a product of words is added with all of its bits
        size = max(size, a + b) if family == "fixed" else size
    if adds:
        uses.append(Use(ADDER, "add", family, size, times))
    latched = sum(fmt.width_bits for fmt in operands) + (demand.result_format or operands[0]).width_bits
    return [*uses, Use(REGISTERS, "register", "fixed", latched, times)]


def _rounding_uses(stage: OutputStage, times: int) -> list[Use]:
    """Return the uses of a rounding: an adder as wide as what is kept, and random bits; none if bits are dropped."""
    family = _family([stage.format])
    bits = significand_bits(stage.format)
    if stage.rounding in _DROPPING[family]:
        return []
    random = _random_uses(stage, times)
    # random bits are added below the last place
    return [Use(ROUNDING, "add", "fixed", bits + (stage.n_rbits if random else 0), times), *random]


def _random_uses(stage: OutputStage, times: int) -> list[Use]:
    """Return the register of random bits that a stochastic rounding writes."""
    if not stage.rounding.value.startswith("stochastic"):
        return []
    return [Use(ROUNDING, "register", "fixed", stage.n_rbits, times)]


def _host_uses(demand: Demand, fmt: Format, largest: int) -> list[Use]:
    """Return the uses of a host: a multiplication and an addition in each pass over the largest operand, and sums."""
    family, bits = _adder_of([fmt])
    passed = demand.passes * largest
    return [
        Use(ON_HOST, "multiply", family, bits * bits, passed),
        Use(ON_HOST, "add", family, bits, passed + demand.multiply_adds),
    ]


def require_level(table: CostTable, device: Device) -> str:
    """Return the level of memory that a device's operands come from: its own choice, else that of the table.

    Raises:
        ConfigError: the table has no such level.
    """
    chosen = device.cost.memory if device.cost else None
    by_default = table.on_chip if device.compute.memory_bandwidth_bytes_per_s is None else table.main
    return table.level(chosen or by_default, f"`memory` of [cost] of device {device.name}").name
