"""Quantised networks against onnxruntime: every element of every tensor, and the float outputs, bit for bit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import emu
from tests.interop.onnx_files import NETWORKS, saved
from tests.interop.onnx_files import node as onnx_node

FILES = ["digits-qdq", "digits-qoperator", "functions-qdq", "functions-qoperator"]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(NETWORKS / "digits.npz") as data:
        return data["x"].astype(np.float32)


def recorded(file: str) -> dict[str, np.ndarray]:
    """What onnxruntime 1.32 computed of the first 20 images, by tensor; make_quantised.py writes it."""
    with np.load(NETWORKS / "quantised.npz") as data:
        return {key.partition(":")[2]: data[key] for key in data.files if key.startswith(f"{file}:")}


def differences(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, int]:
    assert set(outputs) == set(expected)
    wrong = {name: int((outputs[name] != array.astype(np.float64)).sum()) for name, array in expected.items()}
    return {name: count for name, count in wrong.items() if count}


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("file", FILES)
def test_every_element_is_that_of_onnxruntime(file: str, backend: str, images: np.ndarray):
    network, expected = emu.onnx.load(NETWORKS / f"{file}.onnx"), recorded(file)
    results = dict(zip(network.outputs, network(images[:20], backend=backend), strict=True))
    assert differences(results, expected) == {}
    assert len(expected) >= 10


def test_scales_that_are_chosen_as_it_computes_follow_the_floats(images: np.ndarray):
    """Erf differs from onnxruntime's in the last place, so do the largest number behind it, the scale, and the rest."""
    [scores] = emu.onnx.load(NETWORKS / "digits-dynamic.onnx")(images[:20])
    [expected] = recorded("digits-dynamic").values()
    assert np.abs(scores - expected).max() <= 1e-5
    assert np.array_equal(scores.argmax(1), expected.argmax(1))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_onnxruntime_computes_the_same_here_for_all_images(file: str, images: np.ndarray):
    """Its kernels depend on the processor: without VNNI bytes times signed bytes are added in pairs of 16 bits."""
    onnxruntime: Any = pytest.importorskip("onnxruntime", reason="compares with onnxruntime: pip install onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(NETWORKS / f"{file}.onnx"), options)
    if _differs_here(session, file, images):
        pytest.skip("onnxruntime computes other bits on this processor than on the one of the recorded results")
    network = emu.onnx.load(NETWORKS / f"{file}.onnx")
    expected = dict(zip(network.outputs, session.run(list(network.outputs), {"x": images}), strict=True))
    results = dict(zip(network.outputs, network(images), strict=True))
    assert differences(results, expected) == {}


def _differs_here(session: Any, file: str, images: np.ndarray) -> bool:
    expected = recorded(file)
    given = dict(zip(expected, session.run(list(expected), {"x": images[:20]}), strict=True))
    return bool(differences(given, expected))


def test_what_a_graph_says_in_integers_does_not_depend_on_the_device(images: np.ndarray):
    """On bf16 the floats between elements differ, the first convolution's elements do not: its image is exact."""
    network = emu.onnx.load(NETWORKS / "digits-qoperator.onnx")
    exact, bf16 = (
        dict(zip(network.outputs, network(images[:20], device=device), strict=True))
        for device in ("float32", "bf16-mixed")
    )
    first = "/c1/Conv_output_0_quantized"
    assert np.array_equal(exact[first], bf16[first])
    assert not np.array_equal(exact[network.outputs[0]], bf16[network.outputs[0]])


def test_a_device_says_how_its_integer_units_requantise(images: np.ndarray):
    """The first convolution, added up here in Python's integers: without bias it is a sum of nine products."""
    network = emu.onnx.load(NETWORKS / "digits-qdq.onnx")
    name = "/Relu_output_0_QuantizeLinear_Output"
    mcu, npu = (
        dict(zip(network.outputs, network(images[:20], device=device), strict=True))
        for device in ("int8-mcu", "int8-npu")
    )
    elements = mcu["x_QuantizeLinear_Output"].astype(np.int64)
    [step] = [step for step in network.wired().steps if step.name == "c1"]
    weights, bias = (operand.array.astype(np.int64) for operand in step.operands[1:])
    x, w = step.options["of"]
    padded = np.pad(elements - int(x.zero), ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = np.lib.stride_tricks.sliding_window_view(padded[:, 0], (3, 3), axis=(1, 2))
    sums = np.einsum("nijkl,okl->noij", patches, weights[:, 0]) + bias[:, None, None]
    by = step.options["by"]
    expected = emu.requantise(
        sums,
        "ufix8f0",
        "double_rounding",
        a_scale=x.scale,
        b_scale=w.scale[:, None, None],
        scale=by.scale,
        zero=by.zero,
    )
    assert np.array_equal(mcu[name], np.asarray(expected))
    assert npu[name].shape == mcu[name].shape


def quantised(path: Path, nodes: list[Any], constants: dict[str, Any]) -> Path:
    """Write a graph of a version in which QuantizeLinear has all its types."""
    return saved(path, nodes, constants, opset=21)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return onnx_node(operator, inputs.split(), [output], **attributes)


SCALES: dict[str, Any] = {
    "s": np.float32(0.1), "z": np.uint8(10), "t": np.float32(0.25), "u": np.int8(-3), "v": np.float32(0.5),
    "w": np.int8([[1, 2], [3, -4], [5, 6]]), "ws": np.float32([0.5, 0.25]), "wz": np.int8([0, 0]),
}  # fmt: skip
BEGIN = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
X = np.float32([[0.1, 0.2, -3.0], [5.0, 0.05, 30.0]])


def test_relu_before_a_quantiser_bounds_the_elements(tmp_path: Path):
    """Elements are (x @ w) / 0.25 - 3 with w = elements * scale of their column, at least the zero point."""
    nodes = [
        *BEGIN,
        node("DequantizeLinear", "w ws wz", "m", axis=1),
        node("MatMul", "d m", "p"),
        node("Relu", "p", "r"),
        node("QuantizeLinear", "r t u", "e"),
        node("DequantizeLinear", "e t u", "y"),
    ]
    network = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES))
    [y] = network(X)
    q = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255)
    product = ((q - 10) @ SCALES["w"].astype(float)) * 0.1 * [0.5, 0.25]
    elements = np.clip(np.rint(product / 0.25) - 3, -3, 127)
    assert np.array_equal(y, (elements + 3) * 0.25)
    assert [step.primitive for step in network.wired().steps] == [
        "quantize_linear", "integer_matmul", "dequantize_linear",
    ]  # fmt: skip


@pytest.mark.parametrize(("least", "most"), [(0.0, 3.4028235e38), (-3.4028235e38, 2.0), (-3.4028235e38, 3.4028235e38)])
def test_clip_with_a_bound_that_stands_for_none_bounds_the_elements(tmp_path: Path, least: float, most: float):
    """Exporters write float32's largest number for a side without a bound; over the scale it is infinite."""
    nodes = [
        *BEGIN, node("DequantizeLinear", "w ws wz", "m", axis=1), node("MatMul", "d m", "p"),
        node("Clip", "p least most", "c"), node("QuantizeLinear", "c t u", "e"), node("DequantizeLinear", "e t u", "y"),
    ]  # fmt: skip
    bounds = {"least": np.float32(least), "most": np.float32(most)}
    [y] = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES | bounds))(X)
    q = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255)
    product = np.clip(((q - 10) @ SCALES["w"].astype(float)) * 0.1 * [0.5, 0.25], least, most)
    assert np.array_equal(y, (np.clip(np.rint(product / 0.25) - 3, -128, 127) + 3) * 0.25)


def test_moves_between_elements_move_elements(tmp_path: Path):
    nodes = [
        *BEGIN,
        node("Transpose", "d", "a"),
        node("Slice", "a one three", "b"),
        node("QuantizeLinear", "b s z", "e"),
        node("DequantizeLinear", "e s z", "y"),
    ]
    constants = SCALES | {"one": np.int64([1]), "three": np.int64([3])}
    network = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, constants))
    assert [step.primitive for step in network.wired().steps] == [
        "quantize_linear", "transpose", "take", "dequantize_linear",
    ]  # fmt: skip
    assert np.array_equal(network(X)[0], np.clip(np.rint(X.T[1:3] / np.float32(0.1)), -10, 245) * np.float32(0.1))


def test_a_product_whose_result_is_used_as_float_multiplies_the_sum_by_both_scales(tmp_path: Path):
    nodes = [*BEGIN, node("DequantizeLinear", "w ws wz", "m", axis=1), node("MatMul", "d m", "y")]
    [y] = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES))(X)
    q = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255) - 10
    scale = np.float32(0.1) * np.float32([0.5, 0.25])
    assert np.array_equal(y, (q @ SCALES["w"].astype(float)).astype(np.float32) * scale)


@pytest.mark.parametrize(("number", "element"), [(3e9, 127), (-3e9, -128), (np.inf, 127), (-np.inf, -128)])
def test_numbers_beyond_32_bits_saturate_as_the_standard_says(tmp_path: Path, number: float, element: int):
    """ONNX's own reference wraps them."""
    nodes = [node("QuantizeLinear", "x v u", "e"), node("DequantizeLinear", "e v u", "y")]
    [y] = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES))(np.full((2, 3), number, np.float32))
    assert np.array_equal(y, np.full((2, 3), (element + 3) * 0.5))


@pytest.mark.parametrize(
    ("nodes", "rule"),
    [
        ([node("QuantizeLinear", "x x", "y")], "must have a constant as operand 1, got 'input'"),
        ([node("QuantizeLinear", "x blocks", "y", block_size=2)], "got blocks"),
        ([node("QuantizeLinear", "x ws", "y", axis=9)], "`axis` must be in -2..1, got 9"),
        ([*BEGIN[:1], node("DequantizeLinear", "q s u", "y")], "zero points must have the type of the elements, uf"),
        ([node("DequantizeLinear", "x s", "y")], "must hold elements as operand 0, got float32"),
        ([node("QLinearConv", "x s z w s u t u", "y")], "must hold elements as operand 0, got float32"),
        ([node("QuantizeLinear", "x s", "y", output_dtype=18)], "`output_dtype` must be that of uint8, int8, uint16"),
        ([node("QuantizeLinear", "x s", "y", output_dtype=17, saturate=0)], "elements of fp8_e4m3 must saturate, got"),
        ([node("QuantizeLinear", "x s", "y", precision=10)], "`precision` of a quotient must be float32, type 1, got"),
        ([node("QuantizeLinear", "x nothing", "y")], "scales must be positive and finite, got 0.0"),
        ([*BEGIN, node("Relu", "q", "y")], "must compute with float32, got integers, 'quantize_linear1'"),
        (
            [onnx_node("DynamicQuantizeLinear", ["x"], ["q", "a", "b"]), node("MatMulInteger", "c q bz b", "y")],
            "must have a constant zero point of its right operand, got 'dynamic_quantize_linear1.zero', which",
        ),
        (
            [onnx_node("DynamicQuantizeLinear", ["x"], ["q", "a", "b"]), node("ConvInteger", "c q bz b", "y")],
            "must have a constant zero point of its right operand, got 'dynamic_quantize_linear1.zero', which",
        ),
    ],
)  # fmt: skip
def test_a_quantised_node_that_cannot_be_computed_is_named(tmp_path: Path, nodes: list[Any], rule: str):
    constants = SCALES | {"blocks": np.ones((2, 2), np.float32), "nothing": np.float32(0)}
    constants |= {"c": np.uint8([[1, 2]]), "bz": np.uint8(3)}
    with pytest.raises(emu.EmuError) as refused:
        emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, constants))(X)
    assert rule in str(refused.value), refused.value


def test_a_quantised_network_is_evaluated_and_not_trained(tmp_path: Path, images: np.ndarray):
    from emu.interop.evaluation import evaluate_graph

    evaluated = evaluate_graph(NETWORKS / "digits-qdq.onnx", "float32", NETWORKS / "digits.npz", only=())
    assert evaluated.accuracy == evaluated.float_accuracy > 0.96
    network = emu.onnx.load(NETWORKS / "digits-qdq.onnx").network()
    assert network.parameters() == []


def test_layers_of_integers_are_not_tried_alone_and_their_saturation_is_counted(emu_command: Any):
    words = ("--device", "fixed8", "--data", str(NETWORKS / "digits.npz"))
    code, text, _ = emu_command("evaluate", str(NETWORKS / "digits-qdq.onnx"), *words, width=140)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if " dB " in line or " equal " in line}
    assert code == 0
    assert rows["c1"][1:3] == ["Conv", "20.9"]  # of the image in the device's format
    assert rows["c1"][4:] == ["49%", "0%"]
    assert rows["c3.conv1.float"][1:3] == ["DequantizeLinear", "16.1"]
    assert len(rows["c3.conv1.float"]) == len(rows["c1"]) + 2  # answers, accuracy
    assert "because the device has no format for them" in " ".join(text.split())


def test_integers_of_a_graph_are_listed_apart_from_parameters(emu_command: Any):
    _, text, _ = emu_command("models", str(NETWORKS / "digits-qdq.onnx"), width=140)
    assert "parameters  0 and 2796 integers, which are not trained" in text


def test_another_zero_point_is_another_quantiser(tmp_path: Path):
    """The scale is the same; elements are dequantised, and quantised anew."""
    nodes = [*BEGIN, node("QuantizeLinear", "d s far", "e"), node("DequantizeLinear", "e s far", "y")]
    network = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES | {"far": np.uint8(200)}))
    [y] = network(X)
    first = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255) - 10
    assert np.array_equal(y, np.clip(first, -200, 55).astype(np.float32) * np.float32(0.1))


@pytest.mark.parametrize(
    ("kind", "low", "high"), [(2, 0, 255), (3, -128, 127), (21, 0, 15), (22, -8, 7), (5, -32768, 32767)]
)
def test_without_a_zero_point_the_type_is_an_attribute(tmp_path: Path, kind: int, low: int, high: int):
    path = quantised(tmp_path / "a.onnx", [node("QuantizeLinear", "x s", "y", output_dtype=kind)], SCALES)
    assert np.array_equal(emu.onnx.load(path)(X * 1000)[0], np.clip(np.rint(X * 1000 / np.float32(0.1)), low, high))


@pytest.mark.parametrize("scales", [[0.5, 0.0], [0.5, np.inf], [-0.5, 0.5]])
def test_every_scale_of_an_axis_must_be_one(tmp_path: Path, scales: list[float]):
    nodes = [*BEGIN, node("DequantizeLinear", "w ws wz", "m", axis=1), node("MatMul", "d m", "y")]
    with pytest.raises(emu.EmuError, match=r"scales must be positive and finite, got (0.0|inf|-0.5)"):
        emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES | {"ws": np.float32(scales)}))(X)


@pytest.mark.parametrize("form", ["between", "elements"])
def test_borders_of_elements_are_elements(tmp_path: Path, form: str):
    """0 stands there as the zero point; a quantised operator names the element itself."""
    pads = {"pads": np.int64([0, 1, 0, 2]), "zero": np.float32(0), "seven": np.uint8(7)}
    if form == "between":
        nodes = [*BEGIN, node("Pad", "d pads zero", "p"), node("QuantizeLinear", "p s z", "e")]
    else:
        nodes = [*BEGIN[:1], node("Pad", "q pads seven", "e")]
    path = quantised(tmp_path / "a.onnx", [*nodes, node("DequantizeLinear", "e s z", "y")], SCALES | pads)
    network = emu.onnx.load(path)
    assert "integer_surround" in [step.primitive for step in network.wired().steps]
    q = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255)
    whole = np.pad(q, ((0, 0), (1, 2)), constant_values=10 if form == "between" else 7)
    assert np.array_equal(network(X)[0], (whole - 10).astype(np.float32) * np.float32(0.1))


@pytest.mark.parametrize(
    ("border", "reader"),
    # the standard does not say which element NaN has
    [(np.nan, "float"), *itertools.product([0.3, 1000.0, -np.inf, np.inf, -2.0], ["float", "another", "same"])],
)
def test_a_border_that_is_no_element_is_not_rounded(tmp_path: Path, border: float, reader: str):
    """ONNX's reference pads the numbers; elements of 0.5 stand for -2, and for no other of these borders."""
    nodes = [
        node("QuantizeLinear", "x v u", "q"),
        node("DequantizeLinear", "q v u", "d"),
        node("Pad", "d pads border", "y" if reader == "float" else "p"),
    ]
    if reader != "float":
        nodes.append(node("QuantizeLinear", f"p {'v' if reader == 'same' else 's'} u", "e"))
        nodes.append(node("DequantizeLinear", f"e {'v' if reader == 'same' else 's'} u", "y"))
    constants = SCALES | {"pads": np.int64([0, 1, 0, 2]), "border": np.float32(border)}
    path = quantised(tmp_path / "a.onnx", nodes, constants)
    [y] = emu.onnx.load(path)(X)
    elements = np.clip(np.rint(X / np.float32(0.5)) - 3, -128, 127)
    expected = np.pad((elements + 3) * np.float32(0.5), ((0, 0), (1, 2)), constant_values=np.float32(border))
    if reader != "float":
        scale = np.float32(0.5 if reader == "same" else 0.1)
        expected = (np.clip(np.rint(expected / scale) - 3, -128, 127) + 3) * scale
    assert np.array_equal(y, expected.astype(np.float32), equal_nan=True)


def test_a_border_of_the_lowest_number_is_the_lowest_element(tmp_path: Path):
    """Exporters pad with float32's lowest number before pooling by the largest."""
    nodes = [
        *BEGIN, node("Pad", "d pads lowest", "p"), node("QuantizeLinear", "p s z", "e"),
        node("DequantizeLinear", "e s z", "y"),
    ]  # fmt: skip
    border = {"pads": np.int64([0, 1, 0, 0]), "lowest": np.float32(-3.4028235e38)}
    [y] = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES | border))(X)
    inner = np.clip(np.rint(X / np.float32(0.1)), -10, 245) * np.float32(0.1)
    assert np.array_equal(y, np.pad(inner, ((0, 0), (1, 0)), constant_values=np.float32(-10) * np.float32(0.1)))


@pytest.mark.parametrize("kind", [np.uint16, np.int16])
def test_sums_of_wide_elements_that_leave_32_bits_are_floats(tmp_path: Path, kind: type):
    """A product of 64 pairs of 16 bits needs 38; runtimes have no kernel that wraps it."""
    constants = {"s": np.float32(0.001), "z": kind(0)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Transpose", "d", "t"),
        node("MatMul", "d t", "y"),
    ]
    x = np.abs(np.random.default_rng(0).normal(size=(3, 64))).astype(np.float32) * 10
    path = saved(tmp_path / "a.onnx", [onnx_node(n.op_type, list(n.input), list(n.output)) for n in nodes], constants,
                 inputs={"x": (3, 64)}, opset=21)  # fmt: skip
    [y] = emu.onnx.load(path)(x)
    exact = np.rint(x / np.float32(0.001)).clip(0, np.iinfo(kind).max) * 0.001
    assert np.abs(y - exact @ exact.T).max() <= 1e-2
    assert y.max() > 5000


def test_constant_elements_are_moved_to_the_product(tmp_path: Path):
    """Scales of the axis that was the first are those of columns then."""
    nodes = [
        *BEGIN,
        node("DequantizeLinear", "v ws wz", "m", axis=0),
        node("Transpose", "m", "t"),
        node("MatMul", "d t", "y"),
    ]
    constants = SCALES | {"v": np.ascontiguousarray(SCALES["w"].T)}
    network = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, constants))
    assert "integer_matmul" in [step.primitive for step in network.wired().steps]
    q = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255) - 10
    scale = np.float32(0.1) * np.float32([0.5, 0.25])
    assert np.array_equal(network(X)[0], (q @ SCALES["w"].astype(float)).astype(np.float32) * scale)


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.FLOAT16, TensorProto.FLOAT])
def test_a_cast_of_constant_elements_casts_the_numbers(tmp_path: Path, kind: int):
    """[3, 5] at 0.5 are 1 and 2 as integers; 3 at 0.1 has fewer bits as float16."""
    for scale in (0.5, 0.1):
        nodes = [
            node("DequantizeLinear", "few scale", "d"),
            node("Cast", "d", "a", to=kind),
            node("Cast", "a", "b", to=TensorProto.FLOAT),
            node("Add", "x b", "y"),
        ]
        constants = {"few": np.int8([3, 5, -7]), "scale": np.float32(scale)}
        path = quantised(tmp_path / "a.onnx", nodes, constants)
        [expected] = ReferenceEvaluator(onnx.load(path)).run(None, {"x": X})
        assert np.array_equal(emu.onnx.load(path)(X)[0], expected)


def test_constant_elements_that_are_cast_to_float32_stay_those_of_a_product(tmp_path: Path):
    nodes = [
        *BEGIN,
        node("DequantizeLinear", "w ws wz", "m", axis=1),
        node("Cast", "m", "c", to=TensorProto.FLOAT),
        node("MatMul", "d c", "y"),
    ]
    network = emu.onnx.load(quantised(tmp_path / "a.onnx", nodes, SCALES))
    assert "integer_matmul" in [step.primitive for step in network.wired().steps]
    q = np.clip(np.rint(X / np.float32(0.1)) + 10, 0, 255) - 10
    scale = np.float32(0.1) * np.float32([0.5, 0.25])
    assert np.array_equal(network(X)[0], (q @ SCALES["w"].astype(float)).astype(np.float32) * scale)


def test_a_layer_of_integers_cannot_be_tried_alone():
    from emu.interop.evaluation import evaluate_graph

    with pytest.raises(emu.ConfigError, match="got 'c1', which computes with integers of the graph; leave it out"):
        evaluate_graph(NETWORKS / "digits-qdq.onnx", "fixed8", NETWORKS / "digits.npz", only=["c1"])
