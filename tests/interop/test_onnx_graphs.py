"""Whole graphs: classes as onnxruntime's, any batch, constants folded, names that globs of a recipe match."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import emu
from emu.interop.onnx.trace import Source
from tests.interop.onnx_files import NETWORKS, node, saved

DIGITS = np.load(NETWORKS / "digits.npz")
TOKENS = (DIGITS["x"].reshape(-1, 64)[:64, :12] * 30.4).astype(np.int64)
#: Network, inputs.
GRAPHS = {
    "digits": DIGITS["x"],
    "digits-dynamo": DIGITS["x"],
    "sequence": DIGITS["x"],
    "letters": TOKENS,
}


def by_onnxruntime(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_gives_onnxruntimes_classes_in_float32(name: str):
    path, x = NETWORKS / f"{name}.onnx", GRAPHS[name]
    [scores] = emu.onnx.load(path)(x)
    expected = by_onnxruntime(path, x)
    assert scores.dtype == np.float32
    assert np.array_equal(scores.argmax(-1), expected.argmax(-1))
    assert float(np.abs(scores - expected).max()) <= 2e-5


def test_both_exporters_of_pytorch_give_one_network():
    older, newer = (emu.onnx.load(NETWORKS / f"{name}.onnx") for name in ("digits", "digits-dynamo"))
    [a], [b] = older(DIGITS["x"]), newer(DIGITS["x"])
    assert np.array_equal(a.argmax(-1), b.argmax(-1))
    assert float(np.abs(a - b).max()) <= 2e-5


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_graph_has_the_same_bits_on_every_backend_and_in_every_batch(backend: str):
    network = emu.onnx.load(NETWORKS / "digits.onnx")
    [whole] = network(DIGITS["x"][:6], device="fixed16", backend="numba")
    [first] = network(DIGITS["x"][:4], device="fixed16", backend=backend)
    [second] = network(DIGITS["x"][4:6], device="fixed16", backend=backend)
    assert np.array_equal(np.concatenate([first, second]), whole)


def test_layers_have_names_that_globs_match():
    wired = emu.onnx.load(NETWORKS / "letters.onnx").wired()
    names = [step.name for step in wired.steps]
    assert {"table", "block.qkv", "block.out", "block.up", "out"} <= set(names)
    assert len(set(names)) == len(names)
    assert [s.name for s in emu.onnx.load(NETWORKS / "digits-dynamo.onnx").wired().steps][:4] == [
        "c1", "relu1", "dw", "clip1",
    ]  # fmt: skip


def test_a_vector_that_is_added_to_a_product_is_its_bias(tmp_path: Path):
    weight, bias = np.float32([[1, 2], [3, 4], [5, 6]]), np.float32([0.25, -0.5])
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["b", "p"])]
    [step] = emu.onnx.load(saved(tmp_path / "a.onnx", nodes, {"w": weight, "b": bias})).wired().steps
    assert (step.primitive, [p.part for p in step.held]) == ("linear", ["weight", "bias"])
    [y] = emu.onnx.load(tmp_path / "a.onnx")(np.float32([[1, 1, 1]]))
    assert y.tolist() == [[9.25, 11.5]]


def test_a_product_that_is_read_twice_keeps_its_sum_apart(tmp_path: Path):
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Mul", ["p", "q"])]
    path = saved(tmp_path / "a.onnx", nodes, {"w": np.eye(3, dtype=np.float32), "b": np.float32([1, 2, 3])})
    assert len(emu.onnx.load(path).wired().steps) == 3
    assert emu.onnx.load(path)(np.float32([[2, 2, 2]]))[0].tolist() == [[6, 8, 10]]


def test_shapes_that_a_graph_computes_are_constants(tmp_path: Path):
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]), node("Unsqueeze", ["n", "axis"], ["row"]),
        node("Concat", ["row", "rest"], ["shape"], axis=0), node("Reshape", ["x", "shape"]),
    ]  # fmt: skip
    constants = {"zero": np.int64(0), "axis": np.int64([0]), "rest": np.int64([3, 2])}
    path = saved(tmp_path / "a.onnx", nodes, constants, inputs={"x": ("n", 2, 3)})
    network = emu.onnx.load(path)
    for batch in (1, 2, 5):
        x = np.arange(6.0 * batch, dtype=np.float32).reshape(batch, 2, 3)
        assert np.array_equal(network(x)[0], x.reshape(batch, 3, 2))
    assert [step.primitive for step in network.wired().steps] == ["reshape"]


def test_a_batch_that_is_baked_into_a_shape_stands_for_any(tmp_path: Path):
    nodes = [node("Reshape", ["x", "shape"])]
    path = saved(tmp_path / "a.onnx", nodes, {"shape": np.int64([1, 6])}, inputs={"x": (1, 2, 3)})
    x = np.arange(24.0, dtype=np.float32).reshape(4, 2, 3)
    assert np.array_equal(emu.onnx.load(path)(x)[0], x.reshape(4, 6))


def test_a_size_of_minus_one_is_open(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Relu", ["x"])], inputs={"x": (-1, 3)})
    x = np.float32([[1, -2, 3]] * 5)
    [y] = emu.onnx.load(path)(x)
    assert np.array_equal(y, by_onnxruntime(path, x))
    assert emu.onnx.load(path).described_inputs() == ["x float32 (n, 3)"]


def test_what_is_cut_off_or_repeated_is_taken(tmp_path: Path):
    resize = [node("Resize", ["x", "", "scales"], mode="nearest", coordinate_transformation_mode="asymmetric",
                   nearest_mode="floor")]  # fmt: skip
    path = saved(tmp_path / "a.onnx", resize, {"scales": np.float32([1, 2])})
    assert emu.onnx.load(path)(np.float32([[1, 2, 3]]))[0].tolist() == [[1, 1, 2, 2, 3, 3]]
    blocks = [node("DepthToSpace", ["x"], ["d"], blocksize=2), node("SpaceToDepth", ["d"], blocksize=2)]
    path = saved(tmp_path / "b.onnx", blocks, inputs={"x": ("n", 4, 1, 2)})
    x = np.arange(8.0, dtype=np.float32).reshape(1, 4, 1, 2)
    assert np.array_equal(emu.onnx.load(path)(x)[0], x)
    cast = [node("Cast", ["x"], ["c"], to=1), node("Neg", ["c"])]
    assert emu.onnx.load(saved(tmp_path / "c.onnx", cast))(np.float32([[1, 0, 2]]))[0].tolist() == [[-1, 0, -2]]


def test_several_inputs_come_in_the_order_of_the_graph(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Sub", ["a", "b"])], inputs={"a": ("n", 2), "b": ("n", 2)})
    network = emu.onnx.load(path)
    assert network.inputs == ("a", "b")
    assert network(np.float32([[3, 4]]), np.float32([[1, 2]]))[0].tolist() == [[2, 2]]
    with pytest.raises(emu.ShapeError, match="must be given its inputs a, b, got 1 arrays; give one for each"):
        network(np.float32([[3, 4]]))


def test_inputs_beyond_float32_are_infinite(tmp_path: Path):
    network = emu.onnx.load(saved(tmp_path / "a.onnx", [node("Identity", ["x"])]))
    [[row]] = network([[2**80, -(10**400), Fraction(1, 3)]])
    assert row.tolist() == [2.0**80, -np.inf, np.float32(1 / 3)]
    [[row]] = network(np.array([[1e300, -1e300, 0.5]]))
    assert row.tolist() == [np.inf, -np.inf, 0.5]


@pytest.mark.parametrize("token", [2**63, 2**70, -(2**70)])
def test_tokens_beyond_64_bits_are_refused(token: int):
    tokens = [[0] * 11 + [token]]
    with pytest.raises(emu.FormatError, match=r"must have integers in -9223372036854775808..9223372036854775807, got"):
        emu.onnx.load(NETWORKS / "letters.onnx")(tokens)


def test_weights_are_written_in_the_format_of_their_role():
    network = emu.onnx.load(NETWORKS / "digits.onnx")
    results = network.results(DIGITS["x"][:2], device="fixed8")
    assert str(results["c1"].format) == "fix8f3"
    weights = Source(NETWORKS / "digits.onnx").wired().steps[0].values["weight"]
    assert float(np.abs(weights).max()) > 2  # fix8f6 ends there


def test_a_graph_is_trained_further_and_its_run_insists_on_the_file(tmp_path: Path):
    file = tmp_path / "net.onnx"
    file.write_bytes((NETWORKS / "digits.onnx").read_bytes())
    recipe = tmp_path / "further.toml"
    recipe.write_text(f"""name = "further"
[network]
graph = '{file}'
[training]
steps = 3
batch = 16
log_every = 3
[training.optimiser]
name = "sgd"
learning_rate = 0.01
""")
    run = emu.train(recipe, "fixed16", out=tmp_path / "run", report=False)
    assert run.info["recipe"]["network"]["classes"] == 10
    assert run.info["layers"][:3] == ["input", "c1", "relu1"]
    assert run.info["metrics"]["test_accuracy"] > 0.9
    assert emu.evaluate(tmp_path / "run").test_accuracy == run.info["metrics"]["test_accuracy"]
    start = emu.train(recipe, "fixed16", out=tmp_path / "start", report=False, overrides={"training.steps": 1})
    assert start.weights_sha256 != run.weights_sha256
    (tmp_path / "net.onnx").write_bytes((NETWORKS / "sequence.onnx").read_bytes())
    with pytest.raises(emu.ConfigError, match=r"`graph` of .network. must be the file that the run was begun with"):
        emu.evaluate(tmp_path / "run")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"graph": "none.onnx"}, "a graph must be an ONNX file, got 'none.onnx', which does not exist; check the path"),
        ({"graph": "net.tflite"}, "must be an ONNX file, got net.tflite: networks of TFLite are integers"),
        (
            {"graph": "G", "layers": [{"type": "flatten"}]},
            "must have `graph` or `layers`, got both; remove one of them",
        ),
        ({"graph": "G", "classes": 9}, "`classes` of [network] must be 10, which "),
        ({"graph": "G", "input": [1, 9, 9]}, "`input` of [network] must be [1, 8, 8], which "),
        ({"input": [1, 8, 8], "classes": 10}, "must have `layers`, or an ONNX file as `graph`, got neither; add"),
    ],
)
def test_a_recipe_with_a_graph_is_checked(table: dict[str, Any], text: str):
    from emu.training.recipe import Network

    if table.get("graph") == "G":
        table = {**table, "graph": str(NETWORKS / "digits.onnx")}
    with pytest.raises(Exception) as refused:  # noqa: PT011 - pydantic's, or emu's
        Network.model_validate(table)
    assert text in str(refused.value)
