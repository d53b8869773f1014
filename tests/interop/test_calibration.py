"""Points from data: binary points, scales and zero points that leave a share of the numbers outside; device files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu._paths import find_content
from emu.datapath import Points
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
    path = write_calibrated(tmp_path / "mine.toml", "fixed8", tuple(words(1e-3).values()), "digits.")
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


@pytest.mark.parametrize(("rate", "word", "share"), [(0.0, "fix8f-64", 0.0), (0.2, "fix8f6", 1 / 6)])
def test_numbers_above_every_position_of_a_register_decide_the_point_as_well(
    tmp_path: Path, rate: float, word: str, share: float
):
    path = saved(tmp_path / "a.onnx", [node("Mul", ["x", "two"])], {"two": np.full(3, 2, np.float32)})
    np.savez(tmp_path / "a.npz", x=np.array([[1.0, 1, 1], [1, 1, 2.0**70]]))
    points = {(p.layer, p.role): p for p in calibrate(path, "fixed8", tmp_path / "a.npz", overflow_rate=rate)}
    point = points["input", "activation"]
    assert (point.format, point.overflow, point.largest_exponent) == (word, share, 70)


def point_of_words(folder: Path, word: str, numbers: Any, rate: float = 0.0, layer: str = "input") -> Any:
    """Return the point of a network's input, or of its double or fourfold, with activations that are such words."""
    nodes = [node("Mul", ["x", "two"], ["h"]), node("Mul", ["h", "two"])]
    text = find_content("devices", "fixed8").read_text(encoding="utf-8").replace('"fix8f3"', f'"{word}"')
    device = folder / "words.toml"
    device.write_text(text.replace('name = "fixed8"', 'name = "words"'), encoding="utf-8")
    path = saved(folder / "a.onnx", nodes, {"two": np.full(3, 2, np.float32)})
    np.savez(folder / "a.npz", x=np.array(numbers, np.float32).reshape(-1, 3))
    points = {(p.layer, p.role): p for p in calibrate(path, device, folder / "a.npz", overflow_rate=rate)}
    return points[layer, "activation"]


def test_a_word_of_sign_and_magnitude_gets_a_point_that_holds_a_negative_power_of_two(tmp_path: Path):
    numbers = [1.0, -4.0, 0.5]
    assert point_of_words(tmp_path, "fix8f3", numbers).format == "fix8f5"
    point = point_of_words(tmp_path, "fix8f3 sign-magnitude", numbers)
    fmt = emu.parse(point.format)
    assert (fmt.frac_bits, point.overflow) == (4, 0.0)
    assert fmt.min < -4
    some = point_of_words(tmp_path, "fix8f3 sign-magnitude", numbers, rate=0.4)
    assert (emu.parse(some.format).frac_bits, some.overflow) == (6, 1 / 3)


def test_negative_numbers_lie_outside_an_unsigned_word_and_do_not_decide_its_point(tmp_path: Path):
    for numbers, rate in (([1.0, -100.0, 1.5], 0.0), ([1.0, -100.0, 1.5], 0.4)):
        point = point_of_words(tmp_path, "ufix8f3", numbers, rate)
        assert (point.format, point.overflow) == ("ufix8f7", 1 / 3)


def test_infinities_lie_outside_every_word(tmp_path: Path):
    """The double of 3e38 is infinite in float32, so that the second product reads an infinity."""
    point = point_of_words(tmp_path, "fix8f3", [1.0, 3e38, 1.5, 1.0, 1.0, 1.0], layer="mul2")
    assert (point.format, point.overflow) == ("fix8f4", 1 / 6)


def test_a_narrow_range_of_large_numbers_has_a_scale_with_a_rate_as_well(tmp_path: Path):
    path = saved(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": np.ones((3, 2), np.float32)})
    np.savez(tmp_path / "a.npz", x=np.array([[1e8, 1e8 + 8, 1e8 + 16]], np.float32))
    [point] = calibrate(path, "int8-npu", tmp_path / "a.npz", overflow_rate=0.01)
    assert point.points is not None
    assert point.points.scale == pytest.approx(1e8 / 255, rel=1e-2)


def test_a_product_that_reads_no_finite_number_has_the_scale_of_zeros(tmp_path: Path):
    """The first product overflows in float32, so that the second reads infinities alone, all of them outside."""
    large = np.full((3, 3), 1e30, np.float32)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"])]
    path = saved(tmp_path / "a.onnx", nodes, {"w": large, "v": large})
    np.savez(tmp_path / "a.npz", x=np.full((4, 3), 1e30))
    for rate in (0.0, 0.01):
        _, point = calibrate(path, "int8-npu", tmp_path / "a.npz", overflow_rate=rate)
        assert (point.points, point.overflow, point.largest_exponent) == (Points(1.0, 0), 1.0, None)


def test_the_largest_exponent_of_integers_is_that_of_the_largest_number_seen(tmp_path: Path):
    """Of 300 numbers three may lie outside: the scale is that of the others."""
    path = saved(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": np.ones((3, 2), np.float32)})
    np.savez(tmp_path / "a.npz", x=np.append(np.ones(299), 1000.0).reshape(100, 3))
    [point] = calibrate(path, "int8-npu", tmp_path / "a.npz", overflow_rate=0.02)
    assert point.points is not None
    assert point.points.scale < 0.01
    assert point.largest_exponent == 9


@pytest.mark.parametrize("device", ["int8-npu", "int8-mcu"])
@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.03])
def test_a_scale_and_a_zero_point_cover_what_a_product_reads(rate: float, device: str):
    """At rate 0 they are those that the format's rule chooses for all images at once."""
    network = emu.onnx.load(DIGITS)
    results = network.results(np.load(DATA)["x"])
    points, wired = words(rate, device), network.wired()
    assert [name for name, _ in points] == ["c1", "dw", "pw", "c3", "fc"]
    for step in wired.steps:
        if (step.name, "activation") not in points:
            continue
        point = points[step.name, "activation"]
        numbers = np.asarray(results[step.reads[0]].array, np.float32)
        q = emu.quantize(numbers, point.format)
        assert point.points is not None
        if rate == 0:
            assert (point.points.scale, point.points.zero) == (q.scales[0].item(), q.zero.item())
            continue
        low, high = (
            (end - point.points.zero) * point.points.scale for end in (q.format.element.min, q.format.element.max)
        )
        assert ((numbers < low) | (numbers > high)).mean() <= rate + 1e-3  # ends lie on the edges of 2048 cells
        assert point.points.scale <= q.scales[0].item()


def test_calibrated_integers_are_within_half_a_point_of_float32(tmp_path: Path):
    for rate, device in ((0.0, "int8-npu"), (1e-3, "int8-npu"), (0.0, "int8-mcu")):
        points = calibrate(DIGITS, device, DATA, overflow_rate=rate)
        path = write_calibrated(tmp_path / "mine.toml", device, points, "digits.")
        result = evaluate_graph(DIGITS, path, DATA, only=[])
        assert result.accuracy is not None
        assert result.float_accuracy is not None
        assert abs(result.accuracy - result.float_accuracy) <= 0.005, (rate, device)
        casts = emu.device(path).precision.casts("c1", "forward")
        assert casts is not None
        assert casts[0].points == points[0].points


def test_a_calibrated_operand_is_what_quantize_linear_makes_of_it(tmp_path: Path):
    """One row, so that the scale of its own numbers would be another one."""
    x, w = np.float32([[0.1, 0.5, 2.0]]), np.float32([[1.0, -0.5, 0.25], [0.5, 0.25, 1.0]]).T.copy()
    path = saved(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": w})
    text = Path("devices/int8-npu.toml").read_text()
    table = 'match = "*"\noperands = { forward = { activation = { format = "uint8_affine", scale = 0.25, zero = 3 }, '
    (tmp_path / "mine.toml").write_text(text + f'[[precision.layers]]\n{table}weight = "int8_channel" }} }}\n')
    [y] = emu.onnx.load(path)(x, device=tmp_path / "mine.toml")
    q = np.clip(np.rint(x / np.float32(0.25)), -3, 252)
    scales = np.abs(w).max(0) / np.float32(127)
    assert np.array_equal(y, (q @ np.rint(w / scales)).astype(np.float32) * (np.float32(0.25) * scales))


@pytest.mark.parametrize(
    ("cast", "rule"),
    [
        ('format = "uint8_affine", scale = 0.25', "`zero` must be given with the scale of uint8_affine"),
        ('format = "int8_tensor", scale = 0.25, zero = 0', "`zero` must be left out with the scale of int8_tensor"),
        ('format = "uint8_affine", zero = 0', "`zero` must be given with `scale`, got 0 alone"),
        ('format = "uint8_affine", scale = 0.25, zero = 256', "`zero` must be an element of uint8_affine, 0..255"),
        ('format = "uint8_affine", scale = 0.0, zero = 0', "`scale` must be positive, finite and normal, got 0.0"),
        ('format = "int8_channel", scale = 0.25', "a given scale must be that of a whole tensor, got int8_channel"),
    ],
)
def test_points_that_no_tensor_can_have(tmp_path: Path, cast: str, rule: str):
    text = Path("devices/int8-npu.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('activation = "uint8_affine"', f"activation = {{ {cast} }}"))
    with pytest.raises(emu.EmuError) as refused:
        emu.device(path)
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"device": "fp16"},
            "a device that is calibrated must have fixed-point words or products of integers, got none for activation,",
        ),
        ({"overflow_rate": 1.0}, "`overflow_rate` must be a share from 0 to below 1, got 1.0"),
        ({"overflow_rate": -0.1}, "`overflow_rate` must be a share from 0 to below 1, got -0.1"),
        ({"overflow_rate": "0.1"}, "`overflow_rate` must be a share from 0 to below 1, got '0.1'"),
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
        write_calibrated(tmp_path / name, "fixed8", calibrate(DIGITS, "fixed8", DATA), "nothing.")
    assert list(tmp_path.iterdir()) == []


def test_the_command_calibrates_then_evaluates(emu_command: Run, tmp_path: Path):
    out = tmp_path / "mine.toml"
    arguments = ("evaluate", str(DIGITS), "--device", "fixed8", "--data", str(DATA), "--only", "none")
    code, text, _ = emu_command(*arguments, "--calibrate", str(out), "--overflow-rate", "0.001", width=120)
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["c1", "weight", "fix8f5", "fix8f6", "<", "2**2", "0%"] in lines
    assert "on mine" in text
    assert "# Points from digits.npz through digits.onnx in float32, overflow rate 0.001." in out.read_text()
    assert emu.device(out).name == "mine"
    code, _, err = emu_command(*arguments, "--overflow-rate", "0.1")
    assert code == 2
    assert "--overflow-rate must be given with --calibrate, got it alone" in err
    none = str(tmp_path / "none.npz")
    code, _, err = emu_command(*arguments, "--calibrate", str(out), "--calibration-data", none)
    assert code == 2
    assert f"examples must be in a file or a folder of images, got '{none}', which does not exist" in err


@pytest.mark.parametrize("number", [0.5, 0.0, -2.0, 1e30])
def test_a_product_that_reads_one_number_has_a_scale(tmp_path: Path, number: float):
    """With a rate numbers are counted between their ends, which are one."""
    path = saved(tmp_path / "a.onnx", [node("MatMul", ["x", "w"])], {"w": np.ones((3, 2), np.float32)})
    np.savez(tmp_path / "a.npz", x=np.full((4, 3), number))
    for rate in (0.0, 0.01):
        [point] = calibrate(path, "int8-npu", tmp_path / "a.npz", overflow_rate=rate)
        q = emu.quantize(np.float32([number]), "uint8_affine")
        assert point.points is not None
        assert (point.points.scale, point.points.zero, point.overflow) == (q.scales[0].item(), q.zero.item(), 0.0)
