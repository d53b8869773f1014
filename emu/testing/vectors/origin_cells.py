"""Cells of zeros, infinities and NaN, by what made them; some are made by few operands, and want no more vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.backends.reference.exact import FINITE, to_common_exponent
from emu.formats import Fixed, Float
from emu.testing.vectors.cell import WANTED, Cell
from emu.testing.vectors.description import Description
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask


def origin_cells(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of zeros, infinities and NaN, by what made them."""
    exist = _few_that_exist(e.description)
    for name, inside in e.zeros.items():
        if isinstance(e.format, Fixed) or not e.format.has_negative_zero or not e.parts:
            yield Cell(f"zero: {name}", inside, exist.get(name, WANTED))
            continue
        # the sign of x - x is the mode's, so both signs of x are tried
        negative = e.parts[-1].negative if name == "x - x" else e.exact.negative
        # the pairs of special values tell the signs of both zeros apart
        if name == "a sum of zeros":
            yield Cell(f"zero: {name}", inside, exist.get(name, WANTED))
        elif name == "a product of zero, and zero":
            product = e.parts[0].negative ^ e.parts[1].negative
            for sign, mask in (("+0", ~product), ("-0", product)):
                for addend, other in (("+0", ~e.parts[2].negative), ("-0", e.parts[2].negative)):
                    yield Cell(f"zero: a product of {sign} and {addend}", inside & mask & other)
        else:
            wanted = 1 if name in exist else WANTED
            yield Cell(f"zero: {name}, positive", inside & ~negative, wanted)
            yield Cell(f"zero: {name}, negative", inside & negative, wanted)
    if all_fixed(e.description) and e.description.operation not in ("divide", "sqrt", "remainder"):
        return
    for name, inside in e.invalids.items():
        if wanted := exist.get(name, WANTED):
            yield Cell(f"no number: {name}", inside, wanted)
    for name, inside in e.infinities.items():
        if name != "a number beyond the range":
            yield Cell(f"infinity: {name}", inside, exist.get(name, WANTED))
    if e.description.operation == "remainder":
        yield from _halfway(e)
    if e.description.operation == "fma":
        yield from _zero_beside_small(e)


def _few_that_exist(d: Description) -> dict[str, int]:
    """Return how many vectors there are of zeros, infinities and NaN that are made of few operands, by origin."""
    if any(isinstance(fmt, Float) and fmt.daz for fmt in d.operand_formats):  # which has many zeros
        return {}
    zeros = [1 + (isinstance(fmt, Float) and fmt.has_negative_zero) for fmt in d.operand_formats]
    infinities = [
        0 if isinstance(fmt, Fixed) or fmt.infinity_code is None else 1 + fmt.signed for fmt in d.operand_formats
    ]
    few: dict[str, int] = {}
    if len(zeros) == 1:
        # a root has one infinite operand: of -infinity it is no number
        few = {"a zero operand": zeros[0], "an infinite operand": 1 if d.operation == "sqrt" else infinities[0]}
    elif d.operation in ("add", "subtract"):
        # of the pairs of infinities, those whose terms differ in sign: half
        few = {"a sum of zeros": zeros[0] * zeros[1], "infinity - infinity": infinities[0] * infinities[1] // 2}
    elif d.operation == "divide":
        few = {"0 / 0": zeros[0] * zeros[1], "infinity / infinity": infinities[0] * infinities[1]}
    elif d.operation == "multiply":
        few = {"zero times infinity": zeros[0] * infinities[1] + infinities[0] * zeros[1]}
    return {name: min(count, WANTED) for name, count in few.items()}


def _zero_beside_small(e: Evidence) -> Iterator[Cell]:
    """Yield the cell of products of 0 and a large factor, whose exponent must not shift a small addend away."""
    if not all(isinstance(fmt, Float) for fmt in e.description.operand_formats):
        return
    a, b, c = e.parts
    zero = [((part.significand == 0) & (part.kind == FINITE)).astype(bool) for part in e.parts]
    largest = [fmt.emax for fmt in e.description.operand_formats if isinstance(fmt, Float)]
    large = np.where(zero[0], b.leading >= largest[1] - 1, a.leading >= largest[0] - 1)
    small = c.leading < c.leading.min(where=~zero[2], initial=0) + 2  # about the smallest number that there is
    inside = (zero[0] ^ zero[1]) & ~zero[2] & (e.exact.kind == FINITE) & large & small
    yield Cell("a product of zero by a large factor, and a small addend", inside)


def _halfway(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of a quotient halfway between two whole numbers, of which the even one is taken."""
    (rest, divisor), _ = to_common_exponent([e.exact, e.parts[1]])
    half = e.steps.nonzero & (2 * np.abs(rest.astype(object)) == np.abs(divisor.astype(object))).astype(bool)
    yield from signed(e, "a quotient halfway between two whole numbers", half)


def all_fixed(d: Description) -> bool:
    """Return whether every operand is a fixed-point number."""
    return all(isinstance(fmt, Fixed) for fmt in d.operand_formats)


def signed(e: Evidence, name: str, inside: Mask) -> Iterator[Cell]:
    """Yield a cell for either sign of the exact result, if there are both."""
    for sign, mask in (("", ~e.exact.negative), ("-", e.exact.negative)):
        if not sign or (e.format.signed and e.description.operation != "sqrt"):
            yield Cell(f"{name}, {'negative' if sign else 'positive'}", inside & mask)
