"""The `[precision]` table of devices and recipes: which format, rounding and overflow rule each tensor role gets.

    [precision.weight]     format = "fix16f13"            roles: see `ROLES`
    [precision.orthogonal] the keys of `weight` that differ for matrices that the optimiser muon multiplies
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
from collections.abc import Generator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field, model_validator

from emu._config import Items, Table, merge
from emu.datapath import Cast, Mac, OutputStage
from emu.datapath.registers import POSITION_LIMIT
from emu.errors import ConfigError, FormatError
from emu.formats import DynamicFixed, parse_number
from emu.hardware.arithmetic_tables import MacTable, RoleTable, built, is_unset
from emu.hardware.operand_tables import PRODUCT_OF, STORED, FactorTables, OperandTables, ScalingTable

#: Roles of tensors. `loss` is the arithmetic of softmax, losses and normalisation statistics.
ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "master", "loss")
#: Roles that need no table -> the role whose table theirs is laid over.
OPTIONAL_ROLES = {"orthogonal": "weight"}
EVERY_ROLE = (*ROLES, *OPTIONAL_ROLES)
#: Tables of the multiply-accumulate unit -> roles of the results that they are about; later ones are laid over earlier.
UNITS = {
    "mac": EVERY_ROLE,
    "backward_mac": ("error", "gradient"),
    "error_mac": ("error",),
    "gradient_mac": ("gradient",),
}
Operands = OperandTables | Literal["stored"] | None
#: Format of the `loss` role if a device gives none (docs/concepts/roles.md).
DEFAULT_LOSS_FORMAT = "fp32"


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
        orthogonal: keys of `weight` that differ for matrices that an optimiser multiplies; None if none differ.
        mac: the unit.
        backward_mac: keys of the unit that differ when errors and gradients are computed; None if none differ.
        error_mac: keys of it that differ when errors are computed; None if none differ.
        gradient_mac: keys of it that differ when gradients are computed; None if none differ.
        operands: what products read, where this is not what is stored; "stored" switches that off; None leaves it.
    """

    weight: RoleTable | None = None
    bias: RoleTable | None = None
    activation: RoleTable | None = None
    error: RoleTable | None = None
    gradient: RoleTable | None = None
    update: RoleTable | None = None
    master: RoleTable | None = None
    loss: RoleTable | None = None
    orthogonal: RoleTable | None = Field(default=None, exclude_if=is_unset)
    mac: MacTable | None = None
    backward_mac: MacTable | None = Field(default=None, exclude_if=is_unset)
    error_mac: MacTable | None = Field(default=None, exclude_if=is_unset)
    gradient_mac: MacTable | None = Field(default=None, exclude_if=is_unset)
    operands: OperandTables | Literal["stored"] | None = Field(default=None, exclude_if=is_unset)

    def unit(self, name: str) -> MacTable | None:
        """Return a table of the unit, one of `UNITS`; None if it is not given."""
        assert name in UNITS, name
        return getattr(self, name)

    def units_for(self, role: str) -> dict[str, MacTable]:
        """Return the tables of the unit that computes a role's results, by name; each is laid over those before."""
        # in the order of `UNITS`, the more special ones last
        given = {name: self.unit(name) for name, roles in UNITS.items() if role in roles}
        return {name: table for name, table in given.items() if table is not None}

    def role(self, role: str) -> RoleTable | None:
        """Return the table of a role, None if it is not given."""
        assert role in EVERY_ROLE, role
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
    full: bool = Field(default=False, exclude_if=is_unset)
    from_step: int = Field(default=0, ge=0, exclude_if=is_unset)
    until_step: int | None = Field(default=None, ge=1, exclude_if=is_unset)

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
    def _tables_fit(self) -> _LayeredTables:
        # errors are raised where the file is read, not in training: of common tables that are laid over each other,
        # then of each layer's table by itself over the common ones
        for role in (role for role in OPTIONAL_ROLES if self.role(role)):
            with _naming(role):
                self._resolved(role, ())
        for role in UNITS["backward_mac"]:
            given = list(self.units_for(role)) or ["mac"]
            with _naming(given[-1]):
                self._resolved_mac((), role)
        for tables in self.layers:
            for role in (role for role in EVERY_ROLE if tables.role(role)):
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
            role: one of `ROLES` or `OPTIONAL_ROLES`.
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

    def casts(self, layer: str, product: str) -> tuple[Cast, Cast] | None:
        """Return the casts of a layer's product, one of `FACTORS`; None if it reads stored tensors."""
        factors: FactorTables | None = None
        scaling: ScalingTable | None = None
        for tables in (self, *self._matching(layer)):
            # takes away the casts of the tables before; casts in the same table are laid over it below
            if tables.operands == STORED or (isinstance(tables, LayerTables) and tables.full):
                factors = None
            if isinstance(tables.operands, OperandTables):
                factors = tables.operands.product(product) or factors
                scaling = tables.operands.scaling or scaling
        with _naming(f"operands of layer {layer}"):
            return factors and factors.casts(product, scaling and scaling.delayed())

    def mac_of_casts(self, layer: str, role: str) -> Mac:
        """Return the unit of a layer's products of cast operands; `role` is that of the result."""
        layers = self._matching(layer)
        table = self._resolved_mac(layers, role)
        for tables in (self, *layers):
            if isinstance(tables.operands, OperandTables):
                for mac in tables.operands.units(PRODUCT_OF[role]):
                    table = mac.over(table)
        return table.mac()

    def has_open_accumulator(self, layer: str, role: str) -> bool:
        """Return whether the point of the layer's accumulator is that of its products."""
        accumulator = self._resolved_mac(self._matching(layer), role).accumulator
        return accumulator not in (None, "exact") and isinstance(parse_number(accumulator), DynamicFixed)

    def _matching(self, layer: str) -> tuple[LayerTables, ...]:
        return tuple(tables for tables in self.layers if fnmatchcase(layer, tables.match))

    def _resolved(self, role: str, layers: tuple[LayerTables, ...]) -> RoleTable:
        table = self.role(role) or RoleTable()
        if role == "loss":
            table = table.over(RoleTable(format=DEFAULT_LOSS_FORMAT))
        for tables in layers:
            # full precision first: keys of the same layer table are laid over it
            table = FULL_ROLE.over(table) if tables.full and role in FULL_ROLES else table
            table = _over(tables.role(role), table) or table
        below = OPTIONAL_ROLES.get(role)
        # an optional role without a key has the whole table of the other one, layers included
        return table if below is None else table.over(self._resolved(below, layers))

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
            requantiser: how integer units make elements of sums in quantised networks; None leaves it to the network.
        """

        register: RegisterTable = RegisterTable()  # pyright: ignore[reportIncompatibleMethodOverride]
        requantiser: Literal["float32", "double_rounding", "single_rounding", "exact", "shift"] | None = Field(
            default=None, exclude_if=is_unset
        )

        def at(self, step: int) -> PrecisionTable:
            """Return the table as it holds in a training step."""
            # most tables have no steps, and stay the same object
            if not any(tables.is_timed for tables in self.layers):
                return self
            return self.model_copy(update={"layers": tuple(tables for tables in self.layers if tables.holds_at(step))})

        def over(self, below: PrecisionTable) -> PrecisionTable:
            """Return this table laid over another one, its layers after the other's.

            Raises:
                FormatError: an overflow rule of this table cannot go with the format below it.
            """
            # the upper layers last: of several matches the later wins
            merged: dict[str, object] = {"layers": below.layers + self.layers}
            for role in EVERY_ROLE:
                with _naming(role):
                    merged[role] = _over(self.role(role), below.role(role))
            for name in UNITS:
                own, lower = self.unit(name), below.unit(name)
                with _naming(name):
                    merged[name] = own.over(lower) if own else lower
            merged["operands"] = _operands_over(self.operands, below.operands)
            merged["requantiser"] = self.requantiser or below.requantiser
            # keys that were written, not defaults
            register = merge(below.register.model_dump(), self.register.model_dump(exclude_unset=True))
            return built(PrecisionTable, {**merged, "register": RegisterTable(**register)})


@contextmanager
def _naming(what: str) -> Generator[None]:
    """Raise a FormatError again with `what` in front of its message."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{what}: {error}") from None


def _operands_over(table: Operands, below: Operands) -> Operands:
    """Return what products read by a table laid over another one: product by product, and the unit key by key."""
    if not isinstance(table, OperandTables) or not isinstance(below, OperandTables):
        return below if table is None else table
    merged = below.model_dump(exclude_none=True) | table.model_dump(exclude_none=True)
    if table.mac is not None:
        with _naming("operands.mac"):
            merged["mac"] = table.mac.over(below.mac)
    return built(OperandTables, merged)


def _over(table: RoleTable | None, below: RoleTable | None) -> RoleTable | None:
    return table.over(below) if table else below


#: Full precision: the output stage of each role, and how the unit multiplies and adds.
FULL_ROLE = RoleTable(format="fp32", rounding="nearest_even", overflow="ieee")
FULL_MAC = MacTable(product="fp32", accumulator="fp32", order="sequential", rounding="nearest_even", overflow="ieee")
#: Roles that full precision changes; masters, and what the host computes, have formats of their own.
FULL_ROLES = ("weight", "bias", "activation", "error", "gradient", "update", "orthogonal")
