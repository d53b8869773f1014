"""What graphs of other exporters and by hand contain, and how ONNX wants it: names, batches, ends of slices, places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

import emu
from emu.autodiff import Value
from emu.interop.evaluation import classes_of, evaluate_graph
from emu.optim import ParameterState
from tests.interop.onnx_files import NETWORKS, node, saved

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def by_onnxruntime(path: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, inputs)]


def assert_as_onnxruntime(path: Path, x: np.ndarray) -> None:
    for ours, theirs in zip(emu.onnx.load(path)(x), by_onnxruntime(path, x=x), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_split_has_as_many_parts_as_the_node_has_outputs(tmp_path: Path):
    split = node("Split", ["x"], ["a", "b", "c"], axis=1)
    path = saved(tmp_path / "a.onnx", [split], inputs={"x": ("n", 6)}, outputs=("a", "b"), opset=13)
    assert_as_onnxruntime(path, drawn(2, 6))


def test_a_reshape_at_the_files_own_batch_is_taken_as_it_stands(tmp_path: Path):
    nodes = [node("Reshape", ["x", "windows"], ["w"]), node("Reshape", ["w", "whole"])]
    constants = {"windows": np.int64([-1, 4, 3]), "whole": np.int64([1, -1, 3])}
    path = saved(tmp_path / "a.onnx", nodes, constants, inputs={"x": (1, 8, 3)})
    assert_as_onnxruntime(path, drawn(1, 8, 3))
    x = drawn(5, 8, 3)
    assert np.array_equal(emu.onnx.load(path)(x)[0], x)


def test_a_baked_batch_of_sizes_and_tokens_stands_for_any(tmp_path: Path):
    resize = node("Resize", ["x", "", "", "s"], mode="nearest")
    path = saved(tmp_path / "a.onnx", [resize], {"s": np.int64([1, 3, 8, 8])}, inputs={"x": (1, 3, 4, 4)})
    assert emu.onnx.load(path)(drawn(5, 3, 4, 4))[0].shape == (5, 3, 8, 8)
    joined = node("Concat", ["token", "x"], axis=1)
    path = saved(tmp_path / "b.onnx", [joined], {"token": drawn(1, 1, 3)}, inputs={"x": (1, 4, 3)})
    assert emu.onnx.load(path)(drawn(5, 4, 3))[0].shape == (5, 5, 3)


@pytest.mark.parametrize("operator", ["PRelu", "Mul", "Div"])
def test_factors_of_single_elements_are_no_matrix_whatever_their_shape(operator: str, tmp_path: Path):
    nodes, constants = [node(operator, ["x", "factors"])], {"factors": drawn(2, 3, 1)}
    path = saved(tmp_path / "a.onnx", nodes, constants, inputs={"x": ("n", 2, 3, 4)})
    [(_, parameter)] = emu.onnx.load(path).network().parameters()
    assert (parameter.part, parameter.shape) == ("weight", (2, 3, 1))
    master = Value(np.ones(parameter.shape, np.float32), emu.parse("fp32"))
    state = ParameterState("a", parameter.part, master, by_rows=parameter.by_rows, is_table=parameter.is_table)
    assert not state.is_matrix


def test_a_file_that_computes_its_own_batch_alone_says_so(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Add", ["x", "c"])], {"c": drawn(2, 3)}, inputs={"x": (2, 3)})
    assert_as_onnxruntime(path, drawn(2, 3))
    with pytest.raises(
        emu.ConfigError, match="must be given batches of 2, for which it was exported, got 1; export it"
    ):
        emu.onnx.load(path)(drawn(1, 3))
    with pytest.raises(emu.ConfigError, match="must be given batches of 2, for which it was exported, got 1;"):
        emu.onnx.load(path).wired().steps_of(((1, 3),))


@pytest.mark.parametrize(("size", "scale"), [(5, 1.4), (11, 1.1), (11, 1.2), (7, 2.0), (9, 0.5), (14, 1.3)])
def test_resized_columns_are_those_of_float32_scales(tmp_path: Path, size: int, scale: float):
    resize = node(
        "Resize", ["x", "", "s"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    constants = {"s": np.float32([1, 1, 1, scale])}
    path = saved(tmp_path / "a.onnx", [resize], constants, inputs={"x": ("n", 1, 1, size)})
    assert_as_onnxruntime(path, np.arange(size, dtype=np.float32).reshape(1, 1, 1, size))


def test_resized_columns_follow_the_exact_quotient_of_sizes(tmp_path: Path):
    resize = node("Resize", ["x", "", "", "s"], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor")  # fmt: skip
    path = saved(tmp_path / "a.onnx", [resize], {"s": np.int64([1, 1, 1, 18])}, inputs={"x": ("n", 1, 1, 14)})
    [y] = emu.onnx.load(path)(np.arange(14, dtype=np.float32).reshape(1, 1, 1, 14))
    assert y.ravel().tolist() == [i * 14 // 18 for i in range(18)]


def test_integers_for_a_graph_of_floats_are_its_floats(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Mul", ["x", "w"])], {"w": drawn(3)})
    x = RNG.integers(0, 256, (4, 3)).astype(np.uint8)
    network = emu.onnx.load(path)
    assert np.array_equal(network(x, device="fixed16")[0], network(x.astype(np.float32), device="fixed16")[0])


def test_tokens_are_integers_of_the_table(tmp_path: Path):
    network = emu.onnx.load(NETWORKS / "letters.onnx")
    tokens = np.zeros((1, 12), np.int64)
    with pytest.raises(
        emu.ConfigError, match=r"tokens must be 0..31, the rows of table 'table', got 32; check the data"
    ):
        network(tokens + 32)
    with pytest.raises(emu.ConfigError, match="got -1; check the data"):
        network(tokens - 1)
    with pytest.raises(emu.FormatError, match="must hold integers"):
        network(tokens + 0.5)
    path = saved(tmp_path / "a.onnx", [node("Add", ["x", "c"])], {"c": np.int64([1])}, kind=TensorProto.INT64)
    with pytest.raises(
        emu.ConfigError,
        match="must compute with float32, got integers, 'input'; dequantize elements, or look tokens up",
    ):
        emu.onnx.load(path).wired()


def test_names_that_collide_are_made_different(tmp_path: Path):
    x = drawn(3, 4)
    inputs = {"x": ("n", 4)}
    path = saved(
        tmp_path / "a.onnx", [node("Relu", ["x"], name="c")], {"c": drawn(2, 3)}, inputs=inputs, outputs=("y", "c")
    )
    assert_as_onnxruntime(path, x)
    constants = {"c-1": drawn(2, 3), "c_1": drawn(2, 3)}
    path = saved(tmp_path / "b.onnx", [node("Relu", ["x"])], constants, inputs=inputs, outputs=("y", "c-1", "c_1"))
    assert_as_onnxruntime(path, x)
    path = saved(tmp_path / "c.onnx", [node("Sub", ["a-b", "a_b"])], inputs={"a-b": ("n", 4), "a_b": ("n", 4)})
    assert np.array_equal(emu.onnx.load(path)(x, x + 1)[0], np.full_like(x, -1) + (x - (x + 1) + 1))
    nodes = [
        node("GroupNormalization", ["x", "s", "b"], ["g"], num_groups=2, name="/gn/GroupNormalization"),
        node("Mul", ["g", "w"], name="/gn/scaled/Mul"),
    ]
    constants = {"s": drawn(6), "b": drawn(6), "w": drawn(6, 1, 1)}
    path = saved(tmp_path / "d.onnx", nodes, constants, inputs={"x": ("n", 6, 3, 3)}, opset=21)
    assert_as_onnxruntime(path, drawn(2, 6, 3, 3))


def test_log_softmax_keeps_what_softmax_rounds_to_zero(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("LogSoftmax", ["x"])])
    [y] = emu.onnx.load(path)(np.float32([[0, 120, 5], [100, -100, 0]]))
    assert y.tolist() == [[-120, 0, -115], [0, -200, -100]]
    for axis in (0, 1, -1):
        path = saved(tmp_path / "b.onnx", [node("LogSoftmax", ["x"], axis=axis)], inputs={"x": ("n", 3, 4)})
        assert_as_onnxruntime(path, drawn(2, 3, 4))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, [2.0, 2.0, 2.0], [[[2.0]]], -1.0])
def test_powers(tmp_path: Path, exponent: Any):
    path = saved(tmp_path / "a.onnx", [node("Pow", ["x", "e"])], {"e": np.float32(exponent)})
    x = np.abs(drawn(2, 3)) + 0.5
    assert_as_onnxruntime(path, x if exponent in (0.5, -1.0) else -x)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(-10, -100, -1), (2, -100, -1), (1, 100, 1), (-2, 100, 2), (100, 0, -2), (2, 1, 1), (-1, 0, -1), (5, 0, 1)],
)
def test_slices_beyond_their_ends(tmp_path: Path, start: int, end: int, step: int, axis: int):
    constants = {name: np.int64([n]) for name, n in (("s", start), ("e", end), ("a", axis), ("t", step))}
    path = saved(tmp_path / "a.onnx", [node("Slice", ["x", "s", "e", "a", "t"])], constants, inputs={"x": (3, 4)})
    x = drawn(3, 4)
    expected = by_onnxruntime(path, x=x)[0]
    if 0 in expected.shape:
        assert emu.onnx.load(path).wired(3).result[:1] == expected.shape[1:2]
    else:
        assert np.array_equal(emu.onnx.load(path)(x)[0], expected)


def test_a_pad_of_no_axis_changes_nothing(tmp_path: Path):
    none = np.zeros(0, np.int64)
    nodes = [node("Pad", ["x", "none", "", "none"], ["p"]), node("Neg", ["p"])]
    assert_as_onnxruntime(saved(tmp_path / "a.onnx", nodes, {"none": none}, opset=18), drawn(2, 3))


def test_a_constant_node_is_a_parameter_as_an_initialiser_is(tmp_path: Path):
    w, b, x = drawn(3, 2), drawn(2), drawn(4, 3) * 2
    plain = saved(tmp_path / "a.onnx", [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"])], {"w": w, "b": b})
    nodes = [
        node("Constant", [], ["k"], value=numpy_helper.from_array(b)), node("Identity", ["k"], ["b"]),
        node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"]),
    ]  # fmt: skip
    other = saved(tmp_path / "b.onnx", nodes, {"w": w})
    assert len(emu.onnx.load(other).wired().steps) == 1
    assert np.array_equal(emu.onnx.load(plain)(x, device="fixed8")[0], emu.onnx.load(other)(x, device="fixed8")[0])


def test_a_mask_with_infinities_is_no_parameter(tmp_path: Path):
    mask = np.float32([0, -np.inf, 0])
    [step] = emu.onnx.load(saved(tmp_path / "a.onnx", [node("Add", ["x", "m"])], {"m": mask})).wired().steps
    assert step.held == ()


def test_a_normalisation_without_scale_has_no_parameters_of_its_own(tmp_path: Path):
    group = node("GroupNormalization", ["x", "s", "b"], num_groups=2)
    constants = {"s": drawn(4), "b": drawn(4)}
    path = saved(tmp_path / "a.onnx", [group], constants, inputs={"x": ("n", 4, 3, 3)}, opset=21)
    held = [p.shape for step in emu.onnx.load(path).wired().steps for p in step.held]
    assert held == [(4, 1, 1), (4, 1, 1)]
    path = saved(tmp_path / "b.onnx", [node("LayerNormalization", ["x", "s"])], {"s": drawn(3)})
    assert [p.part for step in emu.onnx.load(path).wired().steps for p in step.held] == ["weight"]


@pytest.mark.parametrize(
    ("nodes", "constants", "opset"),
    [
        ([node("AveragePool", ["x"], kernel_shape=[3, 2], strides=[1, 2])], {}, 17),
        ([node("MaxPool", ["x"], kernel_shape=[2, 3], strides=[2, 3])], {}, 17),
        ([node("Unsqueeze", ["x"], axes=[0, -1])], {}, 11),
        ([node("Concat", ["x", "c"], axis=-1)], {"c": drawn(2, 3, 6, 2)}, 17),
        ([node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w", "c"])], {"w": drawn(126, 4), "c": drawn(1)}, 17),
        ([node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w", "c"])], {"w": drawn(126, 4), "c": drawn(2, 1)}, 17),
    ],
    ids=lambda value: str(value[0].op_type) if isinstance(value, list) else "",
)
def test_small_graphs_are_onnxruntimes(tmp_path: Path, nodes: Any, constants: Any, opset: int):
    path = saved(tmp_path / "a.onnx", nodes, constants, inputs={"x": (2, 3, 6, 7)}, opset=opset)
    assert_as_onnxruntime(path, drawn(2, 3, 6, 7))


def test_numbers_that_are_drawn_are_no_constants(tmp_path: Path):
    nodes = [node("RandomNormal", [], ["r"], shape=[3]), node("Add", ["x", "r"])]
    with pytest.raises(emu.ConfigError, match="must give the same numbers each time, got 'RandomNormal'"):
        emu.onnx.load(saved(tmp_path / "a.onnx", nodes)).wired()


@pytest.mark.parametrize(
    ("nodes", "constants", "text"),
    [
        ([node("Concat", ["x", "c"], axis=1)], {"c": drawn(5, 2)}, "must join tensors of one shape beside its axis"),
        ([node("PRelu", ["x", "c"])], {"c": drawn(2)}, "must fit its operands"),
        ([node("Split", ["x", "c"], axis=1)], {"c": np.int64([2, 2])}, "must split 3 elements, got [2, 2]"),
        ([node("BatchNormalization", ["x", *("c" * 4)])], {"c": drawn(2)}, "must have 3 of each moment"),
        ([node("DepthToSpace", ["x"], blocksize=0)], {}, "must fit its operands"),
        ([node("Pad", ["x", ""])], {}, "must have 4 pads, got None"),
    ],
)
def test_operands_that_do_not_fit_are_named_with_their_node(tmp_path: Path, nodes: Any, constants: Any, text: str):
    with pytest.raises(emu.ConfigError) as refused:
        emu.onnx.load(saved(tmp_path / "a.onnx", nodes, constants)).wired()
    assert text in str(refused.value)


def test_only_an_output_of_classes_has_answers(tmp_path: Path):
    assert [classes_of(s) for s in ((7, 10), (7, 5, 10), (7, 10, 1, 1), (7,), (7, 1), (7, 3, 8, 8), (7, 0))] == [
        10, 10, 10, None, None, None, None,
    ]  # fmt: skip
    np.savez(tmp_path / "a.npz", x=drawn(5, 3))
    path = saved(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": drawn(3, 1)})
    result = evaluate_graph(path, "fixed8", tmp_path / "a.npz")
    assert (result.accuracy, result.answers, result.changed, result.steps[0].alone_changed) == (None, 0, 0, None)
    np.savez(tmp_path / "b.npz", x=drawn(5, 3), y=np.zeros(5))
    with pytest.raises(emu.ConfigError, match=r"labels must be of a network whose output is .n, classes."):
        evaluate_graph(path, "fixed8", tmp_path / "b.npz")
    path = saved(tmp_path / "c.onnx", [node("MatMul", ["x", "w"])], {"w": drawn(3, 4)})
    np.savez(tmp_path / "c.npz", x=drawn(5, 3), y=np.full(5, 4))
    with pytest.raises(emu.ConfigError, match=r"labels must be 0..3, the network's classes, got 4"):
        evaluate_graph(path, "fixed8", tmp_path / "c.npz")


def test_a_nan_is_not_hidden(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Log", ["x"])])
    np.savez(tmp_path / "a.npz", x=np.full((2, 3), -1.0))
    assert np.isnan(evaluate_graph(path, "fp16", tmp_path / "a.npz").largest_difference)


def test_every_name_of_only_must_match():
    with pytest.raises(
        emu.ConfigError, match="must match a layer that computes with formats of the device, got 'nope'"
    ):
        evaluate_graph(NETWORKS / "digits.onnx", "fixed8", NETWORKS / "digits.npz", only=["c1", "nope"])
