"""Linear layers that multiply the entries of their input alone, in training: bits, registers, resuming, time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu.autodiff import Operation
from emu.cluster.codecs import codec_of
from emu.cluster.timing import Kernels
from emu.cluster.timing.striping import Striped
from emu.errors import ConfigError
from emu.formats import Value
from emu.hardware import Demand, Machine, load_device
from emu.precision import DatapathRunner, Policy
from emu.precision.profile import Profile
from emu.sparse.value import MadeSparse
from emu.training import Run, load_recipe, train
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.recipe import Recipe
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.time.work import work_of
from emu.training.workbench import Workbench

SMALL: dict[str, Any] = {
    "training.steps": 4,
    "training.batch": 8,
    "data.test_images": 8,
    "training.log_every": 2,
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
}
#: The layers of mlp behind a relu.
SPARSE = {"network.layers.fc2.sparse": True, "network.layers.output.sparse": True}
FP32 = emu.parse("fp32")


def run(out: Path, device: str, backend: str = "numba", **settings: Any) -> Run:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return train("mlp", device, out=out, backend=backend, overrides=SMALL | named)


def loop(device: str, **settings: Any) -> Loop:
    recipe = load_recipe("mlp").with_settings(SMALL | SPARSE | settings)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), "numba"))


# ---- bits ----


@pytest.mark.parametrize("device", ["float32", "fixed16", "fp16", "fp16-mixed", "bf16-mixed"])
def test_a_run_ends_in_the_bits_of_dense_layers_where_terms_of_0_change_no_sum_e0(device: str, tmp_path: Path):
    """Sums of these devices are exact or in order, and results are rounded to nearest."""
    dense = run(tmp_path / "dense", device)
    for backend in ("reference", "numba"):
        assert run(tmp_path / backend, device, backend, **SPARSE).weights_sha256 == dense.weights_sha256


@pytest.mark.parametrize("device", ["fixed8", "dlu16", "dlu8", "v100"])
def test_both_backends_end_in_the_same_bits_and_registers_e4(device: str, tmp_path: Path):
    runs = [run(tmp_path / backend, device, backend, **SPARSE) for backend in ("reference", "numba")]
    assert runs[0].weights_sha256 == runs[1].weights_sha256
    assert runs[0].registers_sha256 == runs[1].registers_sha256


@pytest.mark.parametrize("device", ["fixed8", "dlu16"])
def test_what_dropout_leaves_is_sparse_and_a_run_that_goes_on_has_the_same_bits(device: str, tmp_path: Path):
    layers = [
        {"type": "flatten"}, {"type": "linear", "out_features": 24}, {"type": "tanh"}, {"type": "dropout", "rate": 0.5},
        {"type": "linear", "out_features": 10, "sparse": True},
    ]  # fmt: skip
    settings = {key: value for key, value in SMALL.items() if "layers" not in key} | {"network.layers": layers}
    recipe = load_recipe("mlp").with_settings(settings)
    whole, half, again = (Loop(Workbench.of(recipe, load_device(device), "numba")) for _ in range(3))
    for _ in range(4):
        whole.advance()
    for _ in range(2):
        half.advance()
    folder = RunFolder.create(tmp_path / "run")
    half.checkpoint.save(folder)
    again.checkpoint.restore(folder)
    for _ in range(2):
        again.advance()
    assert again.bench.model.sha256() == whole.bench.model.sha256()
    assert again.bench.runners.counters.sha256() == whole.bench.runners.counters.sha256()
    assert time_of(again) == time_of(whole)


@pytest.mark.parametrize(
    "cluster",
    [
        {"cluster.nodes": 2, "cluster.bits": 1},
        {"cluster.nodes": 2, "cluster.exchange": "controllers", "cluster.bits": 32},
        {"cluster.nodes": 2, "cluster.model_parallel": 2},
        {"cluster.nodes": 2, "cluster.model_parallel": 2, "cluster.model_split": "layers"},
        {"clipping.rules": [{"rule": "variance"}], "loss_scaling": {"policy": "fixed", "scale": 8.0}},
    ],
    ids=str,
)
def test_many_nodes_end_in_the_bits_of_dense_layers_and_have_a_time_e0(cluster: dict[str, Any], tmp_path: Path):
    dense, sparse = (run(tmp_path / name, "k20x-8x", **cluster, **of) for name, of in (("d", {}), ("s", SPARSE)))
    assert sparse.weights_sha256 == dense.weights_sha256
    assert sparse.info["simulated_seconds"] > 0
    assert sparse.info["metrics"].get("bytes_sent") == dense.info["metrics"].get("bytes_sent")


def test_entries_that_only_move_decide_no_point_whatever_words_the_layer_has():
    """The activations of fc2 have 8 bits, those of relu1 before it 16: a move is no operation with a point."""
    narrow = {"precision.layers": [{"match": "fc2", "activation": {"format": "fix8f?"}}]}
    counts: list[tuple[int, int]] = []
    for settings in (narrow, narrow | {"network.layers.fc2.sparse": False, "network.layers.output.sparse": False}):
        begun = loop("dlu16", **settings)
        for _ in range(3):
            begun.advance()
        points = begun.bench.model.points
        assert points is not None
        counts.append((points.runs - points.redos, len(points.of)))
    assert counts[0] == counts[1]


# ---- the key ----


def test_a_recipe_without_the_key_is_written_as_before_and_one_with_it_has_it():
    dense = load_recipe("mlp")
    written = dense.model_dump(mode="json")["network"]["layers"]
    assert all("sparse" not in layer for layer in written)
    sparse = dense.with_settings(SPARSE)
    kept = {layer["name"]: layer.get("sparse") for layer in sparse.model_dump(mode="json")["network"]["layers"]}
    assert kept == {"flatten1": None, "fc1": None, "relu1": None, "fc2": True, "relu2": None, "output": True}
    assert Recipe.model_validate(sparse.model_dump(mode="json")) == sparse
    assert dense.with_settings({"network.layers.fc2.sparse": False}).model_dump() == dense.model_dump()


def test_a_layer_from_python_is_written_as_before_unless_the_key_is_set():
    """Runs with a network from Python know it by this text."""
    text = "Linear(name='a', in_features=2, out_features=3, bias=True, initialiser='he'"
    assert repr(nn.Linear("a", 2, 3)) == f"{text})"
    assert repr(nn.Linear("a", 2, 3, sparse=True)) == f"{text}, sparse=True)"


def test_what_is_no_truth_value_is_refused():
    with pytest.raises(ConfigError) as error:
        load_recipe("mlp").with_settings({"network.layers.fc2.sparse": 0.5})
    assert "sparse" in str(error.value)
    assert "0.5" in str(error.value)


# ---- time ----

#: Four rows and six columns, six entries: the example of docs/sparse.md.
X = np.float32([[0, 2, 0, 0, 5, 0], [0] * 6, [1, 3, 0, 0, 0, 0], [0, 0, 0, 0, 4, 7]])


def demand_of(x: Any) -> Demand:
    """Return what finding the entries of a matrix asks, as a step notes it."""
    profile = Profile()
    profile.demands = []
    runner = DatapathRunner(Policy(load_device("float32").precision), backend="reference", profile=profile)
    made = runner.run(Operation("sparse_entries", (Value(x, FP32),)), "activation", "words")
    assert isinstance(made, MadeSparse)
    return profile.demands[0]


def test_finding_entries_reads_the_matrix_once_and_writes_entries_places_and_both_indices_e0_e1():
    """24 numbers of 4 bytes; 6 entries, 6 columns, 5 row starts of 8 bytes; V1 of 6 words, V2 of 4."""
    demand = demand_of(X)
    assert demand.results == 6
    assert demand.index_bytes == 6 * 4 + 5 * 8 + 6 * 4 + 4 * 4
    machine = Machine(load_device("p100"))
    time = machine.time_of(demand)
    assert time.bytes == 24 * 4 + 6 * 4 + demand.index_bytes == 224
    assert time.operations == 24, "each number is looked at, whether it is 0 or not"
    large = np.zeros((512, 1024), np.float32)
    large[3, 5] = 1
    relu = Demand("words", "activation", "relu", large.size, 0, 0, ((FP32, large.size),), FP32)
    assert machine.time_of(demand_of(large)).cycles == machine.time_of(relu).cycles > 100


def test_if_only_shapes_are_known_every_number_is_an_entry():
    recipe = load_recipe("mlp").with_settings(SMALL | SPARSE)
    work = work_of(recipe, recipe.machine(load_device("k20x-8x")), 8)
    entries = [demand for demand in work.first_pass if demand.operation == "sparse_entries"]
    assert [(demand.layer, demand.results) for demand in entries] == [("fc2", 8 * 24), ("output", 8 * 16)]
    assert entries[0].index_bytes == demand_of(np.ones((8, 24), np.float32)).index_bytes
    products = {d.layer: d for d in work.first_pass if d.operation == "sparse_transposed_matmul"}
    dense = work_of(load_recipe("mlp").with_settings(SMALL), recipe.machine(load_device("k20x-8x")), 8)
    full = {d.layer: d for d in dense.first_pass if d.role == "gradient" and d.operation == "matmul"}
    assert {layer: d.multiply_adds for layer, d in products.items()} == {
        layer: d.multiply_adds for layer, d in full.items() if layer != "fc1"
    }
    simulated = emu.simulate("mlp", "k20x-8x", nodes=[1, 2], batches=[8], overrides=SMALL | SPARSE).steps
    assert all(step.time.step_ps > 0 for step in simulated)


def time_of(begun: Loop) -> Any:
    return next(system for system in begun.systems if isinstance(system, SimulatedTime)).about()


def test_a_run_is_charged_the_entries_that_it_has_and_no_transposed_copy_e1(tmp_path: Path):
    done = run(tmp_path / "run", "p100", **SPARSE)
    table = RunFolder(done.path).read_table("sparse")
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    assert [(row["step"], row["layer"]) for row in rows] == [
        (2, "output"), (2, "fc2"), (4, "output"), (4, "fc2"),
    ]  # fmt: skip
    for row in rows:  # in numbers of two bytes, of two steps
        columns, outputs = {"fc2": (24, 16), "output": (16, 10)}[row["layer"]]
        entries, starts = row["entries"], 2 * 9 * 8
        assert 0 < entries < 2 * 8 * columns, "relu leaves some zeros"
        assert row["rows"] == 2 * columns, "the gradient is whole"
        assert row["product_bytes"] == (2 + 4) * entries + starts + 2 * 2 * outputs * (8 + columns)
        assert row["transpose_bytes"] == (2 + 4 + 2 + 4) * entries + starts + 2 * 4 * (columns + 1)


def test_nodes_wait_for_the_one_with_the_most_entries():
    begun = loop("k20x-8x", **{"cluster.nodes": 2})
    simulation = next(system for system in begun.systems if isinstance(system, SimulatedTime))._time
    assert simulation is not None
    noted: list[Demand] = []
    played = simulation.end_step

    def end_step(step: int, phase: str) -> None:
        noted.extend(simulation.demands)
        played(step, phase)

    simulation.end_step = end_step  # type: ignore[method-assign]
    begun.advance()
    entries = [d for d in noted if d.operation == "sparse_entries" and d.layer == "fc2"]
    assert len(entries) == 2
    assert entries[0].results != entries[1].results
    asked = simulation._asked(tuple(noted), None)  # type: ignore[attr-defined]
    kept = [d for d in asked.computed if d.operation == "sparse_entries" and d.layer == "fc2"]
    assert kept == [max(entries, key=lambda d: simulation.machine.time_of(d).duration_ps)]


def test_devices_that_share_a_layer_find_the_entries_of_their_own_neurons_and_gather_those_of_the_others_c9():
    """192 numbers: each of two devices sends 96 of 4 bytes, 96 columns, and half of 9 row starts."""
    recipe = load_recipe("mlp").with_settings(SMALL | SPARSE)
    machine = Machine(load_device("k20x-8x"))
    work = work_of(recipe, recipe.machine(load_device("k20x-8x")), 8)
    found = next(demand for demand in work.first_pass if demand.operation == "sparse_entries")
    divided = Striped(machine, Kernels(codec_of(32), codec_of(32), None), 2)
    tasks = list(zip(work.first_pass, divided.tasks_of(work.first_pass), strict=True))
    gathered = {d.operation: task.gathered_bytes for d, task in tasks if (d.layer, d.role) == ("fc2", "activation")}
    assert gathered == {"sparse_entries": 0, "sparse_matmul": 96 * 4 + 96 * 4 + 9 * 8 // 2}
    half = next(task for demand, task in tasks if demand is found).parts[0].uses[0]
    assert half.bytes == 96 * 4 + 96 * 4 + -(-found.index_bytes // 2)
