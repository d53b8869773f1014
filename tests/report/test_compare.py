"""Runs side by side: where their bits part, what of formats and settings differs, and what cannot be compared."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Run, running
from synthetic_run import write_run

import emu
from emu.errors import ConfigError
from emu.report import chart
from emu.report.comparison import Compared, build_comparison, comparison_page, read_compared
from emu.report.comparison.agreement import Agreement, losses_agree, sentences, weights_agree
from emu.report.comparison.curves import curves_section
from emu.report.comparison.datapaths import datapaths_of, datapaths_section, unit_of
from emu.report.comparison.numbers import numbers_of, numbers_table
from emu.report.comparison.runs import MOST_RUNS
from emu.report.comparison.settings import settings_of, settings_section
from emu.report.pictures.curves import MOST_POINTS

EQUAL_TO_THE_END = [
    "Weights are equal bit for bit at all 4 common log points, up to step 40.",
    "The training loss is equal bit for bit at all 4 common log points, up to step 40.",
    "At the end, after 40 steps, weights, registers and flags are equal bit for bit.",
]


def made(
    folder: Path, losses: list[float], hashes: list[str] | None, *, at: list[int] | None = None, **info: Any
) -> Path:
    """Write a small run with these rows of metrics; `info` is laid over `run.json`."""
    write_run(folder, points=2, samples=20, steps=40, layers=["input", "conv1", "relu1", "fc1", "loss"])
    steps = at or [10 * (i + 1) for i in range(len(losses))]
    columns = {"step": steps, "train_loss": losses, "train_accuracy": [0.5] * len(steps)}
    columns |= {"test_accuracy": [None] * (len(steps) - 1) + [0.75], "test_loss": [None] * (len(steps) - 1) + [1.5]}
    columns |= {} if hashes is None else {"weights_sha256": hashes}
    pq.write_table(pa.table(columns), folder / "metrics.parquet")
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | info))
    return folder


def compared(*folders: Path) -> list[Compared]:
    return read_compared(folders)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return made(tmp_path / "first", [4.0, 3.0, 2.0, 1.0], ["a", "b", "c", "d"])


def said(first: Path, other: Path) -> list[str]:
    return sentences(*compared(first, other))


# ---- where bits part ----


def test_equal_runs_are_equal_to_their_last_step(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0, 3.0, 2.0, 1.0], ["a", "b", "c", "d"])
    assert said(first, other) == EQUAL_TO_THE_END


def test_the_first_log_point_that_differs_is_named_for_weights_and_for_losses(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0, 3.0, 2.0, 1.5], ["a", "b", "x", "d"], weights_sha256="0")
    assert said(first, other) == [
        "Weights are equal bit for bit up to step 20, and differ at step 30, the next log point.",
        "The training loss is equal bit for bit up to step 30, and differs at step 40, the next log point (1 and 1.5).",
        "At the end, after 40 steps, weights are different and registers and flags are equal bit for bit.",
    ]
    assert weights_agree(*compared(first, other)) == Agreement((10, 20, 30, 40), 30)


def test_runs_that_differ_from_the_start_say_so(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.5, 3.0, 2.0, 1.0], ["x", "b", "c", "d"], registers_sha256="0")
    weights, loss, end = said(first, other)
    assert weights == "Weights differ from the first common log point on, step 10."
    assert loss == "The training loss differs from the first common log point on, step 10 (4 and 4.5)."
    assert end == "At the end, after 40 steps, weights are equal bit for bit and registers and flags are different."


def test_losses_are_compared_only_where_both_are_means_of_the_same_steps(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [9.0, 2.0], ["b", "d"], at=[20, 30])
    pair = compared(first, other)
    assert losses_agree(*pair) == Agreement((30,))  # 20 is the end of steps 11..20 there, of 1..20 here
    assert weights_agree(*pair) == Agreement((20, 30), 30)
    none = made(tmp_path / "none", [9.0], ["z"], at=[35])
    assert said(first, none)[:2] == [
        "Weights cannot be compared step by step: the runs have no logged step in common.",
        "Training losses cannot be compared: the runs logged none over the same steps.",
    ]


def test_a_single_common_log_point_is_called_the_only_one(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0], ["a"])
    assert said(first, other)[0] == "Weights are equal bit for bit at the only common log point, up to step 10."


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [(0.0, -0.0, False), (math.nan, math.nan, True), (math.nan, 1.0, False), (1.0, 1.0 + 2**-52, False)],
)
def test_losses_are_compared_by_their_bits(tmp_path: Path, left: float, right: float, same: bool):
    pair = compared(made(tmp_path / "a", [left], ["a"]), made(tmp_path / "b", [right], ["a"]))
    assert losses_agree(*pair).differs_at == (None if same else 10)


def test_a_run_without_hashes_is_named_and_its_losses_are_compared(first: Path, tmp_path: Path):
    old = made(tmp_path / "old", [4.0, 3.0, 2.0, 1.0], None)
    weights, loss, end = said(first, old)
    assert weights == "Weights cannot be compared step by step: old kept no hash of them at log points."
    assert (loss, end) == tuple(EQUAL_TO_THE_END[1:])


def test_masters_of_other_formats_or_layers_are_why_hashes_differ(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0], ["a"])
    info = json.loads((other / "run.json").read_text())
    for row in info["formats"]:
        if (row["layer"], row["role"]) == ("fc1", "master"):
            row["format"] = "fp16"
    (other / "run.json").write_text(json.dumps(info))
    assert said(first, other)[0] == (
        "Weights cannot be equal bit for bit: masters are kept in different formats (fc1: fp32 and fp16)."
    )
    info["formats"] = [row for row in info["formats"] if row["layer"] != "conv1"]
    (other / "run.json").write_text(json.dumps(info))
    assert said(first, other)[0] == "Weights cannot be equal: the networks have different layers with weights."


@pytest.mark.parametrize("info", [{"steps": 39}, {"status": "stopped"}])
def test_the_end_is_compared_only_of_runs_that_ended_after_the_same_steps(
    first: Path, tmp_path: Path, info: dict[str, Any]
):
    other = made(tmp_path / "other", [4.0, 3.0, 2.0, 1.0], ["a", "b", "c", "d"], **info)
    assert said(first, other) == EQUAL_TO_THE_END[:2]


def test_trained_runs_part_where_their_rounding_does(tmp_path: Path):
    small = {"training.steps": 6, "training.batch": 8, "training.log_every": 2, "data.test_images": 20}
    emu.train("mlp", "fixed16", out=tmp_path / "a", overrides=small, report=False)
    emu.train("mlp", "fixed16", out=tmp_path / "again", overrides=small, report=False, backend="reference")
    random = {**small, "precision.gradient.rounding": "stochastic"}
    emu.train("mlp", "fixed16", out=tmp_path / "b", overrides=random, report=False)
    a, again, b = compared(tmp_path / "a", tmp_path / "again", tmp_path / "b")
    assert weights_agree(a, again) == Agreement((2, 4, 6))
    assert losses_agree(a, again) == Agreement((2, 4, 6))
    assert weights_agree(a, b).differs_at == 2
    values = {of: [s.key for s in settings if s.differs] for of, settings in settings_of([a, again, b]).items()}
    assert values == {
        "recipe": ["precision.gradient.rounding"],
        "device": ["precision.gradient.rounding"],
        "run": ["backend"],
    }
    different = {tensor for tensor, paths in datapaths_of([a, again, b]).items() if len(set(paths)) > 1}
    assert {role for _, role in different} == {"gradient"}


# ---- formats ----


@pytest.mark.parametrize(
    ("mac", "text"),
    [
        (None, ""),
        ("exact", "accumulator exact"),
        ({"product": "exact", "accumulator": "exact", "order": "sequential", "rounding": "floor"}, "accumulator exact"),
        ({"product": "fp16", "accumulator": "exact", "order": "tree"}, "products fp16, accumulator exact, tree"),
        ({"accumulator": "fix24f9", "order": "lanes(4)", "rounding": "floor"}, "accumulator fix24f9, lanes(4), floor"),
    ],
)  # fmt: skip
def test_a_unit_is_said_in_a_few_words(mac: Any, text: str):
    assert unit_of(mac) == text


def test_formats_are_grouped_by_role_and_what_differs_is_marked(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0], ["a"])
    info = json.loads((other / "run.json").read_text())
    for row in info["formats"]:
        if row["role"] == "error":
            row["format"] = "fix16f9"
        if (row["layer"], row["role"]) == ("fc1", "weight"):
            row["rounding"] = "stochastic"
    (other / "run.json").write_text(json.dumps(info))
    body = datapaths_section(compared(first, other)).body
    assert "5 of 19 tensors differ. They differ in format, rounding." in body
    shown = body.split("All 19 tensors")[0]
    rows = [re.sub(r"(<[^>]+>)+", "|", row) for row in re.findall(r"<tr>.*?</tr>", shown)[1:]]
    assert rows == [
        "|weight|fc1|fix16f13; nearest_even|fix16f13; |stochastic|",
        "|error|conv1, fc1|fix16f13; nearest_even; accumulator exact|fix16f9|; nearest_even; accumulator exact|",
        "|error|relu1, loss|fix16f13; nearest_even|fix16f9|; nearest_even|",
    ]
    assert body.count("<mark>stochastic</mark>") == 2  # in the groups, and among all tensors


def test_equal_formats_are_said_to_be_equal(first: Path, tmp_path: Path):
    body = datapaths_section(compared(first, made(tmp_path / "other", [4.0], ["a"]))).body
    assert "All 19 tensors have the same format, rounding, overflow rule and unit in all runs." in body
    assert "<mark>" not in body


def test_a_tensor_that_only_one_run_has_is_shown_without_a_format_in_the_other(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0], ["a"])
    info = json.loads((other / "run.json").read_text())
    info["formats"] = [row for row in info["formats"] if row["layer"] != "relu1"]
    (other / "run.json").write_text(json.dumps(info))
    runs = compared(first, other)
    assert datapaths_of(runs)["relu1", "activation"][1] is None
    assert "2 of 19 tensors differ. 2 of them are not in all runs." in datapaths_section(runs).body


# ---- settings ----


def test_values_that_differ_are_in_the_table_and_the_others_are_folded_away(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0], ["a"])
    info = json.loads((other / "run.json").read_text())
    info["recipe"]["training"]["batch"] = 64
    info["recipe"]["network"]["layers"][0]["kernel"] = 3
    info["recipe"]["network"]["parts"] = [{"size": 1}, {"size": 2}]
    info["device"]["description"] = "Something else."
    info["device"]["compute"]["clock_hz"] = {"value": 2.0e9, "source": "elsewhere"}
    info["recipe"]["data"]["source"] = "elsewhere"
    (other / "run.json").write_text(json.dumps(info))
    runs = compared(first, other)
    different = {of: [s for s in settings if s.differs] for of, settings in settings_of(runs).items()}
    assert {setting.key: setting.values for setting in different["recipe"]} == {
        "network.layers[conv1].kernel": ("5", "3"),
        "network.parts[1].size": (None, "1"),
        "network.parts[2].size": (None, "2"),
        "data.source": ("digits", "elsewhere"),
        "training.batch": ("32", "64"),
    }
    assert [setting.key for setting in different["device"]] == ["compute.clock_hz.value"]  # prose is no value
    body = settings_section(runs).body
    assert body.index("training.batch") < body.index("<details>") < body.index("training.seed")
    assert "No value of the run differs." in body
    assert 'class="number"' not in body  # values may be words


# ---- numbers ----


def test_numbers_are_those_of_the_reports_with_differences_to_the_first(first: Path, tmp_path: Path):
    row = {"layer": "conv1", "unit": "memory", "kind": "bytes", "uses": 1, "picojoules": 1.0}
    cost = {"table": "t", "memory": "m", "batch": 1, "joules_per_inference": 1e-6, "energy": [row]}
    cost["joules_per_step"] = 2e-6
    first = made(tmp_path / "costs", [4.0, 1.0], ["a", "b"], cost=cost, simulated_seconds=0.5,
                 metrics={"bytes_sent": 262_500_000})  # fmt: skip
    dearer = {**cost, "joules_per_step": 3e-6}
    other = made(tmp_path / "other", [4.0, 2.0], ["a", "b"], cost=dearer, simulated_seconds=0.25,
                 metrics={"bytes_sent": 9_375_000})  # fmt: skip
    table = pq.read_table(other / "metrics.parquet").to_pydict() | {
        "test_accuracy": [None, 0.5],
        "test_loss": [2.0, 1.23456],
    }
    pq.write_table(pa.table(table), other / "metrics.parquet")
    runs = [numbers_of(run) for run in compared(first, other)]
    own = runs[1]
    assert (own.test_accuracy, own.test_loss, own.train_loss, own.steps, own.status) == (
        0.5,
        1.23456,
        2.0,
        40,
        "finished",
    )
    assert own.overflow is not None
    assert own.underflow is not None
    shares = {tensor: flags.share("underflow") for tensor, flags in compared(first, other)[1].evidence.flags.items()}
    assert own.underflow == (max(shares.values()), own.underflow[1])
    assert shares[own.underflow[1]] == max(shares.values())
    noise = {tensor: each.last for tensor, each in compared(first, other)[1].evidence.noise.items()}
    assert own.noise_db is not None
    assert own.noise_db[0] == min(value for value in noise.values() if not np.isnan(value))
    cells = dict(
        re.findall(r'<th scope="row">([^<]+)</th><td[^>]*>[^<]*</td><td[^>]*>([^<]*)</td>', numbers_table(runs))
    )
    assert cells["test loss"] == "1.235"
    assert cells["test accuracy"] == "50.0% (-25.0 points)"
    assert cells["energy of a step"] == "3 uJ (x 1.5)"
    assert cells["simulated time"] == "250 ms (x 0.5)"
    assert cells["sent between nodes"] == "9.375 MB (x 0.0357)"
    assert cells["state"] == "finished, 40 steps"


def test_a_number_that_no_run_has_has_no_row(first: Path, tmp_path: Path):
    shown = numbers_table([numbers_of(run) for run in compared(first, made(tmp_path / "o", [1.0], ["a"]))])
    assert "simulated time" not in shown
    assert "energy" not in shown
    assert "sent between nodes" not in shown


# ---- the page and the command ----


def test_the_page_has_every_section_links_to_reports_and_no_address(first: Path, tmp_path: Path):
    other = made(tmp_path / "deep" / "other", [4.0], ["x"])
    (other / "report.html").write_text("")
    page = build_comparison([first, str(other)], tmp_path / "pages.html").read_text()
    assert re.findall(r'<section id="(\w+)"', page) == ["numbers", "agreement", "curves", "formats", "settings"]
    assert '<a href="deep/other/report.html">other</a>: lenet on fixed16. ' in page
    assert "<strong>first</strong>" in page  # it has no report
    assert not re.search(r"https?://", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert [path.name for path in tmp_path.glob("*.emu-tmp")] == []


def test_equal_folders_give_equal_pages(first: Path, tmp_path: Path):
    runs = compared(first, made(tmp_path / "other", [4.0], ["x"]))
    assert comparison_page(runs, lambda run: "") == comparison_page(runs, lambda run: "")


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path):
    runs = compared(*(made(tmp_path / at / "run", [4.0], ["a"]) for at in ("a", "b")))
    assert [run.name for run in runs] == ["a/run", "b/run"]


def test_runs_without_any_finite_loss_are_compared_all_the_same(tmp_path: Path):
    folders = [made(tmp_path / name, [math.nan], ["a"]) for name in "ab"]
    for folder in folders:
        (folder / "metrics.parquet").unlink()
    page = comparison_page(compared(*folders), lambda run: "")
    assert "No run has logged a loss or an accuracy that is a finite number." in page


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; gives exit code, stdout and stderr."""
    return running(monkeypatch, capsys)


def test_the_command_prints_numbers_first_differences_and_what_differs(run: Any, first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0, 3.0, 2.0, 1.5], ["a", "b", "x", "y"], weights_sha256="0", seed=2)
    code, out, error = run("compare", str(first), str(other), "--out", str(tmp_path / "page.html"))
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["run", "accuracy", "loss", "overflow", "underflow", "energy/step", "simulated", "took"]
    assert lines[1].split()[:3] == ["first", "75.00%", "1.5000"]
    assert lines[4] == "other and first"
    assert lines[5] == "  Weights are equal bit for bit up to step 20, and differ at step 30, the next log point."
    assert lines[-5:] == [
        "formats   0 of 19 tensors differ in format, rounding, overflow rule or unit",
        "recipe    equal",
        "device    equal",
        "run       seed",
        f"page      {tmp_path / 'page.html'}",
    ]
    assert all(line == line.rstrip() for line in lines)
    assert (tmp_path / "page.html").is_file()


def test_many_values_that_differ_are_counted_after_the_first_four(run: Any, first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0], ["a"])
    info = json.loads((other / "run.json").read_text())
    info["versions"] = {f"library{i}": "1" for i in range(6)}
    (other / "run.json").write_text(json.dumps(info))
    out = run("compare", str(first), str(other), "--out", str(tmp_path / "p.html"))[1]
    assert "run       versions.python, versions.numpy, versions.numba, versions.library0 and 5 more\n" in out


def test_data_for_programs_has_the_same_facts(run: Any, first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [4.0, 3.0, math.nan, 1.0], ["a", "b", "x", "y"], seed=2)
    code, out, _ = run("compare", str(first), str(other), "--json", "--out", str(tmp_path / "page.html"))
    data = json.loads(out)
    assert code == 0
    assert [own["name"] for own in data["runs"]] == ["first", "other"]
    (pair,) = data["agreement"]
    assert (pair["weights_equal_to_step"], pair["weights_differ_at_step"]) == (20, 30)
    assert (pair["loss_equal_to_step"], pair["loss_differs_at_step"]) == (20, 30)
    assert data["runs"][1]["train_loss"] == 1.0
    assert data["runs"][0]["underflow"][1] in [[row["layer"], row["role"]] for row in data["formats"]]
    assert data["settings"]["run"] == {"seed": ["1", "2"]}
    assert len(data["formats"]) == 19
    assert data["page"] == str(tmp_path / "page.html")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["first"], "a comparison must have at least two runs, got only '{0}/first'; name the folder of another run"),
        (["first", "first"],
         "the runs of a comparison must be different folders, got '{0}/first' twice; name each run once"),
        (["first", "nothing"],
         "a run folder must exist, got '{0}/nothing'; `emu train` writes one and prints its name"),
        (["first", "empty"],
         "a run folder must hold run.json, got '{0}/empty' without it; give a folder `emu train` wrote"),
        (["first", "study"],
         "a run to compare must be a folder with run.json, got '{0}/study', which is a study; name runs in it: the "
         "folders in {0}/study/runs"),
        (["first", "search"],
         "a run to compare must be a folder with run.json, got '{0}/search', which is a search; name runs in it, e.g. "
         "{0}/search/runs/key"),
        (["first", ""],
         "a run to compare must be a folder with run.json, got '{0}', which is a folder of runs; name runs in it, e.g. "
         "{0}/first"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_in_one_line(
    run: Any, first: Path, tmp_path: Path, names: list[str], message: str
):
    (tmp_path / "empty").mkdir()
    for kind in ("study", "search"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{kind}.json").write_text("{}")
    made(tmp_path / "search" / "runs" / "key", [1.0], ["a"])
    given = [str(tmp_path / name) if name else str(tmp_path) for name in names]
    assert run("compare", *given) == (2, "", f"emu: {message.format(tmp_path)}\n")
    assert not Path("compare.html").exists()


def test_more_runs_than_colours_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=f"at most {MOST_RUNS} runs, so that their lines can be told apart, got 9"):
        read_compared([tmp_path / str(i) for i in range(MOST_RUNS + 1)])
    with pytest.raises(ConfigError, match="at least two runs, got none"):
        read_compared([])


def test_a_page_that_cannot_be_written_is_refused_with_the_remedy(first: Path, tmp_path: Path):
    other = made(tmp_path / "other", [1.0], ["a"])
    with pytest.raises(ConfigError, match=r"must be a file that can be written, got 'Is a directory' .* with --out"):
        build_comparison([first, other], tmp_path)
    with pytest.raises(ConfigError, match=r"got 'No such file or directory' for .*/no/page.html'; name another one"):
        build_comparison([first, other], tmp_path / "no" / "page.html")


# ---- curves ----


def charts_of(*folders: Path) -> dict[str, Any]:
    return {chart.identifier: chart for chart in curves_section(compared(*folders)).charts}


def test_every_run_has_its_values_its_colour_and_its_dash(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chart, "VALIDATES", True)
    drawn = charts_of(first, made(tmp_path / "other", [4.5, math.nan, 2.5], ["a", "b", "c"]))
    loss = drawn["compared-train-loss"]
    points = [(row["run"], row["step"], row["value"]) for row in loss.spec["datasets"]["rows"]]
    assert points == [
        ("first", 10, 4.0), ("first", 20, 3.0), ("first", 30, 2.0), ("first", 40, 1.0), ("other", 10, 4.5),
        ("other", 30, 2.5),
    ]  # fmt: skip
    assert loss.label == "Training loss of 2 runs over the steps: first ends at 1, other ends at 2.5."
    assert drawn["compared-test-accuracy"].label.endswith("first ends at 75.0%, other ends at 75.0%.")
    for channel, styles in (("color", chart.SERIES_COLOURS), ("strokeDash", chart.SERIES_DASHES)):
        scale = loss.spec["encoding"][channel]["scale"]
        assert scale["domain"] == ["first", "other"]
        assert scale["range"] == [list(style) if isinstance(style, tuple) else style for style in styles[:2]]
    assert loss.spec["encoding"]["x"]["scale"]["domain"] == [0, 40]


@pytest.mark.parametrize(("largest", "kind"), [(30.0, None), (30.1, "log")])
def test_losses_that_differ_much_have_a_logarithmic_axis(tmp_path: Path, largest: float, kind: str | None):
    drawn = charts_of(made(tmp_path / "a", [largest], ["a"]), made(tmp_path / "b", [1.0], ["a"]))
    scale = drawn["compared-train-loss"].spec["encoding"]["y"]["scale"]
    assert scale.get("type") == kind
    assert scale["nice"] is True  # points do not lie on the edge
    assert drawn["compared-train-accuracy"].spec["encoding"]["y"]["scale"] == {"domain": [0, 1]}


def test_a_loss_of_zero_has_no_logarithm(tmp_path: Path):
    drawn = charts_of(made(tmp_path / "a", [0.0], ["a"]), made(tmp_path / "b", [100.0], ["a"]))
    assert "type" not in drawn["compared-train-loss"].spec["encoding"]["y"]["scale"]


def test_a_long_curve_is_thinned_and_keeps_its_first_and_last_point(tmp_path: Path):
    count = 2 * MOST_POINTS + 2
    long = made(tmp_path / "long", [float(i) for i in range(count)], ["a"] * count)
    drawn = charts_of(long, made(tmp_path / "short", [1.0], ["a"]))
    steps = [row["step"] for row in drawn["compared-train-loss"].spec["datasets"]["rows"] if row["run"] == "long"]
    assert (steps[0], steps[1], steps[-1]) == (10, 40, 10 * count)
    assert len(steps) <= MOST_POINTS
    assert not drawn["compared-train-loss"].spec["mark"]["point"]
    few = charts_of(made(tmp_path / "c", [1.0], ["a"]), tmp_path / "short")["compared-train-loss"]
    assert few.spec["mark"]["point"]
