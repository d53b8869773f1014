"""The multiply-accumulate unit: how a dot product's products and sums are rounded on the way.

a ──►(×)──► product ──►(+)──► accumulator ──► output stage
b ──►                   ▲         │
                        └─────────┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from emu._drawn import Drawn
from emu.datapath.order import Blocks, Order, Promote, Sequential, parse_order
from emu.datapath.overflow import Overflow
from emu.datapath.presets import find_unit
from emu.datapath.rounding import Rounding
from emu.datapath.stage import DEFAULT_RANDOM_BITS, OutputStage, overflow_of, require_placed, rounding_of
from emu.errors import FormatError, nearest_name
from emu.formats import Fixed, Float, Format, parse

#: Where a level of scales enters a product.
Place = Literal["in_block", "at_promotion", "at_result"]
PLACES: tuple[Place, ...] = ("in_block", "at_promotion", "at_result")


@dataclass(frozen=True, init=False)
class Mac(Drawn):
    """A multiply-accumulate unit.

    Attributes:
        product: "exact" (fused), or the format into which every product is rounded and overflowed.
        accumulator: "exact" (never rounds or overflows), or the format into which every sum is.
        order: the order of the adds; irrelevant when product and accumulator are exact. `blocks` multiplies exactly
            and needs a float accumulator.
        rounding: mode of every product and add; without, the one that the texts of the formats bring, as
            `ap_fixed<32,16>` does, and else `nearest_even`.
        overflow: rule of every product and add; without, the one that the texts bring. None means each format's
            default.
        scales: where each level of scales of the operands enters, the finest first; may be given as a text with commas:
            "in_block" (a part of each term of the sum), "at_promotion" (where a run's sum is added to the wider
            accumulator) or "at_result" (the finished sum is multiplied, rounded to binary32).

    Raises:
        FormatError: an unknown name, a rule of the other family of formats, a format whose point is open or that has no
            zero, formats that a unit of blocks cannot have, texts that do not bring the same modes, or scales that
            enter at a promotion where `order` has none.

    Examples:
        >>> Mac(product="fp32", accumulator="fp32")
        Mac(product='fp32', accumulator='fp32', order='sequential', rounding='nearest_even')

    Source: docs/concepts/products.md.
    """

    product: Format | Literal["exact"]
    accumulator: Format | Literal["exact"]
    order: Order
    rounding: Rounding
    overflow: Overflow | None
    scales: tuple[Place, ...]

    def __init__(
        self,
        product: str | Format = "exact",
        accumulator: str | Format = "exact",
        order: str | Order = Sequential(),  # noqa: B008 - frozen
        rounding: str | Rounding | None = None,
        overflow: str | Overflow | None = None,
        scales: str | Iterable[str] = (),
    ) -> None:
        set_field = object.__setattr__
        given = {"product": product, "accumulator": accumulator}
        # what each text brings is asked of the texts, so they are kept beside the parsed formats
        written = {name: fmt for name, fmt in given.items() if not _is_exact(fmt)}
        for name, fmt in given.items():
            set_field(self, name, "exact" if _is_exact(fmt) else require_placed(parse(fmt)))
        # the order first: the checks below read it
        set_field(self, "order", parse_order(order))
        for name, fmt in (("product", self.product), ("accumulator", self.accumulator)):
            if isinstance(fmt, Float) and not fmt.zero:  # sums begin at +0, and may cancel to it
                raise FormatError(f"`{name}` must be a format with zero, got {fmt}; choose another")
        if isinstance(self.order, (Blocks, Promote)):
            self._require_exact_products()
        if isinstance(self.order, Blocks):
            self._require_block_formats()
        # places depend on order and accumulator, which are set by now
        set_field(self, "scales", self._places(scales))
        rounding, overflow = common_modes(written, rounding, overflow)
        set_field(self, "rounding", Rounding.NEAREST_EVEN if rounding is None else Rounding.parse(rounding))
        if isinstance(self.order, Promote) and (self.rounding.draws or self.inner.rounding.draws):
            raise FormatError(
                f"a unit that promotes sums must not round stochastically, got {self.rounding.value} and "
                f"{self.order.rounding}: its runs would draw the same bits; choose another mode"
            )
        set_field(self, "overflow", None)
        if overflow is not None:
            Overflow.named(overflow)  # an exact unit has no use for the rule, but a misspelt one is still a mistake
        # the rule must belong to the family of each format that rounds; both then have the same
        for fmt in (self.product, self.accumulator):
            if fmt != "exact" and overflow is not None:
                set_field(self, "overflow", Overflow.parse(overflow, fmt))

    def _places(self, given: str | Iterable[str]) -> tuple[Place, ...]:
        names = [name.strip() for name in given.split(",") if given] if isinstance(given, str) else list(given)
        for name in names:
            if name not in PLACES:
                raise FormatError(f"`scales` must be {', '.join(PLACES)}, got {name!r}{nearest_name(name, PLACES)}")
        if "at_promotion" in names and isinstance(self.accumulator, Fixed):
            raise FormatError(
                f"`scales` must not be at_promotion where the accumulator is {self.accumulator}: scaled sums are no "
                "integers; choose at_result, or a float accumulator"
            )
        if "at_promotion" in names and not isinstance(self.order, Promote):
            raise FormatError(
                f"`scales` must not be at_promotion where `order` is {self.order}, which promotes no sums; choose "
                "in_block, at_result, or the order promote(128, ...)"
            )
        return tuple(cast("list[Place]", names))

    @classmethod
    def preset(
        cls, gpu: str, *, inputs: str | None = None, output: str | None = None, instruction: str | None = None
    ) -> Mac:
        """Return the unit of a GPU's matrix instruction; by default the one for fp16 operands and fp32 sums.

        The default is the unit of mixed-precision training. Every GPU here but rtx-blackwell, whose rows are of scaled
        operands alone, has it, and all instructions of a GPU give the same bits for it. `inputs="int8"` without
        `output` gives int32 sums.

        Operands and addend are not converted: give them in the unit's formats. TF32 units read binary32
        registers and ignore their low 13 bits, which is `emu.quantize(x, "tf32", rounding="toward_zero")` before the
        product; software that rounds to nearest instead does so in an instruction of its own.

        Args:
            gpu: v100, t4, a100, ada, h100, b200 or rtx-blackwell; a2 and a30 are a100, l40s is ada, h200 is h100.
            inputs: format of both operands: fp16, bf16, tf32, fp8_e4m3, fp8_e5m2, or int8, which stands for
                fix8f0 and ufix8f0; or a scaled format, as mxfp8_e4m3 or nvfp4. None is fp16, and int8 if `output` is
                int32.
            output: format of addend and result: fp32, fp16, or int32, which stands for fix32f0. None is fp32, and
                int32 if `inputs` is int8.
            instruction: mma, wgmma, tcgen05, mma.satfinite, or of scaled formats one such as tcgen05.mxf4; None if the
                GPU's instructions for these formats agree, as they do on fp16, bf16 and tf32.

        Raises:
            FormatError: no such GPU or unit, or several units that differ; lists those that exist.

        Examples:
            >>> Mac.preset("v100").order
            Blocks(n=4, fraction_bits=23, index_order='consecutive', addend='aligned', min_exponent=None, group=1)
            >>> Mac.preset("h100") == Mac.preset("h100", inputs="fp16", output="fp32", instruction="wgmma")
            True

        Source: `emu.datapath.MATRIX_UNITS`, which gives each unit's source and how sure it is.
        """
        unit = find_unit(gpu, inputs, output, instruction)
        modes: dict[str, Any] = {"rounding": unit.rounding, "overflow": unit.overflow}
        return cls(accumulator=unit.accumulator, order=unit.order, **modes, scales=unit.scales)

    def _require_exact_products(self) -> None:
        # blocks and runs multiply exactly; a promotion also needs an accumulator that is a format
        name = "promote" if isinstance(self.order, Promote) else "blocks"
        if self.product != "exact":
            raise FormatError(f"`product` must be exact where `order` is {name}, got {self.product}; leave it out")
        if isinstance(self.order, Promote) and self.accumulator == "exact":
            raise FormatError("`accumulator` must be a format where `order` is promote, got exact; name one, as fp32")

    def _require_block_formats(self) -> None:
        if not isinstance(self.accumulator, Float):
            raise FormatError(
                f"`accumulator` must be a float format where `order` is blocks, got {self.accumulator}; name one, "
                "as fp32"
            )
        if not self.accumulator.signed:
            raise FormatError(
                f"`accumulator` must have a sign where `order` is blocks, got {self.accumulator}; name another, as fp32"
            )

    def require_operands(self, *formats: Format) -> None:
        """Raise unless the unit multiplies operands of these formats.

        Raises:
            FormatError: a unit of blocks, which aligns exponents, was given fixed-point operands.
        """
        fixed = [str(fmt) for fmt in formats if isinstance(fmt, Fixed)]
        # of a promotion, the inner unit multiplies
        inner = self.order.order if isinstance(self.order, Promote) else self.order
        if fixed and isinstance(inner, Blocks):
            raise FormatError(
                f"operands must be floats where `order` is blocks, got {' and '.join(fixed)}: a block aligns "
                "exponents; choose another order"
            )

    def require_order(self, *, is_aligned: bool = False) -> None:
        """Raise if this order cannot add up the terms of one sum.

        A product of matrices asks its `inner` unit, which promotes nothing. In any other sum a promotion is refused.

        Args:
            is_aligned: whether the operands share scales that are part of each term.

        Raises:
            FormatError: the order promotes sums; or it sums groups that share scales, and the operands share none.
        """
        if isinstance(self.order, Promote):
            raise FormatError(
                f"`order` here must be another one than promote, got {self.order}, which is of products of matrices; "
                "write the inner order"
            )
        if isinstance(self.order, Blocks) and self.order.group > 1 and not is_aligned:
            raise FormatError(
                f"operands must share scales that enter in_block where `order` sums groups, got {self.order}; quantize "
                "them, as into nvfp4, and give `scales`, or leave out `group`"
            )

    def __repr__(self) -> str:
        overflow = f", overflow={self.overflow.value!r}" if self.overflow else ""
        scales = f", scales={', '.join(self.scales)!r}" if self.scales else ""
        return (
            f"Mac(product={str(self.product)!r}, accumulator={str(self.accumulator)!r}, order={str(self.order)!r}, "
            f"rounding={self.rounding.value!r}{overflow}{scales})"
        )

    @property
    def is_exact(self) -> bool:
        """Whether nothing rounds or overflows before the output stage, so that the order is irrelevant."""
        return self.product == "exact" and self.accumulator == "exact"

    @property
    def inner(self) -> Mac:
        """The unit that adds up a run of products where `order` promotes sums; else this one."""
        if not isinstance(self.order, Promote):
            return self
        order = self.order
        # the operands of a run are multiplied exactly, so that the inner unit has no product format
        return Mac(accumulator=order.accumulator, order=order.order, rounding=order.rounding)

    def stage_of(self, fmt: Format) -> OutputStage:
        """Return the rounding stage after the multiplier or the adder, which writes `fmt`."""
        # products and sums draw the default number of random bits, also if the output stage draws another one
        return OutputStage(fmt, self.rounding, Overflow.parse(self.overflow, fmt), DEFAULT_RANDOM_BITS)


def _is_exact(named: Any) -> bool:
    return isinstance(named, str) and named == "exact"


def common_modes(
    written: Mapping[str, str | Format], rounding: str | None, overflow: str | None
) -> tuple[str | None, str | None]:
    """Return rounding mode and overflow rule of products and sums: the given ones, else what their texts bring.

    Args:
        written: the formats that are not exact, by name.
        rounding: given mode.
        overflow: given rule.

    Raises:
        FormatError: texts bring different ones, or name other ones than those given.
    """
    # each text is also checked against the given mode
    modes = {name: rounding_of(fmt, rounding) for name, fmt in written.items()}
    rules = {name: overflow_of(fmt, overflow) for name, fmt in written.items()}
    _require_common("rounding", {mode and Rounding.parse(mode) for mode in modes.values()}, modes, written)
    _require_common("overflow", {rule and Overflow.named(rule) for rule in rules.values()}, rules, written)
    # all modes are equal here, so that the first stands for all; without formats the given mode counts
    return next(iter(modes.values()), rounding), next(iter(rules.values()), overflow)


def _require_common(
    what: str, distinct: Collection[str | None], brought: Mapping[str, str | None], written: Mapping[str, str | Format]
) -> None:
    # `brought`: which mode or rule each of the formats that are `written` has; None for none
    if len(distinct) > 1:
        sources = [f"{brought[name] or 'none'} from `{name}`, {fmt}" for name, fmt in written.items()]
        without = [f"{parse(fmt)} for {fmt}" for name, fmt in written.items() if brought[name]]
        raise FormatError(
            f"`{what}` of a Mac must serve products and sums, got {' and '.join(sources)}; give `{what}`, or write "
            f"{' and '.join(without)}"
        )
