"""Which thread goes to which processor."""

from __future__ import annotations

import os
import threading

import pytest

from benchmarks.measuring.pinning import assign, busiest, pinned, processors, thread_times

needs_linux = pytest.mark.skipif(not thread_times(), reason="this system does not say which threads ran")


def test_threads_of_one_side_never_share_a_processor():
    placed = assign([[1, 2], [1, 3], [4, 3], [5, 6]], [0, 1])
    assert all(placed[a] != placed[b] for a, b in [(1, 2), (1, 3), (4, 3), (5, 6)])


def test_a_side_with_more_threads_than_processors_leaves_some_free():
    assert assign([[1, 2, 3]], [7, 8]) == {1: 7, 2: 8}


def test_a_thread_that_only_waited_is_not_placed():
    assert busiest({1: 0, 2: 0, 3: 0}, {1: 1000, 2: 10, 3: 800}, 2) == [1, 3]
    assert busiest({}, {}, 2) == []


@needs_linux
def test_a_thread_that_works_is_seen_and_freed_again():
    everywhere = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def work() -> None:
        sum(range(2_000_000))
        seen.append(os.sched_getaffinity(threading.get_native_id()))

    with pinned([work], 1, processors()) as settle:
        settle()
        work()
        assert seen[-1] == {processors_of(everywhere)[0]}
    assert os.sched_getaffinity(0) == everywhere


def processors_of(allowed: set[int]) -> list[int]:
    """The processors allowed before pinning, as `processors` ranks them once everything is free again."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed)
    try:
        return processors()
    finally:
        os.sched_setaffinity(0, before)


@needs_linux
def test_more_threads_than_processors_are_not_pinned():
    before = os.sched_getaffinity(0)
    with pinned([lambda: sum(range(1000))], len(before) + 1, processors()) as settle:
        settle()
        assert os.sched_getaffinity(0) == before
