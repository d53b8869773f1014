"""TFLite files that cannot be read, and operators that cannot be computed: one message with the thing and a remedy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from tests.command_line import Run
from tests.interop.tflite_files import NONE, SAME, TANH, Operator, Tensor, file_of

NETWORKS = Path(__file__).parent / "networks"
DIGITS = (NETWORKS / "digits.tflite").read_bytes()


def message(path: Path) -> str:
    with pytest.raises(emu.EmuError) as refused:
        emu.tflite.load(path).wired()
    assert isinstance(refused.value, emu.errors.ConfigError)
    return str(refused.value)


def written(folder: Path, content: bytes) -> Path:
    (folder / "a.tflite").write_bytes(content)
    return folder / "a.tflite"


def test_a_missing_file(tmp_path: Path):
    assert message(tmp_path / "none.tflite").startswith("a network must be a TFLite file, got ")


def test_an_onnx_file_with_another_name(tmp_path: Path):
    shutil.copy(NETWORKS / "digits.onnx", tmp_path / "a.tflite")
    text = message(tmp_path / "a.tflite")
    assert "must have TFL3 as its bytes 4 to 7, got b'" in text
    assert "give the .tflite file that the converter wrote" in text


@pytest.mark.parametrize("length", [0, 3, 8, 100, 4000, len(DIGITS) - 100])
def test_a_file_that_ends_too_early(tmp_path: Path, length: int):
    text = message(written(tmp_path, DIGITS[:length]))
    assert "a TFLite file must " in text
    assert str(tmp_path) in text


def test_damaged_bytes_end_in_one_message_or_in_a_network(tmp_path: Path):
    """One byte after the other, and four at once: whatever they are now."""
    rng = np.random.default_rng(1)
    texts: list[str] = []
    for _ in range(300):
        content = bytearray(DIGITS)
        place = int(rng.integers(0, len(content) - 4))
        content[place : place + 4] = rng.bytes(4) if rng.random() < 0.5 else b"\xff\xff\xff\x7f"
        try:
            emu.tflite.load(written(tmp_path, bytes(content))).wired()
        except emu.EmuError as error:
            texts.append(str(error))
    assert len(texts) > 100
    assert [text for text in texts if "a.tflite" not in text] == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"version": 2}, "the schema of a TFLite file must be version 3, got 2"),
        ({"identifier": b"TFL2"}, "must have TFL3 as its bytes 4 to 7, got b'TFL2'"),
        ({"subgraphs": 2}, "must have one graph, got 2"),
        ({"subgraphs": 0}, "must have one graph, got 0"),
    ],
)
def test_what_the_file_is(tmp_path: Path, options: dict[str, Any], expected: str):
    tensors = [Tensor("x", (1, 3), scale=0.5), Tensor("y", (1, 3), scale=0.5)]
    assert expected in message(written(tmp_path, file_of(tensors, [Operator("RELU", ["x"], ["y"])], **options)))


def refused(folder: Path, operator: Operator, x: dict[str, Any], y: dict[str, Any], *more: Tensor) -> str:
    given = {"shape": (1, 4, 4, 2), "scale": 0.5, "zero": 3}
    tensors = [Tensor("x", **{**given, **x}), Tensor("y", **{**given, **y}), *more]
    return message(written(folder, file_of(tensors, [operator])))


KERNEL = np.ones((2, 3, 3, 2), np.int8)
CONV = {0: ("Int8", SAME), 1: ("Int32", 1), 2: ("Int32", 1), 4: ("Int32", 1), 5: ("Int32", 1)}
POOL = {0: ("Int8", SAME), 1: ("Int32", 1), 2: ("Int32", 1), 3: ("Int32", 2), 4: ("Int32", 2)}


FLOATS = {"dtype": "float32", "scale": None}


def kernel(**changed: Any) -> Tensor:
    return Tensor("w", **{"shape": KERNEL.shape, "data": KERNEL, "scale": 0.1, **changed})


@pytest.mark.parametrize(
    ("operator", "x", "y", "more", "expected"),
    [
        (Operator("LSTM", ["x"], ["y"]), {}, {}, (), "got LSTM for tensor 'y' of"),
        (Operator("CUSTOM", ["x"], ["y"]), {}, {}, (), "got CUSTOM Own for tensor 'y'"),
        (Operator("SUM", ["x"], ["y"]), {}, {}, (), "its arithmetic in int8 is not written down here; use MEAN"),
        (
            Operator("TANH", ["x"], ["y"]), FLOATS, FLOATS, (),
            "operator 'y' (TANH) must compute with int8, got float32 for tensor 'x'; convert with",
        ),
        (Operator("TANH", ["x"], ["y"]), {"dtype": "int16"}, {}, (), "must be float32, int8, uint8, got int16 for 'x'"),
        (Operator("TANH", ["x"], ["y"]), {"dtype": "uint8"}, {}, (), "must compute with int8, got uint8"),
        (Operator("TANH", ["x"], ["y"]), {"scale": None}, {}, (), "must have scales, got none for tensor 'x'"),
        (
            Operator("TANH", ["x"], ["y"]), {"signature": (-1, 4, -1, 2)}, {}, (),
            "inputs must have a known shape apart from the batch, got (?, 4, ?, 2) for 'x'",
        ),
        (Operator("TANH", ["x"], ["y"]), {}, {"shape": (1, 4, 4, 3)}, (), "must write the shape (1, 4, 4, 2)"),
        (Operator("TANH", ["z"], ["y"]), {}, {}, (Tensor("z", (1, 3), scale=1.0),), "got 'z' for TANH of"),
        (
            Operator("DEQUANTIZE", ["h"], ["y"]), {}, {}, (Tensor("h", (2,), "float16", data=np.float16([1, 2])),),
            "constants of a TFLite file must be float32, int32, uint8, int64, int8, got float16 for 'h' of",
        ),
        (Operator("SOFTMAX", ["x"], ["y"], {0: ("Float32", 1.0)}), {}, {}, (), "must write the scale 0.00390625 and"),
        (Operator("MAX_POOL_2D", ["x"], ["y"], POOL), {}, {"zero": 4}, (), "must read elements with the scale and"),
        (
            Operator("MAX_POOL_2D", ["x"], ["y"], {**POOL, 4: ("Int32", 1 << 20)}), {}, {}, (),
            "must have windows of at most 16384 rows",
        ),
        (Operator("MAX_POOL_2D", ["x"], ["y"]), {}, {}, (), "must have windows and strides of at least 1, got (0, 0)"),
        (
            Operator("AVERAGE_POOL_2D", ["x"], ["y"], {**POOL, 5: ("Int8", TANH)}), {}, {}, (),
            "must have a fused activation of NONE, RELU, RELU6, RELU_N1_TO_1, got TANH",
        ),
        (
            Operator("CONV_2D", ["x", "w"], ["y"], CONV), {}, {}, (kernel(zero=1),),
            "must have weights with the zero point 0, got 1",
        ),
        (
            Operator("CONV_2D", ["x", "w"], ["y"], CONV), {}, {}, (kernel(scale=[0.1, 0.2], axis=3),),
            "must have a scale for each index of axis 0, got 2 along axis 3 of (2, 3, 3, 2) for 'w'",
        ),
        (Operator("CONV_2D", ["x", "x"], ["y"], CONV), {}, {}, (), "must have a constant as operand 1, got 'input'"),
        (
            Operator("CONV_2D", ["x", "w", "b"], ["y"], CONV), {}, {},
            (kernel(), Tensor("b", (3,), "int32", data=np.zeros(3, np.int32))),
            "must have an int32 bias of 2, got int32",
        ),
        (
            Operator("MEAN", ["x", "a"], ["y"]), {}, {}, (Tensor("a", (1,), "int32", data=np.int32([0])),),
            "must keep the first axis, that of examples, got the axes (0,)",
        ),
        (
            Operator("MEAN", ["x", "a"], ["y"]), {}, {}, (Tensor("a", (1,), "int32", data=np.int32([5])),),
            "must name an axis in -4..3, got 5",
        ),
        (
            Operator("EXPAND_DIMS", ["x", "a"], ["y"]), {}, {}, (Tensor("a", (), "int32", data=np.int32(-6)),),
            "must name an axis in -5..4, got -6",
        ),
        (
            Operator("RESHAPE", ["x", "a"], ["y"]), {}, {}, (Tensor("a", (2,), "int32", data=np.int32([1, 5])),),
            "must give (1, 4, 4, 2) a shape of 32 elements, got (1, 5)",
        ),
        (
            Operator("CONCATENATION", ["x", "x"], ["y"], {0: ("Int32", 1), 1: ("Int8", 1)}), {}, {}, (),
            "must have no fused activation, got 1",
        ),
        (
            Operator("ADD", ["x", "x"], ["y"], {0: ("Int8", NONE)}), {"scale": 1e6}, {"scale": 0.5}, (),
            "must have a result's scale above 2**-19 of its operands', got 0.5",
        ),
        (Operator("TANH", ["x"], ["y"]), {}, {"scale": 1e-45}, (), "a result's scale of at least 2**-100, got"),
        (Operator("RELU6", ["x"], ["y"]), {}, {"scale": 1e-45}, (), "must be below 2**30, got one of 2**127"),
        (Operator("HARD_SWISH", ["x"], ["y"]), {}, {"scale": 1e-3}, (), "must have a scale of at least 2**-7 of its"),
    ],
)  # fmt: skip
def test_an_operator_that_cannot_be_computed_is_named(
    tmp_path: Path, operator: Operator, x: dict[str, Any], y: dict[str, Any], more: tuple[Tensor, ...], expected: str
):
    text = refused(tmp_path, operator, x, y, *more)
    assert expected in text
    assert "a.tflite" in text


def test_the_package_that_reads_them_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "flatbuffers.table", None)
    assert "pip install 'emu-numerics[tflite]'" in message(NETWORKS / "digits.tflite")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["evaluate", "F"], "must be evaluated with --device and --data, got no --device"),
        (["evaluate", "F", "--device", "float32", "--data", "D"], "a TFLite file must be complete, got "),
        (["models", "F"], "a TFLite file must be complete, got "),
        (["models", "gone.tflite"], "a network must be a TFLite file, got 'gone.tflite'"),
    ],
)
def test_the_command_ends_with_2_and_one_message(tmp_path: Path, emu_command: Run, command: list[str], expected: str):
    path = str(written(tmp_path, DIGITS[:2000]))
    words = [{"F": path, "D": str(NETWORKS / "digits.npz")}.get(word, word) for word in command]
    code, _, err = emu_command(*words)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
