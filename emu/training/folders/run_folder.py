"""A run's folder: each file is replaced atomically, so that a run killed at any time can be resumed.

    run.json   NAME.parquet for each of `TABLES` (some only with their first row)   trace.json (simulated time)
    checkpoint.safetensors   report.html
    run.lock   run.process        while a process trains it: `claim.py`

A file is written in the same folder as `*.emu-tmp`, forced to the disk, and moved over the old one. Write tables before
the checkpoint: then they are never older than the checkpoint, and a resumed run drops their later rows (`read_table`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt
from typing_extensions import override

from emu._config import Table, checked
from emu._files import TEMPORARY, read_json, replace_file
from emu._tables import arrow_errors, read_parquet, table_of_columns, write_parquet
from emu.errors import ConfigError
from emu.hardware import Device
from emu.training.folders.claim import CLAIM_FILES
from emu.training.folders.tables import TABLES
from emu.training.recipe import Recipe

Array = NDArray[Any]

CHECKPOINT = "checkpoint.safetensors"
RUN = "run.json"
_NEW_RUN = "start a new run with --out"
#: Version of the checkpoint's layout, in its metadata.
CHECKPOINT_FORMAT = "emu checkpoint 1"


class RunResult(Table):
    """How far a run came, as `run.json` says.

    Attributes:
        steps: training steps that it has done.
        test_accuracy: the last one, a share; None if none was measured.
    """

    steps: NonNegativeInt = 1
    test_accuracy: Annotated[float, Field(ge=0, le=1)] | None = None


class RunFolder:
    """The folder of one run.

    Attributes:
        path: path of the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """Make a new folder, parents included; an empty one that exists is used.

        Half-written files that a killed process left behind do not count; `open` removes them.

        Raises:
            ConfigError: the folder exists and is not empty, or cannot be made or written.
        """
        folder = cls(path)
        try:
            if folder.path.is_dir() and any(map(_is_of_a_run, folder.path.iterdir())):
                raise ConfigError(
                    f"the folder of a new run must be empty, got {folder.path} with files in it; choose another one "
                    f"with --out, or continue that run with --resume {folder.path}"
                )
            folder.path.mkdir(parents=True, exist_ok=True)
            # written before training begins: hours of steps must not end in a folder that cannot be written
            folder._probe()
        except OSError as error:
            raise ConfigError(
                f"the folder of a run must be writable, got {_reason(error)!r} for {folder.path}; choose another one "
                "with --out"
            ) from None
        return folder

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """Return the folder of a run that was started before; nothing in it is changed.

        Raises:
            ConfigError: it is not the folder of a run.
        """
        if not (Path(path) / RUN).is_file():
            raise ConfigError(
                f"a run must be a folder with a {RUN}, got {str(path)!r}; name the folder that `emu train` wrote, or "
                "start a new run without --resume"
            )
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of a run that was started before, and remove files that a killed process left half written.

        Raises:
            ConfigError: it is not the folder of a run, or cannot be written.
        """
        folder = cls.existing(path)
        try:
            # called by the process that holds the run's claim, so no other training writes these files
            for unfinished in folder.path.glob(f"*{TEMPORARY}"):
                unfinished.unlink()
            folder._probe()
        except OSError as error:
            raise ConfigError(
                f"the folder of a run must be writable, got {_reason(error)!r} for {folder.path}; change its "
                "permissions"
            ) from None
        return folder

    def _probe(self) -> None:
        """Raise OSError if files cannot be written here."""
        probe = self.path / f"probe{TEMPORARY}"
        probe.touch()
        probe.unlink()

    def write_bytes(self, name: str, content: bytes) -> None:
        """Replace a file by `content` atomically.

        Raises:
            ConfigError: the disk is full, or the file cannot be written; the old file is intact.
        """
        self._replace(name, lambda file: file.write(content))

    def write_text(self, name: str, text: str) -> None:
        """Replace a file by `text` in UTF-8 atomically; see `write_bytes`."""
        self.write_bytes(name, text.encode())

    def write_json(self, name: str, data: object) -> None:
        """Replace a file by `data` as JSON atomically; see `write_bytes`.

        NaN and infinities, which JSON lacks, become null.
        """
        self.write_text(name, json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        """Replace a Parquet table atomically.

        Args:
            name: one of `TABLES`, without ending.
            columns: all columns of that table, sequences or arrays of one length; None becomes null, NaN stays NaN.

        Raises:
            ConfigError: as `write_bytes`.
        """
        # all columns, so that files of one table never differ in their columns
        assert set(columns) == set(TABLES[name]), (
            f"{name} must have the columns {list(TABLES[name])}, got {list(columns)}"
        )
        table = table_of_columns(columns, TABLES[name])
        self._replace(f"{name}.parquet", lambda file: write_parquet(table, file))

    def read_table(self, name: str, *, up_to_step: int | None = None) -> dict[str, list[Any]]:
        """Return the columns of a Parquet table, null as None; empty columns if there is no such file.

        Columns that an older version did not write are null.

        Args:
            name: one of `TABLES`, without ending.
            up_to_step: leaves out rows of later steps, which a killed run wrote after its last checkpoint.

        Raises:
            ConfigError: the file is damaged.
        """
        path = self.path / f"{name}.parquet"
        if not path.exists():
            return {column: [] for column in TABLES[name]}
        try:
            table = read_parquet(path)
            # columns that the file lacks stay null
            columns: dict[str, list[Any]] = {column: [None] * table.num_rows for column in TABLES[name]}
            for column in table.column_names:
                kind = TABLES[name].get(column)
                if kind is None:
                    raise ValueError(f"a column {column!r}, which no such table has")
                columns[column] = table.column(column).cast(kind).to_pylist()
            if up_to_step is None:
                return columns
            # the resumed run takes these steps again and writes their rows again
            kept = [row for row, step in enumerate(columns["step"]) if step <= up_to_step]
            return {column: [values[row] for row in kept] for column, values in columns.items()}
        except (*arrow_errors(), TypeError) as error:
            raise _damaged(
                path, "a Parquet table", str(error), "delete it; the run goes on without its history"
            ) from None

    def read_json(self, name: str = RUN) -> dict[str, Any]:
        """Return the content of a JSON file.

        Raises:
            ConfigError: the file is missing or damaged.
        """
        path = self.path / name
        try:
            content = read_json(path)
        except (OSError, ValueError) as error:
            raise _damaged(path, "a JSON file", str(error), _NEW_RUN) from None
        if not isinstance(content, dict):
            raise _damaged(path, "a JSON object", type(content).__name__, _NEW_RUN)
        return cast("dict[str, Any]", content)

    def read_setup(self) -> tuple[Recipe, Device]:
        """Return recipe and device of the run, the recipe's `[precision]` already laid over the device's.

        Raises:
            ConfigError: `run.json` is missing or damaged, or lacks recipe or device.
        """
        path, info = self.path / RUN, self.read_json()
        try:
            recipe = checked(Recipe, info.get("recipe", {}), file="its `recipe`")
            device = checked(Device, info.get("device", {}), file="its `device`")
        except ConfigError as error:
            raise ConfigError(f"{path} must hold the run's recipe and device: {error}; or {_NEW_RUN}") from None
        return recipe, device

    def read_result(self) -> RunResult:
        """Return how far the run came.

        Raises:
            ConfigError: `run.json` is missing or damaged.
        """
        info, path = self.read_json(), self.path / RUN
        metrics: Any = info.get("metrics", {})
        if not isinstance(metrics, Mapping):
            raise _damaged(path, "a run's description with a table `metrics`", type(metrics).__name__, _NEW_RUN)
        reached = cast("Mapping[str, Any]", metrics).get("test_accuracy")
        written = {"steps": info.get("steps", 1), "test_accuracy": reached}
        try:
            return checked(RunResult, written, file=str(path))
        except ConfigError as error:
            raise ConfigError(f"{error}; or {_NEW_RUN}") from None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.path / CHECKPOINT).exists()

    def save_checkpoint(self, arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint atomically.

        Args:
            arrays: arrays by name; any numeric dtype and shape.
            state: everything else, as JSON has it; NaN and infinities are kept.

        Raises:
            ConfigError: the disk is full, or the file cannot be written; the old checkpoint is intact.
        """
        # reshaped, because ascontiguousarray makes an array of shape () one of shape (1,)
        # safetensors writes an array's memory as it lies: a transposed array would come back with other numbers;
        contiguous = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()}
        text = json.dumps(state)  # keys keep their order: it is the order of rows in the tables
        # the state is text within the label's text: its hash is of exactly these characters, and JSON keeps NaN
        label = {"format": CHECKPOINT_FORMAT, "sha256": _sha256(contiguous, text), "state": text}
        # a single entry: safetensors writes several in an order that changes from call to call
        self.write_bytes(CHECKPOINT, _safetensors().save(contiguous, {"emu": json.dumps(label)}))

    def load_checkpoint(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays and state of the checkpoint, exactly as they were saved.

        Raises:
            ConfigError: there is no checkpoint, or it is truncated or corrupt; names file and remedy.
        """
        path, remedy = self.path / CHECKPOINT, f"restore it from a backup, or {_NEW_RUN}"
        try:
            # read once: header, tensors and hash are of the same version of the file
            content = path.read_bytes()
            length = int.from_bytes(content[:8], "little")
            # a safetensors file: length of the header in 8 bytes, header in JSON, tensors
            # read by hand, because `safetensors.numpy.load` does not return the metadata
            label = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["emu"])
            arrays = cast("dict[str, Array]", _safetensors().load(content))
            # before the hash: another layout may hash other things
            if label["format"] != CHECKPOINT_FORMAT:
                raise _damaged(path, f"a checkpoint of the form {CHECKPOINT_FORMAT!r}", label["format"], remedy)
            sound = _sha256(arrays, label["state"]) == label["sha256"]
            state = json.loads(label["state"])
        except FileNotFoundError:
            raise ConfigError(f"a run must have a checkpoint to be resumed, got none at {path}; {_NEW_RUN}") from None
        except ConfigError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError, _safetensors_error()) as error:
            raise _damaged(path, "a checkpoint", str(error), remedy) from None
        if not sound:
            raise _damaged(path, "a checkpoint", "content that differs from its SHA-256", remedy)
        return arrays, state

    def _replace(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        path = self.path / name
        try:
            replace_file(path, write)
        except OSError as error:
            raise _unwritten(path, error) from None


def is_unfinished(path: Path) -> bool:
    """Return whether a process writes this file, or was killed while it did."""
    return path.name.endswith(TEMPORARY)


def _is_of_a_run(path: Path) -> bool:
    """Return whether a file is of a run, not one that may be in the folder before the run begins."""
    return path.name not in CLAIM_FILES and not is_unfinished(path)


def runs_in(folder: Path) -> list[Path]:
    """Return the folders of runs in a folder, by name."""
    # a folder without run.json has not begun a run
    return sorted(path.parent for path in folder.glob(f"*/{RUN}"))


class SilentFolder(RunFolder):
    """The folder of a run for ranks other than the first: they read it and write nothing."""

    @override
    def write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        pass

    @override
    def save_checkpoint(self, arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        pass

    @override
    def _replace(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        pass


def _finite(data: object) -> object:
    """Return plain data with None instead of floats that are not finite."""
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in cast("Mapping[str, object]", data).items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in cast("list[object]", data)]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _unwritten(path: Path, error: OSError) -> ConfigError:
    # the disk, the user's quota, or the largest file that the file system takes
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "free some space" if full else "check the folder"
    old = f"the {path.name} saved before is intact; " if path.is_file() else ""
    resume = f", then continue with --resume {path.parent}" if (path.parent / CHECKPOINT).is_file() else ""
    return ConfigError(f"{path} must be writable, got {_reason(error)!r}; {old}{remedy}{resume}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _damaged(path: Path, kind: str, got: str, remedy: str) -> ConfigError:
    return ConfigError(f"{path} must be {kind}, got {' '.join(got.split()) or 'nothing'}; {remedy}")


def _sha256(arrays: Mapping[str, Array], state: str) -> str:
    digest = hashlib.sha256(state.encode())
    # sorted: safetensors returns tensors in an order of its own
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        # name, dtype and shape between the bytes of arrays, so that no two checkpoints have the same stream of bytes by
        # accident; the shape of the given array, because `ascontiguousarray` makes () a (1,)
        digest.update(f"\n{name} {array.dtype.str} {np.shape(arrays[name])}\n".encode())
        digest.update(cast(Any, array.reshape(-1).view(np.uint8)))
    return digest.hexdigest()


def _safetensors() -> Any:
    # imported when a checkpoint is written or read: reading `run.json` needs no such package
    return import_module("safetensors.numpy")


def _safetensors_error() -> type[Exception]:
    return import_module("safetensors").SafetensorError
