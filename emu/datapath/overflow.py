"""The overflow rules: what is written when the rounded result lies outside the format."""

from __future__ import annotations

from enum import StrEnum

from emu.datapath.mode_names import OVERFLOW_NAMES, UNCLEAR_OVERFLOWS
from emu.errors import FormatError, nearest_name
from emu.formats import Fixed, Format
from emu.formats.notations import PREFIXES, word_of


class Overflow(StrEnum):
    """What is written when the rounded result lies outside the format.

    Source: docs/concepts/overflow.md; IEEE 754-2019 section 7.4; IEEE 1666 section 7.10; IEEE P3109, saturation modes.
    """

    #: fixed: the nearest limit (unsigned: negative results become 0)
    SATURATE = "saturate"
    #: fixed: like saturate, the most negative code excluded
    SATURATE_SYMMETRIC = "saturate_symmetric"
    #: fixed: zero
    SATURATE_ZERO = "saturate_zero"
    #: fixed: the result modulo 2**width
    WRAP = "wrap"
    #: float: infinity or the largest value, as the rounding mode directs
    IEEE = "ieee"
    #: float: the largest value of the result's sign, for infinities too
    SATFINITE = "satfinite"
    #: float: the largest value of the result's sign; an infinity stays one if the format has it
    SATPROPAGATE = "satpropagate"

    @property
    def number(self) -> int:
        """The rule as the integer that kernels take: 0 saturate .. 6 satpropagate."""
        return _NUMBERS[self]

    @classmethod
    def named(cls, name: str | Overflow) -> Overflow:
        """Return the rule called `name`, of either family, by the name it has here or in high-level synthesis.

        Raises:
            FormatError: no such rule; names the nearest one. Or the name means several rules; names them.

        Examples:
            >>> [Overflow.named(name).value for name in ("AP_WRAP", "AC_SAT_SYM", "wrap")]
            ['wrap', 'saturate_symmetric', 'wrap']
        """
        known = [rule.value for rule in cls]
        if isinstance(name, str) and name in known:  # pyright: ignore[reportUnnecessaryIsInstance]
            return cls(name)
        if rule := _OTHER_NAMES.get(str(name)):
            return rule
        hint = UNCLEAR_OVERFLOWS.get(word_of(str(name)).lower()) or nearest_name(str(name), known)
        raise FormatError(f"`overflow` must be an overflow rule, got {name!r}{hint}")

    @classmethod
    def parse(cls, name: str | Overflow | None, fmt: Format) -> Overflow:
        """Return the rule called `name`; None means the format's default.

        Raises:
            FormatError: no such rule, or it belongs to the other family of formats.
        """
        allowed = FIXED_RULES if isinstance(fmt, Fixed) else FLOAT_RULES
        if name is None:
            return default_rule(fmt)
        rule = cls.named(name)
        if rule not in allowed:
            raise FormatError(
                f"`overflow` of {fmt} must be one of {', '.join(r.value for r in allowed)}, got {rule.value!r}: "
                "that rule belongs to the other family of formats"
            )
        return rule


def default_rule(fmt: Format) -> Overflow:
    """Return the default rule of a format.

    Fixed point saturates. Floats overflow as IEEE 754 says, to infinity, or to NaN if the format has no infinity (as
    OCP e4m3 does); those with neither saturate.

    Examples:
        >>> from emu import parse
        >>> [default_rule(parse(text)).value for text in ("fix8f4", "fp16", "fp8_e4m3", "e2m1 finite nans=none")]
        ['saturate', 'ieee', 'ieee', 'satfinite']
    """
    if isinstance(fmt, Fixed):
        return Overflow.SATURATE
    return Overflow.IEEE if fmt.infinities or fmt.nans != "none" else Overflow.SATFINITE


#: What each rule does to results beyond the range, as a report says it.
OVERFLOW_WORDS: dict[str, str] = {
    Overflow.SATURATE: "results beyond the range become the nearest limit",
    Overflow.SATURATE_SYMMETRIC: "results beyond the range become the nearest limit, the most negative code excluded",
    Overflow.SATURATE_ZERO: "results beyond the range become 0",
    Overflow.WRAP: "results beyond the range wrap around, sign included",
    Overflow.IEEE: "results beyond the range become infinity (IEEE 754)",
    Overflow.SATFINITE: "results beyond the range become the largest finite value",
    Overflow.SATPROPAGATE: "finite results beyond the range become the largest finite value, infinities stay",
}
FIXED_RULES = (Overflow.SATURATE, Overflow.SATURATE_SYMMETRIC, Overflow.SATURATE_ZERO, Overflow.WRAP)
FLOAT_RULES = (Overflow.IEEE, Overflow.SATFINITE, Overflow.SATPROPAGATE)
# The order of the members is part of the interface of kernels; a new rule comes last.
_NUMBERS = {rule: number for number, rule in enumerate(Overflow)}
# each name alone and after AP_, AC_ and SC_
_OTHER_NAMES = {
    prefix + name: Overflow(rule)
    for rule, names in OVERFLOW_NAMES.items()
    for name in names
    for prefix in ("", *PREFIXES)
}
