"""Systems together: every pair of the five and all of them, small, on both backends, stopped, killed and resumed.

A  loss scaling            C  gradients of one bit       E  a sparse first layer
B  dynamic fixed point     D  clipping layer by layer
"""

from __future__ import annotations

import json
import os
import signal
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from small_runs import command, hashes, settings_of

import emu
from emu.autodiff import RowsValue
from emu.errors import ConfigError
from emu.training import Run
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import Loop
from emu.training.workbench import Workbench
from emu.training.workbench.update import Update

#: Few examples of few columns; what is not tried here is as `models/everything.toml` has it.
SMALL: dict[str, Any] = {
    "network.input": [600],
    "data.reach": 4,
    "data.longest": 2,
    "data.stride": 60,
    "training.steps": 8,
    "training.batch": 8,
    "training.log_every": 4,
    "training.checkpoint_every": 2,
}
#: Digits through dense layers, for runs without E.
DENSE: dict[str, Any] = {
    "network": {
        "input": [1, 8, 8],
        "classes": 10,
        "layers": [
            {"type": "flatten"},
            {"type": "linear", "name": "words", "out_features": 12},
            {"type": "relu"},
            {"type": "linear", "name": "next", "out_features": 10},
        ],
    },
    "data": {"source": "digits", "test_images": 20},
}
PAIRS = ["".join(pair) for pair in combinations("ABCDE", 2)]


def setup(systems: str, **more: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return recipe, device and overrides of a run with these systems and no other."""
    changed: dict[str, Any] = dict(SMALL)
    if "E" not in systems:
        changed = {name: value for name, value in SMALL.items() if name.startswith("training.")} | DENSE
    if "A" in systems:
        changed["loss_scaling"] = {"policy": "backoff", "start": 2.0**24}
    else:
        changed["loss_scaling"] = {"policy": "none"}
    changed["cluster"] = {"nodes": 2, "bits": 1, "warm_start": 1} if "C" in systems else None
    changed["clipping"] = {"rules": [{"rule": "variance", "k": 2.0}]} if "D" in systems else None
    if "A" in systems and "B" in systems:  # A sees infinities; words of B saturate
        roles = ("activation", "weight", "bias", "error", "gradient")
        changed["precision.layers"] = [{"match": "next", **{role: {"format": "fp16"} for role in roles}}]
    device = "dlu16" if "B" in systems else "fp16"
    return emu.model("everything"), emu.device(device), changed | more


def train(out: Path, systems: str, backend: str = "numba", **more: Any) -> Run:
    recipe, device, changed = setup(systems, **more)
    return emu.train(recipe, device, out=out, backend=backend, overrides=changed)


def resumed(out: Path, systems: str, at: int) -> Run:
    """Return a run that was stopped after so many steps, and resumed."""
    recipe, device, changed = setup(systems)

    class StoppedError(Exception):
        pass

    class Stop:
        def start(self, done: int, steps: int) -> None: ...
        def finish(self) -> None: ...
        def update(self, step: int, *_: Any) -> None:
            if step == at:
                raise StoppedError

    with pytest.raises(StoppedError):
        emu.train(recipe, device, out=out, backend="numba", overrides=changed, progress=Stop())
    return emu.resume(out)


def used(run: Run) -> str:
    """Return which systems have done something in a run."""
    metrics, tables = run.info["metrics"], {path.stem for path in run.path.glob("*.parquet")}
    found = {
        "A": "loss_scaling" in tables and metrics["repeats"] + metrics["skips"] > 0,
        "B": metrics["redos"] > 0,
        "C": metrics["bytes_sent"] > 0,
        "D": metrics["clipped"] > 0,
        "E": "sparse_linear" in (run.path / "run.json").read_text(),
    }
    return "".join(name for name, done in found.items() if done)


@most_are_slow("systems", [*PAIRS, "ABCDE"], keep=["ABCDE"])
def test_systems_run_together_and_end_in_the_same_bits_on_reference_and_numba(systems: str, tmp_path: Path):
    runs = [train(tmp_path / name, systems, name) for name in ("reference", "numba")]
    assert hashes(runs[0]) == hashes(runs[1])
    assert used(runs[0]) == systems


@pytest.mark.parametrize("at", [3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("systems", ["ABCDE", *(pytest.param(pair, marks=pytest.mark.slow) for pair in PAIRS)])
def test_systems_stopped_together_go_on_to_the_same_bits(systems: str, at: int, tmp_path: Path):
    whole = train(tmp_path / "whole", systems)
    again = resumed(tmp_path / "again", systems, at)
    assert hashes(again) == hashes(whole)
    assert again.info["metrics"] == whole.info["metrics"]


#: Kill the process when {name} is about to be moved into its place for the third time: in the save of step 6.
KILL_AT_FILE = """
import os, signal
real, calls = os.replace, []
def replace(*arguments):
    calls.extend([1] * str(arguments[1]).endswith("{name}"))
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*arguments)
os.replace = replace
"""


def in_toml(value: Any) -> str:
    """Return a value on one line, as TOML has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {in_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX idea")
@pytest.mark.parametrize("name", ["points.parquet", "checkpoint.safetensors"])
def test_all_systems_killed_together_at_a_file_go_on_to_the_same_bits(name: str, tmp_path: Path):
    whole, changed, path = train(tmp_path / "whole", "ABCDE"), setup("ABCDE")[2], tmp_path / "killed"
    settings = settings_of({key: in_toml(value) for key, value in changed.items()})
    arguments = ["train", "everything", "--device", "dlu16", "--backend", "numba", "--out", str(path), *settings]
    process = command(*arguments, before=KILL_AT_FILE.format(name=name))
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert RunFolder(path).load_checkpoint()[1]["step"] == 4
    again = emu.resume(path)
    assert used(again) == "ABCDE"
    assert hashes(again) == hashes(whole)
    assert again.info["metrics"] == whole.info["metrics"]
    assert not list(path.glob("*.emu-tmp"))


def test_a_dense_first_layer_gets_the_zeros_of_sparse_examples_as_well(tmp_path: Path):
    dense = {"network.layers.words.type": "linear"}
    runs = [train(tmp_path / backend, "DE", backend, **dense) for backend in ("reference", "numba")]
    assert hashes(runs[0]) == hashes(runs[1])
    recipe, device, changed = setup("DE", **dense)
    loop = Loop(Workbench.of(recipe.with_settings(changed), device, "numba"))
    loop.advance()
    assert loop.bench.runners.counters.of("input", "activation").register.total == 8 * 600
    assert loop.bench.runners.counters.of("words", "weight").register.total == 600 * 64


STILL = (
    "layer 'words' (sparse_linear) must have an optimiser that does not change a weight whose gradient is 0, because a "
    "step reads only the rows of the batch's inputs; choose `training.optimiser.name` 'sgd' or 'adagrad', without "
    "`weight_decay`"
)
FORGOTTEN = (
    "gradients of some rows must have levels and thresholds of the present mini-batch, got a codec that uses earlier "
    "mini-batches; remove `lag`, `smoothing`, `interval`, `residual_lag` and threshold 'previous_mean' of "
    "[cluster.codec] and [cluster.owner_codec]"
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "E, and an optimiser that remembers directions": (
        {"training.optimiser": {"name": "momentum", "learning_rate": 0.1}},
        STILL,
    ),
    "E, and Adam": ({"training.optimiser": {"name": "adam", "learning_rate": 0.1}}, STILL),
    "E, and decay": ({"training.optimiser": {"name": "sgd", "learning_rate": 0.1, "weight_decay": 0.1}}, STILL),
    "E with C, whose codec looks back": ({"cluster.codec": {"lag": 1}}, FORGOTTEN),
    "E with C, whose owners' codec looks back": ({"cluster.owner_codec": {"smoothing": "window"}}, FORGOTTEN),
    "E with C, whose owners smooth": (
        {"cluster.rule": "momentum", "cluster.momentum": 0.9},
        "an owner must not change rows that no node has sent, got `rule` 'momentum', which changes all rows; choose "
        "`rule` 'none' or 'adagrad' of [cluster]",
    ),
    "D by momentum, which E has none of": (
        {"clipping": {"rules": [{"rule": "momentum"}]}},
        "rule 'momentum' of [clipping] must be used with an optimiser that has momentum of every parameter, got "
        "'adagrad'; choose `training.optimiser.name` 'momentum', or another rule",
    ),
    "A in the learning rate, D with thresholds of its own": (
        {"loss_scaling": {"policy": "backoff", "compensation": ["learning_rate"]}},
        "`compensation` of [loss_scaling] must have 'clip_threshold' if `clipping` is set, got ['learning_rate']: "
        "`clipping` meets gradients that carry S; add it",
    ),
    "examples of E, and a layer that has no weights": (
        {"network.layers": [{"type": "relu", "name": "words"}, {"type": "linear", "out_features": 256}]},
        "for data of kind 'ngrams' a network must begin with a layer of type sparse_linear, or of type linear, which "
        "reads the zeros as well, got 'words' (relu); change its type, or `kind` of [data]",
    ),
    "E twice": (
        {
            "network.layers": [
                {"type": "sparse_linear", "name": "words", "out_features": 12},
                {"type": "sparse_linear", "name": "next", "out_features": 256},
            ]
        },
        "layer 'next' (sparse_linear) must be the first of the network; use `linear` with `sparse = true` after other "
        "layers",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_systems_that_do_not_go_together_are_refused_with_the_reason(case: str, tmp_path: Path):
    more, text = REFUSED[case]
    recipe, device, changed = setup("ACDE")
    for key in [key for key in changed if any(name.startswith(f"{key}.") for name in more)]:
        changed |= {f"{key}.{name}": value for name, value in changed.pop(key).items()}
    with pytest.raises(ConfigError) as found:
        emu.train(recipe, device, out=tmp_path / "run", overrides=changed | more)
    assert str(found.value).partition(" (in model everything")[0] == text
    assert not (tmp_path / "run").exists()


#: What systems have beside what they do by default, and still go together with E.
VARIED: dict[str, dict[str, Any]] = {
    "controllers": {"cluster.exchange": "controllers"},
    "one step late": {"cluster.double_buffering": True},
    "several units": {"cluster.units": 2},
    "lines of inputs": {"cluster.lines": "inputs"},
    "AdaGrad at the owner": {"cluster.rule": "adagrad"},
    "stripes of a model": {"cluster.model_parallel": 2},
    "layers of a model": {"cluster.model_parallel": 2, "cluster.model_split": "layers"},
    "without feedback": {"cluster.error_feedback": False},
    "rows clipped by their own norm": {"clipping.rules": [{"rule": "parameter_norm"}]},
    "all clipped by one norm": {"training.clip_norm": 0.5},
}


@most_are_slow("kind", VARIED, keep=["controllers", "one step late", "rows clipped by their own norm"])
def test_variants_of_systems_go_together_with_sparse_rows_on_both_backends(kind: str, tmp_path: Path):
    runs: list[Run] = []
    for backend in ("reference", "numba"):
        recipe, device, changed = setup("ACDE")
        settings = {
            **{name: value for name, value in changed.items() if name not in ("cluster", "clipping", "loss_scaling")},
            "loss_scaling.start": 2.0**16,
            "clipping.rules": [{"rule": "variance", "k": 2.0}],
            "cluster.nodes": 2,
            "cluster.warm_start": 0,
            **VARIED[kind],
        }
        options = {"out": tmp_path / backend, "backend": backend, "overrides": settings}
        runs.append(emu.train(recipe, device, **options))
    assert hashes(runs[0]) == hashes(runs[1])
    assert runs[0].info["metrics"]["bytes_sent"] > 0


def first_gradients(monkeypatch: pytest.MonkeyPatch, **more: Any) -> dict[str, Any]:
    """Return the gradients of the first update of a run on one node, as they come to it, and what was clipped."""
    seen: list[dict[str, Any]] = []
    real = Update.apply
    with monkeypatch.context() as patch:

        def apply(self: Update, states: Any, gradients: Any, *rest: Any) -> None:
            seen.append(gradients)
            real(self, states, gradients, *rest)

        patch.setattr(Update, "apply", apply)
        recipe, device, changed = setup("E")
        loop = Loop(Workbench.of(recipe.with_settings(changed | more), device, "numba"))
        loop.advance()
    return {**seen[0], "clipped": loop.log.metrics()["clipped"]}


def test_rows_are_clipped_layer_by_layer_like_whole_gradients_d2_e6(monkeypatch: pytest.MonkeyPatch):
    """Thresholds of +-2**-9: every element of the rows that are there is brought between them, and no row is added."""
    limit = 2.0**-9
    plain = first_gradients(monkeypatch)
    rules = {"rules": [{"rule": "constant", "high": limit, "low": -limit}]}
    clipped = first_gradients(monkeypatch, clipping=rules)
    before, after = plain["words.weight"], clipped["words.weight"]
    assert isinstance(after, RowsValue)
    assert after.rows.tolist() == before.rows.tolist()
    assert np.array_equal(after.array, np.clip(before.array, -limit, limit))
    beyond = sum(int((np.abs(plain[name].array) > limit).sum()) for name in plain if name != "clipped")
    assert clipped["clipped"] == beyond > 0
    assert (np.abs(before.array) > limit).any()
