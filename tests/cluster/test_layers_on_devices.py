"""Whole layers on the devices of a node, the largest alone: who has which, what travels, what it takes (C9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_step_time import layers, plan

import emu
from emu.cluster.clipping import ClippingTable
from emu.cluster.codecs import codec_of
from emu.cluster.timing import Share, play
from emu.cluster.timing.grouping import devices_of, grouped
from emu.cluster.timing.program import MEMORY
from emu.hardware import Demand, Event

FP32 = emu.parse("fp32")
#: Inputs and outputs of three layers, the one in the middle the largest, and examples.
SIZES, EXAMPLES = ((64, 512), (512, 256), (256, 32)), 16


def share() -> Share:
    """Return what three layers of these sizes ask."""

    def product(layer: int, role: str, results: int) -> Demand:
        inputs, outputs = SIZES[layer]
        operands = ((FP32, EXAMPLES * (inputs if role == "activation" else outputs)), (FP32, inputs * outputs))
        return Demand(f"fc{layer}", role, "matmul", results, EXAMPLES * inputs * outputs, 0, operands, FP32)

    forward = [product(i, "activation", EXAMPLES * SIZES[i][1]) for i in range(3)]
    back = [
        product(i, role, results)
        for i in (2, 1, 0)
        for role, results in (("error", EXAMPLES * SIZES[i][0]), ("gradient", SIZES[i][0] * SIZES[i][1]))
    ]
    update = [
        Demand(f"fc{i}", "master", "add", a * b, 0, 0, ((FP32, a * b),) * 2, FP32) for i, (a, b) in enumerate(SIZES)
    ]
    shapes = {f"fc{i}.weight": (b, a) for i, (a, b) in enumerate(SIZES)}
    return Share(forward + back, update, shapes, dict.fromkeys(shapes, 4))


@given(loads=st.lists(st.integers(0, 100), min_size=1, max_size=12), devices=st.integers(1, 5))
def test_the_largest_layer_is_alone_and_the_others_balanced_c9(loads: list[int], devices: int):
    found = grouped({str(i): load for i, load in enumerate(loads)}, devices)
    largest = str(loads.index(max(loads)))
    assert set(found.values()) <= set(range(devices))
    if devices == 1:
        return
    assert [layer for layer, device in found.items() if device == 0] == [largest]
    sums = {d: sum(loads[int(layer)] for layer, device in found.items() if device == d) for d in range(1, devices)}
    others = [load for i, load in enumerate(loads) if str(i) != largest]
    if others:  # the last layer of the fullest device went to the least loaded one
        assert max(sums.values()) - min(sums.values()) <= max(others)


def test_layers_without_products_stay_where_their_inputs_are_c9():
    relu = Demand("relu", "activation", "relu", 8, 0, 0, ((FP32, 8),), FP32)
    work = [*share().computed]
    assert devices_of([work[0], work[1], relu, *work[2:]], 2) == {"fc0": 1, "fc1": 0, "relu": 0, "fc2": 1}


def by_device(events: tuple[Event, ...], kind: str) -> dict[int, set[str]]:
    """Return names of what devices did; with a fabric of one device a node, a device is a node."""
    found: dict[int, set[str]] = {}
    for event in events:
        if event.kind == kind:
            found.setdefault(event.node, set()).add(event.name.split()[0])
    return found


def test_a_layer_computes_updates_and_exchanges_on_its_device_alone_c9():
    step = plan(share(), nodes=2, model_parallel=2, model_split="layers", streaming=True)
    events = play(step, keeps_events=True).events
    large, small = {"fc1"}, {"fc0", "fc2"}
    for kind in ("forward", "backward", "update"):
        assert by_device(events, kind) == {0: large, 1: small, 2: large, 3: small}
    sent = [(e.name, e.node) for e in events if e.kind == "send" and e.name.endswith(": to owners")]
    places = {"fc0": (1, 3), "fc1": (0, 2), "fc2": (1, 3)}
    assert sorted(sent) == [(f"{name}: to owners", node) for name, nodes in places.items() for node in nodes]


@pytest.mark.parametrize("streaming", [False, True])
def test_activations_and_errors_travel_between_neighbouring_layers_and_gradients_stay_whole_c9(streaming: bool):
    options: Any = {"nodes": 2, "bits": 1, "streaming": streaming}
    split = play(plan(share(), **options, model_parallel=2, model_split="layers"))
    travels = 2 * 2 * EXAMPLES * (512 + 256) * 4  # of two nodes, there and back
    exchanged = sum(2 * codec_of(1).message_bytes(columns, rows) for columns, rows in share().shapes.values())
    assert split.sent_bytes == play(plan(share(), **options)).sent_bytes + travels
    assert split.sent_bytes == exchanged + travels


def test_a_pass_is_a_chain_through_the_devices_and_updates_run_side_by_side_c9():
    """One node: products as on one device, four transfers between them, the longer of two updates."""
    whole = play(plan(share(), nodes=2, bits=32).without_computing())
    assert whole.sent_bytes > 0
    step = plan(share(), nodes=1, model_parallel=2, model_split="layers")
    events = [event for event in play(step, keeps_events=True).events if event.resource != MEMORY]
    ends = {kind: max(e.end_ps for e in events if e.kind == kind) for kind in ("backward", "update")}
    products = sum(e.duration_ps for e in events if e.kind in ("forward", "backward"))
    sizes = [EXAMPLES * width * 4 for width in (512, 256, 256, 512)]
    transfers = sum(-(-size * 10**12 // (6 * 10**9)) + 10_000_000 for size in sizes)
    assert ends["backward"] == products + transfers
    updates = {n: sum(e.duration_ps for e in events if (e.kind, e.node) == ("update", n)) for n in (0, 1)}
    assert play(step).step_ps == ends["backward"] + max(updates.values())


@pytest.mark.parametrize("cluster", [{"exchange": "controllers"}, {"streaming": True}, {"owners": [1]}])
def test_grouped_layers_go_with_controllers_owners_and_clipping_c9(cluster: dict[str, Any]):
    one = share()
    clipped = Share(
        one.computed, one.updated, one.shapes, one.parameter_bytes, ClippingTable(rules=[{"rule": "variance"}])  # type: ignore[list-item]
    )  # fmt: skip
    step = plan(clipped, nodes=2, model_parallel=2, model_split="layers", **cluster)
    events = play(step, keeps_events=True).events
    assert {n: {name.rstrip(":") for name in names} for n, names in by_device(events, "clip").items()} == {
        0: {"fc1"}, 1: {"fc0", "fc2"}, 2: {"fc1"}, 3: {"fc0", "fc2"}
    }  # fmt: skip
    travels = 2 * 2 * EXAMPLES * (512 + 256) * 4
    assert play(step).sent_bytes == play(plan(clipped, nodes=2, **cluster)).sent_bytes + travels


def test_layers_are_all_on_one_device_where_there_is_one_c9():
    assert set(devices_of(layers(4).computed, 1).values()) == {0}
