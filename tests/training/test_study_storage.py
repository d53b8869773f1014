"""Storages of studies: whoever keeps what `Storage` promises can run one, in one process or in several."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emu.cli.study import rebuild_study_report, run_study
from emu.cli.study_worker import work
from emu.training.study import Case, load_study
from emu.training.study_storage import FOLDER_STORAGE, Storage, open_storage, process_name, result_in

STUDY = """
name = "kept"
baseline = "float32"

[[grid]]
models = ["mlp"]
devices = ["float32", "fixed8"]
seeds = [1]
[[grid.settings]]
set = { "training.steps" = 2, "training.batch" = 8, "data.test_images" = 20 }
"""


class SqliteStorage:
    """A study whose claims and failures are rows of a database; its run folders are beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._ask("create table if not exists runs (key text primary key, holder text, failure text)")

    def _ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path / "study.sqlite", timeout=60, isolation_level=None)) as database:
            return database.execute(question, values).fetchall()

    def _read(self, column: str, case: Case) -> Any:
        return next(iter(self._ask(f"select {column} from runs where key = ?", case.key)), (None,))[0]

    def _write(self, column: str, case: Case, value: str | None) -> None:
        self._ask("insert or ignore into runs (key) values (?)", case.key)
        self._ask(f"update runs set {column} = ? where key = ?", value, case.key)

    def run_folder(self, case: Case) -> Path:
        return self.path / "trained" / case.key

    def clear(self, case: Case) -> None:
        shutil.rmtree(self.run_folder(case), ignore_errors=True)

    def result(self, case: Case) -> dict[str, Any] | None:
        return result_in(self.run_folder(case), case)

    def failure(self, case: Case) -> str | None:
        return self._read("failure", case)

    def fail(self, case: Case, reason: str) -> None:
        self._write("failure", case, reason)

    def forget_failure(self, case: Case) -> None:
        self._write("failure", case, None)

    @contextmanager
    def claimed(self, case: Case) -> Generator[bool, None, None]:
        self._ask("insert or ignore into runs (key) values (?)", case.key)
        before, me = self.held_by(case), process_name(os.getpid())
        mine = not is_alive(before) and bool(
            self._ask("update runs set holder = ? where key = ? and holder is ? returning key", me, case.key, before)
        )
        yield mine
        if mine:
            self._write("holder", case, None)

    def held_by(self, case: Case) -> str | None:
        return self._read("holder", case)


def is_alive(holder: str | None) -> bool:
    if holder is None:
        return False
    try:
        os.kill(int(holder.rpartition(":")[2]), 0)
    except ProcessLookupError:
        return False
    return True


IN_DATABASE = f"{__name__}:{SqliteStorage.__name__}"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


@pytest.mark.parametrize("opener", [FOLDER_STORAGE, IN_DATABASE])
def test_a_storage_keeps_claims_and_failures_for_whoever_opens_it(opener: str, study: Path, tmp_path: Path):
    here, there = open_storage(tmp_path / "out", opener), open_storage(tmp_path / "out", opener)
    case, other = load_study(study).cases()
    with here.claimed(case) as mine, there.claimed(case) as theirs, there.claimed(other) as free:
        assert (mine, theirs, free) == (True, False, True)
        assert there.held_by(case) == process_name(os.getpid())
    assert there.held_by(case) is None
    here.fail(case, "no space left")
    assert (there.failure(case), there.failure(other)) == ("no space left", None)
    there.forget_failure(case)
    assert here.failure(case) is None
    assert here.run_folder(case).is_relative_to(there.path)


def without_names(out: Path) -> list[str]:
    return [(out / name).read_text().replace("trained/", "runs/") for name in ("report.html", "report.md")]


@pytest.mark.slow
def test_a_study_in_a_database_runs_to_the_report_of_one_in_a_folder(study: Path, tmp_path: Path):
    storage: Storage = SqliteStorage(tmp_path / "database")
    work(study, storage, "auto", [])
    work(study, open_storage(tmp_path / "folder"), "auto", [])
    for out, opener in ((storage.path, IN_DATABASE), (tmp_path / "folder", FOLDER_STORAGE)):
        report = run_study(study, out, 1, "auto", retry_failed=False, opener=opener)  # nothing is left
        assert "2 of 2 runs are finished" in report.read_text()
    assert without_names(storage.path) == without_names(tmp_path / "folder")
    assert sorted(path.name for path in storage.path.iterdir()) == [
        "report.html", "report.md", "study.json", "study.sqlite", "trained",
    ]  # fmt: skip
    (storage.path / "report.md").unlink()
    rebuild_study_report(storage.path, IN_DATABASE)
    assert without_names(storage.path) == without_names(tmp_path / "folder")


@pytest.mark.slow
def test_workers_reach_a_study_in_a_database(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    storage, (case, _) = SqliteStorage(tmp_path / "out"), load_study(study).cases()
    storage.run_folder(case).parent.mkdir()
    storage.run_folder(case).touch()  # in the way
    report = run_study(study, storage.path, 2, "auto", retry_failed=False, opener=IN_DATABASE)
    assert "1 of 2 runs are finished" in report.read_text()
    assert "must be writable" in (storage.failure(case) or "")
    storage.run_folder(case).unlink()
    run_study(study, storage.path, 2, "auto", retry_failed=True, opener=IN_DATABASE)
    assert "2 of 2 runs are finished" in report.read_text()
