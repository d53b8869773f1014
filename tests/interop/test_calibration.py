"""Binary points from data: as many fraction bits as leave a share of the numbers outside, and their device file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu.interop.calibration import calibrate, write_calibrated
from emu.interop.evaluation import evaluate_graph
from tests.command_line import Run
from tests.interop.onnx_files import NETWORKS, node, saved

DIGITS, DATA = NETWORKS / "digits.onnx", NETWORKS / "digits.npz"


def words(rate: float = 0.0, device: str = "fixed8") -> dict[tuple[str, str], Any]:
    return {(p.layer, p.role): p for p in calibrate(DIGITS, device, DATA, overflow_rate=rate)}


@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.03])
def test_a_point_is_the_finest_that_leaves_so_few_numbers_outside(rate: float):
    results = emu.onnx.load(DIGITS).results(np.load(DATA)["x"])
    points = words(rate)
    for name in ("c1", "dw", "c3", "fc", "add2"):
        numbers = np.asarray(results[name].array, np.float64)
        point = points[name, "activation"]
        fmt = emu.parse(point.format)

        def outside(integer_bits: int, numbers: np.ndarray = numbers) -> float:
            # the two's complement: -2**n is inside, 2**n is not
            return float(((numbers >= 2.0**integer_bits) | (numbers < -(2.0**integer_bits))).mean())

        integer_bits = fmt.width_bits - 1 - fmt.frac_bits
        assert outside(integer_bits) == point.overflow <= rate, name
        assert outside(integer_bits - 1) > rate, name


def test_weights_get_points_of_their_own():
    step = emu.onnx.load(DIGITS).wired().steps[0]
    largest = float(np.abs(step.values["weight"]).max())
    point = words()["c1", "weight"]
    assert 2.0**point.largest_exponent <= largest < 2.0 ** (point.largest_exponent + 1)
    assert (point.format, point.before) == ("fix8f5", "fix8f6")


def test_selections_get_the_point_of_what_they_read():
    points = words()
    for name, read in (("relu1", "c1"), ("clip1", "dw"), ("max_pool1", "mul2")):
        assert points[name, "activation"].format == points[read, "activation"].format


def test_eight_calibrated_bits_come_within_half_a_point_of_float32(tmp_path: Path):
    path = write_calibrated(tmp_path / "mine.toml", "fixed8", tuple(words(1e-3).values()), "Points from digits.")
    device = emu.device(path)
    assert (device.name, str(device.precision.stage("c1", "weight").format)) == ("mine", "fix8f5")
    result = evaluate_graph(DIGITS, path, DATA, only=[])
    assert result.accuracy is not None
    assert result.float_accuracy is not None
    assert abs(result.accuracy - result.float_accuracy) <= 0.005
    before = evaluate_graph(DIGITS, "fixed8", DATA, only=[])
    assert before.accuracy is not None
    assert before.accuracy < 0.75


def test_a_tensor_of_zeros_keeps_its_point(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("Mul", ["x", "zero"])], {"zero": np.zeros(3, np.float32)})
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)))
    points = {(p.layer, p.role): p for p in calibrate(path, "fixed8", tmp_path / "a.npz")}
    assert (points["mul1", "activation"].format, points["mul1", "activation"].largest_exponent) == ("fix8f3", None)
    assert points["input", "activation"].format == "fix8f6"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"device": "fp16"},
            "a device that is calibrated must have fixed-point words, got none for activation,",
        ),
        ({"overflow_rate": 1.0}, "`overflow_rate` must be a share from 0 to below 1, got 1.0"),
        ({"overflow_rate": -0.1}, "`overflow_rate` must be a share from 0 to below 1, got -0.1"),
        ({"device": "dlu8"}, "must say every binary point"),
    ],
)
def test_what_cannot_be_calibrated(options: dict[str, Any], text: str):
    with pytest.raises(emu.ConfigError) as refused:
        calibrate(DIGITS, options.pop("device", "fixed8"), DATA, **options)
    assert text in str(refused.value)


@pytest.mark.parametrize("name", ["mine.txt", "my device.toml", "none/mine.toml"])
def test_a_device_file_has_a_name_and_a_place(tmp_path: Path, name: str):
    with pytest.raises(emu.ConfigError, match=r"must be written to a .toml file|must be a file that can be written"):
        write_calibrated(tmp_path / name, "fixed8", calibrate(DIGITS, "fixed8", DATA), "Nothing.")
    assert list(tmp_path.iterdir()) == []


def test_the_command_calibrates_then_evaluates(emu_command: Run, tmp_path: Path):
    out = tmp_path / "mine.toml"
    arguments = ("evaluate", str(DIGITS), "--device", "fixed8", "--data", str(DATA), "--only", "none")
    code, text, _ = emu_command(*arguments, "--calibrate", str(out), "--overflow-rate", "0.001", width=120)
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["c1", "weight", "fix8f5", "fix8f6", "<", "2**2", "0%"] in lines
    assert "on mine" in text
    assert "# Binary points from digits.npz through digits.onnx in float32, overflow rate 0.001." in out.read_text()
    assert emu.device(out).name == "mine"
    code, _, err = emu_command(*arguments, "--overflow-rate", "0.1")
    assert code == 2
    assert "--overflow-rate must be given with --calibrate, got it alone" in err
