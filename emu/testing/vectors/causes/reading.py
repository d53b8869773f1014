"""Faults of wires: operands swapped, binary points misplaced, bytes turned, signs lost, fields of the next cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from emu.backends.reference.exact import Exact
from emu.errors import EmuError
from emu.formats import Fixed, Float, Format
from emu.formats.fixed import FRAC_BITS_LIMIT
from emu.testing.hard import negated
from emu.testing.vectors.causes.hypothesis import Hypothesis, is_long, like, of_neighbouring_cycles, restaged
from emu.testing.vectors.definition import answer
from emu.testing.vectors.description import NAMES, Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import exact_results, steps_of

#: Fraction bits by which a binary point is mistaken, and its words.
OFF_BY = {1: "one place", -1: "one place", 2: "two places", -2: "two places"}


#: Low bits of an operand that may be left out, at most.
MOST_LOW_BITS = 24


def swapped_operands(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of operands in another order."""
    d, operands = e.description, e.vectors.operands
    if len(operands) < 2 or e.is_product_sum:
        return
    for i, j in ((0, 1), (0, 2), (1, 2)):
        # words of other widths do not fit each other's wires
        if j < len(operands) and d.operand_formats[i].width_bits == d.operand_formats[j].width_bits:
            codes, formats = list(operands), list(d.operand_formats)
            codes[i], codes[j] = codes[j], codes[i]
            formats[i], formats[j] = formats[j], formats[i]
            swapped = e.answered(operands=tuple(codes), formats=tuple(formats))
            yield f"operands {NAMES[i]} and {NAMES[j]} swapped", swapped


def binary_points(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a binary point some places off in a result or an operand.

    A code written with a fraction bit too many is twice the value in the true format: its point is too far right. A
    code read with one too many is half the value: too far left.
    """
    fmt = e.format
    if isinstance(fmt, Fixed):
        for off, places in OFF_BY.items():
            side = "left" if off < 0 else "right"
            yield from _tried(
                f"a result's binary point {places} too far to the {side}",
                partial(_with_point, e, fmt.frac_bits + off),
            )
    for i, operand in enumerate(e.description.operand_formats):
        if not isinstance(operand, Fixed):
            continue
        points = {
            f"with its binary point {places} too far to the {'right' if off < 0 else 'left'}": operand.frac_bits + off
            for off, places in OFF_BY.items()
            # each point is a whole computation: of long sums only the likeliest are tried
            if abs(off) == 1 or not is_long(e)
        }
        if not is_long(e):
            points |= {"read as an integer": 0, "read as a fraction below 1": operand.width_bits - operand.signed}
        for name, frac_bits in points.items():
            if frac_bits != operand.frac_bits and abs(frac_bits) <= FRAC_BITS_LIMIT:
                yield from _reread(e, f"operand {NAMES[i]} {name}", i, replace(operand, frac_bits=frac_bits))


def signs(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of signs that are ignored or misread."""
    d, fmt, results = e.description, e.format, e.results
    for i, operand in enumerate(d.operand_formats):
        name = f"operand {NAMES[i]}"
        if isinstance(operand, Fixed):
            kind = "unsigned" if operand.signed else "signed"
            read = replace(operand, signed=not operand.signed, sign_magnitude=False)
            yield from _reread(e, f"{name} read as {kind}", i, read)
            if operand.sign_magnitude:
                read = replace(operand, sign_magnitude=False)
                yield from _reread(e, f"{name} read as two's complement", i, read)
            continue
        if operand.signed and not e.is_product_sum:
            operands = list(e.vectors.operands)
            operands[i] = operands[i] & ~np.uint64(operand.sign_code)
            yield from _tried(f"the sign of {name} ignored", partial(e.answered, operands=tuple(operands)))
    if fmt.signed and isinstance(fmt, Float) and not e.is_product_sum:
        sign, rest = np.uint64(fmt.sign_code), np.uint64(fmt.sign_code - 1)
        for i, operand in enumerate(d.operand_formats):
            if operand.signed:
                own = e.vectors.operands[i] >> np.uint64(operand.width_bits - 1) != 0
                moved = np.where(own, results | sign, results & rest)
                # signs of zeros, infinities and NaN have families of their own
                others = ~e.steps.finite | e.is_zero
                yield f"results have the sign of operand {NAMES[i]}", np.where(others, results, moved)
    if fmt.signed:
        turned = negated(fmt, results)
        yield "results of the other sign", np.where(e.is_nan, results, turned)
        if isinstance(fmt, Float):
            positive = np.where(e.is_nan, results, results & ~np.uint64(fmt.sign_code))
            yield "results without their sign", positive


def exponents(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of results whose exponent is one too high or too low."""
    fmt = e.format
    if not isinstance(fmt, Float):
        return
    magnitude = e.results & np.uint64(fmt.sign_code - 1)
    one = np.uint64(1 << fmt.fraction_bits)
    # subnormal numbers share the exponent of field 1, and special codes have none: one step of the field is no factor
    # of 2
    normal = (magnitude >= one) & (magnitude <= np.uint64(fmt.max_code))
    yield "results of twice their value", np.where(normal, e.results + one, e.results)
    yield "results of half their value", np.where(normal, e.results - one, e.results)


def turned_codes(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of results and operands whose bytes, digits or bits are in the other order."""
    width = e.format.width_bits
    for name, size in (("bytes", 8), ("hexadecimal digits", 4), ("bits", 1), ("16-bit halves", 16)):
        if width % size == 0 and width > size:
            yield f"results with their {name} in the other order", _turned(e.results, width, size)
    for i, fmt in enumerate(e.description.operand_formats if not is_long(e) else ()):
        for name, size in (("bytes", 8), ("bits", 1)):
            if fmt.width_bits % size == 0 and fmt.width_bits > size:
                operands = list(e.vectors.operands)
                operands[i] = _turned(operands[i], fmt.width_bits, size)
                yield from _tried(
                    f"operand {NAMES[i]} with its {name} in the other order",
                    partial(e.answered, operands=tuple(operands)),
                )


def _turned(codes: Codes, width: int, size: int) -> Codes:
    mask, turned = np.uint64((1 << size) - 1), np.zeros_like(codes)
    for low in range(0, width, size):
        # the group at `low` goes to the mirrored place
        turned |= (codes >> np.uint64(low) & mask) << np.uint64(width - size - low)
    return turned


def lost_bits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of operands whose lowest or highest bit is not connected."""
    if is_long(e):
        return
    for i, fmt in enumerate(e.description.operand_formats):
        for name, bit in (("lowest", 0), ("second lowest", 1), ("highest", fmt.width_bits - 1 - fmt.signed)):
            if fmt.width_bits > 2:
                operands = list(e.vectors.operands)
                operands[i] = operands[i] & ~np.uint64(1 << bit)
                yield from _tried(
                    f"the {name} bit of operand {NAMES[i]} not connected",
                    partial(e.answered, operands=tuple(operands)),
                )


def low_bits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of operands of which some low bits are not looked at, or whose lowest word is misread."""
    if is_long(e):
        return
    for i, fmt in enumerate(e.description.operand_formats):
        for bits in range(2, min(fmt.width_bits // 2, MOST_LOW_BITS) + 1):
            operands = list(e.vectors.operands)
            low = np.uint64((1 << bits) - 1)
            # a NaN without its low bits may be an infinity
            finite = np.isfinite(fmt.decode(operands[i]).astype(np.float64))
            operands[i] = np.where(finite, operands[i] & ~low, operands[i])
            name = f"the {bits} lowest bits of operand {NAMES[i]} not looked at"
            yield from _tried(name, partial(e.answered, operands=tuple(operands)))
        if isinstance(fmt, Fixed) and fmt.signed:
            lowest = np.uint64(1 << (fmt.width_bits - 1))
            for name, code in (("0", 0), ("the largest number", fmt.max_raw)):
                operands = list(e.vectors.operands)
                operands[i] = np.where(operands[i] == lowest, np.uint64(code), operands[i])
                text = f"the lowest number of operand {NAMES[i]} taken for {name}"
                yield from _tried(text, partial(e.answered, operands=tuple(operands)))


def stuck_bits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of results with a bit that is always 0 or always 1."""
    for bit in range(e.format.width_bits):
        mask = np.uint64(1 << bit)
        yield f"bit {bit} stuck at 0", e.results & ~mask
        yield f"bit {bit} stuck at 1", e.results | mask


def random_bits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of stochastic rounding whose random bits are connected otherwise."""
    d, rbits = e.description, e.vectors.rbits
    if rbits is None:
        return
    mask = np.uint64((1 << d.n_rbits) - 1)
    changed = [
        ("one place too low", rbits >> np.uint64(1)),
        ("one place too high", (rbits << np.uint64(1)) & mask),
        ("in the other order", _turned(rbits, d.n_rbits, 1)),
        ("inverted", ~rbits & mask),
        ("always 0", np.zeros_like(rbits)),
        *((f"those of the cycle {when}", moved) for when, moved in of_neighbouring_cycles(rbits)),
    ]
    for name, bits in changed:
        yield f"random bits {name}", answer(d, e.vectors.operands, bits).codes


def neighbouring_cycles(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a field of the result, or of an operand, that belongs to the cycle before or after."""
    fmt, results = e.format, e.results
    if results.size < 3:
        return
    fields: dict[str, int] = {}
    if isinstance(fmt, Float):
        fraction = (1 << fmt.fraction_bits) - 1
        fields = {"fraction": fraction, "exponent": (fmt.sign_code - 1) & ~fraction}
        if fmt.signed:
            fields["sign"] = fmt.sign_code
    elif fmt.signed:
        fields["sign"] = 1 << (fmt.width_bits - 1)
    for when, other in of_neighbouring_cycles(results):
        for name, mask in fields.items():
            bits = np.uint64(mask)
            yield f"the {name} is that of the cycle {when}", (results & ~bits) | (other & bits)
    if len(e.vectors.operands) < 2:
        return
    for i in range(len(e.vectors.operands)):
        for when, moved in of_neighbouring_cycles(e.vectors.operands[i]):
            operands = list(e.vectors.operands)
            operands[i] = moved
            yield f"operand {NAMES[i]} is that of the cycle {when}", e.answered(operands=tuple(operands))


def sign_and_magnitude(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of fixed-point words in sign and magnitude, truncated, that wrap or saturate."""
    d, fmt = e.description, e.format
    formats = d.operand_formats
    if e.is_product_sum or not isinstance(fmt, Fixed) or not fmt.signed or fmt.sign_magnitude:
        return
    if not all(isinstance(f, Fixed) and f.signed and not f.sign_magnitude for f in formats):
        return
    parts = [_of_magnitude(f, codes) for f, codes in zip(formats, e.vectors.operands, strict=True)]
    try:
        exact = exact_results(d, parts, d.stage)
    except (EmuError, ZeroDivisionError):  # pragma: no cover - an operation without such operands
        return
    steps = steps_of(exact, d.stage, e.vectors.rbits)
    top, sign = fmt.max_raw, np.uint64(1 << (fmt.width_bits - 1))
    rounded = steps.magnitude
    for rounding, magnitude in (("truncated", steps.kept), ("rounded", rounded)):
        for bound, inside in (("wrap", magnitude & top), ("saturate", np.minimum(magnitude, top))):
            nonzero = (inside != 0).astype(bool)
            # units differ in what becomes of a negative word whose magnitude is 0 after truncation
            for zero, keeps in (("", True), (", without -0", nonzero), (", -0 where the sum is not 0", steps.nonzero)):
                negative = exact.negative & keeps
                codes = inside.astype(np.uint64) | np.where(negative, sign, np.uint64(0))
                yield f"words in sign and magnitude, {rounding}, that {bound}{zero}", codes


def _of_magnitude(fmt: Format, codes: Codes) -> Exact:
    top = (1 << (fmt.width_bits - 1)) - 1
    magnitude = (codes & np.uint64(top)).astype(object)
    negative = codes >> np.uint64(fmt.width_bits - 1) != 0
    assert isinstance(fmt, Fixed)
    part = Exact.from_integers(np.where(negative, -magnitude, magnitude), -fmt.frac_bits)
    # `from_integers` knows no -0, which a word of sign and magnitude has
    return replace(part, negative=negative)


def other_operations(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of an operation with a wrong sign."""
    d = e.description
    if d.operation in ("add", "subtract"):
        other = "subtract" if d.operation == "add" else "add"
        confused = answer(like(d, operation=other), e.vectors.operands, e.vectors.rbits)
        yield f"{other} instead of {d.operation}", confused.codes
    if len(e.vectors.operands) < len(NAMES):  # no addend
        return
    *factors, c = e.vectors.operands
    yield (
        "an addend subtracted instead of added",
        e.answered(operands=(*factors, negated(d.operand_formats[-1], c))),
    )
    if d.operation == "fma":
        yield "the addend left out", e.answered(operands=(*factors, np.zeros_like(c)))


def _reread(e: Evidence, name: str, operand: int, fmt: Format) -> Iterator[Hypothesis]:
    """Yield the codes of an operand read in another format."""
    formats = list(e.description.operand_formats)
    formats[operand] = fmt
    yield from _tried(name, partial(e.answered, formats=tuple(formats)))


def _with_point(e: Evidence, frac_bits: int) -> Codes:
    """Return codes of a result with another binary point."""
    stage = e.description.stage
    assert isinstance(stage.format, Fixed)
    return restaged(e, replace(stage, format=replace(stage.format, frac_bits=frac_bits)))


def _tried(name: str, codes: Callable[[], Codes]) -> Iterator[Hypothesis]:
    """Yield a hypothesis, unless there is no such format."""
    try:
        yield name, codes()
    except EmuError:
        return
