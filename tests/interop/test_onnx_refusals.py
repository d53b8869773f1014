"""Files that cannot be read, and nodes that cannot be computed: one message that names the thing, and a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import emu
from tests.command_line import Run
from tests.interop.onnx_files import NETWORKS, node, read, saved


def message(path: Path, *arrays: Any) -> str:
    with pytest.raises(emu.EmuError) as refused:
        computed(path, *arrays)
    return str(refused.value)


def computed(path: Path, *arrays: Any) -> Any:
    network = emu.onnx.load(path)
    return network(*arrays) if arrays else network.wired()


def test_a_missing_or_damaged_file(tmp_path: Path):
    assert message(tmp_path / "a.onnx").startswith("a graph must be an ONNX file, got ")
    damaged = tmp_path / "b.onnx"
    damaged.write_bytes((NETWORKS / "digits.onnx").read_bytes()[:500])
    assert "a graph must be an ONNX file, got" in message(damaged)
    damaged.write_text("no model")
    assert "export it again" in message(damaged)
    damaged.write_bytes(b"")
    assert "which has no graph; export it again" in message(damaged)


@pytest.mark.parametrize(
    ("opset", "remedy"), [(10, "onnx.version_converter.convert_version(model, 11)"), (26, "opset_version=25")]
)
def test_an_opset_that_is_not_understood(tmp_path: Path, opset: int, remedy: str):
    text = message(saved(tmp_path / "a.onnx", [node("Relu", ["x"])], opset=opset))
    assert f"must be 11..25, got {opset}; " in text
    assert remedy in text


def test_external_data_stay_in_the_folder(tmp_path: Path):
    model = read(NETWORKS / "digits-dynamo.onnx")
    for location, expected in (
        ("../secret.data", "external data must lie in the folder of the file, got '../secret.data'"),
        ("/etc/passwd", "external data must lie in the folder of the file, got '/etc/passwd'"),
        ("gone.data", "external data must lie beside the file, got 'gone.data'"),
    ):
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = location if entry.key == "location" else entry.value
        (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
        assert expected in message(tmp_path / "a.onnx")
    (tmp_path / "gone.data").write_bytes(b"short")
    assert "must be bytes 0..5 of" in message(tmp_path / "a.onnx")


def test_a_link_out_of_the_folder_is_outside(tmp_path: Path):
    inside, outside = tmp_path / "in", tmp_path / "secret.data"
    inside.mkdir()
    outside.write_bytes(b"\0" * 20_000)
    (inside / "digits-dynamo.onnx.data").symlink_to(outside)
    (inside / "a.onnx").write_bytes((NETWORKS / "digits-dynamo.onnx").read_bytes())
    assert "external data must lie in the folder of the file" in message(inside / "a.onnx")


def test_a_cycle(tmp_path: Path):
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"])]
    text = message(saved(tmp_path / "a.onnx", nodes))
    assert "nodes of a graph must read results of earlier ones, got 'b' for node 'Add'" in text


def test_a_branch(tmp_path: Path):
    graph = helper.make_graph([node("Relu", ["x"], ["z"])], "inner", [], [helper.make_tensor_value_info("z", 1, None)])
    nodes = [node("If", ["c"], then_branch=graph, else_branch=graph)]
    text = message(saved(tmp_path / "a.onnx", nodes, {"c": np.bool_(True)}))
    assert "nodes of a graph must have no graph of their own, got attribute '" in text


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("LSTM", ["x", "x", "x"], name="memory")], "got 'LSTM' at node 'memory'"),
        ([node("NoSuch", ["x"])], 'it is none of docs/onnx.md, "Operators"'),
        ([node("Greater", ["x", "x"])], "numbers are not compared while it computes"),
        ([helper.make_node("Fancy", ["x"], ["y"], domain="my.own")], "operators of domain 'my.own' are not known"),
        ([node("DequantizeLinear", ["x", "x"])], "must hold elements as operand 0, got float32"),
        ([node("Cast", ["x"], to=TensorProto.FLOAT16)], "must cast to float32, got type 10"),
        ([node("Resize", ["x", "", "s"], mode="cubic")], "must resize by 'nearest', got 'cubic'"),
        ([node("Reshape", ["x", "s"])], "must give (2, 3) a shape of 6 numbers, got (2,)"),
        ([node("Transpose", ["x"], perm=[0, 5])], "must name an axis in -2..1, got 5"),
        ([node("Unsqueeze", ["x", "twice"])], "must insert each axis once, got [0, -4]"),
        ([node("Gather", ["x", "i"], axis=1)], "must gather at places of 3 elements, got [7]"),
        ([node("Dropout", ["x", "", "t"])], "must be exported for inference, got training_mode = true"),
    ],
)
def test_a_node_that_cannot_be_computed_is_named(tmp_path: Path, nodes: list[Any], expected: str):
    constants = {"s": np.int64([2]), "i": np.int64([7]), "t": np.bool_(True), "twice": np.int64([0, -4])}
    assert expected in message(saved(tmp_path / "a.onnx", nodes, constants))


def test_an_open_shape(tmp_path: Path):
    text = message(saved(tmp_path / "a.onnx", [node("Relu", ["x"])], inputs={"x": ("n", 3, "rows")}))
    assert "inputs must have a known shape apart from the batch, got (?, 3, ?) for 'x'" in text


def test_inputs_of_another_type(tmp_path: Path):
    text = message(saved(tmp_path / "a.onnx", [node("Relu", ["x"])], kind=TensorProto.DOUBLE))
    assert (
        "inputs of a graph must be float32, integers of 8 bits, or int32 or int64 of tokens, got DOUBLE for 'x'" in text
    )


def test_an_input_of_another_shape():
    text = message(NETWORKS / "digits.onnx", np.zeros((2, 1, 9, 8, 3), np.float32))
    assert text == "input 'x' must have the shape (n, 1, 8, 8), got (2, 1, 9, 8, 3); reshape it"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "must be evaluated with --device and --data, got no --device"),
        (["--device", "fixed16"], "must be evaluated with --device and --data, got no --data"),
        (
            ["--device", "fixed16", "--data", "none.npz"],
            "or a folder of images, got 'none.npz'",
        ),
        (
            ["--device", "fixed16", "--data", "D", "--only", "c9"],
            "with formats of the device, got 'c9'",
        ),
        (["--device", "fixed16", "--data", "D", "--model", "mlp"], "without --model and --set, got 'mlp'"),
        (["--device", "dlu8", "--data", "D"], "must say every binary point to evaluate a network from elsewhere"),
    ],
)
def test_the_command_says_what_is_missing(emu_command: Run, options: list[str], expected: str):
    given = [str(NETWORKS / "digits.npz") if option == "D" else option for option in options]
    code, _, err = emu_command("evaluate", str(NETWORKS / "digits.onnx"), *given)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err


def damaged_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield a network's file, damaged in another way each time: bytes are exchanged at places that are drawn."""
    content, draw = (NETWORKS / name).read_bytes(), np.random.default_rng(7)
    for _ in range(60):
        damaged = bytearray(content)
        for place in draw.integers(0, min(len(content), 3000), int(draw.integers(1, 4))):
            damaged[place] = int(draw.integers(0, 256))
        path = folder / name
        path.write_bytes(damaged)
        yield path


@pytest.mark.parametrize(
    "name", ["digits.onnx", "letters.onnx", "digits-qdq.onnx", "digits-brevitas.onnx", "digits.tflite"]
)
def test_a_damaged_file_is_one_error_or_still_a_network(tmp_path: Path, name: str):
    """Bytes are exchanged at places that are drawn: names, shapes, types, offsets."""
    from emu.interop.loading import load

    messages: list[str] = []
    for path in damaged_files(tmp_path, name):
        try:
            load(path).shapes()
        except emu.EmuError as error:
            messages.append(str(error))
    assert len(messages) > 5
    assert not [message for message in messages if "\n" in message]


@pytest.mark.parametrize("name", ["digits.onnx", "letters.onnx"])
def test_a_damaged_file_is_one_error_where_its_steps_are_counted_and_where_it_is_written(tmp_path: Path, name: str):
    """A damaged name is read as bytes, which nothing else takes for a text."""
    counting: list[str] = []
    writing: list[str] = []
    for path in damaged_files(tmp_path, name):
        try:
            network = emu.onnx.load(path)
        except emu.EmuError:
            continue
        try:
            assert all(steps > 1 for steps in network.composed.values())
        except emu.EmuError as error:
            counting.append(str(error))
        try:
            network.write_qonnx(tmp_path / "q.onnx", "fixed16")
        except emu.EmuError as error:
            writing.append(str(error))
    for messages in (counting, writing):
        assert any("must be a whole file whose fields fit together, got TypeError" in message for message in messages)
