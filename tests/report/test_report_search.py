"""The page of a search, from files that are made up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emu.cli.search import search_output
from emu.errors import ConfigError
from emu.report.search import build_search_report, read_search

VARIABLE = {"low": 4, "high": 16, "step": None, "log": False, "choices": None, "start": 16, "probe": None}
BOUND = {"at_most": None, "confidence": 0.95, "prune_margin": None}
SEARCH: dict[str, Any] = {
    "name": "made-up",
    "description": "Widths <b>of</b> everything.",
    "model": "lenet",
    "device": "fixed16",
    "baseline": "float32",
    "seeds": [1, 2],
    "trials": 8,
    "variable": [{"name": "width", **VARIABLE}, {"name": "error_width", **VARIABLE}],
    "objective": [
        {"metric": "joules_per_step", "direction": "minimize"},
        {"metric": "test_accuracy_difference", "direction": "maximize"},
    ],
    "constraint": [{"metric": "test_accuracy_difference", "at_least": -0.005, **BOUND}],
}
#: joules, difference: 0, 2 and 5 are on the front; 4 equals 2; 3 breaks the constraint; 6 failed; 7 runs.
WORTH = [(9e-5, 0.004), (9e-5, 0.002), (6e-5, 0.0), (3e-5, -0.4), (6e-5, 0.0), (5e-5, -0.002)]


def trial(number: int, worth: tuple[float, float]) -> dict[str, Any]:
    return {
        "number": number,
        "state": "finished",
        "values": {"width": 16 - number, "error_width": 16},
        "objectives": list(worth),
        "violations": {"test_accuracy_difference at least": -0.005 - worth[1]},
        "metrics": {"joules_per_step": worth[0], "test_accuracy_difference": worth[1]},
        "runs": {"1": f"trial-{number:04}-seed1"},
        "folder": "/elsewhere",
        "pruned": "missed" if number == 3 else "",
        "device": f"fixed16-{number}",
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trials = [trial(number, worth) for number, worth in enumerate(WORTH)]
    trials.append({"number": 6, "state": "failed", "values": {"width": 4}, "objectives": None, "violations": {}})
    trials[-1]["failure"] = "<script>alert(1)</script>"
    trials.append({"number": 7, "state": "running", "values": {}, "objectives": None, "violations": {}})
    importances = {"joules_per_step": {"width": 0.9, "error_width": 0.1}}
    (tmp_path / "search.json").write_text(json.dumps(SEARCH))
    (tmp_path / "trials.json").write_text(json.dumps({"trials": trials, "importances": importances}))
    (tmp_path / "runs" / "trial-0002-seed1").mkdir(parents=True)
    (tmp_path / "runs" / "trial-0002-seed1" / "run.json").write_text("{}")
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "trial-0002.toml").write_text("")
    return tmp_path


def test_the_front_has_the_trials_that_hold_the_constraints_and_that_no_other_one_beats(folder: Path):
    assert [one.number for one in read_search(folder).front()] == [5, 2, 0]


def test_the_page_says_how_far_the_search_is_and_links_what_is_there(folder: Path):
    text = build_search_report(folder).read_text()
    assert "7 of 8 trials have ended, 1 of them failed and 1 given up before their last seed." in text
    assert "test accuracy difference at least -0.50 points, 95% sure" in text
    assert "3 of 6 finished trials are on the front." in text
    assert 'href="runs/trial-0002-seed1/report.html"' in text
    assert 'href="devices/trial-0002.toml"' in text
    assert "trial-0005-seed1/report.html" not in text  # its folder is elsewhere
    assert "60 uJ" in text


def test_a_click_on_a_point_opens_the_report_of_its_run(folder: Path):
    text = build_search_report(folder).read_text()
    charts = json.loads(re.search(r'id="charts"[^>]*>(.*?)</script>', text)[1])  # type: ignore[index]
    rows = {row["trial"]: row for row in charts["front-1"]["datasets"]["trials"]}
    assert rows[2]["page"] == "runs/trial-0002-seed1/report.html"
    assert "page" not in rows[5]
    kinds = {number: row["kind"] for number, row in rows.items()}
    assert [number for number, kind in kinds.items() if kind == "front"] == [0, 2, 5]
    assert [number for number, kind in kinds.items() if kind == "holds the constraints"] == [1, 4]
    assert [number for number, kind in kinds.items() if kind == "breaks a constraint"] == [3]
    assert (rows[2]["x"], rows[2]["y"]) == (60.0, 0.0)
    assert charts["front-1"]["datasets"]["bounds_y"] == [{"y": -0.5}]
    slices = {f"slice-{objective}-{variable}" for objective in (0, 1) for variable in (0, 1)}
    assert {"front-1", "history-0", "history-1", "importance-chart", "parallel-chart", *slices} == set(charts)


def test_the_best_so_far_counts_trials_alone_that_hold_the_constraints(folder: Path):
    text = build_search_report(folder).read_text()
    charts = json.loads(re.search(r'id="charts"[^>]*>(.*?)</script>', text)[1])  # type: ignore[index]
    best = [(row["trial"], row["value"]) for row in charts["history-0"]["datasets"]["best"]]
    assert best == [(0, 90.0), (2, 60.0), (5, 50.0), (5, 50.0)]


def test_the_front_is_a_picture_by_itself_too(folder: Path):
    build_search_report(folder)
    picture = (folder / "front.svg").read_text()
    assert picture.startswith("<svg")
    assert "var(--" not in picture
    assert "joules per step (uJ)" in picture


def test_texts_of_a_search_are_shown_and_never_run(folder: Path):
    text = build_search_report(folder).read_text()
    assert "<script>alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "Widths &lt;b&gt;of&lt;/b&gt; everything." in text


def test_identifiers_of_the_page_are_unique(folder: Path):
    found = re.findall(r' id="([^"]+)"', build_search_report(folder).read_text())
    assert len(found) == len(set(found))


def test_the_table_as_text_has_the_front(folder: Path):
    build_search_report(folder)
    lines = (folder / "report.md").read_text().splitlines()
    assert len(lines) == 5
    assert lines[2] == "| 5 | 50 uJ (44% less) | -0.20 points | 1 | width 11 |"
    assert lines[4] == "| 0 | 90 uJ | +0.40 points | 1 | nothing: the device as it is |"


def changed(folder: Path, number: int, **keys: Any) -> None:
    """Change keys of a trial."""
    content = json.loads((folder / "trials.json").read_text())
    content["trials"][number] |= keys
    (folder / "trials.json").write_text(json.dumps(content))


def charts_of(folder: Path) -> dict[str, Any]:
    text = build_search_report(folder).read_text()
    return json.loads(re.search(r'id="charts"[^>]*>(.*?)</script>', text)[1])  # type: ignore[index]


def with_accuracy(folder: Path, run: str, accuracy: float, classes: int = 10) -> None:
    (folder / "runs" / run).mkdir(exist_ok=True)
    info = {"recipe": {"network": {"classes": classes}}, "metrics": {"test_accuracy": accuracy}}
    (folder / "runs" / run / "run.json").write_text(json.dumps(info))


@pytest.mark.parametrize(
    ("samples", "note"),
    [
        ([-0.001, -0.003], "-0.20 points (-1.47 .. +1.07)"),
        ([-0.002], "-0.20 points (one seed)"),
        ([-0.002, -0.002], "-0.20 points (no interval: all seeds are equal)"),
        # half of it is 12.706 * 0.15 / 2 to each side of -0.075: down to -103 points
        ([0.0, -0.15], "-0.20 points (no interval: it reaches beyond what is possible)"),
    ],
)
def test_a_difference_has_the_interval_of_its_seeds(folder: Path, samples: list[float], note: str):
    changed(folder, 5, samples={"test_accuracy_difference": samples})
    build_search_report(folder)
    assert f"| {note} |" in (folder / "report.md").read_text()


def test_what_a_trial_changes_is_said_by_layer_and_role(folder: Path):
    changes = {
        "device.precision.layers[conv*.1].weight.format": "fix6f4",
        "device.precision.error.rounding": "stochastic",
        "device.precision.mac.accumulator": "fix24f9",
        "recipe.training.optimiser.learning_rate": 0.0123456,
        "device.compute.lanes": 64,
    }
    changed(folder, 5, changes=changes)
    build_search_report(folder)
    words = (
        "conv*.1 weight fix6f4, error rounding stochastic, mac accumulator fix24f9, "
        "training.optimiser.learning_rate = 0.01235, compute.lanes = 64"
    )
    assert words in (folder / "report.md").read_text()


def test_a_saving_is_said_of_costs_alone_and_against_the_device_as_it_is(folder: Path):
    changed(folder, 0, values={"width": 15, "error_width": 16})  # no trial has the device as it is
    build_search_report(folder)
    assert "less" not in (folder / "report.md").read_text()
    changed(folder, 0, values={"width": 16, "error_width": 16})
    changed(folder, 5, objectives=[1.2e-4, -0.002])
    assert "120 uJ" not in (folder / "report.md").read_text()
    build_search_report(folder)
    text = (folder / "report.md").read_text()
    assert "| 2 | 60 uJ (33% less) | +0.00 points |" in text
    changed(folder, 5, objectives=[2.7e-4, 0.5])
    build_search_report(folder)
    assert "| 5 | 270 uJ (200% more) |" in (folder / "report.md").read_text()


def test_a_baseline_that_guesses_is_said_on_top_and_nothing_mattered_for_differences_to_it(folder: Path):
    content = json.loads((folder / "trials.json").read_text())
    content["importances"]["test_accuracy_difference"] = {"width": 0.7, "error_width": 0.3}
    (folder / "trials.json").write_text(json.dumps(content))
    with_accuracy(folder, "baseline-seed1", 0.97)
    text = build_search_report(folder).read_text()
    assert "has learned nothing" not in text
    assert len(charts_of(folder)["importance-chart"]["datasets"]["shares"]) == 4
    with_accuracy(folder, "baseline-seed1", 0.12)
    with_accuracy(folder, "baseline-seed2", 0.16)
    text = build_search_report(folder).read_text()
    assert "float32, the baseline of lenet, has learned nothing: it reaches 14%, and guessing gets 10%." in text
    assert {row["objective"] for row in charts_of(folder)["importance-chart"]["datasets"]["shares"]} == {
        "joules per step"
    }
    assert "Nothing is said about test accuracy difference" in text
    with_accuracy(folder, "baseline-seed2", 0.19)  # 15.5 % on average: 1.5 times guessing is the limit
    assert "has learned nothing" not in build_search_report(folder).read_text()


def test_trials_that_all_guess_are_said_on_top(folder: Path):
    with_accuracy(folder, "trial-0002-seed1", 0.1)
    for number in range(6):
        changed(folder, number, metrics={"test_accuracy": 0.11})
    text = build_search_report(folder).read_text()
    assert "No trial of lenet has learned anything: the best reaches 11%, and guessing gets 10%." in text
    changed(folder, 4, metrics={"test_accuracy": 0.4})
    assert "has learned anything" not in build_search_report(folder).read_text()


def test_repeated_trials_are_counted_and_one_seed_is_said_to_be_one(folder: Path):
    changed(folder, 6, state="repeated", failure="", repeats=2)
    text = build_search_report(folder).read_text()
    assert "1 more had the values of earlier ones, and were not trained" in text
    assert "0 of them failed" in text
    assert "A difference of one seed has no interval" not in text
    (folder / "search.json").write_text(json.dumps({**SEARCH, "seeds": [1]}))
    assert "A difference of one seed has no interval" in build_search_report(folder).read_text()


def test_the_front_is_drawn_over_equal_trials_and_the_device_as_it_is_has_a_mark(folder: Path):
    rows = charts_of(folder)["front-1"]["datasets"]["trials"]
    assert [row["kind"] == "front" for row in rows] == [False] * 3 + [True] * 3
    assert [row["trial"] for row in rows if row.get("original")] == [0]
    slices = charts_of(folder)["slice-1-0"]["datasets"]["trials"]
    assert [row["kind"] == "front" for row in slices] == [False] * 3 + [True] * 3
    assert {(row["x"], row["y"]) for row in slices} == {
        (16 - number, 100 * worth[1]) for number, worth in enumerate(WORTH)
    }


def test_a_line_over_the_variables_crosses_each_at_its_value(folder: Path):
    choices = {**VARIABLE, "low": None, "high": None, "choices": ["floor", "up", "even"], "start": "even"}
    search = {**SEARCH, "variable": [SEARCH["variable"][0], {"name": "error_width", **choices}]}
    (folder / "search.json").write_text(json.dumps(search))
    for number in range(6):
        changed(folder, number, values={"width": 16 - 2 * number, "error_width": ["floor", "up", "even"][number % 3]})
    rows = charts_of(folder)["parallel-chart"]["datasets"]["lines"]
    assert {(row["trial"], row["variable"]): row["height"] for row in rows if row["trial"] in (0, 1, 5)} == {
        (0, "width"): 1.0, (1, "width"): 0.8333, (5, "width"): 0.1667,
        (0, "error_width"): 0.0, (1, "error_width"): 0.5, (5, "error_width"): 1.0,
    }  # fmt: skip


def test_the_terminal_has_the_front_and_the_command_that_confirms_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "120")
    search_output(folder).show(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[0] == "the front"
    assert lines[2].split() == ["5", "50", "uJ", "(44%", "less)", "-0.20", "points", "1", "width", "11"]
    assert (
        f"confirm emu study {folder / 'confirm.toml'}    trains the front with seeds that the search did not use"
        in lines
    )
    spaced = folder.rename(folder.with_name("my search"))
    search_output(spaced).show(as_json=False)
    out = capsys.readouterr().out
    assert f"confirm emu study '{spaced / 'confirm.toml'}'    trains the front" in out
    spaced.rename(folder)
    content = json.loads((folder / "trials.json").read_text())
    content["trials"] = content["trials"][3:4]
    (folder / "trials.json").write_text(json.dumps(content))
    search_output(folder).show(as_json=False)
    out = capsys.readouterr().out
    assert "no trial holds every constraint; these miss them by least" in out
    assert "confirm" not in out


def test_the_data_of_a_search_are_its_front_or_the_nearest_trials_and_their_keys_are_documented(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    search_output(folder).show(as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert (data["report"], data["confirm"]) == (str(folder / "report.html"), str(folder / "confirm.toml"))
    assert data["nearest"] == []
    first = data["front"][0]
    assert first["trial"] == 5
    assert list(first["objectives"].values()) == list(WORTH[5])
    assert first["values"]["width"] == 11
    page = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `emu search`"))
    assert [key for key in (*data, *first) if f"`{key}`" not in row] == []
    content = json.loads((folder / "trials.json").read_text())
    content["trials"] = content["trials"][3:4]
    (folder / "trials.json").write_text(json.dumps(content))
    search_output(folder).show(as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert (data["front"], data["confirm"], data["nearest"][0]["trial"]) == ([], None, 3)


def test_without_a_trial_that_holds_the_nearest_are_listed(folder: Path):
    content = json.loads((folder / "trials.json").read_text())
    content["trials"] = content["trials"][3:4]
    (folder / "trials.json").write_text(json.dumps(content))
    text = build_search_report(folder).read_text()
    assert "No trial holds every constraint yet." in text
    assert "The trials that miss the constraints by least" in text


def test_a_search_that_has_just_begun_and_one_of_one_objective_have_pages(folder: Path):
    (folder / "trials.json").unlink()
    assert "0 of 8 trials have ended" in build_search_report(folder).read_text()
    one = {**SEARCH, "objective": SEARCH["objective"][:1]}
    (folder / "search.json").write_text(json.dumps(one))
    short = [{**trial(number, worth), "objectives": [worth[0]]} for number, worth in enumerate(WORTH)]
    (folder / "trials.json").write_text(json.dumps({"trials": short}))
    text = build_search_report(folder).read_text()
    assert "What is possible" not in text
    assert "How the search went on" in text


def test_a_folder_without_a_readable_search_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"the folder of a search must have a readable search\.json"):
        build_search_report(tmp_path)
    (tmp_path / "search.json").write_text(json.dumps(SEARCH))
    (tmp_path / "trials.json").write_text("{")
    with pytest.raises(ConfigError, match=r"readable search\.json and trials\.json"):
        build_search_report(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("search.json", [], "`name` must be given, got nothing in"),
        ("search.json", {**SEARCH, "objective": "x"}, "`objective` must be an array, got 'x' in"),
        ("search.json", {**SEARCH, "variable": [{"name": "width"}]}, "`start` must be given, got nothing in"),
        ("trials.json", [], "`trials` must be an array, got None in"),
        ("trials.json", {"trials": 5}, "`trials` must be an array, got 5 in"),
        ("trials.json", {"trials": ["x"]}, "`trials[0]` must be"),
        ("trials.json", {"trials": [{"number": "?", "state": "failed"}]}, "`number` must be an integer, got '?' in"),
    ],
)
def test_a_damaged_file_of_a_search_is_named_with_what_is_wrong_in_it(
    folder: Path, file: str, content: Any, message: str
):
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        build_search_report(folder)
    assert str(caught.value).startswith(message)
    assert str(folder / file) in str(caught.value)
