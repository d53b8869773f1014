"""When steps that follow each other repeat: the mean over a cycle is how long a step takes.

    step          1       2       3       4       5       6
    took         70      90      80     100      80     100
    did           a       b       c       d       c       d       steps 5 and 6 did what 3 and 4 did: a cycle of two

Two steps do the same if everything in them happens at the same times after their beginnings. Whatever is under way when
a step ends began in this step, so this step alone decides how the next one goes. If the last n steps did what the n
steps before them did, the next n do it again, and so on for ever: they are a cycle.

A device with less to do than the slowest may get ahead of it, by the same time in every step, for thousands of steps,
because neither of the two has to wait for messages of the other. No two of these steps do the same, but their times
move evenly: from the second of three cycles to the third, each time moves as far as from the first to the second. The
slowest devices, whose times do not move, determine how long such a cycle takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

#: After so many steps without a cycle, the second half of them is taken in its place.
MOST_STEPS = 256
#: Before so many steps, times that move evenly are not taken for a cycle: a queue may be growing, and steps take longer
#: once devices wait for it.
FIRST_STEPS = 32
#: Lists of weights: of times within an array, and of arrays.
DEVICES, ROWS = 0, 1
#: Products and sums of digests are taken modulo this.
_WORD = 1 << 64


class Cycle(NamedTuple):
    """Steps that repeat.

    Attributes:
        steps: how many.
        duration_ps: how long all of them take.
        spent: what they spend, by kind: arrays.
        busy: how long each resource is used, by name: arrays.
        repeats: whether they do; else they are the last steps that were played.
    """

    steps: int
    duration_ps: int
    spent: Mapping[str, Times]
    busy: Mapping[str, Times]
    repeats: bool = True

    @property
    def busiest_ps(self) -> int:
        """How long the resource that is used most is used."""
        return max((int(times.max()) for times in self.busy.values()), default=0)


class _Did(NamedTuple):
    """What a step did.

    Attributes:
        names: digest of what happened, without times.
        times: digest of the times after its beginning, a linear function of them: if the times move evenly, so does it.
        duration_ps: how long it took.
    """

    names: int
    times: int
    duration_ps: int


class Steps:
    """Steps that were played, one after the other.

    Attributes:
        cycle: the cycle at their end; None if they do not repeat yet.

    Examples:
        >>> steps = Steps()
        >>> for end, did in (70, "a"), (160, "b"), (240, "c"), (340, "d"), (420, "c"), (520, "d"):
        ...     steps.add(np.array([end]), {}, {}, [did], [])
        >>> steps.cycle
        Cycle(steps=2, duration_ps=180, spent={}, busy={}, repeats=True)
    """

    def __init__(self) -> None:
        self.cycle: Cycle | None = None
        self._ends_ps: list[int] = [0]
        self._spent: list[tuple[Mapping[str, Times], Mapping[str, Times]]] = [({}, {})]
        self._did: list[_Did] = []

    @property
    def end_ps(self) -> int:
        """When the last step ended on all devices; 0 before the first."""
        return self._ends_ps[-1]

    def add(
        self,
        ends_ps: Times,
        spent: Mapping[str, Times],
        busy: Mapping[str, Times],
        names: Iterable[Hashable],
        times_ps: Iterable[Times],
        *,
        at_rest: bool = False,
    ) -> None:
        """Add a step, and look for a cycle.

        Args:
            ends_ps: when it ended on each device.
            spent: what all steps so far have spent, by kind.
            busy: how long resources were used in all steps so far, by name.
            names: what happened in it, in order.
            times_ps: when, by device.
            at_rest: whether all is as it was before the first step: then all steps are a cycle.
        """
        end_ps = int(ends_ps.max())
        # counted from the end of the step before, which is the beginning of this one
        times = _digest((ends_ps, *times_ps), self.end_ps)
        # hashes of texts differ from process to process; they are compared within this one only
        self._did.append(_Did(hash(tuple(names)), times, end_ps - self.end_ps))
        self._ends_ps.append(end_ps)
        self._spent.append((spent, busy))
        self.cycle = self._last(len(self._did), repeats=True) if at_rest else self._repeating()
        if self.cycle is None and len(self._did) == MOST_STEPS:
            self.cycle = self._last(MOST_STEPS // 2, repeats=False)

    def _repeating(self) -> Cycle | None:
        """Return the shortest cycle at the end of the steps."""
        did, count = self._did, len(self._did)
        for n in range(1, count // 2 + 1):
            # n steps equal to the n before them; the smallest n comes first
            if did[-n:] == did[-2 * n : -n]:
                return self._last(n, repeats=True)
            # each step of the last n, with those that lie n and 2n steps before it
            if count >= max(3 * n, FIRST_STEPS) and all(_moves_evenly(*did[i::-n][:3]) for i in range(-n, 0)):
                cycle = self._last(n, repeats=True)
                if cycle.busiest_ps <= cycle.duration_ps:  # else work piles up, and steps become longer
                    return cycle
        return None

    def _last(self, steps: int, *, repeats: bool) -> Cycle:
        """Return the last steps as a cycle."""
        before = len(self._did) - steps
        # totals at the end less totals before the cycle
        spent, busy = (
            {name: times - earlier.get(name, 0) for name, times in now.items()}
            for now, earlier in zip(self._spent[-1], self._spent[before], strict=True)
        )
        return Cycle(steps, self.end_ps - self._ends_ps[before], spent, busy, repeats)


def _moves_evenly(last: _Did, middle: _Did, first: _Did) -> bool:
    """Return whether three steps did the same in the same time, at times that are equally far from each other."""
    same = last.names == middle.names == first.names and last.duration_ps == middle.duration_ps == first.duration_ps
    # second difference 0: the digest is linear in times, so it moves evenly if all of them do
    return same and (last.times - 2 * middle.times + first.times) % _WORD == 0


def _digest(times_ps: Iterable[Times], began_ps: int) -> int:
    """Return a random linear combination of times after a beginning, modulo 2**64.

    Like two hashes, the combinations of different times may be equal by accident.
    """
    # a time before the beginning is negative: as uint64 it wraps, as all arithmetic modulo 2**64
    rows = [(times.reshape(-1) - began_ps).view(np.uint64) for times in times_ps]
    sums = [int((row * _weights(row.size, DEVICES)).sum()) for row in rows]
    return sum(int(weight) * total for weight, total in zip(_weights(len(rows), ROWS), sums, strict=True)) % _WORD


def _weights(count: int, kind: int) -> npt.NDArray[np.uint64]:
    """Return the first `count` of a fixed list of random words, odd so that a change of one time is never lost.

    Args:
        count: how many.
        kind: which list: with one for both, opposite changes at (i, j) and (j, i) would cancel.
    """
    # lists of 2, 4, 8, ... words, so that few of them are made
    return _list_of_weights(max(count - 1, 1).bit_length(), kind)[:count]


@lru_cache
def _list_of_weights(bits: int, kind: int) -> npt.NDArray[np.uint64]:
    """Return 2**bits words; longer lists begin with the shorter ones."""
    # an odd word is invertible modulo 2**64: times its weight, a change of one time is never 0
    return np.random.default_rng(kind).integers(0, _WORD, 1 << bits, np.uint64) | np.uint64(1)
