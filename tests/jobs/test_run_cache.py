"""What was trained once is not trained again; runs lie in folders or in stores of objects."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import emu
from emu import _paths
from emu.hardware import Device
from emu.jobs import Job, run_job
from emu.jobs.cache import RunCache, address_of, most_bytes
from emu.jobs.store import open_store
from emu.training import load_recipe
from emu.training.loop import Loop
from emu.training.workbench import Workbench

SMALL = {"training.steps": 2, "training.batch": 8, "data.test_images": 20}


def job_in(folder: Path | str, cache: Path | None = None, **settings: object) -> Job:
    recipe = load_recipe("mlp").with_settings({**SMALL, **settings})
    return Job.of("small", recipe, emu.device("fixed8"), str(folder), cache=str(cache) if cache else None)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_run_is_taken_from_the_cache_by_all_that_decides_its_files(tmp_path: Path):
    cache = tmp_path / "cache"
    first, again, other = (tmp_path / name / "runs" / "small" for name in ("first", "again", "other"))
    assert run_job(job_in(first, cache)) is None
    assert run_job(job_in(again, cache)) is None
    assert content(again) == content(first)  # the seconds that it took, too: nothing was trained
    assert run_job(job_in(other, cache, **{"training.seed": 2})) is None
    assert content(other)["run.json"] != content(first)["run.json"]
    assert len(list(cache.glob("*.json"))) == 2


def loop_of(device: Device, backend: str = "reference", **settings: object) -> Loop:
    return Loop(Workbench.of(load_recipe("mlp").with_settings({**SMALL, **settings}), device, backend))


def test_a_run_has_another_address_on_another_device_and_with_another_recipe_backend_or_code(
    monkeypatch: pytest.MonkeyPatch,
):
    data = emu.device("fixed8").model_dump(mode="json")
    devices = [Device.model_validate(data | changed) for changed in ({}, {"source": "measured"}, {"name": "other"})]
    loops = [loop_of(device) for device in devices]
    loops += [loop_of(devices[0], "numba"), loop_of(devices[0], **{"training.log_every": 1})]
    # a key that decides no bit, and stands in run.json
    loops += [loop_of(devices[0], **{"cluster.nodes": 2, "cluster.timeout_s": wait}) for wait in (60, 61)]
    addresses = [address_of(loop) for loop in loops]
    assert address_of(loop_of(devices[0])) == addresses[0]
    monkeypatch.setattr(_paths, "sources_sha256", lambda: "0" * 64)
    assert len({*addresses, address_of(loops[0])}) == len(addresses) + 1


def test_a_run_has_another_address_once_a_number_of_its_cost_table_is_another(tmp_path: Path):
    """A device names the table's file: recipe, device, and all that decides bits, stay."""
    table = tmp_path / "own.toml"
    text = (_paths.content_folder("costs") / "horowitz-45nm.toml").read_text()
    data = emu.device("fixed8").model_dump(mode="json") | {"cost": {"table": str(table)}}
    addresses: list[str | None] = []
    for energy_pj in ("0.2", "0.3"):
        table.write_text(text.replace("energy_pj = 0.2\n", f"energy_pj = {energy_pj}\n"))
        addresses.append(address_of(loop_of(Device.model_validate(data))))
    assert None not in addresses
    assert addresses[0] != addresses[1]


def test_a_run_that_ends_by_the_clock_has_no_address():
    assert address_of(loop_of(emu.device("fixed8"), **{"training.stop.seconds": 5.0})) is None


def test_a_run_whose_files_were_changed_is_trained_again(tmp_path: Path):
    cache, first, again = tmp_path / "cache", tmp_path / "a" / "runs" / "small", tmp_path / "b" / "runs" / "small"
    run_job(job_in(first, cache))
    (first / "report.html").write_text("changed in place")  # a hard link of the cache's file
    run_job(job_in(again, cache))
    assert "changed in place" not in (again / "report.html").read_text()


def test_a_full_cache_drops_what_was_used_least_recently(tmp_path: Path):
    cache = RunCache(tmp_path / "cache")
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "run.json").write_text("x" * 100)
        cache.publish(f"{number}", folder)
        os.utime(tmp_path / "cache" / f"{number}.json", (number, number))
    assert cache.fetch("0", tmp_path / "used")  # now the newest
    cache.trim(250)
    assert sorted(path.name for path in cache.path.iterdir()) == ["0", "0.json", "2", "2.json"]
    there = [cache.fetch(f"{number}", tmp_path / f"out{number}") for number in range(3)]
    assert there == [True, False, True]
    cache.trim(200)
    os.utime(tmp_path / "cache" / "2.json", (2, 2))  # the clock of files may stand still between two fetches
    assert cache.fetch("0", tmp_path / "both fit")
    cache.trim(100)
    assert sorted(path.name for path in cache.path.iterdir()) == ["0", "0.json"]


def test_what_killed_processes_left_in_a_cache_is_dropped_once_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache, folder, kept = RunCache(tmp_path / "cache"), tmp_path / "run", "a" * 64
    folder.mkdir()
    (folder / "run.json").write_text("x" * 100)
    cache.publish(kept, folder)
    left = ["b" * 64, f"{'c' * 64}.0123456789ab.emu-tmp"]
    for name in left:
        shutil.copytree(folder, cache.path / name)
    note = f"{'d' * 64}.json.7.emu-tmp"
    (cache.path / note).touch()
    (cache.path / "other").mkdir()
    cache.trim(1000)
    assert {path.name for path in cache.path.iterdir()} == {kept, f"{kept}.json", *left, note, "other"}
    monkeypatch.setattr("emu.jobs.cache.LEFT_BEHIND_S", -1.0)
    cache.trim(1000)
    assert {path.name for path in cache.path.iterdir()} == {kept, f"{kept}.json", "other"}
    assert cache.fetch(kept, tmp_path / "out")


def test_a_cache_holds_20_gib_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EMU_RUN_CACHE_BYTES", raising=False)
    assert most_bytes() == 20 * 1024**3
    monkeypatch.setenv("EMU_RUN_CACHE_BYTES", "0")
    assert most_bytes() == 0


def test_a_run_whose_folder_is_gone_is_no_longer_in_the_cache(tmp_path: Path):
    cache, folder = RunCache(tmp_path / "cache"), tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    cache.publish("one", folder)
    shutil.rmtree(cache.path / "one")
    assert not cache.fetch("one", tmp_path / "out")
    assert list(cache.path.iterdir()) == []


def test_a_run_that_was_half_dropped_is_published_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache, folder, address = RunCache(tmp_path / "cache"), tmp_path / "run", "a" * 64
    folder.mkdir()
    for name in ("report.html", "run.json"):
        (folder / name).write_text("{}")
    cache.publish(address, folder)

    def killed(path: Path, **_: object) -> None:
        (path / "run.json").unlink()

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        cache.drop(address)
    assert not cache.fetch(address, tmp_path / "never")
    cache.publish(address, folder)
    assert cache.fetch(address, tmp_path / "out")
    assert content(tmp_path / "out") == content(folder)
    monkeypatch.setattr("emu.jobs.cache.LEFT_BEHIND_S", -1.0)
    cache.trim(1000)
    assert sorted(path.name for path in cache.path.iterdir()) == [address, f"{address}.json"]


def test_a_run_of_a_cache_whose_notes_are_another_users_is_used_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache, folder = RunCache(tmp_path / "cache"), tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    cache.publish("one", folder)

    def refused(path: Path, *arguments: object, **options: object) -> None:
        if path == cache.path / "one.json":
            raise PermissionError(1, "Operation not permitted")
        utime(path, *arguments, **options)

    utime = os.utime
    monkeypatch.setattr(os, "utime", refused)
    assert cache.fetch("one", tmp_path / "out")
    monkeypatch.setattr(Path, "unlink", refused)
    (cache.path / "one" / "run.json").write_text("changed")
    assert not cache.fetch("one", tmp_path / "other"), "it cannot be dropped, and is not used"


def test_a_size_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EMU_RUN_CACHE_BYTES", "20 GB")
    with pytest.raises(emu.ConfigError, match="must be a whole number of bytes, got '20 GB'"):
        most_bytes()


def test_a_run_goes_to_a_store_of_objects_and_comes_back_whole(tmp_path: Path):
    pytest.importorskip("fsspec")
    assert run_job(job_in("memory://bucket/study/runs/small")) is None
    store = open_store("memory://bucket/study/runs")
    assert store.exists("small")
    assert store.fetch("small", tmp_path / "small")
    assert not store.fetch("small", tmp_path / "small"), "what is there stays"
    assert not store.fetch("other", tmp_path / "other")
    assert {"run.json", "report.html", "checkpoint.safetensors"} <= set(content(tmp_path / "small"))


def test_a_store_of_an_unknown_kind_is_refused():
    pytest.importorskip("fsspec")
    with pytest.raises(emu.ConfigError, match="must be of a kind that fsspec reaches here, got nowhere://x"):
        open_store("nowhere://x/runs")


def test_a_worker_of_other_code_refuses_a_run(tmp_path: Path):
    job = Job(**{**job_in(tmp_path / "runs" / "small").plain(), "sources": "0" * 64})
    assert "must have the emu of who sends it runs" in (run_job(job) or "")
