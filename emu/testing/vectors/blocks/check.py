"""Elements and scales of a dump against vectors of blocks: one fault explains the scales and the elements it changes.

elements, scales  ──► one fault for all differences?
                  ──► else the scales alone, and the elements by the scales of the dump
elements alone    ──► one fault, else one of scales and one of elements at once
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emu.testing.bits import describe_code
from emu.testing.vectors.blocks.evidence import BlockEvidence
from emu.testing.vectors.causes import BLOCK_FAMILIES, BLOCK_PAIRS, SECOND, hypotheses
from emu.testing.vectors.causes.cover import Cause, Cover, cover
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.causes.regional import regional
from emu.testing.vectors.columns import Column
from emu.testing.vectors.description import NAMES, Codes, Vectors
from emu.testing.vectors.explanation import (
    Finding,
    flags_beside,
    flags_compared,
    names_of_causes,
    nan_pattern,
    seen_in_codes,
    sentences_of,
)
from emu.testing.vectors.picture import picture

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Given:
    """What a dump has: codes of elements, and behind them of scales, those that it lacks as they should be.

    Attributes:
        codes: (count + blocks,).
        known: which of them the dump has.
        count: how many are elements.
    """

    codes: Codes
    known: Mask
    count: int

    @property
    def scales(self) -> Codes:
        return self.codes[self.count :]

    @property
    def has_scales(self) -> bool:
        return bool(self.known[self.count :].any())


def compare_blocks(
    vectors: Vectors,
    given: Codes,
    flags: Codes | None = None,
    *,
    undriven: Mask | None = None,
    scales: Column | None = None,
) -> Finding | None:
    """Return the differences of elements, scales and flags, None if there are none.

    Args:
        vectors: of blocks.
        given: codes of the elements, (count,).
        flags: those of the elements; None if the dump has none.
        undriven: which elements say nothing.
        scales: codes of the blocks' scales, and which of them say nothing; None: the dump has none.
    """
    e = BlockEvidence(vectors)
    dump = _given(vectors, given, undriven, scales)
    differs = (dump.codes != e.expected) & dump.known
    elements, of_scales = differs[: dump.count], differs[dump.count :]
    # flags of elements that say nothing count as right
    flags = None if flags is None else np.where(dump.known[: dump.count], flags, vectors.flags)
    if not differs.any():
        return None if flags is None else flags_compared(e, flags, np.arange(dump.count))
    explanation = _explanation(e, dump, differs)
    wrong, wrong_scales = int(elements.sum()), int(of_scales.sum())
    index = int(np.flatnonzero(elements)[0]) if wrong else None
    lines = [_headline(e, dump, wrong, wrong_scales, index)]
    lines += [f"  {line}" for line in _picture(e, dump, index, of_scales)]
    lines += sentences_of(e, explanation, int(differs.sum()))
    if flags is not None:
        lines += flags_beside(e, flags, ~elements)
    judged = int(dump.known[: dump.count].sum())
    return Finding(wrong, judged, index, tuple(lines), names_of_causes(explanation), wrong_scales=wrong_scales)


def _given(vectors: Vectors, given: Codes, undriven: Mask | None, scales: Column | None) -> _Given:
    own = vectors.scales[0]
    known = np.ones(given.size, np.bool_) if undriven is None else ~undriven
    known_scales = np.zeros(own.size, np.bool_) if scales is None else ~scales.undriven
    # what the dump lacks is filled with the right codes, and `known` excludes it from every comparison
    theirs = own if scales is None else np.where(known_scales, scales.codes, own)
    codes = np.concatenate([np.where(known, given, vectors.results), theirs])
    return _Given(codes, np.concatenate([known, known_scales]), given.size)


def _headline(e: BlockEvidence, dump: _Given, wrong: int, wrong_scales: int, index: int | None) -> str:
    of_scales = f"{wrong_scales} of {int(dump.known[dump.count :].sum())} scales"
    if index is None:
        return f"every element is right, but {of_scales} differ:"
    others = "" if not dump.has_scales else f", and {of_scales}" if wrong_scales else ", all scales are right"
    place = f"vector {index}, element {index % e.together} of block {index // e.together}"
    return f"{wrong} of {int(dump.known[: dump.count].sum())} elements differ{others}; the first is {place}:"


def _picture(e: BlockEvidence, dump: _Given, index: int | None, of_scales: Mask) -> Iterator[str]:
    """Yield the first element that differs, and the scale of its block, or of the first block that differs."""
    block = int(np.flatnonzero(of_scales)[0]) if index is None else index // e.together
    yield from _block_lines(e, dump, block, is_compared=bool(dump.known[dump.count + block]))
    if index is not None:
        yield from picture(e.vectors, dump.codes[: dump.count], index)


def _block_lines(e: BlockEvidence, dump: _Given, block: int, *, is_compared: bool) -> Iterator[str]:
    b, source = e.together, e.description.operand_formats[0]
    magnitudes = np.abs(e.numbers[block * b : (block + 1) * b])
    # of a block whose scale is NaN the NaN is shown, as the number that decides
    known = np.where(np.isnan(magnitudes), -1, magnitudes)
    place = int(np.argmax(np.where(np.isnan(magnitudes), np.inf, known) if e.lost[block] else known))
    code = int(e.vectors.operands[0][block * b + place])
    yield f"block {block}"
    yield f"{'largest':<10}{describe_code(source, code)}  {NAMES[0]} of element {place}"
    fmt, own = e.blocks.levels[0].scale, int(e.vectors.scales[0][block])
    yield f"{'scale':<10}{describe_code(fmt, own)}{'' if is_compared else '  expected; the dump has none'}"
    if is_compared and int(dump.scales[block]) != own:
        yield f"{'given':<10}{describe_code(fmt, int(dump.scales[block]))}"


def _explanation(e: BlockEvidence, dump: _Given, differs: Mask) -> Cover:
    """Return the causes of all differences: one of elements and scales, if there is one, else of each by itself."""
    elements = dump.codes[: dump.count]
    if not differs[dump.count :].any() and dump.known[: dump.count].all():
        # what the codes alone show, as an output that never changes, or lines out of step: no hypothesis needs to be
        # computed
        certain = list(seen_in_codes(e.vectors, elements))
        if certain:
            return Cover((Cause(certain[0], differs, tuple(certain[1:])),), differs & False)
    known = [*((name, e.joined(codes)) for name, codes in nan_pattern(e, elements)), *hypotheses(e, BLOCK_FAMILIES)]
    explanation = cover(known, e.expected, dump.codes, dump.known)
    if not explanation.unknown.any():
        return explanation
    if differs[dump.count :].any():
        apart = _apart(e, dump, known, differs)
        return apart if apart.unknown.sum() < explanation.unknown.sum() else explanation
    # with the scales in the dump, faults of scales and of elements are told apart already
    further = [] if dump.has_scales else list(_pairs(e))
    if dump.known[: dump.count].all():
        # faults of some regions of the elements only: the scales must be the right ones
        alone = [(name, codes[: dump.count]) for name, codes in [*known, *further] if _keeps_scales(e, codes)]
        further += [(name, e.joined(codes)) for name, codes in regional(e, alone, elements)]
    return cover([*known, *further], e.expected, dump.codes, dump.known)


def _keeps_scales(e: BlockEvidence, codes: Codes) -> bool:
    return np.array_equal(codes[e.results.size :], e.vectors.scales[0])


def _apart(e: BlockEvidence, dump: _Given, known: list[Hypothesis], differs: Mask) -> Cover:
    """Return the causes of the scales alone, and those of the elements by the scales of the dump."""
    # elements first, then scales, as `_Given` has them
    is_scale = np.arange(dump.codes.size) >= dump.count
    of_scales = cover(known, e.expected, dump.codes, dump.known & is_scale)
    by_dump = _by_scales(e, dump.scales)
    own = cover(hypotheses(by_dump, BLOCK_FAMILIES), by_dump.expected, dump.codes, dump.known & ~is_scale)
    # elements that are right by the scales of the dump differ for the reason that these scales do
    follow = differs & ~is_scale & (dump.codes == by_dump.expected)
    unknown = (of_scales.unknown | own.unknown) & differs
    causes = list(of_scales.causes)
    if causes:
        causes[0] = replace(causes[0], explained=causes[0].explained | follow)
    else:
        unknown = unknown | follow
    others = [replace(cause, explained=cause.explained & differs) for cause in own.causes]
    return Cover((*causes, *(cause for cause in others if cause.explained.any())), unknown)


def _by_scales(e: BlockEvidence, stored: Codes) -> BlockEvidence:
    """Return the evidence of vectors whose elements are right by other scales."""
    elements = e.elements_by(e.with_codes(e.scales, stored))
    vectors = replace(e.vectors, results=elements, scales=(stored, *e.vectors.scales[1:]))
    return BlockEvidence(vectors, stored)


def _pairs(e: BlockEvidence) -> Iterator[Hypothesis]:
    """Yield the codes of a fault of scales and one of elements at once."""
    for name, codes in hypotheses(e, BLOCK_PAIRS):
        other = _by_scales(e, codes[e.results.size :])
        # only if the fault of scales changes elements by nothing else than the scale
        if np.array_equal(other.results, codes[: e.results.size]):
            for second, both in hypotheses(other, SECOND):
                yield f"{name}, and {second}", both
