"""Layers placed by simulated time: the load of a layer, who takes it, and that training and simulation agree (D3)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_step_time import K20X, MACHINE, layers, plan

import emu
from emu import nn
from emu.cluster import Controllers, Homes, Layout, Simulated
from emu.cluster.codecs import codec_of
from emu.cluster.controller import least_loaded
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Group, Share, StepSchedule, play
from emu.errors import ConfigError
from emu.hardware import Demand
from emu.training import load_recipe, train
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.systems.data_parallel import DataParallel
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.time.placing import controllers_of_run
from emu.training.workbench import Workbench

FP32 = emu.parse("fp32")
#: Bytes per second of a port and of the memory of k20x-8x.
PORT, MEMORY = 6 * 10**9, 250 * 10**9
#: Columns and rows of the gradients of three layers, and how often the update of each reads and writes its numbers.
SHAPES = {"fc0.weight": (40, 50), "fc0.bias": (1, 40), "fc1.weight": (30, 40), "fc2.weight": (8, 30)}
SMALL = {
    "training.steps": 4,
    "training.batch": 8,
    "data.test_images": 8,
    "training.checkpoint_every": 2,
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
}


def taking(updates: tuple[int, int, int]) -> Share:
    """Return the work of three layers, whose updates read and write so many numbers."""
    share = replace(layers(3), shapes=SHAPES, parameter_bytes=dict.fromkeys(SHAPES, 4))
    demands = [Demand(f"fc{i}", "master", "add", n, 0, 0, ((FP32, n),) * 2, FP32) for i, n in enumerate(updates) if n]
    return replace(share, updated=demands)


def homes(step: StepSchedule) -> dict[str, int]:
    """Return the controller of each layer: the only node that owns numbers of it."""
    return {group.name: int(group.messages.numbers.argmax()) for group in step.groups}


def worked_out(group: Group, senders: int, receivers: int, workers: int, bits: int) -> int:
    """Return how long a layer keeps its controller busy, from bytes and bandwidths; one message of each tensor."""
    numbers = sum(columns * rows for name, (columns, rows) in SHAPES.items() if name.startswith(group.name))
    codec = codec_of(bits)
    up = sum(codec.message_bytes(*shape) for name, shape in SHAPES.items() if name.startswith(group.name))

    def ps(size: int, bandwidth: int) -> int:
        return ceil(Fraction(size * 10**12, bandwidth))

    update = sum(MACHINE.time_of(demand).duration_ps for demand in UPDATES[group.name])
    mean = ps(workers * up + 4 * numbers, MEMORY)
    return senders * ps(up, PORT) + mean + update + receivers * ps(4 * numbers, PORT)


UPDATES: dict[str, list[Demand]] = {}


@pytest.mark.parametrize("bits", [1, 32])
@pytest.mark.parametrize(
    "cluster",
    [
        {"nodes": 4, "controllers": [0, 2]},
        {"nodes": 5, "workers": [0, 1, 2], "controllers": [4, 1]},
        {"nodes": 4, "workers": [1, 3], "controllers": [2, 0, 3]},
    ],
    ids=str,
)
@given(updates=st.tuples(*[st.sampled_from([0, 10, 2000, 400_000])] * 3))
def test_a_layer_goes_to_the_controller_whose_layers_take_the_least_time_d3(
    cluster: dict[str, Any], bits: int, updates: tuple[int, int, int]
):
    share = taking(updates)
    UPDATES.clear()
    UPDATES.update({f"fc{i}": [d for d in share.updated if d.layer == f"fc{i}"] for i in range(3)})
    step = plan(share, exchange="controllers", placement="least_busy", bits=bits, **cluster)
    workers = cluster.get("workers", range(cluster["nodes"]))
    busy, expected = dict.fromkeys(sorted(cluster["controllers"]), 0), {}
    for group in sorted(step.groups, key=lambda group: group.name, reverse=True):
        node = min(busy, key=lambda node: busy[node])
        expected[group.name] = node
        senders = len(set(workers) - {node})
        busy[node] += worked_out(group, senders, cluster["nodes"] - 1, len(workers), bits)
    assert homes(step) == expected


def test_a_long_update_moves_layers_that_bytes_would_not_move_d3():
    """By bytes fc0 and fc2 share a controller; the update of fc2 takes longer than all of fc1."""
    cluster: Any = {"nodes": 3, "controllers": [0, 1], "exchange": "controllers", "bits": 32}
    share = taking((10, 10, 4_000_000))
    assert homes(plan(share, placement="least_loaded", **cluster)) == {"fc2": 0, "fc1": 1, "fc0": 0}
    assert homes(plan(share, placement="least_busy", **cluster)) == {"fc2": 0, "fc1": 1, "fc0": 1}
    by_bytes, by_time = (play(plan(share, placement=p, **cluster)).step_ps for p in ("least_loaded", "least_busy"))
    assert by_time < by_bytes


def test_the_load_is_what_a_trace_shows_of_the_controller_d3():
    """Receives, mean, update and sends of a layer; no event waits inside."""
    share = taking((500, 7000, 90_000))
    UPDATES.clear()
    UPDATES.update({f"fc{i}": [d for d in share.updated if d.layer == f"fc{i}"] for i in range(3)})
    step = plan(share, nodes=4, workers=[0, 1, 2], controllers=[3, 2], exchange="controllers", placement="least_busy")
    events = play(step, keeps_events=True).events
    for group in step.groups:
        node = homes(step)[group.name]
        shown = sum(
            event.duration_ps
            for event in events
            if event.node == node
            and (event.name, event.kind) in {
                (f"{group.name}: to owners", "receive"), (f"{group.name}: sum", "quantise"),
                (f"{group.name} master", "update"), (f"{group.name}: to all", "send"),
            }
            and event.resource != "memory"
        )  # fmt: skip
        assert shown == worked_out(group, 3 - (node < 3), 3, 3, 1)


@given(loads=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=9))
def test_no_controller_is_ahead_of_another_by_more_than_its_last_layer_d3(loads: list[tuple[int, int, int]]):
    by_layer = {str(i): dict(zip((5, 1, 3), load, strict=True)) for i, load in enumerate(loads)}
    so_far = dict.fromkeys((1, 3, 5), 0)
    for layer, node in least_loaded(by_layer).items():
        assert so_far[node] == min(so_far.values())
        assert node == min(other for other, load in so_far.items() if load == so_far[node])
        so_far[node] += by_layer[layer][node]


# ---- training ----


def loop(device: str = "k20x-8x", network: nn.Network | None = None, model: str = "mlp", **cluster: Any) -> Loop:
    settings = {f"cluster.{key}": value for key, value in cluster.items()}
    recipe = load_recipe(model).with_settings((SMALL if model == "mlp" else {}) | settings)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), "numba", network))


def placed_in(run: Loop) -> dict[str, int]:
    exchange = next(s for s in run.systems if isinstance(s, DataParallel))._exchange
    assert isinstance(exchange, Controllers)
    return exchange.controller_of


BUSY: Any = {"exchange": "controllers", "placement": "least_busy"}
CLUSTERS: list[dict[str, Any]] = [
    {"nodes": 4, "controllers": [0, 2], "bits": 32},
    {"nodes": 4, "controllers": [3, 1], "bits": 1, "workers": [0, 1]},
    {"nodes": 2, "controllers": [1, 0], "units": 2, "bits": 4},
    {"nodes": 2, "controllers": [1, 0], "model_parallel": 2},
    {"nodes": 2, "controllers": [1, 0], "model_parallel": 2, "model_split": "layers"},
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_training_and_its_simulated_time_place_layers_as_emu_simulate_does_d3(cluster: dict[str, Any], tmp_path: Path):
    settings = SMALL | {f"cluster.{key}": value for key, value in (cluster | BUSY).items()}
    run = train("mlp", K20X, out=tmp_path / "run", backend="numba", overrides=settings)
    bits = [cluster.get("bits", 1)]
    (step,) = emu.simulate("mlp", K20X, nodes=[cluster["nodes"]], batches=[8], bits=bits, overrides=settings).steps
    assert run.info["simulated_picoseconds_by_phase"] == {"training": 4 * step.time.step_ps}
    if "units" not in cluster and "model_parallel" not in cluster:
        assert run.info["metrics"]["bytes_sent"] == 4 * step.time.sent_bytes
    begun = loop(**(cluster | BUSY))
    table = begun.bench.recipe.cluster
    assert table is not None
    assert placed_in(begun) == controllers_of_run(begun.bench, table)
    assert len(set(placed_in(begun).values())) == 2


def test_layers_stay_where_they_are_when_steps_ask_for_more_than_shapes_tell(tmp_path: Path):
    """Operations of dynamic fixed point run again, gradients are clipped, the loss is scaled."""
    settings = {
        "cluster.exchange": "controllers", "cluster.placement": "least_busy", "cluster.controllers": [2, 0],
        "training.steps": 2, "cluster.warm_start": 0,
    }  # fmt: skip
    recipe = load_recipe("everything").with_settings(settings)
    begun = Loop(Workbench.of(recipe, recipe.machine(K20X), "numba"))
    run = train("everything", K20X, out=tmp_path / "run", backend="numba", overrides=settings)
    assert run.info["simulated_seconds"] > 0
    share = emu.simulate("everything", K20X, nodes=[4], overrides=settings).steps[0].time
    assert set(placed_in(begun).values()) == {0, 2}
    assert abs(run.info["metrics"]["bytes_sent"] / (2 * share.sent_bytes) - 1) < 0.03


def test_no_bit_depends_on_the_placement(tmp_path: Path):
    hashes = set[str]()
    for placement in ("fixed", "least_loaded", "least_busy"):
        settings = SMALL | {"cluster.nodes": 4, "cluster.exchange": "controllers", "cluster.controllers": [2, 0, 1]}
        settings["cluster.placement"] = placement
        run = train("mlp", K20X, out=tmp_path / placement, backend="numba", overrides=settings)
        hashes.add(run.weights_sha256)
    assert len(hashes) == 1


def test_a_run_that_goes_on_from_its_half_has_the_bits_bytes_and_times_of_a_whole_one(tmp_path: Path):
    cluster: Any = {"nodes": 4, "controllers": [2, 0], "bits": 1, **BUSY}
    whole, half, again = (loop(**cluster) for _ in range(3))
    for _ in range(4):
        whole.advance()
    for _ in range(2):
        half.advance()
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    half.checkpoint.save(folder)
    again.checkpoint.restore(folder)
    for _ in range(2):
        again.advance()
    assert again.bench.model.sha256() == whole.bench.model.sha256()
    assert again.log.metrics() == whole.log.metrics()
    times = [next(s for s in run.systems if isinstance(s, SimulatedTime)).about() for run in (whole, again)]
    assert times[0] == times[1]
    assert times[0]["simulated_seconds"] > 0


def test_a_network_from_python_is_placed_by_its_own_layers():
    network = nn.Network((nn.Flatten("flat"), nn.Linear("wide", 784, 40), nn.Linear("out", 40, 10)))
    assert placed_in(loop(network=network, nodes=4, controllers=[1, 2], **BUSY)) == {"out": 1, "wide": 2}


# ---- what is refused ----


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("float32", "a device must have a clock, got none; choose one like k20x-8x"),
        (
            "p100",
            "a device must have [crossbar] and a link to it for messages between nodes, got none in p100; choose one "
            "like k20x-8x, or add them",
        ),
    ],
)
def test_a_device_without_time_is_refused_with_the_reason(device: str, reason: str):
    with pytest.raises(ConfigError) as error:
        loop(device=device, nodes=4, controllers=[0, 1], **BUSY)
    assert str(error.value) == (
        "`placement` of [cluster] must be 'fixed' or 'least_loaded' if no time is simulated, got 'least_busy' on "
        f"{device!r}: {reason}"
    )


def test_controllers_that_are_not_told_the_times_refuse_to_place_by_them():
    shapes = {"a.weight": (1, 3)}
    given: Any = (shapes, {"a.weight": FP32}, Layout(2), codec_of(32), Simulated(2))
    with pytest.raises(ConfigError) as error:
        Controllers(*given, homes=Homes((0, 1), "least_busy"))
    assert str(error.value) == (
        "`placement` must be 'fixed' or 'least_loaded' if no times of layers are known, got 'least_busy'; choose "
        "another, or give `controller_of`"
    )
    assert Controllers(*given, homes=Homes((0, 1), "least_busy", {"a": 1})).controller_of == {"a": 1}


def test_an_unknown_placement_is_refused_and_stripes_take_none():
    with pytest.raises(ConfigError, match="placement"):
        ClusterTable(nodes=2, placement="least_buzy", exchange="controllers")  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as error:
        ClusterTable(nodes=2, placement="least_busy")
    assert "`placement` of [cluster] must be left out if `exchange` is 'stripes', got 'least_busy'" in str(error.value)
