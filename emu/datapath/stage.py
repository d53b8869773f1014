"""The output stage: what happens between an exact result and the word that is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emu.datapath.overflow import Overflow
from emu.datapath.rounding import MAX_RANDOM_BITS, Rounding
from emu.errors import FormatError
from emu.formats import DynamicFixed, Fixed, Float, Format, Scaled, parse
from emu.formats.integers import as_integer
from emu.formats.notations import Mode
from emu.formats.parse import modes_of, refuse_scaled

DEFAULT_RANDOM_BITS = 24


@dataclass(frozen=True)
class OutputStage:
    """Format, rounding mode and overflow rule of everything a unit writes.

    Attributes:
        format: what is written.
        rounding: where results between two values go.
        overflow: what happens to results out of range; None becomes the default of the format.
        n_rbits: random bits r of stochastic rounding, 1..32.

    Raises:
        FormatError: `format` is none, no such mode or rule, a rule of the other family, or `n_rbits` outside 1..32.

    Examples:
        >>> OutputStage.of("fix8f4").overflow.value
        'saturate'
    """

    format: Format
    rounding: Rounding = Rounding.NEAREST_EVEN
    # None stands for the format's default and is replaced below, so that readers always see a rule
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
        rounding: str | Rounding | None = None,
        overflow: str | Overflow | None = None,
        n_rbits: int = DEFAULT_RANDOM_BITS,
    ) -> OutputStage:
        """Return the stage from text forms.

        Args:
            fmt: what is written. A text that implies modes, as `ap_fixed<16,8>`, brings them.
            rounding: None is the mode that the text of `fmt` brings, and else `nearest_even`.
            overflow: None is the rule that the text of `fmt` brings, and else the default of the format's family.
            n_rbits: random bits of stochastic rounding.

        Raises:
            FormatError: an impossible format, mode or rule; or the text names a mode, and another one is given.

        Examples:
            >>> OutputStage.of("ap_fixed<10,4>").rounding.value, OutputStage.of("fix10f6").rounding.value
            ('floor', 'nearest_even')
        """
        placed = require_placed(parse(fmt))
        # before the modes, so that each argument has its own message
        n_rbits = as_integer("n_rbits", n_rbits, 1, MAX_RANDOM_BITS)
        # the text of `fmt` is asked, since the parsed format has no modes
        rounding = rounding_of(fmt, rounding)
        rule = Overflow.parse(overflow_of(fmt, overflow), placed)
        return cls(placed, Rounding.NEAREST_EVEN if rounding is None else Rounding.parse(rounding), rule, n_rbits)


def rounding_of(fmt: object, given: str | Rounding | None) -> str | Rounding | None:
    """Return the mode in which `fmt` is written: the given one, else what its text brings; None if there is neither.

    Raises:
        FormatError: the text names a mode, and another one is given.
    """
    return _given_or_brought("rounding", given, fmt, modes_of(fmt).rounding, Rounding.parse)


def overflow_of(fmt: object, given: str | Overflow | None) -> str | Overflow | None:
    """Return the rule by which `fmt` overflows: the given one, else what its text brings; None if there is neither.

    Raises:
        FormatError: the text names a rule, and another one is given.
    """
    return _given_or_brought("overflow", given, fmt, modes_of(fmt).overflow, Overflow.named)


def _given_or_brought(
    what: str, given: str | None, fmt: object, brought: Mode, known: Callable[[str], str]
) -> str | None:
    if given is None:
        return brought.word or None
    # different words may mean the same mode, so that members are compared
    if brought.is_named and known(given) is not known(brought.word):
        # a notation's default, as TRN of ap_fixed, gives way to what is given; a named mode does not
        raise FormatError(
            f"`{what}` must be what the format's text names, {brought.word} of {fmt}, which is "
            f"{str(known(brought.word))!r}, got {str(given)!r}; leave one of them out"
        )
    return given


def require_placed(fmt: Format | DynamicFixed | Scaled) -> Format:
    """Return `fmt`, a format whose binary point is known, and whose values have no scales beside them.

    Raises:
        FormatError: `fmt` is a `DynamicFixed` or a `Scaled`.
    """
    if isinstance(fmt, (Fixed, Float)):
        return fmt
    if isinstance(fmt, Scaled):
        refuse_scaled(fmt)
    raise FormatError(
        f"a format in arithmetic must have its binary point in place, got {fmt}; choose one with `.at(frac_bits)`"
    )
