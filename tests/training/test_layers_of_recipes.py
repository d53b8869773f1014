"""A layer is one class: its fields are what Python gives and what recipes write."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu._config import checked
from emu.nn.layer import extents_of, keys_of
from emu.nn.wired import Read, Step
from emu.training.layers import TABLES
from emu.training.recipe import Recipe, load_recipe

#: What Python gives, in order; scripts give it by position.
ARGUMENTS = {
    "linear": "name, in_features, out_features, bias=True, initialiser='he', sparse=False",
    "sparse_linear": "name, in_features, out_features, bias=True, initialiser='he'",
    "conv2d": "name, in_channels, out_channels, kernel, stride=1, padding=0, bias=True, initialiser='he'",
    "max_pool": "name, window, stride",
    "avg_pool": "name, window, stride",
    "relu sigmoid tanh gelu": "name, function",
    "flatten": "name",
    "batch_norm": "name, features, eps=1e-05, momentum=0.1",
    "layer_norm": "name, features, eps=1e-05",
    "dropout": "name, rate",
    "embedding": "name, tokens, features, initialiser='xavier'",
    "position": "name, length, features, initialiser='xavier'",
    "attention": "name, features, heads, causal=True",
    "residual": "name, body, shortcut=()",
}
#: What a recipe writes, in the order of run.json.
KEYS = {
    "linear": "name type out_features bias initialiser sparse",
    "sparse_linear": "name type out_features bias initialiser",
    "conv2d": "name type out_channels kernel stride padding bias initialiser",
    "max_pool": "name window stride type",
    "avg_pool": "name window stride type",
    "relu sigmoid tanh gelu": "name type",
    "flatten": "name type",
    "batch_norm": "name type eps momentum",
    "layer_norm": "name type eps",
    "dropout": "name type rate",
    "embedding": "name type tokens features",
    "position": "name type",
    "attention": "name type heads causal",
    "residual": "name type layers shortcut",
}
KINDS = {" ".join(kind.type_names): kind for kind in nn.LAYERS}


def recipe(layers: list[dict[str, Any]], shape: list[int], classes: int, kind: str = "images") -> Recipe:
    training = {"steps": 1, "batch": 2, "optimiser": {"name": "sgd", "learning_rate": 0.1}}
    network = {"input": shape, "classes": classes, "layers": layers}
    data = {"name": "m", "network": network, "data": {"kind": kind}, "training": training}
    return checked(Recipe, data, file="m.toml")


@pytest.mark.parametrize("types", KINDS)
def test_python_gives_the_fields_of_a_layer_by_position(types: str):
    signature = inspect.signature(KINDS[types]).parameters.values()
    assert ", ".join(str(one.replace(annotation=one.empty)) for one in signature) == ARGUMENTS[types]


@pytest.mark.parametrize("types", KINDS)
def test_a_recipe_writes_the_keys_of_a_layer(types: str):
    [table] = [table for table in TABLES if table.kind is KINDS[types]]
    assert " ".join(table.model_fields) == KEYS[types]


@pytest.mark.parametrize("types", KINDS)
def test_every_field_is_given_by_the_recipe_or_by_the_input_or_has_a_default(types: str):
    kind = KINDS[types]
    axes = max((len(shape) for shape in kind.takes.shapes), default=0) if kind.takes else 0
    given = {"name", *keys_of(kind), *extents_of(kind, (1,) * axes)}
    assert not given & {"type", "kind", "lists"}, "a table has attributes of these names"
    assert {item.name for item in fields(kind) if item.default is MISSING} <= given


def test_types_of_layers_are_their_own():
    names = [name for kind in nn.LAYERS for name in kind.type_names]
    assert len(set(names)) == len(names) == 17


def test_layers_get_the_extents_of_their_input():
    layers = [
        {"type": "conv2d", "out_channels": 4, "kernel": 3, "stride": 2},
        {"type": "max_pool", "window": 2},
        {"type": "residual", "layers": [{"type": "batch_norm"}, {"type": "gelu"}]},
        {"type": "flatten"},
        {"type": "linear", "out_features": 3},
    ]
    assert recipe(layers, [1, 9, 9], 3).network.built() == (
        nn.Conv2d("conv2d1", 1, 4, 3, 2),
        nn.MaxPool("max_pool1", 2, 2),
        nn.Residual("residual1", (nn.BatchNorm("residual1.batch_norm1", 4), nn.Activation("residual1.gelu1", "gelu"))),
        nn.Flatten("flatten1"),
        nn.Linear("linear1", 16, 3),
    )
    layers = [
        {"type": "embedding", "tokens": 256, "features": 8},
        {"type": "position"},
        {"type": "layer_norm"},
        {"type": "attention", "heads": 2},
        {"type": "linear", "out_features": 256},
    ]
    assert recipe(layers, [5], 256, "text").network.built()[1:4] == (
        nn.Position("position1", 5, 8),
        nn.LayerNorm("layer_norm1", 8),
        nn.Attention("attention1", 8, 2),
    )


SEQUENCE = [{"type": "embedding", "tokens": 256, "features": 8}]
IMAGES = "layer 'a' (batch_norm) must have an input of shape (features,) or (channels, rows, columns), got (5, 8); "


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"type": "batch_norm"}, IMAGES + "use layer_norm for sequences"),
        (
            {"type": "attention", "heads": 3},
            "layer 'a' (attention) must have an input of shape (length, a multiple of 3 heads), got (5, 8); change "
            "`heads` or the features",
        ),
        (
            {"type": "max_pool", "window": 2},
            "layer 'a' (max_pool) must have an input of shape (channels, rows, columns), got (5, 8); give it images, "
            "before any flatten layer",
        ),
        (
            {"type": "sparse_linear", "out_features": 2},
            "layer 'a' (sparse_linear) must have an input of shape (features,), got (5, 8); make it the first layer of "
            "a network with one number as `input`",
        ),
        (
            {"type": "embedding", "tokens": 2, "features": 2},
            "layer 'a' (embedding) must have an input of shape (length,), got (5, 8); make it the first layer",
        ),
    ],
)
def test_a_layer_that_cannot_take_its_input_says_what_it_needs(layer: dict[str, Any], message: str):
    with pytest.raises(emu.ConfigError) as refused:
        recipe([*SEQUENCE, layer | {"name": "a"}, {"type": "linear", "out_features": 256}], [5], 256, "text")
    assert str(refused.value) == f"{message} (in m.toml: network)"


def test_a_key_of_a_recipe_is_no_key_of_python_where_they_differ():
    for extra in ({"in_features": 8}, {"initialiser": "zero"}):
        with pytest.raises(emu.ConfigError):
            recipe([{"type": "linear", "out_features": 2} | extra], [1, 2, 2], 2)
    assert nn.Embedding("e", 1, 2).token_count == 1
    assert nn.Linear("l", 2, 3, initialiser="zero").parameters()[0].initialiser == "zero"


def test_a_recipe_is_the_same_after_a_pickle():
    saved = load_recipe("resnet8")
    assert pickle.loads(pickle.dumps(saved)) == saved


@pytest.mark.parametrize("function", ["gelu", "sigmoid", "tanh"])
def test_a_step_of_a_graph_reads_and_writes_the_tensors_of_its_layer(function: str):
    step, layer = Step("bent", function, (Read("input"),)), nn.Activation("bent", function)
    tensors = [[tensor[:2] for tensor in each.function_tensors("input")] for each in (step, layer)]
    assert tensors[0] == tensors[1]


@dataclass(frozen=True)
class Own(nn.Layer):
    """A layer that says nothing about itself."""

    size: int
    note: str = ""


def test_a_layer_of_ones_own_is_an_ordinary_layer_until_it_says_otherwise():
    own = Own("mine", np.int64(3))
    assert (type(own.size), own.output((5, 8)), own.type_name) == (int, (5, 8), "Own")
    assert own.results() == ("mine",)
    assert (own.slopes(), own.function_tensors("input"), own.token_count) == ((), (), None)
    with pytest.raises(emu.ShapeError, match="`size` must be in 1"):
        Own("mine", 0)
    assert not {kind.__name__ for kind in nn.LAYERS} & {"Own"}
