"""A cost table: what operations, registers and memories cost in a technology, one table per TOML file in `costs/`.

    name, description, source, node_nm       the technology
    [[operations]]                           add or multiply, of a format: energy, area
    [register_bit]                           one bit that is written: energy, area
    [[memory]], on_chip, main                levels: energy of an access; the two that machines have

Costs of formats between those of the table are interpolated linearly between their neighbours, over a size:

    add, fixed point        bits of the word                   multiply, fixed point     product of the widths
    add, floating point     bits of the significand            multiply, floating point  product of the significands

Below the narrowest format, costs go linearly to 0 at size 0. Above the widest, they are proportional to the size.

Source: docs/energy.md. That costs are linear in the size is our choice: an adder is a row of cells, one for each bit,
and a multiplier a field of them, one for each pair of bits.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from emu._config import FILE_NAME, Items, Table, checked, load_toml
from emu._paths import content_names, find_content, shown
from emu.errors import ConfigError
from emu.formats import DynamicFixed, Fixed, Float, Format, parse_number
from emu.hardware.quantity import Quantity

Operation = Literal["add", "multiply"]
Family = Literal["fixed", "float"]
Column = Literal["energy_pj", "area_um2"]
#: The table of a device that names none.
BASE_TABLE = "horowitz-45nm"


class OperationCost(Table):
    """The cost of one operation of a format.

    Attributes:
        operation: `add` or `multiply`.
        format: format of both operands and of the result.
        energy_pj: energy of one operation, picojoules.
        area_um2: area of the unit that does it, square micrometres; None if the source gives none.
        source: where both are from.
    """

    operation: Operation
    format: str
    energy_pj: float = Field(gt=0)
    area_um2: float | None = Field(default=None, gt=0)
    source: str = Field(min_length=1)

    @field_validator("format")
    @classmethod
    def _has_point(cls, text: str) -> str:
        if isinstance(parse_number(text), DynamicFixed):
            raise ConfigError(f"`format` of a cost must have its point in place, got {text!r}; write fix16f0")
        return text

    @property
    def family(self) -> Family:
        """Whether it is an operation of fixed-point or of floating-point words."""
        return "float" if isinstance(parse_number(self.format), Float) else "fixed"

    @property
    def size(self) -> int:
        """The size over which the table interpolates: bits of an adder, pairs of bits of a multiplier."""
        bits = significand_bits(parse_number(self.format))
        return bits if self.operation == "add" else bits * bits


class RegisterCost(Table):
    """The cost of one bit of a register.

    Attributes:
        energy_pj: energy of writing a bit, picojoules.
        area_um2: area of a bit, square micrometres; None if the source gives none.
        source: where both are from.
    """

    energy_pj: float = Field(ge=0)
    area_um2: float | None = Field(default=None, ge=0)
    source: str = Field(min_length=1)


class MemoryLevel(Table):
    """The cost of an access to a memory.

    Attributes:
        name: what a device calls it.
        access_bits: bits of an access.
        energy_pj: energy of an access, picojoules.
        source: where it is from.
    """

    name: str = Field(pattern=FILE_NAME)
    access_bits: int = Field(ge=1)
    energy_pj: float = Field(gt=0)
    source: str = Field(min_length=1)


class CostTable(Table):
    """Costs of operations, registers and memories in one technology.

    Attributes:
        name: what devices call it.
        description: one sentence.
        source: where its numbers are from.
        node_nm: the technology.
        on_chip: level of memory of a device whose file gives no memory bandwidth.
        main: level of memory of a device whose file gives one.
        operations: adders and multipliers of some formats.
        register_bit: a bit of a register; None if the source gives none, and registers then cost nothing.
        memory: levels of memory.
    """

    name: str = Field(pattern=FILE_NAME)
    description: str = Field(min_length=1)
    source: str = Field(min_length=1)
    node_nm: Quantity
    on_chip: str
    main: str
    operations: Items[OperationCost] = ()
    register_bit: RegisterCost | None = None
    memory: Items[MemoryLevel] = ()

    @model_validator(mode="after")
    def _levels_are_there(self) -> CostTable:
        for key, name in (("on_chip", self.on_chip), ("main", self.main)):
            self.level(name, f"`{key}` of cost table {self.name}")
        return self

    @model_validator(mode="after")
    def _wider_costs_more(self) -> CostTable:
        for operation in ("add", "multiply"):
            for family in ("fixed", "float"):
                rows = self._rows(operation, family)
                for low, high in pairwise(rows):
                    # otherwise a line between two rows would fall with the width, or divide by 0
                    if low.size == high.size or low.energy_pj >= high.energy_pj:
                        raise ConfigError(
                            f"energies of `{operation}` must rise with the {family} format, got {low.energy_pj:g} pJ "
                            f"of {low.format} and {high.energy_pj:g} pJ of {high.format} in cost table {self.name}; "
                            "correct one of them, or leave it out"
                        )
        return self

    def _rows(self, operation: str, family: str) -> list[OperationCost]:
        rows = [row for row in self.operations if (row.operation, row.family) == (operation, family)]
        return sorted(rows, key=lambda row: row.size)

    def register(self, bits: int, column: Column) -> Fraction | None:
        """Return the cost of a register of some bits, exactly; None if the table gives no area."""
        bit = self.register_bit
        # without a row, registers cost nothing in either column; with a row that gives no area, areas are unknown
        value = 0 if bit is None else bit.energy_pj if column == "energy_pj" else bit.area_um2
        return None if value is None else bits * exactly(value)

    def cost(self, operation: Operation, family: Family, size: int, column: Column) -> Fraction | None:
        """Return the cost of an operation of a size, exactly; None if the table gives no area.

        Args:
            operation: `add` or `multiply`.
            family: whether its words are fixed-point or float.
            size: bits of an adder, pairs of bits of a multiplier.
            column: `energy_pj` or `area_um2`.

        Raises:
            ConfigError: the table has no such operation.
        """
        rows = self._rows(operation, family)
        if not rows:
            kind = "fixed-point" if family == "fixed" else "floating-point"
            raise ConfigError(
                f"cost table {self.name} must give the cost of `{operation}` of a {kind} format, got none; add "
                "[[operations]] for it, or choose another table"
            )
        values = [(row.size, row.energy_pj if column == "energy_pj" else row.area_um2) for row in rows]
        # areas have a line of their own, through the rows that give one
        points = [(at, exactly(value)) for at, value in values if value is not None]
        return _interpolated(points, size) if points else None

    def level(self, name: str, what: str) -> MemoryLevel:
        """Return a level of memory by its name; messages call the key that names it `what`.

        Raises:
            ConfigError: there is none of that name.
        """
        for level in self.memory:
            if level.name == name:
                return level
        known = ", ".join(level.name for level in self.memory) or "none"
        raise ConfigError(f"{what} must name a level of [[memory]], got {name!r}; levels: {known}")


def significand_bits(fmt: Format) -> int:
    """Return how many bits of a format adders and multipliers work on: the significand, or a whole fixed-point word.

    Examples:
        >>> from emu.formats import parse
        >>> [significand_bits(parse(name)) for name in ("fix16f9", "fp16", "bf16", "fp32")]
        [16, 11, 8, 24]
    """
    return fmt.width_bits if isinstance(fmt, Fixed) else fmt.significand_bits


def exactly(value: float) -> Fraction:
    """Return a decimal number of a file exactly: 0.03 is 3/100.

    Examples:
        >>> exactly(0.03), exactly(1300)
        (Fraction(3, 100), Fraction(1300, 1))
    """
    # by its text: the float nearest to 0.03 is not 3/100
    return Fraction(str(value))


def _interpolated(points: list[tuple[int, Fraction]], size: int) -> Fraction:
    """Return the value at a size: linear from (0, 0) through the points, then proportional to the size."""
    below = (0, Fraction(0))
    for at, value in points:
        if size <= at:
            return below[1] + (value - below[1]) * Fraction(size - below[0], at - below[0])
        below = (at, value)
    return below[1] * Fraction(size, below[0])


def cost_table_names() -> list[str]:
    """Return the names of the shipped cost tables, sorted."""
    return content_names("costs")


def load_cost_table(name_or_path: str | Path | CostTable) -> CostTable:
    """Return a shipped cost table by name, or the one a TOML file gives; a table as it is.

    Raises:
        ConfigError: no such table, or its file breaks a rule.

    Examples:
        >>> table = load_cost_table("horowitz-45nm")
        >>> table.cost("multiply", "fixed", 16 * 16, "energy_pj")
        Fraction(39, 50)
    """
    if isinstance(name_or_path, CostTable):
        return name_or_path
    path = find_content("costs", name_or_path)
    return checked(CostTable, load_toml(path), file=shown(path))
