"""The hash of the weights at every log point: that of `run.json` at the end, the same on every way to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emu
from emu.training.folders.run_folder import RunFolder

SMALL = {"training.steps": 6, "training.batch": 8, "training.log_every": 2, "data.test_images": 20}


def hashes(folder: Path) -> list[str]:
    return RunFolder(folder).read_table("metrics")["weights_sha256"]


def trained(folder: Path, **options: Any) -> emu.training.Run:
    overrides = SMALL | options.pop("overrides", {})
    return emu.train("mlp", "fixed16", out=folder, overrides=overrides, report=False, **options)


class KilledError(Exception):
    """The process is killed here."""


class StopAt:
    """Ends training in the middle of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def start(self, step: int, steps: int) -> None: ...

    def update(self, step: int, *_: float) -> None:
        if step == self.step:
            raise KilledError

    def finish(self) -> None: ...


def test_the_last_hash_is_that_of_the_run_and_all_of_them_differ(tmp_path: Path):
    run = trained(tmp_path / "run")
    logged = hashes(run.path)
    assert logged[-1] == run.weights_sha256
    assert len(set(logged)) == len(logged) == 3


def test_a_hash_is_that_of_a_run_which_ends_there(tmp_path: Path):
    whole = trained(tmp_path / "whole", overrides={"training.schedule": {"name": "constant"}})
    short = trained(tmp_path / "short", overrides={"training.schedule": {"name": "constant"}, "training.steps": 4})
    assert hashes(whole.path)[1] == short.weights_sha256


def test_backends_and_resumed_runs_log_the_same_hashes(tmp_path: Path):
    whole = hashes(trained(tmp_path / "whole").path)
    assert hashes(trained(tmp_path / "reference", backend="reference").path) == whole
    with pytest.raises(KilledError):
        trained(tmp_path / "killed", progress=StopAt(3))
    emu.resume(tmp_path / "killed", report=False)
    assert hashes(tmp_path / "killed") == whole


def test_a_run_of_an_older_version_goes_on_with_hashes_from_there(tmp_path: Path):
    import pyarrow.parquet as pq

    whole = hashes(trained(tmp_path / "whole").path)
    with pytest.raises(KilledError):
        trained(tmp_path / "old", progress=StopAt(5))
    table = tmp_path / "old" / "metrics.parquet"
    pq.write_table(pq.read_table(table).drop_columns(["weights_sha256"]), table)
    emu.resume(tmp_path / "old", report=False)
    assert hashes(tmp_path / "old") == [None, None, whole[2]]
