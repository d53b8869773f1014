"""ONNX's own node tests, through the operators' rows on a float32 device.

The wheel of onnx makes them in memory. Operands that networks have as constants (shapes, axes, indices, bounds) are
inputs there: they become initialisers here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import emu

FLOAT, BOOL, INTEGERS, BYTES = 1, 9, (6, 7), (2, 3)
#: The operators of networks that are trained and exported every day.
USUAL = [
    "Conv", "Gemm", "MatMul", "BatchNormalization", "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "Gelu",
    "Softmax", "LayerNormalization", "Add", "Sub", "Mul", "Div", "MaxPool", "AveragePool", "GlobalAveragePool",
    "Flatten", "Reshape", "Transpose", "Concat", "Slice", "Split", "Gather", "Pad", "Squeeze", "Unsqueeze",
    "ReduceMean", "Constant", "Identity", "Dropout",
]  # fmt: skip
FURTHER = [
    "Erf", "Sqrt", "Pow", "Exp", "Log", "HardSwish", "HardSigmoid", "Elu", "PRelu", "Sum", "ConvTranspose",
    "RMSNormalization", "Abs", "Neg", "Max", "Min", "Mean", "Reciprocal", "Selu", "Softplus", "Softsign",
    "Mish", "LogSoftmax", "ReduceSum", "ReduceMax", "ReduceMin", "GlobalMaxPool", "InstanceNormalization",
    "GroupNormalization", "Expand", "Swish", "Attention",
]  # fmt: skip
QUANTISED = [
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
    "MatMulInteger",
]  # fmt: skip
#: Tests of the usual operators that are refused, and why.
REFUSED = {
    **dict.fromkeys(("test_batchnorm_example_training_mode", "test_batchnorm_epsilon_training_mode"), "training_mode"),
    **dict.fromkeys(
        ("test_training_dropout_default", "test_training_dropout_mask", "test_training_dropout_default_mask",
         "test_training_dropout", "test_training_dropout_zero_ratio", "test_training_dropout_zero_ratio_mask"),
        "training_mode",
    ),
}  # fmt: skip
THREE_AXES = "one or two axes"
#: Operands that tests give as floats, and networks as constants: all but the first.
CONSTANT_OPERANDS = {"Clip", "Pad", "Pow", "Dropout"}


class NodeTest(NamedTuple):
    name: str
    operator: str
    model: Any
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


def _kind(info: Any) -> int:
    return info.type.tensor_type.elem_type


def _is_float32(model: Any) -> bool:
    kinds = [_kind(info) for info in model.graph.input]
    allowed = all(kind in (FLOAT, BOOL, *INTEGERS) for kind in kinds)
    return allowed and all(_kind(info) == FLOAT for info in model.graph.output)


@cache
def node_tests() -> dict[str, NodeTest]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        loaded = load_model_tests(kind="node")
    return {test.name: test for test in _usable(loaded)}


def _usable(loaded: list[Any]) -> Iterator[NodeTest]:
    for test in loaded:
        model = test.model
        operator = model.graph.node[0].op_type
        if len(model.graph.node) != 1 or operator not in (*USUAL, *FURTHER, *QUANTISED):
            continue
        if operator not in QUANTISED and not _is_float32(model):
            continue
        inputs, outputs = test.data_sets[0]
        yield NodeTest(test.name, operator, model, list(map(_array, inputs)), list(map(_array, outputs)))


def _array(given: Any) -> np.ndarray:
    """Return an array of a test; floats of 8 bits come as tensors."""
    return numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else np.asarray(given)


def as_network(test: NodeTest, path: Path) -> list[np.ndarray]:
    """Write the test's model with constants in place of operands that networks do not compute; return the others."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    for entry in model.opset_import:  # none of these operators changed between the version of its test and this one
        entry.version = min(max(entry.version, 11), 25)
    kept, arrays = [], []
    for place, (info, array) in enumerate(zip(test.model.graph.input, test.inputs, strict=True)):
        is_data = _kind(info) == FLOAT
        if test.operator in QUANTISED:
            is_data = place == 0 and _kind(info) in (FLOAT, *BYTES)
        if is_data and not (place and test.operator in CONSTANT_OPERANDS):
            kept.append(info)
            arrays.append(array)
        else:
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    path.write_bytes(model.SerializeToString())
    return arrays


def outcome(test: NodeTest, path: Path) -> str:
    """ "equal", or the message of the refusal."""
    try:
        results = _computed(test, path)
    except emu.EmuError as error:
        return str(error)
    for result, expected in zip(results, test.outputs, strict=True):
        assert result.shape == expected.shape, test.name
        if test.operator in QUANTISED:
            assert np.array_equal(result, expected.astype(np.float64)), (test.name, result, expected)
            continue
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-7, err_msg=test.name)
    return "equal"


def _computed(test: NodeTest, path: Path) -> list[np.ndarray]:
    arrays = as_network(test, path)
    return emu.onnx.load(path)(*arrays)


def outcomes(operators: list[str], path: Path) -> dict[str, str]:
    return {name: outcome(test, path) for name, test in node_tests().items() if test.operator in operators}


@pytest.mark.slow
def test_the_usual_operators_compute_what_onnx_says(tmp_path: Path):
    results = outcomes(USUAL, tmp_path / "node.onnx")
    refused = {name: text for name, text in results.items() if text != "equal"}
    assert len(results) - len(refused) >= 205
    for name, text in refused.items():
        reason = REFUSED.get(name, THREE_AXES if "_3d_" in name else "no such refusal")
        assert reason in text, (name, text)


@pytest.mark.slow
def test_of_further_operators_four_in_five_are_computed(tmp_path: Path):
    results = outcomes(FURTHER, tmp_path / "node.onnx")
    equal = [name for name, text in results.items() if text == "equal"]
    assert len(equal) >= 0.8 * len(results), {name: text for name, text in results.items() if text != "equal"}


@pytest.mark.slow
def test_layers_that_pytorch_converted_compute_what_it_did(tmp_path: Path):
    """Their files have version 6 of the operators, which is read as 11: all are equal but for what changed in between.

    Pad had its value as an attribute, and PRelu a slope for each channel without axes behind it.
    """
    from onnx.backend.test.loader import load_model_tests

    changed = {"test_ConstantPad2d", "test_PReLU_1d_multiparam", "test_PReLU_2d_multiparam", "test_PReLU_3d_multiparam"}
    count = 0
    for test in load_model_tests(kind="pytorch-converted"):
        if test.name in changed or test.name.startswith(("test_Conv3d", "test_AvgPool3d", "test_MaxPool3d")):
            continue
        folder = Path(test.model_dir)
        model = onnx.load(folder / "model.onnx")
        model.opset_import[0].version = 11
        onnx.save(model, tmp_path / "layer.onnx")
        [inputs, outputs] = (_tensors(folder / "test_data_set_0", what) for what in ("input", "output"))
        results = emu.onnx.load(tmp_path / "layer.onnx")(*inputs)
        for result, expected in zip(results, outputs, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5, err_msg=test.name)
        count += 1
    assert count == 65


def _tensors(folder: Path, what: str) -> list[np.ndarray]:
    paths = sorted(folder.glob(f"{what}_*.pb"))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]


@pytest.mark.slow
def test_quantised_operators_give_the_integers_that_onnx_says(tmp_path: Path):
    results = outcomes(QUANTISED, tmp_path / "node.onnx")
    refused = {name: text for name, text in results.items() if text != "equal"}
    assert len(results) - len(refused) >= 39
    assert all("blocked" in name and "got blocks" in text for name, text in refused.items()), refused


@pytest.mark.slow
def test_every_operator_of_the_table_is_computed_in_a_test():
    from emu.interop.onnx.operators import OPERATORS, qonnx

    tried = {test.operator for test in node_tests().values()}
    elsewhere = {"Resize", "DepthToSpace", "SpaceToDepth", "Cast"}  # test_onnx_graphs.py
    elsewhere |= {name for name in OPERATORS if name.startswith("QLinear")} | {"QGemm"}  # test_onnx_quantised.py
    elsewhere |= set(qonnx.ROWS)  # test_qonnx.py
    assert set(OPERATORS) - tried - elsewhere == set()
