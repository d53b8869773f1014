"""When steps that follow each other repeat: the mean over a cycle is how long a step takes.

    step          1       2       3       4       5       6
    took         70      90      80     100      80     100
    did           a       b       c       d       c       d       steps 5 and 6 did what 3 and 4 did: a cycle of two

Two steps do the same if everything in them happens at the same times after their beginnings. What is under way when a
step ends began in this step: so if as many steps as a cycle has repeat those before them, they repeat for ever.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

#: Steps after which no cycle is sought any more: the second half of them counts. Of 1,000 random settings
#: (`tests/cluster/step_limits.py`, seed 36) 181 were double-buffered, and 56 of these did not repeat by then.
MOST_STEPS = 256


class Cycle(NamedTuple):
    """Steps that repeat.

    Attributes:
        steps: how many.
        duration_ps: how long all of them take.
        spent: what they spend, by kind: arrays.
        busy: how long each resource is used, by name: arrays.
    """

    steps: int
    duration_ps: int
    spent: Mapping[str, Times]
    busy: Mapping[str, Times]


class Steps:
    """Steps that were played, one after the other.

    Attributes:
        cycle: the cycle at their end; None if they do not repeat yet.

    Examples:
        >>> steps = Steps()
        >>> for end, did in (70, "a"), (160, "b"), (240, "c"), (340, "d"), (420, "c"), (520, "d"):
        ...     steps.add(np.array([end]), {}, {}, [did])
        >>> steps.cycle
        Cycle(steps=2, duration_ps=180, spent={}, busy={})
    """

    def __init__(self) -> None:
        self.cycle: Cycle | None = None
        self._ends_ps: list[int] = [0]
        self._spent: list[tuple[Mapping[str, Times], Mapping[str, Times]]] = [({}, {})]
        self._did: list[int] = []

    @property
    def end_ps(self) -> int:
        """When the last step ended on all devices; 0 before the first."""
        return self._ends_ps[-1]

    def add(
        self,
        ends_ps: Times,
        spent: Mapping[str, Times],
        busy: Mapping[str, Times],
        did: Iterable[Hashable],
        *,
        at_rest: bool = False,
    ) -> None:
        """Add a step, and look for a cycle.

        Args:
            ends_ps: when it ended on each device.
            spent: what all steps so far have spent, by kind.
            busy: how long resources were used in all steps so far, by name.
            did: what happened in it, with times after its beginning.
            at_rest: whether all is as it was before the first step: then all steps are a cycle.
        """
        end_ps = int(ends_ps.max())
        self._did.append(hash((shifted(ends_ps, end_ps), *did)))
        self._ends_ps.append(end_ps)
        self._spent.append((spent, busy))
        count = len(self._did)
        length = count if at_rest else self._length()
        if length is None and count == MOST_STEPS:
            length = count // 2
        if length is not None:
            of_cycle = (
                {name: times - before.get(name, 0) for name, times in now.items()}
                for now, before in zip(self._spent[-1], self._spent[count - length], strict=True)
            )
            self.cycle = Cycle(length, end_ps - self._ends_ps[count - length], *of_cycle)

    def _length(self) -> int | None:
        """Return the fewest steps that repeat as many before them."""
        did = self._did
        return next((n for n in range(1, len(did) // 2 + 1) if did[-n:] == did[-2 * n : -n]), None)


def shifted(times_ps: Times, by_ps: int) -> bytes:
    """Return times counted from another moment, as bytes that can be compared."""
    return (times_ps - by_ps).tobytes()
