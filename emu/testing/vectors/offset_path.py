"""The likeliest offset of each line of a dump from the vector it belongs to: Viterbi's algorithm.

Source: A. Viterbi, "Error bounds for convolutional codes and an asymptotically optimum decoding algorithm", IEEE
Transactions on Information Theory 13 (1967).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emu.testing.vectors.shift_names import Offsets

Codes = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]
#: Lines that are aligned at a time.
BLOCK = 2048
#: Blocks whose path is sought; the lines after them keep the last offset.
MOST_BLOCKS = 64
#: Offsets that are always tried around 0 and around the last one, to either side, and how many are tried in all.
AROUND, MOST_OFFSETS = 12, 768
#: Vectors, at most, that have a code for it to be rare: only a rare one says where a line belongs.
MOST_OF_RARE = 12
#: Neighbouring codes, at most, that are looked up together where single ones are too common.
WIDEST = 4
#: What a path gains or loses, in bits: it gains at most so many for a line whose code is that of its vector; it loses
#: so many for a line whose code differs, for each change of the offset, and for each line by which the offset changes.
MOST_INFORMATION, AGAINST, CHANGE, CHANGE_PER_LINE = 16.0, 2.0, 14.0, 0.01


@dataclass(frozen=True, eq=False)
class Scoring:
    """What offsets of lines are worth, in bits."""

    results: Codes
    given: Codes
    known: Mask
    information: Scores

    @classmethod
    def between(cls, results: Codes, given: Codes, known: Mask) -> Scoring:
        """Return the scoring of a dump whose lines of `known` say something."""
        # log2(size / count): how many bits of surprise an equal code is
        _, positions, counts = np.unique(results, return_inverse=True, return_counts=True)
        information = np.minimum(np.log2(results.size / counts), MOST_INFORMATION)[positions.reshape(-1)]
        return cls(results, given, known, information)

    def equal(self, offsets: Offsets) -> Mask:
        """Return which of the first lines are right with their offsets."""
        return _equal(self.results, self.given, np.arange(offsets.size), offsets)

    def of(self, offsets: Offsets) -> float:
        """Return the worth of the offsets of the first lines, with no cost of changes."""
        lines = np.arange(offsets.size)
        vectors = np.clip(lines + offsets, 0, self.results.size - 1)
        gains = np.where(self.equal(offsets), self.information[vectors], -AGAINST)
        return float(gains[self.known[: offsets.size]].sum())

    def count(self, offsets: Offsets) -> int:
        """Return how many lines are right with their offsets; what is not known says nothing."""
        return int((self.equal(offsets) & self.known).sum())

    def with_changes(self, offsets: Offsets) -> float:
        """Return the worth of offsets, less that of their changes."""
        return self.of(offsets) - CHANGE * int(np.count_nonzero(np.diff(offsets, prepend=0)))


def best_path(scoring: Scoring) -> Offsets:
    """Return the likeliest path, block by block; where lines are in step with the last offset, it stays."""
    results, given, known = scoring.results, scoring.given, scoring.known
    offsets = np.zeros(given.size, np.int64)
    last = sought = 0
    votes: _Votes | None = None
    for start in range(0, given.size, BLOCK):
        block = slice(start, min(start + BLOCK, given.size))
        offsets[block] = last
        in_step = _equal(results, given, np.arange(block.start, block.stop), last)
        # nothing to seek: every line that says something is right where it is
        if (in_step | ~known[block]).all() or sought == MOST_BLOCKS:
            continue
        sought += 1
        votes = votes or _Votes(results, given)
        states = votes.offsets(np.arange(block.start, block.stop)[known[block]], last)
        offsets[block] = _path(scoring, states, block, last)
        last = int(offsets[block.stop - 1])
    return offsets


def _equal(results: Codes, given: Codes, lines: Offsets, offsets: Offsets | int) -> Mask:
    """Return whether lines are right with their offsets; a line without a vector is not."""
    vectors = lines + offsets
    inside = (vectors >= 0) & (vectors < results.size)
    return inside & (results[np.clip(vectors, 0, results.size - 1)] == given[lines])


class _Votes:
    """Where the codes of lines are among the vectors: a rare one votes for the offset to there."""

    def __init__(self, results: Codes, given: Codes) -> None:
        numbers, self._lines = _rare(results, given)
        self._order = np.argsort(numbers, kind="stable")
        self._ascending = numbers[self._order]

    def offsets(self, lines: Offsets, last: int) -> Offsets:
        """Return the offsets that lines may have, ascending.

        They are those with votes, those around them, around 0 and around `last`, and those between these.
        """
        lines = lines[lines < self._lines.size]
        low, high = (np.searchsorted(self._ascending, self._lines[lines], side) for side in ("left", "right"))
        votes = Counter[int]()
        # codes that many vectors have would vote for many offsets, nearly all wrong
        for i in np.flatnonzero((high > low) & (high - low <= MOST_OF_RARE)).tolist():
            votes.update((self._order[low[i] : high[i]] - lines[i]).tolist())
        states = {*range(last - AROUND, last + AROUND + 1), *range(-AROUND, AROUND + 1)}
        ordered = sorted(votes, key=lambda offset: (-votes[offset], abs(offset - last)))
        # beside an offset of several votes, its neighbours: a single line more or less
        around = [
            range(offset - 2, offset + 3) if votes[offset] > 1 else range(offset, offset + 1) for offset in ordered
        ]
        # lines that belong to no vector lower the offset one by one: all offsets between those of most votes are needed
        strong = [offset for offset in ordered if 4 * votes[offset] >= votes[ordered[0]] and votes[offset] > 1]
        between = sorted((range(*ends) for ends in pairwise(sorted({last, *strong}))), key=len)
        for offsets in [*around[: len(strong)], *between, *around[len(strong) :]]:
            if len(states) >= MOST_OFFSETS:
                break
            # too wide a range is left out, and a narrower one after it is tried
            if len(offsets) <= MOST_OFFSETS - len(states):
                states.update(offsets)
        return np.array(sorted(states), np.int64)


def _rare(results: Codes, given: Codes) -> tuple[Offsets, Offsets]:
    """Return numbers for codes, or for so many neighbouring ones that most of them are rare."""
    # dense numbers of codes, the vectors' first, then the dump's
    numbers = np.unique(np.concatenate([results, given]), return_inverse=True)[1].reshape(-1)
    singles, kinds = numbers, int(numbers.max()) + 1
    ours, theirs = numbers[: results.size], numbers[results.size :]
    for width in range(2, WIDEST + 1):
        counts = np.unique(ours, return_counts=True)[1]
        if 2 * int(counts[counts <= MOST_OF_RARE].sum()) >= ours.size or ours.size < 2 or theirs.size < 2:
            break
        # a window of neighbours as one number; those across the border of both arrays are cut off in the next line
        numbers = np.unique(numbers[:-1] * kinds + singles[width - 1 :], return_inverse=True)[1].reshape(-1)
        ours, theirs = numbers[: results.size - width + 1], numbers[results.size :]
    return ours, theirs


def _path(scoring: Scoring, states: Offsets, block: slice, last: int) -> Offsets:
    """Return the likeliest offset of each line of a block whose first line follows one of offset `last`."""
    results, given, known = scoring.results, scoring.given, scoring.known
    size = states.size
    # a change from offset s up to t costs CHANGE + CHANGE_PER_LINE * (t - s): with `climb` added before and taken off
    # after, the best s is a running maximum, instead of a search for each t
    climb = CHANGE_PER_LINE * states
    scores = np.where(states == last, 0.0, -CHANGE - CHANGE_PER_LINE * np.abs(states - last))
    # the same, if the line belongs to no vector: one of several that were inserted
    added = np.full(size, -np.inf)
    # int16: there are MOST_OFFSETS states and a few, twice as many with those of inserted lines, far below 32768
    back = np.empty((block.stop - block.start, size), np.int16)
    stays_added = np.empty(back.shape, np.bool_)
    own = np.arange(size)
    # a line further on never has a vector further back, but for a line that is there twice: the offset one less
    above = np.minimum(np.searchsorted(states, states + 1), size - 1)
    has_above = states[above] == states + 1
    for i, line in enumerate(range(block.start, block.stop)):
        # the best of all smaller offsets, from which vectors would be lost
        lifted = scores + climb
        best = np.maximum.accumulate(lifted)
        best_index = np.maximum.accumulate(np.where(lifted == best, own, 0))
        changed = best - climb - CHANGE
        twice = np.where(has_above, scores[above] - CHANGE - CHANGE_PER_LINE, -np.inf)
        # inserted lines stand at the vector before them: each lowers the offset, and only the first is a change
        begun = scores[above] - CHANGE
        stays_added[i] = added[above] > begun
        still_added = np.where(has_above, np.maximum(begun, added[above]) - CHANGE_PER_LINE, -np.inf)
        source = np.where(changed > scores, best_index, own)
        scores = np.maximum(scores, changed)
        source = np.where(twice > scores, above, source)
        scores = np.maximum(scores, twice)
        # numbers from `size` on mean that the line before was inserted
        back[i] = np.where(added > scores, size + own, source)
        scores = np.maximum(scores, added)
        added = still_added
        # a line that was never driven leaves all scores as they are
        if known[line]:
            vectors = line + states
            inside = (vectors >= 0) & (vectors < results.size)
            clipped = np.clip(vectors, 0, results.size - 1)
            equal = inside & (results[clipped] == given[line])
            scores = scores + np.where(equal, scoring.information[clipped], -AGAINST)
            # nothing is gained if the code is equal: an output that stands still would look like inserted lines
            added = added - AGAINST
    path = np.empty(block.stop - block.start, np.int64)
    state, is_added = int(np.argmax(scores)), False
    for i in range(path.size - 1, -1, -1):
        path[i] = states[state]
        if is_added:
            state, is_added = int(above[state]), bool(stays_added[i, state])
        else:
            from_added, state = divmod(int(back[i, state]), size)
            is_added = bool(from_added)
    return path
