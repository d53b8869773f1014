"""The ends of a format's range as powers of two: the lines in a picture of magnitudes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from emu.formats import Fixed, Float
from emu.formats.numerals import number
from emu.report.words import parse_or_none


@dataclass(frozen=True)
class RangeLine:
    """A line across a picture of magnitudes.

    Attributes:
        at: log2 of the magnitude.
        label: text of the line.
        kind: "largest", "normal" or "smallest".
    """

    at: float
    label: str
    kind: str


@dataclass(frozen=True)
class FormatRange:
    """The magnitudes a format covers.

    Attributes:
        top: results of magnitude 2**top or more overflow.
        bottom: log2 of the smallest positive value; smaller results become this value, or 0.
        lines: the lines, largest first.
    """

    top: int
    bottom: int
    lines: tuple[RangeLine, ...]


def range_of(text: str | None) -> FormatRange | None:
    """Return the magnitudes that the format `text` covers; None if its binary point moves, or the format is unknown.

    Examples:
        >>> covered = range_of("fix16f13")
        >>> covered.top, covered.bottom, [line.label for line in covered.lines]
        (2, -13, ['largest 3.99988', 'smallest step 1.2e-4'])
    """
    fmt = parse_or_none(text)
    if isinstance(fmt, Fixed):
        top, bottom = fmt.width_bits - fmt.signed - fmt.frac_bits, -fmt.frac_bits
        smallest = RangeLine(bottom, f"smallest step {number(fmt.ulp(), 2)}", "smallest")
        return FormatRange(top, bottom, (RangeLine(top, f"largest {number(fmt.max)}", "largest"), smallest))
    if isinstance(fmt, Float):
        return _range_of_float(fmt)
    return None


def _range_of_float(fmt: Float) -> FormatRange:
    # frexp gives the significand 0.5 .. 1, so its exponent is that of the leading bit plus 1
    top, bottom = fmt.emax + 1, math.frexp(float(fmt.smallest_positive))[1] - 1
    lines = [RangeLine(top, f"largest {number(fmt.max)}", "largest")]
    if bottom < fmt.emin and fmt.has_normals:
        lines.append(RangeLine(fmt.emin, f"smallest normal {number(fmt.smallest_normal, 2)}", "normal"))
    lines.append(RangeLine(bottom, f"smallest {number(fmt.smallest_positive, 2)}", "smallest"))
    return FormatRange(top, bottom, tuple(lines))
