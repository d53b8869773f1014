"""What a ratio means beside a bar and a goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.measuring.result import PeerResult, Result
from benchmarks.measuring.row import Row

Standing = Literal["goal", "bar", "below", "none"]


@dataclass(frozen=True)
class Verdict:
    """Where a row stands.

    Attributes:
        standing: the goal is reached, the bar is, it is not, or nothing was asked.
        text: for the table.
    """

    standing: Standing
    text: str


NOTHING_ASKED = Verdict("none", "")


def value_of(row: Row, result: Result) -> float | None:
    """Return the figure bar and goal are compared with: the ratio to the limit, or seconds."""
    if row.seconds_for is not None:
        return None if result.ours is None else row.seconds_for / result.ours.median
    return None if result.ratio is None else result.ratio.median


def judge(row: Row, result: Result) -> Verdict:
    """Return where a result stands."""
    value = value_of(row, result)
    if value is None or row.bar is None:
        return NOTHING_ASKED
    less_is_better = row.seconds_for is not None
    share = row.bar / value if less_is_better else value / row.bar
    if share < 1:
        return Verdict("below", f"{share:.2f} of the bar")
    if row.goal is None:
        return Verdict("bar", "bar")
    share = row.goal / value if less_is_better else value / row.goal
    return Verdict("goal", "goal") if share >= 1 else Verdict("bar", f"bar; {share:.2f} of the goal")


def judge_peer(row: Row, peer: PeerResult) -> Verdict:
    """Return whether a peer is as many times slower as the project promises."""
    asked = row.factors.get(peer.name)
    if asked is None or peer.slower is None:
        return NOTHING_ASKED
    if peer.slower.median >= asked:
        return Verdict("bar", f"at least {asked:g}: yes")
    return Verdict("below", f"at least {asked:g}: no")
