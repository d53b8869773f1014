"""A dump compared with vectors: the first difference explained, and what would cause all differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed
from emu.testing.vectors.blocks.check import compare_blocks
from emu.testing.vectors.blocks.evidence import evidence_of
from emu.testing.vectors.causes import further_hypotheses, hypotheses
from emu.testing.vectors.causes.cover import Cause, Cover, cover
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.causes.unseen import unseen
from emu.testing.vectors.columns import Column
from emu.testing.vectors.definition import ACCUMULATOR_BIT
from emu.testing.vectors.description import Codes, Vectors
from emu.testing.vectors.everything import Everything, rows_among_all
from emu.testing.vectors.evidence import Evidence
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
from emu.testing.vectors.steering import reach_of

#: Faults that are named if no vector shows them.
MOST_UNSEEN = 8


def what_they_tell(vectors: Vectors, everything: Everything | None = None) -> list[str]:
    """Return sentences: which cells have too few vectors, how often a limit is reached, which faults do not show.

    Args:
        vectors: operands and results.
        everything: all inputs of the operation, if they are few and were tried before.
    """
    evidence = evidence_of(vectors)
    lines = _cells_in_words(vectors, evidence, everything)
    d, reach = vectors.description, reach_of(vectors.description)
    if reach is not None:
        count = int((vectors.flags >> np.uint64(ACCUMULATOR_BIT) & np.uint64(1)).sum())
        line = f"accumulator overflow: {count} of {d.count}"
        if not reach.is_beyond:
            line += f"; no operands reach its limit, {reach.limit:g}: {d.depth} terms add up to at most {reach.most:g}"
        lines.append(line)
    if names := unseen(evidence):
        lines.append(f"no vector here shows (some change no result at all): {_listed(names)}")
    return lines


def _cells_in_words(vectors: Vectors, evidence: Evidence, everything: Everything | None) -> list[str]:
    """Return how many cells have as many vectors as they want, and which have fewer."""
    rows = rows_among_all(vectors, evidence, everything)
    full, total = sum(row.full for row in rows), sum(row.cells - row.unreachable for row in rows)
    counted = "vectors" if evidence.together == 1 else "blocks"
    lines = [f"cells with enough {counted}: {full} of {total}"]
    single = [row for row in rows if row.cells == 1 and row.full == 0]
    empty = [row.name for row in single if row.fewest == 0 and not row.unreachable]
    complete = [f"{row.name}, all {row.fewest} that exist" for row in single if row.all_there_are]
    few = [f"{row.name}, {row.fewest} of {row.wanted}" for row in single if row.fewest and not row.all_there_are]
    none = [row.name for row in single if row.unreachable]
    for row in rows:
        if row.cells == 1:
            continue
        if row.full + row.unreachable + row.all_there_are < row.cells:
            few.append(f"{row.name}, {row.full} of {row.cells}")
        elif row.all_there_are:
            complete.append(f"{row.name}, all that exist in {row.all_there_are} of {row.cells}")
        if row.unreachable:
            none.append(f"{row.name}, {row.unreachable} of {row.cells}")
    if complete:
        lines.append(f"cells with fewer {counted} than wanted, as no others exist: {_listed(complete)}")
    if none:
        lines.append(f"cells that no operands reach: {_listed(none)}")
    none_there = f"no {counted.removesuffix('s')}"
    perhaps = none_there if everything is not None else f"{none_there} (perhaps no operands reach them)"
    for words, names in ((perhaps, empty), (f"too few {counted}", few)):
        if names:
            lines.append(f"cells with {words}: {_listed(names)}")
    return lines


def _listed(names: Sequence[str]) -> str:
    more = f"; and {len(names) - MOST_UNSEEN} more" if len(names) > MOST_UNSEEN else ""
    return "; ".join(names[:MOST_UNSEEN]) + more


def compare(
    vectors: Vectors,
    given: Codes,
    flags: Codes | None = None,
    *,
    undriven: NDArray[np.bool_] | None = None,
    scales: Column | None = None,
) -> Finding | None:
    """Return the differences of codes and flags, None if there are none; what is `undriven` is not looked at.

    Args:
        vectors: what is right.
        given: the dump's codes, (count,).
        flags: those of the dump; None if it has none.
        undriven: which results say nothing.
        scales: the dump's scales of blocks, a code each; None if it has none.
    """
    if vectors.description.blocks is not None:
        return compare_blocks(vectors, given, flags, undriven=undriven, scales=scales)
    # what is undriven is taken out; messages go on counting with the vectors' own numbers
    lines_of = np.arange(given.size) if undriven is None else np.flatnonzero(~undriven)
    if undriven is not None:
        vectors, given, flags = vectors.at(lines_of), given[lines_of], None if flags is None else flags[lines_of]
    differs = given != vectors.results
    evidence = Evidence(vectors)
    if not differs.any():
        return None if flags is None else flags_compared(evidence, flags, lines_of)
    index = int(np.flatnonzero(differs)[0])
    explanation = _cover_of(evidence, given, differs)
    lines = [f"{int(differs.sum())} of {given.size} results differ, the first at vector {int(lines_of[index])}:"]
    lines += [f"  {line}" for line in picture(vectors, given, index)]
    lines += sentences_of(evidence, explanation, int(differs.sum()))
    causes = names_of_causes(explanation)
    if flags is not None:
        lines += flags_beside(evidence, flags, ~differs)
    return Finding(int(differs.sum()), given.size, int(lines_of[index]), tuple(lines), causes)


def _cover_of(evidence: Evidence, given: Codes, differs: NDArray[np.bool_]) -> Cover:
    certain = list(seen_in_codes(evidence.vectors, given))
    if certain:
        return Cover((Cause(certain[0], differs, tuple(certain[1:])),), differs & False)
    # first here is first named: `cover` takes the earliest of those that explain as much
    known = [*nan_pattern(evidence, given), *hypotheses(evidence)]
    explanation = cover(known, evidence.results, given)
    if explanation.unknown.any():
        further = [*further_hypotheses(evidence, known, given), *_lost_power(evidence, given)]
        explanation = cover([*known, *further], evidence.results, given)
    if not explanation.causes and int(differs.sum()) == 1:
        # a single difference of one bit may be an upset, which no fault of the unit explains
        bits = int(given[differs][0] ^ evidence.results[differs][0])
        if bits.bit_count() == 1:
            flipped = Cause(f"one flipped bit: bit {bits.bit_length() - 1} of this one result", differs)
            return Cover((flipped,), differs & False)
    return explanation


def _lost_power(evidence: Evidence, given: Codes) -> Iterator[Hypothesis]:
    """Yield the dump itself if each of its differences is one power of two, as of a carry that is lost on its way."""
    fmt, results = evidence.format, evidence.results
    mask = np.uint64(fmt.n_codes - 1)
    # differences of codes modulo their number
    for name, steps in (("missing", (results - given) & mask), ("too many", (given - results) & mask)):
        sizes = np.unique(steps[given != results])
        if sizes.size == 1 and int(sizes[0]).bit_count() == 1 and sizes[0] > 2 and isinstance(fmt, Fixed):
            bit = int(sizes[0]).bit_length() - 1
            # as a hypothesis the dump itself explains every difference, and nothing speaks against it
            yield f"a carry into bit {bit} {name}", given
