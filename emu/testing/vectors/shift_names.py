"""What happened to the lines of a dump, in words: "dropped: every 7th result, the first is that of vector 6"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
#: Losses or repeats, at least, that count as regular.
FEWEST_REGULAR = 3
#: Vectors that a name lists.
MOST_LISTED = 4


class _Change(NamedTuple):
    """A change of the offset: how many vectors have no line, or how many lines are too many, from which vector on."""

    vector: int
    size: int


def names_of(offsets: Offsets, vectors: int) -> Iterator[str]:
    """Yield what happened; nothing if every line belongs to the vector of its number.

    Args:
        offsets: of each line, the vector that it belongs to minus its number.
        vectors: how many there are.

    Examples:
        >>> list(names_of(np.array([0, 0, 1, 1]), 5))
        ['dropped: the result of vector 2']
        >>> list(names_of(np.array([-2, -2, -2, -2]), 4))
        ['every result 2 lines too late']
    """
    lines = offsets.size
    whole = int(offsets[0])
    if lines == vectors and whole and (offsets == whole).all():
        yield f"every result {_lines(abs(whole))} too {'late' if whole < 0 else 'early'}"
        return
    # above 0: vectors without a line; below 0: lines too many
    changes = np.diff(offsets, prepend=0)
    # the offset rises at line i: the vectors from the one that was due, i + the old offset, have no line
    lost = [_Change(int(i + offsets[i] - changes[i]), int(changes[i])) for i in np.flatnonzero(changes > 0)]
    added = _merged(offsets, np.flatnonzero(changes < 0))
    rest = vectors - lines - int(offsets[-1])
    if rest > 0 and _is_regular([*lost, _Change(vectors - rest, rest)]):
        rest = 0  # the next loss of the row
    # a loss from vector 0 on is one at the start, unless it begins a regular row or the other losses are single too
    if lost and lost[0].vector == 0 and not _is_regular(lost):
        singles = sum(change.size == 1 for change in lost)
        is_row = _is_regular(lost[1:]) and lost[0].size < lost[1].size
        if not is_row and (lost[0].size > 1 or 5 * singles < 4 * len(lost) or len(lost) < FEWEST_REGULAR):
            yield f"lost at the start: {_first('first', lost.pop(0).size)}"
    if added and added[0].vector < 0:
        yield f"{_lines(added.pop(0).size)} too many at the start"
    yield from _lost(lost)
    yield from _added(added, lines)
    if rest > 0:
        yield f"lost at the end: {_first('last', rest)}"
    elif rest < 0:
        yield f"{_lines(-rest)} too many at the end"


def _merged(offsets: Offsets, lines: NDArray[np.int64]) -> list[_Change]:
    """Return the lines too many, those that follow one another as one change; before the first vector it is -1."""
    changes: list[_Change] = []
    for line in lines.tolist():
        vector = int(line + offsets[line])
        # at line 0 an offset below 0 is the number of lines before the first vector
        size = int(offsets[line - 1] - offsets[line]) if line else -vector
        if line == 0:
            changes.append(_Change(-1, size))
        elif changes and changes[-1].vector == vector:
            changes[-1] = _Change(vector, changes[-1].size + size)
        else:
            changes.append(_Change(vector, size))
    return changes


def _is_regular(changes: Sequence[_Change]) -> bool:
    """Return whether changes of one size follow one another at one distance; the last may be cut by the end."""
    if len(changes) < FEWEST_REGULAR or len({change.size for change in changes[:-1]}) > 1:
        return False
    if changes[-1].size > changes[0].size:
        return False
    return len(set(np.diff([change.vector for change in changes]).tolist())) == 1


def _lost(changes: Sequence[_Change]) -> Iterator[str]:
    if not changes:
        return
    first, total = changes[0], sum(change.size for change in changes)
    # the row may begin within its first loss, which is shorter then
    if _is_regular(changes) or (_is_regular(changes[1:]) and first.vector == 0 and first.size < changes[1].size):
        period, last = changes[2].vector - changes[1].vector, changes[-1]
        # all but one result of each period are lost
        if last.size > 1 and last.size == period - 1:
            start = (last.vector + last.size) % period
            yield f"dropped: all but every {_nth(period)} result, the first that is there is that of vector {start}"
        elif first.size == 1:
            burst = f": the first of each burst of {period}" if first.vector == 0 and period > 2 else ""
            yield f"dropped: every {_nth(period)} result, the first is that of vector {first.vector}{burst}"
        else:
            yield f"dropped: {first.size} of every {period} results, the first is that of vector {first.vector}"
    elif len(changes) == 1:
        what = f"the result of vector {first.vector}" if first.size == 1 else (
            f"{first.size} results, from that of vector {first.vector} on"
        )  # fmt: skip
        yield f"dropped: {what}"
    else:
        burst = ", perhaps the first of each burst" if first.vector == 0 else ""
        yield f"dropped: {total} results{burst}: {_listed(changes)}"


def _added(changes: Sequence[_Change], lines: int) -> Iterator[str]:
    if not changes:
        return
    first, total = changes[0], sum(change.size for change in changes)
    regular = _is_regular(changes)
    # each vector has `size` lines more than one, up to the last, which may be cut
    if regular and changes[1].vector - first.vector == 1 and (first.size + 1) * len(changes) >= lines - first.size:
        yield f"every result stands {first.size + 1} times"
    elif regular and first.size == 1:
        every = _nth(changes[1].vector - first.vector)
        yield f"duplicated: every {every} result, the first is that of vector {first.vector}"
    elif len(changes) == 1:
        times = "twice" if first.size == 1 else f"{first.size + 1} times"
        yield f"duplicated: the result of vector {first.vector} stands {times}"
    else:
        yield f"duplicated: {total} results, {_listed(changes)}"


def _listed(changes: Sequence[_Change]) -> str:
    listed = ", ".join(str(change.vector) for change in changes[:MOST_LISTED])
    more = " ..." if len(changes) > MOST_LISTED else ""
    return (
        f"from vectors {listed}{more} on"
        if any(change.size > 1 for change in changes)
        else f"those of vectors {listed}{more}"
    )


def _lines(count: int) -> str:
    return "one line" if count == 1 else f"{count} lines"


def _first(which: str, count: int) -> str:
    return f"the {which} result" if count == 1 else f"the {which} {count} results"


def _nth(number: int) -> str:
    last = number % 10 if number // 10 % 10 != 1 else 0
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"
