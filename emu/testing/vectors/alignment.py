"""Which vector does each line of a dump belong to, if lines were lost, added or shifted?

    vectors   A B C D E F G H          the dump lost every 3rd result: C and F
    dump      A B D E G H
    offset    0 0 1 1 2 2              vector of a line minus its number

Lines keep their offset for long stretches, so the likeliest path of offsets is sought (`offset_path.py`). A line
whose code is that of its vector counts for as many bits as the code is rare, one whose code differs counts against it,
and so does each change of the offset. A wrong unit in step has no better path than the offset 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from emu.testing.vectors.offset_path import CHANGE, Codes, Mask, Scoring, best_path
from emu.testing.vectors.shift_names import FEWEST_REGULAR, Offsets, names_of

#: Lines among which a rare code is sought that anchors a shift of all lines.
ANCHORS = 512
#: Bits by which a path must be better than no shift.
WORTH = 16.0
#: The same, for one shift of all lines with which every code is right.
WORTH_OF_SHIFT = 6.0
#: Longest period of losses and repeats that is tried on its own: stretches between them may be a single line.
LONGEST_PERIOD = 16
#: Lines with which periods are tried, before one is tried with all.
TRIED_LINES = 4096


@dataclass(frozen=True, eq=False)
class Alignment:
    """How the lines of a dump belong to vectors.

    Attributes:
        name: what happened, as in "dropped: every 7th result, the first is that of vector 6".
        vectors: the vector of each line, (lines,) int64; -1 for a line that belongs to none.
    """

    name: str
    vectors: Offsets


def alignment(results: Codes, given: Codes, undriven: Mask | None = None) -> Alignment | None:
    """Return how the lines of a dump belong to vectors, None if they are in step or if nothing says how.

    Args:
        results: the right codes, (vectors,).
        given: those of a dump, (lines,).
        undriven: which lines were never driven, and say nothing.

    Examples:
        >>> right = np.arange(100, dtype=np.uint64) ** 2
        >>> alignment(right, np.delete(right, slice(6, None, 7))).name
        'dropped: every 7th result, the first is that of vector 6'
        >>> alignment(right, np.roll(right, 2)).name
        'every result 2 lines too late'
    """
    if results.size == 0 or given.size == 0:
        return None
    known = np.ones(given.size, np.bool_) if undriven is None else ~undriven
    offsets = _whole_shift(results, given, known)
    if offsets is None:
        offsets = _likeliest(results, given, known)
    if offsets is None and given.size != results.size and _is_mostly_right(results, given, known):
        offsets = np.zeros(given.size, np.int64)  # cut, or too long, with some wrong results before
    if offsets is None:
        return None
    vectors = np.arange(given.size) + offsets
    vectors = np.where((vectors >= 0) & (vectors < results.size), vectors, -1)
    name = "; ".join(names_of(offsets, results.size))
    return Alignment(name, vectors) if name else None


def _whole_shift(results: Codes, given: Codes, known: Mask) -> Offsets | None:
    """Return the smallest offset, the same for all lines, with which every code is right; None if there is none."""
    lines, most = given.size, max(results.size, given.size)
    # equal codes tell no offset from another: only a wrong number of lines is seen
    if np.unique(results).size < 2:
        return np.zeros(lines, np.int64) if lines != results.size and _fits(results, given, known, 0) else None
    # an offset that fits has the first rare code of the dump where the vectors have it
    counts = dict(zip(*(part.tolist() for part in np.unique(results, return_counts=True)), strict=True))
    driven = np.flatnonzero(known)
    if driven.size == 0:
        return None
    # the middle half of the lines: a shift by up to a quarter of them leaves each of these a vector
    overlapped = driven[(driven >= lines // 4) & (driven <= lines - 1 - lines // 4)]
    candidates = overlapped if overlapped.size else driven
    # a code that no vector has counts as the most common: it anchors nothing
    anchor = min(candidates[:ANCHORS].tolist(), key=lambda i: counts.get(int(given[i]), most + 1))
    for offset in sorted((np.flatnonzero(results == given[anchor]) - anchor).tolist(), key=abs):
        if (offset != 0 or lines != results.size) and _fits(results, given, known, offset):
            shifted = np.full(lines, offset, np.int64)
            scoring = Scoring.between(results, given, known)
            # One wrong result among few codes may be a shift as well, and so may a dump of few lines: somewhere among
            # many vectors there is its code. A number of n bits that nobody expects costs about 2 n bits.
            worth = WORTH_OF_SHIFT + 2 * abs(offset).bit_length() if offset else -np.inf
            is_worth = scoring.of(shifted) - scoring.of(np.zeros_like(shifted)) >= worth
            return shifted if is_worth else None
    return None


def _fits(results: Codes, given: Codes, known: Mask, offset: int) -> bool:
    start, stop = max(0, -offset), min(given.size, results.size - offset)
    # less than half in common is no shift of a dump
    if 2 * (stop - start) <= min(given.size, results.size):
        return False
    equal = given[start:stop] == results[start + offset : stop + offset]
    return bool((equal | ~known[start:stop]).all() and known[start:stop].any())


def _is_mostly_right(results: Codes, given: Codes, known: Mask) -> bool:
    common = min(results.size, given.size)
    driven = known[:common]
    equal = (results[:common] == given[:common]) & driven
    return bool(driven.any()) and 2 * int(equal.sum()) > int(driven.sum()) and np.unique(results[:common]).size > 1


def _likeliest(results: Codes, given: Codes, known: Mask) -> Offsets | None:
    """Return the offset of each line on the likeliest path; None if no path is clearly better than no shift."""
    scoring = Scoring.between(results, given, known)
    regular = _most_regular(scoring, _periods())
    # losses and repeats that are regular are described by two numbers, and cost as much as two changes
    if regular is not None and scoring.equal(regular)[known].all():
        offsets = regular
    else:
        offsets = best_path(scoring)
        again = _most_regular(scoring, _periods_of(offsets))
        right = scoring.count(offsets)
        for candidate in (regular, again):
            # a few losses that are regular by chance describe the others badly
            if candidate is None or 50 * scoring.count(candidate) < 49 * right:
                continue
            if scoring.of(candidate) - 2 * CHANGE >= scoring.with_changes(offsets):
                offsets = candidate
    in_step = scoring.of(np.zeros(given.size, np.int64))
    if not offsets.any() or scoring.of(offsets) - in_step < WORTH + CHANGE:
        return None
    return offsets if 2 * scoring.count(offsets) >= int(known.sum()) else None


#: Offsets of so many lines.
_Pattern = Callable[[int], Offsets]


def _dropped(period: int, first: int) -> _Pattern:
    """Return the offsets if vector `first` and each `period`-th after it have no line."""

    def offsets(lines: int) -> Offsets:
        i = np.arange(lines)
        # between two lost vectors there are period - 1 lines
        return np.where(i < first, 0, (i - first) // (period - 1) + 1)

    return offsets


def _repeated(period: int, first: int) -> _Pattern:
    """Return the offsets if vector `first` and each `period`-th after it have two lines."""
    # the second line of vector `first` has number first + 1; period + 1 lines have period vectors
    return lambda lines: -np.where(np.arange(lines) <= first, 0, (np.arange(lines) - first - 1) // (period + 1) + 1)


def _kept(period: int, first: int) -> _Pattern:
    """Return the offsets if only vector `first` and each `period`-th after it have lines."""
    # line i is vector first + period * i
    return lambda lines: first + (period - 1) * np.arange(lines)


def _stretched(times: int) -> _Pattern:
    """Return the offsets if each vector has so many lines."""
    return lambda lines: np.arange(lines) // times - np.arange(lines)


def _periods() -> Iterator[_Pattern]:
    for period in range(2, LONGEST_PERIOD + 1):
        yield _stretched(period)
        for first in range(period):
            yield _dropped(period, first)
            yield _repeated(period, first)
            # of period 2, keeping every second vector is dropping every second
            if period > 2:
                yield _kept(period, first)


def _periods_of(offsets: Offsets) -> Iterator[_Pattern]:
    """Yield the regular losses and repeats that a path may mean: equal neighbours blur where each was."""
    changes = np.diff(offsets, prepend=0)
    for pattern, lines in ((_dropped, np.flatnonzero(changes == 1)), (_repeated, np.flatnonzero(changes == -1))):
        # the vector that has no line is the one before the line at which the offset grows
        vectors = lines + offsets[lines] - (pattern is _dropped)
        if vectors.size < FEWEST_REGULAR:
            continue
        apart = np.diff(vectors)
        # the median survives stretches that were missed, the mean those that were misplaced
        for period in {int(np.median(apart)), round((vectors[-1] - vectors[0]) / (vectors.size - 1))}:
            if period > 1:
                for first in {int(v) % period for v in vectors[: 4 * FEWEST_REGULAR]}:
                    yield pattern(period, first)


def _most_regular(scoring: Scoring, patterns: Iterator[_Pattern]) -> Offsets | None:
    # periods show early: the first lines rank the patterns, and only the best is made for all lines
    tried = min(TRIED_LINES, scoring.given.size)
    best = max(patterns, key=lambda pattern: scoring.of(pattern(tried)), default=None)
    return None if best is None else best(scoring.given.size)
