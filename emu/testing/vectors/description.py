"""Vectors, and their description: operation, formats, stage and unit."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_serializer, model_validator
from typing_extensions import override

from emu._config import Items, Table
from emu.datapath import Mac, OutputStage, Overflow, Rounding, Tininess
from emu.datapath.registers import POSITION_LIMIT
from emu.datapath.stage import DEFAULT_RANDOM_BITS, require_placed
from emu.engine.scaled import stage_of_elements
from emu.errors import ConfigError, nearest_name
from emu.formats import Fixed, Float, Format, Scaled, parse_number
from emu.formats.parse import modes_of
from emu.testing.contract.case import ELEMENTWISE
from emu.testing.vectors.blocks.requirements import (
    format_of_quotients,
    require_blocks,
    require_single_operands,
    scaled_of,
)
from emu.testing.vectors.conventions import InvalidRule, NanRule, ZeroSign, has_payloads
from emu.testing.vectors.requantisers import RequantiserTable, multiplier_of
from emu.testing.vectors.selection import SELECTIONS

Codes = NDArray[np.uint64]
#: Operations and their numbers of operands; a product's third is an addend, which may be left out.
OPERANDS = {"quantize": 1, **ELEMENTWISE, **dict.fromkeys(SELECTIONS, 2), "matmul": 2}
#: Names of the operands, which are those of their files.
NAMES = ("a", "b", "c")
#: Names of the scales of results that share them, a block's first, which are those of their files.
SCALE_NAMES = ("scale", "tensor_scale")
#: Whose flags: `emu` (underflow: 0 was written for what is not 0), or those of IEEE 754 as Berkeley writes them.
FlagRule = Literal["ieee", "emu"]
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


class StageTable(Table):
    """A stage that results pass before the output stage; a text is read as its words, `"fix34f0 floor saturate"`."""

    format: str
    rounding: str | None = None
    overflow: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, given: Any) -> Any:
        return _modes_of(given.split()) if isinstance(given, str) else given

    @property
    def stage(self) -> OutputStage:
        """The stage."""
        return OutputStage.of(self.format, self.rounding, self.overflow)


class StepTable(StageTable):
    """A stage of a requantiser, which multiplies before it writes, and adds and bounds after.

    Attributes:
        times: what its operand is multiplied by, exactly: a text of `multiplier_of`.
        plus: integer that is added to what it writes.
        lowest: bound of that sum; None is none.
        highest: bound of that sum; None is none.
    """

    times: str = "1"
    plus: int = 0
    lowest: int | None = None
    highest: int | None = None

    @property
    def factor(self) -> Fraction:
        """What its operand is multiplied by."""
        return multiplier_of(self.times)


def _modes_of(words: list[str]) -> dict[str, str]:
    """Return format, rounding mode and overflow rule of words in this order, as far as they are there."""
    modes = dict[str, str]()
    for name, known in (("overflow", Overflow), ("rounding", Rounding)):
        # from the end, overflow before rounding: a format may itself be several words
        if len(words) > 1 and words[-1] in {word.value for word in known}:
            modes[name] = words[-1]
            words = words[:-1]
    return {"format": " ".join(words), **modes}


class FurtherTable(StageTable):
    """A further result of the same operands, perhaps of another operation; a text is `"remainder fix16f0 floor"`."""

    operation: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        first, *rest = given.split() or [""]
        return {"operation": first, **_modes_of(rest)} if first in OPERANDS else _modes_of([first, *rest])


class StatisticsTable(Table):
    """Positions of a register of leading bits that observes what the first stage is given.

    Attributes:
        lowest: exponent of the first position.
        bins: how many there are.
    """

    lowest: int = Field(ge=-POSITION_LIMIT, le=POSITION_LIMIT)
    bins: int = Field(ge=1, le=POSITION_LIMIT)

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        words = given.split(":")
        if len(words) != 2 or not all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in words):
            raise ConfigError(f"`statistics` must be LOWEST:BINS, got {given!r}; write it like -24:40")
        lowest, bins = map(int, words)
        # said here, where the text is known; the keys would be named without it
        if abs(lowest) > POSITION_LIMIT or not 1 <= bins <= POSITION_LIMIT:
            raise ConfigError(
                f"`statistics` must have a LOWEST of -{POSITION_LIMIT}..{POSITION_LIMIT} and 1..{POSITION_LIMIT} BINS, "
                f"got {given!r}; write it like -24:40"
            )
        return {"lowest": lowest, "bins": bins}


class Description(Table):
    """An operation: its operands' formats, its unit, and how results are written.

    Attributes:
        operation: quantize, add, subtract, multiply, divide, fma, sqrt, remainder, round_to_integral or matmul.
        formats: of the operands; of `matmul` a third one is the addend's.
        out_format: of the result; one whose elements share scales is that of quantize, and `count` is whole blocks.
        rounding: rounding mode; None is what `out_format` brings, as `ap_fixed<16,8>` does, and else `nearest_even`.
        overflow: rule; None is what `out_format` brings, and else the format's own.
        n_rbits: random bits of stochastic rounding.
        mac: the unit of `matmul`.
        depth: terms of each product.
        count: how many vectors.
        seed: of operands and random bits.
        tininess: when the underflow of IEEE 754 calls a result tiny, before_rounding or after_rounding; None: it is
            after_rounding, and emu's flags have an underflow of their own.
        flags: whose flags, ieee or emu; None is IEEE 754's if results are floats.
        stages: that results pass before the output stage, each writes what the next one is given.
        nan: which NaN is written: canonical, first or signalling_first (`conventions.py`, as the next three).
        nan_code: of a NaN that is not passed on from an operand, in hexadecimal; None: the format's canonical one.
        invalid: what is written for floats that have no fixed-point result: zero, largest or indefinite.
        zero_sign: of a sum of products that is 0: positive or ieee.
        requantise: how integer sums become elements, after `stages`; None if they become none.
        also: further results of the same operands: other operations, formats or modes.
        statistics: positions of a register of leading bits, if the unit has one.
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
    flags: str | None = None
    stages: Items[StageTable] = ()
    requantise: RequantiserTable | None = None
    nan: NanRule = "canonical"
    nan_code: str | None = None
    invalid: InvalidRule = "zero"
    zero_sign: ZeroSign = "positive"
    also: Items[FurtherTable] = Field(default=(), max_length=3)
    statistics: StatisticsTable | None = None

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
        if self.flags not in (None, *get_args(FlagRule)):
            raise ConfigError(
                f"`flags` must be ieee or emu, got {self.flags!r}{nearest_name(self.flags, get_args(FlagRule))}"
            )
        require_single_operands(self)
        _ = self.stage, self.operand_formats  # each raises a FormatError if its words are impossible
        if self.blocks is not None:
            require_blocks(self, self.blocks)
        self.mac.mac().require_order()
        if self.mac.mac().rounding.draws:
            raise ConfigError(
                "`rounding` of a unit must not be stochastic in vectors, got "
                f"{self.mac.mac().rounding.value!r}: they hold random bits of results alone; choose another mode"
            )
        self._require_conventions()
        _ = self.further
        return self

    def _require_conventions(self) -> None:
        fmt = self.stage.format
        for row in self.stages:
            if row.stage.rounding.draws:
                raise ConfigError(
                    f"`stages` must not be stochastic, got {row.rounding!r}, as random bits are the last one's; choose "
                    "another mode"
                )
        if self.requantise is not None:
            self.requantise.require(fmt)
            stage = self.stage
            if stage.rounding is not Rounding.NEAREST_EVEN or stage.overflow is not Overflow.SATURATE:
                raise ConfigError(
                    "`rounding` and `overflow` must be left out beside `requantise`, whose steps round and whose "
                    f"elements saturate, got {stage.rounding.value} and {stage.overflow.value}; write `rounding MODE` "
                    "behind the kinds exact and shift"
                )
            if self.also:
                raise ConfigError(
                    "`also` must be left out beside `requantise`, got further results; write their vectors by "
                    "themselves"
                )
            integers = [f for f in self.operand_formats if isinstance(f, Fixed) and not f.frac_bits]
            if self.operation not in ("quantize", "matmul") or len(integers) < len(self.formats) or self.stages:
                raise ConfigError(
                    "`requantise` is of integer sums: of quantize or matmul, operands without fraction bits and no "
                    f"`stages`, got {self.operation} of {', '.join(self.formats)}; write fix32f0"
                )
        if self.stages and self.operation == "round_to_integral":
            raise ConfigError("`stages` must be left out of round_to_integral, got some; it rounds once")
        passes_on = self.nan != "canonical"
        if (passes_on or self.nan_code is not None) and not has_payloads(fmt):
            raise ConfigError(f"`nan` and `nan_code` are of results with NaNs of IEEE 754, got {fmt}; leave them out")
        if passes_on and (self.operation == "matmul" or not any(map(has_payloads, self.operand_formats))):
            raise ConfigError(
                f"`nan` = {self.nan!r} must have operands with NaNs of IEEE 754, one code each, got "
                f"{self.operation} of {', '.join(self.formats)}; leave it out"
            )
        # `decode` takes codes of the format alone
        is_nan = 0 <= self.made_nan < fmt.n_codes and np.isnan(fmt.decode(np.array(self.made_nan, np.uint64)))
        if self.nan_code is not None and not is_nan:
            raise ConfigError(f"`nan_code` must be the code of a NaN of {fmt}, got {self.nan_code!r}; correct it")
        from_float = any(isinstance(source, Float) for source in self.operand_formats)
        if self.invalid != "zero" and not (isinstance(fmt, Fixed) and from_float):
            raise ConfigError(
                f"`invalid` is of fixed-point results of floats, got {self.invalid!r} for {', '.join(self.formats)} to "
                f"{fmt}; leave it out"
            )
        if self.statistics is not None and (self.operation in SELECTIONS or self.operation == "round_to_integral"):
            raise ConfigError(f"`statistics` must be left out of {self.operation}, which computes nothing new, got one")
        exact = self.operation == "matmul" and self.mac.mac().is_exact
        if self.zero_sign != "positive" and not (exact and isinstance(fmt, Float)):
            raise ConfigError(
                "`zero_sign` is of matmul with an exact accumulator and float results, got "
                f"{self.zero_sign!r} for {self.operation}; leave it out: other zeros have IEEE 754's signs"
            )

    @property
    def further(self) -> tuple[Description, ...]:
        """What the further results are, each by itself; what is not said is as the first result's."""
        if not self.also:
            return ()
        # without `also`, or each further result would have further ones
        table = self.model_dump(exclude={"also", "statistics"})
        return tuple(
            Description.model_validate(
                {
                    **table,
                    "operation": row.operation or self.operation,
                    "out_format": row.format,
                    "rounding": row.rounding,
                    "overflow": row.overflow,
                    "flags": None,
                }
            )
            for row in self.also
        )

    @property
    def result_names(self) -> list[str]:
        """The names of the results' columns and files: result, result2, ..."""
        return ["result", *(f"result{number}" for number in range(2, 2 + len(self.also)))]

    @property
    def scale_formats(self) -> dict[str, Float]:
        """The formats of scales by the names of their files, the finest first; none of single numbers."""
        if self.blocks is None:
            return {}
        return dict(zip(SCALE_NAMES, (level.scale for level in self.blocks.levels), strict=False))

    @property
    def made_nan(self) -> int:
        """The code of a NaN that is not passed on from an operand; 0 if the format has none."""
        if self.nan_code is None:
            return getattr(self.stage.format, "nan_code", None) or 0
        try:
            return int(self.nan_code, 16)
        except ValueError:
            raise ConfigError(
                f"`nan_code` must be hexadecimal, got {self.nan_code!r}; write it like 0xffc00000"
            ) from None

    # files name the mode in effect, whether it was given or is a default
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

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some keys changed, unchecked; what follows from keys is computed anew."""
        copy = super().model_copy(update=update, deep=deep)
        for name in vars(copy).keys() - Description.model_fields.keys():  # cached values, which pydantic copies
            del vars(copy)[name]
        return copy

    @cached_property
    def blocks(self) -> Scaled | None:
        """The format of results that share scales; None of single numbers."""
        return scaled_of(self.out_format)

    @property
    def together(self) -> int:
        """How many vectors are one: those of a block, whose scale follows from all of them; else 1."""
        return 1 if self.blocks is None else self.blocks.tiling.along or 1

    @property
    def in_whole_blocks(self) -> Description:
        """The same, with the number of vectors rounded up to whole blocks."""
        return self.model_copy(update={"count": -(-self.count // self.together) * self.together})

    def require_whole_blocks(self, source: str) -> None:
        """Raise ConfigError unless the number of vectors is that of whole blocks."""
        if short := self.count % self.together:
            raise ConfigError(
                f"the numbers of {source} must be whole blocks of {self.together}, as {self.blocks} has them, got "
                f"{self.count}, {short} more than {self.count // self.together} blocks; add {self.together - short}, "
                "zeros if there are no others"
            )

    def require_single_results(self, what: str, remedy: str) -> None:
        """Raise ConfigError if results share scales.

        Args:
            what: what cannot be made of them, for the message.
            remedy: what to do, for the message.
        """
        if self.blocks is not None:
            raise ConfigError(f"{what} must have results without shared scales, got {self.blocks}; {remedy}")

    @cached_property
    def stage(self) -> OutputStage:
        """The output stage; of results that share scales that of their elements."""
        if self.blocks is not None:
            usual = stage_of_elements(self.blocks)
            return OutputStage.of(
                usual.format, self.rounding or usual.rounding, self.overflow or usual.overflow, self.n_rbits
            )
        return OutputStage.of(self.out_format, self.rounding, self.overflow, self.n_rbits)

    @property
    def pipeline(self) -> tuple[StepTable, ...]:
        """All stages before the output stage, those of a requantiser last."""
        return _pipeline(self.stages, cast("Hashable", self.requantise))

    @property
    def unstaged(self) -> Description:
        """The same operation without stages before the output stage."""
        return self.model_copy(update={"stages": (), "requantise": None})

    def after_pipeline(self, exact: Fraction) -> Fraction:
        """Return what stages that rounded nothing would make of an exact result."""
        for step in self.pipeline:
            exact = exact * step.factor + step.plus
        return exact

    @cached_property
    def operand_formats(self) -> tuple[Format, ...]:
        """The operands' formats."""
        return tuple(require_placed(parse_number(text)) for text in self.formats)

    @property
    def rounded_formats(self) -> tuple[Format, ...]:
        """The formats of what the operation is computed of: of a block's elements that of the quotients."""
        if self.blocks is None:
            return self.operand_formats
        return (format_of_quotients(self.blocks, self.operand_formats[0]),)

    @property
    def flag_rule(self) -> FlagRule:
        """Whose flags belong to the results: those that `flags` names, else IEEE 754's of floats."""
        if self.flags is None:
            return "ieee" if isinstance(self.stage.format, Float) else "emu"
        return cast("FlagRule", self.flags)

    @property
    def underflow(self) -> Tininess | None:
        """When a result is tiny, for IEEE 754's underflow; None if underflow is emu's: a 0 for another result.

        IEEE 754 has no stochastic rounding: there, results are tiny before rounding.
        """
        if not isinstance(self.stage.format, Float) or (self.tininess is None and self.flag_rule == "emu"):
            return None
        return Tininess.BEFORE_ROUNDING if self.is_stochastic else Tininess(self.tininess or Tininess.AFTER_ROUNDING)

    @property
    def is_stochastic(self) -> bool:
        """Whether results depend on random bits."""
        return self.stage.rounding.draws

    def shape_of(self, operand: int) -> tuple[int, ...]:
        """Return the shape of an operand's codes: (count,), of a product's factors (count, depth)."""
        factors = self.operation == "matmul" and operand < 2
        return (self.count, self.depth) if factors else (self.count,)


# keyed by the frozen tables themselves: many hypotheses ask for the steps of one description
@lru_cache(maxsize=256)
def _pipeline(stages: Hashable, requantise: Hashable) -> tuple[StepTable, ...]:
    rows = [row.model_dump() for row in cast("tuple[StageTable, ...]", stages)]
    steps = requantise.stages if isinstance(requantise, RequantiserTable) else []
    return tuple(StepTable.model_validate(row) for row in [*rows, *steps])


@dataclass(frozen=True, eq=False)
class Vectors:
    """Operands and the definition's results.

    Attributes:
        description: what they are.
        operands: codes of each, shapes of `Description.shape_of`.
        rbits: random bits per result, (count,), or None.
        results: codes, (count,).
        flags: bits in the order of `TESTFLOAT_FLAGS`, and above them `accumulator_overflow`, (count,), by the
            description's `flag_rule`.
        scales: codes of the scales of results that share them, the finest first: (blocks,), (1,) of the whole; else
            none.
    """

    description: Description
    operands: tuple[Codes, ...]
    rbits: Codes | None
    results: Codes
    flags: Codes
    scales: tuple[Codes, ...] = ()

    def at(self, indices: NDArray[np.int64]) -> Vectors:
        """Return some of the vectors, which must be single numbers: those of a block belong together."""
        assert self.description.blocks is None
        return Vectors(
            self.description.model_copy(update={"count": int(indices.size)}),
            tuple(codes[indices] for codes in self.operands),
            None if self.rbits is None else self.rbits[indices],
            self.results[indices],
            self.flags[indices],
        )
