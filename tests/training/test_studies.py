"""Studies: a grid of runs shared by processes, killed, restarted, with failures that stop nobody else."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import emu
from emu._interrupt import Interrupted
from emu.cli.study import StudyOptions, is_settled, rebuild_study_report, run_study
from emu.jobs import Job, run_job
from emu.jobs.sending import Sending
from emu.report import guessing
from emu.report.study.comparison import compare
from emu.report.study.difference import Difference
from emu.report.study.markdown import tables
from emu.report.study.page import study_page
from emu.training.folders.study_folder import StudyFolder
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


#: Its runs, in order.
KEYS = [f"mlp-{device}-plain-seed{seed}" for seed in (1, 2) for device in ("float32", "fixed8")]


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def start(study: Path, out: Path, workers: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "emu", "study", str(study), "--out", str(out), "--workers", str(workers)]
    command.append("--no-cache")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output + errors


def run(study: Path, out: Path, workers: int = 2) -> str:
    return ended(start(study, out, workers))


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(written(folder, GRID.format(steps=40)), folder / "out")
    return folder / "out"


def train_here(study: Path, out: Path) -> None:
    """Run what is left of a study in this process."""
    home = StudyFolder(out)
    for case in load_study(study).cases():
        if not is_settled(case, home):
            failure = run_job(Job.of(case.key, case.recipe, case.machine, home.run_folder(case).as_posix()))
            if failure is not None:
                home.fail(case, failure)


def pages(out: Path) -> tuple[str, str]:
    return (out / "report.html").read_text(), (out / "report.md").read_text()


@pytest.mark.slow
def test_a_study_has_a_run_for_every_case_and_a_table_of_paired_differences(undisturbed: Path):
    assert sorted(path.name for path in (undisturbed / "runs").iterdir()) == sorted(KEYS)
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


def moments() -> list[str]:
    """Files of a study whose appearance is a moment: before any run, and then in a drawn one."""
    draw = random.Random(5)
    begun = [f"attempts/{draw.choice(KEYS[:3])}/{name}" for name in ("run.json", "checkpoint.safetensors")]
    return ["study.json", *begun, f"runs/{draw.choice(KEYS[:2])}/report.html"]  # one run at least is left then


@pytest.mark.slow
@pytest.mark.parametrize("moment", moments())
def test_a_study_killed_and_restarted_gives_the_same_report(moment: str, undisturbed: Path, tmp_path: Path):
    study, out = written(tmp_path, GRID.format(steps=40)), tmp_path / "out"
    process = start(study, out)
    wait_for((out / moment).is_file)
    os.killpg(process.pid, signal.SIGKILL)  # its workers as well
    process.communicate()
    begun = [json.loads(path.read_text())["status"] for path in out.glob("*/*/run.json")]
    assert begun.count("finished") < len(KEYS)
    assert begun or moment == "study.json"
    run(study, out, workers=1)
    assert pages(out) == pages(undisturbed)
    for name in ("weights_sha256", "registers_sha256"):
        results = [
            [json.loads((folder / "runs" / key / "run.json").read_text())[name] for key in KEYS]
            for folder in (out, undisturbed)
        ]
        assert results[0] == results[1]


def is_running(process: int) -> bool:
    """Whether a process is there and no zombie, which some other process has yet to take note of."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def holder(out: Path, key: str) -> int:
    """The process that runs a case, 0 while there is none."""
    try:
        return int((out / "claims" / f"{key}.process").read_text().split("\n")[0].rpartition(":")[2])
    except (OSError, ValueError):
        return 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="reads the processes of Linux")
def test_workers_end_with_the_study_that_started_them(tmp_path: Path):
    study, out = written(tmp_path, GRID.format(steps=2000)), tmp_path / "out"
    process = start(study, out)
    wait_for(lambda: holder(out, KEYS[0]) and holder(out, KEYS[1]))
    workers = [holder(out, key) for key in KEYS[:2]]
    assert all(map(is_running, workers))
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(is_running, workers)))
    assert not list((out / "runs").glob("*/report.html"))


@pytest.mark.slow
def test_a_run_whose_process_is_killed_twice_has_failed_and_the_others_go_on(tmp_path: Path):
    study, out = written(tmp_path, GRID.format(steps=100)), tmp_path / "out"
    process = start(study, out)
    killed: set[int] = set()
    for _ in range(2):
        wait_for(lambda: holder(out, KEYS[1]) not in {0, *killed})
        killed.add(holder(out, KEYS[1]))
        os.kill(holder(out, KEYS[1]), signal.SIGKILL)
    output = ended(process)
    assert f"{KEYS[1]}: failed: its process ended 2 times, with signal 9" in output
    assert "3 of 4 runs are finished" in pages(out)[0]
    assert sum("%" in line for line in output.splitlines()) == 3


@pytest.mark.slow
def test_a_failed_run_is_tried_again_only_where_that_is_asked_for(tmp_path: Path):
    study, out = written(tmp_path, GRID.format(steps=2)), tmp_path / "out"
    in_the_way = StudyFolder(out).path / "runs" / KEYS[3]
    in_the_way.touch()
    assert f"{KEYS[3]}: failed: the folder of a run must be writable" in run(study, out)
    in_the_way.unlink()
    assert "3 of 4 runs are finished" in rebuilt(study, out)
    assert "4 of 4 runs are finished" in rebuilt(study, out, retry_failed=True)


def rebuilt(study: Path, out: Path, *, retry_failed: bool = False) -> str:
    options = StudyOptions(workers=1, retry_failed=retry_failed, cache=False)
    return run_study(study, out, options).read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of two steps, run in this process; take a `copy`."""
    folder = tmp_path_factory.mktemp("finished")
    train_here(written(folder, GRID.format(steps=2)), folder / "out")
    rebuilt(folder / "study.toml", folder / "out")
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy" / "study.toml", tmp_path / "copy" / "out"


@pytest.mark.parametrize("only", [[], ["*-seed1"]])
def test_a_study_that_the_folders_runs_are_not_of_is_refused_and_the_folder_stays(
    only: list[str], copy: tuple[Path, Path]
):
    study, out = copy
    shutil.rmtree(out / "runs" / KEYS[0])
    before = (out / "study.json").read_text()
    study.write_text(GRID.format(steps=7))
    with pytest.raises(emu.ConfigError, match=f"must hold its own runs, got .*{KEYS[1]}, whose recipe"):
        run_study(study, out, StudyOptions(only=only))
    assert (out / "study.json").read_text() == before
    assert "3 of 4 runs are finished" in rebuild_study_report(out).read_text()


def test_a_folder_that_is_no_run_of_the_study_is_left_alone(copy: tuple[Path, Path]):
    study, out = copy
    before = pages(out)
    shutil.copytree(out / "runs" / KEYS[0], out / "runs" / "mlp-float32-plain-seed3")
    (out / "runs" / "notes").mkdir()
    rebuilt(study, out)
    assert pages(out) == before
    assert sorted(path.name for path in (out / "runs").iterdir()) == [
        *sorted([*KEYS, "mlp-float32-plain-seed3"]),
        "notes",
    ]


@pytest.mark.slow
def test_a_finished_run_without_its_page_gets_it(copy: tuple[Path, Path]):
    study, out = copy
    page = out / "runs" / KEYS[2] / "report.html"
    expected = page.read_text()
    weights = page.with_name("checkpoint.safetensors").stat().st_mtime_ns
    page.unlink()
    rebuilt(study, out)
    assert page.read_text() == expected
    assert page.with_name("checkpoint.safetensors").stat().st_mtime_ns == weights


def test_a_finished_run_whose_page_cannot_be_built_has_failed_until_it_is_tried_again(copy: tuple[Path, Path]):
    study, out = copy
    page, home = out / "runs" / KEYS[2] / "report.html", StudyFolder(out)
    page.unlink()
    page.mkdir()
    train_here(study, out)
    text = rebuilt(study, out)
    assert "4 of 4 runs are finished" in text
    assert "mlp on float32, seed 2:" in text
    assert "report.html must be writable, got" in text
    assert "**" not in pages(out)[1], "the device did not fail"
    page.rmdir()
    case = list(load_study(study).cases())[2]
    assert is_settled(case, home)
    home.forget_failure(case)
    train_here(study, out)
    assert page.is_file()
    assert "Runs that failed" not in rebuilt(study, out)


def test_what_went_wrong_first_is_unknown_where_the_evidence_is_damaged(copy: tuple[Path, Path]):
    study, out = copy
    flags = out / "runs" / KEYS[1] / "flags.parquet"
    flags.write_bytes(flags.read_bytes()[:100])
    rebuilt(study, out)
    for text in pages(out):
        assert text.count("unknown: flags.parquet could not be read (") == 1
    flags.unlink()
    rebuilt(study, out)
    assert "| unknown: flags.parquet is not in this run folder" in pages(out)[1]


def test_a_tensor_that_went_wrong_has_an_unknown_register_where_that_is_damaged(copy: tuple[Path, Path]):
    study, out = copy
    assert "its register is empty" in pages(out)[1]
    for key in KEYS:
        (out / "runs" / key / "registers.parquet").write_bytes(b"")
    rebuilt(study, out)
    assert "its register is empty" not in pages(out)[1]
    assert "its register is unknown: registers.parquet could not be read (" in pages(out)[1]


@pytest.mark.parametrize("end", [KeyboardInterrupt, emu.ConfigError])
def test_a_study_that_is_interrupted_trims_the_cache_of_runs_as_well(
    end: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    closed: list[Sending] = []

    def ended(on: str, workers: int | None) -> None:
        raise end("no engine")

    monkeypatch.setattr("emu.cli.study.open_engine", ended)
    monkeypatch.setattr(Sending, "__exit__", lambda sending, *_: closed.append(sending))
    (file := tmp_path / "grid.toml").write_text(GRID.format(steps=6))
    with pytest.raises((Interrupted, end)):
        run_study(file, tmp_path / "out", StudyOptions(cache=False))
    assert len(closed) == 1


def test_a_failing_run_is_shown_with_its_error_and_the_others_go_on(tmp_path: Path):
    grid = GRID.format(steps=2).partition("\n\n")[2].replace("[1, 2]", "[1]").replace(', "fixed8"', "")
    study, out = written(tmp_path, BROKEN + grid), tmp_path / "out"
    study.write_text('name = "failing"\nbaseline = "float32"\n' + study.read_text())
    output = run(study, out, workers=1)
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
    command.append("--no-cache")
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
    ('name = "x"\n[[grid]]\nmodels = ["mlp"]\ndevices = ["float32"]\nseeds = [1, 1]', "must be listed once, got mlp"),
    ('name = "x"\n[[grid]]\nmodels = ["mlp"]\ndevices = ["float32"]\nseeds = []', "`seeds`"),
    ('name = "x"\n[[grid]]\nmodel = ["mlp"]\ndevices = ["float32"]\nseeds = [1]', "did you mean 'models'?"),
])  # fmt: skip
def test_a_study_that_breaks_a_rule_is_refused_before_anything_runs(text: str, said: str, tmp_path: Path):
    with pytest.raises(emu.EmuError) as caught:
        load_study(written(tmp_path, text))
    assert said in str(caught.value)


def test_a_study_is_checked_by_an_optimised_python_too(tmp_path: Path):
    path = written(tmp_path, 'name = "x"\n[[grid]]\nmodels = ["mpl"]\ndevices = ["float32"]\nseeds = [1]')
    script = "import pathlib, sys\nfrom emu.training.study import load_study\nload_study(pathlib.Path(sys.argv[1]))"
    process = subprocess.run([sys.executable, "-O", "-c", script, str(path)], capture_output=True, text=True)
    assert "did you mean 'mlp'?" in process.stderr


def test_differences_have_the_interval_of_students_t():
    """Of 1, 2, 3, 4, 5 points: mean 3, deviation sqrt(2.5), half 2.776 * sqrt(0.5)."""
    found = Difference.of([0.01, 0.02, 0.03, 0.04, 0.05])
    assert str(found) == "+3.00 (+1.04 .. +4.96)"
    assert not found.is_failure
    assert not Difference.of([-0.01]).is_failure, "one pair has no interval"
    assert Difference.of([-0.02, -0.0201, -0.0199]).is_failure
    assert str(Difference.of([0.0, 0.02] * 20)) == "+1.00 (+0.68 .. +1.32)"  # t of 39 degrees: 2.0227
    assert not Difference.of([-0.02, 0.0]).is_failure


def test_the_table_is_bold_where_a_device_fails(finished: Path):
    rows = compare(load_study(finished / "study.toml"), StudyFolder(finished / "out"))
    worse = [replace(row, difference=Difference(-0.02, 0.001), baseline=0.9) for row in rows[1:]]
    lines = tables([("mlp", [(row, "nothing") for row in [rows[0], *worse]])]).splitlines()[4:]
    assert ["**" in line for line in lines] == [False, True]
    assert "| **-2.00 (-2.10 .. -1.90)** |" in lines[1]
    broken = replace(rows[1], difference=None, accuracies={}, failures={1: "no space left"})
    assert "| **\u2013** |" in tables([("mlp", [(broken, "nothing")])])


def test_the_page_says_that_a_baseline_guesses_and_draws_no_difference_to_it(finished: Path):
    """Two steps teach a network nothing."""
    page = pages(finished / "out")[0]
    assert "float32, the baseline of mlp, has learned nothing: it reaches" in page
    assert "Difference to the baseline, seed by seed" not in page
    assert "no statement: the baseline guesses" in page


def test_the_page_draws_every_seed_of_stored_runs(finished: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guessing, "CHANCE_FACTOR", 0.0)
    rows = compare(load_study(finished / "study.toml"), StudyFolder(finished / "out"))
    assert [list(row.paired) for row in rows] == [[], [1, 2]]
    assert rows[1].paired[2] == rows[1].accuracies[2] - rows[0].accuracies[2]
    assert rows[1].difference is not None
    baseline = sum(rows[0].accuracies.values()) / 2
    assert rows[1].difference.possible == (-baseline, 1.0 - baseline)
    page = study_page(load_study(finished / "study.toml"), StudyFolder(finished / "out"))
    assert "Difference to the baseline, seed by seed" in page
    assert page.count('"machine":"8 fixed8"') == 3, "two seeds and their mean"


def test_equal_differences_are_no_statement_and_the_page_says_that_their_interval_has_no_width(finished: Path):
    assert str(Difference.of([-0.0022] * 3)) == "-0.22 (no statement)"
    assert "Where all differences are equal" in pages(finished / "out")[0]


def test_all_grids_train_a_seed_before_the_next_one(tmp_path: Path):
    grid = '[[grid]]\nmodels = ["{}"]\ndevices = ["float32"]\nseeds = {}\n'
    text = 'name = "x"\n' + grid.format("mlp", [2, 1]) + grid.format("lenet", [1, 3])
    cases = load_study(written(tmp_path, text)).cases()
    assert [(case.model, case.seed) for case in cases] == [("mlp", 2), ("mlp", 1), ("lenet", 1), ("lenet", 3)]
