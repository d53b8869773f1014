"""What else could have written a code: another rule, another reading of operands, a habit of hardware.

Each hypothesis gives a code for every vector, so that it can be held against all of them, not only the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from emu.datapath import Mac, OutputStage, Rounding
from emu.datapath.order import parse_order
from emu.errors import EmuError
from emu.formats import Fixed, Float, Format
from emu.testing.contract.clauses import rules_of
from emu.testing.contract.finding import KNOWN_ORDERS
from emu.testing.vectors.definition import answer, exact_value, last_place, write_fractions
from emu.testing.vectors.description import Codes, Vectors

Hypothesis = tuple[str, Codes]
#: Points that are misread: one place to either side.
OFF_BY = (1, -1)
#: Rounding modes in the words of hardware.
_MODES = {Rounding.FLOOR: "truncation of two's complement (floor)", Rounding.TOWARD_ZERO: "truncation (toward_zero)"}


def hypotheses(vectors: Vectors) -> Iterator[Hypothesis]:
    """Give what each fault would have written, the likely ones first."""
    yield from _other_rules(vectors)
    yield from _zeros_and_subnormals(vectors)
    yield from _without_sticky(vectors)
    yield from _misread(vectors)
    yield from _other_units(vectors)


def _other_rules(vectors: Vectors) -> Iterator[Hypothesis]:
    d, stage = vectors.description, vectors.description.stage
    for mode in Rounding:
        if mode not in (stage.rounding, Rounding.STOCHASTIC):
            name = _MODES.get(mode, f"rounding {mode.value}")
            yield f"{name} instead of {stage.rounding.value}", _answer(vectors, replace(stage, rounding=mode))
    for rule in rules_of(stage.format):
        if rule is not stage.overflow:
            changed = OutputStage.of(stage.format, stage.rounding, rule, d.n_rbits)
            yield f"overflow rule {rule.value} instead of {stage.overflow.value}", _answer(vectors, changed)


def _answer(vectors: Vectors, stage: OutputStage | None = None, **changes: Any) -> Codes:
    return answer(vectors.description, vectors.operands, vectors.rbits, stage=stage, **changes).codes


def _zeros_and_subnormals(vectors: Vectors) -> Iterator[Hypothesis]:
    fmt = vectors.description.stage.format
    if not isinstance(fmt, Float):
        return
    results = vectors.results
    if fmt.has_negative_zero:
        sign = np.uint64(fmt.sign_code)
        yield "a lost sign of zero", np.where(results == sign, np.uint64(0), results)
        yield "a sign of zero turned", np.where(results & ~sign == 0, results ^ sign, results)
    if not fmt.ftz:
        values = fmt.decode(results)
        tiny = (np.abs(values) < fmt.smallest_normal) & (values != 0)
        signs = np.where(np.signbit(values), np.uint64(fmt.sign_code if fmt.has_negative_zero else 0), np.uint64(0))
        yield "subnormal results flushed to zero", np.where(tiny, signs, results)
        yield "subnormal results flushed to +0", np.where(tiny, np.uint64(0), results)
    flushed = tuple(replace(f, daz=True) if isinstance(f, Float) else f for f in vectors.description.operand_formats)
    if flushed != vectors.description.operand_formats:
        yield "subnormal operands taken as zero", _answer(vectors, formats=flushed)


def _without_sticky(vectors: Vectors) -> Iterator[Hypothesis]:
    """Nothing below the guard bit is looked at: halves look like ties though more follows."""
    d, stage = vectors.description, vectors.description.stage
    fmt = stage.format
    if d.is_stochastic or (d.operation == "matmul" and not d.mac.mac().is_exact) or fmt.carries_raws:
        return
    cut = [exact and _cut(exact, fmt) for exact in (exact_value(d, vectors.operands, i) for i in range(d.count))]
    written, known = write_fractions(stage, cut), np.array([bool(value) for value in cut])
    yield "a dropped sticky bit: nothing below the guard bit was looked at", np.where(known, written, vectors.results)


def _cut(x: Fraction, fmt: Format) -> Fraction:
    """Return x, not 0, toward zero to half a unit in its last place."""
    unit = Fraction(2) ** (last_place(x, fmt) - 1)
    whole = abs(x) / unit
    return (whole.numerator // whole.denominator) * unit * (-1 if x < 0 else 1)


def _misread(vectors: Vectors) -> Iterator[Hypothesis]:
    d = vectors.description
    if len(vectors.operands) > 1 and d.operation != "matmul":
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if j < len(vectors.operands) and d.operand_formats[i].width_bits == d.operand_formats[j].width_bits:
                operands, formats = list(vectors.operands), list(d.operand_formats)
                operands[i], operands[j] = operands[j], operands[i]
                formats[i], formats[j] = formats[j], formats[i]
                found = answer(d, tuple(operands), vectors.rbits, formats=tuple(formats))
                yield f"operands {'abc'[i]} and {'abc'[j]} swapped", found.codes
    fmt = d.stage.format
    if isinstance(fmt, Fixed):
        for off in OFF_BY:
            moved = replace(d.stage, format=replace(fmt, frac_bits=fmt.frac_bits + off))
            side = "left" if off < 0 else "right"
            yield f"a result's binary point one place too far to the {side}", _answer(vectors, moved)
    for i, operand in enumerate(d.operand_formats):
        if isinstance(operand, Fixed):
            for off in OFF_BY:
                formats = list(d.operand_formats)
                formats[i] = replace(operand, frac_bits=operand.frac_bits + off)
                side = "right" if off < 0 else "left"
                yield (
                    f"operand {'abc'[i]} with its binary point one place too far to the {side}",
                    _answer(vectors, formats=tuple(formats)),
                )


def _other_units(vectors: Vectors) -> Iterator[Hypothesis]:
    d = vectors.description
    if d.operation != "matmul":
        return
    unit, mac = d.mac, d.mac.mac()
    if mac.is_exact:
        try:
            yield f"an accumulator of {d.out_format}", _answer(vectors, mac=Mac(accumulator=d.out_format))
        except EmuError:
            return
        return
    for order in KNOWN_ORDERS:
        if parse_order(order) != mac.order:
            yield f"adds in the order {order}", _answer(vectors, mac=unit.model_copy(update={"order": order}).mac())
    for mode in Rounding:
        if mode not in (mac.rounding, Rounding.STOCHASTIC):
            changed = unit.model_copy(update={"rounding": mode.value})
            yield f"adds rounded {mode.value}", _answer(vectors, mac=changed.mac())
    yield "an accumulator that never rounds", _answer(vectors, mac=Mac(product=mac.product))
