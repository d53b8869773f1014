"""A network beside results that were recorded elsewhere: the first layer that differs, by how much, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu.cli.against import _verdict
from emu.interop.against import Comparison, Difference, compare_with, read_recorded
from tests.command_line import Run
from tests.interop.onnx_files import NETWORKS

QDQ = NETWORKS / "digits-qdq.onnx"


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(NETWORKS / "digits.npz") as data:
        return data["x"].astype(np.float32)[:20]


@pytest.fixture
def recorded() -> dict[str, np.ndarray]:
    """What onnxruntime computed of the first 20 images."""
    with np.load(NETWORKS / "quantised.npz") as data:
        return {key.partition(":")[2]: data[key] for key in data.files if key.startswith("digits-qdq:")}


def test_a_dump_of_the_same_arithmetic_agrees(images: np.ndarray, recorded: dict[str, np.ndarray]):
    result = compare_with(emu.onnx.load(QDQ), "float32", images, recorded)
    assert result.first is None
    assert (result.examples, result.left_out, len(result.rows)) == (20, (), 14)
    assert all(row.alone in (0, None) for row in result.rows)
    order = [row.layer for row in result.rows]
    assert order[:4] == ["x_QuantizeLinear", "c1", "dw", "add1"]


def test_another_requantiser_is_named_as_the_cause(images: np.ndarray, recorded: dict[str, np.ndarray]):
    result = compare_with(emu.onnx.load(QDQ), "int8-mcu", images, recorded)
    assert result.first is not None
    assert (result.first.layer, result.first.largest, result.first.is_integer) == ("c1", 1.0, True)
    assert result.first.different == result.first.alone > 0
    begins = {row.layer: row for row in result.rows if row.alone}
    assert set(begins) == {"c1", "dw", "pw.conv1", "c3.conv1"}
    for row in begins.values():
        assert "float32" in row.causes
        assert "double_rounding" not in row.causes


@pytest.mark.parametrize("kind", ["double_rounding", "single_rounding", "exact"])
def test_each_requantiser_is_found_in_a_dump_of_it(tmp_path: Path, kind: str, images: np.ndarray):
    text = Path("devices/int8-mcu.toml").read_text().replace('"int8-mcu"', '"mine"')
    (tmp_path / "mine.toml").write_text(text.replace('requantiser = "double_rounding"', f'requantiser = "{kind}"'))
    network = emu.onnx.load(QDQ)
    dump = dict(zip(network.outputs, network(images, device=tmp_path / "mine.toml"), strict=True))
    for row in compare_with(network, "int8-npu", images, dump).rows:
        assert row.alone in (0, None) or kind in row.causes


def test_a_fault_in_one_layer_is_told_from_what_becomes_of_it(images: np.ndarray, recorded: dict[str, np.ndarray]):
    name = "/Clip_output_0_QuantizeLinear_Output"
    recorded[name] = recorded[name].copy()
    recorded[name][3, 2] += 1
    result = compare_with(emu.onnx.load(QDQ), "float32", images, recorded)
    assert result.first is not None
    assert (result.first.layer, result.first.different, result.first.alone) == ("dw", 64, 64)
    assert result.first.causes == ()
    following = {row.layer: row for row in result.rows}["add1"]
    assert following.different == 0
    assert following.alone is not None
    assert following.alone > 0  # its recorded operand is the wrong one


def test_layers_of_floats_agree_to_a_share_of_the_largest(images: np.ndarray):
    network = emu.onnx.load(NETWORKS / "digits.onnx")
    exact = {name: np.asarray(value.array) for name, value in network.results(images).items()}
    near = {name: array * np.float32(1 + 1e-6) for name, array in exact.items()}
    assert compare_with(network, "float32", images, near).first is None
    near["c3"] = near["c3"].copy()
    near["c3"][0, 0, 0, 0] += 0.001
    result = compare_with(network, "float32", images, near)
    assert result.first is not None
    assert (result.first.layer, result.first.different, result.first.is_integer) == ("c3", 1, False)
    assert result.first.largest == pytest.approx(0.001, rel=0.1)


def test_parts_of_a_dump_say_what_they_can(images: np.ndarray, recorded: dict[str, np.ndarray]):
    """Without what a layer reads, nobody knows where its difference begins; names of no tensor are said."""
    name = "/Mul_1_output_0_QuantizeLinear_Output"
    dump = {name: recorded[name], "other": recorded[name]}
    result = compare_with(emu.onnx.load(QDQ), "float32", images, dump)
    [row] = result.rows
    assert (row.different, row.alone, row.operator) == (0, None, "Mul")
    assert result.left_out == ("other",)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda arrays: {"c7": arrays["42"]}, "must have the names of tensors or layers of"),
        (
            lambda arrays: {"42": arrays["42"][:5]},
            "must have a result for each of the 20 examples, got the shape (5, 10)",
        ),
        (
            lambda arrays: {"42": arrays["42"][:, :3]},
            "must have the shapes of the network's tensors, (20, 10) for '42'",
        ),
        (lambda arrays: {}, "got 'nothing'"),
    ],
)
def test_dumps_that_do_not_fit(change: Any, rule: str, images: np.ndarray, recorded: dict[str, np.ndarray]):
    with pytest.raises(emu.ConfigError) as refused:
        compare_with(emu.onnx.load(QDQ), "float32", images, change(recorded))
    assert rule in str(refused.value)


def test_examples_are_those_of_a_call(images: np.ndarray):
    """Integers and nested lists are numbers; another shape, or none, is refused."""
    network = emu.onnx.load(NETWORKS / "digits.onnx")
    integers = (images[:2] * 16).astype(np.uint8)
    recorded = {"c1": np.asarray(network.results(integers)["c1"].array)}
    for inputs in (integers, integers.tolist()):
        assert compare_with(network, "float32", inputs, recorded).first is None
    with pytest.raises(emu.ShapeError, match=r"must have the shape \(n, 1, 8, 8\), got \(2, 64\)"):
        compare_with(network, "float32", integers.reshape(2, 64), recorded)
    with pytest.raises(emu.ConfigError, match="must be compared for at least one example, got none"):
        compare_with(network, "float32", images[:0], {"c1": recorded["c1"][:0]})


@pytest.mark.parametrize("content", [None, b"nothing", np.zeros(3), {"a": np.array([object()])}])
def test_dumps_that_cannot_be_read(tmp_path: Path, content: Any):
    path = tmp_path / "dump.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, np.ndarray):
        with path.open("wb") as file:
            np.save(file, content)
    elif content is not None:
        np.savez(path, **content)
    with pytest.raises(emu.ConfigError, match=r"--against must be (an .npz|plain numbers)"):
        read_recorded(path)


@pytest.fixture
def files(tmp_path: Path, images: np.ndarray, recorded: dict[str, np.ndarray]) -> tuple[str, ...]:
    np.savez(tmp_path / "dump.npz", **recorded)
    np.savez(tmp_path / "x.npz", x=images)
    return "--data", str(tmp_path / "x.npz"), "--against", str(tmp_path / "dump.npz")


def test_the_command_names_the_first_layer_and_the_requantiser(emu_command: Run, files: tuple[str, ...]):
    code, text, _ = emu_command("evaluate", str(QDQ), "--device", "int8-mcu", *files, width=160)
    assert code == 1
    first, second = text.splitlines()[:2]
    assert first.startswith("c1 is the first layer that differs: 4 of 10240 elements, by at most 1")
    expected = (
        "every recorded element is that of the requantiser float32 or single_rounding or exact: write requantiser"
    )
    assert second.startswith(expected)


def test_the_command_ends_well_if_all_agree(emu_command: Run, files: tuple[str, ...]):
    code, text, _ = emu_command("evaluate", str(QDQ), "--device", "float32", *files, width=160)
    assert code == 0
    assert text.splitlines()[0] == "equal: 14 tensors of 20 examples"


def test_the_name_of_a_layer_may_have_brackets():
    row = Difference("t", "blocks[relu]/[/x]", "Relu", True, 4, 2, 1.0, None)
    [line] = _verdict(Comparison(1, (row,), ()))
    assert line.plain == "blocks[relu]/[/x] is the first layer that differs: 2 of 4 elements, by at most 1"


def test_a_picture_has_a_row_for_each_layer(emu_command: Run, tmp_path: Path):
    path = tmp_path / "layers.svg"
    words = ("--device", "fixed8", "--data", str(NETWORKS / "digits.npz"), "--picture", str(path))
    code, text, _ = emu_command("evaluate", str(NETWORKS / "digits.onnx"), *words)
    assert code == 0
    assert str(path) in text
    drawn = path.read_text()
    assert drawn.startswith('<svg role="img" aria-label="digits on fixed8: layers, worst first: c1, 123 answers change')
    for name in ("c1", "reduce_mean1", "accuracy, alone", "signal to noise, dB", "beyond the format", "float32"):
        assert f">{name}<" in drawn
