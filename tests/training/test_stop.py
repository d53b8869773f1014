"""A run ends where its stop tests hold, at the same step and in the same bits from wherever it goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fast_suite import most_are_slow
from small_runs import hashes, train

import emu
from emu import training
from emu.cli.runs import _print_run
from emu.errors import ConfigError
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import log, run_to_end
from emu.training.recipe import Training
from emu.training.stop_tests import Improvement, StopTests

#: A log point every second step, and test accuracy at each.
EVERY_POINT: dict[str, Any] = {
    "training__steps": 20,
    "training__log_every": 2,
    "training__checkpoint_every": 3,
    "training__schedule": {"name": "constant"},
}


@pytest.fixture
def always_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LOG_POINTS_PER_TEST", 1)


def table(path: Path, column: str) -> list[Any]:
    return RunFolder.open(path).read_table("metrics")[column]


def first(values: list[float], test: Any) -> int:
    """The first log point at which a test holds, read off a run that was not stopped."""
    return next(i for i, value in enumerate(values) if test(value))


# ---- the tests, as functions of what was measured ----


def past(**values: list[float]) -> dict[str, list[float]]:
    return {name: [0.5] for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy")} | values


FOUND = {"epoch": 2.5, "seconds": 60.0, "simulated_seconds": 0.25}


@pytest.mark.parametrize(
    ("name", "holds", "holds_not"),
    [
        ("train_accuracy", 0.5, 0.5000001),
        ("test_accuracy", 0.5, 0.5000001),
        ("train_error", 0.5, 0.4999999),
        ("test_error", 0.5, 0.4999999),
        ("train_loss", 0.5, 0.4999999),
        ("test_loss", 0.5, 0.4999999),
        ("seconds", 60.0, 60.1),
        ("simulated_seconds", 0.25, 0.2500001),
        ("epochs", 2.5, 2.6),
    ],
)
def test_each_test_holds_from_its_limit_on_c10(name: str, holds: float, holds_not: float):
    assert StopTests(**{name: holds}).holding(FOUND, past()) == (name,)
    assert StopTests(**{name: holds_not}).holding(FOUND, past()) == ()


def test_an_error_of_three_in_ten_is_an_accuracy_of_seven_in_ten_c10():
    for wrong in range(1, 100):
        right = past(test_accuracy=[(100 - wrong) / 100])
        assert StopTests(test_error=wrong / 100).holding(FOUND, right) == ("test_error",)


def test_a_test_of_what_was_never_measured_does_not_hold_c10():
    nothing = past(test_accuracy=[], test_loss=[])
    for name in ("test_accuracy", "test_error", "test_loss"):
        assert StopTests(**{name: 0.9}).holding(FOUND, nothing) == ()
    assert StopTests(improvement=Improvement(below=9.0, of="test_loss")).holding(FOUND, nothing) == ()


@pytest.mark.parametrize(
    ("of", "values", "points", "holds"),
    [
        ("train_loss", [1.0, 0.75], 1, False),
        ("train_loss", [1.0, 0.75, 0.5625], 1, True),
        ("train_loss", [1.0, 0.75, 0.5625], 2, False),
        ("train_loss", [1.0, 0.75, 0.625, 0.5625], 2, True),
        ("train_loss", [0.5, 1.0], 1, True),
        ("test_accuracy", [0.25, 0.5], 1, False),
        ("test_accuracy", [0.25, 0.375], 1, True),
        ("train_loss", [1.0], 1, False),
        ("train_loss", [1.0, float("nan")], 1, True),
    ],
)
def test_an_improvement_below_the_limit_ends_a_run_c10(of: Any, values: list[float], points: int, holds: bool):
    """The limit is 0.25 (exclusive): a loss must fall by it, an accuracy rise by it, over so many log points."""
    assert Improvement(below=0.25, of=of, points=points).holds(values) is holds


@pytest.mark.parametrize(
    ("when", "expected"),
    [("any", [False, True, True, True]), ("all", [False] * 3 + [True]), (2, [False] * 2 + [True] * 2)],
)
def test_any_all_or_so_many_tests_must_hold_c10(when: Any, expected: list[bool]):
    tests = StopTests(when=when, epochs=1.0, seconds=1.0, train_loss=1.0)
    assert [tests.is_met(tests.names[:count]) for count in range(4)] == expected


# ---- a run ----


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "LOG_POINTS_PER_TEST", 1)
        return train(tmp_path_factory.mktemp("runs") / "whole", **EVERY_POINT).path


@pytest.mark.usefixtures("always_tested")
@most_are_slow(
    ("test", "column", "holds"),
    [
        pytest.param("train_accuracy", "train_accuracy", lambda v, x: v >= x, id="train_accuracy"),
        pytest.param("test_accuracy", "test_accuracy", lambda v, x: v >= x, id="test_accuracy"),
        pytest.param("train_loss", "train_loss", lambda v, x: v <= x, id="train_loss"),
        pytest.param("test_error", "test_accuracy", lambda v, x: v >= 1 - x - 1e-9, id="test_error"),
        pytest.param("epochs", "epoch", lambda v, x: v >= x, id="epochs"),
    ],
    keep=["train_loss", "test_error", "epochs"],
)
def test_a_run_ends_at_the_first_log_point_where_a_test_holds_c10(
    tmp_path: Path, never_stopped: Path, test: str, column: str, holds: Any
):
    values = table(never_stopped, column)
    limit = sorted(values)[len(values) // 2]
    limit = 1 - limit if test == "test_error" else limit
    at = first(values, lambda value: holds(value, limit))
    assert at < len(values) - 1, "the run must be able to end early"
    stopped = train(tmp_path / "stopped", **EVERY_POINT, training__stop={test: limit})
    short = train(tmp_path / "short", **EVERY_POINT | {"training__steps": 2 * (at + 1)})
    assert (stopped.info["status"], stopped.info["stopped_by"]) == ("finished", [test])
    assert stopped.info["steps"] == 2 * (at + 1) == table(tmp_path / "stopped", "step")[-1]
    assert stopped.info["ended"]
    assert table(tmp_path / "stopped", column) == values[: at + 1]
    assert hashes(short) == hashes(stopped), "at a constant rate, a stopped run is a short one"


def test_the_commands_last_lines_say_which_test_ended_a_run_c10(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    _print_run(train(tmp_path / "stopped", **EVERY_POINT, training__stop={"train_loss": 100.0}))
    said = capsys.readouterr().out
    assert "stopped   at step 2: train_loss at most 100\n" in said
    assert re.search(r"overflow \S+%   underflow \S+%   ", said)
    assert "\ndiagnosis The run: " in said, "two steps teach a network nothing"
    assert re.search(r"the network has learned nothing\.( \d+ more in the report\.)?\n", said)
    _print_run(train(tmp_path / "whole:b:[red]", training__steps=2))
    before, _, path = capsys.readouterr().out.partition("report ")
    assert "stopped" not in before
    assert "whole:b:[red]/report.html\n" in path, "a path is no markup"


def test_a_run_that_takes_all_its_steps_was_stopped_by_nothing_c10(tmp_path: Path):
    plain = train(tmp_path / "plain", training__steps=6)
    tested = train(tmp_path / "tested", training__steps=6, training__stop={"epochs": 100.0})
    assert plain.info["stopped_by"] == tested.info["stopped_by"] == []
    assert hashes(plain) == hashes(tested)
    assert tested.info["steps"] == 6


def test_a_run_that_is_stopped_is_tested_at_its_end_c10(tmp_path: Path):
    run = train(tmp_path / "run", training__stop={"train_loss": 100.0})  # the first of 4 log points between two tests
    assert run.info["steps"] == 5
    assert table(tmp_path / "run", "test_accuracy") == [run.info["metrics"]["test_accuracy"]] != [None]
    assert RunFolder.open(tmp_path / "run").read_table("snr")["step"]


def test_the_rate_of_a_run_that_stops_goes_by_its_planned_steps_c10(tmp_path: Path):
    options: dict[str, Any] = EVERY_POINT | {"training__schedule": {"name": "cosine"}}
    train(tmp_path / "whole", **options)
    train(tmp_path / "stopped", **options, training__stop={"epochs": 0.04})
    rates = table(tmp_path / "stopped", "learning_rate")
    assert len(rates) == 5, "8 of 1767 images a step: 0.04 epochs are over behind 9 steps"
    assert rates == table(tmp_path / "whole", "learning_rate")[:5]


def test_a_run_ends_when_its_seconds_are_over_c10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(0, 10_000, 10))  # two readings before the first step, one behind each, one behind each save
    monkeypatch.setattr(run_to_end.time, "perf_counter", lambda: float(next(clock)))
    run = train(tmp_path / "run", **EVERY_POINT, training__stop={"seconds": 60.0})
    assert run.info["stopped_by"] == ["seconds"]
    assert run.info["seconds"] >= 60
    assert run.info["steps"] < 20


def test_a_run_ends_when_its_simulated_seconds_are_over_c10(tmp_path: Path):
    device = "dlu16"
    whole = train(tmp_path / "whole", device=device, **EVERY_POINT)
    limit = whole.info["simulated_seconds"] / 2
    stopped = train(tmp_path / "stopped", device=device, **EVERY_POINT, training__stop={"simulated_seconds": limit})
    again = train(tmp_path / "again", device=device, **EVERY_POINT, training__stop={"simulated_seconds": limit})
    assert stopped.info["stopped_by"] == ["simulated_seconds"]
    assert limit <= stopped.info["simulated_seconds"] < whole.info["simulated_seconds"]
    assert (again.info["steps"], hashes(again)) == (stopped.info["steps"], hashes(stopped))


class Interrupted:
    """A progress that interrupts the run behind a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def start(self, step: int, steps: int) -> None: ...

    def update(self, step: int, *rates: float) -> None:
        if step == self.step:
            raise KeyboardInterrupt

    def finish(self) -> None: ...


@most_are_slow("at", [4, 7, 10], keep=[7])
def test_a_resumed_run_ends_at_the_same_step_in_the_same_bits_c10(tmp_path: Path, at: int):
    """Of both tests, one needs what was measured before the kill."""
    stop = {"when": "all", "improvement": {"below": 0.5, "points": 4}, "epochs": 0.02}
    whole = train(tmp_path / "whole", **EVERY_POINT, training__stop=stop)
    assert 10 <= whole.info["steps"] < 20
    recipe = emu.model("mlp").with_settings(whole.info["recipe"])
    with pytest.raises(KeyboardInterrupt):
        training.train(
            recipe, emu.device("fixed16"), out=tmp_path / "killed", backend="numba", progress=Interrupted(at)
        )
    resumed = training.resume(tmp_path / "killed")
    assert hashes(resumed) == hashes(whole)
    for name in ("steps", "stopped_by", "metrics"):
        assert resumed.info[name] == whole.info[name]
    assert repr(RunFolder.open(tmp_path / "killed").read_table("metrics")) == repr(
        RunFolder.open(tmp_path / "whole").read_table("metrics")
    )


def test_a_run_that_was_stopped_stays_so_when_it_is_resumed_c10(tmp_path: Path):
    run = train(tmp_path / "run", **EVERY_POINT, training__stop={"epochs": 0.02})
    again = training.resume(tmp_path / "run")
    assert again.info["steps"] == run.info["steps"] < 20
    assert again.info["stopped_by"] == ["epochs"]
    assert hashes(again) == hashes(run)


def test_a_recipe_without_stop_tests_does_not_know_of_them_c10():
    optimiser = {"name": "sgd", "learning_rate": 0.1}
    plain = Training.model_validate({"steps": 1, "batch": 1, "optimiser": optimiser})
    assert "stop" not in plain.model_dump(mode="json")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"when": "all"},
            "[training.stop] must have at least one test, got none; give one of train_accuracy, test_accuracy, "
            "train_error, test_error, train_loss, test_loss, seconds, simulated_seconds, epochs, improvement",
        ),
        (
            {"epochs": 1.0, "seconds": 9.0, "when": 3},
            "`when` of [training.stop] must be 'any', 'all', or 1..2 of its tests, got 3; change it, or give "
            "more tests",
        ),
        (
            {"epochs": 1.0, "when": 0},
            "`when` of [training.stop] must be 'any', 'all', or 1..1 of its tests, got 0; change it, or give "
            "more tests",
        ),
        (
            {"simulated_seconds": 2.0},
            "`simulated_seconds` of [training.stop] must be left out if no time is simulated, got 2 on 'float32'; use "
            "`seconds`, or a device with a clock",
        ),
        ({"test_accuracy": 1.5}, "`test_accuracy` must be at most 1.0, got 1.5"),
        ({"accuracy": 0.5}, "`accuracy` is not a key of [training.stop]"),
        ({"improvement": {"below": 0.1, "points": 0}}, "`points` must be at least 1, got 0"),
    ],
    ids=str,
)
def test_stop_tests_that_do_not_fit_are_refused_c10(settings: Any, text: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        train(tmp_path / "run", device="float32", training__stop=settings)
    assert text in str(caught.value)
    assert not (tmp_path / "run").exists()
