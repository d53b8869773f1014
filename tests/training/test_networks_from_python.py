"""Networks given from Python instead of a recipe's, with layers of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import emu
from emu import nn
from emu.autodiff import Graph, Tensor

SHORT = {"training.steps": 4, "training.batch": 4, "data.test_images": 10}


@dataclass(frozen=True)
class Doubled(nn.Layer):
    """A layer of one's own: each value added to itself, through the datapath."""

    def forward(self, graph: Graph, x: Tensor, parameters: nn.Parameters) -> Tensor:
        return graph.apply("add", x, x, layer=self.name)


def network(features: int = 12, name: str = "twice") -> nn.Network:
    return nn.Network((
        nn.Flatten("flat"), nn.Linear("first", 784, features), nn.Activation("bend", "tanh"), Doubled(name),
        nn.Linear("second", features, 10, initialiser="xavier"),
    ))  # fmt: skip


def train(folder: Path, backend: str = "numba", **options: object) -> emu.training.Run:
    settings = {"network": network(), "overrides": SHORT} | options
    return emu.train(emu.model("mlp"), emu.device("fixed16"), out=folder, backend=backend, **settings)


def test_a_network_with_a_layer_of_ones_own_trains_the_same_on_every_backend(tmp_path: Path):
    runs = [train(tmp_path / backend, backend) for backend in ("reference", "numba")]
    assert runs[0].weights_sha256 == runs[1].weights_sha256
    assert runs[0].registers_sha256 == runs[1].registers_sha256
    assert runs[0].info["layers"] == ["input", "flat", "first", "bend", "twice", "second", "loss"]
    assert "Given from Python" in (runs[0].path / "report.html").read_text()


def test_a_run_is_resumed_and_evaluated_with_its_own_network_alone(tmp_path: Path):
    run = train(tmp_path / "run")
    assert emu.resume(run.path, network=network()).weights_sha256 == run.weights_sha256
    for act in (emu.resume, emu.evaluate):
        with pytest.raises(emu.ConfigError, match="must get the network from Python"):
            act(run.path)
    with pytest.raises(emu.ConfigError, match="must be the one that the run was begun with"):
        emu.resume(run.path, network=network(features=13))
    assert emu.evaluate(run.path, network=network()).test_accuracy == run.test_accuracy


@pytest.mark.parametrize("name", ["first", "loss"])
def test_names_of_layers_must_be_their_own(name: str, tmp_path: Path):
    with pytest.raises(emu.ConfigError, match=f"must not be taken, got '{name}'"):
        train(tmp_path / "run", network=network(name=name))
