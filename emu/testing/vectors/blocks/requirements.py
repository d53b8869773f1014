"""Which formats and options vectors of blocks can have: what a file of numbers, one behind the other, can say."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.errors import ConfigError
from emu.formats import PRESETS, Fixed, Float, Format, Scaled, parse

if TYPE_CHECKING:
    from emu.testing.vectors.description import Description

#: Widest fixed-point operands: rules read float64, which holds all of their numbers.
WIDEST_OPERAND_BITS = 53
#: Keys of a description that say what single numbers become.
_OF_SINGLE_NUMBERS = ("stages", "requantise", "also", "statistics", "nan", "nan_code", "invalid")


def scaled_of(text: str) -> Scaled | None:
    """Return the format of blocks that a text names, None if it names another one."""
    fmt = parse(text)
    return fmt if isinstance(fmt, Scaled) else None


def format_of_quotients(fmt: Scaled, operand: Format) -> Float:
    """Return a format with the digits and the exponents of numbers divided by scales, before elements are rounded.

    They are those of the operands, which a power of two leaves as they are; rules that read binary32 have no more than
    24. Other scales make more of few digits, but no pattern that could be sought.
    """
    double, single = PRESETS["fp64"], PRESETS["fp32"]
    digits = operand.significand_bits if isinstance(operand, Float) else max(operand.width_bits - operand.signed, 1)
    most = double.significand_bits if fmt.rule.reads == "exact" else single.significand_bits
    # of a single digit too: without a fraction bit there is no code for NaN beside that of infinity
    return replace(double, fraction_bits=max(min(digits, most) - 1, 1))


def require_single_operands(d: Description) -> None:
    """Raise ConfigError if an operand is a format whose elements share scales."""
    for text in d.formats:
        fmt = scaled_of(text)
        if fmt is not None:
            elements = (each if scaled_of(each) is None else str(fmt.element) for each in d.formats)
            remedy = shlex.quote(",".join(elements))
            raise ConfigError(
                f"operands of vectors must be single numbers, got {text}: the terms of a sum of blocks have scales of "
                "their own, which a line of operands has no place for; write vectors of the sums of elements, "
                f"--formats {remedy}, and those of the quantiser, quantize --out-format {shlex.quote(text)}"
            )


def require_blocks(d: Description, fmt: Scaled) -> None:
    """Raise ConfigError unless vectors can hold results of a format whose elements share scales.

    Args:
        d: the description; its operands are single numbers.
        fmt: format of its results.
    """
    if d.operation != "quantize":
        raise ConfigError(
            f"results that share scales must be those of quantize in vectors, got {d.operation} to {fmt}: a scale "
            f"belongs to a block, and a vector of {d.operation} has one result; write vectors of {d.operation} to fp32 "
            "or bf16, and of quantize from there"
        )
    _require_rows_of_blocks(fmt)
    for name in _OF_SINGLE_NUMBERS:
        # a key at its default was not given
        if getattr(d, name) != type(d).model_fields[name].default:
            raise ConfigError(
                f"`{name}` must be left out of results that share scales, got it for {fmt}: it is of single results"
            )
    operand = d.operand_formats[0]
    if isinstance(operand, Fixed) and operand.width_bits > WIDEST_OPERAND_BITS:
        raise ConfigError(
            f"numbers that share scales must be float64, got {operand}, which may have more than "
            f"{WIDEST_OPERAND_BITS} bits; write a narrower format, as fix32f16"
        )


def _require_rows_of_blocks(fmt: Scaled) -> None:
    tiling, level = fmt.tiling, str(fmt.levels[0])
    if fmt.has_zero:
        raise ConfigError(
            f"blocks of vectors must have scales alone, got {fmt}, which has zero points chosen from all numbers of a "
            "tensor; write the vectors of its integers by given scales, --requantise 'float32 0.0055 zero -126'"
        )
    if tiling.along is None:
        requantised = ", or --requantise for integers" if isinstance(fmt.element, Fixed) else ""
        raise ConfigError(
            f"blocks of vectors must have a length, got {fmt}, where a scale serves a whole {tiling}; write a block as "
            f"long as that, block({fmt.element}, {level.replace(str(tiling), '1x128', 1)}){requantised}"
        )
    if tiling.across != 1:
        # a block of one row with as many numbers has the same scale, since a rule looks at all of them alike
        size = (tiling.across or 1) * tiling.along
        levels = ", ".join([level.replace(str(tiling), f"1x{size}", 1), *map(str, fmt.levels[1:])])
        raise ConfigError(
            f"blocks of vectors must lie along one axis, got {tiling} of {fmt}: a file has one axis; write block("
            f"{fmt.element}, {levels}), whose codes are the same, and give the numbers of a square one after the other"
        )
