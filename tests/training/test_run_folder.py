"""A run's folder survives whatever happens while it is written."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import ConfigError
from emu.training.folders.run_folder import CHECKPOINT, RunFolder
from emu.training.folders.tables import TABLES

ARRAYS: dict[str, np.ndarray] = {
    "conv1/weight": np.linspace(-1, 1, 150, dtype=np.float32).reshape(6, 1, 5, 5),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "scalar": np.array(3, dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.uint16),
    "flags": np.array([True, False]),
    "largest": np.array([2**64 - 1], dtype=np.uint64),
    "special": np.array([np.nan, -0.0, np.inf]),
}
STATE = {
    "step": 7,
    "seed": 2**63 - 1,
    "rate": 0.1,
    "loss": math.inf,
    "registers": {"conv1/activation": {"lowest": -20}},
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "a")


def message(action: Any, *arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        action(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestFolder:
    def test_a_new_folder_is_made_with_its_parents(self, folder: RunFolder):
        assert folder.path.is_dir()
        assert list(folder.path.iterdir()) == []

    def test_an_empty_folder_is_used(self, tmp_path: Path):
        assert RunFolder.create(tmp_path).path == tmp_path

    def test_a_folder_with_files_is_refused_and_left_alone(self, tmp_path: Path):
        (tmp_path / "notes.txt").write_text("mine")
        assert message(RunFolder.create, tmp_path) == (
            f"the folder of a new run must be empty, got {tmp_path} with files in it; choose another one with --out, "
            f"or continue that run with --resume {tmp_path}"
        )
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    @pytest.mark.parametrize("name", ["run.json.77.emu-tmp", "probe.emu-tmp"])
    def test_what_a_process_left_that_was_killed_in_its_first_write_does_not_count(self, name: str, tmp_path: Path):
        (tmp_path / name).write_bytes(b"half")
        folder = RunFolder.create(tmp_path)
        folder.write_json("run.json", {})
        RunFolder.open(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["run.json"]

    def test_a_file_in_the_place_of_the_folder_is_refused(self, tmp_path: Path):
        (tmp_path / "file").write_text("mine")
        assert message(RunFolder.create, tmp_path / "file") == (
            f"the folder of a run must be writable, got 'File exists' for {tmp_path / 'file'}; "
            "choose another one with --out"
        )
        assert "Not a directory" in message(RunFolder.create, tmp_path / "file" / "run")

    def test_a_folder_that_cannot_be_written_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "touch", refuse)
        assert message(RunFolder.create, tmp_path) == (
            f"the folder of a run must be writable, got 'Permission denied' for {tmp_path}; "
            "choose another one with --out"
        )

    def test_a_folder_that_is_no_run_cannot_be_opened(self, tmp_path: Path):
        assert message(RunFolder.open, tmp_path) == (
            f"a run must be a folder with a run.json, got '{tmp_path}'; name the folder that `emu train` wrote, or "
            "start a new run without --resume"
        )

    def test_opening_removes_half_written_files_only(self, folder: RunFolder):
        folder.write_json("run.json", {})
        (folder.path / "checkpoint.safetensors.emu-tmp").write_bytes(b"half")
        (folder.path / "notes.txt").write_text("mine")
        RunFolder.open(folder.path)
        assert sorted(path.name for path in folder.path.iterdir()) == ["notes.txt", "run.json"]


class TestJson:
    def test_json_comes_back(self, folder: RunFolder):
        folder.write_json("run.json", {"a": [1, 2.5, None, "ü"]})
        assert folder.read_json() == {"a": [1, 2.5, None, "ü"]}

    def test_what_json_lacks_becomes_null(self, folder: RunFolder):
        folder.write_json("run.json", {"loss": math.nan, "rows": [math.inf, (1.0, -math.inf)]})
        assert json.loads((folder.path / "run.json").read_text()) == {"loss": None, "rows": [None, [1.0, None]]}

    def test_a_damaged_file_is_named(self, folder: RunFolder):
        (folder.path / "run.json").write_text('{"a": ')
        assert message(folder.read_json) == (
            f"{folder.path / 'run.json'} must be a JSON file, got Expecting value: line 1 column 7 (char 6); "
            "start a new run with --out"
        )

    def test_what_a_run_reached_is_read(self, folder: RunFolder):
        folder.write_json("run.json", {"steps": 12, "metrics": {"test_accuracy": 0.5, "train_loss": 3.0}})
        assert folder.read_result().model_dump() == {"steps": 12, "test_accuracy": 0.5}

    @pytest.mark.parametrize(
        ("content", "rule"),
        [
            ({"steps": [3]}, "`steps` must be an integer, got [3]"),
            ({"steps": -1}, "`steps` must be at least 0, got -1"),
            ({"metrics": []}, "must be a run's description with a table `metrics`, got list"),
            ({"metrics": {"test_accuracy": "high"}}, "`test_accuracy` must be a number, got 'high'"),
            ({"metrics": {"test_accuracy": 1.5}}, "`test_accuracy` must be at most 1.0, got 1.5"),
        ],
    )
    def test_what_a_damaged_run_reached_is_refused(self, folder: RunFolder, content: dict[str, Any], rule: str):
        folder.write_json("run.json", content)
        said = message(folder.read_result)
        assert rule in said
        assert str(folder.path / "run.json") in said
        assert said.endswith("start a new run with --out")


class TestTables:
    def rows(self, **changed: Any) -> dict[str, Any]:
        return {
            "step": [1, 2, 3],
            "layer": ["a"] * 3,
            "role": ["weight"] * 3,
            "snr_db": [40.0, None, math.nan],
        } | changed

    def test_null_and_nan_stay_apart(self, folder: RunFolder):
        folder.write_table("snr", self.rows())
        values = folder.read_table("snr")["snr_db"]
        assert values[:2] == [40.0, None]
        assert math.isnan(values[2])

    def test_columns_have_their_types(self, folder: RunFolder):
        import pyarrow.parquet as parquet

        keys = {"layer": ["a", "b"], "role": ["weight"] * 2, "kind": ["positive", "total"]}
        folder.write_table("registers", keys | {"step": np.arange(2), "exponent": [-3, None], "count": [5, 6]})
        schema = parquet.read_schema(folder.path / "registers.parquet")
        assert {field.name: str(field.type).replace("double", "float64") for field in schema} == TABLES["registers"]

    def test_rows_after_the_checkpoint_are_left_out(self, folder: RunFolder):
        folder.write_table("snr", self.rows())
        assert folder.read_table("snr", up_to_step=2)["step"] == [1, 2]

    def test_a_table_not_yet_written_is_empty(self, folder: RunFolder):
        assert folder.read_table("snr") == {"step": [], "layer": [], "role": [], "snr_db": []}

    def test_a_missing_column_is_a_bug_of_the_caller(self, folder: RunFolder):
        with pytest.raises(AssertionError, match="snr must have the columns"):
            folder.write_table("snr", {"step": [1]})

    def test_a_column_that_no_such_table_has_is_named(self, folder: RunFolder):
        arrow, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(arrow.table({"step": [1], "lojs": [0.5]}), folder.path / "metrics.parquet")
        with pytest.raises(ConfigError, match="must be a Parquet table, got a column 'lojs', which no such"):
            folder.read_table("metrics")

    def test_a_column_of_another_type_is_named(self, folder: RunFolder):
        arrow, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(arrow.table({"step": ["one"]}), folder.path / "metrics.parquet")
        with pytest.raises(ConfigError, match="must be a Parquet table"):
            folder.read_table("metrics")

    def test_a_damaged_table_is_named(self, folder: RunFolder):
        (folder.path / "snr.parquet").write_bytes(b"PAR1 nonsense")
        text = message(folder.read_table, "snr")
        assert text.startswith(f"{folder.path / 'snr.parquet'} must be a Parquet table, got ")
        assert text.endswith("; delete it; the run goes on without its history")


class TestCheckpoint:
    def test_arrays_and_state_come_back_bit_by_bit(self, folder: RunFolder):
        folder.save_checkpoint(ARRAYS, STATE)
        arrays, state = folder.load_checkpoint()
        assert state == STATE
        assert set(arrays) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape), name
            assert arrays[name].tobytes() == array.tobytes(), name
            assert arrays[name].flags.writeable, name

    def test_the_same_checkpoint_is_the_same_file(self, folder: RunFolder):
        folder.save_checkpoint(ARRAYS, STATE)
        first = (folder.path / CHECKPOINT).read_bytes()
        folder.save_checkpoint(ARRAYS, STATE)
        assert (folder.path / CHECKPOINT).read_bytes() == first

    def test_any_safetensors_reader_opens_it(self, folder: RunFolder):
        from safetensors import safe_open

        folder.save_checkpoint(ARRAYS, STATE)
        with safe_open(folder.path / CHECKPOINT, framework="numpy") as file:
            assert json.loads(json.loads(file.metadata()["emu"])["state"])["step"] == 7
            assert file.get_tensor("conv1/weight").tobytes() == ARRAYS["conv1/weight"].tobytes()

    def test_a_missing_checkpoint_is_named(self, folder: RunFolder):
        assert not folder.has_checkpoint
        assert message(folder.load_checkpoint) == (
            f"a run must have a checkpoint to be resumed, got none at {folder.path / CHECKPOINT}; "
            "start a new run with --out"
        )

    def test_truncation_anywhere_is_noticed(self, folder: RunFolder):
        folder.save_checkpoint(ARRAYS, STATE)
        path = folder.path / CHECKPOINT
        content = path.read_bytes()
        for length in (0, 3, 8, 100, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            text = message(folder.load_checkpoint)
            assert text.startswith(f"{path} must be a checkpoint, got ")
            assert text.endswith("; restore it from a backup, or start a new run with --out")

    def test_a_flipped_bit_anywhere_is_noticed(self, folder: RunFolder):
        folder.save_checkpoint(ARRAYS, STATE)
        path = folder.path / CHECKPOINT
        content = bytearray(path.read_bytes())
        for position in range(0, len(content), 37):
            content[position] ^= 1
            path.write_bytes(content)
            try:
                arrays, state = folder.load_checkpoint()
            except ConfigError:
                pass
            else:  # padding of the header is not content
                assert state == STATE
                assert all(arrays[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())
            content[position] ^= 1

    def test_changed_content_is_called_so(self, folder: RunFolder):
        folder.save_checkpoint(ARRAYS, STATE)
        path = folder.path / CHECKPOINT
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert message(folder.load_checkpoint) == (
            f"{path} must be a checkpoint, got content that differs from its SHA-256; restore it from a backup, or "
            "start a new run with --out"
        )

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_a_full_disk_leaves_the_old_checkpoint(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, call: str):
        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        folder.save_checkpoint(ARRAYS, STATE)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            text = message(folder.save_checkpoint, ARRAYS, STATE | {"step": 8})
        assert text == (
            f"{folder.path / CHECKPOINT} must be writable, got 'No space left on device'; the {CHECKPOINT} saved "
            f"before is intact; free some space, then continue with --resume {folder.path}"
        )
        assert folder.load_checkpoint()[1]["step"] == 7
        assert [path.name for path in folder.path.iterdir()] == [CHECKPOINT]

    @pytest.mark.skipif(os.name != "posix", reason="file size limits are a POSIX idea")
    @pytest.mark.parametrize("what", ["checkpoint", "table"])
    def test_a_write_that_the_system_cuts_off_leaves_the_old_file(self, folder: RunFolder, what: str):
        """A real short write: the process may not write files beyond 4096 bytes."""
        script = f"""
import resource
import numpy as np
from emu.errors import ConfigError
from emu.training.folders.run_folder import RunFolder
folder = RunFolder({str(folder.path)!r})
rng = np.random.default_rng(0)
def save(n, step):
    if {what!r} == "checkpoint":
        folder.save_checkpoint({{"w": rng.random(n)}}, {{"step": step}})
    else:
        columns = {{"step": [step] * n, "layer": ["a"] * n, "role": ["b"] * n, "snr_db": rng.random(n)}}
        folder.write_table("snr", columns)
save(10, 7)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save(100000, 8)
except ConfigError as error:
    print(error)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        name = CHECKPOINT if what == "checkpoint" else "snr.parquet"
        assert (
            f"must be writable, got 'File too large'; the {name} saved before is intact; free some space" in done.stdout
        )
        assert [path.name for path in folder.path.iterdir()] == [name]
        step = folder.load_checkpoint()[1]["step"] if what == "checkpoint" else folder.read_table("snr")["step"][0]
        assert step == 7

    @pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX idea")
    def test_a_process_killed_while_it_saves_leaves_a_whole_checkpoint(self, folder: RunFolder):
        folder.write_json("run.json", {})
        script = f"""
import os, signal
import numpy as np
from emu.training.folders.run_folder import RunFolder
folder = RunFolder({str(folder.path)!r})
folder.save_checkpoint({{"w": np.arange(1000.0)}}, {{"step": 7}})
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
folder.save_checkpoint({{"w": np.arange(9000.0)}}, {{"step": 8}})
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True)
        assert done.returncode == -9
        assert list(folder.path.glob(f"{CHECKPOINT}.*.emu-tmp"))
        arrays, state = RunFolder.open(folder.path).load_checkpoint()
        assert (state["step"], arrays["w"].size) == (7, 1000)
        assert not list(folder.path.glob("*.emu-tmp"))
