"""How long rows take, said before they are measured.

    estimate = for each process its start, and the seconds of its rows, once more for every peer beside them

The seconds were measured: one thread of an AMD EPYC (2 processors, AVX-512), kernels compiled before, processor time.
More threads take about as long, since every row has the same number of rounds and its data are made by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from benchmarks.measuring.processes import Job
from benchmarks.measuring.row import Row

#: Seconds of a row whose name matches; the first that does counts.
SECONDS = {
    "stage/*": 0.6,
    "scaled/*": 0.6,
    "call/int8*": 4.0,
    "call/*": 1.5,
    "product/int8": 3.6,
    "product/fp16-stepwise": 3.3,
    "product/*": 1.0,
    "codec/one-bit-encode": 2.3,
    "codec/*": 0.9,
    "sparse/step-*": 7.0,
    "sparse/*-10": 2.6,
    "sparse/*-1": 1.0,
    "step/lenet-*": 3.0,
    "step/dlu16": 6.2,
    "step/v100": 7.3,
    "step/*": 4.1,
    "pairs/*": 20.0,
    "matrix/*": 0.8,
    "growth/*": 0.5,
}
#: Seconds until a measuring process has loaded what it needs.
START_S = 2.0
#: What a small size and few rounds leave of a row's seconds.
QUICK_SHARE = 0.15


def seconds_of(row: Row) -> float:
    """Return about how many seconds a row takes.

    Examples:
        >>> from benchmarks.rows import select
        >>> [seconds_of(row) for row in select(["product/int8", "product/int16-11-bit"])]
        [1.0, 3.6]
    """
    return next(seconds for pattern, seconds in SECONDS.items() if fnmatchcase(row.name, pattern))


def row_seconds(job: Job, row: Row) -> float:
    """Return about how many seconds a row of a process takes, with the peers beside it."""
    peers = len(job.peers) if row.group == "table" else 0
    return seconds_of(row) * (1 + peers) * (QUICK_SHARE if job.quick else 1)


def estimate_s(planned: Iterable[Job]) -> float:
    """Return about how many seconds processes take one after the other."""
    return sum(START_S + sum(row_seconds(job, row) for row in job.rows) for job in planned)


def in_words(seconds: float) -> str:
    """Return a time as one says it.

    Examples:
        >>> in_words(7.2), in_words(64), in_words(421), in_words(5400)
        ('10 s', '60 s', '7 min', '1.5 h')
    """
    if seconds < 90:
        return f"{max(round(seconds / 10), 1) * 10} s"
    return f"{round(seconds / 60)} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
