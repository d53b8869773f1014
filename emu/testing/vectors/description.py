"""Vectors, and their description: operation, formats, stage and unit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_serializer, model_validator

from emu._config import Items, Table
from emu.datapath import Mac, OutputStage, Tininess
from emu.datapath.stage import DEFAULT_RANDOM_BITS
from emu.errors import ConfigError, nearest_name
from emu.formats import Format, parse
from emu.formats.parse import modes_of
from emu.testing.contract.case import ELEMENTWISE

Codes = NDArray[np.uint64]
#: Operations and their numbers of operands; a product's third is an addend, which may be left out.
OPERANDS = {"quantize": 1, **ELEMENTWISE, "matmul": 2}
NAMES = ("a", "b", "c")
#: Flags as TestFloat writes them, by bit; `infinite` is a quotient by zero.
TESTFLOAT_FLAGS = ("inexact", "underflow", "overflow", "infinite", "invalid")


class MacTable(Table):
    """A multiply-accumulate unit by the words of `emu.Mac`."""

    product: str = "exact"
    accumulator: str = "exact"
    order: str = "sequential"
    rounding: str | None = None
    overflow: str | None = None

    @classmethod
    def of(cls, mac: Mac) -> MacTable:
        """Return the table of a unit."""
        parts = {name: str(getattr(mac, name)) for name in ("product", "accumulator", "order", "rounding")}
        return cls(**parts, overflow=None if mac.overflow is None else mac.overflow.value)

    def mac(self) -> Mac:
        """Return the unit."""
        return Mac(self.product, self.accumulator, self.order, self.rounding, self.overflow)


class Description(Table):
    """An operation: its operands' formats, its unit, and how results are written.

    Attributes:
        operation: quantize, add, subtract, multiply, divide, fma, sqrt, remainder, round_to_integral or matmul.
        formats: of the operands; of `matmul` a third one is the addend's.
        out_format: of the result.
        rounding: rounding mode; None is what `out_format` brings, as `ap_fixed<16,8>` does, and else `nearest_even`.
        overflow: rule; None is what `out_format` brings, and else the format's own.
        n_rbits: random bits of stochastic rounding.
        mac: the unit of `matmul`.
        depth: terms of each product.
        count: how many vectors.
        seed: of operands and random bits.
        tininess: when the underflow of IEEE 754 calls a result tiny, before_rounding or after_rounding; None: hex files
            have emu's own underflow, TestFloat's lines that of after_rounding.
    """

    operation: str
    formats: Items[str] = Field(min_length=1, max_length=3)
    out_format: str
    rounding: str | None = None
    overflow: str | None = None
    n_rbits: int = Field(default=DEFAULT_RANDOM_BITS, ge=1, le=32)
    mac: MacTable = MacTable()
    depth: int = Field(default=1, ge=1)
    count: Annotated[int, Field(ge=1)] = 1000
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    tininess: Annotated[Tininess, Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Description:
        if self.operation not in OPERANDS:
            raise ConfigError(
                f"`operation` must be one of {', '.join(OPERANDS)}, got {self.operation!r}"
                f"{nearest_name(self.operation, OPERANDS)}"
            )
        wanted = {OPERANDS[self.operation], OPERANDS[self.operation] + (self.operation == "matmul")}
        if len(self.formats) not in wanted:
            raise ConfigError(
                f"{self.operation} must have {' or '.join(map(str, sorted(wanted)))} operands, got formats "
                f"{', '.join(self.formats)}; give one format for each"
            )
        if self.depth > 1 and self.operation != "matmul":
            raise ConfigError(f"`depth` is of matmul alone, got {self.depth} for {self.operation}; leave it out")
        if self.mac.mac() != Mac() and self.operation != "matmul":
            raise ConfigError(
                f"`mac`, a unit that multiplies and accumulates, is of matmul alone, got {self.mac.mac()} for "
                f"{self.operation}; leave it out"
            )
        assert self.stage
        assert self.operand_formats
        if self.mac.mac().rounding.draws:
            raise ConfigError(
                "`rounding` of a unit must not be stochastic in vectors, got "
                f"{self.mac.mac().rounding.value!r}: they hold random bits of results alone; choose another mode"
            )
        return self

    @field_serializer("rounding")
    def _rounding_that_works(self, _: str | None) -> str:
        return self.stage.rounding.value

    @field_serializer("overflow")
    def _overflow_that_works(self, given: str | None) -> str | None:
        brought = modes_of(self.out_format).overflow.word
        return self.stage.overflow.value if brought else given

    @field_serializer("mac")
    def _mac_that_works(self, _: MacTable) -> dict[str, str | None]:
        return MacTable.of(self.mac.mac()).model_dump()

    @cached_property
    def stage(self) -> OutputStage:
        """The output stage."""
        return OutputStage.of(self.out_format, self.rounding, self.overflow, self.n_rbits)

    @cached_property
    def operand_formats(self) -> tuple[Format, ...]:
        """The operands' formats."""
        return tuple(parse(text) for text in self.formats)

    @property
    def is_stochastic(self) -> bool:
        """Whether results depend on random bits."""
        return self.stage.rounding.draws

    def shape_of(self, operand: int) -> tuple[int, ...]:
        """Return the shape of an operand's codes: (count,), of a product's factors (count, depth)."""
        factors = self.operation == "matmul" and operand < 2
        return (self.count, self.depth) if factors else (self.count,)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Operands and the definition's results.

    Attributes:
        description: what they are.
        operands: codes of each, shapes of `Description.shape_of`.
        rbits: random bits per result, (count,), or None.
        results: codes, (count,).
        flags: bits in the order of `TESTFLOAT_FLAGS`, and above them `accumulator_overflow`, (count,); read from
            TestFloat's lines, underflow and invalid are IEEE 754's (`files.py`).
    """

    description: Description
    operands: tuple[Codes, ...]
    rbits: Codes | None
    results: Codes
    flags: Codes
