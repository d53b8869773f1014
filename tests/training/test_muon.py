"""Recipes with Muon: who moves what, in which formats, what it asks of a machine, and that it learns and resumes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import train

import emu
from emu.autodiff import Value
from emu.datapath import OutputStage
from emu.errors import ConfigError, FormatError
from emu.hardware import PrecisionTable, load_device, machine_of
from emu.optim import Adam, Muon, ParameterState
from emu.precision import Policy, RecordingRunner
from emu.training import Recipe, Run, load_recipe
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.time.work import work_of
from emu.training.workbench import Workbench

MUON: dict[str, Any] = {"name": "muon", "learning_rate": 0.05, "adam_learning_rate": 0.003}
CONV = {"type": "conv2d", "name": "conv", "out_channels": 3, "kernel": 2}
#: A convolution, normalisation and a matrix; and a text with a table of tokens and a place's vectors.
IMAGES: dict[str, Any] = {
    "name": "images",
    "network": {
        "input": [1, 8, 8],
        "classes": 10,
        "layers": [
            CONV, {"type": "batch_norm", "name": "norm"}, {"type": "flatten"},
            {"type": "linear", "name": "output", "out_features": 10},
        ],
    },
    "data": {"test_images": 4},
    "training": {"steps": 6, "batch": 4, "log_every": 3, "checkpoint_every": 2, "optimiser": MUON},
}  # fmt: skip
TEXT: dict[str, Any] = {
    "name": "text",
    "network": {
        "input": [6],
        "classes": 256,
        "layers": [
            {"type": "embedding", "tokens": 256, "features": 8}, {"type": "position"},
            {"type": "residual", "name": "block", "layers": [
                {"type": "layer_norm"}, {"type": "attention", "name": "heads", "heads": 2}]},
            {"type": "linear", "name": "output", "out_features": 256},
        ],
    },
    "data": {"kind": "text", "test_share": 0.002},
    "training": {"steps": 2, "batch": 3, "optimiser": MUON},
}  # fmt: skip


def bench(recipe: dict[str, Any] | Recipe, device: str = "float32", **settings: Any) -> Workbench:
    """A workbench before the first step; `training__steps=3` changes `training.steps`."""
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    whole = Recipe.model_validate(recipe).with_settings(changes)
    return Workbench.of(whole, whole.machine(load_device(device)), "numba")


def mlp(**optimiser: Any) -> Recipe:
    settings = {"training.optimiser": MUON | optimiser, "training.steps": 2, "training.batch": 4}
    return load_recipe("mlp").with_settings(settings)


def message(recipe: dict[str, Any] | Recipe, error: type[Exception] = ConfigError, **settings: Any) -> str:
    with pytest.raises(error) as raised:
        bench(recipe, **settings)
    return str(raised.value)


# ---- who moves what ----


def slots_of(made: Workbench) -> dict[str, set[str]]:
    return {state.name: set(state.slots) for state in made.model.states}


ADAMS, MUONS = {"mean", "squares"}, {"momentum"}


def test_matrices_have_momentum_and_biases_norms_and_tables_have_adams_means():
    assert slots_of(bench(IMAGES)) == {
        "conv.weight": MUONS, "conv.bias": ADAMS, "norm.weight": ADAMS, "norm.bias": ADAMS,
        "output.weight": MUONS, "output.bias": ADAMS,
    }  # fmt: skip
    of_text = slots_of(bench(TEXT))
    tables = {name for name, slots in of_text.items() if slots == ADAMS and name.endswith("weight")}
    assert tables == {"embedding1.weight", "position1.weight", "block.layer_norm1.weight"}
    matrices = {name for name, slots in of_text.items() if slots == MUONS}
    assert matrices == {
        *(f"block.heads.{part}.weight" for part in ("query", "key", "value", "output")),
        "output.weight",
    }


def test_a_bias_is_no_matrix_whatever_its_shape():
    square = Value(np.zeros((2, 2), np.float32), emu.parse("fp32"))
    assert ParameterState("fc", "weight", square).is_matrix
    assert not ParameterState("fc", "bias", square).is_matrix


def test_a_copy_of_rows_is_what_its_parameter_is():
    table = Value(np.ones((4, 2), np.float32), emu.parse("fp32"))
    state = ParameterState("words", "weight", table, {"mean": table}, by_rows=True, is_table=True)
    rows = state.rows(np.array([1, 3]))
    assert (rows.master.shape, rows.slots["mean"].shape) == ((2, 2), (2, 2))
    assert (rows.by_rows, rows.is_table, rows.is_matrix) == (True, True, False)


def test_layers_that_the_recipe_names_are_adams_as_well():
    named = slots_of(bench(IMAGES, training__optimiser={**MUON, "adam_layers": ["out*"]}))
    assert (named["output.weight"], named["conv.weight"]) == (ADAMS, MUONS)


def test_one_text_is_one_glob_of_layers():
    matrix = Value(np.zeros((2, 2), np.float32), emu.parse("fp32"))
    states = [ParameterState(layer, "weight", matrix) for layer in ("conv", "output")]
    muon = Muon(adam_layers="out*")
    muon.require(states)
    assert [muon.roles(state) == muon.adam.roles(state) for state in states] == [False, True]
    assert muon.adam_layers == ("out*",)


@pytest.mark.slow
def test_adam_moves_what_it_moves_as_it_does_alone_and_the_schedule_changes_both_rates_alike():
    """The first step's gradients do not depend on the optimiser; of the second, half of every rate is left."""
    schedule = {"training__schedule": {"name": "step", "milestones": [0.1], "factor": 0.5}, "training__steps": 2}
    adam = {"name": "adam", "learning_rate": 0.003, "weight_decay": 0.1}
    alone = Loop(bench(IMAGES, training__optimiser=adam, **schedule))
    mixed = Loop(bench(IMAGES, training__optimiser=MUON | {"weight_decay": 0.1}, **schedule))
    for _ in range(2):
        for theirs, ours in zip(alone.bench.model.states, mixed.bench.model.states, strict=True):
            ours.master = theirs.master
            if "mean" in ours.slots:
                ours.slots = dict(theirs.slots)
        before = [state.master.array.copy() for state in mixed.bench.model.states]
        alone.advance()
        mixed.advance()
        for theirs, ours, old in zip(alone.bench.model.states, mixed.bench.model.states, before, strict=True):
            is_adams = "mean" in ours.slots
            assert (ours.master.array == theirs.master.array).all() == is_adams
            assert (ours.master.array != old).any()


# ---- formats and units ----


def table_of(device: str = "fixed16", **own: Any) -> PrecisionTable:
    return load_device(device).with_precision(PrecisionTable.model_validate(own), origin="models/x.toml").precision


def test_what_is_multiplied_has_the_format_of_the_layers_weights_unless_a_table_says_otherwise():
    assert table_of().stage("fc1", "orthogonal") == table_of().stage("fc1", "weight") == OutputStage.of("fix16f13")
    narrow = table_of(layers=[{"match": "fc2", "weight": {"format": "fix8f6"}}])
    assert narrow.stage("fc2", "orthogonal") == OutputStage.of("fix8f6")
    own = table_of(
        orthogonal={"format": "fix24f20", "rounding": "floor"},
        layers=[
            {"match": "fc2", "orthogonal": {"format": "bf16"}},
            {"match": "fc3", "weight": {"format": "fix8f6"}},
            {"match": "fc4", "full": True},
        ],
    )
    assert own.stage("fc1", "orthogonal") == OutputStage.of("fix24f20", rounding="floor", overflow="saturate")
    assert own.stage("fc2", "orthogonal") == OutputStage.of("bf16", rounding="floor")
    assert own.stage("fc3", "orthogonal") == own.stage("fc1", "orthogonal")
    assert own.stage("fc4", "orthogonal") == OutputStage.of("fp32")
    assert own.stage("fc1", "weight") == OutputStage.of("fix16f13")


def test_a_table_of_the_role_comes_back_and_is_left_out_where_there_is_none():
    own = table_of(orthogonal={"format": "bf16"}, layers=[{"match": "fc*", "orthogonal": {"rounding": "floor"}}])
    assert PrecisionTable.model_validate(own.model_dump(mode="json")) == own
    assert "orthogonal" not in str(table_of().model_dump(mode="json"))
    lower = PrecisionTable.model_validate({"orthogonal": {"format": "bf16"}})
    assert PrecisionTable.model_validate({"orthogonal": {"rounding": "floor"}}).over(lower).stage(
        "fc1", "orthogonal"
    ) == OutputStage.of("bf16", rounding="floor")


def test_a_point_of_the_role_that_moves_needs_what_counts_leading_bits():
    with pytest.raises(ConfigError, match="must have a unit of kind 'statistics', which counts leading bits, got none"):
        load_device("fixed16").with_precision(
            PrecisionTable.model_validate({"orthogonal": {"format": "fix16f?"}}), origin="models/x.toml"
        )


def test_products_run_on_the_forward_unit_even_where_the_way_back_has_another():
    own = table_of("float32", mac={"order": "pairwise"}, backward_mac={"order": "lanes(4)"})
    assert str(Policy(own).mac("fc1", role="orthogonal").order) == "pairwise"


def test_every_operation_of_an_update_has_random_numbers_and_a_point_of_its_own():
    made = bench(IMAGES, training__optimiser=MUON | {"weight_decay": 0.1})
    runner = RecordingRunner(made.runners.for_updates())
    gradients = {state.name: state.master for state in made.model.states}
    made.update.apply(made.model.states, gradients, 0.1, 1.0, runner)
    of_matrix = [key for key in runner.results if key[0] == "output" and key[2].startswith("weight")]
    assert len(of_matrix) == 2 + 3 + 1 + 5 * 6 + 2 + 1
    assert {len(written) for written in runner.results.values()} == {1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three layers with a point between -4 and 4 for matrices, on a device whose points move."""
    settings = {"training__optimiser": MUON | {"adam_layers": ["output"]}, "precision__orthogonal__format": "fix16f13"}
    return train(tmp_path_factory.mktemp("muon") / "run", device="dlu16", **settings, training__steps=6)


def test_run_json_names_every_role_that_is_written_and_registers_count_it(run: Run):
    named = {(row["layer"], row["role"]): row for row in run.info["formats"]}
    flags = RunFolder(run.path).read_table("flags")
    written = set(zip(flags["layer"], flags["role"], strict=True))
    assert written <= set(named)
    of = {layer: {role for name, role in written if name == layer} for layer in ("fc1", "output")}
    everywhere = {"weight", "bias", "activation", "gradient", "update", "master", "moment"}
    assert of["fc1"] == everywhere | {"momentum", "norm", "orthogonal"}
    assert of["output"] == everywhere | {"error"}
    assert named["fc1", "orthogonal"]["format"] == "fix16f13"
    assert named["fc1", "orthogonal"]["mac"] == named["fc1", "activation"]["mac"]


# ---- what it asks of a machine ----


def products_of(demands: Any) -> dict[str, list[int]]:
    """Multiply-adds of the products of an update, by layer."""
    by_layer: dict[str, list[int]] = {}
    for demand in demands:
        if (demand.role, demand.operation) == ("orthogonal", "matmul"):
            by_layer.setdefault(demand.layer, []).append(demand.multiply_adds)
    return by_layer


def test_an_update_asks_for_three_products_an_iteration_with_the_smaller_side_squared():
    """(128, 784), (64, 128), (10, 64); and with 784 outputs, more rows than columns."""
    shapes = {"fc1": (128, 784), "fc2": (64, 128), "output": (10, 64)}
    expected = {name: [m * m * n, m * m * m, m * m * n] * 5 for name, (m, n) in shapes.items()}
    assert products_of(work_of(mlp(), load_device("float32"), 4).update) == expected
    wide = mlp(iterations=2).with_settings({"network.layers.fc1.out_features": 900})
    assert (
        products_of(work_of(wide, load_device("float32"), 4).update)["fc1"] == [784**2 * 900, 784**3, 784**2 * 900] * 2
    )


def test_other_operations_of_an_iteration_have_the_size_of_their_matrix_and_adam_keeps_its_own():
    update = work_of(mlp(iterations=1, weight_decay=0.1, adam_layers=["fc*"]), load_device("float32"), 4).update
    m, n = 10, 64
    of_output = [(d.role, d.operation, d.results) for d in update if d.layer == "output"][:15]
    assert of_output == [
        ("momentum", "fma", m * n), ("momentum", "fma", m * n),
        ("norm", "squared_norm", 1), ("norm", "sqrt", 1), ("norm", "add", 1), ("orthogonal", "divide", m * n),
        ("orthogonal", "matmul", m * m), ("orthogonal", "matmul", m * m), ("orthogonal", "multiply", m * m),
        ("orthogonal", "fma", m * m), ("orthogonal", "matmul", m * n), ("orthogonal", "fma", m * n),
        ("update", "multiply", m * n), ("update", "fma", m * n), ("master", "add", m * n),
    ]  # fmt: skip
    assert {d.role for d in update if d.layer == "fc1"} == {"moment", "update", "master"}


def test_products_of_narrow_weights_run_on_the_matrix_unit_and_the_step_takes_their_time():
    device = load_device("h100")
    machine = machine_of(device)
    assert machine is not None
    demands = work_of(mlp(), device, 4).update
    products = [d for d in demands if (d.role, d.operation) == ("orthogonal", "matmul")]
    assert {machine.unit_of(d) for d in products} == {"matrix"}
    assert {machine.unit_of(d) for d in demands if d.operation != "matmul"} == {"fp32"}
    (step,) = emu.simulate(mlp(), device).steps
    (without,) = emu.simulate(mlp(iterations=1), device).steps
    # of each layer a division and five iterations of six operations; four of them, of equal size, are left out
    orthogonal = [d for d in demands if d.role == "orthogonal"]
    later = [d for i, d in enumerate(orthogonal) if i % 31 > 6]
    assert len(orthogonal) == 3 * 31
    assert step.time.update_ps - without.time.update_ps == sum(machine.time_of(d).duration_ps for d in later) > 0


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [{}, {"cluster.nodes": 2, "cluster.bits": 32}])
def test_a_run_takes_the_time_that_is_simulated_without_it(cluster: dict[str, Any]):
    recipe = mlp().with_settings({"training.optimiser.iterations": 2} | cluster)
    loop, times = Loop(Workbench.of(recipe, load_device("k20x-8x"), "numba")), list[int]()
    for _ in range(2):
        loop.advance()
        clock = next(system for system in loop.systems if isinstance(system, SimulatedTime))
        times.append(sum(clock.about()["simulated_picoseconds_by_phase"].values()))
    (step,) = emu.simulate(recipe, "k20x-8x", nodes=[cluster.get("cluster.nodes", 1)]).steps
    assert times[1] - times[0] == step.time.step_ps


# ---- it learns, resumes and travels ----


@pytest.mark.slow
def test_real_digits_are_learnt_faster_than_by_plain_gradient_descent_at_its_best_rate(tmp_path: Path):
    short = {"training__steps": 40, "training__batch": 32, "training__log_every": 40, "data__test_images": 300}

    def loss(optimiser: dict[str, Any]) -> float:
        name = "-".join(map(str, optimiser.values()))
        return train(tmp_path / name, device="float32", training__optimiser=optimiser, **short).info["metrics"][
            "test_loss"
        ]

    descents = [loss({"name": "sgd", "learning_rate": rate}) for rate in (0.1, 0.2, 0.4)]
    assert descents[1] == min(descents), "the best rate is inside"
    assert loss(MUON) < min(descents)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["bf16-mixed", "fixed8"])
@pytest.mark.parametrize(
    "scaling",
    [{}, {"loss_scaling": {"policy": "backoff", "start": 2.0**20, "interval": 2, "compensation": ["learning_rate"]}}],
)
def test_momentum_and_means_come_back_from_a_checkpoint_bit_for_bit(
    device: str, scaling: dict[str, Any], tmp_path: Path
):
    """Stochastic rounding in fixed8: random bits are addressed by step as well."""

    class StopError(Exception):
        pass

    class Stop:
        """Ends a run behind its fifth step, between two checkpoints."""

        def start(self, step: int, steps: int) -> None: ...

        def update(self, step: int, *_: float) -> None:
            if step == 5:
                raise StopError

        def finish(self) -> None: ...

    recipe = Recipe.model_validate(IMAGES | scaling)
    made = [recipe, load_device(device)]
    whole = emu.training.train(*made, out=tmp_path / "whole", backend="numba")
    with pytest.raises(StopError):
        emu.training.train(*made, out=tmp_path / "stopped", backend="numba", progress=Stop())
    arrays, state = RunFolder(tmp_path / "stopped").load_checkpoint()
    assert state["step"] == 4
    assert {"momentum/conv.weight", "mean/conv.bias", "squares/norm.weight"} <= set(arrays)
    assert {"mean/conv.weight", "momentum/conv.bias"}.isdisjoint(arrays)
    assert arrays["momentum/conv.weight"].any()
    resumed = emu.training.resume(tmp_path / "stopped")
    assert (resumed.weights_sha256, resumed.registers_sha256) == (whole.weights_sha256, whole.registers_sha256)


def test_backends_give_the_same_bits():
    hashes = set()
    for backend in ("reference", "numba"):
        recipe = Recipe.model_validate(TEXT)
        loop = Loop(Workbench.of(recipe, load_device("fixed16"), backend))
        loop.advance()
        loop.advance()
        hashes.add(loop.bench.model.sha256())
    assert len(hashes) == 1


@pytest.mark.parametrize("exchange", ["stripes", "controllers"])
def test_gradients_of_many_nodes_are_whole_before_the_update(exchange: str):
    """At 32 bits, two nodes move as one with two units, which adds the same parts in the same order."""
    found = []
    for nodes, units in ((2, 1), (1, 2)):
        loop = Loop(bench(IMAGES, cluster={"nodes": nodes, "units": units, "bits": 32, "exchange": exchange}))
        for _ in range(3):
            loop.advance()
        found.append(loop.bench.model.sha256())
    assert found[0] == found[1]


def test_layers_whole_on_their_devices_are_moved_and_stripes_of_them_are_refused():
    split = {"nodes": 2, "model_parallel": 2, "model_split": "layers", "bits": 32}
    Loop(bench(IMAGES, cluster=split)).advance()
    assert message(IMAGES, cluster=split | {"model_split": "stripes"}).startswith(
        "optimiser 'muon' must have each parameter whole on one device, got `model_parallel` 2 of [cluster], whose "
        "devices each move the stripe of a parameter that they have; set `model_split` to 'layers', or choose another "
        "optimiser"
    )
    Loop(bench(IMAGES, cluster=split | {"model_parallel": 1, "model_split": "stripes"})).advance()
    adam = {"name": "adam", "learning_rate": 0.01}
    Loop(bench(IMAGES, cluster=split | {"model_split": "stripes"}, training__optimiser=adam)).advance()


# ---- what is refused ----


@pytest.mark.parametrize(("keys", "expected"), [
    ({"adam_layers": ["ouput"]},
     "`adam_layers` of optimiser 'muon' must match a layer that has a matrix, got 'ouput'; did you mean 'output'?"),
    ({"adam_layers": ["conv", "norm"]},
     "`adam_layers` of optimiser 'muon' must match a layer that has a matrix, got 'norm'; known: conv, output"),
    ({"adam_layers": ["*"]},
     "optimiser 'muon' must have a matrix to move, got `adam_layers` that name all of conv, output; choose optimiser "
     "'adam'"),
    ({"fused": True},
     "`fused` of optimiser 'muon' must be false, got true: a matrix is multiplied again and again, which is not one "
     "pass over memory; remove it"),
    ({"iterations": 0}, "`iterations` must be at least 1, got 0"),
    ({"momentum": 1.0}, "`momentum` must be below 1.0, got 1.0"),
    ({"adam_learning_rate": 0.0}, "`adam_learning_rate` must be above 0.0, got 0.0"),
    ({"nesterov": True}, "`nesterov`"),
])  # fmt: skip
def test_keys_that_change_nothing_or_break_a_rule_are_refused(keys: dict[str, Any], expected: str):
    assert expected in message(IMAGES, training__optimiser=MUON | keys)


@pytest.mark.parametrize("rate", [0.0, -0.5, float("nan")])
def test_a_rate_that_is_not_above_0_is_refused_when_muon_is_made(rate: float):
    with pytest.raises(ConfigError) as raised:
        Muon(learning_rate=rate)
    assert str(raised.value) == (
        f"`learning_rate` of optimiser 'muon' must be above 0, got {rate}; choose a larger one"
    )


@pytest.mark.parametrize("share", [1.0, 1.5, -0.1, float("nan")])
@pytest.mark.parametrize("name", ["beta1", "beta2"])
def test_a_share_of_a_mean_outside_0_to_1_is_refused_when_adam_is_made(name: str, share: float):
    with pytest.raises(ConfigError) as raised:
        Adam(**{name: share})
    assert str(raised.value) == (
        f"`{name}` of optimiser 'adam' must be at least 0 and below 1, got {share}; choose one such as 0.9"
    )


def test_a_network_without_a_matrix_is_refused_in_training_and_in_time():
    table_alone = TEXT["network"] | {
        "input": [6],
        "layers": [{"type": "embedding", "tokens": 256, "features": 256}, {"type": "position"}],
    }
    expected = "optimiser 'muon' must have a matrix to move, got a network without any; choose optimiser 'adam'"
    assert message(TEXT | {"network": table_alone}) == expected
    with pytest.raises(ConfigError) as raised:
        work_of(Recipe.model_validate(TEXT | {"network": table_alone}), load_device("float32"), 3)
    assert str(raised.value) == expected


def test_a_sparse_first_layer_and_clipping_by_momentum_are_refused():
    sparse = load_recipe("text_sparse").with_settings({"training.optimiser": MUON})
    assert "must have an optimiser that does not change a weight whose gradient is 0" in message(sparse)
    assert message(IMAGES, clipping={"rules": [{"rule": "momentum"}]}).startswith(
        "rule 'momentum' of [clipping] must be used with an optimiser that has momentum of every parameter, got "
        "'muon'; choose `training.optimiser.name` 'momentum', or another rule"
    )


def test_formats_that_the_unit_does_not_take_and_layers_without_parameters_are_refused():
    given = {"precision__orthogonal__format": "fix16f8"}
    recipe = Recipe.model_validate(IMAGES).with_settings({"precision.orthogonal.format": "fix16f8"})
    with pytest.raises(
        FormatError, match=r"must be floats where `order` is blocks, got fix16f8.* that gives its ortho"
    ):
        work_of(recipe, recipe.machine(load_device("h100")), 4)
    assert bench(IMAGES, "fixed16", **given).policy.stage("conv", "orthogonal") == OutputStage.of("fix16f8")
    layers = [{"match": "flatten*", "orthogonal": {"format": "bf16"}}]
    assert re.search(
        "`orthogonal` must be set for layers|which only moves values", message(IMAGES, precision__layers=layers)
    )
    missing = [{"match": "fc*", "orthogonal": {"format": "bf16"}}]
    with pytest.raises(
        ConfigError, match="`orthogonal` must be set for layers that have a weight or bias, got 'relu1'"
    ):
        load_recipe("mlp").with_settings({"precision.layers": [missing[0] | {"match": "relu1"}]})


def test_decay_of_muon_does_not_meet_the_loss_scale():
    """So the recipe need not say that the scale goes into the decay, as it must for `sgd`."""
    scaling = {"loss_scaling": {"policy": "fixed", "scale": 8.0, "compensation": ["learning_rate"]}}
    bench(IMAGES | scaling, training__optimiser=MUON | {"weight_decay": 0.1})
    descent = {"name": "sgd", "learning_rate": 0.1, "weight_decay": 0.1}
    assert "must have 'weight_decay'" in message(IMAGES | scaling, training__optimiser=descent)
