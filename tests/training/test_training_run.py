"""What a run leaves behind: run.json, hashes anyone can compute again, tables whose counts add up."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import hashes, train

import emu
from emu import training
from emu.datapath import FLAG_NAMES
from emu.errors import ConfigError
from emu.hardware import Device, load_device
from emu.training.cost import cost_of
from emu.training.data.batches import Batches
from emu.training.folders.run_folder import CHECKPOINT, RunFolder
from emu.training.folders.tables import OPTIONAL_TABLES, TABLES
from emu.training.loop import Loop
from emu.training.loop.log import Log
from emu.training.loop.summary import formats_of
from emu.training.workbench import Workbench

STEPS, LOG_EVERY = 23, 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    out = tmp_path_factory.mktemp("runs") / "mlp"
    return train(out, device="fixed8", training__steps=STEPS, training__log_every=LOG_EVERY, training__batch=16)


def table(run: training.Run, name: str) -> list[dict[str, Any]]:
    columns = RunFolder(run.path).read_table(name)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_the_folder_holds_these_files_and_no_table_of_a_system_that_did_not_run(run: training.Run):
    tables = set(TABLES) - (OPTIONAL_TABLES - {"exponents"})
    assert {path.name for path in run.path.iterdir()} == {
        "run.json",
        CHECKPOINT,
        *(f"{name}.parquet" for name in tables),
    }


def test_run_json_is_what_the_run_returned(run: training.Run):
    assert json.loads((run.path / "run.json").read_text()) == json.loads(json.dumps(run.info))
    assert run.test_accuracy == run.info["metrics"]["test_accuracy"]


def test_run_json_holds_what_is_promised(run: training.Run):
    info = run.info
    assert {
        "recipe",
        "device",
        "seed",
        "backend",
        "versions",
        "weights_sha256",
        "registers_sha256",
        "metrics",
        "steps",
        "seconds",
    } <= set(info)
    assert info["status"] == "finished"
    assert info["steps"] == STEPS
    assert info["backend"] == "numba"
    assert info["simulated_seconds"] is None
    assert info["seed"] == info["recipe"]["training"]["seed"] == 1
    assert info["seconds"] > 0
    assert info["started"] <= info["ended"]
    assert info["layers"] == ["input", "flatten1", "fc1", "relu1", "fc2", "relu2", "output", "loss"]
    assert info["parameters"] == 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
    assert set(info["versions"]) >= {"python", "numpy", "numba", "emu"}
    assert info["cost"] == cost_of("mlp", "fixed8", batch=16).described()
    zeros = {name: info["metrics"][name] for name in ("redos", "repeats", "skips", "bytes_sent", "count_bytes")}
    assert zeros == dict.fromkeys(zeros, 0)


def test_recipe_and_device_in_run_json_make_the_same_run_however_often_it_is_logged(run: training.Run, tmp_path: Path):
    recipe = training.Recipe.model_validate(run.info["recipe"]).with_settings({"training.log_every": 9})
    device = emu.hardware.Device.model_validate(run.info["device"])
    assert hashes(training.train(recipe, device, out=tmp_path / "again")) == hashes(run)


def test_names_train_as_what_they_name(tmp_path: Path):
    settings = {"training.steps": 1, "training.batch": 8, "data.test_images": 20}
    recipe, device = training.load_recipe("mlp"), emu.device("fixed8")
    objects = training.train(recipe, device, out=tmp_path / "a", overrides=settings)
    names = training.train("mlp", "fixed8", out=tmp_path / "b", overrides=settings)
    assert hashes(names) == hashes(objects)


def test_a_name_that_is_not_known_names_the_nearest_and_writes_nothing(tmp_path: Path):
    with pytest.raises(emu.ConfigError, match=r"got 'lent'; did you mean 'lenet'\?$"):
        emu.train("lent", "fixed16", out=tmp_path / "a")
    with pytest.raises(emu.ConfigError, match=r"got 'fixed61'; did you mean 'fixed16'\?$"):
        emu.train("lenet", "fixed61", out=tmp_path / "a")
    with pytest.raises(emu.ConfigError, match=r"^a device must be the name .* emu.device\(\) returns, got 16; shipped"):
        emu.train("lenet", 16, out=tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("role", "where"), [("weight", "'fc1', matmul that gives its activation"), ("error", "'output', m")]
)
def test_formats_that_a_matrix_unit_does_not_take_are_refused_and_nothing_is_written(
    tmp_path: Path, role: str, where: str
):
    settings = {f"precision.{role}.format": "fix16f8"}
    with pytest.raises(
        emu.FormatError, match=rf"must be floats where `order` is blocks, got fix16f8: .* \(layer {where}"
    ):
        emu.train("mlp", "dgx-h200-8x", out=tmp_path / "a", overrides=settings)
    assert not list(tmp_path.iterdir())


def test_formats_name_every_role_that_is_written(run: training.Run):
    written = {(row["layer"], row["role"]) for row in table(run, "flags")}
    named = {(row["layer"], row["role"]) for row in run.info["formats"]}
    assert written <= named
    assert {row["layer"] for row in run.info["formats"]} == set(run.info["layers"]) - {"flatten1"}
    assert ("fc1", "error") not in named  # nobody asks for the gradient of the images
    selections = {("relu1", "activation"), ("relu2", "activation"), ("relu1", "error"), ("relu2", "error")}
    assert named - written == selections  # written only where the layer before has another format
    fc1 = {row["role"]: row["format"] for row in run.info["formats"] if row["layer"] == "fc1"}
    device = run.info["device"]["precision"]
    assert fc1 == {role: device[role]["format"] for role in fc1 if role != "momentum"} | {
        "momentum": device["master"]["format"]
    }


@pytest.mark.parametrize(("settings", "has_momentum"), [
    ({"name": "sgd"}, False), ({"name": "sgd", "weight_decay": 0.01}, True), ({"name": "momentum"}, True),
])  # fmt: skip
def test_formats_name_momentum_only_where_it_is_written(settings: dict[str, Any], has_momentum: bool):
    optimiser = {"training.optimiser": {"learning_rate": 0.1, **settings}}
    recipe = training.load_recipe("mlp").with_settings(optimiser)
    bench = Loop(Workbench.of(recipe, emu.device("fixed16"), "reference")).bench
    roles = {row["role"] for row in formats_of(bench.model, bench.update.optimiser, 0)}
    assert {"update", "master"} <= roles
    assert ("momentum" in roles) == has_momentum


def test_the_hash_of_the_weights_can_be_computed_from_the_checkpoint(run: training.Run):
    """Over parameter names, formats, shapes and codes, in order."""
    arrays, state = RunFolder(run.path).load_checkpoint()
    assert state["step"] == STEPS
    names = [f"{layer}.{part}" for layer in ("fc1", "fc2", "output") for part in ("weight", "bias")]
    assert set(arrays) == {f"{kind}/{name}" for kind in ("parameters", "momentum") for name in names}
    digest, fmt = hashlib.sha256(), emu.parse("fix24f20")
    for name in names:
        array = arrays[f"parameters/{name}"]
        raws = np.round(array.astype(np.float64) * 2**20).astype(np.int64)
        assert (raws / 2**20 == array).all()
        digest.update(f"{name} {fmt} {array.shape}".encode() + (raws % 2**24).astype("<u4").tobytes())
    assert run.weights_sha256 == digest.hexdigest()


def test_metrics_have_a_row_for_every_logged_point(run: training.Run):
    rows = table(run, "metrics")
    assert [row["step"] for row in rows] == [*range(LOG_EVERY, STEPS, LOG_EVERY), STEPS]
    per_epoch = (1797 - 30) // 16
    assert [row["epoch"] for row in rows] == [row["step"] / per_epoch for row in rows]
    measured = [row["step"] for row in rows if row["test_accuracy"] is not None]
    assert measured == [8, 16, STEPS]
    assert measured == [row["step"] for row in rows if row["test_loss"] is not None]
    last = run.info["metrics"]
    assert all(rows[-1][name] == last[name] for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"))
    assert all(0 <= row[name] <= 1 for row in rows for name in ("overflow_rate", "underflow_rate", "train_accuracy"))


def test_registers_and_flags_of_every_interval_count_the_same_elements(run: training.Run):
    totals: dict[tuple, dict[str, int]] = {}
    for row in table(run, "registers"):
        counts = totals.setdefault((row["step"], row["layer"], row["role"]), {})
        assert (row["exponent"] is None) == (row["kind"] not in ("positive", "negative"))
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["count"]
    flags = {(row["step"], row["layer"], row["role"]): row for row in table(run, "flags")}
    assert set(flags) == set(totals)
    for key, counts in totals.items():
        places = sum(count for kind, count in counts.items() if kind != "total")
        assert places == counts["total"] == flags[key]["elements"]
        assert all(0 <= flags[key][name] <= counts["total"] for name in FLAG_NAMES)


def test_intervals_add_up_to_the_rates_of_the_run(run: training.Run):
    flags, metrics = table(run, "flags"), table(run, "metrics")
    for rate, flag in (("overflow_rate", "overflow"), ("underflow_rate", "underflow")):
        assert run.info["metrics"][rate] == sum(row[flag] for row in flags) / sum(row["elements"] for row in flags)
        for point in metrics:
            rows = [row for row in flags if row["step"] == point["step"]]
            assert point[rate] == sum(row[flag] for row in rows) / sum(row["elements"] for row in rows)


def test_what_is_written_in_an_interval_is_known(run: training.Run):
    """Two steps of batch 16: each weight is copied and updated twice, activations and errors written 2 * 16 times."""
    elements = {(row["layer"], row["role"]): row["elements"] for row in table(run, "flags") if row["step"] == LOG_EVERY}
    n = 2 * 16
    assert elements["fc2", "weight"] == 2 * 128 * 64
    assert elements["fc2", "update"] == elements["fc2", "master"] == elements["fc2", "momentum"] == 2 * (128 * 64 + 64)
    assert elements["fc2", "activation"] == n * 64
    assert elements["input", "activation"] == n * 784
    # what flows back into relu1 is written by fc2; a bias gradient is a sum beside the weights'
    assert elements["fc2", "error"] == n * 128
    assert elements["fc2", "gradient"] == 2 * (128 * 64 + 64)
    assert ("fc1", "error") not in elements  # nobody asks for the gradient of the images


def test_the_profile_adds_up_to_the_steps(run: training.Run):
    rows = table(run, "profile")
    assert sum(row["seconds"] for row in rows) <= run.info["seconds"]
    assert all(row["seconds"] >= row["first_seconds"] >= 0 and row["calls"] > 0 for row in rows)
    steps = {row["step"]: row["calls"] for row in rows if row["operation"] == "host"}
    assert steps == {row["step"]: LOG_EVERY for row in table(run, "metrics")} | {STEPS: 1}
    assert all((row["layer"] is None) == (row["role"] is None) == (row["operation"] == "host") for row in rows)


def test_seconds_that_no_step_took_went_into_batches_tests_noise_and_files_up_to_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As the report says of the difference between `seconds` and the profile."""

    def slow(owner: type, name: str, seconds: float) -> None:
        function = getattr(owner, name)

        def slowly(*arguments: Any, **options: Any) -> Any:
            time.sleep(seconds)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, slowly)

    slow(Batches, "batch", 0.02)  # of 5 steps, and of the noise at step 4
    slow(Log, "evaluate", 0.3)  # at step 4, and after the last one
    slow(RunFolder, "save_checkpoint", 0.02)  # after steps 1 to 4, and after the last one
    began = time.perf_counter()
    run = train(tmp_path / "slow", training__steps=5, training__log_every=1)
    took, whole = time.perf_counter() - began, run.info["seconds"]
    steps = sum(row["seconds"] for row in table(run, "profile"))
    assert whole - steps >= 6 * 0.02 + 0.3 + 4 * 0.02 - 0.001  # `seconds` is rounded
    assert took - whole >= 0.02 + 0.3 + 0.02


def test_the_profile_counts_the_work_of_every_layer_and_names_every_path(run: training.Run):
    """fc2 is 128 x 64, a batch 16: a product forward, one for the error, one for the gradient, a sum for the bias."""
    rows = [row for row in table(run, "profile") if row["layer"] == "fc2" and row["multiply_adds"]]
    done: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        counts = done.setdefault((row["role"], row["operation"]), [0, 0, 0])
        for i, name in enumerate(("calls", "elements", "multiply_adds")):
            counts[i] += row[name]
    assert done == {
        ("activation", "matmul"): [STEPS, STEPS * 16 * 64, STEPS * 16 * 64 * 128],
        ("error", "matmul"): [STEPS, STEPS * 16 * 128, STEPS * 16 * 64 * 128],
        ("gradient", "matmul"): [STEPS, STEPS * 128 * 64, STEPS * 16 * 64 * 128],
        ("gradient", "sum"): [STEPS, STEPS * 64, STEPS * 16 * 64],
    }
    assert {row["path"] for row in rows} <= {"integer_dot", "float32_blas", "float64_blas"}
    assert all("exact in" in row["proof"] and row["fallback"] is None for row in rows)


def test_noise_is_measured_at_every_fourth_logged_point_and_at_the_end(run: training.Run):
    rows = table(run, "snr")
    assert sorted({row["step"] for row in rows}) == [8, 16, STEPS]
    tensors = [{(row["layer"], row["role"]) for row in rows if row["step"] == step} for step in (8, 16, STEPS)]
    assert tensors[0] == tensors[1] == tensors[2]
    assert len(rows) == 3 * len(tensors[0])


def test_a_recipe_lays_its_precision_over_the_device(tmp_path: Path):
    run = train(tmp_path / "a", training__steps=1, precision__activation__format="fp16")
    assert {row["format"] for row in run.info["formats"] if row["role"] == "activation"} == {"fp16"}
    assert run.info["device"]["precision"]["activation"]["format"] == "fp16"


def test_masters_that_carry_raws_train_and_are_the_same_on_every_backend(tmp_path: Path):
    wide = {"precision__master__format": "fix64f50", "precision__update__format": "fix60f50"}
    runs = [
        train(tmp_path / name, backend=name, training__steps=2, data__test_images=10, **wide)
        for name in ("reference", "numba")
    ]
    assert hashes(runs[0]) == hashes(runs[1])
    arrays, _ = RunFolder(runs[0].path).load_checkpoint()
    assert arrays["parameters/fc1.weight"].dtype == np.int64
    resumed = training.resume(runs[0].path)
    assert hashes(resumed) == hashes(runs[0])
    assert training.evaluate(runs[0].path).weights_sha256 == runs[0].weights_sha256


def test_nothing_is_written_when_a_run_cannot_start(tmp_path: Path):
    for out, overrides in (("a", {"training__batch": 10**6}), ("b", {"data__source": str(tmp_path / "nowhere")})):
        with pytest.raises(emu.ConfigError):
            train(tmp_path / out, **overrides)
        assert not (tmp_path / out).exists()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes.txt").write_text("mine")
    with pytest.raises(emu.ConfigError, match="the folder of a new run must be empty"):
        train(tmp_path / "c")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("roles", "key", "layer"),
    [
        ({"loss": "fix60f30"}, "loss", "loss"),
        ({"activation": "fix60f30"}, "activation", "a1"),
        ({"activation": "fix16f8", "a2": "fix60f30"}, "activation", "t"),
    ],
)
@pytest.mark.parametrize("loss", ["mse", "softmax_cross_entropy", "euclidean"])
def test_a_function_of_values_beyond_float64_is_refused_before_anything_is_written(
    tmp_path: Path, roles: dict[str, str], key: str, layer: str, loss: str
):
    layers = [
        {"type": "flatten", "name": "f"},
        {"type": "linear", "name": "a1", "out_features": 4},
        {"type": "tanh", "name": "t"},
        {"type": "linear", "name": "a2", "out_features": 10},
    ]
    precision: dict[str, Any] = {role: {"format": fmt} for role, fmt in roles.items() if role != "a2"}
    if "a2" in roles:
        precision["layers"] = [{"match": "t", "activation": {"format": roles["a2"]}}]
    overrides = {"network__layers": layers, "network__loss": loss, "precision": precision}
    with pytest.raises(emu.ConfigError) as caught:
        train(tmp_path / "a", **overrides)
    assert str(caught.value).startswith(f"`precision.{key}.format` of layer '{layer}' must fit float64 exactly ")
    assert str(caught.value).endswith("; choose a narrower format")
    assert not (tmp_path / "a").exists()


def test_a_finished_run_is_given_to_what_writes_its_report(tmp_path: Path):
    given: list[tuple[Path, str]] = []

    def write(folder: Path) -> None:
        given.append((folder, RunFolder(folder).read_json()["status"]))

    settings = {"training.steps": 2, "training.batch": 2, "data.test_images": 2}
    out = tmp_path / "a"
    training.train("mlp", "float32", out=out, overrides=settings, write_report=write)
    training.resume(out, write_report=write)
    assert given == [(out, "finished")] * 2
    assert not (out / "report.html").exists(), "training has no report of its own"


def test_run_json_says_running_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = Loop.advance

    def watched(self: Loop) -> tuple[float, float]:
        info = RunFolder(tmp_path / "a").read_json()
        assert (info["status"], info["ended"]) == ("running", None)
        return real(self)

    monkeypatch.setattr(Loop, "advance", watched)
    assert train(tmp_path / "a", training__steps=2).info["status"] == "finished"


@pytest.mark.parametrize(
    ("recipe", "device", "kind"), [(16, emu.device("fp16"), "model"), (emu.model("mlp"), None, "device")]
)
def test_what_is_neither_a_recipe_nor_a_name_is_refused(tmp_path: Path, recipe: Any, device: Any, kind: str):
    text = (
        rf"^a {kind} must be the name of a shipped {kind}, the path of a .toml file or what emu\.{kind}\(\) returns, "
    )
    with pytest.raises(emu.ConfigError, match=text):
        emu.train(recipe, device, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cost_table_that_lacks_an_operation_is_refused_before_anything_is_written(tmp_path: Path):
    data = load_device("fixed8").model_dump(mode="json") | {"cost": {"memory": "nowhere"}}
    with pytest.raises(ConfigError, match="must name a level of"):
        training.train("mlp", Device.model_validate(data), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())
