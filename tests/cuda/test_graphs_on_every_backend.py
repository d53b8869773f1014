"""A graph with every kind of step ends in the same bits on the reference, on Numba and on a device's own arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from device_arrays import StrictDevice
from host_devices import as_backend

import emu
from emu import training
from emu.hardware import load_device
from emu.testing import assert_bits_equal
from emu.training.recipe import Recipe
from tests.interop.onnx_files import NETWORKS, node, saved

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


NODES = [
    node("Conv", ["x", "k1", "b1"], ["c1"], pads=[0, 1, 1, 0], dilations=[1, 2]),
    node("LeakyRelu", ["c1"], ["l1"], alpha=0.125),
    node("Conv", ["l1", "k2"], ["c2"], group=4, pads=[1, 1, 1, 1]),
    node("PRelu", ["c2", "s"], ["p"]),
    node("Elu", ["p"], ["e"]),
    node("Clip", ["e", "low", "high"], ["q"]),
    node("MaxPool", ["q"], ["m"], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    node("AveragePool", ["m"], ["a"], kernel_shape=[2, 2], strides=[1, 1], pads=[1, 0, 0, 1]),
    node("ConvTranspose", ["a", "k3"], ["t"], strides=[2, 2], output_padding=[1, 0]),
    node("Slice", ["t", "start", "end", "axis", "step"], ["sl"]),
    node("Abs", ["sl"], ["ab"]),
    node("Max", ["ab", "sl"], ["mx"]),
    node("Min", ["mx", "ab"], ["mn"]),
    node("Concat", ["sl", "mn"], ["cc"], axis=1),
    node("Pad", ["cc", "pads"], ["pp"], mode="reflect"),
    node("Resize", ["pp", "", "scales"], ["rs"], mode="nearest"),
    node("Erf", ["rs"], ["er"]),
    node("Exp", ["er"], ["ex"]),
    node("Sqrt", ["ex"], ["sq"]),
    node("Log", ["sq"], ["lg"]),
    node("Mul", ["lg", "g"], ["ml"]),
    node("GlobalAveragePool", ["ml"], ["ga"]),
    node("Flatten", ["ga"], ["f"]),
    node("Gemm", ["f", "w"]),
]
CONSTANTS = {
    "k1": drawn(4, 1, 3, 2), "b1": drawn(4), "k2": drawn(4, 1, 3, 3), "s": drawn(4, 1, 1), "low": np.float32(-1),
    "high": np.float32(2), "k3": drawn(4, 2, 2, 2), "start": np.int64([0]), "end": np.int64([100]),
    "axis": np.int64([2]), "step": np.int64([2]), "pads": np.int64([0, 0, 1, 0, 0, 0, 0, 1]),
    "scales": np.float32([1, 1, 2, 1]), "g": drawn(4, 1, 1), "w": drawn(4, 10),
}  # fmt: skip


@pytest.mark.parametrize("device", ["fixed16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_a_graph_is_trained_to_the_same_bits(device: str, tmp_path: Path):
    path = saved(tmp_path / "every.onnx", NODES, CONSTANTS, inputs={"x": ("n", 1, 8, 8)})
    optimiser = {"name": "sgd", "learning_rate": 0.01}
    recipe = Recipe.model_validate(
        {
            "name": "every",
            "network": {"graph": str(path)},
            "data": {"test_images": 4},
            "training": {"steps": 2, "batch": 4, "log_every": 2, "optimiser": optimiser},
        }
    )
    with as_backend(StrictDevice()):
        runs = [
            training.train(recipe, load_device(device), out=tmp_path / backend, backend=backend)
            for backend in ("reference", "numba", "cuda")
        ]
    assert len({(run.weights_sha256, run.registers_sha256) for run in runs}) == 1
    assert len({str(run.info["metrics"]) for run in runs}) == 1


@pytest.mark.parametrize("file", ["functions-qdq", "functions-qoperator"])
def test_a_quantised_graph_computes_the_same_elements(file: str):
    network = emu.onnx.load(NETWORKS / f"{file}.onnx")
    with np.load(NETWORKS / "digits.npz") as data:
        images = data["x"].astype(np.float32)[:7]
    with as_backend(StrictDevice()):
        expected, given = (network(images, backend=backend) for backend in ("reference", "cuda"))
    for a, b in zip(expected, given, strict=True):
        assert_bits_equal(b, a)
