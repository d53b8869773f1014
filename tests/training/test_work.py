"""What a step asks of a machine, found from shapes, is what a real step asks."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

from emu.formats import Fixed
from emu.hardware import Demand, Device, load_device
from emu.training import Recipe, load_recipe, model_names
from emu.training.loop import Loop
from emu.training.time.work import work_of
from emu.training.workbench import Workbench
from emu.training.workbench.build import build_network
from tests.training.small_runs import MIXED

#: Small batches and data sets; nothing is logged.
SMALL: dict[str, dict[str, Any]] = {
    "dnn46m": {"training.batch": 4, "data.count": 8, "data.test_count": 4},
    "transformer": {"training.batch": 4},
    "everything": {"training.batch": 12, "cluster.warm_start": 0},
}
DEVICES = ("float32", "fp16-mixed", "v100", "dlu16")


def small(model: str, **settings: Any) -> Recipe:
    there = SMALL.get(model, {"training.batch": 4})
    return load_recipe(model).with_settings(there | {"training.steps": 2} | settings)


def comparable(demands: list[Demand]) -> list[Any]:
    """Return demands, points of fixed formats left out: a step decides them, and they cost nothing."""
    return [
        one._replace(
            operands=tuple((_shown(fmt), size) for fmt, size in one.operands), result_format=_shown(one.result_format)
        )
        for one in demands
    ]


def _shown(fmt: Any) -> Any:
    return f"{fmt.width_bits} {fmt.signed}" if isinstance(fmt, Fixed) else fmt


def real(recipe: Recipe, device: Device, monkeypatch: pytest.MonkeyPatch) -> list[Demand]:
    """Return the demands of a training step that computes."""
    monkeypatch.setattr("emu.nn.initialise", lambda *args: np.full(args[2], 2.0**-6))
    loop = Loop(Workbench.of(recipe, device, "numba"))
    loop.bench.runners.profile.demands = []
    loop.advance()
    return loop.bench.runners.profile.demands


def asked(recipe: Recipe, device: Device) -> list[Demand]:
    """Return the demands of a step of all nodes in the order of training."""
    table = recipe.cluster
    models = 1 if table is None else table.nodes
    work = work_of(recipe, device, recipe.training.batch // models, table)
    assert len(work.passes) in (1, models)
    passes = work.passes if len(work.passes) == models else work.passes * models
    found = [one for demands in passes for one in demands if not recipe.clipping or one.role != "unscaled"]
    if recipe.clipping:  # layer by layer, from the last one
        layers = [name.rsplit(".", 1)[0] for name in reversed(work.shapes)]
        for layer in dict.fromkeys(layers):
            found += [one for p in passes for one in p if (one.layer, one.role) == (layer, "unscaled")]
    return [*found, *work.arrived, *work.update]


def require_equal(recipe: Recipe, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    found = comparable(asked(recipe, device))
    expected = comparable(real(recipe, device, monkeypatch))
    for ours, theirs in zip(found, expected, strict=False):
        assert ours == theirs
    assert len(found) == len(expected)


@most_are_slow(
    ("model", "device"),
    product(model_names(), DEVICES),
    keep=[
        *product(["mlp"], DEVICES),
        ("lenet", "fp16-mixed"), ("deep_sigmoid", "float32"), ("resnet8", "v100"), ("transformer", "dlu16"),
        ("text_sparse", "fp16-mixed"), ("everything", "float32"),
    ],
)  # fmt: skip
def test_the_demands_of_shapes_are_those_of_a_real_step(model: str, device: str, monkeypatch: pytest.MonkeyPatch):
    settings = {"dynamic_point.pretraining_steps": 0} if device == "dlu16" else {}
    recipe = small(model, **settings)
    require_equal(recipe, recipe.machine(load_device(device)), monkeypatch)


@pytest.mark.parametrize("settings", [
    {"training.clip_norm": 1e-30},
    {"training.optimiser": {"name": "momentum", "learning_rate": 0.1, "weight_decay": 0.01}},
    {"training.optimiser": {"name": "adagrad", "learning_rate": 0.1, "weight_decay": 0.01}},
    {"training.optimiser": {"name": "adam", "learning_rate": 0.1, "weight_decay": 0.01}},
    {"training.optimiser": {"name": "muon", "learning_rate": 0.1, "weight_decay": 0.01, "adam_layers": ["fc2"]}},
    {"loss_scaling": {"policy": "fixed", "scale": 8.0}},
])  # fmt: skip
def test_the_demands_of_an_update_are_those_of_a_real_one(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    recipe = small("mlp", **settings)
    require_equal(recipe, load_device("fp16-mixed"), monkeypatch)


@pytest.mark.parametrize("settings", [
    {},
    {"training.clip_norm": 1e-30},
    {"training.batch": 8, "cluster.nodes": 2},
    {"clipping": {"rules": [{"rule": "constant", "high": 1.0, "low": -1.0}]}},
])  # fmt: skip
def test_a_scale_that_the_learning_rate_takes_out_stays_in_the_gradients(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    is_clipped = "clipping" in settings or "training.clip_norm" in settings
    places = ["learning_rate", *(["clip_threshold"] if is_clipped else [])]
    scaling = {"policy": "fixed", "scale": 8.0, "compensation": places}
    require_equal(small("mlp", loss_scaling=scaling, **settings), load_device("fp16-mixed"), monkeypatch)


def test_layers_that_no_shipped_model_has_are_followed(monkeypatch: pytest.MonkeyPatch):
    recipe = Recipe.model_validate(MIXED)
    require_equal(recipe, load_device("fixed16"), monkeypatch)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mse", "euclidean"])
def test_the_demands_of_every_loss_are_those_of_a_real_one(loss: str, monkeypatch: pytest.MonkeyPatch):
    require_equal(small("mlp", **{"network.loss": loss}), load_device("fp16-mixed"), monkeypatch)


def test_a_node_of_a_cluster_asks_what_shapes_say(monkeypatch: pytest.MonkeyPatch):
    """The list of a step: a pass of every node, then what is the same on all of them."""
    require_equal(small("mlp", **{"training.batch": 8, "cluster.nodes": 2}), load_device("fp16-mixed"), monkeypatch)


#: Of 24 rows all travel where some are touched: a line of one number has 4 bytes, and as many say that it is there.
FEW_ROWS: dict[str, Any] = {
    "network.input": [24],
    "network.layers": [{"type": "sparse_linear", "out_features": 1}, {"type": "linear", "out_features": 256}],
    "data": {"kind": "ngrams", "reach": 6, "longest": 3},
    "training.optimiser": {"name": "sgd", "learning_rate": 0.25},
}


@pytest.mark.parametrize("cluster", [
    {"nodes": 2, "bits": 32}, {"nodes": 3, "bits": 1, "workers": [0, 1, 2], "owners": [0, 2]},
    {"nodes": 2, "exchange": "controllers", "lines": "inputs"},
])  # fmt: skip
@pytest.mark.parametrize("columns", [24, 1024])
def test_rows_behind_an_exchange_are_those_that_any_message_has_e6(
    columns: int, cluster: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    recipe = small("text_sparse", **FEW_ROWS | {"network.input": [columns], "training.batch": 12, "cluster": cluster})
    require_equal(recipe, load_device("fp16-mixed"), monkeypatch)


def test_the_acoustic_model_has_the_layers_and_parameters_of_the_paper_c11():
    network = load_recipe("dnn46m").network
    hidden = [("linear", 2048), ("sigmoid", None)] * 7
    assert [(layer.type, getattr(layer, "out_features", None)) for layer in network.layers] == [
        *hidden,
        ("linear", 9304),
    ]
    assert network.loss == "softmax_cross_entropy"
    sizes = [429, *[2048] * 7, 9304]
    built = [parameter.shape for _, parameter in build_network(network).parameters()]
    assert sorted(built) == sorted(
        [*((outputs, inputs) for inputs, outputs in pairwise(sizes)), *((width,) for width in sizes[1:])]
    )
    assert sum(map(prod, built)) == 45122648


def test_no_number_is_computed_for_a_batch_of_16384():
    """A matrix of 16384 x 9304 float32 alone would take 600 MB; nothing here depends on the batch but integers."""
    recipe, device = load_recipe("dnn46m"), load_device("float32")
    calls = [len(work_of(recipe, device, examples).first_pass) for examples in (2, 16384)]
    assert calls[0] == calls[1]
    whole = work_of(recipe, device, 16384)
    assert whole.parameters == 45122648
    products = sum(one.multiply_adds for one in whole.first_pass if one.operation == "matmul")
    assert products == 16384 * (3 * 45099008 - 429 * 2048)  # no error goes back to the input
