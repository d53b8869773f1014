"""What else could have written a code: another rule, another reading of operands, a habit of hardware.

Each hypothesis gives a code for every vector, so that it can be compared with all of them, not only with the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emu.datapath import OutputStage, Rounding
from emu.datapath.order import parse_order
from emu.errors import EmuError
from emu.formats import Fixed, Float, Format, parse
from emu.testing.contract.clauses import rules_of
from emu.testing.contract.finding import KNOWN_ORDERS
from emu.testing.hard import negated
from emu.testing.vectors.definition import answer, answer_without_sticky
from emu.testing.vectors.description import NAMES, Codes, Description, MacTable, Vectors

Hypothesis = tuple[str, Codes]
#: Fraction bits by which a binary point is mistaken: one place to either side.
OFF_BY = (1, -1)
#: Bits by which an accumulator is too wide or too narrow.
OFF_BY_BITS = (-1, -2, 1, 2)
#: Formats that a result may pass through on its way to a narrower one.
WIDER = ("fp32", "fp16", "bf16")
#: Rounding modes in the words of hardware.
_MODES = {Rounding.FLOOR: "truncation of two's complement (floor)", Rounding.TOWARD_ZERO: "truncation (toward_zero)"}


def hypotheses(vectors: Vectors, modes: Sequence[Rounding] = tuple(Rounding)) -> Iterator[Hypothesis]:
    """Yield what each fault would have written, likely faults first; a unit may have rounded in one of `modes`."""
    yield from _other_rules(vectors, modes)
    yield from _zeros_and_subnormals(vectors)
    yield from _without_sticky(vectors)
    yield from _misread(vectors)
    yield from _other_operations(vectors)
    yield from _rounded_twice(vectors)
    yield from _other_units(vectors, modes)


#: Faults of one kind, by the beginnings of their names.
_KINDS = {
    "another rounding of results": ("rounding ", "truncation "),
    "another overflow rule of results": ("overflow rule ",),
    "another rounding of adds": ("adds rounded ",),
    "another order of adds": ("adds in the order ",),
    "another overflow rule of the unit": ("an accumulator with ", "products with "),
    "another width of the accumulator": ("an accumulator of ",),
}


def unseen(vectors: Vectors) -> list[str]:
    """Return the faults that would have written these results, too: a dump that has one is right here.

    Of a kind of which several are not seen, how many. Some change nothing whatever the operands are, as another
    rounding of sums that are never rounded.
    """
    seen = {name: not np.array_equal(codes, vectors.results) for name, codes in hypotheses(vectors)}
    lines: list[str] = []
    for kind, beginnings in _KINDS.items():
        members = [name for name in seen if name.startswith(beginnings)]
        hidden = [name for name in members if not seen[name]]
        if len(hidden) > 1:
            lines.append(kind if len(hidden) == len(members) else f"{kind} ({len(hidden)} of {len(members)})")
            for name in hidden:
                del seen[name]
    return lines + [name for name, is_seen in seen.items() if not is_seen]


def _other_rules(vectors: Vectors, modes: Sequence[Rounding]) -> Iterator[Hypothesis]:
    d, stage = vectors.description, vectors.description.stage
    for mode in sorted(modes, key=lambda mode: mode not in _MODES):  # truncation first: hardware's most likely fault
        if mode is not stage.rounding and not mode.draws:
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
    flushed = tuple(_flushed(f) for f in vectors.description.operand_formats)
    if flushed != vectors.description.operand_formats:
        yield "subnormal operands taken as zero", _answer(vectors, formats=flushed)


def _flushed(fmt: Format) -> Format:
    """Return an operand's format with `daz`, if a format may have it: it needs a zero and normal values."""
    return replace(fmt, daz=True) if isinstance(fmt, Float) and fmt.zero and fmt.has_normals else fmt


def _without_sticky(vectors: Vectors) -> Iterator[Hypothesis]:
    """Yield the codes of a unit that looks at nothing below the guard bit: numbers above a half then round as ties."""
    d = vectors.description
    # the guard bit is the result's: an integer is rounded elsewhere, and sums of a unit that is not exact before it
    if d.is_stochastic or d.operation == "round_to_integral":
        return
    if d.operation == "matmul" and not d.mac.mac().is_exact:
        return
    yield "a dropped sticky bit: nothing below the guard bit was looked at", answer_without_sticky(d, vectors.operands)


def _misread(vectors: Vectors) -> Iterator[Hypothesis]:
    """Yield the codes of operands in another order, and of a binary point one place off in a result or an operand.

    A code written with a fraction bit too many is twice the value in the true format: its point is too far right. A
    code read with one too many is half the value: too far left.
    """
    d = vectors.description
    if len(vectors.operands) > 1 and d.operation != "matmul":
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if j < len(vectors.operands) and d.operand_formats[i].width_bits == d.operand_formats[j].width_bits:
                operands, formats = list(vectors.operands), list(d.operand_formats)
                operands[i], operands[j] = operands[j], operands[i]
                formats[i], formats[j] = formats[j], formats[i]
                swapped = answer(d, tuple(operands), vectors.rbits, formats=tuple(formats))
                yield f"operands {NAMES[i]} and {NAMES[j]} swapped", swapped.codes
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
                    f"operand {NAMES[i]} with its binary point one place too far to the {side}",
                    _answer(vectors, formats=tuple(formats)),
                )


def _other_operations(vectors: Vectors) -> Iterator[Hypothesis]:
    """Yield the codes of wrong signs, and of a product rounded before the sum."""
    d = vectors.description
    if d.operation in ("add", "subtract"):
        other = "subtract" if d.operation == "add" else "add"
        confused = answer(_like(d, operation=other), vectors.operands, vectors.rbits)
        yield f"{other} instead of {d.operation}", confused.codes
    if len(vectors.operands) < len(NAMES):  # no addend
        return
    *factors, c = vectors.operands
    subtracted = answer(d, (*factors, negated(d.operand_formats[-1], c)), vectors.rbits)
    yield "an addend subtracted instead of added", subtracted.codes
    if d.operation == "fma" and not d.is_stochastic:
        product = _like(d, operation="multiply", formats=d.formats[:2])
        rounded = answer(product, tuple(factors), None).codes
        total = _like(d, operation="add", formats=(d.out_format, d.formats[2]))
        yield "a product rounded before the sum (not fused)", answer(total, (rounded, c), None).codes


def _rounded_twice(vectors: Vectors) -> Iterator[Hypothesis]:
    d, fmt = vectors.description, vectors.description.stage.format
    if d.is_stochastic or not isinstance(fmt, Float):
        return
    for name in WIDER:
        wider = parse(name)
        assert isinstance(wider, Float)
        # a single operand that has the wider format already is not rounded by a pass through it
        if wider.fraction_bits > fmt.fraction_bits and wider.width_bits > fmt.width_bits and d.formats != (name,):
            first = _answer(vectors, OutputStage.of(wider, d.stage.rounding))
            narrowing = _like(d, operation="quantize", formats=(name,), depth=1, mac={})
            yield f"results rounded twice, to {name} first", answer(narrowing, (first,), None).codes


def _like(description: Description, **changes: Any) -> Description:
    return Description.model_validate({**description.model_dump(), **changes})


def _other_units(vectors: Vectors, modes: Sequence[Rounding]) -> Iterator[Hypothesis]:
    if vectors.description.operation != "matmul":
        return
    unit = MacTable.of(vectors.description.mac.mac())  # with all defaults in words, which a change then leaves alone
    for name, changes in _changed_units(vectors.description, modes):
        try:
            mac = unit.model_copy(update=changes).mac()
            codes = _answer(vectors, mac=mac)
        except EmuError:  # such a unit cannot be
            continue
        yield name, codes


def _changed_units(description: Description, modes: Sequence[Rounding]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield units unlike the one described: other orders, roundings, overflow rules, formats of products and sums."""
    mac, written = description.mac.mac(), str(description.stage.format)
    if mac.accumulator == "exact":
        yield f"an accumulator of {written}", {"accumulator": written}
    if mac.product == "exact":
        for name in sorted({str(mac.accumulator), written} - {"exact"}):
            yield f"products rounded to {name}", {"product": name}
    else:
        yield "products that are never rounded", {"product": "exact"}
    if mac.is_exact:
        return
    part, fmt = ("an accumulator", mac.accumulator) if mac.accumulator != "exact" else ("products", mac.product)
    if fmt != "exact":
        own_rule = mac.stage_of(fmt).overflow
        for rule in rules_of(fmt):
            if rule is not own_rule:
                yield f"{part} with overflow rule {rule.value}", {"overflow": rule.value}
    yield "an accumulator that never rounds", {"accumulator": "exact"}
    for order in KNOWN_ORDERS:
        if parse_order(order) != mac.order:
            yield f"adds in the order {order}", {"order": order}
    for mode in modes:
        if mode is not mac.rounding and not mode.draws:
            yield f"adds rounded {mode.value}", {"rounding": mode.value}
    if isinstance(mac.accumulator, Fixed):
        prefix, frac_bits = "" if mac.accumulator.signed else "u", mac.accumulator.frac_bits
        for bits in OFF_BY_BITS:
            name = f"{prefix}fix{mac.accumulator.width_bits + bits}f{frac_bits}"
            yield f"an accumulator of {name} instead of {mac.accumulator}", {"accumulator": name}
