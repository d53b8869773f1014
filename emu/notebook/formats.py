"""Formats: their bits, range, steps and special codes. Values: their elements with their codes."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from emu.backends.arrays import on_host
from emu.datapath.format_facts import facts_in_short, fields_of, scaled_facts
from emu.formats import DynamicFixed, Fixed, Float, Format, Scaled, ScaledValue, Value
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
from emu.report.words import integer

#: Pixels of a bit, height and margin; and most elements of a value that are listed.
_BIT, _HEIGHT, _MARGIN, MOST_ELEMENTS = 14, 20, 4, 16
#: Colours of fields by their letters.
_COLOURS = {"s": ORANGE, "i": BLUE, "x": BLUE, "e": BLUE, "f": GREEN}


@picture.register
def _(fmt: Fixed) -> Html:
    # A point outside of the word, as in fix8f12 or fix8f-2, cannot be drawn in it.
    point = fmt.width_bits - fmt.frac_bits if 0 <= fmt.frac_bits <= fmt.width_bits else None
    return column(title("fixed point", str(fmt)), _bits(fmt, point), facts(facts_in_short(fmt).items()))


@picture.register
def _(fmt: DynamicFixed) -> Html:
    text = "The point is open: it is chosen while the machine runs. `at(frac_bits)` puts it in place."
    return column(title("fixed point, point open", str(fmt)), _bits(fmt, None), sentence(text))


@picture.register
def _(fmt: Float) -> Html:
    return column(title("floating point", str(fmt)), _bits(fmt, None), facts(facts_in_short(fmt).items()))


@picture.register
def _(fmt: Scaled) -> Html:
    return column(title("elements that share scales", str(fmt)), facts(scaled_facts(fmt).items()))


@picture.register
def _(value: ScaledValue) -> Html:
    levels = zip(value.format.levels, value.scales, strict=True)
    shapes = {f"scales of each {level.tiling}": f"{level.scale}, {scales.shape}" for level, scales in levels}
    shown = {"blocks along axis": str(value.axis)} | shapes
    if value.zero is not None:
        shown["zero points"] = f"int32, {value.zero.shape}"
    return column(
        title("scaled value", f"{value.format}, shape {value.shape}"),
        facts(shown.items()),
        element("pre", np.array2string(np.asarray(value), separator=", ", threshold=MOST_ELEMENTS)),
    )


@picture.register
def _(value: Value) -> Html:
    array: Any = on_host(value.array)
    # What is kept as it was given, such as a list, has no shape to show.
    if getattr(array, "ndim", None) is None:
        return element("pre", repr(value))
    name = "no format" if value.format is None else str(value.format)
    shape = f"shape {array.shape}, {array.dtype}"
    # At most MOST_ELEMENTS rows; the rest is counted.
    header, rows = _elements(array, value.format)
    rest = array.size - len(rows)
    more = sentence(f"and {integer(rest)} more") if rest else None
    return column(title("value in", name), sentence(shape), numbers(header, rows), more)


def _elements(array: Any, fmt: Any) -> tuple[list[str], list[list[str]]]:
    """Return the first elements as rows: index, number, and bits if there is a format."""
    # Only these elements are read and encoded: a value may have millions.
    indices = list(islice(np.ndindex(array.shape), MOST_ELEMENTS))
    first = np.array([array[index] for index in indices], array.dtype)
    rows = [[", ".join(map(str, index)), str(element)] for index, element in zip(indices, first.tolist(), strict=True)]
    if fmt is None:
        return ["index", "number"], rows
    codes: list[int] = fmt.encode(first).tolist() if indices else []
    return ["index", "number", "bits"], [
        [*row, f"{code:0{fmt.width_bits}b}"] for row, code in zip(rows, codes, strict=True)
    ]


def _bits(fmt: Format | DynamicFixed, point: int | None) -> Html:
    """Return a drawing of a format's word, bit by bit, the highest first.

    Args:
        fmt: the format.
        point: number of bits before the binary point; None draws no point.
    """
    fields = fields_of(fmt)
    shapes: list[Html] = []
    x = float(_MARGIN)
    for field in fields:
        for _ in range(field.bits):
            shapes += [
                box(x, _MARGIN, _BIT, _HEIGHT, _COLOURS[field.letter]),
                text(x + _BIT / 2, _MARGIN + 14, field.letter),
            ]
            x += _BIT
    if point is not None:
        at = _MARGIN + _BIT * point
        shapes.append(path(f"M{at} {_MARGIN - 3}V{_MARGIN + _HEIGHT + 5}"))
    fields_text = ", ".join(f"{field.bits} {field.name}" for field in fields if field.bits)
    shapes.append(
        text(_MARGIN, _MARGIN + _HEIGHT + 16, fields_text + (" | point" if point is not None else ""), anchor="start")
    )
    # The caption may be longer than the word: 7.4 pixels for a character, and 8 characters for " | point".
    width = max(x + _MARGIN, _MARGIN + 7.4 * (len(fields_text) + 8))
    return svg(width, _HEIGHT + 26, f"word of {fields_text} bits", *shapes)
