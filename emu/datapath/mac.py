"""The multiply-accumulate unit: how a dot product's products and sums are rounded on the way.

a ──►(×)──► product ──► (+) ──► accumulator ──► output stage
b ──►                    ▲          │
└──────────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emu.datapath.order import Order, Sequential, parse_order
from emu.datapath.overflow import Overflow
from emu.datapath.rounding import Rounding
from emu.datapath.stage import DEFAULT_RANDOM_BITS, OutputStage, require_placed
from emu.formats import Format, parse


@dataclass(frozen=True, init=False)
class Mac:
    """A multiply-accumulate unit.

    Attributes:
        product: "exact" (fused), or the format into which every product is rounded and overflowed.
        accumulator: "exact" (never rounds or overflows), or the format into which every sum is.
        order: the order of the adds; irrelevant when product and accumulator are exact.
        rounding: mode of every product and add.
        overflow: rule of every product and add; None means each format's default.

    Raises:
        FormatError: an unknown name, a rule of the other family, or a format whose point is open.

    Example:
        >>> Mac(product="fp32", accumulator="fp32")
        Mac(product='fp32', accumulator='fp32', order='sequential', rounding='nearest_even')

    Source: NUMERICS 7.
    """

    product: Format | Literal["exact"]
    accumulator: Format | Literal["exact"]
    order: Order
    rounding: Rounding
    overflow: Overflow | None

    def __init__(
        self,
        product: str | Format = "exact",
        accumulator: str | Format = "exact",
        order: str | Order = Sequential(),  # noqa: B008 - frozen
        rounding: str | Rounding = Rounding.NEAREST_EVEN,
        overflow: str | Overflow | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "product", "exact" if product == "exact" else require_placed(parse(product)))
        set_field(self, "accumulator", "exact" if accumulator == "exact" else require_placed(parse(accumulator)))
        set_field(self, "order", parse_order(order))
        set_field(self, "rounding", Rounding.parse(rounding))
        set_field(self, "overflow", None)
        if overflow is not None:
            Overflow.named(overflow)  # an exact unit has no use for the rule, but a misspelt one is still a mistake
        for fmt in (self.product, self.accumulator):
            if fmt != "exact" and overflow is not None:
                set_field(self, "overflow", Overflow.parse(overflow, fmt))

    def __repr__(self) -> str:
        overflow = f", overflow={self.overflow.value!r}" if self.overflow else ""
        return (
            f"Mac(product={str(self.product)!r}, accumulator={str(self.accumulator)!r}, order={str(self.order)!r}, "
            f"rounding={self.rounding.value!r}{overflow})"
        )

    @property
    def is_exact(self) -> bool:
        """Whether nothing rounds or overflows before the output stage, so that the order is irrelevant."""
        return self.product == "exact" and self.accumulator == "exact"

    def stage_of(self, fmt: Format) -> OutputStage:
        """Return the rounding stage that stands behind the multiplier or the adder, writing `fmt`."""
        return OutputStage(fmt, self.rounding, Overflow.parse(self.overflow, fmt), DEFAULT_RANDOM_BITS)
