"""docs/concepts/roles.md, "Delayed scaling": scales of operands from the largest magnitudes of earlier steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import emu
from emu import training
from emu.autodiff import Graph
from emu.datapath import Cast
from emu.datapath.cast import DelayedScaling, Magnitudes
from emu.engine.casts import stage_of_cast, write_cast
from emu.engine.description import UnitDescription
from emu.errors import ConfigError, FormatError
from emu.formats import ScaledValue
from emu.hardware import PrecisionTable, load_device
from emu.precision import CounterTable, Policy
from emu.precision.delayed_scales import DelayedScales, OperandKey
from emu.precision.runner import DatapathRunner
from emu.training.folders.run_folder import RunFolder

RANDOM = np.random.default_rng(20261127)
F32 = np.float32
KEY = OperandKey("fc", "activation", "weight")


def alone(value: Any) -> list[Any]:
    """One process trains."""
    return [json.loads(json.dumps(value))]


def by_definition(x: np.ndarray[Any, Any], amax: float) -> tuple[np.ndarray[Any, Any], np.float32]:
    """TransformerEngine's kernel: x * (448 / amax) as e4m3, saturated; the scale is the reciprocal of the factor."""
    factor = F32(448) / F32(amax) if amax else F32(1)
    products = np.clip(x.astype(F32) * factor, -448, 448)
    return products.astype(ml_dtypes.float8_e4m3fn).astype(F32), F32(1) / factor


def cast_by(
    x: np.ndarray[Any, Any], magnitudes: Magnitudes | None, backend: str, fmt: str = "fp8_tensor"
) -> ScaledValue:
    cast = Cast.of(fmt, scaling=DelayedScaling(16, 0))
    unit = UnitDescription.at(stage_of_cast(cast), (0, 0, 0), backend)
    return write_cast(unit, cast, emu.value(x, "fp32"), -1, None, magnitudes)


@pytest.mark.parametrize("amax", [0.0, 1.0, 0.37, 2.5, 900.0, 3e-30])
def test_a_delayed_scale_follows_from_the_given_magnitude_and_elements_beyond_it_saturate(amax: float, backend: str):
    x = RANDOM.normal(size=(7, 50)).astype(F32)
    magnitudes = Magnitudes()
    magnitudes.assumed = amax
    got = cast_by(x, magnitudes, backend)
    elements, scale = by_definition(x, amax)
    assert np.array_equal(got.array, elements)
    assert np.asarray(got.scales[0]).ravel().tolist() == [float(scale)]
    assert magnitudes.noted == float(np.abs(x).max())


def test_without_magnitudes_the_scale_is_that_of_the_tensor_itself(backend: str):
    x = RANDOM.normal(size=(7, 50)).astype(F32)
    assert np.array_equal(np.asarray(cast_by(x, None, backend)), np.asarray(emu.quantize(x, "fp8_tensor")))


def test_nan_is_not_noted_and_an_infinity_is():
    magnitudes = Magnitudes()
    cast_by(F32([[1, -3, np.nan]]), magnitudes, "reference")
    assert magnitudes.noted == 3
    cast_by(F32([[2, 0, 0]]), magnitudes, "reference")
    assert magnitudes.noted == 3, "the largest of several casts"
    cast_by(F32([[-np.inf, 0, 0]]), magnitudes, "reference")
    assert magnitudes.noted == np.inf


@pytest.mark.parametrize("fmt", ["fp8_tensor", "int8_tensor", "block(fp8_e4m3, fp8_e8m0 tensor te_power)"])
def test_special_numbers_leave_a_scale_from_outside_as_it_is(fmt: str):
    magnitudes = Magnitudes()
    got = cast_by(F32([[1, -1000, np.nan, np.inf]]), magnitudes, "reference", fmt)
    assert np.asarray(got.scales[0]).tolist() == [[1]], "nothing is known yet: the scale is 1"
    assert magnitudes.noted == np.inf
    assert np.asarray(got)[0, 3] == got.format.largest, "an infinity saturates"
    assert np.asarray(got)[0, :2].tolist() == [1, -min(1000, got.format.largest)]
    cast_by(F32([[np.nan, np.nan, np.nan, np.nan]]), nothing := Magnitudes(), "reference", fmt)
    assert nothing.noted == 0


def test_a_margin_ends_at_the_largest_number_of_binary32():
    assert moved(DelayedScales(), 3e37, DelayedScaling(2, 8)) == float(np.finfo(np.float32).max)


def test_a_raw_integer_is_noted_as_the_number_that_it_is():
    cast, magnitudes = Cast.of("fp8_tensor", scaling=DelayedScaling(16, 0)), Magnitudes()
    unit = UnitDescription.at(stage_of_cast(cast), (0, 0, 0), "reference")
    write_cast(unit, cast, emu.value(np.array([3 << 40, -(5 << 40)]), "fix64f40"), -1, None, magnitudes)
    assert magnitudes.noted == 5


def moved(scales: DelayedScales, largest: float, scaling: DelayedScaling) -> float:
    """Return what a scale follows from after a step with this magnitude."""
    scales.begin_pass()
    scales.magnitudes(KEY, scaling).note(np.array([largest]))
    scales.end_step(alone)
    return scales.magnitudes(KEY, scaling).assumed


def test_the_scale_follows_from_the_largest_magnitude_of_the_window():
    scales, scaling = DelayedScales(), DelayedScaling(3, 0)
    assert scales.magnitudes(KEY, scaling).assumed == 0
    steps = [(2, 2), (5, 5), (1, 5), (1, 5), (1, 1), (8, 8)]
    assert [moved(scales, largest, scaling) for largest, _ in steps] == [wanted for _, wanted in steps]


@pytest.mark.parametrize(("margin", "wanted"), [(0, 3), (2, 12), (-1, 1.5)])
def test_a_margin_leaves_powers_of_two_of_room(margin: int, wanted: float):
    assert moved(DelayedScales(), 3, DelayedScaling(4, margin)) == wanted


def test_zeros_and_infinities_leave_the_scale_as_it_was():
    scales, scaling = DelayedScales(), DelayedScaling(2, 0)
    assert moved(scales, 0, scaling) == 0
    assert moved(scales, 4, scaling) == 4
    assert moved(scales, np.inf, scaling) == 4
    assert moved(scales, 9, scaling) == 4, "the infinity is in the window still"
    assert moved(scales, 1, scaling) == 9
    assert [moved(scales, 0, scaling) for _ in range(3)] == [1, 1, 1], "a window of zeros says nothing"


def test_a_repeated_pass_counts_alone_and_a_step_without_casts_moves_nothing():
    scales, scaling = DelayedScales(), DelayedScaling(2, 0)
    moved(scales, 2, scaling)
    scales.begin_pass()
    scales.magnitudes(KEY, scaling).note(np.array([np.inf]))
    assert moved(scales, 3, scaling) == 3
    scales.begin_pass()
    scales.end_step(alone)
    assert scales.to_dict() == {"windows": [[*KEY, 2, 0, 3.0, [2.0, 3.0]]]}


def test_processes_that_train_together_take_the_largest_of_all():
    scales, scaling = DelayedScales(), DelayedScaling(2, 1)
    scales.magnitudes(KEY, scaling).note(np.array([2.0]))
    other = OperandKey("other", "error", "error")
    scales.end_step(lambda own: [own, [[*KEY, 2, 1, 7.0], [*other, 4, 0, 1.5]]])
    assert scales.to_dict()["windows"] == [[*KEY, 2, 1, 14.0, [7.0]], [*other, 4, 0, 1.5, [1.5]]]


def test_windows_come_back_from_what_they_were_saved_as():
    scales, scaling = DelayedScales(), DelayedScaling(2, 0)
    for largest in (4, 9, 1):
        moved(scales, largest, scaling)
    copy = DelayedScales()
    copy.load(json.loads(json.dumps(scales.to_dict())))
    assert copy.to_dict() == scales.to_dict()
    assert copy.magnitudes(KEY, scaling).assumed == 9
    assert moved(copy, 2, scaling) == moved(scales, 2, scaling) == 2


STORED: dict[str, Any] = {
    role: {"format": "bf16"} for role in ("weight", "bias", "activation", "error", "gradient", "update", "master")
}
FORWARD = {"activation": "fp8_tensor", "weight": "fp8_tensor"}
MAC = {"preset": "h100", "inputs": "fp8_tensor"}
DELAYED = {"kind": "delayed", "history": 4}


def test_a_product_reads_operands_by_the_scales_of_the_step_before(backend: str):
    precision = PrecisionTable(
        **STORED, mac={"accumulator": "fp32"}, operands={"forward": FORWARD, "mac": MAC, "scaling": DELAYED}
    )
    scales, counters, policy = DelayedScales(), None, Policy(precision)
    runner = DatapathRunner(policy, scales=scales, counters=counters, backend=backend)
    unit = precision.mac_of_casts("fc", "activation")
    before = {"x": 0.0, "w": 0.0}
    for _ in range(3):
        x, w = (emu.value(emu.quantize(RANDOM.normal(0, 3, size=(8, 64)), "bf16"), "bf16") for _ in range(2))
        scales.begin_pass()
        graph = Graph(runner)
        y = graph.apply("linear", graph.variable(x), graph.parameter(w), layer="fc").value
        scales.end_step(alone)
        parts = [by_definition(v.array.T if name == "w" else v.array, before[name]) for name, v in (("x", x), ("w", w))]
        factors = [
            emu.value((elements, np.full((1, 1), scale)), "fp8_tensor", axis=axis)
            for (elements, scale), axis in zip(parts, (-1, -2), strict=True)
        ]
        assert np.array_equal(y.array, emu.matmul(*factors, out_format="bf16", mac=unit, backend="reference"))
        before = {name: max(before[name], float(np.abs(value.array).max())) for name, value in (("x", x), ("w", w))}


def test_numbers_beyond_a_delayed_scale_are_counted_as_clipped():
    precision = PrecisionTable(
        **STORED, mac={"accumulator": "fp32"}, operands={"forward": FORWARD, "mac": MAC, "scaling": DELAYED}
    )
    counters = CounterTable(Policy(precision).register)
    runner = DatapathRunner(Policy(precision), scales=DelayedScales(), counters=counters)
    graph = Graph(runner)
    x = emu.value(F32([[1000, 1, -2000, 2.0**-20]] * 2), "bf16")
    graph.apply("linear", graph.variable(x), graph.parameter(x), layer="fc")
    counts = counters.scales_of("fc", "activation", "weight")
    assert (counts.elements, counts.clipped, counts.clipped_largest, counts.vanished) == (8, 4, 1, 2)
    assert counts.exponents == {0: 1}, "the scale is 1"


@pytest.mark.parametrize(
    ("operands", "text"),
    [
        (
            {"forward": dict.fromkeys(FORWARD, "mxfp8_e4m3"), "scaling": DELAYED},
            "delayed scaling needs one scale for the whole tensor, by the rule te or te_power or symmetric, got "
            "mxfp8_e4m3; write fp8_tensor or block(fp8_e5m2, fp32 tensor te), or scaling = {kind = 'current'}",
        ),
        (
            {"forward": dict.fromkeys(FORWARD, "uint8_affine"), "scaling": DELAYED},
            "by the rule te or te_power or symmetric, got uint8_affine",
        ),
        (
            {"forward": dict.fromkeys(FORWARD, "nvfp4"), "scaling": DELAYED},
            "one scale for the whole tensor, by the rule",
        ),
        (
            {"forward": dict.fromkeys(FORWARD, "block(fp8_e4m3, fp32 tensor deepseek)"), "scaling": DELAYED},
            "got fp8_tensor deepseek",
        ),
        (
            {"forward": FORWARD, "scaling": {"history": 4}},
            "`kind` must be given, got nothing in PrecisionTable(...): operands.scaling",
        ),
        ({"forward": FORWARD, "scaling": {"kind": "delayed", "history": 0}}, "`history` must be at least 1, got 0"),
        ({"forward": FORWARD, "scaling": {"kind": "late"}}, "'late'"),
    ],
)
def test_scalings_that_cannot_be_are_refused(operands: Any, text: str):
    with pytest.raises((ConfigError, FormatError)) as refused:
        PrecisionTable(**STORED, operands=operands)
    assert text in str(refused.value)


def test_layers_have_a_scaling_of_their_own():
    operands = {"forward": FORWARD, "mac": MAC, "scaling": DELAYED}
    layers = [{"match": "a", "operands": {"scaling": {"kind": "current"}}}, {"match": "b", "operands": "stored"}]
    precision = PrecisionTable(**STORED, operands=operands, layers=layers)
    delays = {layer: casts and casts[0].scaling for layer in "abc" if [casts := precision.casts(layer, "forward")]}
    assert delays == {"a": None, "b": None, "c": DelayedScaling(4, 0)}
    assert precision.casts("b", "forward") is None
    assert "fp8_tensor, delayed(4, 0)" in str(precision.casts("c", "forward")[0])


SETTINGS = [
    "training.steps=5", "training.batch=8", "training.log_every=2", "training.checkpoint_every=1",
    "data.test_images=20", 'precision.operands.scaling.kind="delayed"', "precision.operands.scaling.history=2",
]  # fmt: skip


def run_of(folder: Path, backend: str = "numba", **more: Any) -> training.Run:
    recipe = training.load_recipe("mlp", SETTINGS)
    return training.train(recipe, load_device("h100-fp8-delayed"), out=folder, backend=backend, **more)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    return run_of(tmp_path_factory.mktemp("delayed") / "run")


def test_scales_are_evaluated_as_the_run_left_them(run: training.Run, backend: str):
    result = training.evaluate(run.path, backend=backend)
    assert (result.test_loss, result.test_accuracy) == (run.info["metrics"]["test_loss"], run.test_accuracy)
    windows = RunFolder(run.path).load_checkpoint()[1]["delayed_scaling"]["windows"]
    assert len(windows) == 10, "two factors of each product of fc1 and fc2; nothing reads the error of fc1's input"
    assert all(len(steps) == 2 for *_, steps in windows)


def test_other_weights_are_evaluated_with_the_scales_of_their_own_numbers(run: training.Run, tmp_path: Path):
    arrays = RunFolder(run.path).load_checkpoint()[0]
    np.savez(tmp_path / "w.npz", **{name.removeprefix("parameters/"): a for name, a in arrays.items()})
    recipe = training.load_recipe("mlp", SETTINGS[:5])
    current = training.load_recipe("mlp", [*SETTINGS[:5], 'precision.operands.scaling={kind="current"}'])
    results = [training.evaluate(tmp_path / "w.npz", r, load_device("h100-fp8-delayed")) for r in (recipe, current)]
    assert results[0].test_loss == results[1].test_loss
    assert results[0].test_loss != training.evaluate(run.path).test_loss


def test_a_run_with_delayed_scales_ends_in_the_same_bits_on_every_backend(run: training.Run, tmp_path: Path):
    other = run_of(tmp_path / "reference", "reference")
    assert other.weights_sha256 == run.weights_sha256
    assert other.registers_sha256 == run.registers_sha256


def test_a_run_that_was_stopped_goes_on_with_its_scales(run: training.Run, tmp_path: Path):
    class StoppedError(Exception):
        pass

    class UntilThree:
        def start(self, step: int, steps: int) -> None:
            pass

        def update(self, step: int, *measured: float) -> None:
            if step == 4:  # the checkpoint of step 3 is written
                raise StoppedError

        def finish(self) -> None:
            pass

    with pytest.raises(StoppedError):
        run_of(tmp_path / "run", progress=UntilThree())
    assert RunFolder(tmp_path / "run").load_checkpoint()[1]["step"] == 3
    assert training.resume(tmp_path / "run").weights_sha256 == run.weights_sha256
