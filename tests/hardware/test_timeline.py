"""Resources and what they do when; the trace that a viewer opens."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from emu.hardware import Event, Timeline, chrome_trace

BOOKINGS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 50)),
    max_size=40,
)


@given(BOOKINGS)
def test_a_resource_does_one_thing_at_a_time_and_nothing_early(bookings: list[tuple[str, int, int]]):
    line = Timeline()
    for resource, duration, after in bookings:
        end = line.book(resource, "x", duration, after=after)
        assert end >= after + duration
    for resource in line.resources():
        spans = sorted((event.begin_ps, event.end_ps) for event in line.events if event.resource == resource)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


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


def test_resources_of_two_nodes_are_free_of_each_other():
    line = Timeline()
    assert (line.book("port", "a", 10), line.book("port", "b", 10, node=1), line.book("port", "c", 5)) == (10, 10, 15)
    assert (line.free("port"), line.free("port", 1)) == (15, 10)
    assert [event.node for event in Timeline(line.events).events] == [0, 1, 0]
    assert Timeline(line.events).book("port", "d", 1, node=1) == 11


def test_a_trace_of_many_nodes_has_a_named_process_for_each():
    events = [
        Event("port", "b", 5, 1, "send", {}, 3),
        Event("port", "a", 0, 1, "send", {}),
        Event("gpu", "c", 9, 1, "x", {}, 3),
    ]
    rows = chrome_trace("k20x-8x", events)["traceEvents"]
    assert [(row["pid"], row["args"]["name"]) for row in rows if row["name"] == "process_name"] == [
        (0, "k20x-8x, node 0"),
        (3, "k20x-8x, node 3"),
    ]
    tracks = {(row["pid"], row["tid"]): row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    done = [(row["pid"], tracks[row["pid"], row["tid"]], row["name"]) for row in rows if row["ph"] == "X"]
    assert done == [(0, "port", "a"), (3, "port", "b"), (3, "gpu", "c")]


def test_the_trace_of_one_node_is_that_of_a_machine_alone():
    trace = chrome_trace("dlu16", [Event("link", "batch", 0, 2_000_000, "transfer", {})])
    assert json.dumps(trace["traceEvents"]) == (
        '[{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "dlu16"}}, '
        '{"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "link"}}, '
        '{"name": "batch", "cat": "transfer", "ph": "X", "ts": 0.0, "dur": 2.0, "pid": 0, "tid": 0, "args": {}}]'
    )
