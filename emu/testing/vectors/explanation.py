"""What differences look like: a finding, and the sentences that name causes, how much each explains, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from emu.formats import Float
from emu.testing.vectors.causes.cover import Cover, cover, shared_cell
from emu.testing.vectors.causes.flags import flag_hypotheses
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.cells import cells_of
from emu.testing.vectors.description import Codes, Vectors
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.picture import flags_in_words, picture

#: Lines by which results may be late or early.
MOST_LAG = 64
#: Results of which all are the same before an output is said to be stuck.
FEWEST_STUCK = 4
#: A fault that explains less than a part in so many of the differences is not what a dump looks like.
FEW = 3


@dataclass(frozen=True)
class Finding:
    """The differences of a dump.

    Attributes:
        wrong: how many results differ.
        count: how many there are.
        index: the first one that differs, from 0; None if only flags do.
        lines: the explanation, line by line.
        causes: what would have given the differing codes, the likeliest first.
        wrong_scales: how many scales of blocks differ.
    """

    wrong: int
    count: int
    index: int | None
    lines: tuple[str, ...]
    causes: tuple[str, ...]
    wrong_scales: int = field(default=0, kw_only=True)

    def __str__(self) -> str:
        return "\n".join(self.lines)


def names_of_causes(explanation: Cover) -> tuple[str, ...]:
    """Return the names of causes; of a single one also the likeliest that vectors cannot tell from it."""
    names = [cause.name for cause in explanation.causes]
    if len(explanation.causes) == 1:
        names += explanation.causes[0].others[:1]
    return tuple(names)


def sentences_of(evidence: Evidence, explanation: Cover, count: int) -> Iterator[str]:
    """Yield the lines that name causes, how much each explains, and what the rest has in common."""
    causes, unknown = explanation.causes, int(explanation.unknown.sum())
    several = unknown > 0 or sum(1 for _ in causes) > 1
    for number, cause in enumerate(causes):
        explained = int(cause.explained.sum())
        first = "looks like" if FEW * explained >= count else "some of it looks like"
        share = f" ({explained} of {count} differences)" if several else ""
        yield f"{'       and' if number else first} {cause.name}{share}"
        if cause.others:
            second, *others = cause.others
            more = f", and {len(others)} more" if others else ""
            yield f"           which these vectors cannot tell from {second}{more}"
    if not unknown:
        return
    # behind the results are scales, which are in no cell
    inside = explanation.unknown[: evidence.results.size]
    is_of_results = int(inside.sum()) == unknown
    cell = shared_cell(cells_of(evidence.vectors, evidence), inside) if is_of_results else None
    shared = (
        ""
        if cell is None
        else f"; all of them are in the cell: {cell.name} ({unknown} of {int(cell.inside.sum())} there)"
    )
    if causes:
        yield f"{unknown} of {count} differences are unknown{shared}"
    else:
        yield f"looks like no fault that is known here{shared}"


def nan_pattern(evidence: Evidence, given: Codes) -> Iterator[Hypothesis]:
    """Yield the codes of a unit that writes the pattern of this dump for every NaN."""
    fmt, results = evidence.format, evidence.results
    if isinstance(fmt, Float) and fmt.nan_code is not None and evidence.is_nan.any():
        # the pattern that most NaNs of the dump have
        patterns, counts = np.unique(given[evidence.is_nan], return_counts=True)
        pattern = patterns[np.argmax(counts)]
        if np.isnan(fmt.decode(np.array([pattern]))).all():
            name = f"a NaN of another pattern: 0x{int(pattern):x}, the canonical one is 0x{fmt.nan_code:x}"
            yield name, np.where(evidence.is_nan, pattern, results)


def flag_cover(evidence: Evidence, flags: Codes, known: NDArray[np.bool_] | None = None) -> Cover:
    """Return which faults explain the flags of a dump, as `cover`."""
    return cover(flag_hypotheses(evidence), evidence.vectors.flags, flags, known)


def seen_in_codes(vectors: Vectors, given: Codes) -> Iterator[str]:
    """Yield what the codes themselves show: an output that is stuck, all lines out of step."""
    # few results may be equal by chance
    if given.size >= FEWEST_STUCK and np.unique(given).size == 1 and np.unique(vectors.results).size > 1:
        digits = -(-vectors.description.stage.format.width_bits // 4)
        yield f"an output that never changes: every result is 0x{int(given[0]):0{digits}x}"
        return
    # at least half of the lines must overlap, or a short dump would agree by chance
    for lag in range(1, min(MOST_LAG, given.size // 2) + 1):
        lines = "one line" if lag == 1 else f"{lag} lines"
        for name, ours, theirs in (
            ("late", slice(None, -lag), slice(lag, None)),
            ("early", slice(lag, None), slice(None, -lag)),
        ):
            if np.array_equal(vectors.results[ours], given[theirs]):
                yield f"every result {lines} too {name}"


def flags_compared(evidence: Evidence, flags: Codes, lines_of: NDArray[np.intp]) -> Finding | None:
    """Return the differences of flags where every result is right, None if there are none.

    Args:
        evidence: the vectors.
        flags: those of the dump, (count,).
        lines_of: the number of each vector in its file.
    """
    vectors = evidence.vectors
    differs = flags != vectors.flags
    if not differs.any():
        return None
    index = int(np.flatnonzero(differs)[0])
    explanation = flag_cover(evidence, flags)
    wrong, first = int(differs.sum()), int(lines_of[index])
    lines = [f"every result is right, but {wrong} of {flags.size} flags differ, the first at vector {first}:"]
    lines += [f"  {line}" for line in picture(vectors, None, index)]
    # in place of the picture's own line of flags
    lines[-1] = f"  expected flags  {flags_in_words(int(vectors.flags[index]))}"
    lines.append(f"  given flags     {flags_in_words(int(flags[index]))}")
    lines += sentences_of(evidence, explanation, int(differs.sum()))
    return Finding(0, flags.size, None, tuple(lines), names_of_causes(explanation))


def flags_beside(evidence: Evidence, flags: Codes, right: NDArray[np.bool_]) -> Iterator[str]:
    """Yield how flags differ if results differ as well; flags of wrong results do not show how flags are raised.

    Args:
        evidence: the vectors.
        flags: those of the dump.
        right: where its results are right.
    """
    differ = int((flags != evidence.vectors.flags).sum())
    if not differ:
        return
    # flags of wrong results follow from the wrong result: only the others are evidence
    wrong = flag_cover(evidence, flags, right)
    elsewhere = int(wrong_flags(wrong).sum())
    where = "" if elsewhere else ", all of them of results that differ"
    yield f"{differ} of {flags.size} flags differ, too{where}"
    yield from (f"  {line}" for line in sentences_of(evidence, wrong, elsewhere))


def wrong_flags(explanation: Cover) -> NDArray[np.bool_]:
    """Return which flags differ."""
    return np.any([explanation.unknown, *(cause.explained for cause in explanation.causes)], axis=0)
