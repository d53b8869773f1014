"""A system is a class and a line in a list: it sees every step, and the loop names none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

import emu
from emu._config import Table
from emu.training.folders import tables
from emu.training.folders.run_folder import RunFolder
from emu.training.loop import loop
from emu.training.loop.steps import Steps
from emu.training.systems import SYSTEMS, AskTimes, Attempt, Row, System
from emu.training.workbench import Workbench

SETTINGS = {"training.steps": 6, "training.batch": 4, "data.test_images": 4, "training.log_every": 3}


class Noted(System):
    """Writes down what it is asked, and halves gradients in every second step."""

    key = "noted"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {"notes": {"step": "int64", "what": "string"}}

    def __init__(self, bench: Workbench) -> None:
        self.asked: list[str] = []
        self.steps = 0

    def around(self, attempt: Attempt, step: int, *, repeated: bool) -> Attempt:
        def noted(scale: float) -> Any:
            self.asked.append(f"pass {step} at {scale:g}{', may repeat' if repeated else ''}")
            return attempt(scale)

        return noted

    def gradients(self, result: Any) -> Any:
        self.asked.append("gradients")
        if self.steps % 2 == 0:
            return result
        halved = {name: g.with_array(g.array / 2) for name, g in result.gradients.items()}
        return replace(result, gradients=halved)

    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        self.steps = steps
        self.asked.append(f"end of step {steps}")

    def phase(self, step: int) -> str | None:
        return "noting"

    def events(self) -> Iterator[Row]:
        yield "notes", {"what": "event"}

    def interval(self) -> Iterator[Row]:
        yield "notes", {"what": "interval"}

    def files(self) -> Iterator[tuple[str, str]]:
        yield "notes.txt", "\n".join(self.asked)

    def about(self) -> dict[str, Any]:
        return {"noted_steps": self.steps}

    def metrics(self) -> dict[str, Any]:
        return {"notes": len(self.asked)}

    def to_dict(self) -> Any:
        return {"steps": self.steps}

    def load(self, data: Any) -> None:
        self.steps = data["steps"]


@pytest.fixture
def with_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SYSTEMS", (*SYSTEMS, Noted))
    monkeypatch.setitem(tables.TABLES, "notes", Noted.tables["notes"])


def trained(folder: Path, device: str = "fixed16", **settings: Any) -> Any:
    overrides = {**SETTINGS, **{name.replace("__", "."): value for name, value in settings.items()}}
    return emu.train(emu.model("mlp"), emu.device(device), out=folder, overrides=overrides)


@pytest.mark.usefixtures("with_notes")
def test_a_system_is_asked_at_every_point_of_a_step_and_writes_its_own_tables(tmp_path: Path):
    run = trained(tmp_path / "run")
    asked = (tmp_path / "run" / "notes.txt").read_text().splitlines()
    assert asked[:6] == [
        "pass 0 at 1", "gradients", "end of step 1", "pass 1 at 1", "gradients", "end of step 2",
    ]  # fmt: skip
    assert len(asked) == 18
    assert (run.info["noted_steps"], run.info["metrics"]["notes"]) == (6, 18)
    notes = RunFolder.open(tmp_path / "run").read_table("notes")
    assert notes["what"].count("event") == 6
    assert [step for step, what in zip(notes["step"], notes["what"], strict=True) if what == "interval"] == [3, 6]


@pytest.mark.usefixtures("with_notes")
def test_what_a_system_makes_of_gradients_is_what_the_update_gets(tmp_path: Path):
    halved = trained(tmp_path / "halved", "float32").weights_sha256
    rates = Steps.rate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "SYSTEMS", SYSTEMS)
        plain = trained(tmp_path / "plain", "float32", training__optimiser__momentum=0.0).weights_sha256
        patch.setattr(Steps, "rate", lambda self, step: rates(self, step) * (0.5 if step % 2 else 1.0))
        slower = trained(tmp_path / "slower", "float32", training__optimiser__momentum=0.0).weights_sha256
    again = trained(tmp_path / "again", "float32", training__optimiser__momentum=0.0).weights_sha256
    assert again == slower, "half the gradient is half the rate, bit for bit in float32 without momentum"
    assert len({halved, plain, again}) == 3


@pytest.mark.usefixtures("with_notes")
def test_a_system_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = trained(tmp_path / "whole").weights_sha256
    advance = loop.Loop.advance

    def interrupted(self: Any) -> Any:
        if self.steps.done == 4:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(loop.Loop, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed", training__checkpoint_every=1)
    monkeypatch.setattr(loop.Loop, "advance", advance)
    resumed = emu.resume(tmp_path / "killed")
    assert (resumed.weights_sha256, resumed.info["noted_steps"]) == (whole, 6)


@pytest.mark.usefixtures("with_notes")
def test_a_system_sees_passes_within_loss_scaling_once_each_and_the_phase_is_that_of_the_first_that_says_one(
    tmp_path: Path,
):
    run = trained(tmp_path / "run", "fp16-mixed", loss_scaling__policy="fixed", loss_scaling__scale=1024.0)
    asked = (tmp_path / "run" / "notes.txt").read_text().splitlines()
    assert asked[0] == "pass 0 at 1, may repeat", "outermost, as the last of the list"
    assert run.info["metrics"]["skips"] == 0


def test_metrics_of_systems_that_are_not_in_use_are_zeros(tmp_path: Path):
    info = json.loads((trained(tmp_path / "run").path / "run.json").read_text())
    assert {name: info["metrics"][name] for name in ("redos", "pretraining_runs", "repeats", "skips")} == dict.fromkeys(
        ("redos", "pretraining_runs", "repeats", "skips"), 0
    )
    assert info["simulated_seconds"] is None or info["simulated_seconds"] > 0


class PaceTable(Table):
    factor: float = Field(default=0.5, gt=0)


class Pace(System):
    """Changes the rate by a factor that a recipe gives."""

    key = "pace"
    settings = PaceTable

    def __init__(self, bench: Workbench) -> None:
        self._table: PaceTable | None = self.settings_in(bench.recipe)

    def rate(self, rate: float, examples: int) -> float:
        return rate if self._table is None else rate * self._table.factor


def test_a_table_of_a_recipe_brings_a_system_into_use_and_is_part_of_what_decides_the_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain = trained(tmp_path / "plain")
    monkeypatch.setattr(loop, "SYSTEMS", (Pace, *SYSTEMS))
    assert trained(tmp_path / "idle").weights_sha256 == plain.weights_sha256
    slower = trained(tmp_path / "slower", systems__pace__factor=0.25)
    rate = emu.model("mlp").training.optimiser.learning_rate
    same = trained(tmp_path / "same", training__optimiser__learning_rate=rate * 0.25)
    assert slower.weights_sha256 == same.weights_sha256 != plain.weights_sha256
    assert slower.info["recipe"]["systems"] == {"pace": {"factor": 0.25}}
    assert "systems" not in plain.info["recipe"]
    recipe = emu.model("mlp").with_settings({"systems.pace.factor": 0.25})
    assert recipe.decisive() != emu.model("mlp").decisive()
    assert recipe.with_settings({"training.steps": 3}).systems == recipe.systems


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("systems.pase.factor", 1.0, "`systems.pase` must be .* got it in model mlp; did you mean 'pace'?"),
        ("systems.pace", 1.0, r"`systems.pace` must be a table, got 1.0; write \[systems.pace\]"),
        (
            "systems.pace.factr",
            1.0,
            r"`factr` is not a key .* in \[systems.pace\] of model mlp; did you mean 'factor'?",
        ),
        ("systems.pace.factor", 0.0, r"`factor` must be .* got 0.0 in \[systems.pace\] of model mlp; choose"),
        ("systems.stop.factor", 1.0, "`systems.stop` must be the table of a system that reads one"),
    ],
)
def test_a_wrong_table_of_a_system_is_refused_before_the_run_writes_anything(
    key: str, value: float, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loop, "SYSTEMS", (Pace, *SYSTEMS))
    with pytest.raises(emu.ConfigError, match=message):
        trained(tmp_path / "run", **{key.replace(".", "__"): value})
    assert not (tmp_path / "run").exists()


def test_a_table_of_a_system_is_refused_if_no_system_reads_one(tmp_path: Path):
    with pytest.raises(emu.ConfigError, match="got it in model mlp; there is none here, so remove it"):
        trained(tmp_path / "run", systems__pace__factor=1.0)


def test_the_loop_names_no_system():
    text = Path(loop.__file__).read_text()
    for name in (
        "model.points",
        "scaler",
        "loss_scaling",
        "simulat",
        "dynamic",
        "cluster",
        "clipping",
        "sparse",
        "redo",
        "search",
        "stop",
    ):
        assert name not in text.lower(), name
    assert [system.key for system in SYSTEMS] == [
        "dynamic_point", "delayed_scaling", "simulation", "clipping", "cluster", "loss_scaling", "search", "stop",
    ]  # fmt: skip
