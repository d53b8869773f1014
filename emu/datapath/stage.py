"""The output stage: what happens between an exact result and the word that is written."""

from __future__ import annotations

from dataclasses import dataclass

from emu.datapath.overflow import Overflow
from emu.datapath.rounding import MAX_RANDOM_BITS, Rounding
from emu.errors import FormatError
from emu.formats import DynamicFixed, Fixed, Float, Format, parse
from emu.formats.integers import as_integer

DEFAULT_RANDOM_BITS = 24


@dataclass(frozen=True)
class OutputStage:
    """Format, rounding mode and overflow rule of everything a unit writes.

    Attributes:
        format: what is written.
        rounding: where results between two values go.
        overflow: what happens to results out of range; None is the default of the format, and never there afterwards.
        n_rbits: random bits r of stochastic rounding, 1..32.

    Raises:
        FormatError: `format` is none, no such mode or rule, a rule of the other family, or `n_rbits` outside 1..32.

    Examples:
        >>> OutputStage.of("fix8f4").overflow.value
        'saturate'
    """

    format: Format
    rounding: Rounding = Rounding.NEAREST_EVEN
    overflow: Overflow = None  # pyright: ignore[reportAssignmentType] - the default of the format
    n_rbits: int = DEFAULT_RANDOM_BITS

    def __post_init__(self) -> None:
        if not isinstance(self.format, (Fixed, Float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FormatError(
                f"`format` of a stage must be a format, got {self.format!r}; OutputStage.of takes its text"
            )
        object.__setattr__(self, "rounding", Rounding.parse(self.rounding))
        object.__setattr__(self, "overflow", Overflow.parse(self.overflow, self.format))
        object.__setattr__(self, "n_rbits", as_integer("n_rbits", self.n_rbits, 1, MAX_RANDOM_BITS))

    @classmethod
    def of(
        cls,
        fmt: str | Format,
        rounding: str | Rounding = Rounding.NEAREST_EVEN,
        overflow: str | Overflow | None = None,
        n_rbits: int = DEFAULT_RANDOM_BITS,
    ) -> OutputStage:
        """Return the stage from text forms, with the format family's default overflow rule."""
        fmt = require_placed(parse(fmt))
        return cls(fmt, Rounding.parse(rounding), Overflow.parse(overflow, fmt), n_rbits)


def require_placed(fmt: Format | DynamicFixed) -> Format:
    """Return `fmt`, a format whose binary point is known.

    Raises:
        FormatError: `fmt` is a `DynamicFixed`.
    """
    if isinstance(fmt, (Fixed, Float)):
        return fmt
    raise FormatError(
        f"a format in arithmetic must have its binary point in place, got {fmt}; choose one with `.at(frac_bits)`"
    )
