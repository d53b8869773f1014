"""Runs appear in one step, one process at a time trains one, and how they get to their folder."""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import emu
from emu.errors import ConfigError
from emu.jobs import Job
from emu.jobs.placing import copy_atomically
from emu.jobs.run import attempt, is_finished
from emu.jobs.sending import Sending
from emu.jobs.store import FolderStore, ObjectStore, is_address, open_store
from emu.training import load_recipe
from emu.training.folders import claim, lease
from emu.training.folders.claim import Claim
from emu.training.folders.study_folder import ATTEMPTS, CLAIMS, FAILURES
from emu.training.planned import PlannedRun

HERE = f"{platform.node()}:{os.getpid()}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a file, and one in a folder of its own."""
    folder = tmp_path / "source"
    (folder / "inner").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "inner" / "part").write_text("part")
    return folder


def content(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


# ---- folders that appear in one step ----


def test_a_placed_folder_shares_its_files_and_what_is_there_stays(source: Path, tmp_path: Path):
    target = tmp_path / "deep" / "target"
    assert copy_atomically(source, target)
    assert content(target) == content(source)
    assert all((target / name).samefile(source / name) for name in content(source))
    (source / "later").touch()
    assert not copy_atomically(source, target)
    assert "later" not in content(target)
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_file_system_without_links_gets_copies(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: Any) -> None:
        raise OSError("no links")

    monkeypatch.setattr(os, "link", refused)
    assert copy_atomically(source, tmp_path / "target")
    assert content(tmp_path / "target") == content(source)
    assert not (tmp_path / "target" / "run.json").samefile(source / "run.json")


def test_of_two_that_place_a_folder_at_once_the_first_one_stays(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target, rename = tmp_path / "target", os.rename

    def second(beside: Path, wanted: Path) -> None:
        target.mkdir()
        (target / "other").touch()
        rename(beside, wanted)

    monkeypatch.setattr(os, "rename", second)
    assert not copy_atomically(source, target)
    assert content(target) == {"other": ""}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_a_file_in_the_place_of_a_run_is_named(source: Path, tmp_path: Path):
    (tmp_path / "target").touch()
    with pytest.raises(ConfigError, match=r"the folder of a run must be writable, got 'Not a directory' for .*target"):
        copy_atomically(source, tmp_path / "target")


def test_a_folder_and_a_store_of_objects_keep_the_first_run_of_a_name(source: Path, tmp_path: Path):
    pytest.importorskip("fsspec")
    assert [is_address(text) for text in ("s3://bucket/a", "/data/a", "a:b")] == [True, False, False]
    for where, kind in ((str(tmp_path / "runs"), FolderStore), (f"memory://{tmp_path.name}/runs/", ObjectStore)):
        store = open_store(where)
        assert isinstance(store, kind)
        assert not store.exists("one")
        assert not store.fetch("one", tmp_path / "never")
        store.publish("one", source)
        later = tmp_path / kind.__name__
        later.mkdir()
        store.publish("one", later)
        assert store.exists("one")
        fetched = tmp_path / f"of {kind.__name__}"
        assert store.fetch("one", fetched)
        assert content(fetched) == content(source)
        assert not store.fetch("one", fetched)
        store.publish("two", source)
        assert store.exists("two")
    assert {path.name for path in tmp_path.iterdir()} == {
        "source", "runs", "FolderStore", "ObjectStore", "of FolderStore", "of ObjectStore"
    }  # fmt: skip


def test_an_archive_that_is_damaged_is_named(source: Path, tmp_path: Path):
    fsspec = pytest.importorskip("fsspec")
    store = open_store(f"memory://{tmp_path.name}")
    store.publish("one", source)
    fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/one.zip", b"no archive")
    with pytest.raises(ConfigError, match=r"a run in a store must be a sound archive, got .*one\.zip; delete it"):
        store.fetch("one", tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_an_archive_with_any_wrong_byte_is_named_or_comes_back_whole(source: Path, tmp_path: Path):
    fsspec = pytest.importorskip("fsspec")
    store, files = open_store(f"memory://{tmp_path.name}"), fsspec.filesystem("memory")
    (source / "numbers").write_bytes(bytes(range(256)) * 4)
    store.publish("one", source)
    path, fetched = f"/{tmp_path.name}/one.zip", tmp_path / "one"
    sound = files.cat_file(path)
    for place in range(len(sound)):
        files.pipe_file(path, sound[:place] + bytes([sound[place] ^ 0x55]) + sound[place + 1 :])
        try:
            store.fetch("one", fetched)
        except ConfigError as error:
            assert str(error).startswith("a run in a store must be a sound archive, got ")  # noqa: PT017
            assert not fetched.exists()
        shutil.rmtree(fetched, ignore_errors=True)


# ---- who trains a run ----


def test_one_of_two_holds_a_run_and_says_who_it_is(tmp_path: Path):
    first, second = Claim(tmp_path / "claims", "run"), Claim(tmp_path / "claims", "run")
    assert first.read() == ""
    with first.hold() as mine:
        assert mine
        assert second.read() == f"{HERE}\n0\n"
        with second.hold() as theirs:
            assert not theirs
        assert second.read() == f"{HERE}\n0\n"
        with Claim(tmp_path / "claims", "other").hold() as other:
            assert other
    assert second.read() == ""
    with second.hold() as again:
        assert again


def test_the_count_of_a_holder_goes_on_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claim, "BEAT_S", 0.001)
    said: list[str] = []
    monkeypatch.setattr(Path, "write_text", lambda self, text, **_: said.append(text))
    with Claim(tmp_path, "run").hold():
        while len(said) < 4:
            time.sleep(0.001)
    assert said[:4] == [f"{HERE}\n{count}\n" for count in range(4)]


def test_nobody_counts_behind_the_end_of_a_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The thread that counts ends with its process, and before the file of the holder is removed."""
    did: list[str] = []

    class Noted:
        def __init__(self, *, target: Any, args: tuple[Any, ...], name: str, daemon: bool) -> None:
            assert daemon
            assert name == "emu-lease", "a first step is compiled in copies only beside threads that are known"
            self.done = args[0]

        def start(self) -> None:
            did.append("started")

        def join(self) -> None:
            did.append(f"joined, done {self.done.is_set()}, named {mine.holder.exists()}")

    monkeypatch.setattr(lease.threading, "Thread", Noted)
    mine = Claim(tmp_path, "run")
    with mine.hold():
        assert did == ["started"]
    assert did == ["started", "joined, done True, named True"]
    assert not mine.holder.exists()


def job(key: str = "run", folder: Path = Path("runs")) -> Job:
    recipe = load_recipe("mlp").with_settings({"training.steps": 2, "training.batch": 8, "data.test_images": 20})
    return Job.of(key, recipe, emu.device("fixed8"), (folder / key).as_posix(), backend="reference")


# ---- how runs get to a folder ----


class Home:
    """A folder of runs that holds what it is told."""

    def __init__(self, path: Path, results: dict[str, Any]) -> None:
        self.path, self.results = path, results

    def run_folder(self, run: PlannedRun) -> Path:
        return self.path / "runs" / run.key

    def result(self, run: PlannedRun) -> Any:
        return self.results.get(run.key)


def test_a_job_says_where_its_run_will_lie_and_which_cache_it_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("fsspec")
    monkeypatch.setenv("EMU_RUN_CACHE", str(tmp_path / "cache"))
    run = PlannedRun("one", load_recipe("mlp"), emu.device("fixed8"))
    home: Any = Home(tmp_path, {})
    near, far = Sending(home, "numba", True, None).job(run), Sending(home, "auto", False, "memory://bucket/").job(run)
    assert (near.folder, near.cache, near.backend) == (f"{tmp_path}/runs/one", str(tmp_path / "cache"), "numba")
    assert (far.folder, far.cache, far.backend) == ("memory://bucket/runs/one", None, "auto")
    assert Job(**near.plain()) == near
    recipe, device = near.setup()
    assert (recipe, device.name) == (run.recipe, "fixed8")
    with pytest.raises(ConfigError, match=r"--store must be an address such as s3://bucket/folder, got '/data'"):
        Sending(home, "auto", False, "/data")


def test_a_run_that_arrived_is_its_result_or_why_it_failed(source: Path, tmp_path: Path):
    pytest.importorskip("fsspec")
    run = PlannedRun("one", load_recipe("mlp"), emu.device("fixed8"))
    home: Any = Home(tmp_path, {"one": {"status": "finished"}})
    sending = Sending(home, "auto", False, None)
    assert sending.arrived(run, "broken") == "broken"
    assert sending.arrived(run, None) == {"status": "finished"}
    home.results = {}
    said = f"no finished run is in {tmp_path / 'runs' / 'one'}; workers must see this folder, or use --store"
    assert sending.arrived(run, None) == said
    far = Sending(home, "auto", False, f"memory://{tmp_path.name}")
    open_store(f"memory://{tmp_path.name}/runs").publish("one", source)
    far.arrived(run, None)
    assert content(tmp_path / "runs" / "one") == content(source)


# ---- what a worker does ----


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let training write a finished run without training; return where it did."""
    found: list[Path] = []

    def publish(wanted: Job, scratch: Path) -> None:
        found.append(scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / "run.json").write_text('{"status": "finished"}')
        copy_atomically(scratch, Path(wanted.folder))

    monkeypatch.setattr("emu.jobs.run._publish", publish)
    monkeypatch.setattr("emu.jobs.run.build_report", lambda folder: (folder / "report.html").touch())
    return found


def test_a_run_is_trained_in_the_folder_of_attempts_which_is_removed(trained: list[Path], tmp_path: Path):
    wanted = job(folder=tmp_path / "runs")
    assert attempt(wanted.plain(), alone=False) == {"failure": None, "holder": ""}
    assert trained == [tmp_path / ATTEMPTS / "run"]
    assert is_finished(tmp_path / "runs" / "run")
    assert not trained[0].exists()
    assert attempt(wanted.plain(), alone=False) == {"failure": None, "holder": ""}
    assert len(trained) == 1, "a finished run is not trained again"
    assert (tmp_path / "runs" / "run" / "report.html").is_file(), "one without its page gets it"


def test_a_run_that_is_held_is_left_to_its_holder_or_trained_in_a_folder_of_its_own(
    trained: list[Path], tmp_path: Path
):
    wanted, theirs = job(folder=tmp_path / "runs"), tmp_path / ATTEMPTS / "run"
    theirs.mkdir(parents=True)
    for name in ("checkpoint.safetensors", "history.parquet", "run.json", "notes.txt"):
        (theirs / name).write_text(name)
    with Claim(tmp_path / CLAIMS, "run").hold():
        assert attempt(wanted.plain(), alone=False) == {"failure": None, "holder": f"{HERE}\n0\n"}
        assert trained == []
        shutil.copytree(theirs, tmp_path / "before")
        assert attempt(wanted.plain(), alone=True) == {"failure": None, "holder": ""}
    assert trained[0].parent == theirs.parent
    assert trained[0].name.startswith("run.")
    assert not trained[0].exists()
    assert content(theirs) == content(tmp_path / "before")


def test_a_copy_of_an_attempt_has_its_checkpoint_and_its_tables(trained: list[Path], tmp_path: Path):
    from emu.jobs.run import _copy_attempt

    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("history.parquet", "run.json", "notes.txt"):
        (theirs / name).write_text(name)
    _copy_attempt(theirs, tmp_path / "without")
    assert not (tmp_path / "without").exists(), "nothing to go on from"
    (theirs / "checkpoint.safetensors").write_text("weights")
    _copy_attempt(theirs, tmp_path / "copy")
    assert set(content(tmp_path / "copy")) == {"checkpoint.safetensors", "history.parquet", "run.json"}


def test_a_run_that_failed_in_another_command_is_not_trained_again(trained: list[Path], tmp_path: Path):
    (tmp_path / FAILURES).mkdir()
    (tmp_path / FAILURES / "run.json").write_text('{"reason": "no memory"}')
    assert attempt(job(folder=tmp_path / "runs").plain(), alone=False) == {"failure": "no memory", "holder": ""}
    assert trained == []


def test_a_run_that_an_older_version_began_in_place_is_gone_on_with(trained: list[Path], tmp_path: Path):
    begun = tmp_path / "runs" / "run"
    begun.mkdir(parents=True)
    (begun / "run.json").write_text('{"status": "running"}')
    (begun / "checkpoint.safetensors").write_text("weights")
    (tmp_path / ATTEMPTS / "other").mkdir(parents=True)
    assert attempt(job(folder=tmp_path / "runs").plain(), alone=False)["failure"] is None
    assert "checkpoint.safetensors" in content(begun)
    assert is_finished(begun)


def test_a_run_that_left_no_attempt_has_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("emu.jobs.run._publish", lambda wanted, scratch: None)
    assert attempt(job(folder=tmp_path / "runs").plain(), alone=False) == {"failure": None, "holder": ""}


def test_an_error_of_a_run_says_where_it_happened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("no lanes")

    monkeypatch.setattr("emu.jobs.run._publish", broken)
    found = attempt(job(folder=tmp_path / "runs").plain(), alone=True)
    line = broken.__code__.co_firstlineno + 1
    assert found == {"failure": f"ZeroDivisionError: no lanes (in {Path(__file__).name}, line {line})", "holder": ""}
