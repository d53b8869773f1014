"""The time of a cluster's step: closed forms, bytes, overlap, and one device as training simulates it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nominal import k20x

import emu
from emu import ConfigError
from emu.cluster import Exchange, Layout, Simulated
from emu.cluster.codecs import codec_of
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import (
    DeviceTimelines,
    Processes,
    Share,
    Signal,
    StepSchedule,
    Teams,
    alone,
    fabric_of,
    play,
    schedule_of,
)
from emu.cluster.timing.controlling import Controlled, Sizes, load_ps
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.program import MEMORY, Part, Task, program_of
from emu.cluster.timing.striping import Striped, striped_shapes
from emu.hardware import Demand, Fabric, Machine, Path, Traffic, load_device
from emu.training import load_recipe
from emu.training.time.simulation import HostWork, Simulation
from emu.training.time.work import work_of

FP32 = emu.parse("fp32")
K20X = k20x()
MACHINE = Machine(K20X)
#: Picoseconds of a byte's way and of a message's latency: 6 GB/s, 10 us.
LATENCY_PS = 10_000_000


def layers(count: int, size: int = 64, examples: int = 16) -> Share:
    """Return what `count` linear layers of size x size ask."""
    square, batch = size * size, examples * size
    products = batch * size

    def product(layer: int, role: str, results: int) -> Demand:
        return Demand(f"fc{layer}", role, "matmul", results, products, 0, ((FP32, batch), (FP32, square)), FP32)

    forward = [product(i, "activation", batch) for i in range(count)]
    back = [product(i, role, n) for i in reversed(range(count)) for role, n in (("error", batch), ("gradient", square))]
    update = [Demand(f"fc{i}", "master", "add", square, 0, 0, ((FP32, square),) * 2, FP32) for i in range(count)]
    names = [f"fc{i}.weight" for i in range(count)]
    return Share(forward + back, update, dict.fromkeys(names, (size, size)), dict.fromkeys(names, 4))


def plan(share: Share, **cluster: Any) -> StepSchedule:
    table = ClusterTable(**cluster)
    fabric = Fabric.of(K20X, nodes=table.nodes * table.units * table.model_parallel, enough_ports=True)
    return schedule_of(table, MACHINE, fabric, share)


@pytest.mark.parametrize("device", ["p100", "k20x-8x", "dlu16", "v100"])
@pytest.mark.parametrize("model", ["mlp", "lenet", "transformer"])
def test_a_device_alone_takes_its_operations_one_after_the_other_or_the_next_batch(model: str, device: str):
    """Host, link, memory and all, added up by hand; a training run simulates the same step."""
    recipe = load_recipe(model)
    machine, work = Machine(load_device(device)), work_of(recipe, load_device(device), 32)
    size, demands = work.input_elements, [*work.first_pass, *work.update]
    taken = 0
    for demand in demands:
        time = machine.time_of(demand)
        taken += time.start_ps + max(time.unit_ps, time.memory_ps)
        if time.unit == machine.host:
            taken += sum(machine.transfer_ps(moved) for moved in machine.host_bytes(demand) if moved)
    batch_ps = 0
    if machine.host is not None:
        unit = machine.device.compute.units[machine.host]
        assert unit.lanes is not None
        cycles = -(-size // int(unit.lanes.value))
        batch_ps = -(-cycles * 10**12 // round(machine.clock_hz(machine.host))) + machine.transfer_ps(size)
    share = Share(work.first_pass, work.update, work.shapes, batch_elements=size, batch_bytes=size)
    assert play(alone(machine, share)).step_ps == max(taken, batch_ps)
    training = Simulation(machine, HostWork(size, size))
    for step in (1, 2):
        before = training.total_ps
        training.demands += demands
        training.end_step(step, "training")
    assert training.total_ps - before == max(taken, batch_ps)


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_an_exchange_is_its_rounds_one_after_the_other_c6(nodes: int):
    """2 (K - 1) messages of 1 / K of the gradient, and the latency of two phases: rounds follow without a gap."""
    rows = 96
    share = replace(layers(1), shapes={"fc0.weight": (nodes * 10, rows)})
    quiet = play(plan(share, nodes=nodes, bits=32).without_computing())
    message_ps = -(-10 * rows * 4 * 10**12 // (6 * 10**9))
    assert quiet.step_ps == 2 * ((nodes - 1) * message_ps + LATENCY_PS)
    assert quiet.send_ps == 2 * (nodes - 1) * message_ps


@pytest.mark.parametrize("cluster", [
    {"nodes": 4},
    {"nodes": 5, "bits": 4, "owner_bits": 2},
    {"nodes": 5, "owners": [4]},
    {"nodes": 4, "owners": [1, 3, 3], "bits": 32},
    {"nodes": 8, "streaming": True},
    {"nodes": 5, "workers": [0, 2, 3], "bits": 2},
    {"nodes": 5, "workers": [0, 1, 2, 3], "owners": [4], "streaming": True},
])  # fmt: skip
def test_the_bytes_sent_are_those_of_the_exchange_c5(cluster: dict[str, Any]):
    share = replace(layers(3, 30), shapes={"fc0.weight": (30, 41), "fc1.weight": (9, 30), "fc2.weight": (1, 30)})
    table = ClusterTable(**cluster)
    codec, owner_codec = table.codecs()
    real = Exchange(
        dict(share.shapes), table.layout(), codec, Simulated(table.nodes), owner_codec=owner_codec
    ).step_bytes()
    assert play(plan(share, **cluster)).sent_bytes == real


@pytest.mark.parametrize("cluster", [
    {}, {"bits": 32}, {"streaming": True}, {"double_buffering": True, "bits": 32},
    {"double_buffering": True, "streaming": True}, {"units": 2}, {"quantise_own": False},
])  # fmt: skip
@pytest.mark.parametrize("nodes", [3, 4, 16])
def test_two_nodes_stand_for_all_where_all_are_alike(
    nodes: int, cluster: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    share = layers(3, 16 * nodes)
    step = plan(share, nodes=nodes, **cluster)
    assert step.is_alike
    short = play(step)
    monkeypatch.setattr(StepSchedule, "is_alike", False)
    assert play(step) == short


def test_a_step_of_1024_nodes_and_50_layers_costs_rounds_and_not_messages(monkeypatch: pytest.MonkeyPatch):
    """What is given to the fabric grows with K: two phases of K - 1 rounds for each layer, of two devices."""
    passed: list[int] = []
    through = Traffic.ring

    def counted(self: Traffic, members: Any, *sizes: Any, rounds: int, **options: Any) -> Any:
        passed.append(rounds * len(members))
        return through(self, members, *sizes, rounds=rounds, **options)

    monkeypatch.setattr(Traffic, "ring", counted)
    for nodes in (256, 1024):
        passed.clear()
        play(plan(layers(50, 1024), nodes=nodes, streaming=True))
        assert sum(passed) == 2 * 2 * (nodes - 1) * 50


@pytest.mark.parametrize(
    "cluster", [{"double_buffering": True}, {"streaming": True}, {"model_parallel": 2}, {"units": 2}]
)
def test_a_step_whose_events_are_kept_takes_as_long_as_one_whose_are_not(cluster: dict[str, Any]):
    """Of events every message is followed; without them a phase is one call."""
    share = layers(3, 64)
    shapes = {"fc0.weight": (64, 41), "fc0.bias": (1, 64), "fc1.weight": (9, 30), "fc2.weight": (7, 30)}
    step = plan(replace(share, shapes=shapes, parameter_bytes=dict.fromkeys(shapes, 4)), nodes=8, **cluster)
    assert not step.is_alike
    assert replace(play(step, keeps_events=True), events=()) == play(step)


def test_buffered_steps_take_the_longer_of_computing_and_exchanging_c7():
    small, large = layers(3, 512, 16), layers(3, 512, 65536)
    for share in (small, large):
        found = play(plan(share, nodes=4, bits=32, double_buffering=True))
        busy = found.compute_ps + found.quantise_ps + found.update_ps
        if share is large:
            assert found.step_ps == busy
            assert found.wait_ps == 0
        else:  # the ports work all the time, but for the latency and the sum between two phases
            between = found.quantise_ps + 2 * LATENCY_PS
            assert found.send_ps < found.step_ps <= found.send_ps + between


def test_streaming_hides_all_but_the_first_layers_exchange_c7():
    """The gradient of the layer that comes last backward has nothing left to hide behind."""
    share = layers(6, 512, 16384)
    whole, streamed = (play(plan(share, nodes=4, bits=1, streaming=streams)) for streams in (False, True))
    assert whole.compute_ps == streamed.compute_ps
    assert streamed.step_ps < whole.step_ps
    one = play(plan(layers(1, 512), nodes=4, bits=1).without_computing()).step_ps
    assert streamed.wait_ps <= one


def test_copies_of_a_chunk_run_beside_the_send_of_another_c7():
    """Over hosts a message is copied up, sent, copied down; in pieces, all three at once."""
    device = load_device("k20x-dual-24")
    times = []
    for chunks in (1, 8):
        table = ClusterTable(nodes=4, bits=32, chunks=chunks)
        times.append(play(schedule_of(table, Machine(device), fabric_of(table, device), layers(2, 512))).step_ps)
    assert times[1] < times[0]


def test_an_owner_that_adds_its_own_part_as_it_is_does_not_encode_it_c5():
    """Two nodes, a stripe each of 60 lines of 32 numbers; the third owns nothing and encodes all."""
    share = replace(layers(1), shapes={"fc0.weight": (120, 32)})
    options: dict[str, Any] = {"nodes": 4, "workers": [0, 2], "owners": [0, 1]}
    one = plan(share, **options, quantise_own=False)
    kernels, stripe, message = one.kernels, 60 * 32, codec_of(1).message_bytes(60, 32)
    found, plain = (play(schedule, keeps_events=True) for schedule in (one, plan(share, **options)))
    assert found.sent_bytes == plain.sent_bytes

    def durations(events: Any, name: str) -> list[int]:
        return [sum(e.duration_ps for e in events if e.node == node and e.name == f"gradients: {name}")
                for node in range(4)]  # fmt: skip

    half, whole = kernels.moved_ps(12 * stripe + message), kernels.moved_ps(2 * (12 * stripe + message))
    assert durations(found.events, "encode") == [half, 0, whole, 0]
    assert durations(plain.events, "encode") == [whole, 0, whole, 0]
    coded = 4 * stripe + 12 * stripe + message  # the sums are written, and encoded
    as_it_is, of_two = kernels.moved_ps(4 * stripe + message + coded), kernels.moved_ps(2 * message + coded)
    assert durations(found.events, "sum") == [as_it_is, of_two, 0, 0]
    assert durations(plain.events, "sum") == [of_two, of_two, 0, 0]


def test_units_of_a_node_add_up_before_they_send_c1():
    """Two units: what goes between nodes stays the same, and each unit sends float32 to the first, which answers."""
    share = layers(2, 64)
    one, two = (play(plan(share, nodes=4, units=units)) for units in (1, 2))
    numbers, message = 2 * 64 * 64, 2 * codec_of(1).message_bytes(64, 64)
    assert two.sent_bytes - one.sent_bytes == 4 * (4 * numbers + message)
    assert two.quantise_ps > one.quantise_ps


def test_four_by_two_halves_gradients_and_sends_activations_c9():
    share = layers(3, 64, 32)
    whole, striped = (play(plan(share, nodes=4, bits=32, model_parallel=m)) for m in (1, 2))
    activations = 32 * 64 // 2 * 4  # half of a layer's units
    forward, back = 2 * activations * 8, 3 * activations * 8  # the input is there; 8 devices send
    assert striped.sent_bytes == whole.sent_bytes + forward + back
    assert striped.compute_ps < whole.compute_ps
    assert Teams(4, 1, 2).replicas == 4


def test_events_of_a_step_name_their_nodes_and_add_up():
    step = plan(layers(2, 64), nodes=3)
    found = play(step, keeps_events=True)
    assert {event.node for event in found.events} == {0, 1, 2}
    of_units = [event for event in found.events if event.resource != MEMORY]
    for node in range(3):
        kinds = {kind: sum(e.duration_ps for e in of_units if (e.node, e.kind) == (node, kind))
                 for kind in ("forward", "backward", "update")}  # fmt: skip
        assert kinds["forward"] + kinds["backward"] == found.compute_ps
        assert kinds["update"] == found.update_ps
    received = sum(event.details["bytes"] for event in found.events if event.kind == "receive")
    assert received == found.sent_bytes


def test_owners_and_model_striping_do_not_go_together():
    with pytest.raises(ConfigError, match="`owners` must be left out if `model_parallel` is above 1"):
        plan(layers(1), nodes=4, owners=[0], model_parallel=2)


def test_more_owners_than_columns_are_refused():
    with pytest.raises(ConfigError, match="at least one column for each of the 8 owners, got 4"):
        plan(layers(1, 4), nodes=8)
    assert Layout(8).owners == tuple(range(8))


# ---- D4: backward, clip, send, on the same engine ----


def clipped_step(layers: int, b: int, c: int, x: int, trigger: str) -> int:
    """Return how long a step takes whose layers are clipped and sent as `trigger` says."""
    line, run = DeviceTimelines(1), Processes()
    ready = [Signal() for _ in range(layers)]
    ends: list[int] = []

    def does(resource: str, duration: int, now: Any) -> Any:
        yield now
        done = line.book(resource, trigger, duration, now)
        ends.append(int(done[0]))
        return done

    def at(signal: Signal) -> Any:
        yield signal
        return signal.at_ps

    def backward() -> Any:
        now = line.start()
        for signal in ready:
            now = yield from does("compute", b, now)
            run.set(signal, now)
            if trigger == "serial":
                now = yield from does("clip", c, now)
                now = yield from does("port", x, now)

    def behind(layer: int) -> Any:
        now = yield from at(ready[layer if trigger == "own" else min(layer + 1, layers - 1)])
        now = yield from does("clip", c, now)
        yield from does("port", x, now)

    def sent_then_clipped(layer: int) -> Any:
        now = yield from at(ready[layer])
        now = yield from does("port", x, now)
        if layer == layers - 1:
            for _ in range(layers):
                now = yield from does("clip", c, now)

    run.start(backward())
    for layer in range(layers if trigger != "serial" else 0):
        run.start(sent_then_clipped(layer) if trigger == "after_all" else behind(layer))
    run.run()
    return max(ends)


@pytest.mark.parametrize(("trigger", "expected"), [("next", 13), ("own", 12), ("after_all", 21), ("serial", 30)])
def test_ten_layers_of_cost_1_take_the_published_times_d4(trigger: str, expected: int):
    assert clipped_step(10, 1, 1, 1, trigger) == expected


@pytest.mark.parametrize("costs", [(5, 2, 3), (3, 3, 1), (2, 1, 2)])
def test_other_costs_take_the_closed_forms_d4(costs: tuple[int, int, int]):
    (b, c, x), count = costs, 7
    assert clipped_step(count, b, c, x, "next") == count * b + c + max(c, x) + x
    assert clipped_step(count, b, c, x, "own") == b + c + x + (count - 1) * max(b, c, x)
    assert clipped_step(count, b, c, x, "after_all") == b + x + (count - 1) * max(b, x) + count * c
    assert clipped_step(count, b, c, x, "serial") == count * (b + c + x)


def test_a_device_has_a_stripe_of_units_whichever_way_lines_run_c9():
    """A matrix of 7 units with 10 inputs, and its bias."""
    assert striped_shapes({"w": (7, 10), "b": (1, 7)}, 2) == {"w": (4, 10), "b": (1, 4)}
    assert striped_shapes({"w": (10, 7), "b": (1, 7)}, 2, "inputs") == {"w": (10, 4), "b": (1, 4)}
    assert striped_shapes({"w": (10, 7), "b": (1, 7)}, 2, by_rows=["w"]) == {"w": (10, 4), "b": (1, 4)}


# ---- closed forms of kernels, and of what devices exchange in a loss ----


def test_a_kernel_takes_the_bytes_that_its_formula_moves_c1():
    """A memory of one byte a picosecond; messages of 7 bytes are made and read."""
    plain, coded = (Kernels(codec_of(bits), codec_of(bits), 10.0**12) for bits in (32, 1))
    assert [coded.encode_ps(100, 7), plain.encode_ps(100, 7)] == [12 * 100 + 7, 0]
    assert [coded.decode_ps(100, 7), plain.decode_ps(100, 7)] == [4 * 100 + 7, 0]
    assert [coded.add_ps(terms, 100) for terms in (1, 2, 5)] == [2 * 400, 3 * 400, 6 * 400]
    numbers, sent, made = np.array([100, 0]), np.array([7, 0]), np.array([9, 0])
    assert plain.sum_ps(3, numbers, sent, made).tolist() == [3 * 7 + 4 * 100, 0]
    assert coded.sum_ps(3, numbers, sent, made).tolist() == [3 * 7 + 4 * 100 + 12 * 100 + 9, 0]
    smoothed = replace(plain, has_state=True)
    assert smoothed.sum_ps(3, numbers, sent, made).tolist() == [3 * 7 + 4 * 100 + 8 * 100, 0]
    assert replace(coded, bytes_per_s=None).encode_ps(100, 7) == 0
    assert replace(coded, bytes_per_s=3 * 10.0**12).moved_ps(7) == 3  # rounded up


def test_devices_that_share_units_exchange_two_float32_of_every_example_in_a_loss_c9():
    loss = Demand("loss", "loss", "softmax_cross_entropy", 1, 330, 7, ((FP32, 320), (None, 32)), FP32)
    kernels = Kernels(codec_of(32), codec_of(32), 10.0**12)
    (task,) = program_of(Striped(MACHINE, kernels, 2), [loss], []).passes
    assert task.gathered_bytes == 2 * 4 * 32


@pytest.mark.parametrize(("numbers", "count"), [(1, 1), (2, 1), (6, 2), (8, 2), (100, 25)])
def test_a_part_of_a_byte_that_devices_exchange_is_a_byte_c9(numbers: int, count: int):
    """Numbers of 4 bits on two devices: half of them, rounded up, two in a byte."""
    fp4 = emu.parse("fp4_e2m1")
    forward = [
        Demand(name, "activation", "matmul", 1, 1, 0, ((fp4, numbers), (fp4, 1)), fp4) for name in ("first", "second")
    ]
    error = Demand("second", "error", "matmul", numbers, 1, 0, ((fp4, 1), (fp4, 1)), fp4)
    gradients = [Demand(d.layer, "gradient", "matmul", 1, 1, 0, ((fp4, 1), (fp4, 1)), fp4) for d in forward]
    striped = Striped(MACHINE, Kernels(codec_of(32), codec_of(32), 10.0**12), 2)
    tasks = program_of(striped, [*forward, error, *gradients], []).passes
    assert [task.gathered_bytes for task in tasks] == [0, count, 0, 0, 0]
    assert [task.partial_bytes for task in tasks] == [0, 0, count, 0, 0]


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_a_step_is_its_parts_and_the_time_in_which_its_device_waits(nodes: int):
    time = play(plan(layers(3), nodes=nodes))
    assert time.step_ps == time.compute_ps + time.quantise_ps + time.update_ps + time.wait_ps
    assert (time.wait_ps > 0) == (nodes > 1), "for messages, which none has alone"


def test_a_device_alone_has_events_and_its_hosts_move_no_bytes_through_memory():
    work = emu.simulate("mlp", "dlu16", nodes=[1], batches=[32], keeps_events=True).events
    prepared = [event.duration_ps for event in work if event.name == "prepare the next batch"]
    assert prepared == [-(-32 * 28 * 28 // 16) * 400], "16 numbers a cycle of 2.5 GHz"
    by_host = [event.details["bytes"] for event in work if event.resource == "host" and event.details]
    assert len(work) > 10
    assert by_host == [0, 0], "of the loss and of its error"
    assert all(event.details.get("bytes", 0) >= 0 for event in work)


def test_controllers_run_every_part_of_an_update_once_those_of_no_layer_with_the_last_layer():
    share = layers(3)
    norm = Demand("all gradients", "update", "add", 64, 0, 0, ((FP32, 64),) * 2, FP32)
    share = replace(share, updated=[*share.updated, norm])
    groups = plan(share, nodes=2, exchange="controllers").groups
    names = {group.name: [task.name for task in group.updates] for group in groups}
    last = groups[-1].name
    assert sum(len(tasks) for tasks in names.values()) == 4
    assert [name for name, tasks in names.items() if len(tasks) == 2] == [last]
    assert any(task.layer == "all gradients" for task in groups[-1].updates)


def test_a_step_sends_for_as_long_as_its_busiest_port_and_alone_for_no_time():
    """Node 0 sends gradients of one bit, node 1 their sums in 32 bits."""
    share = layers(1)
    step = plan(share, nodes=2, workers=[0], owners=[1], bits=1, owner_bits=32)
    assert play(step).send_ps == -(-codec_of(32).message_bytes(64, 64) * 10**12 // (6 * 10**9))
    assert play(alone(MACHINE, share)).send_ps == 0


def test_within_a_node_gradients_are_added_and_not_encoded():
    time = play(plan(layers(1), nodes=1, units=2))
    assert time.quantise_ps == Kernels(codec_of(1), codec_of(1), MACHINE.device.compute.memory_bytes_per_s).add_ps(
        2, 64 * 64
    )


def test_a_resource_was_used_for_what_was_booked():
    timelines = DeviceTimelines(2)
    for duration in (np.array([5, 0]), 3):
        timelines.book("compute", "fc1", duration, timelines.start())
    assert timelines.busy_ps["compute"].tolist() == [8, 3]


@pytest.mark.parametrize("is_worker", [False, True])
def test_a_layer_keeps_its_controller_busy_with_messages_in_and_out_their_mean_and_its_update(is_worker: bool):
    """Of 3 nodes 2 compute gradients; 5 bytes a picosecond; no memory takes time."""
    teams, port = Teams(3, workers=[0, 1]), Path(5 * 10**12, 0, half_duplex=False, per_node=False)
    update = Task("fc1", "update", (Part("compute", 70),))
    load = load_ps(
        Controlled(Sizes(8, 500, 1500, 8), (update,)), teams, Kernels(codec_of(32), codec_of(32), None), port,
        is_worker=is_worker,
    )  # fmt: skip
    assert load == (1 if is_worker else 2) * 100 + 2 * 300 + 70
