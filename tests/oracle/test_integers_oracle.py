"""Integers with scales and zero points, and requantisers, against their definitions and against onnxruntime."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import integer_model as model
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.formats import ScaledValue

KINDS = ["float32", "double_rounding", "single_rounding", "exact"]
ENDS = {"fix8f0": (-128, 127), "ufix8f0": (0, 255), "fix16f0": (-(2**15), 2**15 - 1)}
EDGES = [0, 1, -1, 127, -128, 2**15, 2**24 + 1, 2**30, -(2**30), 2**31 - 1, -(2**31), 1 - 2**31]
scales = st.builds(lambda m, e: float(np.float32(math.ldexp(m, e))), st.floats(1, 2, width=32), st.integers(-12, 3))
sums = st.one_of(st.sampled_from(EDGES), st.integers(-(2**31), 2**31 - 1), st.integers(-3000, 3000))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("out", ENDS)
@settings(max_examples=60)
@given(xs=st.lists(sums, min_size=1, max_size=20), a=scales, b=scales, y=scales, data=st.data())
def test_a_requantiser_writes_what_its_definition_says(
    kind: str, out: str, xs: list[int], a: float, b: float, y: float, data: Any
) -> None:
    low, high = ENDS[out]
    zero = data.draw(st.integers(low, high))
    got = emu.requantise(np.array(xs), out, kind, a_scale=a, b_scale=b, scale=y, zero=zero)
    assert got.tolist() == [model.requantised(kind, x, a, b, y, zero, (low, high)) for x in xs]


@pytest.mark.parametrize("kind", ["double_rounding", "single_rounding"])
@pytest.mark.parametrize("shift", range(-31, 31))
def test_every_shift_of_a_multiplier_is_that_of_its_definition(kind: str, shift: int):
    random = np.random.default_rng(shift + 40)
    x = np.concatenate([EDGES, random.integers(-(2**31), 2**31, 400), random.integers(-300, 300, 400)])
    for m in (2**30, 2**31 - 1, 0, int(random.integers(2**30, 2**31))):
        got = emu.requantise(x, "fix16f0", kind, multiplier=(m, shift), zero=3)
        wanted = [getattr(model, kind)(int(v), m, shift) + 3 for v in x]
        assert got.tolist() == np.clip(wanted, -(2**15), 2**15 - 1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["double_rounding", "single_rounding"])
def test_a_million_sums_are_requantised_as_defined(kind: str):
    random = np.random.default_rng(5)
    x = random.integers(-(2**31), 2**31, 10**6) >> random.integers(0, 24, 10**6)
    m, shift = random.integers(2**30, 2**31, 10**6), random.integers(-31, 8, 10**6)
    got = emu.requantise(x, "fix16f0", kind, multiplier=(m, shift))
    define = getattr(model, kind)
    wanted = [define(*numbers) for numbers in zip(x.tolist(), m.tolist(), shift.tolist(), strict=True)]
    assert np.array_equal(got, np.clip(wanted, -(2**15), 2**15 - 1))


def test_the_published_sum_ends_differently_in_each_runtime():
    given = {"a_scale": 0.05296124517917633, "b_scale": 0.024093778803944588, "scale": 0.11484327912330627}
    ends = {kind: int(emu.requantise(585, "fix8f0", kind, **given, zero=-126)) for kind in KINDS}
    assert ends == {"float32": -120, "double_rounding": -119, "single_rounding": -119, "exact": -119}


@pytest.mark.parametrize("mode", ["nearest_even", "nearest_away", "floor", "ceil", "toward_zero"])
def test_a_shift_rounds_in_its_mode(mode: str):
    x = np.arange(-40, 41)
    got = emu.requantise(x, "fix8f0", "shift", a_scale=0.5, b_scale=0.25, scale=1.0, rounding=mode)
    assert np.array_equal(got, emu.quantize(x / 8, "fix8f0", rounding=mode))
    halves = emu.requantise(x, "fix8f0", "exact", a_scale=3.0, b_scale=1.0, scale=6.0, rounding=mode)
    assert np.array_equal(halves, emu.quantize(x / 2, "fix8f0", rounding=mode))


# ---- scales and zero points -----------------------------------------------------------------------------------------

numbers = st.lists(
    st.one_of(st.floats(-(2.0**60), 2.0**60, width=32), st.floats(-4, 4, width=32), st.just(0.0)),
    min_size=2,
    max_size=8,
)


@pytest.mark.parametrize("rule", ["ort", "tflite"])
@pytest.mark.parametrize("element", ["fix8f0", "ufix8f0", "fix16f0", "fix4f0"])
@settings(max_examples=80)
@given(x=numbers)
def test_a_rule_chooses_the_scale_and_the_zero_point_of_its_definition(rule: str, element: str, x: list[float]) -> None:
    ends = {**ENDS, "fix4f0": (-8, 7)}[element]
    v = emu.quantize(np.array(x, np.float32), f"block({element}, fp32 tensor {rule})")
    scale, zero = {"ort": model.chosen_by_ort, "tflite": model.chosen_by_tflite}[rule](x, ends)
    assert v.zero is not None
    assert (v.scales[0].item(), v.zero.item()) == (scale, zero)
    assert v.array.tolist() == [model.element(e, scale, zero, ends, away=rule == "tflite") for e in x]


@settings(max_examples=60)
@given(x=numbers)
def test_a_symmetric_scale_is_the_largest_magnitude_over_the_largest_element(x: list[float]) -> None:
    v = emu.quantize(np.array(x, np.float32), "int8_tensor")
    top = np.float32(max(map(abs, x)))
    scale = top / np.float32(127)
    scale = scale if scale else np.float32(1)
    assert v.scales[0].item() == scale
    assert v.array.tolist() == [model.element(e, scale, 0, (-127, 127), away=False) for e in x]


# ---- products -------------------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(20261127)
MACS = {
    "wraps": emu.Mac(accumulator="fix32f0", overflow="wrap"),
    "saturates": emu.Mac(accumulator="fix32f0"),
    "exact": emu.Mac(),
    "narrow": emu.Mac(accumulator="fix16f0", overflow="wrap"),
    "narrow saturates": emu.Mac(accumulator="fix16f0"),
}


def drawn(fmt: str, shape: tuple[int, ...], axis: int = -1) -> ScaledValue:
    """Return elements of all codes, with drawn scales and zero points."""
    parsed = emu.parse(fmt)
    assert isinstance(parsed, emu.Scaled)
    low, high = ENDS[str(parsed.element)]
    x = RANDOM.integers(low, high + 1, shape).astype(np.float32)
    counts = emu.quantize(np.zeros(shape), fmt, axis=axis).scales[0].shape
    parts = [RANDOM.uniform(0.01, 0.1, counts).astype(np.float32)]
    parts += [RANDOM.integers(low, high + 1, counts)] if parsed.has_zero else []
    return emu.value((x, *parts), fmt, axis=axis)


def integers_of(v: ScaledValue) -> np.ndarray[Any, Any]:
    zero = 0 if v.zero is None else np.moveaxis(v.zero, -1, v.axis)
    return v.array.astype(np.int64) - zero


def summed(a: ScaledValue, b: ScaledValue, mac: str, bias: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x, y = integers_of(a), integers_of(b)
    if "saturates" not in mac:
        bits = 16 if "narrow" in mac else 32
        return (x @ y + bias + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    state = np.broadcast_to(bias, (x.shape[0], y.shape[1])).astype(np.int64)
    limit = 2**15 if "narrow" in mac else 2**31
    for k in range(x.shape[1]):
        state = np.clip(state + x[:, k : k + 1] * y[k], -limit, limit - 1)
    return state


@pytest.mark.parametrize("mac", MACS)
@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(
    ("left", "right"),
    [("uint8_affine", "int8_channel"), ("int8_affine", "int8_affine"), ("int8_tensor", "int8_channel"),
     ("uint8_affine", "uint8_affine"), ("block(ufix8f0, fp32 row ort)", "block(fix8f0, fp32 row tflite)")],
)  # fmt: skip
def test_requantised_products_are_sums_of_elements_less_zero_points(left: str, right: str, backend: str, mac: str):
    a, b = drawn(left, (5, 33)), drawn(right, (33, 6), -2)
    bias = RANDOM.integers(-3000, 3000, 6)
    unit = emu.Unit("int8_affine", requantise="exact", scale=40.0, zero=-7, mac=MACS[mac], backend=backend)
    y = unit.matmul(a, b, addend=bias)
    sums = summed(a, b, mac, bias)
    scale = [
        np.broadcast_to(np.moveaxis(v.scales[0], -1, v.axis), shape).astype(float)
        for v, shape in ((a, (5, 1)), (b, (1, 6)))
    ]
    wanted = [
        [
            model.requantised("exact", int(sums[i, j]), scale[0][i, 0], scale[1][0, j], 40.0, -7, (-128, 127))
            for j in range(6)
        ]
        for i in range(5)
    ]
    assert y.array.tolist() == wanted
    assert y.zero is not None
    assert (y.scales[0].item(), y.zero.item()) == (40.0, -7)


@pytest.mark.parametrize("beyond", [-1, 0, 1, 9])
@pytest.mark.parametrize(("fmt", "limit"), [("uint8_affine", 2**16), ("block(ufix16f0, fp32 tensor ort)", 2**8)])
@pytest.mark.parametrize("columns", [1, 3])
def test_zero_points_enter_sums_of_any_length(fmt: str, limit: int, beyond: int, columns: int):
    """The longer ones have elements whose sum may be beyond the integers of float32, by which short ones are added."""
    top, depth = 255 if fmt == "uint8_affine" else 65535, limit + beyond
    x, y = (np.full(shape, top, np.float32) for shape in ((2, depth), (depth, columns)))
    x[1, ::2] = y[::2, -1] = top - 1
    a = emu.value((x, np.float32([[0.5]]), [[3]]), fmt)
    b = emu.value((y, np.float32([[0.5]]), [[1]]), fmt, axis=-2)
    mac = emu.Mac(accumulator="fix32f0", overflow="wrap")
    sums = (integers_of(a) @ integers_of(b) + 2**31) % 2**32 - 2**31
    unit = emu.Unit("int8_affine", requantise="exact", scale=2.0**22, mac=mac)
    assert unit.matmul(a, b).array.tolist() == np.clip(np.rint(np.ldexp(sums, -24)), -128, 127).tolist()
    unit = emu.Unit("fp64", mac=replace(mac, scales="at_result"))
    assert (np.asarray(unit.matmul(a, b)) * 4).tolist() == sums.astype(np.float32).tolist()


def test_sums_of_elements_less_zero_points_are_scaled_at_the_result():
    mac = emu.Mac(accumulator="fix32f0", overflow="wrap", scales="at_result")
    for left, right in (("uint8_affine", "int8_channel"), ("int8_affine", "uint8_affine")):
        a, b = drawn(left, (4, 20)), drawn(right, (20, 3), -2)
        got = emu.matmul(a, b, out_format="fp32", mac=mac)
        sums = (integers_of(a) @ integers_of(b)).astype(np.float32)
        assert np.array_equal(got, sums * (a.scales[0] * np.moveaxis(b.scales[0], -1, -2)))


@pytest.mark.parametrize("mac", ["wraps", "narrow saturates"])
@pytest.mark.parametrize("weights", ["int8_channel", "int8_tensor", "int8_affine"])
def test_convolutions_pad_with_the_zero_point(weights: str, mac: str):
    x, w = drawn("uint8_affine", (2, 3, 6, 5)), drawn(weights, (4, 3, 3, 2))
    bias = RANDOM.integers(-3000, 3000, 4)
    unit = emu.Unit("uint8_affine", requantise="double_rounding", scale=30.0, zero=99, mac=MACS[mac])
    y = unit.conv2d(x, w, bias, stride=(2, 1), padding=(1, 1))
    xs = np.pad(integers_of(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    ws = w.array.astype(np.int64) - (0 if w.zero is None else int(w.zero.item()))
    assert y.shape == (2, 4, 3, 6)
    s = np.broadcast_to(w.scales[0], (4, 1, 1, 1)).reshape(4).astype(float)
    for n, o, i, j in np.ndindex(*y.shape):
        terms = (xs[n, :, 2 * i : 2 * i + 3, j : j + 2] * ws[o]).ravel()
        state = int(bias[o])
        for term in terms:
            state = state + int(term)
            state = min(max(state, -(2**15)), 2**15 - 1) if mac != "wraps" else model.wrap32(state)
        wanted = model.requantised("double_rounding", state, s[o], float(x.scales[0].item()), 30.0, 99, (0, 255))
        assert y.array[n, o, i, j] == wanted


# ---- onnxruntime ----------------------------------------------------------------------------------------------------


def session_of(operator: str, names: list[str], given: dict[str, Any], **attributes: Any) -> Any:
    """Return a session of a model with one operator."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper = onnx.helper
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()
    ]
    node = helper.make_node(operator, names, ["y"], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(given["zy"].dtype)
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", kind, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


MATMUL = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
CONV = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"]
#: Kernels of onnxruntime for bytes times signed bytes, on processors without VNNI: pairs of products in 16 bits.
PAIRS = emu.Mac(accumulator="fix32f0", order="promote(2, sequential, fix16f0, nearest_even)", overflow="wrap")


def unit_of(a: Any, b: Any, out: str, scale: Any, zero: Any) -> emu.Unit:
    """Return the unit of this processor: sums of 32 bits, or such whose pairs saturate."""
    mixed = a.dtype == np.uint8 and b.dtype == np.int8
    return emu.Unit(
        out,
        requantise="float32",
        scale=float(scale),
        zero=int(zero),
        mac=PAIRS if mixed and adds_pairs() else MACS["wraps"],
    )


def adds_pairs() -> bool:
    given = {
        "a": np.full((1, 2), 255, np.uint8), "sa": np.float32(1), "za": np.uint8(0), "b": np.full((2, 1), 127, np.int8),
        "sb": np.float32(1), "zb": np.int8(0), "sy": np.float32(1024), "zy": np.uint8(0),
    }  # fmt: skip
    given = {name: np.asarray(part) for name, part in given.items()}
    return int(session_of("QLinearMatMul", MATMUL, given).run(None, given)[0].item()) == 32  # 63 if no pair saturates


def drawn_matrices(random: np.random.Generator, kinds: tuple[Any, Any], shape: tuple[int, int, int]) -> dict[str, Any]:
    m, k, n = shape
    given: dict[str, Any] = {}
    for name, kind, size in (("a", kinds[0], (m, k)), ("b", kinds[1], (k, n))):
        ends = np.iinfo(kind)
        given[name] = random.integers(ends.min, ends.max + 1, size).astype(kind)
        given[f"z{name}"] = np.asarray(random.integers(ends.min, ends.max + 1), kind)
        given[f"s{name}"] = np.asarray(random.uniform(0.001, 0.1), np.float32)
    ends = np.iinfo(kinds[0])
    given["zy"] = np.asarray(random.integers(ends.min, ends.max + 1), kinds[0])
    given["sy"] = np.asarray(given["sa"] * given["sb"] * random.uniform(50, 3000), np.float32)
    return {name: given[name] for name in MATMUL}


def as_value(x: Any, scale: Any, zero: Any, axis: int = -1) -> ScaledValue:
    element = "ufix8f0" if x.dtype == np.uint8 else "fix8f0"
    ones = (1,) * x.ndim
    return emu.value((x, scale.reshape(ones), zero.reshape(ones)), f"block({element}, fp32 tensor ort)", axis=axis)


def of_output(y: Any) -> str:
    return "uint8_affine" if y.dtype == np.uint8 else "int8_affine"


@pytest.mark.parametrize("kinds", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)], ids=str)
@pytest.mark.parametrize("count", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_matrix_products_are_those_of_onnxruntime(kinds: tuple[Any, Any], count: int):
    random, shape = np.random.default_rng(7), (80, 64, 80)  # 60 * 80 * 80 * 3 kinds: 1,152,000 results
    session = session_of("QLinearMatMul", MATMUL, drawn_matrices(random, kinds, shape))
    for _ in range(count):
        g = drawn_matrices(random, kinds, shape)
        y = session.run(None, g)[0]
        unit = unit_of(g["a"], g["b"], of_output(y), g["sy"], g["zy"])
        got = unit.matmul(as_value(g["a"], g["sa"], g["za"]), as_value(g["b"], g["sb"], g["zb"], -2))
        assert np.array_equal(got.array, y)


def patches_of(g: dict[str, Any]) -> ScaledValue:
    """Return the patches of images (2, 8, 14, 14), a row each: kernel row, kernel column, channel."""
    x = np.pad(g["x"], ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=g["zx"])
    rows = [x[n, :, i : i + 3, 2 * j : 2 * j + 3].transpose(1, 2, 0).ravel() for n, i, j in np.ndindex(2, 14, 7)]
    return as_value(np.array(rows), g["sx"], g["zx"])


def kernels_of(g: dict[str, Any]) -> ScaledValue:
    columns = g["w"].transpose(2, 3, 1, 0).reshape(72, 16)
    return emu.value((columns, g["sw"].reshape(16, 1)), "int8_channel", axis=-2)


@pytest.mark.parametrize("kinds", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)], ids=str)
@pytest.mark.parametrize("count", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_convolutions_are_those_of_onnxruntime(kinds: tuple[Any, Any], count: int):
    random = np.random.default_rng(8)
    shapes = (2, 8, 14, 14), (16, 8, 3, 3)

    def drawn_images() -> dict[str, Any]:
        ends = [np.iinfo(kind) for kind in kinds]
        sizes = zip(kinds, shapes, ends, strict=True)
        x, w = (random.integers(e.min, e.max + 1, shape).astype(kind) for kind, shape, e in sizes)
        zx, zy = (np.asarray(random.integers(ends[0].min, ends[0].max + 1), kinds[0]) for _ in range(2))
        zw = np.full(16, 0 if kinds[1] == np.int8 else 128, kinds[1])
        sx, sw = np.asarray(random.uniform(0.01, 0.1), np.float32), random.uniform(0.01, 0.1, 16).astype(np.float32)
        sy = np.asarray(float(sx) * 0.05 * random.uniform(500, 3000), np.float32)
        bias = random.integers(-20000, 20000, 16).astype(np.int32)
        parts = dict(zip(CONV, (x, sx, zx, w, sw, zw, sy, zy, bias), strict=True))
        return parts if kinds[1] == np.int8 else {**parts, "sw": np.asarray(sw[0]), "zw": np.asarray(zw[0])}

    session = session_of("QLinearConv", CONV, drawn_images(), pads=[1, 1, 1, 1], strides=[1, 2])
    for _ in range(count):
        g = drawn_images()
        y = session.run(None, g)[0]
        unit = unit_of(g["x"], g["w"], of_output(y), g["sy"], g["zy"])
        if kinds[1] == np.int8:
            w = emu.value((g["w"], g["sw"].reshape(16, 1, 1, 1)), "int8_channel")
        else:
            w = as_value(g["w"], g["sw"], g["zw"])
        if unit.mac is PAIRS:  # the pairs are neighbours among channels, which are the innermost of its sums
            got = unit.matmul(patches_of(g), kernels_of(g), addend=g["bias"])
            assert np.array_equal(got.array.reshape(2, 14, 7, 16).transpose(0, 3, 1, 2), y)
            continue
        got = unit.conv2d(as_value(g["x"], g["sx"], g["zx"]), w, g["bias"], stride=(1, 2), padding=(1, 1))
        assert np.array_equal(got.array, y)


def test_numbers_are_quantised_as_by_onnxruntime():
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    outputs = [("y", kinds.UINT8), ("s", kinds.FLOAT), ("z", kinds.UINT8)]
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info("x", kinds.FLOAT, [16])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(9)
    for _ in range(500):
        spread = np.exp(random.uniform(-8, 8, 2))
        x = (random.normal(size=16) * spread[0] + random.normal() * spread[1]).astype(np.float32)
        y, scale, zero = session.run(None, {"x": x})
        v = emu.quantize(x, "uint8_affine")
        assert v.zero is not None
        assert np.array_equal(v.array, y)
        assert (v.scales[0].item(), v.zero.item()) == (scale, zero)
