"""Evaluation of weights from a run, .npz and .safetensors; and what it says of those it cannot use."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from small_runs import train

import emu
from emu import training
from emu.hardware import load_device
from emu.training.evaluation import read_weights
from emu.training.folders.run_folder import RunFolder

RECIPE = training.load_recipe("mlp", ["data.test_images=50"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    return train(tmp_path_factory.mktemp("runs") / "run", training__steps=12, data__test_images=50)


@pytest.fixture(scope="module")
def weights(run: training.Run) -> dict[str, np.ndarray]:
    arrays, _ = RunFolder(run.path).load_checkpoint()
    return {name.removeprefix("parameters/"): array for name, array in arrays.items() if name.startswith("parameters/")}


def test_a_run_evaluates_to_what_it_measured_last(run: training.Run, backend: str):
    result = training.evaluate(run.path, backend=backend)
    assert result.weights_sha256 == run.weights_sha256
    assert result.images == 50
    assert (result.test_loss, result.test_accuracy) == (run.info["metrics"]["test_loss"], run.test_accuracy)


def test_a_run_whose_nodes_have_points_of_their_own_evaluates_to_what_it_measured_last(tmp_path: Path):
    point = {"schedule": "conditional_redo", "pretraining_steps": 3}
    run = train(
        tmp_path / "run",
        device="dlu16",
        training__steps=6,
        data__test_images=50,
        dynamic_point=point,
        cluster={"nodes": 4, "points": "own"},
    )
    result = training.evaluate(run.path)
    assert (result.test_loss, result.test_accuracy) == (run.info["metrics"]["test_loss"], run.test_accuracy)


def test_every_kind_of_file_evaluates_to_the_same(run: training.Run, weights: dict[str, np.ndarray], tmp_path: Path):
    expected = training.evaluate(run.path)
    np.savez(tmp_path / "w.npz", **weights)
    np.savez_compressed(
        tmp_path / "wide.npz", **{name: array.astype(np.float64) for name, array in weights.items()}, more=np.ones(3)
    )
    save_file(weights, tmp_path / "w.safetensors")
    save_file({f"parameters/{name}": array for name, array in weights.items()}, tmp_path / "prefixed.safetensors")
    shutil.copy(run.path / "checkpoint.safetensors", tmp_path / "checkpoint.safetensors")
    for path in sorted(tmp_path.iterdir()):
        result = training.evaluate(path, RECIPE, "fixed16")
        assert (result.weights_sha256, result.test_loss, result.test_accuracy) == (
            run.weights_sha256,
            expected.test_loss,
            expected.test_accuracy,
        )
        assert result.counters.sha256() == expected.counters.sha256()


def test_a_run_evaluates_on_another_device(run: training.Run):
    other = training.evaluate(run.path, device=load_device("fixed8"))
    assert other.weights_sha256 != run.weights_sha256  # masters of 24 bits
    assert dict(other.counters.items())["output", "activation"].elements == 500


def test_evaluation_changes_nothing(run: training.Run):
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    training.evaluate(run.path)
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_evaluation_counts_forward_results_only(run: training.Run):
    roles = {role for (_, role), counters in training.evaluate(run.path).counters.items() if counters.elements}
    assert roles <= {"weight", "bias", "activation", "loss"}


def refusal(path: Path, *arguments: Any) -> str:
    with pytest.raises(emu.ConfigError) as caught:
        training.evaluate(path, *arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_weights_that_are_no_weights_are_named(run: training.Run, weights: dict[str, np.ndarray], tmp_path: Path):
    machine = (RECIPE, load_device("fixed16"))
    missing = tmp_path / "w.npz"
    assert refusal(missing, *machine) == (
        f"weights must be a run folder, a .safetensors or an .npz file, got {str(missing)!r}, "
        "which does not exist; check the path"
    )
    assert "a .safetensors or an .npz file, got" in refusal(written(tmp_path / "w.bin", b"1"), *machine)
    np.save(tmp_path / "array.npy", np.ones(3))
    np.savez(tmp_path / "whole.npz", **weights)
    np.savez(tmp_path / "objects.npz", **weights | {"fc1.weight": np.array([None])})
    whole = (tmp_path / "whole.npz").read_bytes()
    for name, content in (
        ("empty", b""), ("text", b"not a zip"), ("pickle", b"\x80\x04K\x01."), ("cut", whole[: len(whole) // 2]),
        ("one", (tmp_path / "array.npy").read_bytes()), ("objects", (tmp_path / "objects.npz").read_bytes()),
    ):  # fmt: skip
        path = written(tmp_path / f"{name}.npz", content)
        assert refusal(path, *machine).startswith(f"weights in {path} must be an .npz file of plain arrays, got "), name
    for name, content in (
        ("empty", b""),
        ("text", b"not safe tensors"),
        ("cut", (run.path / "checkpoint.safetensors").read_bytes()[:999]),
    ):
        path = written(tmp_path / f"{name}.safetensors", content)
        assert refusal(path, *machine).startswith(f"weights in {path} must be a safetensors file, got "), name


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path):
    assert refusal(tmp_path, RECIPE, load_device("fixed16")).startswith(
        "a run must have a checkpoint to be resumed, got none at "
    )


def test_weights_of_another_network_are_named(weights: dict[str, np.ndarray], tmp_path: Path):
    machine, path = (RECIPE, load_device("fixed16")), tmp_path / "w.npz"
    np.savez(path, **{name: array for name, array in weights.items() if name != "fc2.bias"})
    assert refusal(path, *machine) == (
        f"weights must have an array 'fc2.bias', got fc1.bias, fc1.weight, fc2.weight, output.bias, "
        f"output.weight in {path}; check the model"
    )
    np.savez(path, **weights | {"fc2.weight": weights["fc2.weight"].T})
    assert refusal(path, *machine) == (
        f"array 'fc2.weight' must be real numbers of shape (64, 128), got "
        f"{weights['fc2.weight'].dtype} of shape (128, 64) in {path}; check the model"
    )
    np.savez(path, **weights | {"output.bias": weights["output.bias"] + 0j})
    assert "array 'output.bias' must be real numbers of shape (10,), got complex128" in refusal(path, *machine)
    broken = weights["fc1.bias"].astype(np.float32)
    broken[3] = np.nan
    np.savez(path, **weights | {"fc1.bias": broken})
    assert (
        refusal(path, *machine)
        == f"array 'fc1.bias' must be finite, got nan at index (3,) in {path}; train again, or clean it"
    )


def test_weights_alone_need_a_model_and_a_device(weights: dict[str, np.ndarray], tmp_path: Path):
    path = tmp_path / "w.npz"
    np.savez(path, **weights)
    for arguments in ((), (RECIPE,), (None, load_device("fixed16"))):
        assert (
            refusal(path, *arguments)
            == f"weights that are no run folder need a model and a device, got {path}; add --model and --device"
        )


def safetensors_file(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> Path:
    """A file as the format's page describes it: length of the header, header, bytes."""
    header, content = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        end = len(content) + len(data)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(content), end]}
        content += data
    text = json.dumps(header).encode()
    return written(path, struct.pack("<Q", len(text)) + text + content)


def bits_of(dtype: str, weights: dict[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Weights as ml_dtypes rounds them, and what they are afterwards."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = {
        "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
        "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    }[dtype]  # fmt: skip
    return {name: array.astype(np.float32).astype(getattr(ml_dtypes, kind)) for name, array in weights.items()}


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"])
def test_narrow_floats_of_safetensors_evaluate_to_what_they_are_in_float32(
    dtype: str, weights: dict[str, np.ndarray], tmp_path: Path
):
    narrow = bits_of(dtype, weights)
    path = safetensors_file(
        tmp_path / "w.safetensors", {name: (dtype, array.shape, array.tobytes()) for name, array in narrow.items()}
    )
    np.savez(tmp_path / "w.npz", **{name: array.astype(np.float32) for name, array in narrow.items()})
    found, expected = (training.evaluate(file, RECIPE, "float32") for file in (path, tmp_path / "w.npz"))
    assert found.weights_sha256 == expected.weights_sha256
    assert found.test_loss == expected.test_loss


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"])
def test_every_code_of_a_narrow_float_is_read_as_ml_dtypes_reads_it(dtype: str, tmp_path: Path):
    width = 2 if dtype == "BF16" else 1
    codes = np.arange(1 << 8 * width, dtype=f"<u{width}")
    kind = next(iter(bits_of(dtype, {"x": np.zeros(1)}).values())).dtype
    path = safetensors_file(tmp_path / "w.safetensors", {"x": (dtype, codes.shape, codes.tobytes())})
    with np.errstate(invalid="ignore"):
        expected = codes.view(kind).astype(np.float32)
    np.testing.assert_array_equal(read_weights(path)["x"], expected)


def test_tensors_that_hold_no_weights_are_refused_where_weights_are_wanted(
    weights: dict[str, np.ndarray], tmp_path: Path
):
    machine = (RECIPE, load_device("fixed16"))
    plain = {name: ("F64", array.shape, array.astype("<f8").tobytes()) for name, array in weights.items()}
    packed, more = bytes(5), {"scales": ("F8_E8M0", (4,), bytes(4)), "packed": ("F4", (4,), bytes(2))}
    path = safetensors_file(tmp_path / "w.safetensors", plain | more)
    assert training.evaluate(path, *machine).images == 50
    safetensors_file(path, plain | {"output.bias": ("F4", (10,), packed)})
    assert refusal(path, *machine) == (
        f"array 'output.bias' must be real numbers of shape (10,), got F4 of shape (10,) in {path}; check the model"
    )
    safetensors_file(path, plain | {"output.bias": ("C64", (10,), bytes(80))})
    assert "must be real numbers of shape (10,), got complex64" in refusal(path, *machine)
    safetensors_file(path, plain | {"output.bias": ("F8_E4M3", (10,), b"\x7f" * 10)})
    assert "array 'output.bias' must be finite, got nan at index (0,)" in refusal(path, *machine)
