"""Sums whose terms are aligned otherwise: smaller ones lose digits, or are shifted by another count.

1.0110          the largest term
0.0001 011      a term five places lower: what lies behind the last column is cut, or its shift of 5 taken as 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import encode_stage
from emu.backends.reference import arithmetic
from emu.backends.reference.exact import FINITE, Exact
from emu.datapath import Rounding
from emu.formats import Fixed, Float, Format
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.causes.rounding import rewritten_rows, rounds_here
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import NO_DIGIT, leading_of, operand_parts

Array = NDArray[Any]
Integers = NDArray[np.int64]
#: Digits that an adder keeps behind the last place of its larger operand, at most.
GUARD_DIGITS = (0, 1, 2, 3, 4)
#: Terms of a sum, at most, whose alignment is looked at.
MOST_TERMS = 16
#: Bits of a shift's count, of which the higher ones may not be connected.
COUNT_BITS = range(2, 8)
#: What becomes of digits behind the last column.
LOST = ("cut", "cut toward minus infinity", "jammed into one sticky bit", "a sticky bit that only adds")


@dataclass(frozen=True)
class Sum:
    """Terms that are added, over a common exponent.

    Attributes:
        raws: signed digits of each term, (count,) of Python integers.
        lowest: their exponent.
        leads: exponent of each term's first digit; of 0 `NO_DIGIT`.
        fields: exponent of each term as hardware adds it, of 0 too; of a product the sum of its factors' exponents.
        tails: exponent of each vector's last digit.
    """

    raws: list[Array]
    lowest: int
    leads: list[Integers]
    fields: list[Integers]
    tails: Integers


def cut_alignment(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of sums whose smaller terms lose digits when they are aligned to the largest one."""
    terms = _sum_of(e)
    if terms is None or not rounds_here(e):
        return
    yield from _cut_below(e, terms, np.max(terms.leads, axis=0), "")


def cut_below_exponents(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of sums of products that are aligned to the largest sum of exponents, not to a first digit."""
    terms = _sum_of(e)
    if terms is None or not rounds_here(e) or e.description.operation not in ("fma", "matmul"):
        return
    pairs = zip(terms.leads, terms.fields, strict=True)
    nonzero = [np.where(lead > NO_DIGIT, field, NO_DIGIT) for lead, field in pairs]
    yield from _cut_below(e, terms, np.max(nonzero, axis=0), " below the largest exponent")
    among_all = " below the largest exponent, which a product of 0 has, too"
    yield from _cut_below(e, terms, np.max(terms.fields, axis=0), among_all)


def _cut_below(e: Evidence, terms: Sum, lead: Integers, whence: str) -> Iterator[Hypothesis]:
    precision = e.format.significand_bits if isinstance(e.format, Float) else e.format.width_bits
    # adders of the result's digits with guard digits, of a product's digits, and of an fma, whose addend may stand on
    # either side of the product
    widths = sorted({precision + k for k in GUARD_DIGITS} | {2 * precision + k for k in range(-2, 7)}
                    | {3 * precision + k for k in range(6)})  # fmt: skip
    for how in LOST:
        for width in widths:
            # the last column is lead - (width - 1): digits are lost only where some term ends below it
            rows = np.flatnonzero((lead - terms.tails >= width) & (e.exact.kind == FINITE))
            if rows.size:
                name = f"terms aligned to {width} digits{whence}, the others {how}"
                yield name, _summed(e, terms, rows, _cut(terms, rows, lead[rows] - (width - 1), how))


def other_shifts(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of sums whose smaller terms are shifted by another count, or left out if they are far below."""
    terms = _sum_of(e)
    if terms is None or not rounds_here(e):
        return
    # the count by which hardware shifts each term to the right: by exponent fields, before it knows first digits
    top = np.max(terms.fields, axis=0)
    counts = [top - field for field in terms.fields]
    farthest = int(max(count.max() for count in counts))
    finite = e.exact.kind == FINITE
    for bits in COUNT_BITS:
        # what is cut off a count of that many bits
        lost = [count >> bits << bits for count in counts]
        rows = np.flatnonzero(np.any(lost, axis=0) & finite)
        if rows.size:
            # a term that is shifted by `more` places too few is 2**more times too large
            moved = [raw[rows] << more[rows].astype(object) for raw, more in zip(terms.raws, lost, strict=True)]
            yield f"alignment shifts taken modulo {1 << bits}", _summed(e, terms, rows, (_total(moved), None))
    # an aligner may stop at the largest count of its bits, or where a term only reaches the sticky bit
    precision = e.format.significand_bits if isinstance(e.format, Float) else e.format.width_bits
    limits = {(1 << bits) - 1 for bits in COUNT_BITS} | {precision + k for k in range(-2, 5)} | {
        2 * precision + k for k in range(-1, 4)}  # fmt: skip
    first = np.max(terms.leads, axis=0)
    from_digits = [np.where(lead > NO_DIGIT, first - lead, 0) for lead in terms.leads]
    # a limit from the largest count on changes nothing
    for most in sorted(limit for limit in limits if limit < farthest):
        for whence, distances in ((", by their exponents", counts), (", by their first digits", from_digits)):
            rows = np.flatnonzero(np.any([count > most for count in distances], axis=0) & finite)
            if rows.size:
                pairs = zip(terms.raws, distances, strict=True)
                kept = [np.where(count[rows] > most, 0, raw[rows]) for raw, count in pairs]
                name = f"terms more than {most} places below the largest left out{whence}"
                yield name, _summed(e, terms, rows, (_total(kept), None))
        rows = np.flatnonzero(np.any([count > most for count in counts], axis=0) & finite)
        if rows.size:
            pairs = zip(terms.raws, counts, strict=True)
            moved = [raw[rows] << np.maximum(count[rows] - most, 0).astype(object) for raw, count in pairs]
            yield f"alignment shifts of {most} places at most", _summed(e, terms, rows, (_total(moved), None))


def _sum_of(e: Evidence) -> Sum | None:
    """Return the terms that are added; None if there is no sum of a few terms."""
    d, formats, operands = e.description, e.description.operand_formats, e.vectors.operands
    if not isinstance(e.format, Float):
        return None
    if e.terms:
        terms = e.terms
        fields = [_exponents(fmt, codes) for fmt, codes in zip(formats, operands, strict=True)]
        if d.operation == "fma":
            fields = [fields[0] + fields[1], fields[2]]
    elif not e.is_product_sum or d.depth > MOST_TERMS or not d.mac.mac().is_exact:
        return None
    else:
        columns = [(operands[0][:, k], operands[1][:, k]) for k in range(d.depth)]
        # each product is one term, (count,), then the addend if there is one
        terms = [arithmetic.multiply(operand_parts(formats[:2], pair), encode_stage(d.stage)) for pair in columns]
        terms += operand_parts(formats[2:], operands[2:])
        fields = [_exponents(formats[0], a) + _exponents(formats[1], b) for a, b in columns]
        fields += [_exponents(fmt, codes) for fmt, codes in zip(formats[2:], operands[2:], strict=True)]
    return _over_common_exponent(terms, fields)


def _over_common_exponent(terms: Sequence[Exact], fields: list[Integers]) -> Sum:
    lowest = int(min(t.exponent.min() for t in terms))
    wide = [t.as_object() for t in terms]
    # exact digits over one exponent, as Python integers: terms may be thousands of places apart
    raws: list[Array] = [t.signed() << (t.exponent - lowest).astype(object) for t in wide]
    leads = [leading_of(t) for t in terms]
    together = np.bitwise_or.reduce([np.abs(raw) for raw in raws])
    # x & -x is the lowest 1 that any term has; a vector of zeros alone ends above everything, so that nothing is cut
    lengths: Any = np.frompyfunc(int.bit_length, 1, 1)(together & -together)
    tails = np.where(together == 0, -NO_DIGIT, lengths.astype(np.int64) - 1 + lowest)
    return Sum(raws, lowest, leads, fields, tails)


def _exponents(fmt: Format, codes: Codes) -> Integers:
    """Return the exponents that words have; 0 and subnormal numbers have the lowest one."""
    if isinstance(fmt, Fixed):
        # a word has no exponent: it is taken for that of its first digit
        return np.full(codes.shape, fmt.width_bits - fmt.signed - 1 - fmt.frac_bits, np.int64)
    field = (codes & np.uint64(fmt.sign_code - 1)) >> np.uint64(fmt.fraction_bits)
    # the field of the lowest exponent, which subnormal numbers of field 0 share, if there are any
    lowest = int(fmt.has_subnormal_codes)
    return np.maximum(field.astype(np.int64), lowest) - lowest + fmt.emin


def _cut(terms: Sum, rows: Integers, last: Integers, how: str) -> tuple[Array, Array]:
    """Return sums of terms without what lies below `last`, and where something was lost."""
    # a last column below all digits cuts nothing
    shifts = np.maximum(last - terms.lowest, 0).astype(object)
    total: Array = np.zeros(rows.shape, object)
    any_lost = np.zeros(rows.shape, bool)
    for raw in terms.raws:
        raw = raw[rows]
        magnitude = np.abs(raw)
        kept = magnitude >> shifts
        lost = ((kept << shifts) != magnitude).astype(bool)
        if how == "jammed into one sticky bit":
            kept = kept | lost.astype(object)
        # >> of a negative Python integer rounds down, as two's complement does; the others cut the magnitude
        digits: Array = raw >> shifts if how == "cut toward minus infinity" else np.where(raw < 0, -kept, kept)
        total = total + (digits << shifts)
        any_lost |= lost
    return total, any_lost if how == "a sticky bit that only adds" else np.zeros(rows.shape, bool)


def _total(terms: Sequence[Array]) -> Array:
    return np.add.reduce(list(terms))


def _summed(e: Evidence, terms: Sum, rows: Integers, total: tuple[Array, Array | None]) -> Codes:
    """Return the codes if some rows have other sums; a sum that becomes 0 has the sign of x - x."""
    digits, only_adds = total
    more = np.zeros(rows.shape, object) if only_adds is None else only_adds.astype(object)
    # a sticky bit that only adds makes the magnitude larger, whatever the sign of what was lost
    digits = 4 * digits + np.where(digits < 0, -1, 1) * more
    # IEEE 754-2019 section 6.3: x - x is -0 under floor; of sums of products, only if their zeros are the standard's
    d, negative = e.description, (digits < 0).astype(bool)
    if d.stage.rounding is Rounding.FLOOR and (not e.is_product_sum or d.zero_sign == "ieee"):
        negative |= (digits == 0).astype(bool)
    # two digits more were appended for it, hence lowest - 2
    changed = Exact(
        negative, np.abs(digits), np.full(rows.shape, terms.lowest - 2, np.int64), np.full(rows.shape, FINITE, np.uint8)
    )
    return rewritten_rows(e, rows, changed)
