"""Rules by which a point follows from a statistics register.

A word of W bits with n of them after the binary point holds -2**m <= x < 2**m, m = W - 1 - n (unsigned: m = W - n).
A result whose leading bit stands at exponent e is in this range exactly if e < m (docs/concepts/registers.md). So the
results that a register counts from m on are those outside the range.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.datapath import StatisticsRegister
from emu.formats import DynamicFixed
from emu.hardware import DynamicPoint


def range_exponent(word: DynamicFixed, point: int) -> int:
    """Return m: with `point` fraction bits, the word holds what is below 2**m."""
    return word.width_bits - word.signed - point


def smallest_range(register: StatisticsRegister, r_max: float) -> int | None:
    """Return the smallest m such that at most the share r_max of the results are outside its range.

    None if no result has a leading bit: all are 0, or the raw -1 of a fixed accumulator, which has none either.

    Source: docs/dynamic-fixed-point.md, "From counts to a point"; the quotient is a float64.
    """
    counts = register.histogram()
    if register.above or register.below:  # results beyond the positions count as if they were just beyond them
        assert register.lowest is not None
        assert register.bins is not None
        # one position beyond each end: how far results lie beyond is not counted
        top, bottom = register.lowest + register.bins, register.lowest - 1
        counts = {bottom: register.below, **counts, top: register.above}
    counts = {exponent: count for exponent, count in counts.items() if count}
    if not counts:
        return None
    # begins with the range that holds everything; each position that may lie outside makes it narrower by one
    beyond, m = 0, max(counts) + 1
    for exponent in sorted(counts, reverse=True):
        beyond += counts[exponent]
        # the share is of all results, zeros among them
        if beyond / register.total > r_max:
            return exponent + 1
        m = exponent
    return m


def by_leading_bits(register: StatisticsRegister, word: DynamicFixed, point: int, r_max: float) -> int:
    """Return the point of the smallest range that holds all but r_max of the results; `point` if they have no bits."""
    m = smallest_range(register, r_max)
    return point if m is None else range_exponent(word, m)


def by_single_bits(register: StatisticsRegister, word: DynamicFixed, point: int, r_max: float) -> int:
    """Return the point, moved by at most one bit toward a range that holds all but r_max of the results.

    One fraction bit less if more results are outside; one more if twice the values would still fit; the same if all
    are 0.

    Source: Courbariaux et al., ICLR 2015, section 5.
    """
    # 0.0: no share may be outside, so None means that there is nothing but zeros
    if smallest_range(register, 0.0) is None:
        return point
    m = range_exponent(word, point)
    if register.count_from(m) / register.total > r_max:
        return point - 1
    # a value of at least 2**(m - 1) leaves the range once it is doubled
    return point + 1 if register.count_from(m - 1) / register.total <= r_max else point


#: Rule by its name in `[dynamic_point]`.
RULES: dict[str, Callable[[StatisticsRegister, DynamicFixed, int, float], int]] = {
    "leading_bits": by_leading_bits,
    "courbariaux": by_single_bits,
}


def next_point(register: StatisticsRegister, word: DynamicFixed, point: int, table: DynamicPoint) -> int:
    """Return the point that a table's rule chooses, within its limits.

    Args:
        register: register of the results for which a point is chosen.
        word: word that they are written in.
        point: their fraction bits so far.
        table: rule, r_max and limits.
    """
    wanted = RULES[table.rule](register, word, point, table.r_max)
    if table.step_limit is not None:
        # no more than `step_limit` bits at once; limits of the table come last, so they always hold
        wanted = min(max(wanted, point - table.step_limit), point + table.step_limit)
    return min(max(wanted, table.lowest_point), table.highest_point)
