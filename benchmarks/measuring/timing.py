"""Alternating measurement: every side runs once per round, so that drift of the machine hits all of them.

    round 1   A B     round 2   B A     round 3   A B     ...

Times are divided by the calls of a sample, ratios are taken within a round, and what is reported is the median with
the quartiles beside it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Clock = Callable[[], float]
Work = Callable[[], object]


class Steady(Protocol):
    """Tells whether the machine does nothing else.

    Attributes:
        retaken: rounds that were taken again.
    """

    retaken: int

    def ask(self) -> bool:
        """Return whether it is so at the moment."""
        ...


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a sample.

    Attributes:
        median: the figure reported.
        low: first quartile.
        high: third quartile.
        count: size of the sample.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of a sample of at least one value.

        Examples:
            >>> Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
            Spread(median=3.0, low=2.0, high=4.0, count=5)
        """
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes:
        rounds: rounds wanted.
        least: rounds below which no budget stops the measuring.
        budget_s: no further round begins after this time.
        sample_s: a side that is done sooner runs several times per sample.
        warm_up: calls of every side before the first sample.
        retaken: rounds that are taken again at most, where the machine is not steady.
    """

    rounds: int = 15
    least: int = 3
    budget_s: float = 20.0
    sample_s: float = 2e-3
    warm_up: int = 2
    retaken: int = 30


#: Fast enough for a look, too short for the record.
QUICK = Pace(rounds=3, least=1, budget_s=0.3, sample_s=2e-4, warm_up=1)
FULL = Pace()
#: As exact as `FULL` on a machine that does nothing else, and soon over on one that does.
LOOK = Pace(budget_s=3.0)


def alternate(
    sides: Sequence[Work],
    pace: Pace = FULL,
    *,
    clock: Clock = time.perf_counter,
    settle: Callable[[], None] = lambda: None,
    steady: Steady | None = None,
) -> list[list[float]]:
    """Return seconds per call of every side, one value per round; the values of a round belong together.

    A round that begins or ends while the machine is not steady is taken again,
    at most `pace.retaken` times and as long as the budget lasts; behind that, rounds are taken as they come.

    Args:
        sides: what to measure; each is called at least `pace.warm_up + 1` times.
        pace: how long.
        clock: returns seconds.
        settle: called behind the warm-up, before the first sample; pins threads.
        steady: asked before and behind every round; None takes rounds as they come.
    """
    calls = [_calls_per_sample(side, pace, clock) for side in sides]
    settle()
    seconds: list[list[float]] = [[] for _ in sides]
    begin, forward, left = clock(), True, pace.retaken
    while len(seconds[0]) < pace.rounds:
        late = clock() - begin > pace.budget_s
        if late and len(seconds[0]) >= pace.least:
            break
        order = range(len(sides))[:: 1 if forward else -1]
        quiet = steady is None or steady.ask()
        found = {i: _sample(sides[i], calls[i], clock) for i in order}
        if steady is not None and not (steady.ask() and quiet) and left > 0 and not late:
            steady.retaken += 1
            left -= 1
            continue
        forward = not forward
        for i, values in enumerate(seconds):
            values.append(found[i])
    return seconds


def _calls_per_sample(side: Work, pace: Pace, clock: Clock) -> int:
    """Warm a side up; return how many calls make a sample long enough."""
    once = math.inf
    for _ in range(pace.warm_up):
        once = min(once, _sample(side, 1, clock))
    return 1 if once >= pace.sample_s else math.ceil(pace.sample_s / max(once, 1e-9))


def _sample(side: Work, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        side()
    return (clock() - start) / calls


def rates(seconds: Sequence[float], amount: float) -> Spread:
    """Return the spread of amount per second.

    Examples:
        >>> rates([0.5, 1.0, 2.0], 4.0).median
        4.0
    """
    return Spread.of([amount / s for s in seconds])


def ratios(ours: Sequence[float], amount: float, theirs: Sequence[float], their_amount: float) -> Spread:
    """Return the spread of our rate over theirs, round by round.

    Examples:
        >>> ratios([1.0, 1.0, 1.0], 6.0, [1.0, 2.0, 4.0], 2.0).median  # 6 a second against 2, 1 and 0.5
        6.0
    """
    return Spread.of([amount / a / (their_amount / b) for a, b in zip(ours, theirs, strict=True)])
