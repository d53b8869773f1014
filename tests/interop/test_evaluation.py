"""What a device does to each layer of a network: the columns of the table, and the layer that brute force names."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

import emu
from emu.autodiff import Operation, Value
from emu.interop.calibration import calibrate
from emu.interop.evaluation import GraphEvaluation, evaluate_graph
from emu.interop.examples import Examples, read_examples
from emu.interop.graph import Machine
from emu.nn.wired import Read
from tests.command_line import Run
from tests.interop.onnx_files import NETWORKS, node, saved

DIGITS = NETWORKS / "digits.onnx"
DATA = NETWORKS / "digits.npz"


@pytest.fixture(scope="module")
def on_fixed8() -> GraphEvaluation:
    return evaluate_graph(DIGITS, "fixed8", DATA)


def test_the_whole_network_on_a_device_is_what_a_call_gives(on_fixed8: GraphEvaluation):
    data = np.load(DATA)
    [scores] = emu.onnx.load(DIGITS)(data["x"], device="fixed8")
    [exact] = emu.onnx.load(DIGITS)(data["x"])
    assert on_fixed8.accuracy == (scores.argmax(-1) == data["y"]).mean()
    assert on_fixed8.float_accuracy == (exact.argmax(-1) == data["y"]).mean()
    assert on_fixed8.changed == (scores.argmax(-1) != exact.argmax(-1)).sum()
    assert on_fixed8.largest_difference == np.abs(scores.astype(float) - exact).max()
    assert (on_fixed8.examples, on_fixed8.answers) == (450, 450)


def alone(name: str, device: str, x: np.ndarray) -> np.ndarray:
    """Brute force: every step computed, one of them on the device; nothing is shared between layers."""
    wired = emu.onnx.load(DIGITS).wired(len(x))
    exact, machine = (Machine(wired, emu.device(d), "numba") for d in ("float32", device))
    known = dict(zip(wired.inputs, exact.inputs([x]), strict=True))
    wrote = {wired.inputs[0]: wired.inputs[0]}
    for step in wired.steps:
        read = [operand.name for operand in step.operands if isinstance(operand, Read)]
        wrote[step.name] = wrote[read[0]] if step.only_moves else step.name
        if step.name != name:
            known[step.name] = step.apply(exact.tape, known, exact.constants)
            continue
        there = {n: machine.written("activation", wrote[n], known[n].value.array) for n in read}
        result = step.apply(machine.tape, there, machine.constants).value.array
        known[step.name] = exact.written("activation", step.name, np.asarray(result, np.float64))
    return known[wired.returns[0]].value.array.argmax(-1)


def test_a_layer_alone_changes_the_answers_that_brute_force_finds(on_fixed8: GraphEvaluation):
    data = np.load(DATA)
    [scores] = emu.onnx.load(DIGITS)(data["x"])
    exact = scores.argmax(-1)
    rows = {row.name: row for row in on_fixed8.steps}
    changed: dict[str, int] = {}
    for name, row in rows.items():
        answers = alone(name, "fixed8", data["x"])
        changed[name] = int((answers != exact).sum())
        assert row.alone_changed == changed[name], name
        assert row.alone_accuracy == (answers == data["y"]).mean(), name
    assert on_fixed8.steps[0].name == max(changed, key=changed.__getitem__) == "c1"


def test_the_noise_of_a_layer_is_that_of_its_numbers(on_fixed8: GraphEvaluation):
    x, network = np.load(DATA)["x"], emu.onnx.load(DIGITS)
    exact, written = (network.results(x, device=device)["c3"].array.astype(float) for device in ("float32", "fixed8"))
    expected = 10 * math.log10((exact**2).sum() / ((written - exact) ** 2).sum())
    row = next(row for row in on_fixed8.steps if row.name == "c3")
    assert row.signal_to_noise_db == pytest.approx(expected, rel=1e-9)


def test_weights_beyond_their_format_are_counted(on_fixed8: GraphEvaluation):
    step = emu.onnx.load(DIGITS).wired().steps[0]
    beyond = sum(int(((v > 2 - 2**-6) | (v < -2)).sum()) for v in step.values.values())
    total = sum(v.size for v in step.values.values())
    row = next(row for row in on_fixed8.steps if row.name == "c1")
    assert row.weights_overflow == pytest.approx(beyond / total, abs=1 / total)
    assert row.weights_overflow > 0.1


def test_float32_changes_nothing():
    result = evaluate_graph(DIGITS, "float32", DATA, only=["c1", "f*"])
    assert (result.changed, result.largest_difference) == (0, 0.0)
    assert {row.signal_to_noise_db for row in result.steps} == {math.inf}
    assert {row.name for row in result.steps if row.alone_changed is not None} == {"c1", "fc"}


def test_infinities_that_stay_are_no_noise(tmp_path: Path):
    """Masked scores of attention are minus infinity in float32 and on a device of floats; fixed point has none."""
    nodes = [node("Add", ["x", "mask"], ["scores"]), node("Softmax", ["scores"])]
    path = saved(tmp_path / "a.onnx", nodes, {"mask": np.float32([0.0, 0.0, -np.inf])})
    x = np.float32([[1.0, 0.3, 2.0], [-0.7, 0.1, 0.5]])
    np.savez(tmp_path / "a.npz", x=x)
    noises = {
        device: {step.name: step.signal_to_noise_db for step in evaluate_graph(path, device, tmp_path / "a.npz").steps}
        for device in ("float32", "fp16", "fixed16")
    }
    assert noises["float32"] == {"add1": math.inf, "softmax1": math.inf}
    # halves lose digits of .3, -.7 and .1 alone
    error = np.square(x[:, :2].astype(np.float16).astype(float) - x[:, :2]).sum()
    assert noises["fp16"]["add1"] == pytest.approx(10 * math.log10(np.square(x[:, :2].astype(float)).sum() / error))
    assert noises["fixed16"]["add1"] == -math.inf


def test_a_string_is_one_glob_of_layers_to_try(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.load(DATA)["x"][:2])
    rows = evaluate_graph(DIGITS, "fixed8", tmp_path / "a.npz", only="c?").steps
    assert {row.name for row in rows if row.alone_changed is not None} == {"c1", "c3"}


def test_progress_reaches_the_end():
    seen: list[tuple[int, int]] = []
    evaluate_graph(DIGITS, "fixed16", DATA, only=["c1"], progress=lambda done, work: seen.append((done, work)))
    assert seen[-1] == (24, 24)
    assert [done for done, _ in seen] == list(range(1, 25))


def test_tokens_without_labels(tmp_path: Path):
    tokens = np.arange(24).reshape(2, 12) % 32
    np.save(tmp_path / "tokens.npy", tokens)
    result = evaluate_graph(NETWORKS / "letters.onnx", "fp16", tmp_path / "tokens.npy", only=["block.*"])
    assert (result.accuracy, result.float_accuracy, result.answers) == (None, None, 24)
    assert next(row for row in result.steps if row.name == "block.qkv").alone_changed is not None


def test_a_network_of_two_inputs_is_refused(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Sub", ["a", "b"])], inputs={"a": ("n", 2), "b": ("n", 2)})
    with pytest.raises(emu.ConfigError, match="a network that is evaluated must have one input, got a, b"):
        evaluate_graph(path, "fixed16", DATA)


# ---- the command ----


def test_the_command_prints_the_worst_layer_first(emu_command: Run):
    code, out, _ = emu_command(
        "evaluate", str(DIGITS), "--device", "fixed8", "--data", str(DATA), "--only", "c*", width=120
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("accuracy 70.00% on fixed8   96.89% in float32 (-26.89 points)   139 of 450 answers")
    assert lines[3].split() == ["layer", "operator", "SNR", "alone", "accuracy", "overflow", "underflow", "weights"]
    assert lines[4].split()[:5] == ["c1", "Conv", "8.9", "dB", "123"]
    assert "16% of c1's weights lie beyond the device's format" in " ".join(out.split())


def test_the_command_prints_json(emu_command: Run):
    arguments = ("evaluate", str(DIGITS), "--device", "fixed8", "--data", str(DATA), "--only", "none", "--json")
    code, out, _ = emu_command(*arguments)
    data = json.loads(out)
    assert code == 0
    assert (data["accuracy"], data["changed_answers"], data["examples"]) == (0.7, 139, 450)
    assert {row["changed_alone"] for row in data["layers"]} == {None}
    assert data["layers"][0]["signal_to_noise_db"] == min(row["signal_to_noise_db"] for row in data["layers"])


def test_the_command_lists_what_is_in_a_file(emu_command: Run):
    code, out, _ = emu_command("models", str(DIGITS), width=120)
    assert code == 0
    assert "digits.onnx: 15 layers that compute" in out
    assert "x float32 (n, 1, 8, 8)" in out
    assert "PyTorch's exporters fold it into the weights" in " ".join(out.split())
    code, out, _ = emu_command("models", str(DIGITS), "--json")
    data = json.loads(out)
    assert (data["parameters"], data["opset"]) == (2794, 17)
    assert data["layers"][0] == {
        "layer": "c1", "operator": "Conv", "output_shape": [8, 8, 8], "parameters": 80,
        "largest_parameter": data["layers"][0]["largest_parameter"],
    }  # fmt: skip


def test_other_weights_have_no_data_option(emu_command: Run, tmp_path: Path):
    code, _, err = emu_command("evaluate", str(tmp_path), "--data", str(DATA))
    assert code == 2
    assert "--data must be given with a network, an .onnx or .tflite file" in err


# ---- examples ----


@pytest.mark.parametrize("names", [("x", "y"), ("x_test", "y_test"), ("test_images", "test_labels")])
def test_archives_of_examples(tmp_path: Path, names: tuple[str, str]):
    x, y = np.arange(12.0).reshape(2, 6), np.array([[1], [0]])
    np.savez(tmp_path / "a.npz", **dict(zip(names, (x, y), strict=True)))
    examples = read_examples(tmp_path / "a.npz", (1, 2, 3))
    assert examples.inputs.dtype == np.float32
    assert np.array_equal(examples.inputs, x.reshape(2, 1, 2, 3))
    assert examples.labels is not None
    assert examples.labels.tolist() == [1, 0]


def test_arrays_with_labels_beside_them(tmp_path: Path):
    x = np.arange(24.0).reshape(2, 2, 2, 3)
    np.save(tmp_path / "a.npy", x)
    assert read_examples(tmp_path / "a.npy", (3, 2, 2)).labels is None
    np.save(tmp_path / "a_labels.npy", [1, 0])
    examples = read_examples(tmp_path / "a.npy", (3, 2, 2))
    assert np.array_equal(examples.inputs, np.moveaxis(x, 3, 1))
    assert examples.labels is not None
    assert examples.labels.tolist() == [1, 0]


def test_channels_of_data_may_come_first_where_a_network_has_them_last(tmp_path: Path):
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    np.save(tmp_path / "a.npy", x)
    assert np.array_equal(read_examples(tmp_path / "a.npy", (4, 5, 3)).inputs, np.moveaxis(x, 1, 3))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a,b,label\n1,2,0\n3,4,1\n", [0, 1]),
        ("y,a,b\n0,1,2\n1,3,4\n", [0, 1]),
        ("1,2\n3,4\n", None),
        ("a,b\n1,2\n3,4\n", None),
    ],
)
def test_tables_of_examples(tmp_path: Path, text: str, labels: Any):
    (tmp_path / "a.csv").write_text(text)
    examples = read_examples(tmp_path / "a.csv", (2,))
    assert examples.inputs.tolist() == [[1, 2], [3, 4]]
    assert (None if examples.labels is None else examples.labels.tolist()) == labels


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.zeros((2, 5))}, "inputs must have the shape (N, 2, 3) that the network reads, got (2, 5)"),
        ({"x": np.full((2, 2, 3), np.nan)}, "inputs must be finite float32, got nan at index (0, 0, 0)"),
        ({"x": np.array(["a", "b"])}, "inputs must be real numbers, at least one, got <U1 of shape (2,)"),
        ({"x": np.zeros((0, 6))}, "inputs must be real numbers, at least one, got float64 of shape (0, 6)"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, "an .npz of examples must have the arrays x and y, got a, b in"),
        (
            {"x": np.zeros((2, 6)), "y": np.zeros(3)},
            "labels must be 2 class numbers from 0 on, one for each input,",
        ),
        ({"x": np.zeros((2, 6)), "y": np.array([0.5, 1])}, "labels must be 2 class numbers from 0 on"),
        ({"x": np.zeros((2, 6)), "y": np.array([-1, 1])}, "labels must be 2 class numbers from 0 on"),
        ({"x": np.zeros((2, 6)), "y": np.array([1e30, 1])}, "labels must be 2 class numbers from 0 on"),
    ],
)
def test_examples_that_do_not_fit(tmp_path: Path, arrays: dict[str, np.ndarray], text: str):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(emu.ConfigError) as refused:
        read_examples(tmp_path / "a.npz", (2, 3))
    assert text in str(refused.value)


def test_files_of_examples_that_are_none(tmp_path: Path):
    for name, text in (
        ("a.npz", "examples must be plain numbers, got"),
        ("a.csv", "inputs must be real numbers, at least one, got"),
        ("a.txt", "examples must be in an .npz, .npy, .csv file, got"),
    ):
        (tmp_path / name).write_text("no, numbers")
        with pytest.raises(emu.ConfigError) as refused:
            read_examples(tmp_path / name, (2,))
        assert str(refused.value).startswith(text)


def test_arrays_and_archives_under_the_name_of_the_other(tmp_path: Path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    with (tmp_path / "a.npy").open("wb") as file:
        np.savez(file, x=np.zeros((3, 2)))
    for name in ("a.npz", "a.npy"):
        with pytest.raises(emu.ConfigError, match=r"examples must be plain numbers, got .* while reading .*; write it"):
            read_examples(tmp_path / name, (2,))


def test_labels_of_another_shape_than_the_answers(tmp_path: Path):
    tokens = np.arange(24).reshape(2, 12) % 32
    np.savez(tmp_path / "a.npz", x=tokens, y=np.array([0, 1]))
    with pytest.raises(emu.ConfigError, match=r"labels must have the shape .2, 12. of the network's answers, got .2,."):
        evaluate_graph(NETWORKS / "letters.onnx", "fp16", tmp_path / "a.npz", only=[])


@pytest.mark.parametrize("number", [300, -1])
def test_elements_beyond_8_bits_are_refused_as_a_call_refuses_them(tmp_path: Path, number: int):
    nodes = [node("DequantizeLinear", ["x", "s"])]
    path = saved(tmp_path / "a.onnx", nodes, {"s": np.float32(0.5)}, kind=onnx.TensorProto.UINT8)
    np.savez(tmp_path / "a.npz", x=np.full((2, 3), number))
    for compute in (evaluate_graph, calibrate):
        with pytest.raises(emu.FormatError, match=rf"integers in 0\.\.255, got {number}\.\.{number}; quantise"):
            compute(path, "fixed8", tmp_path / "a.npz")


@pytest.mark.parametrize("compute", [evaluate_graph, calibrate])
def test_examples_from_python_must_fit_the_network(compute: Any):
    with pytest.raises(emu.ConfigError, match="examples must have at least one input, got none in mine; give some"):
        compute(DIGITS, "fixed8", Examples(np.zeros((0, 1, 8, 8), np.float32), None, "mine"))
    with pytest.raises(emu.ShapeError, match=r"must have the shape \(n, 1, 8, 8\), got \(2, 64\)"):
        compute(DIGITS, "fixed8", Examples(np.zeros((2, 64), np.float32), None, "mine"))


def test_a_machine_writes_inputs_in_the_formats_of_its_device():
    wired = emu.onnx.load(DIGITS).wired()
    machine = Machine(wired, emu.device("fixed8"), "reference")
    x = np.float32([[0.3]])
    [tensor] = machine.inputs([x])
    expected = machine.runner.run(Operation("quantize", (Value(x),)), "activation", "input")
    assert np.array_equal(tensor.value.array, expected.array)


def images_in(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Write images by their paths in a folder."""
    for name, array in arrays.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
    return folder


def test_a_folder_of_images_has_a_folder_for_each_class(tmp_path: Path):
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4) * 17
    folder = images_in(tmp_path / "a", {"10/b.png": grey, "2/c.png": grey.T.copy(), "2/a.png": grey + 1})
    (folder / "2" / "notes.txt").write_text("no image")
    examples = read_examples(folder, (1, 4, 4))
    assert examples.labels is not None
    assert examples.labels.tolist() == [0, 0, 1]  # 2 before 10
    assert np.array_equal(examples.inputs[:, 0], np.stack([grey + 1, grey.T, grey]) / np.float32(255))
    colours = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    folder = images_in(tmp_path / "b", {"a.png": colours})
    for shape in ((3, 4, 5), (4, 5, 3)):
        examples = read_examples(folder, shape)
        assert examples.labels is None
        whole = examples.inputs[0] if shape[2] == 3 else np.moveaxis(examples.inputs[0], 0, 2)
        assert np.array_equal(whole, colours / np.float32(255))


def test_images_of_fewer_rows_than_channels_may_have_the_channels_last(tmp_path: Path):
    colours = np.random.default_rng(0).integers(0, 256, (2, 32, 3)).astype(np.uint8)
    folder = images_in(tmp_path / "a", {"a.png": colours})
    assert np.array_equal(read_examples(folder, (2, 32, 3)).inputs[0], colours / np.float32(255))


def test_images_of_16_bits_keep_them(tmp_path: Path):
    deep = np.arange(16, dtype=np.uint16).reshape(4, 4) * 4369
    folder = images_in(tmp_path / "a", {"a.png": deep})
    for shape in ((1, 4, 4), (3, 4, 4), (4, 4, 3)):
        images = read_examples(folder, shape).inputs[0]
        for channel in np.moveaxis(images, 2, 0) if shape[2] == 3 else images:
            assert np.array_equal(channel, deep / np.float32(65535))


@pytest.mark.parametrize(
    ("codes", "kind"), [(np.full((4, 4), 0.5, np.float32), "floats"), (np.full((4, 4), 70_000, np.int32), "32 bits")]
)
def test_images_of_more_than_16_bits_are_refused(tmp_path: Path, codes: np.ndarray, kind: str):
    folder = images_in(tmp_path / "a", {"a.tif": codes})
    for shape in ((1, 4, 4), (3, 4, 4)):
        with pytest.raises(emu.ConfigError, match=f"images must have codes of at most 16 bits, got {kind} in .*a.tif"):
            read_examples(folder, shape)


def test_folders_that_begin_with_a_dot_are_no_classes(tmp_path: Path):
    grey = np.zeros((4, 4), np.uint8)
    folder = images_in(tmp_path / "a", {"b/1.png": grey, "c/1.png": grey})
    (folder / ".ipynb_checkpoints").mkdir()
    assert read_examples(folder, (1, 4, 4)).labels.tolist() == [0, 1]
    flat = images_in(tmp_path / "d", {"1.png": grey})
    (flat / ".cache").mkdir()
    assert read_examples(flat, (1, 4, 4)).labels is None


@pytest.mark.parametrize(
    ("files", "shape", "rule"),
    [
        ({}, (1, 4, 4), "a folder of examples must have images (.bmp, .jpeg, .jpg"),
        ({"a.png": b"nothing"}, (1, 4, 4), "images must be readable, got"),
        (
            {"a.png": np.zeros((4, 5), np.uint8)},
            (1, 4, 4),
            "images must have 4 rows and 4 columns, as the",
        ),
        ({}, (12,), "a folder of images must be given to a network of images, got inputs of (12,)"),
        ({}, (2, 4, 4), "images must have 1 or 3 channels, got inputs of (2, 4, 4)"),
    ],
)
def test_folders_that_are_no_examples(tmp_path: Path, files: dict[str, Any], shape: tuple[int, ...], rule: str):
    (tmp_path / "a").mkdir()
    for name, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / "a" / name).write_bytes(content)
        else:
            images_in(tmp_path / "a", {name: content})
    with pytest.raises(emu.ConfigError) as refused:
        read_examples(tmp_path / "a", shape)
    assert rule in str(refused.value)


def test_without_pillow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = images_in(tmp_path / "a", {"a.png": np.zeros((4, 4), np.uint8)})
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(emu.ConfigError, match=r"which is not installed; pip install 'emu-numerics\[images\]'"):
        read_examples(folder, (1, 4, 4))
