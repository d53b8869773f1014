"""Sentences about the intervals of a study that are not settled, and how many more seeds would settle them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import stdev

from emu.report.study.comparison import Row
from emu.report.study.difference import FAILS_BELOW, MARGIN, Difference, between, points, seeds_for
from emu.report.words import integer

_SETTLED = (
    "Settled: every interval lies on one side of -0.50, or reaches at most half a point to each side. No more seeds "
    "are needed."
)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each row whose interval is not settled, or one sentence that all are settled.

    Rows whose baseline guesses have none: more seeds would not help them.
    """
    paired = [(row, row.difference) for row in rows if row.difference is not None and not row.baseline_guesses]
    equal = [row.called for row, difference in paired if _is_equal(difference)]
    unsettled = [
        _open(row, difference) for row, difference in paired if not (_is_equal(difference) or difference.is_settled)
    ]
    if not equal and not unsettled:
        return [_SETTLED] if paired else []
    return [*unsettled, *_equal(equal)]


def _is_equal(difference: Difference) -> bool:
    """Return whether there are several differences, all equal."""
    # `is_statement` asks for three things; if two of them hold, it is the width that is missing.
    return difference.half is not None and not difference.is_statement and not difference.is_impossible


def _equal(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield (
            f"{', '.join(names)}: the differences of all seeds are equal, so that the interval has no width and is no "
            "statement. More test images would tell the runs apart."
        )


def _open(row: Row, difference: Difference) -> str:
    if difference.interval is None:
        return f"{row.called}: {points(difference.mean)} of one seed; an interval takes two at least."
    interval = between(*difference.interval)
    if difference.is_impossible:
        text = (
            f"its interval, {interval}, reaches beyond what is possible, {between(*difference.possible)}: no statement."
        )
    else:
        text = f"{difference} leaves open whether it is more than half a point worse."
    return f"{row.called}: {text} {_more_seeds(difference, list(row.paired.values()))}"


def _more_seeds(difference: Difference, differences: Sequence[float]) -> str:
    """Return a sentence about how many more seeds would settle the interval."""
    half = difference.settling_half
    # At least 1: with as many seeds as there are, the interval is not settled.
    more = max(seeds_for(half, stdev(differences)) - len(differences), 1)
    side = f"{'within what is possible, ' if difference.is_impossible else ''}on one side of {points(FAILS_BELOW)}"
    what = "narrow it to half a point on each side" if half == MARGIN else f"put it {side}"
    return f"If more seeds have the mean and the spread of these {len(differences)}, {integer(more)} more would {what}."
