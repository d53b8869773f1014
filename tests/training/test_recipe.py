"""Recipes load, come back from JSON, and obey the command line."""

from __future__ import annotations

import json

import pytest

import emu
from emu._config import checked
from emu.training.recipe import Recipe, load_recipe, model_names


class TestShippedModels:
    def test_both_of_the_first_release_are_there(self):
        assert {"mlp", "lenet"} <= set(model_names())

    @pytest.mark.parametrize("name", model_names())
    def test_a_model_is_called_as_its_file(self, name: str):
        assert load_recipe(name).name == name

    @pytest.mark.parametrize("name", model_names())
    def test_a_recipe_comes_back_from_json(self, name: str):
        recipe = load_recipe(name)
        assert Recipe.model_validate(json.loads(json.dumps(recipe.model_dump(mode="json")))) == recipe

    def test_lenet_has_the_sizes_of_the_paper(self):
        network = load_recipe("lenet").network
        sized = [layer.name for layer in network.layers if layer.type in ("conv2d", "linear", "max_pool", "avg_pool")]
        assert sized == ["conv1", "pool1", "conv2", "pool2", "fc1", "fc2", "output"]
        shapes = dict(zip((layer.name for layer in network.layers), network.shapes()[1:], strict=True))
        assert shapes["conv1"] == (6, 28, 28)
        assert shapes["pool1"] == (6, 14, 14)
        assert shapes["conv2"] == (16, 10, 10)
        assert shapes["pool2"] == (16, 5, 5)
        assert (shapes["fc1"], shapes["fc2"], shapes["output"]) == ((120,), (84,), (10,))

    def test_layers_without_a_name_get_their_type_and_a_running_number(self):
        names = [layer.name for layer in load_recipe("mlp").network.layers]
        assert names == ["flatten1", "fc1", "relu1", "fc2", "relu2", "output"]


class TestSettings:
    def test_steps_replace_epochs(self):
        training = load_recipe("lenet", ["training.steps=20"]).training
        assert (training.steps, training.epochs) == (20, None)

    def test_epochs_replace_steps(self):
        training = load_recipe("lenet", ["training.steps=20"]).with_settings({"training.epochs": 2}).training
        assert (training.steps, training.epochs) == (None, 2)

    def test_the_last_setting_of_a_key_wins(self):
        assert load_recipe("lenet", ["training.seed=3", "training.seed=4"]).training.seed == 4

    def test_a_layer_is_reached_by_its_name_or_position(self):
        by_name = load_recipe("lenet", ["network.layers.conv1.out_channels=8"])
        by_position = load_recipe("lenet", ["network.layers.0.out_channels=8"])
        assert by_name == by_position
        assert by_name.network.shapes()[1] == (8, 28, 28)

    def test_a_layer_named_by_its_type_is_reached_too(self):
        recipe = load_recipe("lenet").with_settings({"network.layers.relu1.type": "tanh"})
        assert [layer.type for layer in recipe.network.layers][1] == "tanh"

    def test_bare_words_are_text(self):
        assert load_recipe("lenet", ["precision.weight.format=fp16 ftz"]).precision.weight.format == "fp16 ftz"

    def test_a_whole_table_can_be_set(self):
        recipe = load_recipe("lenet", ["training.schedule={name='step', milestones=[0.5, 0.75]}"])
        assert recipe.training.schedule.milestones == (0.5, 0.75)

    def test_another_optimiser_is_chosen_by_name_alone(self):
        assert load_recipe("lenet", ["training.optimiser.name=sgd"]).training.optimiser.name == "sgd"
        assert load_recipe("lenet").with_settings({"training.optimiser.name": "sgd"}).training.optimiser.name == "sgd"

    def test_precision_of_a_layer_is_set_by_glob(self):
        recipe = load_recipe("lenet", ["precision.layers=[{match='conv*', weight={format='fix8f6'}}]"])
        assert recipe.precision.layers[0].weight.format == "fix8f6"

    def test_no_setting_changes_nothing(self):
        assert load_recipe("lenet").with_settings({}) == load_recipe("lenet")


RELU, LINEAR, FLATTEN = {"type": "relu"}, {"type": "linear", "out_features": 3}, {"type": "flatten"}


def network(*layers: dict[str, object], **changes: object) -> dict[str, object]:
    table = {"input": [1, 8, 8], "classes": 10, "layers": [FLATTEN, *layers, LINEAR | {"out_features": 10}]}
    training = {"steps": 1, "batch": 1, "optimiser": {"name": "sgd", "learning_rate": 1.0}}
    return {"name": "x", "network": table | changes, "training": training}


@pytest.mark.parametrize(("recipe", "said"), [
    (network({"type": "relu", "name": "a.b"}), "must have no dot, got 'a.b'"),
    (network({"type": "residual", "name": "r", "layers": [RELU]}, RELU | {"name": "r"}), "must not be taken, got 'r'"),
    (network({"type": "residual", "layers": [RELU], "shortcut": [LINEAR]}), "must have results of one shape"),
    (network({"type": "embedding", "tokens": 3, "features": 2}), "must be the first and read text"),
    (network({"type": "attention", "heads": 2}), "must have an input of shape (length, features)"),
    (network({"type": "batch_norm"}, input=[8]), "must have 3 numbers for data of kind 'images'"),
])  # fmt: skip
def test_networks_that_cannot_be_are_refused(recipe: dict[str, object], said: str):
    with pytest.raises(emu.ConfigError) as caught:
        checked(Recipe, recipe, file="x.toml")
    assert said in str(caught.value)
