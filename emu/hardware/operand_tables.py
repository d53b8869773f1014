"""Tables of what products read: `[precision.operands.forward]`, `.error` and `.gradient`.

    [precision.operands]            mac = {preset = "b200", inputs = "mxfp8_e4m3"}
    [precision.operands.scaling]    kind = "delayed", history = 1024, margin = 0
    [precision.operands.forward]    activation = "mxfp8_e4m3 rceil"     weight = "mxfp8_e4m3 rceil"
    [precision.operands.error]      error = ..., weight = ...
    [precision.operands.gradient]   error = {format = "nvfp4", rounding = "stochastic", transform = "hadamard(16, 0)"}

Each factor is cast from the stored tensor, along the k of that product. The products are those of linear layers with
dense operands, and the forward ones of convolutions if scales are those of tensors and channels; others, and products
without a table, read stored tensors. `mac` is the unit of cast operands, that of
`[precision.mac]` multiplies stored ones. A scale that calibration chose for a tensor stands beside its format:
`activation = {format = "uint8_affine", scale = 0.021, zero = 12}`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from emu._config import Table
from emu.datapath.cast import Cast, DelayedScaling, Points
from emu.errors import FormatError
from emu.hardware.arithmetic_tables import MacTable, is_unset
from emu.hardware.precision_texts import known_rounding

#: Product -> roles of its two factors.
FACTORS: dict[str, tuple[str, str]] = {
    "forward": ("activation", "weight"),
    "error": ("error", "weight"),
    "gradient": ("error", "activation"),
}
#: Role of a result -> the product that gives it.
PRODUCT_OF = {"activation": "forward", "error": "error", "gradient": "gradient"}


class ScalingTable(Table):
    """Where the scales of cast operands come from.

    Attributes:
        kind: "current": from the tensor itself; "delayed": from the largest magnitudes of earlier steps.
        history: steps whose largest magnitude counts; of delayed scales alone.
        margin: powers of two by which delayed scales leave room above it.

    Source: NVIDIA TransformerEngine, recipes DelayedScaling and Float8CurrentScaling, whose defaults these are.
    """

    kind: Literal["current", "delayed"]
    history: int = Field(default=1024, ge=1, le=65536)
    margin: int = Field(default=0, ge=-32, le=32)

    def delayed(self) -> DelayedScaling | None:
        """Return the rule of delayed scales; None of current ones."""
        return DelayedScaling(self.history, self.margin) if self.kind == "delayed" else None


class CastTable(Table):
    """How one factor is cast; a text alone is its format.

    Attributes:
        format: a scaled format.
        rounding: mode of its elements; in the end that of the format's rule.
        transform: `hadamard(SIZE, SIGNS)` along k before; on both factors, or none.
        scale: of the whole tensor, as calibration chose it; None leaves it to the format's rule.
        zero: zero point that goes with it.
    """

    format: str
    rounding: str | None = Field(default=None, exclude_if=is_unset)
    transform: str | None = Field(default=None, exclude_if=is_unset)
    scale: float | None = Field(default=None, exclude_if=is_unset)
    # not `is_unset`, which takes 0 for nothing: 0 is the zero point of tensors without negative numbers
    zero: int | None = Field(default=None, exclude_if=lambda zero: zero is None)

    _rounding_known = field_validator("rounding")(known_rounding)

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, data: Any) -> Any:
        return {"format": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _possible(self) -> CastTable:
        self.cast()
        return self

    def cast(self, scaling: DelayedScaling | None = None) -> Cast:
        """Return the cast that the table describes, its scale delayed or that of the tensor itself."""
        if self.scale is None and self.zero is not None:
            raise FormatError(f"`zero` must be given with `scale`, got {self.zero} alone; give both, or none")
        points = None if self.scale is None else Points(self.scale, self.zero)
        return Cast.of(self.format, self.rounding, self.transform, scaling, points)


class FactorTables(Table):
    """The casts of a product's two factors.

    Attributes:
        activation: of the input of the layer.
        weight: of its weights.
        error: of the error of its result.
        mac: the unit; None is that of all products.
    """

    activation: CastTable | None = Field(default=None, exclude_if=is_unset)
    weight: CastTable | None = Field(default=None, exclude_if=is_unset)
    error: CastTable | None = Field(default=None, exclude_if=is_unset)
    mac: MacTable | None = Field(default=None, exclude_if=is_unset)

    def of(self, role: str) -> CastTable | None:
        """Return the cast of the factor of a role."""
        return getattr(self, role)

    def casts(self, product: str, scaling: DelayedScaling | None) -> tuple[Cast, Cast]:
        """Return the casts of both factors of a product, one of `FACTORS`, their scales delayed or current."""
        first, second = (self.of(role) for role in FACTORS[product])
        assert first is not None
        assert second is not None
        return first.cast(scaling), second.cast(scaling)


class OperandTables(Table):
    """What each product of a layer reads; a product without a table reads stored tensors.

    Attributes:
        forward: the product of input and weights.
        error: that of errors and weights.
        gradient: that of errors and input.
        mac: the unit that multiplies cast operands; None is the layer's own.
        scaling: where scales come from; None is from the tensor itself.
    """

    forward: FactorTables | None = Field(default=None, exclude_if=is_unset)
    error: FactorTables | None = Field(default=None, exclude_if=is_unset)
    gradient: FactorTables | None = Field(default=None, exclude_if=is_unset)
    mac: MacTable | None = Field(default=None, exclude_if=is_unset)
    scaling: ScalingTable | None = Field(default=None, exclude_if=is_unset)

    @model_validator(mode="after")
    def _factors_possible(self) -> OperandTables:
        for product, factors in FACTORS.items():
            table = self.product(product)
            if table is None:
                continue
            given = [role for role in ("activation", "weight", "error") if table.of(role) is not None]
            if sorted(given) != sorted(factors):
                raise FormatError(
                    f"operands of the {product} product must be {factors[0]} and {factors[1]}, got "
                    f"{' and '.join(given) or 'none'}; give both, or leave the table out"
                )
            casts = table.casts(product, self.delayed)
            transforms = {cast.transform for cast in casts}
            # a transform of both factors cancels in the product; of one of them it would not
            if len(transforms) > 1:
                raise FormatError(
                    f"a transform must stand on both operands of the {product} product, got "
                    f"{' and '.join(str(cast.transform) for cast in casts)}; give both the same, or none"
                )
        return self

    def product(self, name: str) -> FactorTables | None:
        """Return the table of a product, one of `FACTORS`."""
        return getattr(self, name)

    @property
    def delayed(self) -> DelayedScaling | None:
        """The rule of scales that follow from earlier steps; None if none do."""
        return self.scaling and self.scaling.delayed()

    def casts(self, name: str) -> tuple[Cast, Cast] | None:
        """Return the casts of both factors of a product, by the scaling of this table; None if it has no such table."""
        table = self.product(name)
        return table and table.casts(name, self.delayed)

    def units(self, name: str) -> tuple[MacTable, ...]:
        """Return the tables of the unit that multiplies a product's cast operands; each is laid over those before."""
        table = self.product(name)
        return tuple(mac for mac in (self.mac, table and table.mac) if mac is not None)


#: Switches casts off, for some layers.
STORED: Literal["stored"] = "stored"
