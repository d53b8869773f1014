"""The `[precision]` table of devices and recipes: which format, rounding and overflow rule each tensor role gets.

    [precision.weight]     format = "fix16f13"            roles: see `ROLES`
    [precision.mac]        product, accumulator, order, rounding, overflow
    [precision.backward_mac]                              the keys of `mac` that differ for errors and gradients;
                                                          `error_mac`, `gradient_mac`: for one of them
    [precision.register]   lowest, bins, counter_bits
    [[precision.layers]]   match = "conv*", then any of the role tables and `mac`; the later match wins;
                           full = true, from_step, until_step: full precision, and when

All keys are optional here: a recipe's table is laid over its device's, a layer's over both.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from emu._config import Items, Table, merge
from emu.datapath import Mac, OutputStage, Overflow
from emu.datapath.registers import POSITION_LIMIT
from emu.datapath.rounding import MAX_RANDOM_BITS
from emu.datapath.stage import DEFAULT_RANDOM_BITS
from emu.errors import ConfigError, FormatError
from emu.formats import DynamicFixed, parse
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

#: Roles of tensors. `loss` is the arithmetic of softmax, losses and normalisation statistics.
ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "master", "loss")
#: Tables of the multiply-accumulate unit -> roles of the results that they are about; later ones are laid over earlier.
UNITS = {
    "mac": ROLES,
    "backward_mac": ("error", "gradient"),
    "error_mac": ("error",),
    "gradient_mac": ("gradient",),
}
#: Format of the `loss` role if a device gives none (docs/concepts/roles.md).
DEFAULT_LOSS_FORMAT = "fp32"

TableT = TypeVar("TableT", bound=Table)


#: Keys beside `preset`.
_OF_PRESET = ("inputs", "output", "instruction")


def _is_unset(value: object) -> bool:
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
    return {key: str(value) for key, value in keys.items()} | ({"overflow": mac.overflow.value} if mac.overflow else {})


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
        fmt = parse(self.format) if self.format is not None else None
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
        order: `sequential`, `pairwise`, `lanes(n)` or `blocks(n, fraction_bits, ...)`; in the end `sequential`.
        rounding: mode of every product and add; in the end the default of the formats' notation, and else
            `nearest_even`.
        overflow: rule of every product and add; in the end the default of the formats' notation, and else each
            format's own.
        preset: a GPU; a table has its keys, and None here, once it is read.
        inputs: format of the operands of the preset; None is fp16.
        output: format of its addend and result; None is fp32.
        instruction: which of the GPU's instructions, where they differ.
    """

    product: str | None = None
    accumulator: str | None = None
    order: str | None = None
    rounding: str | None = None
    overflow: str | None = None

    preset: str | None = Field(default=None, exclude_if=_is_unset)
    inputs: str | None = Field(default=None, exclude_if=_is_unset)
    output: str | None = Field(default=None, exclude_if=_is_unset)
    instruction: str | None = Field(default=None, exclude_if=_is_unset)

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
        if {self.product, self.accumulator} <= {None, "exact"}:
            Overflow.parse(self.overflow, parse(any_format_for(self.overflow)))
        self.mac()
        return self

    def over(self, below: MacTable | None) -> MacTable:
        """Return this table laid over another one; see `RoleTable.over`."""
        return _laid_over(self, below, format_keys=("product", "accumulator"))

    def mac(self, point: int = 0) -> Mac:
        """Return the unit this table describes; `point` is the accumulator's fraction bits if its point is open."""
        fields = self.model_dump(exclude_none=True)
        return Mac(**fields | {"accumulator": placed_at(fields.get("accumulator", "exact"), point)})


class RegisterTable(Table):
    """Leading-bit statistics registers of the device.

    Attributes:
        lowest: exponent of the first position; None leaves it to the format (docs/concepts/registers.md).
        bins: number of positions; None leaves it to the format.
        counter_bits: width of each counter, in bits; it stops at its largest value. Registers are read and cleared
            where they are logged, and where points are set.
    """

    lowest: int | None = Field(default=None, ge=-POSITION_LIMIT, le=POSITION_LIMIT)
    bins: int | None = Field(default=None, ge=1, le=4096)
    counter_bits: int = Field(default=32, ge=1, le=64)


class RoleTables(Table):
    """One table per tensor role, and the multiply-accumulate unit.

    Attributes:
        mac: the unit.
        backward_mac: keys of the unit that differ when errors and gradients are computed; None if none differ.
        error_mac: keys of it that differ when errors are computed; None if none differ.
        gradient_mac: keys of it that differ when gradients are computed; None if none differ.
    """

    weight: RoleTable | None = None
    bias: RoleTable | None = None
    activation: RoleTable | None = None
    error: RoleTable | None = None
    gradient: RoleTable | None = None
    update: RoleTable | None = None
    master: RoleTable | None = None
    loss: RoleTable | None = None
    mac: MacTable | None = None
    backward_mac: MacTable | None = Field(default=None, exclude_if=_is_unset)
    error_mac: MacTable | None = Field(default=None, exclude_if=_is_unset)
    gradient_mac: MacTable | None = Field(default=None, exclude_if=_is_unset)

    def unit(self, name: str) -> MacTable | None:
        """Return a table of the unit, one of `UNITS`; None if it is not given."""
        assert name in UNITS, name
        return getattr(self, name)

    def units_for(self, role: str) -> dict[str, MacTable]:
        """Return the tables of the unit that computes a role's results, by name; each is laid over those before."""
        given = {name: self.unit(name) for name, roles in UNITS.items() if role in roles}
        return {name: table for name, table in given.items() if table is not None}

    def role(self, role: str) -> RoleTable | None:
        """Return the table of a role, None if it is not given."""
        assert role in ROLES, role
        return getattr(self, role)


class LayerTables(RoleTables):
    """Tables that differ in some layers, always or in some steps.

    Attributes:
        match: a glob over layer names (`fnmatch`): `conv*`.
        full: full precision instead of the tables below: float32 in `FULL_ROLES`, float32 products and sums in order.
        from_step: first training step in which these tables hold, counted from 0.
        until_step: first later step in which they do not; None for no end.
    """

    match: str = Field(min_length=1)
    full: bool = Field(default=False, exclude_if=_is_unset)
    from_step: int = Field(default=0, ge=0, exclude_if=_is_unset)
    until_step: int | None = Field(default=None, ge=1, exclude_if=_is_unset)

    @model_validator(mode="after")
    def _times_possible(self) -> LayerTables:
        if self.until_step is not None and self.until_step <= self.from_step:
            raise ConfigError(
                f"`until_step` of layers {self.match} must be above `from_step`, got {self.until_step} and "
                f"{self.from_step}; exchange them"
            )
        lasting = [role for role in ("master", "loss") if self.role(role)]
        if self.is_timed and lasting:
            raise ConfigError(
                f"layers {self.match} with steps must have no table of `{lasting[0]}`, got one: numbers in its format "
                "are kept beyond these steps; give the table without `from_step` and `until_step`"
            )
        return self

    @property
    def is_timed(self) -> bool:
        """Whether the tables hold in some steps only."""
        return self.from_step > 0 or self.until_step is not None

    def holds_at(self, step: int) -> bool:
        """Return whether the tables hold in a training step."""
        return self.from_step <= step and (self.until_step is None or step < self.until_step)


class _LayeredTables(RoleTables):
    """Role tables with exceptions by layer.

    Attributes:
        layers: exceptions by layer name; the later match wins, key by key.
    """

    layers: Items[LayerTables] = ()

    @model_validator(mode="after")
    def _layers_possible(self) -> _LayeredTables:
        for tables in self.layers:
            for role in (role for role in ROLES if tables.role(role)):
                with _naming(f"{role} of layers {tables.match}"):
                    self._resolved(role, (tables,))
            for role in ("activation", *UNITS["backward_mac"]):
                given = list(tables.units_for(role)) or ["mac"]
                with _naming(f"{given[-1]} of layers {tables.match}"):
                    self._resolved_mac((tables,), role)
        return self

    def stage(self, layer: str, role: str, point: int = 0) -> OutputStage:
        """Return the output stage of a role in a layer.

        Args:
            layer: the layer's name; `input` for the network's input.
            role: one of `ROLES`.
            point: fraction bits of a word whose point is open.

        Raises:
            FormatError: no table gives the role a format.
        """
        with _naming(f"{role} of layer {layer}"):
            return self._resolved(role, self._matching(layer)).stage(point)

    def word(self, layer: str, role: str) -> DynamicFixed | None:
        """Return the word of a role whose point is open; None if its format is another one."""
        return self._resolved(role, self._matching(layer)).word

    def mac_of(self, layer: str, role: str = "activation", point: int = 0) -> Mac:
        """Return the multiply-accumulate unit of a layer.

        Args:
            layer: the layer's name.
            role: role of the results that it computes.
            point: fraction bits of its accumulator if its point is open.
        """
        return self._resolved_mac(self._matching(layer), role).mac(point)

    def has_open_accumulator(self, layer: str, role: str) -> bool:
        """Return whether the point of the layer's accumulator is that of its products."""
        accumulator = self._resolved_mac(self._matching(layer), role).accumulator
        return accumulator not in (None, "exact") and isinstance(parse(accumulator), DynamicFixed)

    def _matching(self, layer: str) -> tuple[LayerTables, ...]:
        return tuple(tables for tables in self.layers if fnmatchcase(layer, tables.match))

    def _resolved(self, role: str, layers: tuple[LayerTables, ...]) -> RoleTable:
        table = self.role(role) or RoleTable()
        if role == "loss":
            table = table.over(RoleTable(format=DEFAULT_LOSS_FORMAT))
        for tables in layers:
            table = FULL_ROLE.over(table) if tables.full and role in FULL_ROLES else table
            table = _over(tables.role(role), table) or table
        return table

    def _resolved_mac(self, layers: tuple[LayerTables, ...], role: str) -> MacTable:
        table = MacTable()
        for tables in (self, *layers):
            table = FULL_MAC.over(table) if isinstance(tables, LayerTables) and tables.full else table
            for unit in tables.units_for(role).values():
                table = unit.over(table)
        return table


with warnings.catch_warnings():
    # `register` is the files' word for it, and also a class method of every abstract base class
    warnings.filterwarnings("ignore", 'Field name "register"', UserWarning)

    class PrecisionTable(_LayeredTables):
        """A whole `[precision]` table.

        Attributes:
            register: the statistics registers.
        """

        register: RegisterTable = RegisterTable()  # pyright: ignore[reportIncompatibleMethodOverride]

        def at(self, step: int) -> PrecisionTable:
            """Return the table as it holds in a training step."""
            if not any(tables.is_timed for tables in self.layers):
                return self
            return self.model_copy(update={"layers": tuple(tables for tables in self.layers if tables.holds_at(step))})

        def over(self, below: PrecisionTable) -> PrecisionTable:
            """Return this table laid over another one, its layers after the other's.

            Raises:
                FormatError: an overflow rule of this table cannot go with the format below it.
            """
            merged: dict[str, object] = {"layers": below.layers + self.layers}
            for role in ROLES:
                with _naming(role):
                    merged[role] = _over(self.role(role), below.role(role))
            for name in UNITS:
                own, lower = self.unit(name), below.unit(name)
                with _naming(name):
                    merged[name] = own.over(lower) if own else lower
            register = merge(below.register.model_dump(), self.register.model_dump(exclude_unset=True))
            return _built(PrecisionTable, {**merged, "register": RegisterTable(**register)})


@contextmanager
def _naming(what: str) -> Generator[None]:
    """Raise a FormatError again with `what` in front of its message."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from None


def _built(model: type[TableT], data: Mapping[str, object]) -> TableT:
    """Return a table merged from valid ones; raise the error of our own validators as it is, without pydantic's."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise error.errors()[0]["ctx"]["error"] from None  # pyright: ignore[reportTypedDictNotRequiredAccess]


def _over(table: RoleTable | None, below: RoleTable | None) -> RoleTable | None:
    return table.over(below) if table else below


def _laid_over(table: TableT, below: TableT | None, *, format_keys: tuple[str, ...]) -> TableT:
    if below is None:
        return table
    own, under = table.model_dump(exclude_none=True), below.model_dump(exclude_none=True)
    if "overflow" not in own and any(not can_have(own.get(key), under.get("overflow")) for key in format_keys):
        under.pop("overflow")
    return _built(type(table), merge(under, own))


def _stage(fmt: str, table: RoleTable, point: int = 0) -> OutputStage:
    n_rbits = DEFAULT_RANDOM_BITS if table.n_rbits is None else table.n_rbits
    return OutputStage.of(placed_at(fmt, point), table.rounding, table.overflow, n_rbits)


#: Full precision: the output stage of each role, and how the unit multiplies and adds.
FULL_ROLE = RoleTable(format="fp32", rounding="nearest_even", overflow="ieee")
FULL_MAC = MacTable(product="fp32", accumulator="fp32", order="sequential", rounding="nearest_even", overflow="ieee")
#: Roles that full precision changes; masters, and what the host computes, have formats of their own.
FULL_ROLES = ("weight", "bias", "activation", "error", "gradient", "update")
