"""Sizes of mini-batches by measurement: trials from one state and over the same examples, which leave no trace."""

from __future__ import annotations

import json
import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.cluster import kept_size, trial_sizes
from emu.cluster.batch_sizes import BatchSizeTable
from emu.errors import ConfigError
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.tables import TABLES
from emu.training.loop import Loop
from emu.training.loop.steps import Steps
from emu.training.loop.summary import described
from emu.training.systems import batch_sizes
from emu.training.workbench import Workbench

SMALL: dict[str, Any] = {
    "training.steps": 16,
    "training.batch": 8,
    "data.test_images": 8,
    "training.log_every": 4,
    "network.layers.fc1.out_features": 24,
    "network.layers.fc2.out_features": 16,
}
#: Two searches on two nodes, before steps 4 and 8, over the examples of 4 mini-batches each.
SEARCH: dict[str, Any] = {"cluster__nodes": 2, "cluster__search": {"every": 4, "trial": 4, "multiple": 4}}
#: Whatever is tried is kept: sizes double.
GROWS: dict[str, Any] = {"cluster__nodes": 2, "cluster__search": {**SEARCH["cluster__search"], "tolerance": 1e9}}


def loop(device: str = "float32", backend: str = "auto", **settings: Any) -> Loop:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    small = {key: value for key, value in SMALL.items() if key != "training.steps" or "training.epochs" not in named}
    recipe = emu.model("mlp").with_settings(small | named)
    return Loop(Workbench.of(recipe, recipe.machine(emu.device(device)), backend))


def advanced(found: Loop, steps: int = 12) -> Loop:
    """Run steps with their log points."""
    while found.steps.done < steps:
        found.advance()
        if found.steps.done % found.log.every == 0:
            found.log.end_interval()
    return found


def trained(steps: int = 12, **settings: Any) -> Loop:
    return advanced(loop(**settings), steps)


def sizes_of(found: Loop, steps: int = 12) -> list[int]:
    return [found.bench.batches.size_at(step) for step in range(steps)]


def bits(found: Loop) -> dict[str, Any]:
    """Everything that a checkpoint holds, times left out."""
    arrays, state = found.checkpoint.state()
    held = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
    return held | {"state": json.dumps({name: value for name, value in state.items() if name != "seconds"})}


def tables_of(found: Loop, folder: Path) -> dict[str, str]:
    """Every table but that of the search, without times."""
    folder.mkdir()
    run = RunFolder(folder)
    found.log.write(run)
    tables = {name: run.read_table(name) for name in TABLES if name != "search"}
    for name in ("seconds", "first_seconds"):
        tables["profile"].pop(name)
    return {name: repr(columns) for name, columns in tables.items()}


# ---- the rules ----


@pytest.mark.parametrize(
    ("last", "sizes"),
    [
        (64, (64, 128)),  # 32 45 64 91 128: 0.5, 0.7, 1, 1.4 and 2 times 64
        (128, (64, 128, 192, 256)),  # 64 91 128 181 256
        (192, (128, 192, 256, 384)),  # 96 136 192 272 384
        (256, (128, 192, 256, 384, 512)),  # 128 181 256 362 512
        (320, (192, 256, 320, 448, 640)),  # 160 226 320 453 640
        (2880, (1472, 2048, 2880, 4096, 5760)),  # 1440 2036 2880 4073 5760; 1440 lies between two multiples
        (16384, (8192, 11584, 16384, 23168, 32768)),  # 8192 11585.2 16384 23170.5 32768
    ],
)
def test_trial_sizes_are_steps_of_the_root_of_two_in_multiples_of_64_c8(last: int, sizes: tuple[int, ...]):
    assert trial_sizes(last) == sizes


@given(blocks=st.integers(1, 10**9), multiple=st.integers(1, 4096))
def test_trial_sizes_are_what_decimals_of_60_digits_say_c8(blocks: int, multiple: int):
    last = blocks * multiple
    with localcontext() as context:
        context.prec = 60
        exact = [
            last * Decimal(2).sqrt() ** power if power % 2 else last * Decimal(2) ** (power // 2)
            for power in range(-2, 3)
        ]
        rounded = {int((size / multiple).quantize(Decimal(1), ROUND_HALF_UP)) * multiple for size in exact}
    sizes = trial_sizes(last, multiple=multiple)
    assert sizes == tuple(sorted(rounded))
    assert last / 2 <= sizes[0] <= last <= sizes[-1] == 2 * last
    assert all(size % multiple == 0 for size in sizes)


def test_trial_sizes_stay_within_their_bounds_c8():
    assert trial_sizes(256, smallest=192, largest=384) == (192, 256, 384)
    assert trial_sizes(256, smallest=256, largest=256) == (256,)
    table = BatchSizeTable(every=1)
    assert table.sizes(256, batch=256, examples=400) == (256, 384), "at least the recipe's size, at most all examples"
    assert BatchSizeTable(every=1, smallest=64).sizes(256, batch=256, examples=400) == (128, 192, 256, 384)


@pytest.mark.parametrize(
    ("criteria", "kept"),
    [
        ({64: 1.0, 128: 1.01, 256: 1.02}, 128),  # 1% above the base is within 1%
        ({64: 1.0, 128: math.nextafter(1.01, 2)}, 64),
        ({64: 1.0, 128: 1.5, 256: 1.005}, 256),  # the largest, whatever lies between
        ({64: 1.0, 128: 0.5}, 128),
        ({64: 1.0, 128: float("nan"), 256: float("inf")}, 64),
        ({64: float("nan"), 128: 1.0}, 512),  # nothing to compare with: the size stays
        ({64: float("inf"), 128: 1.0}, 512),
        ({64: 0.0, 128: 0.0}, 128),
    ],
)
def test_the_largest_size_within_one_percent_of_the_base_is_kept_c8(criteria: dict[int, float], kept: int):
    assert kept_size(criteria, last=512) == kept


def test_a_search_is_due_by_mini_batches_and_by_epochs_c8():
    by_step, by_epoch = BatchSizeTable(every=4), BatchSizeTable(every_epochs=2)
    assert [step for step in range(13) if by_step.is_due(step, 0, step)] == [4, 8, 12]
    places = [(epoch, offset) for epoch in range(6) for offset in (0, 8)]
    assert [place for place in places if by_epoch.is_due(9, *place)] == [(2, 0), (4, 0)]


# ---- mini-batches ----


def test_mini_batches_of_any_size_take_the_examples_of_an_epoch_in_their_order_c8():
    found = loop(training__batch=100)
    batches = found.bench.batches
    assert (batches.examples, batches.per_epoch) == (1789, 17)
    found.bench.batches.data.train_labels[:] = np.arange(1789)  # now a batch's labels are its images' places
    epoch = np.concatenate([batches.batch(step)[1] for step in range(17)])
    batches.resize(3, 200)
    batches.resize(5, 600)
    places = [(0, 0), (0, 100), (0, 200), (0, 300), (0, 500), (0, 700), (1, 0), (1, 600), (2, 0)]
    assert [batches.position(step) for step in range(9)] == places
    mixed = np.concatenate([batches.batch(step)[1] for step in range(6)])
    np.testing.assert_array_equal(mixed, epoch[:1300])
    assert [len(batches.batch(step)[1]) for step in range(7)] == [100] * 3 + [200] * 2 + [600] * 2
    assert batches.steps(3) == 6 + 2 + 2, "6 of the first epoch, and 1789 // 600 of each of the others"
    assert [batches.progress(step) for step in (0, 3, 4, 5, 6, 7)] == [0, 3, 5, 7, 17, 23]
    assert batches.outputs(range(2, 6)) == 100 + 200 + 200 + 600


def test_mini_batches_go_on_from_their_checkpoint_c8():
    found, again = (loop(training__batch=100).bench.batches for _ in range(2))
    found.resize(3, 200)
    again.load(json.loads(json.dumps(found.to_dict())))
    for step in (0, 3, 20, 40):
        np.testing.assert_array_equal(again.batch(step)[0], found.batch(step)[0])


def test_a_run_in_epochs_takes_fewer_steps_of_larger_mini_batches_c8():
    settings: Any = {
        "training__epochs": 2,
        "training__batch": 64,
        "training__schedule": {"name": "step", "milestones": [0.5]},
    }
    search = {"every": 5, "trial": 2, "multiple": 64, "tolerance": 1e9, "rate": "fixed", "largest": 128}
    plain = loop(**settings)
    found = loop(**settings, cluster__nodes=2, cluster__search=search)
    while not found.steps.are_over:
        found.advance()
    n = found.bench.batches.examples
    assert plain.steps.planned == 2 * (n // 64)
    assert found.steps.done == 5 + (n - 5 * 64) // 128 + n // 128
    assert found.bench.batches.position(found.steps.done) == (2, 0), "two epochs, and no more"
    in_first = 5 + (n - 5 * 64) // 128
    rates = [found.steps.rate(step) for step in range(found.steps.done)]
    assert rates == [0.05] * in_first + [0.05 * 0.1] * (found.steps.done - in_first), (
        "half of the run is its first epoch"
    )


# ---- trials ----

KINDS = {
    "fixed8": {"device": "fixed8"},  # stochastic rounding
    "fp16-mixed": {
        "device": "fp16-mixed",
        "loss_scaling": {"policy": "backoff", "start": 2.0**24, "interval": 2, "on_overflow": "repeat"},
    },
    "dlu16": {
        "device": "dlu16",
        "dynamic_point": {"schedule": "float_pretraining", "pretraining_steps": 2, "interval": 3},
    },
    "double buffering": {"cluster__double_buffering": True, "cluster__bits": 2},
    "windows": {"cluster__codec": {"smoothing": "window", "left_out": 0.1, "lag": 1}, "cluster__rule": "momentum"},
    "controllers": {"cluster__exchange": "controllers", "cluster__controllers": [1]},
    "clipping": {"clipping": {"rules": [{"rule": "variance", "k": 1.0}]}},
    "clock": {"device": "k20x-8x"},
    "adam": {"training__optimiser": {"name": "adam", "learning_rate": 0.003}, "training__clip_norm": 0.5},
}


@most_are_slow("kind", KINDS, keep=["fixed8", "fp16-mixed", "clipping", "clock"])
def test_a_run_whose_every_trial_is_rejected_is_one_without_a_search_c8(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tried: list[dict[int, float]] = []

    def rejected(criteria: dict[int, float], last: int, *, tolerance: float) -> int:
        tried.append(dict(criteria))
        return last

    monkeypatch.setattr(batch_sizes, "kept_size", rejected)
    plain = trained(**KINDS[kind], cluster__nodes=2)
    searched = trained(**KINDS[kind], **SEARCH)
    assert [list(criteria) for criteria in tried] == [[8, 12, 16]] * 2, "there must have been something to reject"
    assert len({criterion for criteria in tried for criterion in criteria.values()}) == 6
    assert searched.bench.model.sha256() == plain.bench.model.sha256()
    assert searched.log.registers().sha256() == plain.log.registers().sha256()
    assert searched.log.metrics() == plain.log.metrics()
    assert bits(searched) == bits(plain)
    assert tables_of(searched, tmp_path / "searched") == tables_of(plain, tmp_path / "plain")


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_leaves_the_state_as_it_is_c8(kind: str):
    found = trained(5, **KINDS[kind], cluster__nodes=2)
    before, written = bits(found), {name: len(rows["step"]) for name, rows in found.log.history._columns.items()}
    batches = [found.bench.batches.batch(step) for step in (5, 6, 7)]
    losses = found.trial(batches)
    assert bits(found) == before
    assert {name: len(rows["step"]) for name, rows in found.log.history._columns.items()} == written
    assert found.trial(batches) == losses
    assert [found.advance()[0] for _ in range(3)] == losses, "a trial is what training would have done"


def test_a_trial_that_fails_leaves_the_state_as_it_is_c8():
    found = trained(5, cluster__nodes=2)
    before = bits(found)
    inputs, labels = found.bench.batches.batch(5)
    with pytest.raises(emu.EmuError):
        found.trial([(inputs, labels), (inputs[:, :, :5], labels)])
    assert bits(found) == before


def at_rate(found: Loop, factor: float) -> None:
    """Let a loop take its next steps at so many times the rate of its schedule."""
    found.steps.rate = lambda step: Steps.rate(found.steps, step) * factor  # type: ignore[method-assign]


def test_criteria_are_mean_losses_of_training_on_the_same_examples_c8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By hand: from a checkpoint of step 4, 32 examples in parts of 8, 12 and 16, at rates in proportion."""
    plain = trained(4, cluster__nodes=2)
    folder = RunFolder.create(tmp_path / "run")
    plain.checkpoint.save(folder)
    inputs, labels = (
        np.concatenate(part) for part in zip(*(plain.bench.batches.batch(step) for step in range(4, 8)), strict=True)
    )
    expected: dict[int, float] = {}
    for size in (8, 12, 16):
        again = loop(cluster__nodes=2)
        again.checkpoint.restore(folder)
        total = 0.0
        for start in range(0, 32, size):
            part = slice(start, start + size)
            examples = inputs[part], labels[part]
            monkeypatch.setattr(again.bench.batches, "batch", lambda step, examples=examples: examples)
            at_rate(again, len(examples[1]) / 8)
            total += again.advance()[0] * len(examples[1])
        expected[size] = total / 32
    searched = trained(5, **SEARCH)
    rows = searched.log.history._columns["search"]
    assert rows["size"] == [8, 12, 16]
    assert rows["step"] == [5] * 3
    for size, criterion in zip(rows["size"], rows["criterion"], strict=True):
        assert abs(criterion - expected[size]) <= 4 * math.ulp(expected[size])  # 4 additions here, one rounding there


def test_sizes_grow_by_half_octaves_and_fall_again_c8(monkeypatch: pytest.MonkeyPatch):
    wanted = iter((12, 16, 8))
    monkeypatch.setattr(batch_sizes, "kept_size", lambda criteria, last, tolerance: next(wanted))
    found = trained(13, **SEARCH)
    assert sizes_of(found, 13) == [8] * 4 + [12] * 4 + [16] * 4 + [8]
    rows = found.log.history._columns["search"]
    assert rows["size"] == [8, 12, 16, 8, 12, 16, 24, 8, 12, 16, 24, 32]
    assert [size for size, kept in zip(rows["size"], rows["kept"], strict=True) if kept] == [12, 16, 8]
    assert found.log.metrics()["bytes_sent"] > 0


def test_one_percent_decides_in_a_run_c8():
    found = trained(12, **SEARCH)
    rows = found.log.history._columns["search"]
    at = {step: {} for step in rows["step"]}
    for step, size, criterion in zip(rows["step"], rows["size"], rows["criterion"], strict=True):
        at[step][size] = criterion
    kept = [size for size, is_kept in zip(rows["size"], rows["kept"], strict=True) if is_kept]
    within = [max(s for s, c in criteria.items() if c <= criteria[min(criteria)] * 1.01) for criteria in at.values()]
    assert kept == within
    assert sizes_of(found)[4::4] == kept


def test_no_size_is_tried_in_a_warm_start_or_too_near_to_the_end_c8():
    warm = trained(12, **SEARCH | {"cluster__warm_start": 6})
    assert sorted(set(warm.log.history._columns["search"]["step"])) == [9]
    short = trained(12, **SEARCH | {"training__steps": 12})
    assert sorted(set(short.log.history._columns["search"]["step"])) == [5, 9]
    shorter = trained(11, **SEARCH | {"training__steps": 11})
    assert sorted(set(shorter.log.history._columns["search"]["step"])) == [5], (
        "3 steps are left before step 8, a trial has 4"
    )


def test_the_rate_follows_the_size_or_stays_c8():
    settings: Any = {"training__schedule": {"name": "constant"}}
    per_sample = trained(8, **settings, **GROWS)
    fixed = trained(8, **settings, **GROWS | {"cluster__search": {**GROWS["cluster__search"], "rate": "fixed"}})
    assert sizes_of(per_sample, 8) == sizes_of(fixed, 8) == [8] * 4 + [16] * 4
    assert per_sample.log.history._columns["metrics"]["learning_rate"] == [0.05, 0.1]
    assert fixed.log.history._columns["metrics"]["learning_rate"] == [0.05, 0.05]
    assert per_sample.bench.model.sha256() != fixed.bench.model.sha256()
    assert (
        trained(4, **settings, **GROWS).bench.model.sha256()
        == trained(4, **settings, cluster__nodes=2).bench.model.sha256()
    )


def test_train_accuracy_is_a_share_of_all_outputs_of_the_interval_c8():
    found = trained(4, **GROWS, training__log_every=6)
    correct = sum(found.log.correct)
    for _ in range(2):
        found.advance()
    correct = sum(found.log.correct)
    found.log.end_interval()
    assert found.log.history.last("metrics", "train_accuracy") == correct / (4 * 8 + 2 * 16)


@cache
def grown(kind: str) -> Loop:
    return trained(**KINDS[kind], **GROWS)


@most_are_slow(
    ("kind", "at"),
    product(["double buffering", "fp16-mixed", "clock"], [3, 4, 5, 8, 10]),
    keep=[("double buffering", 3), ("fp16-mixed", 4), ("clock", 10)],
)
def test_a_run_resumed_while_sizes_grow_ends_in_the_same_bits_c8(kind: str, at: int, tmp_path: Path):
    whole = grown(kind)
    assert sizes_of(whole) == [8] * 4 + [16] * 4 + [32] * 4
    folder = RunFolder.create(tmp_path / "run")
    trained(at, **KINDS[kind], **GROWS).checkpoint.save(folder)
    again = loop(**KINDS[kind], **GROWS)
    again.checkpoint.restore(folder)
    assert bits(advanced(again)) == bits(whole)
    assert again.log.history._columns["search"] == whole.log.history._columns["search"]


@pytest.mark.parametrize("kind", ["fp16-mixed", pytest.param("dlu16", marks=pytest.mark.slow)])
def test_sizes_and_bits_are_those_of_reference_and_numba_c8(kind: str):
    found = [trained(5, backend=backend, **KINDS[kind], **GROWS) for backend in ("reference", "numba")]
    assert bits(found[0]) == bits(found[1])
    assert found[0].log.history._columns["search"] == found[1].log.history._columns["search"]
    assert found[0].bench.batches.size == 16


def test_steps_of_larger_mini_batches_take_the_simulated_time_of_their_size_c8():
    settings: Any = {"device": "k20x-8x", "cluster__nodes": 2, "training__log_every": 16}
    durations: dict[int, int] = {}
    for size in (8, 16):
        fixed = trained(3, **settings, training__batch=size)
        durations[size] = _time_of(fixed) - _time_of(trained(2, **settings, training__batch=size))
    grown = [_time_of(trained(steps, **settings | GROWS)) for steps in (3, 4, 5, 7, 8)]
    assert durations[16] > durations[8] > 0
    assert grown[1] - grown[0] == durations[8]
    assert grown[3] - grown[2] == 2 * durations[16], "two steps, and nothing of trials"


def _time_of(found: Loop) -> int:
    return found.checkpoint.state()[1]["simulation"]["total_ps"]


def test_run_json_says_what_size_was_reached_c8():
    assert described(trained(5, **GROWS), "running")["batch_size"] == 16
    assert "batch_size" not in described(loop(cluster__nodes=2), "running")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"cluster__nodes": 3, "training__batch": 12},
            "`multiple` of [cluster.search] must be a multiple of the 3 parts of a mini-batch, got 4; set it to 6",
        ),
        (
            {"cluster__units": 4},
            "`multiple` of [cluster.search] must be a multiple of the 8 parts of a mini-batch, got 4; set it to 8",
        ),
        (
            {"training__batch": 10},
            "`training.batch` must be a multiple of 4, `multiple` of [cluster.search], got 10; change one of them",
        ),
        (
            {"smallest": 12},
            "`smallest` of [cluster.search] must be at most `training.batch`, 8, got 12; lower it",
        ),
        (
            {"largest": 4},
            "`largest` of [cluster.search] must be `training.batch`..examples to train, 8..1789, got 4; change it, or "
            "leave it out",
        ),
        (
            {"largest": 4000},
            "`largest` of [cluster.search] must be `training.batch`..examples to train, 8..1789, got 4000; change it, "
            "or leave it out",
        ),
        (
            {"every": None},
            "[cluster.search] must have `every`, `every_epochs` or `parallelism = true`, got none of them; set one to "
            "say when sizes are tried",
        ),
        ({"trial": 1}, "`trial` must be at least 2, got 1"),
        ({"tolerance": -0.01}, "`tolerance` must be at least 0.0, got -0.01"),
        ({"rate": "linear"}, "`rate` must be one of per_sample, fixed, got 'linear'"),
    ],
    ids=str,
)
def test_a_search_that_does_not_fit_is_refused_before_the_first_step_c8(settings: dict[str, Any], text: str):
    table = SEARCH["cluster__search"] | {name: value for name, value in settings.items() if "__" not in name}
    table = {name: value for name, value in table.items() if value is not None}
    others = {name: value for name, value in settings.items() if "__" in name}
    with pytest.raises(ConfigError) as caught:
        loop(**SEARCH | {"cluster__search": table} | others)
    assert text in str(caught.value)
