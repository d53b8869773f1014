"""Where a unit may have hardware of its own: on one side of 0, for subnormal results, where digits cancel.

a region                    what hardware has to do there
products of 2 or more       they are shifted by one place, which others are not
3 or more digits cancel     the leading zeros are counted, and shifted out
operand a lowest            the one word without a positive twin
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.exact import FINITE
from emu.formats import Fixed, Float
from emu.testing.hard import last_index
from emu.testing.vectors.cells import cells_of, digits_lost
from emu.testing.vectors.description import NAMES
from emu.testing.vectors.evidence import Evidence, special_codes
from emu.testing.vectors.steps import NO_DIGIT, Mask, leading_of

Integers = NDArray[np.int64]
#: Places apart of two terms, and leading digits that cancel, at most, that have regions of their own.
MOST_APART = 64
#: Names of cells that say nothing about hardware of its own.
_NOT_REGIONS = ("no flag ", "flag ", "the pair ", "the special value ")


@dataclass(frozen=True, eq=False)
class Region:
    """Vectors for which a unit may have hardware of its own, and their name."""

    name: str
    inside: Mask


def regions_of(e: Evidence) -> list[Region]:
    """Return the regions of an operation's vectors, likely ones first; none is empty, none has all vectors."""
    main = [*_of_results(e), *_of_terms(e), *_normalised(e), *_of_operands(e)]
    both = [
        Region(f"{a.name}, {b.name}", a.inside & b.inside)
        for a, b in combinations(main, 2)
        # two regions one of which contains the other make no new region
        if (a.inside & b.inside).any() and (~a.inside & b.inside).any() and (a.inside & ~b.inside).any()
    ]
    regions = [*main, *_ranges(e), *_specials(e), *_of_cells(e), *both]
    kept: dict[bytes, Region] = {}
    for region in regions:
        if region.inside.any() and not region.inside.all():
            kept.setdefault(region.inside.tobytes(), region)
    return list(kept.values())


def _of_results(e: Evidence) -> Iterator[Region]:
    negative = e.exact.negative
    yield Region("negative results", negative)
    yield Region("positive results", ~negative)
    if isinstance(e.format, Float) and e.format.has_subnormal_codes:
        small = e.steps.nonzero & (e.steps.index < e.normal).astype(bool)
        yield Region("subnormal results", small)
        # zeros, infinities and NaN too
        yield Region("results that are not subnormal", ~small)
        # the grid goes on above the largest value; where this ends a binade, the steps are those of the next one
        whole = e.steps.rounded
        binade = 1 << e.format.fraction_bits
        past = e.beyond & (whole <= last_index(e.format) + binade).astype(bool)
        yield Region(f"results up to {binade} steps beyond the range", past)


def _of_terms(e: Evidence) -> Iterator[Region]:
    if not e.terms:
        return
    differs = e.terms[0].negative ^ e.terms[1].negative
    yield Region("terms of unlike signs", differs)
    yield Region("terms of like signs", ~differs)
    first = leading_of(e.terms[0]) < leading_of(e.terms[1])
    yield Region("a second term of larger exponent", first)
    yield Region("a first term of larger or equal exponent", ~first)


def _normalised(e: Evidence) -> Iterator[Region]:
    """Yield the regions of results that are shifted by one place, as others of the operation are not."""
    d, usual = e.description, e.steps.nonzero
    if e.is_product_sum or any(isinstance(fmt, Fixed) for fmt in (e.format, *d.operand_formats)):
        return
    first = [leading_of(part) for part in e.parts]
    match d.operation:
        case "multiply":
            # significands a, b in [1, 2): a * b in [1, 4) has its first digit at the sum of exponents, or one place
            # higher
            high = usual & (e.exact.leading > first[0] + first[1])
            yield Region("products of significands that reach 2", high)
            yield Region("products of significands below 2", usual & ~high)
        case "divide":
            # a / b of such significands lies in (1/2, 2)
            low = usual & (e.exact.leading < first[0] - first[1])
            yield Region("quotients of significands below 1", low)
            yield Region("quotients of significands from 1 on", usual & ~low)
        case "sqrt":
            # an odd exponent is made even before it is halved: the significand is shifted by one place
            odd = usual & (first[0] % 2 == 1)
            yield Region("roots of odd exponents", odd)
            yield Region("roots of even exponents", usual & ~odd)
        case "add" | "subtract" | "fma":
            leads = [leading_of(term) for term in e.terms]
            carries = usual & (e.exact.leading > np.maximum(leads[0], leads[1]))
            yield Region("sums that carry out", carries)
            if d.operation == "fma":
                yield Region("products of significands that reach 2", usual & (leads[0] > first[0] + first[1]))
                # infinities and NaN have the significand 0, too
                numbers = (e.parts[0].kind == FINITE) & (e.parts[1].kind == FINITE)
                yield Region("products of 0", numbers & (leads[0] == NO_DIGIT))
        case _:
            return


def _of_operands(e: Evidence) -> Iterator[Region]:
    for name, fmt, codes in zip(NAMES, e.description.operand_formats, e.vectors.operands, strict=False):
        if codes.ndim > 1:
            continue
        if fmt.signed:
            negative = codes >> np.uint64(fmt.width_bits - 1) != 0
            yield Region(f"negative operands {name}", negative)
            yield Region(f"operands {name} whose sign bit is 0", ~negative)
        if isinstance(fmt, Float):
            magnitude = codes & np.uint64(fmt.sign_code - 1)
            # an exponent field of 0
            small = (magnitude < np.uint64(1 << fmt.fraction_bits)) & (magnitude != 0)
            yield Region(f"subnormal operands {name}", small)
            with np.errstate(invalid="ignore"):
                below = np.abs(fmt.decode(codes)) < 1
            yield Region(f"operands {name} below 1", below)
            # infinities and NaN too
            yield Region(f"operands {name} that are not below 1", ~below)


def _ranges(e: Evidence) -> Iterator[Region]:
    """Yield the regions of results from a power of two on, of digits that cancel, and of terms far apart."""
    lost = digits_lost(e)
    if lost is not None:
        for digits in range(1, min(int(lost.max(initial=0)), MOST_APART) + 1):
            yield Region(f"sums of which {digits} or more leading digits cancel", lost >= digits)
        leads = [leading_of(term) for term in e.terms]
        apart = np.where(e.steps.nonzero, np.abs(leads[0] - leads[1]), 0)
        for k in range(1, min(int(apart.max(initial=0)), MOST_APART) + 1):
            yield Region(f"terms {k} or more places apart", apart >= k)
    # the two terms must be the operands themselves; of an fma one is a product
    if e.description.operation in ("add", "subtract"):
        yield from _anticipated(e)
    if isinstance(e.format, Fixed):
        # exponents of the exact result, from the last place of the format on
        lead = np.where(e.steps.nonzero, e.exact.leading - e.steps.last, -1)
        for k in range(int(lead.max(initial=0)) + 1):
            yield Region(f"results of more than {k} bits", lead >= k)


def _anticipated(e: Evidence) -> Iterator[Region]:
    """Yield where more or fewer leading zeros are anticipated from the operands than their difference has.

    Source: Schmookler & Nowka, Leading zero anticipation and detection (ARITH 2001): with A - B as A + ~B, digit i may
    be the first one if it is not of the pattern T* G Z* (or T* Z G* for a negative difference).
    """
    a, b = (part.as_object() for part in e.parts)
    subtracts = a.negative ^ b.negative ^ (e.description.operation == "subtract")
    rows = np.flatnonzero(subtracts & e.steps.nonzero & (a.significand != 0) & (b.significand != 0))
    few, many = np.zeros(e.results.shape, bool), np.zeros(e.results.shape, bool)
    for row in rows.tolist():
        low = int(min(a.exponent[row], b.exponent[row]))
        x = int(a.significand[row]) << (int(a.exponent[row]) - low)
        y = int(b.significand[row]) << (int(b.exponent[row]) - low)
        x, y = max(x, y), min(x, y)
        if abs(x.bit_length() - y.bit_length()) > 1:  # only near terms lose digits
            continue
        anticipated = _first_digit(x, y, x.bit_length())
        exact = (x - y).bit_length() - 1
        few[row], many[row] = anticipated > exact, anticipated < exact
    lost = digits_lost(e)
    for name, inside in (("few", few), ("many", many)):
        region = f"leading zeros anticipated from the operands as one too {name}"
        yield Region(region, inside)
        if lost is not None:
            for least in (2, 3):
                yield Region(f"{region}, {least} or more digits cancel", inside & (lost >= least))


def _first_digit(x: int, y: int, bits: int) -> int:
    """Return where the first digit of x - y >= 0 is anticipated, from 0 at the last place on."""
    mask = (1 << bits) - 1
    # x - y is x + ~y + 1
    inverted = ~y & mask
    # T, G and Z of the paper: one, both or none of the two digits are 1, so that a carry passes, is made, or stops
    passes, makes, stops = x ^ inverted, x & inverted, ~(x | inverted) & mask
    # for x >= y: a 1 where digits below do not take it away again
    # in front of the first digit counts as T, behind the last one as G: the 1 that is added enters there as a carry
    above = passes >> 1 | 1 << (bits - 1)
    below_stops, below_makes = stops << 1 & mask, (makes << 1 | 1) & mask
    first = above & (makes & ~below_stops | stops & ~below_makes)
    first |= ~above & mask & (stops & ~below_stops | makes & ~below_makes)
    return first.bit_length() - 1


def _specials(e: Evidence) -> Iterator[Region]:
    for name, fmt, codes in zip(NAMES, e.description.operand_formats, e.vectors.operands, strict=False):
        if codes.ndim == 1:
            for value, code in special_codes(fmt).items():
                yield Region(f"operand {name} {value}", codes == np.uint64(code))


def _of_cells(e: Evidence) -> Iterator[Region]:
    for cell in cells_of(e.vectors, e):
        if not cell.name.startswith(_NOT_REGIONS):
            yield Region(f"the cell: {cell.name}", cell.inside)


def stacked(regions: list[Region]) -> NDArray[Any]:
    """Return the masks of regions, (regions, count)."""
    return np.array([region.inside for region in regions])
