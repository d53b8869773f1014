"""QONNX: a network of Brevitas against QONNX's executor, and each operator against its definition."""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import emu
from tests.command_line import Run
from tests.interop.onnx_files import NETWORKS, node, saved

#: What NumPy computes for each rounding mode, as QONNX's own functions have it.
MODES: dict[str, Any] = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.fix,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}
X = np.float32([[5.5, 2.5, 1.6, 1.1, 1.0, 0.0, -1.0, -1.1, -1.6, -2.5, -5.5, 7.75, 100.0, -100.0, 0.5, -0.5]])


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(NETWORKS / "digits.npz") as data:
        return data["x"].astype(np.float32)


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_integers_at_every_quantiser_are_those_of_qonnx(backend: str, images: np.ndarray):
    network = emu.onnx.load(NETWORKS / "digits-brevitas.onnx")
    results = network.results(images[:20], backend=backend)
    with np.load(NETWORKS / "qonnx.npz") as recorded:
        expected = [recorded[name] for name in recorded.files]
    steps = [step.name for step in network.wired().steps if step.primitive in ("quantize_linear", "integer_conv2d")]
    assert len(steps) == len(expected) - 1 == 3
    for name, integers in zip(steps, expected[:-1], strict=True):
        assert np.array_equal(results[name].array, integers), name
    [scores] = network(images[:20], backend=backend)
    assert np.abs(scores - expected[-1]).max() <= 2e-5
    assert np.array_equal(scores.argmax(1), expected[-1].argmax(1))


def test_convolutions_between_quantisers_have_no_floats():
    network = emu.onnx.load(NETWORKS / "digits-brevitas.onnx")
    assert [(step.name, step.primitive) for step in network.wired().steps] == [
        ("q.act_quant.export_handler", "quantize_linear"),
        ("c1", "integer_conv2d"),
        ("c2", "integer_conv2d"),
        ("reshape1", "reshape"),
        ("fc.sums", "integer_matmul"),
        ("fc", "dequantize_linear"),
    ]


def network(
    path: Path,
    operator: str,
    constants: list[Any],
    domain: str = "qonnx.custom_op.general",
    version: int = 1,
    **options: Any,
) -> Any:
    """Load a graph of one QONNX operator that reads x and these constants."""
    names = {f"c{place}": np.float32(array) for place, array in enumerate(constants)}
    quant = helper.make_node(operator, ["x", *names], ["y"], domain=domain, **options)
    saved(path, [quant], names, inputs={"x": ("n", 16)})
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid(domain, version))
    onnx.save(model, path)
    return emu.onnx.load(path)


def quantised(
    x: np.ndarray, scale: float, zero: float, bits: int, mode: str, *, signed: bool, narrow: bool
) -> np.ndarray:
    """Int_quant of QONNX, in float32."""
    y = x / np.float32(scale) + np.float32(zero)
    low, high = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
    return ((MODES[mode](np.clip(y, low, high)) - np.float32(zero)) * np.float32(scale)).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("signed", "narrow"), list(product([True, False], repeat=2)))
def test_quant_is_its_definition(tmp_path: Path, mode: str, signed: bool, narrow: bool):
    for scale, zero, bits in ((1.0, 0.0, 4), (0.5, 0.0, 8), (0.3, 3.0, 4), (0.25, 0.0, 2)):
        options = {"rounding_mode": mode, "signed": int(signed), "narrow": int(narrow)}
        [y] = network(tmp_path / "a.onnx", "Quant", [scale, zero, bits], **options)(X)
        expected = quantised(X, scale, zero, bits, mode, signed=signed, narrow=narrow)
        assert np.array_equal(y, expected), (scale, zero, bits)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"])
@pytest.mark.parametrize("operator", ["Quant", "IntQuant"])
def test_quant_has_had_several_names(tmp_path: Path, domain: str, operator: str):
    [y] = network(tmp_path / "a.onnx", operator, [1.0, 0.0, 4], domain, rounding_mode="ROUND", signed=1, narrow=0)(X)
    assert np.array_equal(y, quantised(X, 1.0, 0.0, 4, "ROUND", signed=True, narrow=False))


def test_scales_of_channels(tmp_path: Path):
    scale = np.float32(2.0 ** np.arange(16) / 1024).reshape(1, 16)
    [y] = network(tmp_path / "a.onnx", "Quant", [scale, 0.0, 8], rounding_mode="ROUND", signed=1, narrow=0)(X)
    assert np.array_equal(y, np.clip(np.round(X / scale), -128, 127) * scale)


def test_bipolar_quant_is_a_sign(tmp_path: Path):
    [y] = network(tmp_path / "a.onnx", "BipolarQuant", [0.3])(X)
    assert np.array_equal(y, np.where(X >= 0, np.float32(0.3), np.float32(-0.3)))


@pytest.mark.parametrize("mode", ["FLOOR", "ROUND", "CEIL"])
def test_trunc_has_two_versions(tmp_path: Path, mode: str):
    """The first keeps the scale of its input; the second has one, and saturates."""
    [first] = network(tmp_path / "a.onnx", "Trunc", [0.25, 0.0, 10, 8], rounding_mode=mode)(X)
    integers = np.round(X / np.float32(0.25))
    assert np.array_equal(first, MODES[mode](integers / 4) * 0.25)
    options = {"rounding_mode": mode, "signed": 1, "narrow": 0}
    [second] = network(tmp_path / "a.onnx", "Trunc", [0.25, 0.0, 10, 1.0, 4], version=2, **options)(X)
    assert np.array_equal(second, MODES[mode](np.clip(integers / 4, -8, 7)))


@pytest.mark.parametrize(
    ("exponent", "mantissa", "bias", "largest"), [(4, 3, 7, 448.0), (2, 1, 1, 6.0), (3, 2, 3, 20.0)]
)
def test_float_quant_rounds_to_a_float_of_few_bits(
    tmp_path: Path, exponent: int, mantissa: int, bias: int, largest: float
):
    constants = [0.5, exponent, mantissa, bias, largest]
    [y] = network(tmp_path / "a.onnx", "FloatQuant", constants, rounding_mode="ROUND", saturation=1)(X * 9)
    x = X * 9 / np.float32(0.5)
    step = np.maximum(np.floor(np.log2(np.abs(x) + np.finfo(np.float32).tiny)) - mantissa, 1 - bias - mantissa)
    expected = np.clip(np.round(x / np.exp2(step)) * np.exp2(step), -largest, largest)
    assert np.array_equal(y, expected * np.float32(0.5))


@pytest.mark.parametrize(
    ("operator", "constants", "options", "rule"),
    [
        ("Quant", [1.0, 0.0, 1], {"signed": 1}, "`bitwidth` must be an integer in 1..32, from 2 on with a sign, got 1"),
        ("Quant", [1.0, 0.0, 40], {}, "`bitwidth` must be an integer in 1..32, from 2 on with a sign, got 40"),
        ("Quant", [1.0, 0.5, 4], {}, "`zeropt` must be an integer, got 0.5"),
        (
            "Quant",
            [np.ones((2, 8)), 0.0, 4],
            {},
            "scales must be those of a tensor or of an axis, got the shape (2, 8)",
        ),
        ("Quant", [1.0, 0.0, 4], {"rounding_mode": "ODD"}, "`rounding_mode` must be one of ROUND, HALF_EVEN"),
        ("Quant", [0.0, 0.0, 4], {}, "scales must be positive and finite, got 0.0"),
        ("Trunc", [1.0, 1.0, 8, 4], {}, "must have the zero point 0, got 1"),
        ("FloatQuant", [1.0, 4, 3, 7, 448.0], {"saturation": 0}, "must saturate, got saturation = 0"),
        ("MultiThreshold", [1.0], {}, "operators of domain 'qonnx.custom_op.general' are not known"),
    ],
)
def test_what_cannot_be_computed_is_named(
    tmp_path: Path, operator: str, constants: list[Any], options: dict[str, Any], rule: str
):
    with pytest.raises(emu.ConfigError) as refused:
        network(tmp_path / "a.onnx", operator, constants, **options)(X)
    assert rule in str(refused.value)


@pytest.mark.slow
def test_qonnx_itself_computes_the_same_for_all_images(images: np.ndarray):
    for name in ("qonnx", "brevitas"):
        pytest.importorskip(name, reason=f"compares with QONNX's executor: pip install {name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Brevitas, which makes the network
        from tests.interop.make_qonnx import computed

    path = NETWORKS / "digits-brevitas.onnx"
    *integers, scores = computed(path, images).values()
    network = emu.onnx.load(path)
    results = network.results(images)
    steps = [step.name for step in network.wired().steps if step.primitive in ("quantize_linear", "integer_conv2d")]
    for name, expected in zip(steps, integers, strict=True):
        assert np.array_equal(results[name].array, expected), name
    assert np.array_equal(network(images)[0].argmax(1), scores.argmax(1))


@pytest.mark.parametrize("file", ["digits", "digits-dynamo", "sequence"])
def test_a_network_written_as_qonnx_keeps_its_bits(tmp_path: Path, file: str, images: np.ndarray):
    """Every tensor of the file is an output, and all of them are equal."""
    model = onnx.load(NETWORKS / f"{file}.onnx")
    own = model.graph.output[0].name
    names = [node.output[0] for node in model.graph.node if node.op_type != "Constant" and node.output[0] != own]
    model.graph.output.extend(helper.make_tensor_value_info(name, 1, None) for name in names)
    onnx.save(model, tmp_path / "all.onnx")
    network = emu.onnx.load(tmp_path / "all.onnx")
    network.write_qonnx(tmp_path / "out.onnx", "fixed8")
    written = emu.onnx.load(tmp_path / "out.onnx")
    assert network.composed == {}
    for name, a, b in zip(network.outputs, network(images, device="fixed8"), written(images), strict=True):
        assert np.array_equal(a, b), name


def test_weights_of_products_and_biases_behind_them_are_written(tmp_path: Path):
    """Exporters write MatMul and Add; its layer is the product, whose result before the bias is nothing's format."""
    tokens = np.random.default_rng(0).integers(0, 32, (20, 12))
    network = emu.onnx.load(NETWORKS / "letters.onnx")
    assert network.composed == {}
    written = emu.onnx.load(network.write_qonnx(tmp_path / "out.onnx", "fixed8"))
    [a], [b] = network(tokens, device="fixed8"), written(tokens)
    assert np.array_equal(a, b)


NUMBERS = np.random.default_rng(1)
LAYERS: dict[str, tuple[list[Any], dict[str, Any], tuple[Any, ...]]] = {
    "the sizes of a resize": (
        [node("Resize", ["x", "", "scales"], mode="nearest")],
        {"scales": np.float32([1, 1, 1.6, 1.6])},
        ("n", 2, 5, 5),
    ),
    "a weight that is transposed": (
        [node("Transpose", ["w"], ["t"]), node("MatMul", ["x", "t"])],
        {"w": NUMBERS.normal(size=(4, 3)).astype(np.float32)},
        ("n", 3),
    ),
    "one kernel and its bias": (
        [node("Conv", ["x", "w", "b"])],
        {"w": NUMBERS.normal(size=(1, 2, 3, 3)).astype(np.float32), "b": np.float32([0.77])},
        ("n", 2, 5, 5),
    ),
    "moments of a normalisation": (
        [node("BatchNormalization", ["x", "s", "b", "m", "v"])],
        {
            "s": np.float32([0.7, 1.2]), "b": np.float32([0.33, -0.91]), "m": np.float32([0.123, 0.456]),
            "v": np.float32([0.789, 1.77]),
        },
        ("n", 2, 5, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_a_parameter_is_written_and_nothing_else(tmp_path: Path, name: str):
    nodes, constants, shape = LAYERS[name]
    network = emu.onnx.load(saved(tmp_path / "a.onnx", nodes, constants, inputs={"x": shape}))
    x = NUMBERS.normal(size=(6, *shape[1:])).astype(np.float32)
    written = emu.onnx.load(network.write_qonnx(tmp_path / "out.onnx", "fixed8"))
    [a], [b] = network(x, device="fixed8"), written(x)
    assert np.array_equal(a, b)


def test_factors_of_gemm_are_named(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Gemm", ["x", "w"], alpha=0.5)], {"w": np.ones((3, 2), np.float32)})
    assert emu.onnx.load(path).composed == {"gemm1": 2}


def test_quantised_networks_are_not_written_again(tmp_path: Path):
    with pytest.raises(emu.ConfigError, match=r"must be one of floats, got DequantizeLinear in .*digits-qdq.onnx"):
        emu.onnx.load(NETWORKS / "digits-qdq.onnx").write_qonnx(tmp_path / "out.onnx", "fixed8")
    assert list(tmp_path.iterdir()) == []


def test_qonnx_executes_what_was_written(tmp_path: Path, images: np.ndarray):
    """Its scores are those of the device."""
    pytest.importorskip("qonnx", reason="runs QONNX's executor: pip install qonnx")
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    network = emu.onnx.load(NETWORKS / "digits.onnx")
    wrapper = ModelWrapper(str(network.write_qonnx(tmp_path / "out.onnx", "fixed8")))
    size = wrapper.graph.input[0].type.tensor_type.shape.dim[0]
    size.ClearField("dim_param")
    size.dim_value = len(images)
    [scores] = execute_onnx(wrapper.transform(InferShapes()), {"x": images}).values()
    assert np.array_equal(scores, network(images, device="fixed8")[0])


def test_nodes_of_several_steps_are_named_when_they_are_written(emu_command: Run, tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("HardSwish", ["x"])])
    out = tmp_path / "b.onnx"
    code, text, _ = emu_command("export", "qonnx", str(path), "--device", "fixed8", "--out", str(out), width=200)
    assert code == 0
    expected = "intermediate results have formats on the device, and none in the file, in hard_swish1 (4 steps)"
    assert text.splitlines() == [str(out), expected]


@pytest.mark.parametrize("word", ["ufix4f2", "ufix1f0", "fix4f2", "fix8f149", "fix8f-127"])
@pytest.mark.parametrize("overflow", ["saturate", "saturate_symmetric"])
def test_words_of_any_width_and_sign_keep_their_bits_when_they_are_written(tmp_path: Path, word: str, overflow: str):
    text = Path("devices/fixed8.toml").read_text().replace('name = "fixed8"', 'name = "mine"')
    (tmp_path / "mine.toml").write_text(text.replace('"fix8f3"', f'"{word}"').replace('"saturate"', f'"{overflow}"'))
    network = emu.onnx.load(saved(tmp_path / "a.onnx", [node("Abs", ["x"])], inputs={"x": ("n", 16)}))
    written = emu.onnx.load(network.write_qonnx(tmp_path / "b.onnx", tmp_path / "mine.toml"))
    x = np.concatenate([X, X * np.float32(1e36), X * np.float32(1e-40)])
    assert np.array_equal(written(x)[0], network(x, device=tmp_path / "mine.toml")[0])


@pytest.mark.parametrize(
    ("device", "rule"),
    [
        ("fp16", "tensors must be float32 or words of at most 32 bits in QONNX, got fp16 for activation of input"),
        ("dlu8", "a device must say every binary point to be written as QONNX, got 'dlu8'"),
        (("nearest_even", "stochastic"), "tensors must be rounded by nearest_zero, nearest_away, toward_zero"),
        (("saturate", "wrap"), "tensors must saturate in QONNX, got wrap for activation of input"),
        (("fix8f3", "fix1f0"), "words with a sign must have at least 2 bits in QONNX, where one stands for -1 and 1"),
        (("fix8f3", "fix8f150"), "words must have -127 to 149 fraction bits in QONNX, whose scales are float32, got"),
        (("fix8f3", "fix8f-128"), "words must have -127 to 149 fraction bits in QONNX, whose scales are float32, got"),
    ],
)
def test_formats_that_qonnx_has_not(tmp_path: Path, device: Any, rule: str):
    if not isinstance(device, str):
        text = Path("devices/fixed8.toml").read_text().replace(f'"{device[0]}"', f'"{device[1]}"')
        (tmp_path / "mine.toml").write_text(text.replace('name = "fixed8"', 'name = "mine"'))
        device = tmp_path / "mine.toml"
    with pytest.raises(emu.ConfigError) as refused:
        emu.onnx.load(NETWORKS / "digits.onnx").write_qonnx(tmp_path / "out.onnx", device)
    assert rule in str(refused.value)
    assert not (tmp_path / "out.onnx").exists()
