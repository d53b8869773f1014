"""A unit's stages: what rounds products, sums and results, and when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from emu.datapath import Mac, OutputStage, Rounding, Tininess
from emu.datapath.order import Blocks
from emu.export.c.constants import Options, stored
from emu.export.c.widths import Widths, widths_of
from emu.formats import Fixed, Float, Format
from emu.testing.vectors import Description
from emu.testing.vectors.conventions import has_payloads


@dataclass(frozen=True)
class Unit:
    """A description with everything that the C of its unit depends on.

    Attributes:
        description: of the unit.
    """

    description: Description

    @cached_property
    def mac(self) -> Mac:
        """The unit that multiplies and accumulates; an exact one for other operations."""
        return self.description.mac.mac() if self.description.operation == "matmul" else Mac()

    @cached_property
    def widths(self) -> Widths:
        """Widths of its numbers."""
        return widths_of(self.description)

    @cached_property
    def product(self) -> OutputStage | None:
        """What rounds products, or None."""
        return None if self.mac.product == "exact" else _storing(self.mac.stage_of(self.mac.product))

    @cached_property
    def accumulator(self) -> OutputStage | None:
        """What rounds sums, or None."""
        return None if self.mac.accumulator == "exact" else _storing(self.mac.stage_of(self.mac.accumulator))

    @cached_property
    def adder(self) -> OutputStage | None:
        """What adds the sum of blocks to the accumulator, to nearest even; None if it is one of their terms."""
        order = self.mac.order
        if self.accumulator is None or not isinstance(order, Blocks) or order.addend != "after":
            return None
        # `order.addend == "after"` is an IEEE adder beside the block: it ignores the Mac's rounding.
        return OutputStage(self.accumulator.format, Rounding.NEAREST_EVEN, self.accumulator.overflow)

    @cached_property
    def output(self) -> OutputStage:
        """What writes results. A mode that moves exact results has moved them in `round_to_integral` already."""
        stage = self.description.stage
        if self.description.operation != "round_to_integral" or not stage.rounding.moves_exact:
            return stage
        # A mode that moves exact results would move the integer of `integral.c` once more; toward zero leaves it as it
        # is.
        return OutputStage(stage.format, Rounding.TOWARD_ZERO, stage.overflow)

    @cached_property
    def passed(self) -> dict[str, OutputStage]:
        """The stages before the output stage, by the names of their constants."""
        rows = self.description.stages
        return {f"STAGE_{i}": _storing(row.stage) for i, row in enumerate(rows, 1)}

    @cached_property
    def stages(self) -> dict[str, OutputStage]:
        """All stages by the names of their constants."""
        named = {"PRODUCT": self.product, "ACCUMULATOR": self.accumulator, "ADDER": self.adder}
        named |= self.passed | {"OUTPUT": self.output}
        return {name: stage for name, stage in named.items() if stage is not None}

    @cached_property
    def formats(self) -> tuple[Format, ...]:
        """Formats of operands and stages, each once."""
        written = (stage.format for stage in self.stages.values())
        return tuple(dict.fromkeys([*self.description.operand_formats, *written]))

    @cached_property
    def tininess(self) -> Tininess | None:
        """When the output stage calls a result tiny."""
        return self.description.underflow

    @cached_property
    def signalling(self) -> tuple[int, ...]:
        """Operands whose signalling NaNs are invalid, by their number."""
        d = self.description
        if d.flag_rule != "ieee":
            return ()
        return tuple(i for i, fmt in enumerate(d.operand_formats) if has_payloads(fmt))

    @cached_property
    def options(self) -> Options:
        """Which fields its structures have."""
        return Options(
            random=self.description.is_stochastic,
            flushes_operands=any(isinstance(fmt, Float) and fmt.daz for fmt in self.description.operand_formats),
            flushes_results=any(isinstance(s.format, Float) and s.format.ftz for s in self.stages.values()),
            tininess=self.tininess is not None,
            sign_magnitude=any(isinstance(fmt, Fixed) and fmt.sign_magnitude for fmt in self.formats),
            hidden_one=any(isinstance(fmt, Float) and fmt.hidden_one for fmt in self.formats),
        )

    @cached_property
    def has_specials(self) -> bool:
        """Whether an exact result may be infinite or NaN."""
        # What the output stage writes does not count: it comes after the exact result.
        formats = [*self.description.operand_formats, *(s.format for n, s in self.stages.items() if n != "OUTPUT")]
        makes_nan = self.description.operation in ("divide", "sqrt", "remainder")
        return makes_nan or any(isinstance(fmt, Float) for fmt in formats)

    @property
    def has_addend(self) -> bool:
        """Whether something is added to products."""
        return self.description.operation == "matmul" and len(self.description.formats) > 2


def has_nan(fmt: Format) -> bool:
    """Return whether a format has NaN."""
    return isinstance(fmt, Float) and fmt.nans != "none"


def _storing(stage: OutputStage) -> OutputStage:
    # A register inside a unit keeps mode, rule and random bits of its stage.
    return OutputStage(stored(stage.format), stage.rounding, stage.overflow, stage.n_rbits)
