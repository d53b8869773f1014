"""Networks in TFLite files against TensorFlow Lite's reference kernels: every element of every tensor, bit for bit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu.hardware import Device
from tests.command_line import Run
from tests.interop.tflite_files import COUNT, IMAGE, Operator, Tensor, drawn_inputs, every_operator, file_of

NETWORKS = Path(__file__).parent / "networks"
IMAGES = 20
#: Seed of `operators.tflite`, of make_tflite.py.
SEED = 1


def inputs_of(file: str, count: int = IMAGES) -> tuple[np.ndarray, ...]:
    if file == "operators":
        return drawn_inputs(SEED)
    with np.load(NETWORKS / "digits.npz") as data:
        return (data["x"][:count].astype(np.float32).transpose(0, 2, 3, 1),)


def recorded(file: str) -> dict[str, np.ndarray]:
    """What ai-edge-litert 2.3.0 computed with its reference kernels, by tensor; make_tflite.py writes it."""
    with np.load(NETWORKS / "tflite.npz") as data:
        return {key.partition(":")[2]: data[key] for key in data.files if key.startswith(f"{file}:")}


def differences(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, int]:
    assert set(found) == set(expected)
    assert {name: x.shape for name, x in found.items()} == {name: x.shape for name, x in expected.items()}
    wrong = {name: int((found[name] != array.astype(np.float64)).sum()) for name, array in expected.items()}
    return {name: count for name, count in wrong.items() if count}


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(("file", "tensors"), [("digits", 13), ("functions", 24), ("operators", 64)])
def test_every_tensor_is_that_of_the_reference_kernels(file: str, tensors: int, backend: str):
    network, expected = emu.tflite.load(NETWORKS / f"{file}.tflite"), recorded(file)
    assert len(expected) == tensors
    assert differences(network.tensor_results(*inputs_of(file), backend=backend), expected) == {}


def test_the_fixture_is_what_the_writer_of_these_tests_makes():
    assert (NETWORKS / "operators.tflite").read_bytes() == every_operator(SEED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_ai_edge_litert_computes_the_same_with_other_scales(seed: int, tmp_path: Path):
    pytest.importorskip("ai_edge_litert", reason="compares with ai-edge-litert: pip install ai-edge-litert")
    from tests.interop.make_tflite import reference

    (tmp_path / "a.tflite").write_bytes(every_operator(seed))
    inputs = drawn_inputs(seed)
    found = emu.tflite.load(tmp_path / "a.tflite").tensor_results(*inputs)
    assert differences(found, reference(every_operator(seed), *inputs)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["digits", "functions"])
def test_ai_edge_litert_computes_the_same_of_all_images(file: str):
    pytest.importorskip("ai_edge_litert", reason="compares with ai-edge-litert: pip install ai-edge-litert")
    from tests.interop.make_tflite import reference

    path, inputs = NETWORKS / f"{file}.tflite", inputs_of(file, 450)
    assert differences(emu.tflite.load(path).tensor_results(*inputs), reference(path.read_bytes(), *inputs)) == {}


def against_litert(content: bytes, folder: Path, *inputs: np.ndarray) -> int:
    """Compare with ai-edge-litert; return how many elements there were."""
    pytest.importorskip("ai_edge_litert", reason="compares with ai-edge-litert: pip install ai-edge-litert")
    from tests.interop.make_tflite import reference

    (folder / "a.tflite").write_bytes(content)
    found, expected = emu.tflite.load(folder / "a.tflite").tensor_results(*inputs), reference(content, *inputs)
    assert differences(found, expected) == {}
    return expected["y"].size


@pytest.mark.slow
def test_ai_edge_litert_has_the_same_shares_of_many_classes(tmp_path: Path):
    """Steps from exp(-1e-4) to exp(-1/3): the float tables of its optimised kernels differ here."""
    rng, compared = np.random.default_rng(1), 0
    for i in range(40):
        classes = int(rng.integers(2, 300) if i % 2 else rng.integers(2, 8))
        x = rng.integers(-128, 128, (60 if i % 2 else 2000, classes)).astype(np.int8)
        tensors = [
            Tensor("x", (1, classes), scale=10 ** rng.uniform(-4, -0.5), zero=3),
            Tensor("y", (1, classes), scale=1 / 256, zero=-128),
        ]
        softmax = Operator("SOFTMAX", ["x"], ["y"], {0: ("Float32", 1.0)})
        compared += against_litert(file_of(tensors, [softmax]), tmp_path, x)
    assert compared > 100_000


@pytest.mark.slow
def test_ai_edge_litert_rounds_products_beside_a_half_alike(tmp_path: Path):
    """Biases are the sums: those next to halves, of multipliers around 2**-23, where every digit of it counts."""
    rng, compared = np.random.default_rng(1), 0
    for _ in range(30):
        a, b = np.float32(rng.uniform(0.01, 0.1, 2))
        scale = np.float32(np.float64(a) * b * 2**30 / 128 * rng.uniform(0.5, 1))
        halves = (rng.integers(-120, 120, 200) + 0.5) / (np.float64(a) * b / np.float64(scale))
        sums = np.unique(np.concatenate([np.rint(halves) + d for d in range(-6, 7)])).astype(np.int32)
        tensors = [
            Tensor("x", (1, 4), scale=a), Tensor("y", (1, len(sums)), scale=scale),
            Tensor("w", (len(sums), 4), scale=b, data=np.zeros((len(sums), 4), np.int8)),
            Tensor("c", sums.shape, "int32", scale=a * b, data=sums),
        ]  # fmt: skip
        product = Operator("FULLY_CONNECTED", ["x", "w", "c"], ["y"], {0: ("Int8", 0)})
        compared += against_litert(file_of(tensors, [product]), tmp_path, np.zeros((1, 4), np.int8))
    assert compared > 50_000


@pytest.mark.parametrize("file", ["digits", "functions"])
def test_an_example_alone_and_in_a_batch_is_the_same(file: str):
    """The files are stored for a batch of 1, and their reshapes follow it."""
    network, [images] = emu.tflite.load(NETWORKS / f"{file}.tflite"), inputs_of(file)
    together = network(images)[0]
    assert together.shape == (IMAGES, 10)
    assert all(np.array_equal(network(images[i : i + 1])[0], together[i : i + 1]) for i in (0, 7))


def test_what_a_graph_says_in_integers_does_not_depend_on_the_device():
    network, [images] = emu.tflite.load(NETWORKS / "digits.tflite"), inputs_of("digits")
    exact, bf16 = (network.results(images, device=device) for device in ("float32", "bf16-mixed"))
    assert np.array_equal(exact["functional_1.fc_1.MatMul"].array, bf16["functional_1.fc_1.MatMul"].array)


@pytest.mark.parametrize("kind", [None, "single_rounding", "float32"])
def test_a_device_that_says_how_it_requantises_does_so_in_products(kind: str | None):
    """Without a word the convolution rounds twice, as the kernel does, and the product once, in binary64."""
    tables = emu.device("float32").model_dump(mode="json", exclude_unset=True)
    device = Device.model_validate(
        {**tables, "precision": {**tables["precision"], "requantiser": kind}} if kind else tables
    )
    network, inputs = emu.tflite.load(NETWORKS / "operators.tflite"), inputs_of("operators")
    own, given = network.results(*inputs), network.results(*inputs, device=device)
    changed = {name for name in own if not np.array_equal(own[name].array, given[name].array)}
    assert (changed == set()) == (kind is None)
    assert all(name.startswith(("conv", "depthwise", "fc")) for name in changed)
    step = next(step for step in network.wired().steps if step.name == "fc2")
    of, to = step.options["of"], step.options["to"]
    by = emu.Requantiser(kind or "exact", float(to.how.scale), int(to.how.zero), to.lowest, to.highest)
    expected = emu.requantise(own["fc2.sums"].array, "fix8f0", by, a_scale=of[0], b_scale=of[1])
    assert np.array_equal(given["fc2"].array, expected.array)


def test_recorded_tensors_are_compared_by_their_names_in_the_file():
    from emu.interop.against import compare_with

    network, [images] = emu.tflite.load(NETWORKS / "digits.tflite"), inputs_of("digits")
    expected = {name: array for name, array in recorded("digits").items() if name != network.inputs[0]}
    compared = compare_with(network, "float32", images, expected)
    assert (compared.first, compared.left_out, len(compared.rows)) == (None, (), 12)
    first = compare_with(network, "fixed8", images, expected).first
    assert first is not None
    assert first.tensor == "tfl.quantize"


def test_a_reshape_whose_first_size_is_the_batch_of_the_file_follows_the_batch(tmp_path: Path):
    """[1, 6] and [1, -1] of a file for one example are [n, 6]; [-1, 3] is [2 * n, 3], which no example has alone."""
    for shape in ([1, 6], [1, -1], [-1, 6]):
        network = one(tmp_path, [Operator("RESHAPE", ["x", "s"], ["y"])], (1, 2, 3), (1, 6), s=np.int32(shape))
        x = np.arange(24, dtype=np.int8).reshape(4, 2, 3)
        assert np.array_equal(network(x)[0], x.reshape(4, 6))
    network = one(tmp_path, [Operator("RESHAPE", ["x", "s"], ["y"])], (1, 2, 3), (2, 3), s=np.int32([-1, 3]))
    assert network(np.zeros((1, 2, 3), np.int8))[0].shape == (2, 3)
    with pytest.raises(emu.EmuError, match=r"must be given batches of 1, for which it was converted, got 4"):
        network(np.zeros((4, 2, 3), np.int8))


def one(
    folder: Path, operators: list[Operator], shape: tuple[int, ...], result: tuple[int, ...], **constants: Any
) -> Any:
    """A network of int8 whose tensors x and y have the scale 0.5 and the zero point 3."""
    tensors = [Tensor("x", shape, scale=0.5, zero=3), Tensor("y", result, scale=0.5, zero=3)]
    tensors += [Tensor(name, x.shape, x.dtype.name, data=x) for name, x in constants.items()]
    (folder / "a.tflite").write_bytes(file_of(tensors, operators))
    return emu.tflite.load(folder / "a.tflite")


def test_floats_beyond_32_bits_saturate_where_the_kernel_is_undefined(tmp_path: Path):
    tensors = [Tensor("x", (1, 5), "float32"), Tensor("y", (1, 5), scale=0.5, zero=3)]
    (tmp_path / "a.tflite").write_bytes(file_of(tensors, [Operator("QUANTIZE", ["x"], ["y"])]))
    x = np.float32([[3e38, -3e38, np.inf, -np.inf, np.nan]])
    assert emu.tflite.load(tmp_path / "a.tflite")(x)[0].tolist() == [[127, -128, 127, -128, 3]]


@pytest.mark.parametrize("function", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_a_file_for_a_batch_of_its_own_computes_others(tmp_path: Path, function: str):
    fields = {slot: ("Int8" if slot in (0, 5) else "Int32", n) for slot, n in enumerate((1, 2, 2, 2, 2, 0))}
    network = one(tmp_path, [Operator(function, ["x"], ["y"], fields)], (COUNT, *IMAGE), (COUNT, 3, 3, 4))
    x = drawn_inputs(SEED)[0]
    assert np.array_equal(network(x)[0][:1], network(x[:1])[0])


def test_the_command_evaluates_and_lists_a_file(emu_command: Run):
    path, data = str(NETWORKS / "digits.tflite"), str(NETWORKS / "digits.npz")
    code, out, err = emu_command("evaluate", path, "--device", "float32", "--data", data, "--only", "none")
    assert (code, err) == (0, "")
    assert "accuracy 96.44% on float32   96.44% in float32 (+0.00 points)" in out
    code, out, _ = emu_command("models", path)
    assert code == 0
    assert "digits.tflite: 12 layers that compute" in out
    assert "schema" in out


def test_layers_of_integers_are_listed_and_not_tried_alone(emu_command: Run):
    path, data = str(NETWORKS / "digits.tflite"), str(NETWORKS / "digits.npz")
    options = ["--device", "bf16-mixed", "--data", data]
    code, out, err = emu_command("evaluate", path, *options)
    assert (code, err) == (0, "")
    assert re.search(r"fc_1.MatMul +FULLY_CONNECTED +equal +0.2%", out)
    assert re.search(r"DEQUANTIZE +equal +0 +96.44%", out)
    code, out, err = emu_command("evaluate", path, *options, "--only", "*fc_1*")
    assert (code, out) == (2, "")
    assert "got '*fc_1*', which computes with integers of the graph; leave it out" in err
