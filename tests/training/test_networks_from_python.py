"""Networks given from Python instead of a recipe's, with layers of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import nn
from emu.autodiff import Graph, PlainRunner, Tensor, Value
from emu.nn.layer import key

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


def given(*shape: int) -> Tensor:
    return Graph(PlainRunner()).constant(Value(np.zeros(shape)))


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.BatchNorm("norm", 10), (4, 784), r"layer 'norm' \(batch_norm\) must have an input of shape \(10,\), got"),
        (
            nn.BatchNorm("norm", 3),
            (4, 1, 6, 6),
            r"must have an input of shape \(3, 6, 6\), got \(1, 6, 6\); change the",
        ),
        (
            nn.LayerNorm("norm", 1),
            (4, 784),
            r"layer 'norm' \(layer_norm\) must have an input of shape \(1,\), got \(784",
        ),
        (nn.Position("places", 1, 8), (4, 64, 8), r"\(position\) must have an input of shape \(1, 8\), got \(64, 8\)"),
        (
            nn.Position("places", 4, 8),
            (4, 4),
            r"must have an input of shape \(length, features\), got \(4,\); add the ax",
        ),
        (
            nn.Attention("a", 8, 3),
            (4, 5, 8),
            r"must have an input of shape \(length, a multiple of 3 heads\), got \(5, 8",
        ),
        (
            nn.Attention("a", 6, 3),
            (4, 5, 8),
            r"must have an input of shape \(5, 6\), got \(5, 8\); change the sizes of",
        ),
        (nn.AvgPool("pool", 9, 9), (4, 1, 8, 8), r"`window` 9, got \(1, 8, 8\); choose a smaller window"),
        (nn.AvgPool("pool", 2, 2), (4, 784), r"must have an input of shape \(channels, rows, columns\), got \(784,\)"),
        (
            nn.Embedding("table", 10, 2),
            (4, 5),
            r"\(embedding\) must read integers in 0..9, .*, got dtype float64; make",
        ),
    ],
)
def test_a_layer_that_does_not_fit_its_input_is_named(layer: nn.Layer, shape: tuple[int, ...], message: str):
    with pytest.raises(emu.ShapeError, match=message):
        layer.forward(Graph(PlainRunner()), given(*shape), {})


@pytest.mark.parametrize("token", [-1, 10])
def test_tokens_must_be_rows_of_the_table(token: int):
    tokens = Graph(PlainRunner()).constant(Value(np.array([[3, token]])))
    with pytest.raises(
        emu.ShapeError, match=f"must read integers in 0..9, the rows of its table, got {token}; make it"
    ):
        nn.Embedding("table", 10, 2).forward(Graph(PlainRunner()), tokens, {})


def test_body_and_shortcut_must_have_one_shape_even_where_numpy_would_repeat_one():
    block = nn.Residual("r", (nn.Flatten("flat"),))
    with pytest.raises(
        emu.ShapeError, match=r"results of one shape, got \(1,\) from `layers` and \(1, 1, 1\) from `sho"
    ):
        block.forward(Graph(PlainRunner()), given(4, 1, 1, 1), {})


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        ((4, 5), [0, 1, 5, 2], "an output for each class, got 5 outputs for a label of 5; change the last layers"),
        ((4, 5), [0, 1, -1, 2], "an output for each class, got 5 outputs for a label of -1; change the last layers"),
        ((4, 3, 5), [0, 1, 2, 3], r"one row of outputs for each label, got outputs \(4, 3, 5\) for labels \(4,\); cha"),
    ],
)
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mse", "euclidean"])
def test_a_network_has_an_output_for_each_class(loss: Any, outputs: tuple[int, ...], labels: list[int], message: str):
    graph = Graph(PlainRunner())
    with pytest.raises(emu.ShapeError, match=message):
        nn.Network((), loss).apply_loss(graph, given(*outputs), graph.constant(Value(np.array(labels))))


def test_a_number_of_ones_own_layer_may_have_other_limits_or_none():
    @dataclass(frozen=True)
    class Free(nn.Layer):
        slope: float = field(default=0.5, metadata=key(multiple_of=0.5))

    # as with `from __future__ import annotations` in the module of a layer
    assert Free.__dataclass_fields__["slope"].type == "float"
    assert Free("free", -3.25).slope == -3.25
    wrong: Any = "a"
    with pytest.raises(emu.ConfigError, match=r"`slope` of layer 'free' \(Free\) must be a number, got 'a'; choose an"):
        Free("free", wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Dropout("drop", 1.0),
            r"`rate` of layer 'drop' \(dropout\) must be a number above 0 and below 1, got 1",
        ),
        (lambda: nn.Dropout("drop", -0.5), "must be a number above 0 and below 1, got -0.5; choose another one"),
        (lambda: nn.Dropout("drop", float("nan")), "got nan"),
        (lambda: nn.Dropout("drop", "half"), "got 'half'"),  # pyright: ignore[reportArgumentType]
        (lambda: nn.BatchNorm("norm", 3, eps=0.0), "`eps` of layer 'norm' .* must be a number above 0, got 0.0"),
        (lambda: nn.BatchNorm("norm", 3, momentum=1.5), "`momentum` of .* above 0 and of at most 1, got 1.5"),
        (lambda: nn.LayerNorm("norm", 3, eps=-1), "must be a number above 0, got -1"),
    ],
)
def test_numbers_of_layers_have_the_limits_that_recipes_have(make: Callable[[], nn.Layer], message: str):
    with pytest.raises(emu.ConfigError, match=message):
        make()
    half: Any = np.float32(0.5)
    assert nn.Dropout("drop", half).rate == 0.5
