"""Training on several nodes: the same bits whoever computes, and from wherever a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.cluster import Exchange, stripes_of
from emu.errors import ConfigError
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.systems.contributions import columns_of
from emu.training.systems.data_parallel import DataParallel
from emu.training.workbench import Workbench
from emu.training.workbench.update import Update

SMALL = {"training.steps": 6, "training.batch": 8, "data.test_images": 8, "training.log_every": 3}
#: Widths of mlp.
NARROW = {"network.layers.fc1.out_features": 24, "network.layers.fc2.out_features": 16}


def loop(model: str = "mlp", device: str = "float32", backend: str = "auto", **settings: Any) -> Loop:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    recipe = emu.model(model).with_settings(SMALL | (NARROW if model == "mlp" else {}) | named)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), backend))


def trained(steps: int = 6, **settings: Any) -> Loop:
    found = loop(**settings)
    for _ in range(steps):
        found.advance()
    return found


def cluster_of(found: Loop) -> DataParallel:
    return next(system for system in found.systems if isinstance(system, DataParallel))


def weights(found: Loop) -> dict[str, np.ndarray]:
    return {state.name: np.asarray(state.master.array).copy() for state in found.bench.model.states}


@pytest.mark.parametrize("device", ["float32", "fixed16"])
def test_one_node_at_32_bits_is_training_without_a_cluster(device: str):
    alone = trained(device=device)
    clustered = trained(device=device, cluster__nodes=1, cluster__bits=32)
    assert clustered.bench.model.sha256() == alone.bench.model.sha256()


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_32_bits_add_up_the_gradients_of_parts_in_node_order_c1_c5(nodes: int):
    """The update gets sum over nodes of gradients of the part's mean loss divided by K, added in float32."""
    clustered, alone = loop(cluster__nodes=nodes, cluster__bits=32), loop()
    images, labels = alone.bench.batches.batch(0)
    part = len(images) // nodes
    total: dict[str, np.ndarray] = {}
    for node in range(nodes):
        chosen = slice(node * part, (node + 1) * part)
        found = alone.bench.model.run(alone.runner, images[chosen], labels[chosen], backward=True, scale=1 / nodes)
        for name, gradient in found.gradients.items():
            total[name] = np.asarray(gradient.array) if node == 0 else total[name] + np.asarray(gradient.array)
    before = weights(clustered)
    rate = clustered.steps.rate(0)
    optimiser = clustered.bench.recipe.training.optimiser
    assert optimiser.name == "momentum"
    clustered.advance()
    after = weights(clustered)
    for name, gradient in total.items():  # the first step of momentum: v = g
        np.testing.assert_array_equal(after[name], before[name] - np.float32(rate) * gradient, err_msg=name)


@most_are_slow(
    ("model", "device", "settings"),
    [
        ("mlp", "float32", {"cluster__bits": 1}),
        ("mlp", "fixed16", {"cluster__bits": 2, "cluster__owner_bits": 4}),
        ("mlp", "fp16-mixed", {"loss_scaling__policy": "backoff", "cluster__double_buffering": True}),
        ("mlp", "dlu16", {"dynamic_point__schedule": "float_pretraining"}),
        ("mlp", "dlu16", {"cluster__units": 2}),
        ("mlp", "dlu16", {"cluster__points": "own"}),
        ("mlp", "fp16", {"cluster__model_parallel": 2}),
    ],
    keep=["float32", "fixed16", "fp16-mixed", "dlu16-joint"],
    ids=["float32", "fixed16", "fp16-mixed", "dlu16-float", "dlu16-joint", "dlu16-own", "fp16-striped"],
)
def test_four_nodes_end_in_the_same_bits_on_reference_and_numba(model: str, device: str, settings: Any):
    found = [
        trained(3, model=model, device=device, backend=backend, cluster__nodes=4, **settings).bench.model.sha256()
        for backend in ("reference", "numba")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"cluster__rule": "momentum"},
        {"cluster__rule": "adagrad"},
        {"cluster__double_buffering": True},
        {"cluster__warm_start": 2},
        {"cluster__codec.smoothing": "window", "cluster__codec.left_out": 0.1},
        {"cluster__owners": [1]},
        {"cluster__codec.steps": 5},
        {"cluster__bits": 10, "cluster__codec.range": [-0.01, 0.01]},
        {"cluster__codec": {"threshold": "previous_mean", "threshold_lag": 2, "residual_lag": 2}},
        {"cluster__quantise_own": False},
        {"cluster__lines": "inputs"},
        # killed when gradients were sent, and no controller had answered yet
        {"cluster__exchange": "controllers", "cluster__double_buffering": True, "cluster__warm_start": 2},
    ],
    ids=str,
)
def test_a_killed_run_goes_on_to_the_same_bits_c1(settings: Any, tmp_path: Path):
    options = {"cluster__nodes": 2, **settings}
    whole = trained(**options)
    half = trained(3, **options)
    folder = RunFolder.create(tmp_path / "run")
    half.checkpoint.save(folder)
    again = loop(**options)
    again.checkpoint.restore(folder)
    for _ in range(3):
        again.advance()
    assert again.bench.model.sha256() == whole.bench.model.sha256()
    assert again.log.metrics()["bytes_sent"] == whole.log.metrics()["bytes_sent"] > 0


def test_double_buffering_applies_every_gradient_one_step_late_c7():
    settings: Any = {"training__schedule.name": "constant", "cluster__nodes": 2}
    late, found = loop(cluster__double_buffering=True, **settings), loop(**settings)
    before = weights(late)
    late.advance()
    found.advance()
    for name, array in weights(late).items():
        np.testing.assert_array_equal(array, before[name])
    late.advance()  # the first gradient, which both have found at the same weights
    for name, array in weights(late).items():
        np.testing.assert_array_equal(array, weights(found)[name])


@pytest.mark.parametrize("bits", [1, 4])
def test_what_is_applied_and_held_back_and_in_flight_is_the_sum_of_true_gradients_c1_c7(
    bits: int, monkeypatch: pytest.MonkeyPatch
):
    """In float64 to 1e-12 of the largest sum, after every step; gradients are e11m52, so that nothing else rounds."""
    exact = {"precision__gradient": {"format": "e11m52"}, "cluster__owner_bits": bits}
    late = loop(cluster__nodes=3, training__batch=6, cluster__bits=bits, cluster__double_buffering=True, **exact)
    columns = {state.name: columns_of(state) for state in late.bench.model.states}
    true, applied = ({name: np.zeros(one.shape) for name, one in columns.items()} for _ in range(2))
    exchanges: list[Exchange] = []
    exchange, apply = Exchange.exchange, Update.apply

    def exchanged(self: Exchange, gradients: Any, *rest: Any) -> Any:
        exchanges.append(self)
        for name, total in true.items():
            total += sum(gradients[node][name].astype(np.float64) for node in range(3))
        return exchange(self, gradients, *rest)

    def applies(self: Update, states: Any, gradients: Any, *rest: Any) -> None:
        for state in states:
            applied[state.name] += columns_of(state, gradients[state.name].array)
        apply(self, states, gradients, *rest)

    monkeypatch.setattr(Exchange, "exchange", exchanged)
    monkeypatch.setattr(Update, "apply", applies)
    for step in range(6):
        late.advance()
        flying = {name.removeprefix("in_flight/"): array for name, array in cluster_of(late).arrays().items()}
        held = exchanges[0].residuals()
        largest = max(np.abs(total).max() for total in true.values())
        for name, total in true.items():
            assert flying[name].dtype == held[name].dtype == np.float64
            assert flying[name].any()
            assert np.abs(applied[name] + held[name] + flying[name] - total).max() <= 1e-12 * largest
            assert applied[name].any() == (step > 0)


def test_the_first_steps_of_a_warm_start_are_those_of_one_node_c12():
    alone, warm = trained(3), trained(3, cluster__nodes=4, cluster__warm_start=3)
    assert warm.bench.model.sha256() == alone.bench.model.sha256()
    assert warm.log.metrics()["bytes_sent"] == 0
    alone.advance()
    warm.advance()
    assert warm.bench.model.sha256() != alone.bench.model.sha256()
    assert warm.log.metrics()["bytes_sent"] > 0


def test_bytes_sent_are_those_of_the_wire_format_c4():
    found = trained(3, cluster__nodes=4)
    once = 0
    for array in weights(found).values():
        if array.ndim > 1:
            columns, rows = array.reshape(len(array), -1).shape
            once += columns * (8 + 4 * -(-rows // 32))
        else:  # divided among the nodes; a part has levels of its own
            once += sum(8 + 4 * -(-part.width // 32) for part in stripes_of(array.size, 4) if part.width)
    assert found.log.metrics()["bytes_sent"] == 3 * 2 * 3 * once


def test_a_step_that_is_given_up_sends_nothing_and_leaves_residuals_as_they_are(monkeypatch: pytest.MonkeyPatch):
    found = trained(1, device="fp16-mixed", loss_scaling__policy="backoff", cluster__nodes=2)
    system = cluster_of(found)
    before = {name: array.copy() for name, array in system.arrays().items()}
    sent, master = system.metrics(), weights(found)
    images, labels = found.bench.batches.batch(found.steps.done)
    monkeypatch.setattr(found.bench.batches, "batch", lambda step: (np.full_like(images, np.nan), labels))
    found.advance()
    assert found.log.metrics()["skips"] == 1
    assert system.metrics() == sent
    assert all(array.tobytes() == before[name].tobytes() for name, array in system.arrays().items())
    assert all(array.tobytes() == master[name].tobytes() for name, array in weights(found).items())


def test_a_gradient_in_flight_is_applied_behind_a_step_that_is_given_up_c7(monkeypatch: pytest.MonkeyPatch):
    found = trained(
        1, device="fp16-mixed", loss_scaling__policy="backoff", cluster__nodes=2, cluster__double_buffering=True
    )
    before = weights(found)
    images, labels = found.bench.batches.batch(found.steps.done)
    monkeypatch.setattr(found.bench.batches, "batch", lambda step: (np.full_like(images, np.nan), labels))
    found.advance()
    assert found.log.metrics()["skips"] == 1
    assert any(array.tobytes() != before[name].tobytes() for name, array in weights(found).items())
    assert all(np.isfinite(array).all() for array in weights(found).values())
    assert not any(name.startswith("in_flight") for name in cluster_of(found).arrays())


@pytest.mark.parametrize("rule", ["none", "momentum", "adagrad"])
@pytest.mark.parametrize("late", [False, True])
def test_gradients_that_travel_with_s_give_the_bits_of_those_without_it(rule: str, late: bool):
    """S is a power of two: it changes no rounding of float32 as long as nothing over- or underflows (A7, Together)."""
    options: Any = {
        "device": "float32", "cluster__nodes": 2, "cluster__rule": rule, "cluster__double_buffering": late,
        "cluster__codec.threshold": "previous_mean", "cluster__codec.smoothing": "exponential",
        "loss_scaling__policy": "backoff", "loss_scaling__start": 64.0, "loss_scaling__interval": 2,
    }  # fmt: skip
    plain = trained(6, **options)
    carried = trained(6, **options, loss_scaling__compensation=["learning_rate"])
    assert plain.log.scale == carried.log.scale > 64, "S has changed on the way"
    for name, array in weights(plain).items():
        np.testing.assert_array_equal(weights(carried)[name], array, err_msg=name)
    held = {
        name: array
        for name, array in cluster_of(carried).arrays().items()
        if name.startswith("worker/") and name.endswith("/residual")
    }
    other = cluster_of(plain).arrays()
    last = float(cluster_of(carried).arrays()["scale"])
    assert last > 1
    for name, array in held.items():
        np.testing.assert_array_equal(array / np.float32(last), other[name])


def test_a_killed_run_whose_gradients_travel_with_s_goes_on_to_the_same_bits(tmp_path: Path):
    options: Any = {
        "device": "fp16-mixed", "cluster__nodes": 2, "cluster__double_buffering": True, "cluster__rule": "momentum",
        "loss_scaling__policy": "backoff", "loss_scaling__interval": 2,
        "loss_scaling__compensation": ["learning_rate"],
    }  # fmt: skip
    whole = trained(6, **options)
    folder = RunFolder.create(tmp_path / "run")
    trained(3, **options).checkpoint.save(folder)
    again = loop(**options)
    again.checkpoint.restore(folder)
    for _ in range(3):
        again.advance()
    assert again.bench.model.sha256() == whole.bench.model.sha256()


def test_one_bit_without_the_feedback_of_errors_learns_less():
    settings: Any = {"training__steps": 30, "training__batch": 32, "cluster__nodes": 2}
    fed_back, forgetful = trained(30, **settings), trained(30, **settings, cluster__error_feedback=False)
    assert np.mean(fed_back.log.losses[-5:]) < np.mean(forgetful.log.losses[-5:])
    kept = [array for name, array in cluster_of(forgetful).arrays().items() if name.endswith("residual")]
    assert kept
    assert not any(array.any() for array in kept)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cluster__nodes": 3}, "`training.batch` must be a multiple of the 3 nodes of .cluster., got 8"),
        ({"cluster__nodes": 0}, "cluster.nodes"),
        ({"cluster__nodes": 2, "cluster__bits": 0}, r"`bits` must be 1\.\.16, or 32 for gradients as they are, got 0"),
        (
            {"cluster__nodes": 2, "cluster__bits": 17},
            r"`bits` must be 1\.\.16, or 32 for gradients as they are, got 17",
        ),
        (
            {"cluster__nodes": 2, "cluster__bits": 33},
            r"`bits` must be 1\.\.16, or 32 for gradients as they are, got 33",
        ),
        ({"cluster__nodes": 2, "cluster__owners": [2]}, r"`owners` must be nodes 0\.\.1, got 2"),
        (
            {"cluster__nodes": 2, "cluster__node": 1},
            r"`node` is not a key of .cluster. in --set cluster.node=1; did you mean 'nodes'",
        ),
        ({"training__batch": 256, "cluster__nodes": 256}, "for each of the 256 owners, got 24 in the widest tensor"),
        (
            {"cluster__nodes": 2, "cluster__units": 3},
            "must be a multiple of the 2 nodes of 3 units each of .cluster., got 8",
        ),
        ({"cluster__nodes": 2, "cluster__units": 0}, "cluster.units"),
        ({"cluster__nodes": 2, "cluster__model_parallel": 0}, "cluster.model_parallel"),
        ({"cluster__nodes": 2, "cluster__points": "shared"}, "cluster.points"),
        (
            {"cluster__nodes": 2, "cluster__owner_bits": 4, "cluster__codec.threshold": "mean"},
            "`owner_codec` must be given if both `owner_bits` and options of `codec` are",
        ),
        (
            {"cluster__nodes": 2, "cluster__error_feedback": False, "cluster__codec.residual_lag": 2},
            "`codec.residual_lag` of .cluster. must be left out if `error_feedback` is false, which leaves no "
            "residual, got 2; remove one of the two",
        ),
        (
            {"cluster__nodes": 2, "cluster__exchange": "controllers", "cluster__quantise_own": False},
            "`quantise_own` of .cluster. must be left out if `exchange` is 'controllers', got False; remove it",
        ),
        (
            {"cluster__nodes": 2, "cluster__bits": 4, "cluster__codec.range": [1, 0]},
            r"`range` of a gradient codec must be two numbers, the first below the second, .* got \(1.0, 0.0\)",
        ),
        ({"cluster__nodes": 2, "cluster__bits": 4, "cluster__codec.range": [1]}, "cluster.codec.range"),
        ({"cluster__nodes": 2, "cluster__codec.threshold_lag": 2}, "or choose `threshold` 'previous_mean'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_the_first_step(settings: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        loop(**settings)


def test_a_checkpoint_of_another_number_of_nodes_is_refused(tmp_path: Path):
    folder = RunFolder.create(tmp_path / "run")
    trained(1, cluster__nodes=2).checkpoint.save(folder)
    with pytest.raises(ConfigError, match="a checkpoint of 2 nodes must be resumed on 2, got 4 for "):
        loop(cluster__nodes=4).checkpoint.restore(folder)
