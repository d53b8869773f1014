"""Stages before the output stage, and codes that are written where arithmetic leaves it open (vectors' conventions)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from emu.formats import Fixed, Float
from emu.prove.reference.fixed import Written, write_fixed
from emu.prove.reference.floating import write_float
from emu.prove.reference.text import Bits, Module, constant
from emu.prove.reference.unpack import Exact, unpack
from emu.testing.vectors.conventions import has_payloads, invalid_code
from emu.testing.vectors.description import Description


class Staged(NamedTuple):
    """What the output stage is given, and what the stages before it wrote.

    Attributes:
        exact: the number.
        written: by each stage.
    """

    exact: Exact
    written: list[Written]


def through_stages(m: Module, d: Description, exact: Exact) -> Staged:
    """Return an exact result after the stages before the output stage."""
    rows = list[Written]()
    for row in d.stages:
        stage = row.stage
        if isinstance(fmt := stage.format, Fixed):
            rows.append(write_fixed(m, exact, stage, None))
        else:
            rows.append(write_float(m, exact, stage, None, d.underflow))
            fmt = replace(fmt, daz=False)  # DAZ is about operands: what a unit has written itself keeps its subnormals
        exact = unpack(m, m.wire("staged", fmt.width_bits, rows[-1].code.name), fmt)
    return Staged(exact, rows)


def with_conventions(
    m: Module, d: Description, written: Written, codes: Sequence[Bits], operands: Sequence[Exact]
) -> Bits:
    """Return the code of a result as the description's rules for NaN and for missing integers have it."""
    fmt, code = d.stage.format, written.code
    if isinstance(fmt, Fixed):
        if d.invalid == "zero":
            return code
        # x86's integer indefinite answers numbers beyond the range, too
        beyond = f"({written.invalid} | {written.overflow})" if d.invalid == "indefinite" else written.invalid.name
        number = constant(invalid_code(d.invalid, fmt), fmt.width_bits)
        return m.wire("with_invalid", fmt.width_bits, f"{beyond} ? {number} : {code}")
    if d.nan == "canonical" and d.nan_code is None:
        return code
    choices = list[tuple[str, str]]()
    if d.nan != "canonical":
        formats = zip(codes, operands, d.operand_formats, strict=True)
        nans = [(x, operand.nan, f) for x, operand, f in formats if has_payloads(f)]
        if d.nan == "signalling_first":
            choices += [(f"({nan} & ~{x[f.fraction_bits - 1]})", _quieted(m, fmt, x, f)) for x, nan, f in nans]
        choices += [(nan.name, _quieted(m, fmt, x, f)) for x, nan, f in nans]
    passed = constant(d.made_nan, fmt.width_bits)
    # nested from the last to the first, so the first condition that holds wins
    for condition, nan in reversed(choices):
        passed = f"{condition} ? {nan} : ({passed})"
    # by the code itself: a NaN may come from an operand or be made on the way
    is_nan = unpack(m, m.wire("written", fmt.width_bits, code.name), fmt).nan
    return m.wire("with_nan", fmt.width_bits, f"{is_nan} ? ({passed}) : {code}")


def _quieted(m: Module, fmt: Float, code: Bits, source: Float) -> str:
    """Return a NaN of an operand as a result: its sign, its payload from the top, and quiet."""
    assert fmt.infinity_code is not None
    quiet = fmt.infinity_code | 1 << (fmt.fraction_bits - 1)
    more = fmt.fraction_bits - source.fraction_bits
    high = source.fraction_bits - 1
    # the payload's high bits stay at the top of the fraction, as a conversion of formats keeps them
    payload = f"{{{code.slice(high, 0)}, {more}'b0}}" if more > 0 else code.slice(high, -more)
    sign = f"{{{code.top}, {fmt.width_bits - 1}'b0}}" if source.signed and fmt.signed else "1'b0"
    return m.wire("quieted", fmt.width_bits, f"{sign} | {payload} | {constant(quiet, fmt.width_bits)}").name
