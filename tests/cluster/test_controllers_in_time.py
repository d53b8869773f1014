"""Controllers and clipping in time: times of the schedule, what a trace obeys, bytes of the exchange (D1, D3, D4)."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_step_time import MACHINE, layers, plan

import emu
from emu.cluster import Controllers, Homes, Simulated
from emu.cluster.clipping import ClippingTable, schedule
from emu.cluster.codecs import codec_of
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Clips, Group, Kernels, Part, Program, StepSchedule, Task, Teams, alone, play
from emu.cluster.timing.messages import Messages
from emu.cluster.timing.program import MEMORY
from emu.cluster.timing.scheduling import Share, fabric_of, schedule_of
from emu.cluster.timing.step import _Playback
from emu.hardware import Event, Fabric
from emu.hardware.fabric import Path

FP32 = emu.parse("fp32")
TRIGGERS = ("next", "own", "after_all", "serial")
RULES: Any = [{"rule": "variance"}]


def worker_and_controller(costs: list[tuple[int, int, int]], trigger: Any, on: Any, worker: int = 0) -> StepSchedule:
    """Return the plan of one worker with layers of such costs, whose controller answers with nothing, in no time."""
    of_nodes = slice(None, None, 1 if worker == 0 else -1)
    names = [str(i) for i in range(len(costs))]
    tasks = tuple(
        Task(name, "backward", (Part("compute", b),), True) for name, (b, _, _) in zip(names, costs, strict=True)
    )
    groups = [
        Group(name, frozenset((name,)), 1, 1, x, 0, Messages(*(np.array([0, n])[of_nodes] for n in (1, x, 0, 1))))
        for name, (_, _, x) in zip(names, costs, strict=True)
    ]
    byte_ps = Path(10**12, 0, half_duplex=False, per_node=False)  # and no latency
    fabric = Fabric("one byte a picosecond", 2, 1, byte_ps, None, over_hosts=False, arbitration="first_come")
    kernels = Kernels(codec_of(32), codec_of(32), None)
    clips = Clips(trigger, on, {name: c for name, (_, c, _) in zip(names, costs, strict=True)})
    return StepSchedule(Program(tasks, ()), fabric, Teams(2, workers=[worker]), tuple(groups), kernels, clips=clips)


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize(("trigger", "end"), list(zip(TRIGGERS, (13, 12, 21, 30), strict=True)))
def test_a_step_of_ten_layers_of_cost_1_takes_the_published_times_d4(trigger: str, end: int, worker: int):
    assert play(worker_and_controller([(1, 1, 1)] * 10, trigger, "separate", worker)).step_ps == end


@example(costs=[(0, 1, 0), (0, 0, 1)], trigger="next", on="worker")  # the second waits for the first one's clip
@given(
    costs=st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=8),
    trigger=st.sampled_from(TRIGGERS),
    on=st.sampled_from(["worker", "separate"]),
)
def test_a_step_takes_as_long_as_the_schedule_whatever_the_costs_d4(costs: Any, trigger: str, on: str):
    assert play(worker_and_controller(costs, trigger, on)).step_ps == schedule(costs, trigger, on).end_ps  # type: ignore[arg-type]


def test_layers_without_gradients_are_not_exchanged_with_controllers_d3():
    """Nor in stripes, of which controllers have none: no demand completes the gradient."""
    table, device = ClusterTable(nodes=2, exchange="controllers"), emu.device("k20x-8x")
    share = Share((), (), {"fc.weight": (4, 3)}, {"fc.weight": 4})
    assert schedule_of(table, MACHINE, fabric_of(table, device), share).groups == ()


CLUSTERS: list[dict[str, Any]] = [
    {"nodes": 4},
    {"nodes": 4, "controllers": [1, 3], "placement": "least_loaded", "bits": 32},
    {"nodes": 5, "workers": [0, 1, 2, 3], "controllers": [4], "bits": 4},
    {"nodes": 3, "units": 2, "controllers": [2, 0]},
]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_every_layer_is_sent_once_and_bytes_are_those_of_the_controllers_d3(cluster: dict[str, Any], trigger: Any):
    shapes = {"fc0.weight": (30, 41), "fc0.bias": (1, 30), "fc1.weight": (9, 30), "fc2.weight": (1, 30)}
    share = replace(
        layers(3, 30), shapes=shapes, parameter_bytes=dict.fromkeys(shapes, 4),
        clipping=ClippingTable(rules=RULES, trigger=trigger),
    )  # fmt: skip
    table = ClusterTable(**cluster, exchange="controllers")
    real = Controllers(
        shapes, dict.fromkeys(shapes, FP32), table.layout(), table.codecs()[0], Simulated(table.nodes),
        homes=Homes(table.controllers, table.placement),
    )  # fmt: skip
    step = plan(share, exchange="controllers", **cluster)
    numbers = sum(columns * rows for columns, rows in shapes.values())
    within = table.nodes * (table.units - 1) * 2 * 4 * numbers  # gradients to a node's first unit, parameters back
    assert play(step).sent_bytes == real.step_bytes() + within
    found = play(step, keeps_events=True).events
    for layer in ("fc0", "fc1", "fc2"):
        to = real.controller_of[layer]
        senders = [e.node // table.units for e in found if (e.name, e.kind) == (f"{layer}: to owners", "send")]
        assert sorted(senders) == [node for node in table.layout().workers if node != to]
        receivers = [e.node // table.units for e in found if (e.name, e.kind) == (f"{layer}: to all", "receive")]
        assert sorted(receivers) == [node for node in range(table.nodes) if node != to]


def of_node(events: tuple[Event, ...], node: int) -> dict[tuple[str, str], Event]:
    """Return what a node's units and ports did, by name and kind; the memory works beside them."""
    return {(event.name, event.kind): event for event in events if event.node == node and event.resource != MEMORY}


@pytest.mark.parametrize("trigger", ["next", "own"])
@pytest.mark.parametrize("cluster", [{"exchange": "controllers"}, {"streaming": True}])
def test_layers_are_clipped_behind_their_gradient_and_sent_behind_that_beside_later_ones_d1(
    trigger: Any, cluster: dict[str, Any]
):
    count = 6
    share = replace(layers(count, 512, 16384), clipping=ClippingTable(rules=RULES, trigger=trigger))
    found = play(plan(share, nodes=3, bits=32, **cluster), keeps_events=True).events
    order = [f"fc{i}" for i in reversed(range(count))]
    for node in (1, 2):
        did = of_node(found, node)
        for place, layer in enumerate(order):
            clip, grad = did[f"{layer}: clip", "clip"], did[f"{layer} gradient", "backward"]
            send = did[f"{layer}: to owners", "send"]
            waits = min(place + (trigger == "next"), count - 1)
            assert clip.begin_ps >= did[f"{order[waits]} gradient", "backward"].end_ps >= grad.end_ps
            assert send.begin_ps >= clip.end_ps
            if place + 2 < count:
                assert send.begin_ps < did[f"{order[-1]} gradient", "backward"].end_ps
    assert {event.resource for event in found if event.kind == "clip"} == {"clipper"}


def test_a_controller_updates_when_gradients_of_all_workers_are_there_and_then_sends_parameters_d3():
    found = play(
        plan(layers(3), nodes=4, workers=[0, 1, 2], controllers=[3], exchange="controllers"), keeps_events=True
    )
    did = of_node(found.events, 3)
    for layer in ("fc0", "fc1", "fc2"):
        arrived = [e.end_ps for e in found.events if (e.name, e.kind) == (f"{layer}: to owners", "receive")]
        mean, update = did[f"{layer}: sum", "quantise"], did[f"{layer} master", "update"]
        assert len(arrived) == 3
        assert max(arrived) <= mean.begin_ps
        assert mean.end_ps <= update.begin_ps < update.end_ps <= did[f"{layer}: to all", "send"].begin_ps
    assert {event.node for event in found.events if event.kind == "update"} == {3}
    assert not any(event.node == 3 for event in found.events if event.kind in ("forward", "backward"))


def test_the_controller_of_a_single_node_updates_once_for_its_units_d3():
    """One node of two units: the first adds up, updates, and sends parameters; no time of the update is left out."""
    step = play(plan(layers(3), nodes=1, units=2, exchange="controllers", controllers=[0]))
    alone_ps = play(alone(MACHINE, layers(3))).update_ps
    assert step.update_ps == alone_ps > 0


@pytest.mark.parametrize(("clip", "owned"), [(10, (1, 2)), (7, (2, 2)), (9, (4, 5)), (1, (1, 1))])
def test_an_owner_clips_its_share_of_what_all_workers_sent_rounded_up_d4(clip: int, owned: tuple[int, int]):
    """Each of three workers' gradients takes `clip`; an owner of n of all N takes 3 n / N of that."""
    step = worker_and_controller([(1, clip, 1)], "after_all", "separate")
    counts = np.array([0, 0, 0, *owned])
    group = step.groups[0]._replace(numbers=sum(owned), messages=Messages(counts, counts, counts, counts))
    fabric = replace(step.fabric, nodes=5)
    step = replace(step, fabric=fabric, teams=Teams(5, workers=[0, 1, 2]), groups=(group,))
    clips = {e.node: e.duration_ps for e in play(step, keeps_events=True).events if e.kind == "clip"}
    assert clips == {3 + i: math.ceil(Fraction(3 * clip * n, sum(owned))) for i, n in enumerate(owned)}


def test_a_node_that_computes_nothing_has_the_time_of_the_first_worker_or_its_own_if_that_is_later():
    step = replace(worker_and_controller([(1, 1, 1)], "own", "separate"), teams=Teams(4, workers=[1, 3]))
    kept = _Playback(step, keeps_events=False)._of_computing(np.array([0, 7, 40, 7]), np.array([5, 30, 40, 20]))
    assert kept.tolist() == [20, 30, 40, 20]


def test_a_worker_that_clips_itself_takes_longer_than_one_with_another_processor_d3():
    tables = [ClippingTable(rules=RULES, on=on) for on in ("worker", "separate")]  # type: ignore[arg-type]
    for cluster in ({"exchange": "controllers"}, {}, {"streaming": True}):
        mine, other = (play(plan(replace(layers(4, 512, 4096), clipping=t), nodes=3, **cluster)) for t in tables)  # type: ignore[arg-type]
        assert mine.step_ps > other.step_ps
        assert mine.clip_ps == other.clip_ps


@pytest.mark.parametrize(("rules", "numbers"), [
    ([{"rule": "constant", "high": 1.0}], 2), ([{"rule": "variance"}], 4), ([{"rule": "momentum"}], 3),
    ([{"rule": "parameter_norm"}], 3), ([{"rule": "constant", "high": 1.0}, {"rule": "variance"}], 6),
])  # fmt: skip
def test_clipping_moves_so_many_numbers_through_the_memory_d2(rules: Any, numbers: int):
    """One device alone: each layer's clip takes its bytes at the memory's bandwidth."""
    share = replace(layers(1, 512), clipping=ClippingTable(rules=rules, on="worker"))
    clipped, free = play(alone(MACHINE, share)), play(alone(MACHINE, replace(share, clipping=None)))
    bandwidth = MACHINE.device.compute.memory_bandwidth_bytes_per_s
    assert bandwidth is not None
    moved_ps = numbers * 4 * 512 * 512 * 10**12 / bandwidth.value
    assert moved_ps <= clipped.clip_ps < moved_ps + len(rules) + 1
    assert clipped.step_ps == free.step_ps + clipped.clip_ps


def test_a_step_without_clipping_time_takes_as_long_as_one_without_clipping_d1():
    """Streaming waits for a clip that takes nothing."""
    free = plan(layers(4), nodes=4, streaming=True)
    idle = replace(free, clips=Clips("own", "separate", {}))
    assert play(idle).step_ps == play(free).step_ps
