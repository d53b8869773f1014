"""The table of a study: columns of systems only where they ran, what is missing said."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from emu.errors import ConfigError
from emu.report.guessing import is_guess
from emu.report.study.comparison import Row, _Measured, _metrics_of, _names
from emu.report.study.difference import Difference
from emu.report.study.difference_picture import difference_picture
from emu.report.study.markdown import cells, header, tables
from emu.report.study.page import _page_of
from emu.report.study.seeds import remarks
from emu.training.folders.study_folder import StudyFolder
from emu.training.study import Grid, Study


def row(setting: str = "plain", **given: Any) -> Row:
    told: dict[str, Any] = {
        "model": "mlp",
        "setting": setting,
        "device": "dlu16",
        "bits": 16,
        "accuracies": {1: 0.96, 2: 0.98},
        "seeds": 2,
        "failures": {},
        "difference": None,
        "loss": 0.125,
        "overflow": 1e-4,
        "underflow": 0.0,
        "counts": {"redos": 0.0, "repeats": 0.0, "skips": 0.0},
        "simulated_seconds": None,
        "first_run": None,
    }
    return Row(**told | given)


def test_columns_of_systems_are_there_only_where_one_ran():
    plain, moving = (
        row(),
        row("always_redo", counts={"redos": 41.5, "repeats": 0.0, "skips": 2.0}, simulated_seconds=0.02),
    )
    assert header([plain]) == (
        "device", "bits", "accuracy", "spread (s.d.)", "worst .. best", "difference to the baseline, paired (95%)",
        "test loss", "overflow", "underflow", "what went wrong first",
    )  # fmt: skip
    assert header([plain, moving])[-4:] == ("redos", "skipped updates", "simulated time", "what went wrong first")


def test_energy_and_area_have_columns_where_a_run_says_them():
    costly = row(joules=1.69e-4, area_mm2=0.0126)
    assert header([row(), costly])[-3:] == ("energy of a step", "area", "what went wrong first")
    assert (cells(costly, "x")["energy of a step"], cells(costly, "x")["area"]) == ("169 uJ", "0.0126 mm2")
    assert header([row(joules=1.0)])[-2:] == ("energy of a step", "what went wrong first")


def test_a_row_says_means_over_its_runs():
    moving = row("always_redo", counts={"redos": 41.5}, simulated_seconds=0.0213, difference=Difference(-0.004, 0.01))
    told = cells(moving, "nothing")
    assert told["device"] == "dlu16, always_redo"
    assert (told["accuracy"], told["test loss"]) == ("97.00 %", "0.125")
    assert told["difference to the baseline, paired (95%)"] == "-0.40 (-1.40 .. +0.60)"
    assert (told["redos"], told["simulated time"]) == ("42", "21.3 ms")


def test_a_loss_that_is_no_number_is_said_to_be_none():
    # run.json has null for NaN
    metrics: dict[int, dict[str, Any]] = {1: {"test_loss": 0.5}, 2: {"test_loss": None}}
    loss = _Measured(metrics, {}, [], {}).mean("test_loss")
    assert math.isnan(loss)
    assert cells(row(loss=loss), "x")["test loss"] == "not a number"
    assert _Measured(metrics, {}, [], {}).mean("redos") == 0


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (None, "`test_accuracy` of a finished run must be a number, got None in"),
        ({"test_accuracy": None}, "`test_accuracy` of a finished run must be a number, got None in"),
        ({"test_accuracy": math.inf}, "`test_accuracy` of a finished run must be a number, got inf in"),
        ({"test_accuracy": 0.5, "test_loss": "low"}, "`test_loss` of a finished run must be a number, got 'low' in"),
    ],
)
def test_damaged_metrics_of_a_run_are_named(tmp_path: Path, metrics: Any, message: str):
    with pytest.raises(ConfigError) as caught:
        _metrics_of({"metrics": metrics}, tmp_path)
    assert str(caught.value).startswith(message)
    assert str(tmp_path / "run.json") in str(caught.value)


def test_what_a_row_has_not_is_a_dash_in_its_column():
    text = tables(
        [("mlp", [(row(), "nothing"), (row("always_redo", simulated_seconds=2.0, accuracies={1: 0.9}), "x")])]
    )
    first, second = (line.split(" | ") for line in text.splitlines()[4:])
    names = text.splitlines()[2].strip("| ").split(" | ")
    assert first[names.index("simulated time")] == "\u2013"
    assert second[names.index("simulated time")] == "2 s"
    assert second[names.index("spread (s.d.)")] == "\u2013"


def test_a_difference_to_a_baseline_that_guesses_is_no_statement_and_no_failure():
    worse = {"difference": Difference(-0.05, 0.01), "paired": {1: -0.05, 2: -0.05}, "chance": 0.1}
    learned, guesses = row(**worse, baseline=0.151), row(**worse, baseline=0.15)
    assert cells(learned, "x")["difference to the baseline, paired (95%)"] == "-5.00 (-6.00 .. -4.00)"
    assert learned.fails
    assert cells(guesses, "x")["difference to the baseline, paired (95%)"] == "no statement: the baseline guesses"
    assert not guesses.fails
    assert (len(remarks([learned])), remarks([guesses])) == (1, [])
    assert difference_picture("a", [learned])[1]
    assert difference_picture("a", [guesses]) == ("", ())


def test_models_whose_names_differ_in_one_sign_have_sections_and_charts_of_their_own(tmp_path: Path):
    titles = ("a-b", "a_b", "a-b-2", "a.b", "c")
    study = Study(name="made-up", grid=(Grid(models=("mlp",), devices=("fixed16",), seeds=(1,)),))
    paired = row(difference=Difference(-0.05, 0.01), paired={1: -0.05, 2: -0.05}, baseline=0.9, chance=0.1)
    page = _page_of(study, StudyFolder(tmp_path), {title: [(paired, "nothing")] for title in titles})
    sections = re.findall(r'<section[^>]* id="(model-[^"]*)"', page)
    assert sections == ["model-a-b", "model-a-b-2", "model-a-b-2-2", "model-a-b-3", "model-c"]
    specs = json.loads(re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page)[0])
    assert set(specs) >= {f"differences-{section}" for section in sections}


def test_an_accuracy_guesses_up_to_one_and_a_half_times_chance():
    assert [is_guess(accuracy, 0.5) for accuracy in (0.7499, 0.75, 0.7501)] == [True, True, False]
    assert not is_guess(None, 0.5)
    assert not is_guess(0.1, None)


def test_files_of_one_name_are_told_apart():
    files = {"mine/a.toml": "fixed16", "fixed8": "fixed8", "yours/a.toml": "fixed16"}
    assert _names(files) == {
        "mine/a.toml": "fixed16 (mine/a.toml)", "fixed8": "fixed8", "yours/a.toml": "fixed16 (yours/a.toml)",
    }  # fmt: skip


def test_a_row_without_a_run_says_why():
    failed = row(accuracies={}, failures={1: "no space left", 2: "no space left"})
    assert cells(failed, "\u2013")["accuracy"] == "failed: no space left"
    assert cells(row(accuracies={}), "\u2013")["accuracy"] == "not run"


def test_a_row_whose_runs_are_not_all_there_says_how_many_are():
    assert cells(row(accuracies={1: 0.9}), "nothing")["accuracy"] == "90.00 % (1 of 2 runs)"
    failed = row(accuracies={1: 0.9}, failures={2: "no space left"})
    assert cells(failed, "nothing")["accuracy"] == "90.00 % (1 of 2 runs; no space left)"


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    assert str(Difference(-0.00001, None)) == "+0.00"
    assert str(Difference(-0.004, 0.004)) == "-0.40 (-0.80 .. +0.00)"
