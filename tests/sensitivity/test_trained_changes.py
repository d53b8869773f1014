"""Changes measured by short paired runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import emu
from emu.errors import ConfigError
from emu.jobs import Ended
from emu.report.sensitivity import Sensitivity
from emu.report.study.difference import Difference
from emu.search.file import load_search
from emu.search.space import Space
from emu.sensitivity import Measuring, SensitivityOptions, question_of, trained
from emu.training.folders.study_folder import ATTEMPTS, StudyFolder

SETTINGS = ["training.batch=16", "data.test_images=100", "training.log_every=10"]
OPTIONS = SensitivityOptions(
    bits=(6,), roles=("weight", "error"), layers=("fc2", "output"), steps=20, seeds=(1, 2), cache=False
)


class EngineHere:
    """An engine that runs a job when it is asked what has ended, in this process."""

    slots = 1

    def __init__(self, stops_after: int = 1_000_000) -> None:
        self._jobs: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
        self._left = stops_after
        self.done: list[str] = []

    def submit(self, key: str, function: Callable[..., Any], *arguments: Any) -> None:
        self._jobs.append((key, function, arguments))

    def ended(self, timeout_s: float = 0.3) -> list[Ended]:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        key, function, arguments = self._jobs.pop(0)
        self.done.append(key)
        return [Ended(key, function(*arguments), None)]

    def running(self) -> int:
        return len(self._jobs)

    def close(self) -> None:
        self._jobs.clear()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> EngineHere:
    """The engine of all trainings."""
    engine = EngineHere()
    monkeypatch.setattr(trained, "open_engine", lambda on, workers: engine)
    return engine


def measuring_of(out: Path, options: SensitivityOptions = OPTIONS, settings: list[str] = SETTINGS) -> Measuring:
    return Measuring(question_of("mlp", None, "fixed16", settings, options), options, out)


def whole(measuring: Measuring) -> Sensitivity:
    for _ in measuring.measure():
        pass
    return measuring.finish()


def test_a_change_is_trained_with_the_seeds_and_batches_of_the_unchanged_device(here: EngineHere, tmp_path: Path):
    found = whole(measuring_of(tmp_path))
    assert here.done[:2] == ["baseline-seed1", "baseline-seed2"]
    assert {row.tensor for row in found.rows} == {
        (layer, role) for layer in ("fc2", "output") for role in ("weight", "error")
    }
    overrides: dict[str, Any] = {
        "training.steps": 20,
        "training.batch": 16,
        "data.test_images": 100,
        "training.log_every": 10,
    }
    for seed in (1, 2):
        row = next(row for row in found.rows if row.tensor == ("fc2", "error"))
        exceptions = [{"match": name, "error": {"format": row.format}} for name in ("fc2", *row.passes)]
        table = emu.hardware.PrecisionTable.model_validate({"layers": exceptions})
        device = emu.device("fixed16").with_precision(table, origin="the test")
        for machine, accuracy in ((device, row.results[seed].accuracy), ("fixed16", row.results[seed].baseline)):
            out = tmp_path / f"by-hand-{seed}-{accuracy}-{machine == 'fixed16'}"
            run = emu.train("mlp", machine, out=out, overrides={**overrides, "training.seed": seed}, report=False)
            assert run.info["metrics"]["test_accuracy"] == accuracy
    assert row.passes == ("relu1",)
    expected = Difference.of(
        [one.accuracy - one.baseline for one in row.results.values()],
        mean(one.baseline for one in row.results.values()),
    )
    assert row.difference == expected
    assert row.answers is None
    assert row.share("underflow") is not None


def test_errors_are_placed_by_the_registers_of_the_unchanged_run(here: EngineHere, tmp_path: Path):
    found = whole(measuring_of(tmp_path))
    row = next(row for row in found.rows if row.tensor == ("output", "error"))
    run = emu.training.folders.run_folder.RunFolder(tmp_path / "runs" / "baseline-seed1")
    table = run.read_table("registers")
    counted = {
        (exponent, count)
        for layer, role, exponent, count in zip(
            *(table[n] for n in ("layer", "role", "exponent", "count")), strict=True
        )
        if (layer, role) == ("output", "error") and exponent is not None
    }
    largest = max(exponent for exponent, count in counted)
    fmt = emu.parse(row.format)
    # the highest bit below the sign has the weight of the largest leading bit, or of the one below: 1e-4 may be beyond
    assert 5 - 1 - fmt.frac_bits in (largest, largest - 1)
    assert fmt.frac_bits != 6 - 16 + 18


def test_an_interrupted_training_goes_on_with_the_runs_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = EngineHere(stops_after=5), EngineHere()
    monkeypatch.setattr(trained, "open_engine", lambda on, workers: first)
    with pytest.raises(KeyboardInterrupt):
        whole(measuring_of(tmp_path))
    assert len(first.done) == 5  # two of the unchanged device, two of the first change, one of the second
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 1
    monkeypatch.setattr(trained, "open_engine", lambda on, workers: second)
    found = whole(measuring_of(tmp_path))
    assert len(found.rows) == 4
    assert len(second.done) == 5
    assert not set(first.done) & set(second.done)


def test_trainings_that_end_early_leave_neither_a_folder_of_attempts_nor_too_large_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    closed: list[Path] = []
    monkeypatch.setattr(trained.Sending, "__exit__", lambda self, *_: closed.append(self.home.path))
    monkeypatch.setattr(trained, "open_engine", lambda on, workers: EngineHere(stops_after=0))
    question = question_of("mlp", None, "fixed16", SETTINGS, OPTIONS)
    trainer = trained.Trainer(question, OPTIONS, StudyFolder(tmp_path))
    # as a worker leaves it that has finished its run
    (tmp_path / ATTEMPTS).mkdir()
    with pytest.raises(KeyboardInterrupt):
        trainer.baseline()
    assert closed == [tmp_path]
    assert not (tmp_path / ATTEMPTS).exists()


def test_another_seed_trains_that_seed_alone(here: EngineHere, tmp_path: Path):
    one = SensitivityOptions(bits=(6,), roles=("weight",), layers=("output",), steps=20, cache=False)
    whole(measuring_of(tmp_path, one))
    more = SensitivityOptions(bits=(6,), roles=("weight",), layers=("output",), steps=20, seeds=(1, 2), cache=False)
    (row,) = whole(measuring_of(tmp_path, more)).rows
    assert sorted(row.results) == [1, 2]
    assert [key.rpartition("-")[2] for key in here.done] == ["seed1", "seed1", "seed2", "seed2"]


def test_the_search_of_trainings_has_their_length_and_looks_at_a_step(here: EngineHere, tmp_path: Path):
    found = whole(measuring_of(tmp_path, SensitivityOptions(**{**OPTIONS.__dict__, "margin": 0.99})))
    search = load_search(tmp_path / "search.toml")
    space = Space(search, str(tmp_path / "search.toml"))
    assert search.settings == {"training.steps": 20}
    assert search.objective[0].metric == "joules_per_step"
    assert len(search.variable) == len(found.rows) == 4
    recipe = space.baseline.recipe
    assert (recipe.training.steps, recipe.training.batch, recipe.data.test_images) == (20, 16, 100)


def test_tables_of_the_recipe_do_not_hide_a_change(here: EngineHere, tmp_path: Path):
    settings = [*SETTINGS, 'precision.layers=[{match = "fc*", weight = {format = "fix12f9"}}]']
    options = SensitivityOptions(bits=(2,), roles=("weight",), layers=("fc2",), steps=20, cache=False)
    (row,) = whole(measuring_of(tmp_path, options, settings)).rows
    assert (row.own, row.bits) == ("fix12f9", 2)
    info = json.loads(next((tmp_path / "runs").glob("fc2-*/run.json")).read_text())
    formats = {(one["layer"], one["role"]): one["format"] for one in info["formats"]}
    assert (formats["fc2", "weight"], formats["fc1", "weight"]) == (row.format, "fix12f9")


def test_a_run_that_fails_is_a_row_that_says_why(here: EngineHere, tmp_path: Path):
    options = SensitivityOptions(formats=("fix60f30",), roles=("activation",), layers=("fc1",), steps=20, cache=False)
    question = question_of("deep_sigmoid", None, "fixed16", SETTINGS, options)
    found = whole(Measuring(question, options, tmp_path))
    (row,) = found.rows
    assert "must fit float64 exactly" in row.failure
    assert row.lost is None
    assert "Changes that could not be measured" in (tmp_path / "report.html").read_text()
    assert Measuring(question, options, tmp_path).left() != []  # it is tried again


def test_an_unchanged_device_that_cannot_be_trained_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Failing(EngineHere):
        def ended(self, timeout_s: float = 0.3) -> list[Ended]:
            return [Ended(self._jobs.pop(0)[0], None, "the worker ran out of luck")]

    monkeypatch.setattr(trained, "open_engine", lambda on, workers: Failing())
    with pytest.raises(
        ConfigError, match="unchanged device must be trained with every seed, got seed 1: the worker ran"
    ):
        measuring_of(tmp_path)
