"""Faults in one region alone: every fault and every effect is looked for in every region, all at once.

    fault                           region                              dump
    truncation (toward_zero)        quotients of significands below 1   each difference is in the region, and explained

A fault in a region is no explanation if a vector there that it would have changed is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from emu.testing.vectors.causes.effects import effects
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.causes.regions import regions_of, stacked
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence

#: A region's fault explains at least one in so many of the differences; fewer may agree by chance.
LEAST_SHARE = 10
#: Faults in regions that are returned, those that explain most.
MOST_REGIONAL = 64


def regional(e: Evidence, known: Sequence[Hypothesis], given: Codes) -> Iterator[Hypothesis]:
    """Yield faults in regions that a dump does not contradict, those that explain most first.

    Args:
        e: the vectors.
        known: faults, with the codes that each writes everywhere.
        given: the dump's codes, (count,).
    """
    differs = given != e.results
    faults = [(name, codes) for name, codes in [*known, *effects(e)] if (differs & (codes == given)).any()]
    regions = regions_of(e)
    if not faults or not regions:
        return
    # (faults, count); regions are columns of `masks`, (count, regions)
    codes = np.array([codes for _, codes in faults])
    claims = codes != e.results
    masks = stacked(regions).astype(np.float32).T

    # a product of zeros and ones counts: float32 has exact counts up to 2**24 vectors, and BLAS, which is fast, no
    # integers
    def counted(what: np.ndarray) -> np.ndarray:
        return np.rint(what.astype(np.float32) @ masks).astype(np.int64)

    explained = counted(claims & differs & (codes == given))
    claimed, contradicted = counted(claims), counted(claims & ~differs)
    total = int(differs.sum())
    least = max(2 if total > 1 else 1, -(-total // LEAST_SHARE))
    # the rules of `cover`, for all pairs at once: (faults, regions)
    possible = (contradicted == 0) & (explained >= least) & (2 * explained >= claimed)
    possible &= claimed < claims.sum(axis=1)[:, None]  # else it is the fault itself, everywhere
    pairs = [(int(i), int(j)) for i, j in zip(*np.nonzero(possible), strict=True)]
    # what explains most, and of that what claims least that it does not explain; then likely regions and faults
    pairs.sort(key=lambda pair: (-explained[pair], claimed[pair] - explained[pair], pair[1], pair[0]))
    for i, j in pairs[:MOST_REGIONAL]:
        name, written = faults[i]
        yield f"{name}, of {regions[j].name} alone", np.where(regions[j].inside, written, e.results)
