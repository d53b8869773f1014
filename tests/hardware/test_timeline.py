"""Resources and what they do when; the trace that a viewer opens."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from emu.hardware import Event, Timeline, chrome_trace

BOOKINGS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 50), st.none() | st.sampled_from("abc")),
    max_size=40,
)


@given(BOOKINGS)
def test_a_resource_does_one_thing_at_a_time_and_nothing_early(bookings: list[tuple[str, int, int, str | None]]):
    line = Timeline()
    for resource, duration, after, other in bookings:
        beside = {other: duration + 1} if other and other != resource else None
        end = line.book(resource, "x", duration, after=after, beside=beside)
        assert end >= after + duration
    for resource in line.resources():
        spans = sorted((event.begin_ps, event.end_ps) for event in line.events if event.resource == resource)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_what_is_done_side_by_side_begins_together_and_lasts_as_long_as_the_longest():
    line = Timeline()
    line.book("memory", "earlier", 100)
    assert line.book("vector", "conv1", 300, beside={"memory": 500}) == 600
    assert [(event.resource, event.begin_ps, event.duration_ps) for event in line.events[1:]] == [
        ("vector", 100, 300),
        ("memory", 100, 500),
    ]
    assert line.book("vector", "conv2", 10) == 410
    assert line.end_ps == 600


def test_a_timeline_goes_on_from_its_events():
    line = Timeline([Event("link", "a", 0, 70, "transfer", {})])
    assert line.book("link", "b", 5) == 75


def test_a_trace_has_a_named_track_for_each_resource_and_microseconds():
    events = [
        Event("link", "batch", 2_500_000, 1_000_000, "transfer", {"bytes": 64}),
        Event("vector", "fc1", 0, 1, "x", {}),
    ]
    trace = json.loads(json.dumps(chrome_trace("dlu16", events)))
    named = {row["tid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "thread_name"}
    done = [row for row in trace["traceEvents"] if row["ph"] == "X"]
    assert [(named[row["tid"]], row["name"], row["ts"], row["dur"]) for row in done] == [
        ("vector", "fc1", 0.0, 1e-6),
        ("link", "batch", 2.5, 1.0),
    ]
    assert done[1]["args"] == {"bytes": 64}
    assert done[1]["cat"] == "transfer"
