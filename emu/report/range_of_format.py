"""The ends of a format's range as powers of two: the lines in a picture of magnitudes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
        of: "format" of the results, or "accumulator" in which they are summed.
    """

    at: float
    label: str
    kind: str
    of: str = "format"


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
        # All bits but the sign lie below `top`: the largest magnitude is a step less than 2**top.
        top, bottom = fmt.width_bits - fmt.signed - fmt.frac_bits, -fmt.frac_bits
        smallest = RangeLine(bottom, f"smallest step {number(fmt.ulp(), 2)}", "smallest")
        return FormatRange(top, bottom, (RangeLine(top, f"largest {number(fmt.max)}", "largest"), smallest))
    if isinstance(fmt, Float):
        return _range_of_float(fmt)
    return None


def accumulator_lines(mac: Mapping[str, Any] | str | None, results_range: FormatRange | None) -> tuple[RangeLine, ...]:
    """Return the ends of a unit's accumulator, if it ends before the results' format or has coarser steps.

    Args:
        mac: the unit, as `run.json` has it.
        results_range: the magnitudes of the format in which results are written. An end that both share is left out.

    Examples:
        >>> lines = accumulator_lines({"accumulator": "fix24f9"}, range_of("fix16f13"))
        >>> [(line.at, line.label) for line in lines]
        [(14, 'sums: largest 16384'), (-9, 'sums: step 0.002')]
    """
    name = mac.get("accumulator") if isinstance(mac, Mapping) else None
    kept = range_of(None if name is None else str(name))
    # An accumulator that covers the whole format loses nothing that the format could keep.
    if kept is None or results_range is None or (kept.top >= results_range.top and kept.bottom <= results_range.bottom):
        return ()
    ends = {results_range.top, results_range.bottom}
    return tuple(
        RangeLine(line.at, f"sums: {line.label.removeprefix('smallest ')}", line.kind, "accumulator")
        # The outer ends; a float accumulator has the smallest normal number between them.
        for line in (kept.lines[0], kept.lines[-1])
        if line.at not in ends
    )


def _range_of_float(fmt: Float) -> FormatRange:
    # frexp gives the significand 0.5 .. 1, so its exponent is that of the leading bit plus 1
    top, bottom = fmt.emax + 1, math.frexp(float(fmt.smallest_positive))[1] - 1
    lines = [RangeLine(top, f"largest {number(fmt.max)}", "largest")]
    # Without subnormals, or under FTZ, the smallest normal number is the smallest of all: one line is enough.
    if bottom < fmt.emin and fmt.has_normals:
        lines.append(RangeLine(fmt.emin, f"smallest normal {number(fmt.smallest_normal, 2)}", "normal"))
    lines.append(RangeLine(bottom, f"smallest {number(fmt.smallest_positive, 2)}", "smallest"))
    return FormatRange(top, bottom, tuple(lines))
