"""Tables of one kind of arithmetic: how a role's results are written, and how a unit multiplies and adds.

    [precision.weight]     format, rounding, overflow, n_rbits                     `RoleTable`
    [precision.mac]        product, accumulator, order, rounding, overflow         `MacTable`
                           or preset, inputs, output, instruction

`precision_table.py` says which layer, role and step each of them is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from emu._config import Table, merge
from emu.datapath import Mac, OutputStage
from emu.datapath.rounding import MAX_RANDOM_BITS
from emu.datapath.stage import DEFAULT_RANDOM_BITS
from emu.errors import FormatError
from emu.formats import DynamicFixed, parse_number
from emu.hardware.precision_texts import (
    any_format_for,
    can_have,
    known_format,
    known_order,
    known_overflow,
    known_rounding,
    placed_at,
    placed_format,
    with_named_modes,
)

TableT = TypeVar("TableT", bound=Table)
#: Keys beside `preset`.
_OF_PRESET = ("inputs", "output", "instruction")


def is_unset(value: object) -> bool:
    """Return whether a key has the value that an absent key has: then it is left out of a file."""
    return value in (None, False, 0)


def _without_preset(data: Any) -> Any:
    """Return a table of the unit whose `preset`, if it has one, is replaced by the keys that it stands for.

    Raises:
        FormatError: the GPU has no such unit, or keys are there that the preset brings, or that need one.
    """
    if not isinstance(data, Mapping):
        return cast("object", data)
    table = {key: value for key, value in cast("Mapping[str, Any]", data).items() if value is not None}
    if "preset" not in table:
        if alone := [key for key in _OF_PRESET if key in table]:
            raise FormatError(f"`{alone[0]}` must stand beside `preset`, got it alone; add the GPU, or remove it")
        return cast("object", data)
    if extra := sorted(table.keys() - {"preset", *_OF_PRESET}):
        raise FormatError(
            f"`preset` must stand for all keys of the unit, got `{extra[0]}` beside it; remove one of them"
        )
    mac = Mac.preset(table.pop("preset"), **table)
    keys = {"product": mac.product, "accumulator": mac.accumulator, "order": mac.order, "rounding": mac.rounding.value}
    named = {"overflow": mac.overflow and mac.overflow.value, "scales": ", ".join(mac.scales)}
    return {key: str(value) for key, value in (keys | {k: v for k, v in named.items() if v}).items()}


class RoleTable(Table):
    """Format, rounding and overflow rule of one tensor role; keys that are None are taken from the table below.

    Attributes:
        format: text form of a format; `fix16f?` leaves the point to dynamic fixed point. Modes that the text names, as
            `ap_fixed<16,8,AP_RND,AP_SAT>` does, are those of the keys `rounding` and `overflow`.
        rounding: a rounding mode; in the end the default of the format's notation, as `floor` of `ap_fixed<16,8>`, and
            else `nearest_even`.
        overflow: an overflow rule; in the end the default of the format's notation, and else of its family.
        n_rbits: random bits of stochastic rounding; in the end 24.
    """

    format: str | None = None
    rounding: str | None = None
    overflow: str | None = None
    n_rbits: int | None = Field(default=None, ge=1, le=MAX_RANDOM_BITS)

    _format_known = field_validator("format")(known_format)
    _rounding_known = field_validator("rounding")(known_rounding)
    _overflow_known = field_validator("overflow")(known_overflow)

    @model_validator(mode="before")
    @classmethod
    def _modes_as_keys(cls, data: Any) -> Any:
        return with_named_modes(data, ("format",))

    @model_validator(mode="after")
    def _possible(self) -> RoleTable:
        # a table without a format is completed later: until then its rule must fit some format
        _stage(self.format or any_format_for(self.overflow), self)
        return self

    def over(self, below: RoleTable | None) -> RoleTable:
        """Return this table laid over another one.

        A new format takes an overflow rule it cannot have from `below` as its own family's default.
        """
        return _laid_over(self, below, format_keys=("format",))

    @property
    def word(self) -> DynamicFixed | None:
        """The word whose point is open; None if the format is another one."""
        fmt = parse_number(self.format) if self.format is not None else None
        return fmt if isinstance(fmt, DynamicFixed) else None

    def stage(self, point: int = 0) -> OutputStage:
        """Return the output stage this table describes.

        Args:
            point: fraction bits of a word whose point is open.

        Raises:
            FormatError: no format was given.
        """
        if self.format is None:
            raise FormatError('a tensor role must have a format, got none; add `format = "..."` to its table')
        return _stage(self.format, self, point)


class MacTable(Table):
    """The multiply-accumulate unit; keys that are None are taken from the table below.

    `preset = "h100"` stands for all keys of a GPU's matrix unit, as `emu.Mac.preset` has them. `inputs`, `output` and
    `instruction` may be beside it.

    Attributes:
        product: `exact` or a format; in the end `exact`.
        accumulator: `exact` or a format; in the end `exact`. The point of `fix40f?` is that of the products.
        order: `sequential`, `pairwise`, `lanes(n)`, `blocks(n, fraction_bits, ...)` or `promote(n, order, accumulator,
            rounding)`; in the end `sequential`.
        rounding: mode of every product and add; in the end the default of the formats' notation, and else
            `nearest_even`.
        overflow: rule of every product and add; in the end the default of the formats' notation, and else each
            format's own.
        scales: where each level of scales of the operands enters, as `emu.Mac` has it: `in_block`, `at_promotion`,
            `at_result`, with a comma between levels.
        preset: a GPU; a table has its keys, and None here, once it is read.
        inputs: format of the operands of the preset; None is fp16, and int8 if `output` is int32.
        output: format of its addend and result; None is fp32, and int32 if `inputs` is int8.
        instruction: which of the GPU's instructions, where they differ.
    """

    product: str | None = None
    accumulator: str | None = None
    order: str | None = None
    rounding: str | None = None
    overflow: str | None = None
    scales: str | None = Field(default=None, exclude_if=is_unset)

    preset: str | None = Field(default=None, exclude_if=is_unset)
    inputs: str | None = Field(default=None, exclude_if=is_unset)
    output: str | None = Field(default=None, exclude_if=is_unset)
    instruction: str | None = Field(default=None, exclude_if=is_unset)

    _product_known = field_validator("product")(placed_format)
    _accumulator_known = field_validator("accumulator")(known_format)
    _order_known = field_validator("order")(known_order)
    _rounding_known = field_validator("rounding")(known_rounding)
    _overflow_known = field_validator("overflow")(known_overflow)

    @model_validator(mode="before")
    @classmethod
    def _plain_keys(cls, data: Any) -> Any:
        return with_named_modes(_without_preset(data), ("product", "accumulator"))

    @model_validator(mode="after")
    def _possible(self) -> MacTable:
        # raises if keys that are right by themselves do not fit each other
        self.mac()
        return self

    def over(self, below: MacTable | None) -> MacTable:
        """Return this table laid over another one; see `RoleTable.over`."""
        return _laid_over(self, below, format_keys=("product", "accumulator"))

    def mac(self, point: int = 0) -> Mac:
        """Return the unit this table describes; `point` is the accumulator's fraction bits if its point is open."""
        fields = self.model_dump(exclude_none=True)
        return Mac(**fields | {"accumulator": placed_at(fields.get("accumulator", "exact"), point)})


def built(model: type[TableT], data: Mapping[str, object]) -> TableT:
    """Return a table merged from valid ones; raise the error of our own validators as it is, without pydantic's."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise error.errors()[0]["ctx"]["error"] from None  # pyright: ignore[reportTypedDictNotRequiredAccess]


def _laid_over(table: TableT, below: TableT | None, *, format_keys: tuple[str, ...]) -> TableT:
    if below is None:
        return table
    own, under = table.model_dump(exclude_none=True), below.model_dump(exclude_none=True)
    # the lower table's rule falls away if the new format cannot have it
    if "overflow" not in own and any(not can_have(own.get(key), under.get("overflow")) for key in format_keys):
        under.pop("overflow")
    return built(type(table), merge(under, own))


def _stage(fmt: str, table: RoleTable, point: int = 0) -> OutputStage:
    n_rbits = DEFAULT_RANDOM_BITS if table.n_rbits is None else table.n_rbits
    return OutputStage.of(placed_at(fmt, point), table.rounding, table.overflow, n_rbits)
