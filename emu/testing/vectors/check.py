"""A dump compared with vectors: the first difference explained, and what would cause all differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed, Float
from emu.testing.vectors.causes import further_hypotheses, hypotheses
from emu.testing.vectors.causes.cover import Cause, Cover, cover, shared_cell
from emu.testing.vectors.causes.flags import flag_hypotheses
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.causes.unseen import unseen
from emu.testing.vectors.cells import cells_of
from emu.testing.vectors.definition import ACCUMULATOR_BIT
from emu.testing.vectors.description import Codes, Vectors
from emu.testing.vectors.everything import Everything, rows_among_all
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.picture import flags_in_words, picture
from emu.testing.vectors.steering import reach_of

#: Lines by which results may be late or early.
MOST_LAG = 64
#: Results of which all are the same before an output is said to be stuck.
FEWEST_STUCK = 4
#: A fault that explains less than a part in so many of the differences is not what a dump looks like.
FEW = 3
#: Faults that are named if no vector shows them.
MOST_UNSEEN = 8


def what_they_tell(vectors: Vectors, everything: Everything | None = None) -> list[str]:
    """Return sentences: which cells have too few vectors, how often a limit is reached, which faults do not show.

    Args:
        vectors: operands and results.
        everything: all inputs of the operation, if they are few and were tried before.
    """
    evidence = Evidence(vectors)
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
    lines = [f"cells with enough vectors: {full} of {total}"]
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
        lines.append(f"cells with fewer vectors than wanted, as no others exist: {_listed(complete)}")
    if none:
        lines.append(f"cells that no operands reach: {_listed(none)}")
    perhaps = "no vector" if everything is not None else "no vector (perhaps no operands reach them)"
    for words, names in ((perhaps, empty), ("too few vectors", few)):
        if names:
            lines.append(f"cells with {words}: {_listed(names)}")
    return lines


def _listed(names: Sequence[str]) -> str:
    more = f"; and {len(names) - MOST_UNSEEN} more" if len(names) > MOST_UNSEEN else ""
    return "; ".join(names[:MOST_UNSEEN]) + more


@dataclass(frozen=True)
class Finding:
    """The differences of a dump.

    Attributes:
        wrong: how many results differ.
        count: how many there are.
        index: the first one that differs, from 0; None if only flags do.
        lines: the explanation, line by line.
        causes: what would have given the differing codes, the likeliest first.
    """

    wrong: int
    count: int
    index: int | None
    lines: tuple[str, ...]
    causes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def compare(
    vectors: Vectors, given: Codes, flags: Codes | None = None, *, undriven: NDArray[np.bool_] | None = None
) -> Finding | None:
    """Return the differences of codes and flags, None if there are none; what is `undriven` is not looked at."""
    lines_of = np.arange(given.size) if undriven is None else np.flatnonzero(~undriven)
    if undriven is not None:
        vectors, given, flags = vectors.at(lines_of), given[lines_of], None if flags is None else flags[lines_of]
    differs = given != vectors.results
    evidence = Evidence(vectors)
    if not differs.any():
        return None if flags is None else _flags_compared(evidence, flags, lines_of)
    index = int(np.flatnonzero(differs)[0])
    explanation = _cover_of(evidence, given, differs)
    lines = [f"{int(differs.sum())} of {given.size} results differ, the first at vector {int(lines_of[index])}:"]
    lines += [f"  {line}" for line in picture(vectors, given, index)]
    lines += _explained(evidence, explanation, int(differs.sum()))
    causes = _names(explanation)
    if flags is not None and (flags != vectors.flags).any():
        # flags of a wrong result are no evidence of how flags are raised
        wrong = _flag_cover(evidence, flags, ~differs)
        elsewhere = int(wrong_flags(wrong).sum())
        where = "" if elsewhere else ", all of them of results that differ"
        lines.append(f"{int((flags != vectors.flags).sum())} of {flags.size} flags differ, too{where}")
        lines += [f"  {line}" for line in _explained(evidence, wrong, elsewhere)]
    return Finding(int(differs.sum()), given.size, int(lines_of[index]), tuple(lines), causes)


def wrong_flags(explanation: Cover) -> NDArray[np.bool_]:
    """Return which flags differ."""
    return np.any([explanation.unknown, *(cause.explained for cause in explanation.causes)], axis=0)


def _names(explanation: Cover) -> tuple[str, ...]:
    """Return the names of causes; of a single one also the likeliest that vectors cannot tell from it."""
    names = [cause.name for cause in explanation.causes]
    if len(explanation.causes) == 1:
        names += explanation.causes[0].others[:1]
    return tuple(names)


def _explained(evidence: Evidence, explanation: Cover, count: int) -> Iterator[str]:
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
    cell = shared_cell(cells_of(evidence.vectors, evidence), explanation.unknown)
    shared = "" if cell is None else f"; all of them are in the cell: {cell.name} ({unknown} of {int(cell.inside.sum())} there)"
    if causes:
        yield f"{unknown} of {count} differences are unknown{shared}"
    else:
        yield f"looks like no fault that is known here{shared}"


def _cover_of(evidence: Evidence, given: Codes, differs: NDArray[np.bool_]) -> Cover:
    certain = list(_seen_in_codes(evidence.vectors, given))
    if certain:
        return Cover((Cause(certain[0], differs, tuple(certain[1:])),), differs & False)
    known = [*_nan_pattern(evidence, given), *hypotheses(evidence)]
    explanation = cover(known, evidence.results, given)
    if explanation.unknown.any():
        further = [*further_hypotheses(evidence, known, given), *_lost_power(evidence, given)]
        explanation = cover([*known, *further], evidence.results, given)
    if not explanation.causes and int(differs.sum()) == 1:
        bits = int(given[differs][0] ^ evidence.results[differs][0])
        if bits.bit_count() == 1:
            flipped = Cause(f"one flipped bit: bit {bits.bit_length() - 1} of this one result", differs)
            return Cover((flipped,), differs & False)
    return explanation


def _nan_pattern(evidence: Evidence, given: Codes) -> Iterator[Hypothesis]:
    """Yield the codes of a unit that writes the pattern of this dump for every NaN."""
    fmt, results = evidence.format, evidence.results
    if isinstance(fmt, Float) and fmt.nan_code is not None and evidence.is_nan.any():
        patterns, counts = np.unique(given[evidence.is_nan], return_counts=True)
        pattern = patterns[np.argmax(counts)]
        if np.isnan(fmt.decode(np.array([pattern]))).all():
            name = f"a NaN of another pattern: 0x{int(pattern):x}, the canonical one is 0x{fmt.nan_code:x}"
            yield name, np.where(evidence.is_nan, pattern, results)


def _lost_power(evidence: Evidence, given: Codes) -> Iterator[Hypothesis]:
    """Yield the dump itself if each of its differences is one power of two, as of a carry that is lost on its way."""
    fmt, results = evidence.format, evidence.results
    mask = np.uint64(fmt.n_codes - 1)
    for name, steps in (("missing", (results - given) & mask), ("too many", (given - results) & mask)):
        sizes = np.unique(steps[given != results])
        if sizes.size == 1 and int(sizes[0]).bit_count() == 1 and sizes[0] > 2 and isinstance(fmt, Fixed):
            bit = int(sizes[0]).bit_length() - 1
            yield f"a carry into bit {bit} {name}", given


def _flag_cover(evidence: Evidence, flags: Codes, known: NDArray[np.bool_] | None = None) -> Cover:
    return cover(flag_hypotheses(evidence), evidence.vectors.flags, flags, known)


def _seen_in_codes(vectors: Vectors, given: Codes) -> Iterator[str]:
    """Yield what the codes themselves show: an output that is stuck, all lines out of step."""
    if given.size >= FEWEST_STUCK and np.unique(given).size == 1 and np.unique(vectors.results).size > 1:
        digits = -(-vectors.description.stage.format.width_bits // 4)
        yield f"an output that never changes: every result is 0x{int(given[0]):0{digits}x}"
        return
    for lag in range(1, min(MOST_LAG, given.size // 2) + 1):
        lines = "one line" if lag == 1 else f"{lag} lines"
        for name, ours, theirs in (
            ("late", slice(None, -lag), slice(lag, None)),
            ("early", slice(lag, None), slice(None, -lag)),
        ):
            if np.array_equal(vectors.results[ours], given[theirs]):
                yield f"every result {lines} too {name}"


def _flags_compared(evidence: Evidence, flags: Codes, lines_of: NDArray[np.intp]) -> Finding | None:
    vectors = evidence.vectors
    differs = flags != vectors.flags
    if not differs.any():
        return None
    index = int(np.flatnonzero(differs)[0])
    explanation = _flag_cover(evidence, flags)
    wrong, first = int(differs.sum()), int(lines_of[index])
    lines = [f"every result is right, but {wrong} of {flags.size} flags differ, the first at vector {first}:"]
    lines += [f"  {line}" for line in picture(vectors, None, index)]
    lines[-1] = f"  expected flags  {flags_in_words(int(vectors.flags[index]))}"
    lines.append(f"  given flags     {flags_in_words(int(flags[index]))}")
    lines += _explained(evidence, explanation, int(differs.sum()))
    return Finding(0, flags.size, None, tuple(lines), _names(explanation))
