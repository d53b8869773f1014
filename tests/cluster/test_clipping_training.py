"""Training with clipping and with controllers: plain SGD, SGD with clipping, data-parallel SGD, bit for bit."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.errors import ConfigError
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.systems.clipping import Clipping
from emu.training.workbench import Workbench

SMALL = {
    "training.steps": 6,
    "training.batch": 8,
    "data.test_images": 8,
    "training.log_every": 3,
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
}
F = np.float32
#: Rules that clip something in the first steps of mlp.
RULES: dict[str, Any] = {
    "constant": [{"rule": "constant", "high": 0.01, "low": -0.0125}],
    "variance": [{"rule": "variance", "k": 1.0}],
    "momentum": [{"rule": "momentum", "k": 0.5}],
    "parameter_norm": [{"rule": "parameter_norm"}],
    "several": [{"rule": "constant", "high": 0.01}, {"rule": "variance", "k": 2.0}, {"rule": "parameter_norm"}],
}
NO_LIMITS: Any = [{"rule": "constant"}]
CONTROLLERS: Any = {"cluster__exchange": "controllers", "cluster__bits": 32}


def loop(model: str = "mlp", device: str = "float32", backend: str = "auto", **settings: Any) -> Loop:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    recipe = emu.model(model).with_settings(SMALL | named)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), backend))


def advanced(found: Loop, steps: int = 6) -> Loop:
    for _ in range(steps):
        found.advance()
    return found


def trained(steps: int = 6, **settings: Any) -> Loop:
    return advanced(loop(**settings), steps)


def clipping_of(found: Loop) -> Clipping:
    return next(system for system in found.systems if isinstance(system, Clipping))


def weights(found: Loop) -> dict[str, np.ndarray]:
    return {state.name: np.asarray(state.master.array).copy() for state in found.bench.model.states}


def gradients_of(found: Loop, workers: int) -> list[dict[str, np.ndarray]]:
    """The gradients of each worker's part of the next batch, at its own mean loss, with no system in between."""
    images, labels = found.bench.batches.batch(found.steps.done)
    part = len(images) // workers
    held = []
    for worker in range(workers):
        chosen = slice(worker * part, (worker + 1) * part)
        run = found.bench.model.run(found.runner, images[chosen], labels[chosen], backward=True)
        held.append({name: np.asarray(value.array) for name, value in run.gradients.items()})
    return held


# ---- one worker ----


@pytest.mark.parametrize(
    ("device", "settings"),
    [
        ("float32", {}),
        ("fixed16", {}),
        ("dlu16", {}),
        ("fp16-mixed", {"loss_scaling__policy": "backoff"}),
        ("float32", {"cluster__nodes": 1, "cluster__bits": 32}),
        ("fixed16", {"cluster__nodes": 1, **CONTROLLERS}),
    ],
    ids=str,
)
def test_one_worker_without_thresholds_is_plain_sgd_d1_d3(device: str, settings: Any):
    plain, clipped = trained(device=device, **settings), trained(device=device, clipping__rules=NO_LIMITS, **settings)
    assert clipped.bench.model.sha256() == plain.bench.model.sha256()
    assert clipped.log.registers().sha256() == plain.log.registers().sha256()
    assert clipped.log.metrics()["clipped"] == 0
    alone = trained(device=device, **{key: value for key, value in settings.items() if "cluster" not in key})
    assert clipped.bench.model.sha256() == alone.bench.model.sha256()


@pytest.mark.parametrize("settings", [{}, {"cluster__nodes": 1, **CONTROLLERS}], ids=["alone", "controller"])
def test_one_worker_with_thresholds_is_sgd_with_clipping_d1_d3(settings: Any):
    high, low = F(0.01), F(-0.0125)
    options: Any = {"training__optimiser.momentum": 0.0, "training__schedule.name": "constant"}
    plain = loop(**options)
    clipped = loop(clipping__rules=RULES["constant"], **options, **settings)
    for _ in range(4):
        (gradients,) = gradients_of(plain, 1)
        for state in plain.bench.model.states:
            g = gradients[state.name]
            g = np.where(g > high, high, np.where(g < low, low, g))
            state.master = state.master.with_array(
                np.asarray(state.master.array) - F(plain.steps.rate(plain.steps.done)) * g
            )
        plain.steps.done += 1
        clipped.advance()
        assert {n: a.tobytes() for n, a in weights(clipped).items()} == {
            n: a.tobytes() for n, a in weights(plain).items()
        }
    assert clipped.log.metrics()["clipped"] > 0


def test_momentum_thresholds_come_from_the_optimisers_buffer_d2():
    rules: Any = [{"rule": "momentum", "k": 0.5}]
    found = loop(clipping__rules=rules)
    found.advance()
    assert found.log.metrics()["clipped"] == 0, "the first step has none"
    (gradients,) = gradients_of(found, 1)
    expected = 0
    for layer in ("fc1", "fc2", "output"):
        states = [state for state in found.bench.model.states if state.layer == layer]
        buffer = np.concatenate([np.asarray(s.slots["momentum"].array).ravel() for s in states]).astype(np.float64)
        reach = 0.5 * np.sqrt((buffer**2).mean())
        expected += sum(int((np.abs(gradients[s.name]) > reach).sum()) for s in states)
    found.advance()
    assert found.log.metrics()["clipped"] == expected > 0


# ---- several workers ----


@pytest.mark.parametrize("bits", [1, 32])
@pytest.mark.parametrize("exchange", ["stripes", "controllers"])
def test_workers_without_thresholds_are_data_parallel_sgd_with_the_same_averaging_d3(exchange: str, bits: int):
    options: Any = {"cluster__nodes": 4, "cluster__bits": bits, "cluster__exchange": exchange}
    assert trained(clipping__rules=NO_LIMITS, **options).bench.model.sha256() == trained(**options).bench.model.sha256()


@pytest.mark.parametrize("nodes", [3, 4])
@pytest.mark.parametrize("rules", [NO_LIMITS, RULES["constant"]], ids=["infinite", "finite"])
def test_controllers_average_what_every_worker_has_clipped_in_node_order_d2_d3(nodes: int, rules: Any):
    high, low = (F(rules[0].get(key, limit)) for key, limit in (("high", np.inf), ("low", -np.inf)))
    options: Any = {"training__batch": 12}
    plain = loop(**options)
    found = loop(clipping__rules=rules, cluster__nodes=nodes, cluster__controllers=[1, 2], **CONTROLLERS, **options)
    held = [
        {n: np.where(g > high, high, np.where(g < low, low, g)) for n, g in one.items()}
        for one in gradients_of(plain, nodes)
    ]
    before, rate = weights(plain), F(plain.steps.rate(0))
    found.advance()
    for name, array in weights(found).items():  # the first step of momentum: v = g
        total = held[0][name]
        for one in held[1:]:
            total = total + one[name]
        np.testing.assert_array_equal(array, before[name] - rate * (total / F(nodes)), err_msg=name)


@pytest.mark.parametrize("rule", RULES)
def test_stripes_clip_shares_at_shares_of_thresholds_d2(rule: str):
    """g / K clipped at T / K and added up is what controllers make of g clipped at T: K is a power of two."""
    stripes = trained(clipping__rules=RULES[rule], cluster__nodes=4, cluster__bits=32)
    controllers = trained(clipping__rules=RULES[rule], cluster__nodes=4, **CONTROLLERS)
    assert stripes.bench.model.sha256() == controllers.bench.model.sha256()
    assert stripes.log.metrics()["clipped"] == controllers.log.metrics()["clipped"] > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"cluster__controllers": [0, 1, 2, 3]},
        {"cluster__controllers": [3, 1], "cluster__placement": "least_loaded"},
        {"cluster__nodes": 5, "cluster__workers": [0, 1, 2, 3], "cluster__controllers": [4]},
    ],
    ids=str,
)
def test_wherever_controllers_are_the_bits_are_the_same_d3(settings: Any):
    options: Any = {"clipping__rules": RULES["variance"], **CONTROLLERS, "cluster__nodes": 4}
    one, other = trained(3, **options), trained(3, **(options | settings))
    assert other.bench.model.sha256() == one.bench.model.sha256()
    assert other.log.metrics()["bytes_sent"] > 0


def test_a_nodes_units_each_clip_what_they_have_computed_d2():
    units = trained(3, clipping__rules=RULES["constant"], cluster__nodes=2, cluster__units=2, **CONTROLLERS)
    nodes = trained(3, clipping__rules=RULES["constant"], cluster__nodes=4, **CONTROLLERS)
    assert units.log.metrics()["clipped"] > 0
    assert units.log.metrics()["bytes_sent"] < nodes.log.metrics()["bytes_sent"]
    without = trained(3, cluster__nodes=2, cluster__units=2, **CONTROLLERS)
    assert units.bench.model.sha256() != without.bench.model.sha256()
    first, same = (
        trained(1, clipping__rules=RULES["constant"], **options)
        for options in (
            {"cluster__nodes": 1, "cluster__units": 4, **CONTROLLERS},
            {"cluster__nodes": 1, "cluster__units": 4, "cluster__bits": 32},
        )
    )
    assert first.bench.model.sha256() == same.bench.model.sha256()


def test_bytes_are_gradients_of_the_wire_and_parameters_of_their_format_d3():
    found = trained(3, device="fixed16", cluster__nodes=4, cluster__exchange="controllers")
    up = down = 0
    for state in found.bench.model.states:
        columns, rows = state.master.array.reshape(len(state.master.array), -1).shape if state.part == "weight" else (
            1, state.master.array.size,
        )  # fmt: skip
        up += 3 * columns * (8 + 4 * -(-rows // 32))
        down += 3 * columns * rows * -(-state.master.format.width_bits // 8)
    assert found.log.metrics()["bytes_sent"] == 3 * (up + down)


def test_the_first_steps_of_a_warm_start_send_nothing_to_controllers_c12():
    alone = trained(2, clipping__rules=RULES["variance"])
    warm = trained(2, clipping__rules=RULES["variance"], cluster__nodes=4, cluster__warm_start=2, **CONTROLLERS)
    assert warm.bench.model.sha256() == alone.bench.model.sha256()
    assert warm.log.metrics()["bytes_sent"] == 0
    assert advanced(warm, 1).log.metrics()["bytes_sent"] > 0


# ---- whoever computes, from wherever it goes on ----


ON_DEVICES: dict[str, dict[str, Any]] = {
    "fixed16": {"cluster__nodes": 4, "cluster__exchange": "controllers"},
    "fp16-mixed": {"loss_scaling__policy": "backoff"},
    "dlu16": {"cluster__nodes": 2},
}


@most_are_slow(
    ("device", "rule"),
    product(ON_DEVICES, RULES),
    keep=[("fixed16", "constant"), ("fixed16", "momentum"), ("fp16-mixed", "variance"), ("dlu16", "several")],
)
def test_clipped_runs_end_in_the_same_bits_on_reference_and_numba_d2(device: str, rule: str):
    found = [
        trained(2, device=device, backend=backend, clipping__rules=RULES[rule], **ON_DEVICES[device])
        for backend in ("reference", "numba")
    ]
    assert found[0].bench.model.sha256() == found[1].bench.model.sha256()
    assert found[0].log.metrics()["clipped"] == found[1].log.metrics()["clipped"] > 0


RESUMED: dict[str, dict[str, Any]] = {
    "alone": {},
    "controllers": {"cluster__nodes": 2, "cluster__exchange": "controllers"},
    "scaled": {
        "device": "fp16-mixed", "loss_scaling__policy": "backoff", "loss_scaling__interval": 2,
        "loss_scaling__compensation": ["learning_rate", "clip_threshold"],
    },
}  # fmt: skip


@most_are_slow(
    ("where", "rule"),
    product(RESUMED, RULES),
    keep=[
        ("alone", "constant"), ("alone", "momentum"), ("controllers", "variance"), ("scaled", "parameter_norm"),
        ("scaled", "several"),
    ],
)  # fmt: skip
def test_a_killed_run_goes_on_to_the_same_bits_and_rows_d2(where: str, rule: str, tmp_path: Path):
    options = {"clipping__rules": RULES[rule], "training__log_every": 4, **RESUMED[where]}
    whole, half, again = (loop(**options) for _ in range(3))
    folders = [RunFolder.create(tmp_path / name) for name in ("whole", "half")]
    for found, steps in ((whole, 6), (half, 3)):
        for _ in range(steps):
            found.advance()
            if found.steps.done == 4:
                found.log.end_interval()
    whole.log.end_interval()
    whole.log.write(folders[0])
    half.checkpoint.save(folders[1])
    again.checkpoint.restore(folders[1])
    advanced(again, 1).log.end_interval()
    advanced(again, 2).log.end_interval()
    again.log.write(folders[1])
    assert again.bench.model.sha256() == whole.bench.model.sha256()
    assert again.log.metrics()["clipped"] == whole.log.metrics()["clipped"] > 0
    assert folders[1].read_table("clipping") == folders[0].read_table("clipping")


# ---- with loss scaling ----


@most_are_slow(
    ("rule", "places"),
    product(RULES, [["gradient"], ["learning_rate", "clip_threshold"]]),
    keep=lambda rule, places: rule == "variance" or len(places) == 2,
    ids=str,
)
def test_scaling_the_loss_leaves_what_is_clipped_as_it_is_a7_d2(rule: str, places: Any):
    """In float32, with S a power of two that grows every second step."""
    scaled: Any = {"loss_scaling__policy": "backoff", "loss_scaling__interval": 2, "loss_scaling__compensation": places}
    plain, other = (trained(clipping__rules=RULES[rule], **options) for options in ({}, scaled))
    assert other.bench.model.sha256() == plain.bench.model.sha256()
    assert other.log.metrics()["clipped"] == plain.log.metrics()["clipped"] > 0


@pytest.mark.parametrize("late", [False, True], ids=["at once", "one step late"])
@pytest.mark.parametrize("exchange", ["stripes", "controllers"])
def test_gradients_that_travel_with_their_scale_are_clipped_alike_a7_d2_d3(exchange: str, late: bool):
    """The momentum's S is that of the gradient applied last, which is one step older where exchanges are."""
    options: Any = {"cluster__nodes": 2, "cluster__bits": 2, "cluster__exchange": exchange}
    options |= {"cluster__double_buffering": late, "clipping__rules": RULES["momentum"] + RULES["variance"]}
    scaled: Any = {"loss_scaling__policy": "backoff", "loss_scaling__interval": 2}
    scaled["loss_scaling__compensation"] = ["learning_rate", "clip_threshold"]
    plain, other = trained(**options), trained(**options, **scaled)
    assert other.bench.model.sha256() == plain.bench.model.sha256()
    assert other.log.metrics()["clipped"] == plain.log.metrics()["clipped"] > 0


@pytest.mark.parametrize("settings", [{}, {"cluster__nodes": 2, **CONTROLLERS}], ids=["alone", "controllers"])
def test_a_step_that_is_skipped_leaves_mean_and_variance_as_they_are_d2(settings: Any, monkeypatch: pytest.MonkeyPatch):
    options: Any = {"device": "fp16-mixed", "loss_scaling__policy": "backoff", **settings}
    found = trained(2, clipping__rules=RULES["variance"], **options)
    system = clipping_of(found)
    before, said, sent = {n: a.tobytes() for n, a in system.arrays().items()}, system.to_dict(), found.log.metrics()
    images, labels = found.bench.batches.batch(found.steps.done)
    monkeypatch.setattr(found.bench.batches, "batch", lambda step: (np.full_like(images, np.nan), labels))
    found.advance()
    assert found.log.metrics()["skips"] == 1
    assert {name: array.tobytes() for name, array in system.arrays().items()} == before
    assert system.to_dict() == said
    assert found.log.metrics()["bytes_sent"] == sent["bytes_sent"]


def test_a_step_that_is_repeated_is_clipped_once_at_the_scale_that_fits_d2():
    options: Any = {"device": "fp16-mixed", "clipping__rules": RULES["variance"], "loss_scaling__policy": "fixed"}
    found = trained(1, **options, loss_scaling__scale=2.0**24, loss_scaling__on_overflow="repeat")
    repeats = found.log.metrics()["repeats"]
    assert repeats > 0
    assert found.log.metrics()["skips"] == 0
    fits = trained(1, **options, loss_scaling__scale=2.0 ** (24 - repeats))
    assert fits.log.metrics()["repeats"] == 0
    assert found.bench.model.sha256() == fits.bench.model.sha256()
    mine, theirs = (clipping_of(one).arrays() for one in (found, fits))
    assert {n: a.tobytes() for n, a in mine.items()} == {n: a.tobytes() for n, a in theirs.items()}


def test_nan_passes_and_is_counted_d2(monkeypatch: pytest.MonkeyPatch):
    found = loop(clipping__rules=RULES["constant"])
    images, labels = found.bench.batches.batch(0)
    monkeypatch.setattr(found.bench.batches, "batch", lambda step: (np.full_like(images, np.nan), labels))
    found.advance()
    passed = {name: int(np.isnan(array).sum()) for name, array in weights(found).items()}
    assert found.log.metrics()["nonfinite_gradients"] == sum(passed.values())
    assert passed["output.weight"] == 160
    assert found.log.metrics()["clipped"] == 0


# ---- what is written down ----


def test_the_table_has_a_row_for_every_tensor_the_last_layer_first_d1(tmp_path: Path):
    run = emu.train(
        emu.model("mlp"), emu.device("fixed16"), out=tmp_path / "run", report=False,
        overrides=SMALL | {"clipping.rules": RULES["constant"], "cluster.nodes": 4},
    )  # fmt: skip
    table = RunFolder.open(run.path).read_table("clipping")
    assert table["step"] == [3] * 6 + [6] * 6
    tensors = list(zip(table["layer"], table["part"], strict=True))
    assert tensors[:6] == [(layer, part) for layer in ("output", "fc2", "fc1") for part in ("weight", "bias")]
    sizes = [16 * 10, 10, 24 * 16, 16, 784 * 24, 24]
    assert list(table["elements"][:6]) == [4 * 3 * size for size in sizes]
    assert sum(table["clipped"]) == run.info["metrics"]["clipped"] > 0
    assert set(table["nonfinite"]) == {0}
    assert {(F(high), F(low)) for high, low in zip(table["high"], table["low"], strict=True)} == {(F(0.01), F(-0.0125))}


def test_runs_without_clipping_have_neither_table_nor_key_in_their_recipe(tmp_path: Path):
    run = emu.train(emu.model("mlp"), emu.device("fixed16"), out=tmp_path / "run", overrides=SMALL, report=False)
    assert not (run.path / "clipping.parquet").exists()
    assert "clipping" not in run.info["recipe"]
    assert (run.info["metrics"]["clipped"], run.info["metrics"]["nonfinite_gradients"]) == (0, 0)


def test_when_and_where_layers_are_clipped_changes_no_bit_d1_d4():
    options: Any = {"clipping__rules": RULES["variance"], "cluster__nodes": 2, **CONTROLLERS}
    found = {
        trained(2, **options, clipping__trigger=trigger, clipping__on=on).bench.model.sha256()
        for trigger, on in (("next", "separate"), ("own", "worker"), ("after_all", "separate"), ("serial", "worker"))
    }
    assert len(found) == 1


# ---- what does not fit ----


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"clipping__rules": [{"rule": "constant", "high": 1.0, "low": 1.0}]},
            "`high` of .clipping. must be above `low` in float32, got 1 and 1; raise `high` or lower `low`",
        ),
        ({"clipping__rules": []}, "`rules` must be an array of at least 1 items"),
        (
            {"clipping__rules": [{"rule": "variant"}]},
            "`rule` must be one of constant, variance, momentum, parameter_norm",
        ),
        ({"clipping__rules": [{"rule": "variance", "k": 0.0}]}, "`k` must be above 0.0, got 0.0"),
        ({"clipping__rules": [{"rule": "variance", "decay": 1.0}]}, "`decay` must be below 1.0, got 1.0"),
        (
            {"clipping__rules": NO_LIMITS, "clipping__trigger": "last"},
            "`trigger` must be one of next, own, after_all, serial",
        ),
        ({"clipping__rules": NO_LIMITS, "clipping__on": "gpu"}, "`on` must be one of worker, separate"),
        (
            {"clipping__rules": RULES["momentum"], "training__optimiser": {"name": "sgd", "learning_rate": 0.1}},
            "rule 'momentum' of .clipping. must be used with .* has momentum of every parameter, got 'sgd'; choose",
        ),
        (
            {
                "clipping__rules": NO_LIMITS,
                "loss_scaling__policy": "backoff",
                "loss_scaling__compensation": ["learning_rate"],
            },
            "`compensation` of .loss_scaling. must have 'clip_threshold' if `clipping` is set",
        ),
        (
            {"clipping__rules": NO_LIMITS, "precision__gradient": {"format": "fix64f40"}},
            "every tensor that .clipping. reads must fit float64, got fix64f40 of role `gradient` of 'fc1.weight'",
        ),
        (
            {"cluster__nodes": 2, "cluster__exchange": "controllers", "cluster__controllers": [2]},
            r"`controllers` must be nodes 0\.\.1, got 2; name nodes of the cluster, or raise `nodes`",
        ),
        (
            {"cluster__nodes": 2, "cluster__exchange": "controllers", "cluster__rule": "adagrad"},
            "`rule` of .cluster. must be left out if `exchange` is 'controllers', got 'adagrad'; remove it, or",
        ),
        (
            {"cluster__nodes": 2, "cluster__controllers": [1]},
            r"`controllers` of .cluster. must be left out if `exchange` is 'stripes', got \(1,\)",
        ),
        (
            {"cluster__nodes": 3, "cluster__workers": [0, 3]},
            r"`workers` must be nodes 0\.\.2, got 3; name nodes of the cluster, or raise `nodes`",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_the_first_step(settings: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        loop(**settings)
