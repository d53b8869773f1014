"""Studies: a grid of runs shared by processes, killed, restarted, with failures that stop nobody else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import emu
from emu.report.study.comparison import Difference
from emu.training.study import chosen, load_study

GRID = """
name = "small"
description = "What a test needs."
baseline = "float32"

[[grid]]
models = ["mlp"]
devices = ["float32", "fixed8"]
seeds = [1, 2]
[[grid.settings]]
set = {{ "training.steps" = {steps}, "training.batch" = 8, "data.test_images" = 20, "training.log_every" = 2 }}
"""
BROKEN = """
[[grid]]
models = ["mlp"]
devices = ["float32"]
seeds = [1]
[[grid.settings]]
name = "broken"
set = { "data.source" = "nowhere.npz" }
"""


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def start(study: Path, out: Path, workers: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "emu", "study", str(study), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(study: Path, out: Path, workers: int = 2) -> str:
    process = start(study, out, workers)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output + errors


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(written(folder, GRID.format(steps=12)), folder / "out")
    return folder / "out"


def pages(out: Path) -> tuple[str, str]:
    return (out / "report.html").read_text(), (out / "report.md").read_text()


@pytest.mark.slow
def test_a_study_has_a_run_for_every_case_and_a_table_of_paired_differences(undisturbed: Path):
    assert sorted(path.name for path in (undisturbed / "runs").iterdir()) == [
        f"mlp-{device}-plain-seed{seed}" for device in ("fixed8", "float32") for seed in (1, 2)
    ]
    page, table = pages(undisturbed)
    assert "4 of 4 runs are finished" in page
    assert 'href="runs/mlp-fixed8-plain-seed1/report.html"' in page
    assert [line.split(" | ")[0] for line in table.splitlines()[4:]] == ["| float32", "| fixed8"]


@pytest.mark.slow
def test_the_report_command_builds_a_studys_page_again(undisturbed: Path):
    before = pages(undisturbed)
    for name in ("report.html", "report.md"):
        (undisturbed / name).unlink()
    subprocess.run([sys.executable, "-m", "emu", "report", str(undisturbed)], check=True, capture_output=True)
    assert pages(undisturbed) == before


@pytest.mark.slow
def test_a_finished_study_runs_nothing_again(undisturbed: Path):
    before = {path: path.stat().st_mtime_ns for path in (undisturbed / "runs").rglob("*")}
    expected = pages(undisturbed)
    output = run(undisturbed.parent / "study.toml", undisturbed)
    assert "seed" not in output
    assert {path: path.stat().st_mtime_ns for path in (undisturbed / "runs").rglob("*")} == before
    assert pages(undisturbed) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2.0, 3.5, 5.0, 6.5])
def test_a_study_killed_and_restarted_gives_the_same_report(seconds: float, undisturbed: Path, tmp_path: Path):
    study, out = written(tmp_path, GRID.format(steps=12)), tmp_path / "out"
    process = start(study, out)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(1.5)  # its workers end with it
    run(study, out, workers=1)
    assert pages(out) == pages(undisturbed)
    for name in ("weights_sha256", "registers_sha256"):
        results = [
            [
                json.loads((folder / "runs" / run / "run.json").read_text())[name]
                for run in sorted(os.listdir(out / "runs"))
            ]
            for folder in (out, undisturbed)
        ]
        assert results[0] == results[1]


def test_a_failing_run_is_shown_with_its_error_and_the_others_go_on(tmp_path: Path):
    grid = GRID.format(steps=2).partition("\n\n")[2].replace("[1, 2]", "[1]").replace(', "fixed8"', "")
    study, out = written(tmp_path, BROKEN + grid), tmp_path / "out"
    study.write_text('name = "failing"\nbaseline = "float32"\n' + study.read_text())
    output = run(study, out)
    reason = "`source` of [data] must be 'digits' or an existing path, got 'nowhere.npz'"
    assert f"mlp-float32-broken-seed1: failed: {reason}" in output
    page, table = pages(out)
    assert "1 of 2 runs are finished" in page
    assert reason in table
    assert "Runs that failed" in page


@pytest.mark.slow
def test_only_the_runs_of_a_pattern_are_run_and_the_rest_is_left(tmp_path: Path):
    study, out = written(tmp_path, GRID.format(steps=2)), tmp_path / "out"
    command = [sys.executable, "-m", "emu", "study", str(study), "--out", str(out), "--only", "*-fixed8-*-seed2"]
    subprocess.run(command, check=True, capture_output=True)
    assert [path.name for path in (out / "runs").iterdir()] == ["mlp-fixed8-plain-seed2"]
    assert "1 of 4 runs are finished" in pages(out)[0]


def test_a_pattern_that_matches_no_run_is_refused(tmp_path: Path):
    cases = list(load_study(written(tmp_path, GRID.format(steps=2))).cases())
    assert chosen(cases, []) == cases
    with pytest.raises(emu.ConfigError, match=r"got 'lenet-\*', which matches none of 4, .* mlp-float32-plain-seed1"):
        chosen(cases, ["mlp-*", "lenet-*"])


@pytest.mark.parametrize(("text", "said"), [
    ('name = "x"\n[[grid]]\nmodels = ["mpl"]\ndevices = ["float32"]\nseeds = [1]', "'mpl'; did you mean 'mlp'?"),
    ('name = "x"\n[[grid]]\nmodels = ["mlp"]\ndevices = ["fixed8"]\nseeds = [1]', "`baseline` must be a device"),
    ('name = "x"\n[[grid]]\nmodels = ["mlp"]\ndevices = ["float32"]\nseeds = [1, 1]', "must be its own, got mlp"),
    ('name = "x"\n[[grid]]\nmodels = ["mlp"]\ndevices = ["float32"]\nseeds = []', "`seeds`"),
    ('name = "x"\n[[grid]]\nmodel = ["mlp"]\ndevices = ["float32"]\nseeds = [1]', "did you mean 'models'?"),
])  # fmt: skip
def test_a_study_that_breaks_a_rule_is_refused_before_anything_runs(text: str, said: str, tmp_path: Path):
    with pytest.raises(emu.EmuError) as caught:
        load_study(written(tmp_path, text))
    assert said in str(caught.value)


def test_differences_have_the_interval_of_students_t():
    """Of 1, 2, 3, 4, 5 points: mean 3, deviation sqrt(2.5), half 2.776 * sqrt(0.5)."""
    found = Difference.of([0.01, 0.02, 0.03, 0.04, 0.05])
    assert str(found) == "+3.00 (+1.04 .. +4.96)"
    assert not found.is_failure
    assert not Difference.of([-0.01]).is_failure, "one pair has no interval"
    assert Difference.of([-0.02, -0.0201, -0.0199]).is_failure
    assert str(Difference.of([0.0, 0.02] * 20)) == "+1.00 (+0.68 .. +1.32)"  # t of 39 degrees: 2.0227
    assert not Difference.of([-0.02, 0.0]).is_failure
