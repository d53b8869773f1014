"""Whether the machine gives every thread a whole processor at the moment.

A virtual machine's processors are threads of its host. The host may hold one back for seconds, or let a neighbour have
half of the core behind it, and tells nobody; what is called a figure for two threads is then one for one and a half.
So: do the same small work on every thread at once, again and again, and remember its shortest time. While it takes much
longer than that, whatever else is measured is not this machine's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from emu.backends.numba.compiling import kernel, over_ranges

#: Times the shortest time above which a processor is held back.
HELD_BACK = 1.25
#: Numbers each thread works on, in its first-level cache, and how often: some 2 ms, beside which waking is nothing.
NUMBERS, PASSES = 2048, 15000


@kernel
def _turn(numbers: np.ndarray, passes: int) -> None:
    for _ in range(passes):
        for i in range(numbers.size):
            numbers[i] = numbers[i] * np.float32(0.5) + np.float32(1.0)


class Steadiness:
    """Asks the machine, and counts what it was asked for in vain.

    Attributes:
        retaken: rounds that were measured again.
    """

    def __init__(self, threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Ask on that many threads of emu's pool."""
        self.retaken = 0
        self._threads, self._clock, self._shortest = threads, clock, math.inf
        self._numbers = [np.ones(NUMBERS, np.float32) for _ in range(threads)]
        self._work()  # compiles

    def ask(self) -> bool:
        """Return whether every thread has its processor."""
        start = self._clock()
        self._work()
        seconds = self._clock() - start
        self._shortest = min(self._shortest, seconds)
        return seconds <= HELD_BACK * self._shortest

    def _work(self) -> None:
        over_ranges(lambda _, first, last: self._turn(first, last), self._threads, 1, 1)

    def _turn(self, first: int, last: int) -> None:
        for numbers in self._numbers[first:last]:
            _turn(numbers, PASSES)
