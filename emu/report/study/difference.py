"""The difference of a device to the baseline, paired by seed: its mean, its interval, and when that is a statement.

    half = t(n - 1) * s / sqrt(n)          n differences with standard deviation s, Student's two-sided 95% quantile t

There is no statement for a single difference, for equal differences (no width), and if the interval reaches beyond what
is possible: an accuracy is at least 0 % and at most 100 %, so a mean difference to a baseline of 97 % lies in -97 .. +3
points. An interval may reach beyond by less than the margin, because its quantile is that of a symmetric distribution.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

#: Two-sided 95% quantiles of Student's t for 1..30 degrees of freedom; for more, `_quantile` has a series around the
#: quantile of the normal distribution.
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL_95 = 1.959964
#: A difference of accuracies matters if it exceeds this: half a point.
MARGIN = 0.005
#: A device fails a model if the whole interval of its difference lies below this.
FAILS_BELOW = -MARGIN
#: A narrower interval is that of equal differences: their subtractions round by about 1e-16, while one test image of a
#: million changes an accuracy by 1e-6.
_NO_WIDTH = 1e-9


def _quantile(freedom: int) -> float:
    """Return Student's two-sided 95% quantile. Source: beyond the table Abramowitz & Stegun 26.7.5, two terms."""
    if freedom <= len(_T_95):
        return _T_95[freedom - 1]
    # At 31 degrees of freedom the two terms are off by less than the last digit of the table.
    z = _NORMAL_95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def half_width(deviation: float, seeds: int) -> float:
    """Return half the width of the interval of `seeds` differences with this standard deviation."""
    return _quantile(seeds - 1) * deviation / math.sqrt(seeds)


def seeds_for(half: float, deviation: float) -> int:
    """Return the fewest seeds, 2 or more, whose interval is at most `half` to each side.

    Args:
        half: half of the wanted width, more than 0; of accuracies 0..1.
        deviation: standard deviation of the differences.

    Examples:
        >>> [seeds_for(MARGIN, deviation) for deviation in (0.0005, 0.005, 0.05)]
        [2, 7, 387]
    """
    # Doubling finds a number of seeds that is enough; the width falls with the number, so a bisection finds the fewest.
    most = 2
    while half_width(deviation, most) > half:
        most *= 2
    # The keys are False ... False, True ... True; if all are False, the index is the length, and the answer `most`.
    return 2 + bisect_left(range(2, most), True, key=lambda seeds: half_width(deviation, seeds) <= half)


def points(difference: float) -> str:
    """Return a difference of accuracies in points, with its sign."""
    return f"{round(100 * difference, 2) + 0.0:+.2f}"  # + 0.0: no -0.00


def between(low: float, high: float) -> str:
    """Return an interval of differences in points."""
    return f"{points(low)} .. {points(high)}"


@dataclass(frozen=True)
class Difference:
    """A paired difference of accuracies.

    Attributes:
        mean: device minus baseline, -1..1.
        half: half the width of its 95% interval; None for a single pair.
        possible: least and largest possible mean.
    """

    mean: float
    half: float | None
    possible: tuple[float, float] = (-1.0, 1.0)

    @classmethod
    def of(cls, differences: Sequence[float], baseline: float | None = None) -> Difference:
        """Return mean and interval of differences.

        Args:
            differences: device minus baseline, for each seed.
            baseline: mean accuracy of the baseline, 0..1; None if it is not known.
        """
        possible = (-1.0, 1.0) if baseline is None else (-baseline, 1.0 - baseline)
        n = len(differences)
        return cls(mean(differences), half_width(stdev(differences), n) if n > 1 else None, possible)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None for a single pair."""
        return None if self.half is None else (self.mean - self.half, self.mean + self.half)

    @property
    def is_impossible(self) -> bool:
        """Whether the interval reaches, by more than the margin, beyond the possible differences."""
        if self.interval is None:
            return False
        (low, high), (least, largest) = self.interval, self.possible
        return low < least - MARGIN or high > largest + MARGIN

    @property
    def is_statement(self) -> bool:
        """Whether there is an interval, it has a width, and it is possible."""
        return self.half is not None and self.half > _NO_WIDTH and not self.is_impossible

    @property
    def settling_half(self) -> float:
        """Half the width below which an interval around this mean is settled.

        It is settled if it reaches at most the margin to each side; or already at a larger width, if it lies on one
        side of the limit of failure and within what is possible.
        """
        least, largest = self.possible
        # How wide the interval may be before it counts as impossible; see `is_impossible`.
        within = min(self.mean - least, largest - self.mean) + MARGIN
        return max(MARGIN, min(abs(self.mean - FAILS_BELOW), within))

    @property
    def is_settled(self) -> bool:
        """Whether the interval lies on one side of the limit of failure, or reaches at most the margin to each side."""
        return self.is_statement and self.half is not None and self.half <= self.settling_half

    @property
    def is_failure(self) -> bool:
        """Whether the device is significantly worse: a statement, whose interval lies below the limit of failure."""
        return self.is_statement and self.interval is not None and self.interval[1] < FAILS_BELOW

    def __str__(self) -> str:
        if self.interval is None:
            return points(self.mean)
        return f"{points(self.mean)} ({between(*self.interval) if self.is_statement else 'no statement'})"
