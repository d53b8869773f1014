"""The page of a sensitivity analysis, from files that are made up; in a browser, too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_report_in_a_browser import BROWSER, FRAME, visit

from emu.errors import ConfigError
from emu.report.sensitivity import build_sensitivity_report, read_sensitivity
from emu.report.sensitivity.saving_picture import saving_section
from emu.report.sensitivity.words import conclusions, header, lost, saving

in_a_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium"),
]
LAYERS = ("conv1", "a_layer_with_a_very_long_name_that_nobody_would_give<b>")


def row(layer: str, role: str, bits: int, seeds: dict[int, tuple[float, float]], **given: Any) -> dict[str, Any]:
    counted = given.pop("counted", {"changed": 3, "spoilt": 2, "mended": 1})
    results = {
        str(seed): {
            "accuracy": accuracy, "baseline": base, "loss": 0.3, "baseline_loss": 0.1, "overflow": 0.0,
            "underflow": 0.25, **counted,
        }
        for seed, (accuracy, base) in seeds.items()
    }  # fmt: skip
    own = {"passes": ["relu1"] if role == "activation" else [], "own": "fix16f8", "format": f"fix{bits}f{bits - 3}"}
    plain = {"layer": layer, "role": role, **own, "own_bits": 16, "bits": bits, "saving": 0.1 + 0.01 * bits}
    return {"key": f"{layer}-{role}-{bits}", **plain, "results": results, "failure": "", **given}


#: layer, role, bits and accuracy; the unchanged device has 0.9.
WORTH = [
    (LAYERS[0], "weight", 8, 0.9), (LAYERS[0], "weight", 4, 0.895), (LAYERS[0], "activation", 8, 0.9),
    (LAYERS[0], "activation", 4, 0.2), (LAYERS[1], "weight", 8, 0.91), (LAYERS[1], "weight", 4, 0.8949),
]  # fmt: skip


def about(rows: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    return {
        "name": "made-up", "model": "lenet", "network": "made-up", "device": "fixed16", "how": "evaluation",
        "steps": None, "examples": 1000, "chance": 0.1, "baseline": {"1": 0.9}, "margin": 0.005, "formats": [],
        "asked": [[one["layer"], one["role"], one["format"]] for one in rows], "energy_of": "an inference",
        "why_no_energy": "", "search": "search.toml", "together": [], **given,
    }  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]], **given: Any) -> Path:
    (folder / "sensitivity.json").write_text(json.dumps(about(rows, **given)))
    (folder / "rows.json").write_text(json.dumps({"rows": rows}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [row(layer, role, bits, {1: (accuracy, 0.9)}) for layer, role, bits, accuracy in WORTH]
    failed = row(LAYERS[1], "bias", 4, {}, failure="no such <i>thing</i>")
    together = [{"column": "8 bits", "tensors": 3, "accuracy": 0.88, "lost": 0.02, "saving": 0.5}]
    return written(tmp_path, [*rows, failed], together=together)


def text_of(page: Path) -> str:
    return re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)


def test_rows_are_ranked_and_a_loss_of_exactly_the_margin_is_tolerated(folder: Path):
    found = read_sensitivity(folder)
    ranked = [(one.layer, one.role, one.bits) for one in found.ranked()]
    assert ranked[:4] == [
        (LAYERS[1], "bias", 4),  # failed
        (LAYERS[0], "activation", 4),
        (LAYERS[1], "weight", 4),
        (LAYERS[0], "weight", 4),
    ]
    assert ranked[-1] == (LAYERS[1], "weight", 8)
    tolerated = {(one.layer, one.role): one.bits for one in found.narrowest().values()}
    assert tolerated == {(LAYERS[0], "weight"): 4, (LAYERS[0], "activation"): 8, (LAYERS[1], "weight"): 8}


def test_answers_and_then_the_test_loss_rank_changes_that_lose_the_same(tmp_path: Path):
    def changing(layer: str, changed: int, loss: float) -> dict[str, Any]:
        one = row(layer, "weight", 8, {1: (0.9, 0.9)}, counted={"changed": changed, "spoilt": 0, "mended": 0})
        one["results"]["1"]["loss"] = loss
        return one

    rows = [changing("a", 1, 0.3), changing("b", 2, 0.1), changing("c", 1, 0.5), changing("d", 1, 0.4)]
    found = read_sensitivity(written(tmp_path, rows))
    assert [one.layer for one in found.ranked()] == ["b", "c", "d", "a"]
    assert found.rows[0].loss_increase == pytest.approx(0.3 - 0.1, abs=1e-15)  # the same subtraction


def test_marks_that_lie_close_together_have_one_text(tmp_path: Path):
    savings = {"a": 0.1, "b": 0.101, "c": 0.3, "d": 0.5}
    rows = [row(layer, "weight", 8, {1: (0.9, 0.9)}, saving=saving) for layer, saving in savings.items()]
    section = saving_section(read_sensitivity(written(tmp_path, rows)))
    assert section is not None
    drawn = section.charts[0].spec["datasets"]["rows"]
    assert {one["layer"]: one["label"] for one in drawn} == {"a": "8", "b": "", "c": "8", "d": "8"}


def test_conclusions_name_what_cannot_go_and_what_is_lost_together(folder: Path):
    eight, four = conclusions(read_sensitivity(folder))
    assert eight == (
        "8 bits: all 3 tensors lose at most 0.5 points alone. Together these 3 lose 2.00 points, and save 50% of the "
        "energy of an inference."
    )
    assert four.startswith("4 bits: 1 of 4 tensors loses at most 0.5 points alone. Not: bias of a_layer")
    assert "activation of conv1 (70.00)" in four


def test_what_wins_together_loses_nothing(tmp_path: Path):
    together = [{"column": "8 bits", "tensors": 1, "accuracy": 0.91, "lost": -0.01, "saving": None}]
    (text,) = conclusions(
        read_sensitivity(written(tmp_path, [row("a", "weight", 8, {1: (0.9, 0.9)})], together=together))
    )
    assert text == "8 bits: the only tensor loses at most 0.5 points alone. The tolerated tensor gains 1.00 points."
    (folder := tmp_path / "even").mkdir()
    together[0]["lost"] = 0.0
    (text,) = conclusions(
        read_sensitivity(written(folder, [row("a", "weight", 8, {1: (0.9, 0.9)})], together=together))
    )
    assert text.endswith("alone. The tolerated tensor loses nothing.")


def test_a_loss_that_rounds_to_nothing_is_less_than_the_last_digit(tmp_path: Path):
    together = [{"column": "8 bits", "tensors": 2, "accuracy": 0.9, "lost": 0.00004, "saving": None}]
    rows = [row(layer, "weight", 8, {1: (0.9, 0.9)}) for layer in "ab"]
    (text,) = conclusions(read_sensitivity(written(tmp_path, rows, together=together)))
    assert text == "8 bits: all 2 tensors lose at most 0.5 points alone. Together these 2 lose less than 0.01 points."
    (folder := tmp_path / "gains").mkdir()
    together[0]["lost"] = -0.00004
    (text,) = conclusions(read_sensitivity(written(folder, rows, together=together)))
    assert text.endswith("Together these 2 gain less than 0.01 points.")


def test_formats_that_take_more_energy_save_less_than_nothing(tmp_path: Path):
    together = [{"column": "8 bits", "tensors": 1, "accuracy": 0.9, "lost": 0.0, "saving": -0.03}]
    rows = [row("a", "weight", 8, {1: (0.9, 0.9)}, saving=-0.03)]
    measured = read_sensitivity(written(tmp_path, rows, together=together))
    assert conclusions(measured)[0].endswith("loses nothing, and adds 3% to the energy of an inference.")
    assert saving(measured.rows[0]) == "-3%"


def test_the_page_escapes_what_it_shows_and_says_what_it_does_not_tell(folder: Path):
    page = text_of(build_sensitivity_report(folder))
    assert "<b>" not in page
    assert "no such &lt;i&gt;thing&lt;/i&gt;" in page
    assert "what other combinations lose is not known from this" in page
    assert "whether a network can be trained in the narrower ones" in page
    assert "conv1 +1: with relu1" in page
    assert "3 (-2 +1)" in page
    assert "under 25%" in page


def test_identifiers_of_a_page_occur_once(folder: Path):
    page = text_of(build_sensitivity_report(folder))
    identifiers = re.findall(r' id="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_seeds_give_intervals(tmp_path: Path):
    none = {"changed": None, "spoilt": None, "mended": None}
    seeds = {1: (0.88, 0.9), 2: (0.90, 0.91), 3: (0.87, 0.9)}
    rows = [row("conv1", "error", 8, seeds, counted=none)]
    baseline = {str(seed): base for seed, (_, base) in seeds.items()}
    found = read_sensitivity(written(tmp_path, rows, how="training", steps=50, baseline=baseline))
    # differences 2, 1 and 3 points: mean 2, standard deviation 1, t(2) = 4.303
    assert lost(found.rows[0]) == "2.00 (-0.48 .. +4.48)"
    assert header(found) == ["layer", "role", "format", "points lost", "loss", "saved", "events"]
    page = text_of(build_sensitivity_report(tmp_path))
    assert "trained for 50 steps with 3 seeds" in page
    assert "One seed is one seed" not in page
    assert "4 bits" not in page


def test_one_seed_is_said_to_be_one_seed(tmp_path: Path):
    none = {"changed": None, "spoilt": None, "mended": None}
    rows = [row("conv1", "error", 8, {1: (0.88, 0.9)}, counted=none)]
    page = text_of(build_sensitivity_report(written(tmp_path, rows, how="training", steps=50)))
    assert "One seed is one seed" in page


def test_a_baseline_at_chance_has_no_losses_and_no_pictures(tmp_path: Path):
    rows = [row("conv1", "weight", 8, {1: (0.1, 0.15)}), row("conv1", "weight", 4, {1: (0.02, 0.15)})]
    found = read_sensitivity(written(tmp_path, rows, baseline={"1": 0.15}))
    assert found.is_at_chance
    page = text_of(build_sensitivity_report(tmp_path))
    assert "The unchanged device is at chance: 15.0% are right, and guessing gets 10%" in page
    assert "points lost" not in page
    assert 'class="chart"' not in page
    assert [one.bits for one in found.ranked()] == [8, 4]
    above = {**about(rows), "baseline": {"1": 0.1501}}
    (tmp_path / "sensitivity.json").write_text(json.dumps(above))
    assert not read_sensitivity(tmp_path).is_at_chance


def test_without_energy_the_page_says_why(tmp_path: Path):
    rows = [row("conv1", "weight", 8, {1: (0.9, 0.9)}, saving=None)]
    page = text_of(build_sensitivity_report(written(tmp_path, rows, why_no_energy="no table has e3m9")))
    assert "No energy is known: no table has e3m9" in page


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sensitivity.json", "{", "the folder of a sensitivity analysis must have a readable"),
        ("rows.json", "{", "the folder of a sensitivity analysis must have a readable"),
        ("sensitivity.json", '{"rows": [{}]}', "`network` must be given, got nothing in"),
        ("rows.json", '{"rows": [{}]}', "`layer` must be given, got nothing in"),
        ("rows.json", '{"rows": ["x"]}', "`rows[0]` must be"),
        ("rows.json", "[]", "`rows` must be given, got nothing in"),
    ],
)
def test_a_damaged_folder_is_refused_in_a_sentence(folder: Path, name: str, content: str, message: str):
    (folder / name).write_text(content)
    with pytest.raises(ConfigError) as caught:
        build_sensitivity_report(folder)
    assert str(caught.value).startswith(message)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("mark", [pytest.param(None, marks=in_a_browser)])
def test_every_chart_is_drawn_in_a_browser(folder: Path, tmp_path: Path, scheme: str, mark: None):
    option = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    document, console, requests = visit(build_sensitivity_report(folder), tmp_path, option)
    assert (console, requests) == ([], [])
    assert 'data-ready="true"' in document
    charts = re.findall(r'<div class="chart[^"]*" id="([^"]+)"[^>]*>(.{0,300})', document, re.DOTALL)
    assert [name for name, _ in charts] == ["grid-0", "grid-1", "loss-by-saving"]
    assert all("<svg" in inside for _, inside in charts)
    assert "70" in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL).split("grid-1")[1]


@pytest.mark.parametrize("width", [pytest.param(width, marks=in_a_browser) for width in (390, 1024, 1440)])
def test_nothing_sticks_out_of_the_page(folder: Path, tmp_path: Path, width: int):
    report = build_sensitivity_report(folder)
    frame = report.with_name(f"frame{width}.html")
    frame.write_text(FRAME.format(width=width, name=report.name))
    document, _, _ = visit(frame, tmp_path, "--allow-file-access-from-files", "--disable-web-security")
    widths = re.search(r'data-widths="(\d+) (\d+)"', document)
    assert widths is not None
    content, shown = map(int, widths.groups())
    assert content <= shown <= width
