"""The cells of scales: largest magnitudes at which the scale steps, zeros, NaN, the ends of the scales, other rules.

A block counts in a cell by a single element: that of its largest magnitude, or the first that the cell is about.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.errors import FormatError
from emu.formats import Fixed, Float, Format, Scaled
from emu.formats.scale_rules import SCALE_RULES, SPECIALS
from emu.testing.hard import last_index
from emu.testing.vectors.blocks.evidence import Array, BlockEvidence
from emu.testing.vectors.blocks.quotients import block_scales, codes_of_scales
from emu.testing.vectors.cell import WANTED, Cell
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask


def block_cells(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of blocks and their scales, none of single numbers."""
    if not isinstance(e, BlockEvidence):
        return
    # cells are marked at one element of each block, so that counting vectors counts blocks
    at_largest = _at_largest(e)
    for name, blocks in (*_of_largest(e), *_of_scales(e), *_of_rules(e)):
        yield Cell(name, at_largest & np.repeat(blocks, e.together))
    yield from _of_places(e, at_largest)
    yield from _of_numbers(e)


def other_rules(fmt: Scaled) -> Iterator[tuple[str, Scaled]]:
    """Yield the other rules that blocks of a format can have, with the format that has them; then another NaN rule.

    If a rule comes with another treatment of NaN, there are two formats of it: with the treatment of `fmt`, and with
    that of the rule.
    """
    own = fmt.levels[0].special
    for rule in SCALE_RULES.values():
        # rules with a zero point store another number beside the scale
        if rule.name != fmt.rule.name and not rule.has_zero:
            try:
                yield f"the rule {rule.name}", fmt.with_rule(rule.name, own)
                if rule.special != own:
                    yield f"the rule {rule.name} with {rule.special}", fmt.with_rule(rule.name)
            except FormatError:  # it stores other scales
                continue
    for special in SPECIALS:
        if special != own:
            yield special, fmt.with_rule(fmt.rule.name, special)


def first_of_each(inside: Mask, together: int) -> Mask:
    """Return the first vector of each block among some, (count,)."""
    rows = inside.reshape(-1, together)
    # the running count is 1 from the first to before the second; `rows` leaves the first of these
    return (rows & (np.cumsum(rows, axis=1) == 1)).reshape(-1)


def _at_largest(e: BlockEvidence) -> Mask:
    """Return the first element of the largest magnitude of each block."""
    # a block of NaN alone has no largest magnitude: its first element stands for it
    return first_of_each(np.abs(e.numbers) == np.repeat(e.largest, e.together), e.together) | first_of_each(
        np.repeat(np.isnan(e.numbers).reshape(-1, e.together).all(axis=1), e.together), e.together
    )


def _of_largest(e: BlockEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield where a block's largest magnitude lies beside a power of two, or where the next one has another scale."""
    source = e.description.operand_formats[0]
    finite = np.isfinite(e.largest) & (e.largest > 0) & ~e.lost
    magnitude = np.where(finite, e.largest, 0)
    below, above = neighbours(source, magnitude)
    for name, numbers in (("a power of two", magnitude), ("just above one", below), ("just below one", above)):
        # frexp gives significands in [1/2, 1)
        power = finite & (numbers > 0) & (np.frexp(numbers)[0] == 0.5)
        yield f"the largest magnitude of a block {name}", power
    # no number of the tensor may exceed its largest, by which an outer scale is chosen
    top = float(e.largest.max(initial=0))
    own, under, over = (
        e.scales_of_single(np.where(finite & (x > 0), np.minimum(x, top), magnitude)) for x in (magnitude, below, above)
    )
    yield "the smallest of the largest magnitudes with their scale", finite & (under < own)
    yield "the largest of the largest magnitudes with their scale", finite & (over > own)


def neighbours(source: Format, magnitudes: Array) -> tuple[Array, Array]:
    """Return the next smaller and the next larger magnitude of a format; beyond its ends the end itself."""
    codes = magnitude_codes(source, magnitudes)
    # codes of magnitudes are indices of the grid, counted from the index of code 0
    last = np.uint64(last_index(source) - (source.lowest_index if isinstance(source, Float) else 0))
    below, above = np.maximum(codes, np.uint64(1)) - np.uint64(1), np.minimum(codes + np.uint64(1), last)
    return values_of(source, below), values_of(source, above)


def magnitude_codes(source: Format, magnitudes: Array) -> Codes:
    """Return the codes of magnitudes, which grow with them; two's complement's lowest number has the largest."""
    x = np.minimum(magnitudes.astype(np.float64), float(source.max))
    if isinstance(source, Fixed):
        return np.ldexp(x, source.frac_bits).astype(np.uint64)
    # of a format without zero 0 counts as its smallest number
    least = source.decode(np.zeros(1, np.uint64))[0]
    return source.encode(np.maximum(x.astype(source.carrier), least)).astype(np.uint64)


def values_of(source: Format, codes: Codes) -> Array:
    """Return the numbers of magnitude codes, float64."""
    if isinstance(source, Fixed):
        return np.ldexp(codes.astype(np.float64), -source.frac_bits)
    return source.decode(codes).astype(np.float64)


def _of_scales(e: BlockEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield which blocks have the lowest or the highest scale that operands reach, and which have none."""
    fmt, codes, lost = e.blocks.levels[0].scale, e.vectors.scales[0], e.lost
    source = e.description.operand_formats[0]
    outer = e.blocks.rule.outer is not None
    largest = float(e.largest.max(initial=0)) if outer else float(source.max)
    smallest = float(values_of(source, np.ones(1, np.uint64))[0])
    # scales grow with the magnitude: the ends of the numbers have the ends of the scales
    ends = fmt.encode(e.scales_of_single(np.array([min(smallest, largest), largest]))).astype(np.uint64)
    digits = -(-fmt.width_bits // 4)
    for name, end in zip(("lowest", "highest"), ends, strict=True):
        used = ~lost & (codes == end) & (e.largest > 0)
        yield f"the {name} scale that numbers reach, 0x{int(end):0{digits}x}", used
    # where NaN is ignored, blocks of NaN alone have no scale of a rule of powers of two
    if source_has_nan(source) and not outer and (e.blocks.rule.divides_exactly or not e.blocks.ignores_nan):
        yield "a scale that is NaN", lost


def source_has_nan(source: Format) -> bool:
    """Return whether operands can be NaN."""
    return isinstance(source, Float) and source.nan_code is not None


def _of_rules(e: BlockEvidence) -> Iterator[tuple[str, Mask]]:
    """Yield the blocks whose scale or elements have other codes by another rule."""
    own = e.vectors.scales[0]
    for name, other in other_rules(e.blocks):
        if other.rule != e.blocks.rule and other.ignores_nan != e.blocks.ignores_nan:
            continue  # what differs by it alone has a cell of its own
        numbers = e.numbers_for(other)
        scales = block_scales(other, numbers)
        # a rule may divide or read numbers differently, so elements may differ under the same scale
        elements = e.elements_by(scales, blocks=other, numbers=numbers) != e.results
        differs = (codes_of_scales(other, scales)[0] != own) | elements.reshape(-1, e.together).any(axis=1)
        if differs.any():
            yield f"a block with other codes by {name}", differs


def _of_places(e: BlockEvidence, at_largest: Mask) -> Iterator[Cell]:
    """Yield where the largest magnitude stands, and which sign it has, if the scale without it is another."""
    b, rows = e.together, e.numbers.reshape(-1, e.together)
    finite = np.isfinite(rows).all(axis=1) & (e.largest > 0)
    # 0 stands for the largest magnitude of blocks that are not asked about
    own = e.scales_of_single(np.where(finite, e.largest, 0))

    def decides(left: Array) -> Mask:
        """Return the elements of blocks whose other numbers, `left`, have another scale."""
        others = e.scales_of_single(np.where(finite, left.max(axis=1), 0))
        return at_largest & np.repeat(finite & (others != own), b)

    for name, place in (("first", 0), ("last", b - 1)):
        left = np.abs(np.where(np.isfinite(rows), rows, 0))
        # the numbers without the one at `place`
        left[:, place] = 0
        yield Cell(f"the scale is that of the {name} element, without which it is another", decides(left))
    if e.description.operand_formats[0].signed:
        positive = np.where(np.isfinite(rows), np.maximum(rows, 0), 0)
        yield Cell("the scale is that of a negative number, without which it is another", decides(positive))


def _of_numbers(e: BlockEvidence) -> Iterator[Cell]:
    """Yield what operands a block has: zeros alone, NaN, infinities, subnormal numbers."""
    source, x, b = e.description.operand_formats[0], e.numbers, e.together
    rows = x.reshape(-1, b)
    negative = np.signbit(rows)
    zeros = (rows == 0).all(axis=1)
    first = np.arange(x.size) % b == 0
    yield Cell("a block of zeros", first & np.repeat(zeros & ~negative.any(axis=1), b))
    if isinstance(source, Float) and source.has_negative_zero:
        yield Cell("a block of negative zeros", first & np.repeat(zeros & negative.all(axis=1), b))
    outer = e.blocks.rule.outer is not None
    numbers = ((rows != 0) & np.isfinite(rows)).any(axis=1)
    if source_has_nan(source) and (e.blocks.ignores_nan or not outer):
        nan = np.isnan(rows)
        yield Cell("a NaN beside numbers in a block", first_of_each((nan & numbers[:, None]).reshape(-1), b))
        # where a single NaN makes the scale NaN, more of them tell nothing new
        wanted = WANTED if e.blocks.ignores_nan else 1
        yield Cell("a block of NaN alone", first & np.repeat(nan.all(axis=1), b), wanted)
    if isinstance(source, Float) and source.infinity_code is not None and not outer:
        for sign, side in (("positive", ~negative), ("negative", negative)):
            if sign == "positive" or source.signed:
                infinite = np.isinf(rows) & side & numbers[:, None]
                name = f"a {sign} infinity beside numbers in a block"
                yield Cell(name, first_of_each(infinite.reshape(-1), b))
    if isinstance(source, Float) and source.has_subnormal_codes and source.has_normals and not source.daz:
        small = (rows != 0) & (np.abs(rows) < source.smallest_normal)
        lost = np.repeat(e.lost, b)
        beside = small & ~small.all(axis=1)[:, None] & ~zeros[:, None]
        yield Cell("a subnormal number in a block", first_of_each(beside.reshape(-1) & ~lost, b))
        largest = (e.largest > 0) & (e.largest < source.smallest_normal)
        yield Cell("the largest magnitude of a block is subnormal", _at_largest(e) & np.repeat(largest, b))
