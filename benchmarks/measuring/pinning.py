"""Threads held on processors of their own while a row is measured.

An operating system may wake both threads of a pool on one processor; what is called a figure for two threads is then
one for one. So: call every side once, see which threads worked, and give the threads of each side different
processors. Several pools share the processors, since only one of them works at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_TASKS = Path("/proc/self/task")
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
#: Share of a side's busiest thread below which another one only waited.
_WORKED = 0.05


def processors() -> list[int]:
    """Return the processors this process may run on, one of every core before the second of any; empty if unknown."""
    if not hasattr(os, "sched_getaffinity") or not _TASKS.is_dir():
        return []
    seen: dict[str, int] = {}
    ranked: list[tuple[int, int]] = []
    for processor in sorted(os.sched_getaffinity(0)):
        path = Path(_TOPOLOGY.format(processor))
        core = path.read_text() if path.exists() else str(processor)
        ranked.append((seen.get(core, 0), processor))
        seen[core] = seen.get(core, 0) + 1
    return [processor for _, processor in sorted(ranked)]


def assign(workers: Sequence[Sequence[int]], available: Sequence[int]) -> dict[int, int]:
    """Return thread -> processor so that the threads of one side do not meet.

    Args:
        workers: threads of each side, the busiest first.
        available: processors.

    Examples:
        >>> assign([[10, 11], [10, 12], [13, 12]], [0, 1])  # 10 takes part in two sides
        {10: 0, 11: 1, 12: 1, 13: 0}
    """
    placed: dict[int, int] = {}
    for side in workers:
        taken = {placed[thread] for thread in side if thread in placed}
        free = [processor for processor in available if processor not in taken]
        for thread in side:
            if thread not in placed and free:
                placed[thread] = free.pop(0)
    return placed


def busiest(before: Mapping[int, int], after: Mapping[int, int], threads: int) -> list[int]:
    """Return the threads that worked between two readings of `thread_times`, at most `threads`, the busiest first.

    Examples:
        >>> busiest({1: 0, 2: 5}, {1: 900, 2: 1005, 3: 2}, 2)
        [2, 1]
    """
    spent = {thread: time - before.get(thread, 0) for thread, time in after.items()}
    most = max(spent.values(), default=0)
    ranked = sorted(spent, key=lambda thread: (-spent[thread], thread))
    return [thread for thread in ranked if spent[thread] > _WORKED * most][:threads]


def thread_times() -> dict[int, int]:
    """Return the nanoseconds every thread of this process has run; empty where the system does not say."""
    times: dict[int, int] = {}
    if hasattr(os, "sched_yield"):
        os.sched_yield()  # the system counts a running thread's time at its next decision
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        with contextlib.suppress(OSError):  # a thread that has just ended
            times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return times


@contextmanager
def pinned(
    sides: Sequence[Callable[[], object]], threads: int, available: Sequence[int]
) -> Generator[Callable[[], None]]:
    """Give a function that pins the threads of `sides`, to be called when they are warm; free them at the end."""
    chosen = list(available[:threads])

    def settle() -> None:
        workers: list[list[int]] = []
        for side in sides:
            before = thread_times()
            side()
            workers.append(busiest(before, thread_times(), threads))
        for thread, processor in assign(workers, chosen).items():
            _move(thread, {processor})

    try:
        yield settle if len(chosen) == threads else lambda: None
    finally:
        for thread in thread_times() if chosen else ():
            _move(thread, set(available))


def _move(thread: int, where: set[int]) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, where)
