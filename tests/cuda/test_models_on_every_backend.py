"""Every shipped model ends in the same weights and registers on the reference, on Numba and on the CUDA kernels."""

from __future__ import annotations

import os
from collections.abc import Generator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from device_arrays import StrictDevice
from fast_suite import most_are_slow, some_of
from host_devices import as_backend, device_of

from emu import training
from emu.backends.numba.cache import cache_folder
from emu.hardware import device_names, load_device
from emu.training.loop import Loop
from emu.training.recipe import Recipe, load_recipe, model_names
from emu.training.workbench import Workbench

BACKENDS = ("reference", "numba", "cuda")
#: Steps and batch of each model, and as little to test as its data allow; the order gives large models devices whose
#: reference is fast, and small ones two.
SHORT: dict[str, dict[str, Any]] = {
    "mlp": {"training.steps": 20, "training.batch": 4, "data.test_images": 2},
    "deep_sigmoid": {"training.steps": 20, "training.batch": 4, "data.test_images": 2},
    "lenet": {"training.steps": 20, "training.batch": 2, "data.test_images": 2},
    "dnn46m": {"training.steps": 1, "training.batch": 4, "data.count": 8, "data.test_count": 2},
    "resnet8": {"training.steps": 8, "training.batch": 2, "data.test_images": 2},
    "transformer": {"training.steps": 8, "training.batch": 1, "data.test_share": 0.006},
    "lenet_caffe": {"training.steps": 8, "training.batch": 1, "data.test_images": 2},
    "text_sparse": {"training.steps": 5, "training.batch": 4, "data.test_share": 0.002},
    "everything": {"training.steps": 5, "training.batch": 4, "data.test_share": 0.002},
}
CONV = {"type": "conv2d", "out_channels": 3, "kernel": 3, "padding": 1, "bias": False}
#: Small networks with every layer and optimiser that the first models lack.
SMALL: dict[str, dict[str, Any]] = {
    "images": {
        "network": {
            "input": [1, 8, 8],
            "classes": 10,
            "layers": [
                CONV, {"type": "batch_norm"}, {"type": "gelu"},
                {"type": "residual", "layers": [{**CONV, "stride": 2}, {"type": "batch_norm"},
                                                {"type": "dropout", "rate": 0.25}],
                 "shortcut": [{"type": "avg_pool", "window": 2}]},
                {"type": "flatten"}, {"type": "layer_norm"}, {"type": "linear", "out_features": 10},
            ],
        },
        "data": {"test_images": 5},
        "training": {"steps": 3, "batch": 4,
                     "optimiser": {"name": "adagrad", "learning_rate": 0.05, "weight_decay": 0.01}},
        "loss_scaling": {"policy": "backoff", "start": 2.0**24, "interval": 2, "on_overflow": "repeat",
                         "compensation": ["learning_rate", "weight_decay"]},
    },
    "text": {
        "network": {
            "input": [6],
            "classes": 256,
            "layers": [
                {"type": "embedding", "tokens": 256, "features": 8}, {"type": "position"},
                {"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "attention", "heads": 2}]},
                {"type": "linear", "out_features": 256},
            ],
        },
        "data": {"kind": "text", "test_share": 0.002},
        "training": {"steps": 3, "batch": 3, "clip_norm": 0.5,
                     "optimiser": {"name": "adam", "learning_rate": 0.01, "weight_decay": 0.1}},
        "loss_scaling": {"policy": "statistical"},
    },
    "everything": {
        "network": {
            "input": [600],
            "classes": 256,
            "layers": [
                {"type": "sparse_linear", "out_features": 12}, {"type": "relu"},
                {"type": "linear", "out_features": 256, "sparse": True},
            ],
        },
        "data": {"kind": "ngrams", "reach": 4, "longest": 2, "stride": 20, "test_share": 0.02},
        "training": {"steps": 4, "batch": 4, "optimiser": {"name": "adagrad", "learning_rate": 0.05}},
        "loss_scaling": {"policy": "backoff", "start": 2.0**24},
        "cluster": {"nodes": 2, "bits": 1},
        "clipping": {"rules": [{"rule": "variance", "k": 2.0}]},
    },
    "sparse": {
        "network": {
            "input": [512],
            "classes": 256,
            "loss": "euclidean",
            "layers": [{"type": "sparse_linear", "out_features": 8}, {"type": "relu"},
                       {"type": "linear", "out_features": 256, "sparse": True}],
        },
        "data": {"kind": "ngrams", "stride": 20, "reach": 6, "longest": 2, "test_share": 0.01},
        "training": {"steps": 3, "batch": 5, "optimiser": {"name": "adagrad", "learning_rate": 0.05}},
    },
}  # fmt: skip


def arithmetics() -> list[str]:
    """Return the shipped devices, of those with equal arithmetic the first."""
    return list({load_device(name).precision: name for name in reversed(device_names())}.values())[::-1]


def pairs() -> list[tuple[str, str]]:
    """Return models and devices: a third of them, or with EMU_MATRIX=all, which takes an hour or two, every pair.

    Which meet depends on emu's sources: a change is held against other pairs than the one before it.
    """
    devices, models = arithmetics(), list(SHORT)
    if os.environ.get("EMU_MATRIX") == "all":
        return [(model, device) for model in models for device in devices]
    shift = int(cache_folder().name, 16)
    every = [(models[i % len(models)], devices[(i + shift) % len(devices)]) for i in range(len(devices))]
    return some_of(every, 3)


@pytest.fixture
def cuda_on_host() -> Generator[None, None, None]:
    with as_backend(device_of("")):
        yield


def assert_same_everywhere(recipe: Recipe, device: str, folder: Path) -> None:
    runs = [training.train(recipe, load_device(device), out=folder / name, backend=name) for name in BACKENDS]
    assert [run.info["backend"] for run in runs] == list(BACKENDS)
    assert len({(run.weights_sha256, run.registers_sha256) for run in runs}) == 1
    assert len({str(run.info["metrics"]) for run in runs}) == 1


@pytest.mark.usefixtures("cuda_on_host")
@most_are_slow(
    ("kind", "device"),
    product(SMALL, ["fixed16", "fp16", "bf16-mixed", "dlu16"]),
    keep=[
        ("images", "fp16"),
        ("text", "dlu16"),
        ("sparse", "fixed16"),
        ("everything", "fp16"),
        ("everything", "dlu16"),
    ],
)
def test_small_networks_of_every_layer_end_in_the_same_bits(kind: str, device: str, tmp_path: Path):
    recipe = Recipe.model_validate({"name": kind, **SMALL[kind]})
    if device == "dlu16" and recipe.loss_scaling.policy == "statistical":  # which needs points in place
        recipe = recipe.with_settings({"loss_scaling.policy": "backoff"})
    assert_same_everywhere(recipe, device, tmp_path)


@most_are_slow("kind", SMALL, keep=["images"])
def test_small_networks_of_every_layer_run_on_a_devices_own_arrays(kind: str, tmp_path: Path):
    recipe = Recipe.model_validate({"name": kind, **SMALL[kind]})
    with as_backend(StrictDevice()):
        runs = [training.train(recipe, load_device("fixed16"), out=tmp_path / b, backend=b) for b in ("numba", "cuda")]
    assert len({(run.weights_sha256, run.registers_sha256) for run in runs}) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_on_host")
@pytest.mark.parametrize(("model", "device"), pairs())
def test_every_model_ends_in_the_same_bits_on_every_device(model: str, device: str):
    recipe, found = load_recipe(model).with_settings(SHORT[model]), set()
    for backend in BACKENDS:
        loop = Loop(Workbench.of(recipe, load_device(device), backend))
        while loop.steps.done < loop.steps.planned:
            loop.advance()
        found.add((loop.bench.model.sha256(), loop.bench.runners.counters.sha256()))
    assert len(found) == 1


def test_every_model_is_run_here():
    assert set(SHORT) == set(model_names())
