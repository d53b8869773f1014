"""Recipes of sparse data: trained, measured, killed, resumed and evaluated as those of dense data are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import training
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.training import load_recipe
from emu.training.evaluation import evaluate
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.loop.probe import probe
from emu.training.systems import simulated_time
from emu.training.workbench import Workbench

NGRAMS: Mapping[str, Any] = {
    "network.input": [2**10],
    "network.classes": 256,
    "network.layers": [
        {"type": "sparse_linear", "name": "first", "out_features": 16},
        {"type": "relu"},
        {"type": "linear", "name": "output", "out_features": 256},
    ],
    "data": {"kind": "ngrams", "stride": 9, "reach": 6, "longest": 3},
    "training.steps": 6,
    "training.batch": 8,
    "training.log_every": 3,
    "training.optimiser": {"name": "sgd", "learning_rate": 0.25},
}


@pytest.fixture
def svmlight(tmp_path: Path) -> dict[str, Any]:
    """Three classes, which one column each tells apart."""
    rng = np.random.default_rng(2)
    lines: list[str] = []
    for i in range(80):
        others = sorted(rng.choice(np.arange(4, 31), rng.integers(0, 5), replace=False))
        entries = [(1 + i % 3, 2), *((int(column), rng.integers(-4, 5) / 4) for column in others)]
        lines.append(" ".join([str(i % 3), *(f"{index}:{value}" for index, value in entries)]))
    (tmp_path / "x.svm").write_text("\n".join(lines) + "\n")
    return {
        "network.input": [30],
        "network.classes": 3,
        "network.loss": "softmax_cross_entropy",
        "network.layers": [
            {"type": "sparse_linear", "name": "first", "out_features": 8},
            {"type": "relu"},
            {"type": "linear", "name": "output", "out_features": 3},
        ],
        "data": {"kind": "svmlight", "source": str(tmp_path / "x.svm"), "test_share": 0.25},
        "training.steps": 30,
        "training.batch": 8,
        "training.optimiser": {"name": "sgd", "learning_rate": 0.25},
    }


def test_examples_of_a_file_are_learned(tmp_path: Path, svmlight: dict[str, Any]):
    run = training.train(load_recipe("mlp"), load_device("fixed16"), out=tmp_path / "r", overrides=svmlight)
    assert run.test_accuracy == 1.0
    found = evaluate(run.path)
    assert (found.images, found.test_accuracy) == (20, 1.0)
    assert found.weights_sha256 == run.weights_sha256


@pytest.mark.parametrize("device", ["fixed16", "fp16-mixed"])
def test_backends_end_in_the_same_bits(tmp_path: Path, device: str):
    ends = {
        (run.weights_sha256, run.registers_sha256, run.info["metrics"]["train_loss"])
        for backend in ("reference", "numba")
        for run in [
            training.train(
                load_recipe("mlp"), load_device(device), out=tmp_path / backend, backend=backend, overrides=NGRAMS
            )
        ]
    }
    assert len(ends) == 1


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, out: Path, device: str, settings: Mapping[str, Any]):
    """Train until a step that is not taken, and resume."""
    real = Loop.advance

    def killed(self: Loop) -> tuple[float, float]:
        if self.steps.done == step:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(Loop, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        training.train(load_recipe("mlp"), load_device(device), out=out, overrides=dict(settings))
    monkeypatch.undo()
    return training.resume(out)


def test_a_run_that_goes_on_ends_in_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = training.train(load_recipe("mlp"), load_device("fixed16"), out=tmp_path / "a", overrides=NGRAMS)
    again = killed_at(4, monkeypatch, tmp_path / "b", "fixed16", NGRAMS)
    assert (again.weights_sha256, again.registers_sha256) == (whole.weights_sha256, whole.registers_sha256)


@pytest.mark.parametrize(("device", "cluster"), [("p100", None), ("k20x-8x", {"nodes": 2})])
def test_a_run_that_goes_on_has_the_costs_of_a_run_that_was_not_stopped(
    device: str, cluster: dict[str, Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = {**NGRAMS, "training.checkpoint_every": 2, "cluster": cluster}
    whole = training.train(load_recipe("mlp"), load_device(device), out=tmp_path / "a", overrides=settings)
    again = killed_at(5, monkeypatch, tmp_path / "b", device, settings)
    tables = [{name: RunFolder(run.path).read_table(name) for name in ("sparse", "simulation")}
              for run in (whole, again)]  # fmt: skip
    assert tables[0] == tables[1]
    assert (tables[0]["sparse"]["step"], tables[0]["sparse"]["layer"]) == ([3, 6], ["first", "first"])
    assert all(cost > 0 for name in ("product_ps", "transpose_ps") for cost in tables[0]["sparse"][name])


def test_a_batch_is_prepared_as_its_source_holds_it(monkeypatch: pytest.MonkeyPatch):
    """A batch's numbers are its share of all entries; each has 4 bytes and 4 of its column."""
    loop = Loop(Workbench.of(load_recipe("mlp").with_settings(NGRAMS), load_device("fixed16"), "numba"))
    entries = loop.bench.batches.data.train_inputs.size * 8 // len(loop.bench.batches.data.train_inputs)
    assert 8 * 13 <= entries <= 8 * 15
    assert loop.bench.batches.planned_elements == entries
    sizes: list[tuple[int, int]] = []
    simulation = simulated_time.Simulation

    def noted(machine: Any, *numbers: tuple[int, int], **options: Any) -> simulated_time.Simulation:
        sizes.extend(numbers)
        return simulation(machine, *numbers, **options)

    monkeypatch.setattr(simulated_time, "Simulation", noted)
    Loop(Workbench.of(load_recipe("mlp").with_settings(NGRAMS), load_device("p100"), "numba"))
    assert [size[:2] for size in sizes] == [(entries, 8 * entries)]


def test_sparse_passes_are_measured_beside_float32():
    loop = Loop(Workbench.of(load_recipe("mlp").with_settings(NGRAMS), load_device("fixed16"), "numba"))
    found = probe(loop.bench.model, *loop.bench.batches.batch(0), seed=1, step=0, backend="numba")
    assert ("first", "activation") in {(layer, role) for layer, role, _ in found.ratios}


# ---- what does not fit together ----


def refused(settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_recipe("mlp").with_settings({**NGRAMS, **settings})
    return str(caught.value)


LINEAR = {"type": "linear", "out_features": 256}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"network.layers": [{"type": "dropout", "rate": 0.5}, LINEAR]},
            "for data of kind 'ngrams' a network must begin with a layer of type sparse_linear, or of type linear, "
            "which reads the zeros as well, got 'dropout1' (dropout); change its type, or `kind` of [data]",
        ),
        (
            {"network.input": [1, 2, 3], "network.layers": [{"type": "flatten"}, LINEAR]},
            "`input` of [network] must have 1 number for data of kind 'ngrams', got [1, 2, 3]; change it, or `kind` of "
            "[data]",
        ),
        (
            {"network.classes": 9, "network.layers": [{"type": "sparse_linear", "out_features": 9}]},
            "`classes` of [network] must be 256, the values of a byte, for data of kind 'ngrams', got 9; change it and "
            "the last layer",
        ),
        (
            {"data": {"kind": "svmlight", "source": "x.svm"}, "network.layers": [{"type": "relu"}, LINEAR]},
            "for data of kind 'svmlight' a network must begin with a layer of type sparse_linear, or of type linear, "
            "which reads the zeros as well, got 'relu1' (relu); change its type, or `kind` of [data]",
        ),
        (
            {
                "network.input": [7],
                "network.layers": [{"type": "embedding", "tokens": 9, "features": 256}],
            },
            "layer 'embedding1' (embedding) must be the first and read text, got data of kind 'ngrams' and "
            "'embedding1' in the first place; remove it, or change `kind` of [data]",
        ),
    ],
)
def test_networks_that_do_not_take_the_data_are_refused(settings: dict[str, Any], message: str):
    assert message in refused(settings)


def test_a_batch_of_more_examples_than_there_are_is_refused():
    recipe = load_recipe("mlp").with_settings({**NGRAMS, "training.batch": 2000})
    with pytest.raises(ConfigError) as caught:
        Loop(Workbench.of(recipe, load_device("fixed16"), "numba"))
    assert str(caught.value) == (
        "`training.batch` must be at most the 1126 training examples, got 2000; choose a smaller batch, or keep fewer "
        "for the test"
    )


def test_a_recipe_of_sparse_data_is_plain_data_that_reads_back():
    recipe = load_recipe("mlp").with_settings(NGRAMS)
    assert emu.training.Recipe.model_validate(recipe.model_dump(mode="json")) == recipe
