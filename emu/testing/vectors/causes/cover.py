"""Which faults explain a dump: a few that together explain most, none of which a right result contradicts.

A fault claims the vectors that it would have changed. It is no explanation if one of them is right in the dump, or if
it explains less than half of them: a second fault may have changed the others. Of the faults that are left, the one
that explains most is taken, then the one that explains most of the rest, and so on. What is explained already does not
count against later faults: both may have changed it. What nothing explains is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.cells import Cell
from emu.testing.vectors.description import Codes

Mask = NDArray[np.bool_]
#: Most faults that are named. Each must explain LEAST_EXPLAINED differences, and one in ONE_IN of all; of a single
#: difference, that one.
MOST_NAMED, LEAST_EXPLAINED, ONE_IN = 4, 2, 100
#: A cell that has all of some vectors tells something about them if it has at most so many times their number.
FEW_OTHERS = 4


@dataclass(frozen=True, eq=False)
class Cause:
    """A fault that explains differences.

    Attributes:
        name: what it is.
        explained: which differences it explains, (count,).
        others: other faults that explain the same differences, which these vectors cannot tell from it.
    """

    name: str
    explained: Mask
    others: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Cover:
    """Causes that together explain differences.

    Attributes:
        causes: the one that explains most first.
        unknown: differences that none of them explains, (count,).
    """

    causes: tuple[Cause, ...]
    unknown: Mask


def cover(hypotheses: Iterable[Hypothesis], expected: Codes, given: Codes, known: Mask | None = None) -> Cover:
    """Return few faults that explain the differences of a dump.

    Args:
        hypotheses: faults with what each would have written.
        expected: what is right, (count,).
        given: the dump.
        known: which results the dump has at all, (count,); None: all.
    """
    known = np.ones(expected.shape, bool) if known is None else known
    differs = (given != expected) & known
    right = ~differs & known
    possible: list[tuple[Cause, Mask]] = []
    for name, codes in hypotheses:
        claims = (codes != expected) & known
        explained = claims & differs & (codes == given)
        # one right result that the fault would have changed is enough against it
        if explained.any() and not (claims & right).any():
            possible.append((Cause(name, explained), claims))
    return _greedy(possible, differs)


def _greedy(possible: Sequence[tuple[Cause, Mask]], differs: Mask) -> Cover:
    # `possible`: causes and, for each, the vectors that it would have changed
    left, causes, total = differs.copy(), list[Cause](), int(differs.sum())
    # a single difference may be explained; among many a single one may agree by chance
    least = min(total, max(LEAST_EXPLAINED, -(-total // ONE_IN)))
    while left.any() and len(causes) < MOST_NAMED:
        rest = [(cause, int((cause.explained & left).sum()), claims) for cause, claims in possible]
        # half of what it would have changed: the rest may be the work of a second fault
        fits = [(cause, count) for cause, count, claims in rest if count and 2 * count >= int((claims & left).sum())]
        # the first of those that explain as much: likely faults stand first
        best, count = max(fits, key=lambda row: row[1], default=(None, 0))
        if best is None or count < least:
            break
        explained = best.explained & left
        same = [
            c.name for c, n in fits if c is not best and n == count and np.array_equal(c.explained & left, explained)
        ]
        others = tuple(name for name in dict.fromkeys(same) if name != best.name)
        causes.append(Cause(best.name, best.explained & left, others))
        left &= ~best.explained
    return Cover(tuple(causes), left)


def shared_cell(cells: Sequence[Cell], vectors: Mask) -> Cell | None:
    """Return the smallest cell that has all of some vectors; None if each such cell has many others too.

    Cells of flags that are not raised say nothing, nor do cells with more than half of all vectors.
    """
    most = min(FEW_OTHERS * int(vectors.sum()), vectors.size // 2)
    sharing = [
        cell for cell in cells
        if 0 < cell.inside.sum() <= most and not cell.name.startswith("no flag ") and not (vectors & ~cell.inside).any()
    ]  # fmt: skip
    return min(sharing, key=lambda cell: int(cell.inside.sum()), default=None)
