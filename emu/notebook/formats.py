"""Formats: their bits, range, steps and special codes. Values: their elements beside their codes."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from emu.backends.arrays import on_host
from emu.formats import DynamicFixed, Fixed, Float, Value
from emu.notebook.parts import (
    BLUE,
    GREEN,
    ORANGE,
    box,
    column,
    facts,
    numbers,
    path,
    sentence,
    svg,
    text,
    title,
)
from emu.notebook.picture import picture
from emu.report.html import Html, element
from emu.report.words import integer, number, power_of_two

#: Pixels of a bit, and elements of a value that are listed.
_BIT, _HEIGHT, _MARGIN, MOST_ELEMENTS = 14, 20, 4, 16


class _Field(NamedTuple):
    """Bits that mean one thing."""

    name: str
    letter: str
    bits: int
    colour: str


@picture.register
def _(fmt: Fixed) -> Html:
    behind = min(max(fmt.frac_bits, 0), fmt.width_bits - fmt.signed)
    fields = [
        _Field("sign", "s", int(fmt.signed), ORANGE),
        _Field("integer", "i", fmt.width_bits - fmt.signed - behind, BLUE),
        _Field("fraction", "f", behind, GREEN),
    ]
    place = fmt.width_bits - fmt.frac_bits if 0 <= fmt.frac_bits <= fmt.width_bits else None
    codes = f"{integer(fmt.n_codes)}, every one a number: no NaN, no infinity, one zero"
    described = [
        ("range", f"{_real(fmt.min)} .. {_real(fmt.max)}"),
        ("ulp", f"{_real(fmt.ulp())}, everywhere"),
        ("point", _point(fmt)),
        ("codes", codes),
        ("arrays", _carrier(fmt)),
    ]
    return column(title("fixed point", str(fmt)), _bits(fields, place), facts(described))


@picture.register
def _(fmt: DynamicFixed) -> Html:
    sign = int(fmt.signed)
    fields = [_Field("sign", "s", sign, ORANGE), _Field("number", "x", fmt.width_bits - sign, BLUE)]
    said = "The point is open: it is chosen while the machine runs. `at(frac_bits)` puts it in place."
    return column(title("fixed point, point open", str(fmt)), _bits(fields, None), sentence(said))


@picture.register
def _(fmt: Float) -> Html:
    fields = [
        _Field("sign", "s", int(fmt.signed), ORANGE),
        _Field("exponent", "e", fmt.exponent_bits, BLUE),
        _Field("fraction", "f", fmt.fraction_bits, GREEN),
    ]
    described = [
        ("range", f"{_real(fmt.min)} .. {_real(fmt.max)}"),
        ("smallest normal", _smallest_normal(fmt)),
        ("smallest above 0", number(fmt.smallest_positive)),
        ("ulp at 1", number(fmt.ulp(1.0))),
        ("bias", str(fmt.bias)),
        ("special codes", _special(fmt)),
        *([("flushes", _flushes(fmt))] if fmt.ftz or fmt.daz else []),
        ("arrays", _carrier(fmt)),
    ]
    return column(title("floating point", str(fmt)), _bits(fields, None), facts(described))


@picture.register
def _(value: Value) -> Html:
    array: Any = on_host(value.array)
    if getattr(array, "ndim", None) is None:
        return element("pre", repr(value))
    name = "no format" if value.format is None else str(value.format)
    said = f"shape {array.shape}, {array.dtype}"
    header, rows = _elements(array, value.format)
    rest = array.size - len(rows)
    more = sentence(f"and {integer(rest)} more") if rest else None
    return column(title("value in", name), sentence(said), numbers(header, rows), more)


def _elements(array: Any, fmt: Any) -> tuple[list[str], list[list[str]]]:
    """Return the first elements as rows: index, number, and bits where there is a format."""
    places = list(islice(np.ndindex(array.shape), MOST_ELEMENTS))
    first = np.array([array[place] for place in places], array.dtype)
    rows = [[", ".join(map(str, place)), str(element)] for place, element in zip(places, first.tolist(), strict=True)]
    if fmt is None:
        return ["index", "number"], rows
    codes: list[int] = fmt.encode(first).tolist() if places else []
    return ["index", "number", "bits"], [
        [*row, f"{code:0{fmt.width_bits}b}"] for row, code in zip(rows, codes, strict=True)
    ]


def _bits(fields: list[_Field], point: int | None) -> Html:
    """Return a word bit by bit, the highest first.

    Args:
        fields: what its bits mean.
        point: bits before the binary point; None draws none.
    """
    shapes: list[Html] = []
    x = float(_MARGIN)
    for field in fields:
        for _ in range(field.bits):
            shapes += [box(x, _MARGIN, _BIT, _HEIGHT, field.colour), text(x + _BIT / 2, _MARGIN + 14, field.letter)]
            x += _BIT
    if point is not None:
        at = _MARGIN + _BIT * point
        shapes.append(path(f"M{at} {_MARGIN - 3}V{_MARGIN + _HEIGHT + 5}"))
    said = ", ".join(f"{field.bits} {field.name}" for field in fields if field.bits)
    shapes.append(
        text(_MARGIN, _MARGIN + _HEIGHT + 16, f"{said}" + (" | point" if point is not None else ""), anchor="start")
    )
    width = max(x + _MARGIN, _MARGIN + 7.4 * (len(said) + 8))
    return svg(width, _HEIGHT + 26, f"word of {said} bits", *shapes)


def _point(fmt: Fixed) -> str:
    last = f"the last bit weighs {power_of_two(-fmt.frac_bits)}"
    if fmt.frac_bits < 0:
        return f"{-fmt.frac_bits} places behind the word; {last}"
    if fmt.frac_bits > fmt.width_bits:
        return f"{fmt.frac_bits - fmt.width_bits} places before the word; {last}"
    return f"{fmt.frac_bits} bits behind it; {last}"


def _real(value: float | Fraction) -> str:
    """Return a limit of a format; one that is no float64 as the nearest one."""
    try:
        return number(float(value))
    except OverflowError:
        return number(value)


def _smallest_normal(fmt: Float) -> str:
    if not fmt.has_normals:
        return "none: every value is subnormal"
    return f"{number(fmt.smallest_normal)} = {power_of_two(fmt.emin)}"


def _special(fmt: Float) -> str:
    digits = -(-fmt.width_bits // 4)
    infinity = "no infinity" if fmt.infinity_code is None else f"+inf 0x{fmt.infinity_code:0{digits}x}"
    nan = "no NaN" if fmt.nan_code is None else f"NaN 0x{fmt.nan_code:0{digits}x}"
    zero = "-0 and +0" if fmt.has_negative_zero else "one zero" if fmt.zero else "no zero"
    return f"{infinity}, {nan}, {zero}"


def _flushes(fmt: Float) -> str:
    ways = (("subnormal results to 0", fmt.ftz), ("subnormal operands to 0", fmt.daz))
    return " and ".join(said for said, on in ways if on)


def _carrier(fmt: Fixed | Float) -> str:
    return f"{fmt.carrier}, which holds {'raw integers' if fmt.carries_raws else 'every value exactly'}"
