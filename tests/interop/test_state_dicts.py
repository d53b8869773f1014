"""Weights by name: arrays of a state dict become those of a network, or the message names what does not fit."""

from __future__ import annotations

import copy
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import emu
from emu import nn
from emu.interop.states import LoadedNetwork, arrays_in, shapes_of
from emu.training.recipe import load_recipe

NETWORK = nn.Network((nn.Linear("fc", 3, 2), nn.BatchNorm("norm", 2)))


def state() -> dict[str, np.ndarray]:
    """What PyTorch's `state_dict` of such a network has."""
    shapes = {
        "fc.weight": (2, 3), "fc.bias": (2,), "norm.weight": (2,), "norm.bias": (2,), "norm.running_mean": (2,),
        "norm.running_var": (2,),
    }  # fmt: skip
    arrays = {name: np.full(shape, 0.25 + i, np.float32) for i, (name, shape) in enumerate(shapes.items())}
    return {**arrays, "norm.num_batches_tracked": np.int64(7)}


def test_running_moments_of_pytorch_are_emus():
    network = LoadedNetwork.of(NETWORK, state())
    assert list(network.arrays) == list(shapes_of(NETWORK))
    assert network.first_values(NETWORK.layers[1], "mean").tolist() == [4.25, 4.25]
    assert network.first_values(NETWORK.layers[1], "variance").tolist() == [5.25, 5.25]


def test_a_file_of_safetensors_is_the_same_as_the_arrays(tmp_path: Path):
    arrays = {name: array for name, array in state().items() if array.ndim}
    save_file(arrays, tmp_path / "weights.safetensors")
    assert LoadedNetwork.of(NETWORK, tmp_path / "weights.safetensors") == LoadedNetwork.of(NETWORK, state())


def test_missing_unused_and_misshapen_arrays_are_all_named():
    given = state()
    del given["norm.running_var"], given["fc.bias"]
    given |= {"head.weight": np.zeros(3), "fc.weight": np.zeros((3, 2))}
    with pytest.raises(emu.ConfigError) as caught:
        LoadedNetwork.of(NETWORK, given)
    assert str(caught.value) == (
        "a state must have an array for each parameter and moment, and no other, got one without fc.bias, "
        "norm.variance, unused head.weight, of another shape fc.weight (3, 2) for (2, 3); the nearest to 'fc.bias' is "
        "'head.weight'; rename the arrays, or leave the others out"
    )


@pytest.mark.parametrize("name", ["weights.pt", "weights.pth", "weights.bin", "weights.ckpt"])
def test_nothing_is_unpickled(name: str):
    with pytest.raises(emu.ConfigError, match=r"pickled: reading it runs what is in it; give torch\.load"):
        arrays_in(name)


def test_a_state_of_another_kind_and_two_arrays_of_one_name_are_refused():
    with pytest.raises(emu.ConfigError, match=r"must be a state dict or the path .* got list; give module"):
        arrays_in([1.0])
    with pytest.raises(emu.ConfigError, match=r"got two for 'norm\.mean'"):
        arrays_in({"norm.mean": np.zeros(2), "norm.running_mean": np.zeros(2)})
    with pytest.raises(emu.ConfigError, match=r"must have texts as names, got 0; give what state_dict\(\) of a module"):
        arrays_in({0: np.zeros(2)})


def test_networks_of_other_weights_are_others_and_show_the_hash_of_them():
    first = LoadedNetwork.of(NETWORK, state())
    other = LoadedNetwork.of(NETWORK, {**state(), "fc.bias": np.float32([1.0, 2.0])})
    assert first != other
    assert first.sha256 in repr(first)


def test_equal_numbers_have_one_hash_and_others_another():
    def hashed(weights: Any) -> str:
        return LoadedNetwork.of(nn.Network((nn.Linear("fc", 2, 1, bias=False),)), {"fc.weight": weights}).sha256

    large = 2**53
    equal = [
        [[large, 0.5]],
        np.float32([[large, 0.5]]),
        np.float64([[large, 0.5]]),
        [[Fraction(large), Fraction(1, 2)]],
    ]
    # float64 has none of these but the first two
    others = [np.int64([[large, 1]]), np.int64([[large, 2]]), np.int64([[large + 1, 1]]), [[large + 1, 0.5]],
              [[large + 1, np.inf]], [[large + 1, np.nan]], [[Fraction(1, 3), 0.5]]]  # fmt: skip
    assert len({hashed(weights) for weights in equal}) == 1
    assert len({hashed(weights) for weights in [*others, equal[0]]}) == len(others) + 1
    assert [hashed(weights) for weights in others] == [hashed(copy.deepcopy(weights)) for weights in others]
    assert hashed([[large + 1, 1]]) == hashed(np.uint64([[large + 1, 1]])) == hashed(np.int64([[large + 1, 1]]))


def test_training_begins_with_the_weights(tmp_path: Path):
    recipe = load_recipe("lenet")
    network = nn.Network(recipe.network.built(), recipe.network.loss)
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes_of(network).items()}
    loaded = LoadedNetwork.of(network, weights)
    options = {"overrides": {"training.steps": 1, "training.optimiser.learning_rate": 1e-30}, "network": loaded}
    run = emu.train(recipe, "float32", out=tmp_path / "run", report=False, **options)
    save_file(weights, tmp_path / "weights.safetensors")
    kept = emu.evaluate(tmp_path / "weights.safetensors", recipe, "float32")
    assert run.weights_sha256 == kept.weights_sha256
