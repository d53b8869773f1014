"""Stores of finished runs: a folder that all processes see, or an object store that fsspec reaches.

path           /data/study/runs/KEY/               a run folder
object store   s3://bucket/study/runs/KEY.zip      the same folder as an archive, which appears atomically
"""

from __future__ import annotations

import io
import shutil
import uuid
import zipfile
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from emu._files import TEMPORARY
from emu.errors import ConfigError
from emu.jobs.placing import copy_atomically, unwritable

#: Errors of `zipfile` for damaged archives; a RuntimeError, NotImplementedError, for methods and versions it lacks.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)


class Store(Protocol):
    """Finished runs by their name."""

    def exists(self, key: str) -> bool:
        """Return whether the store has a run."""
        ...

    def fetch(self, key: str, folder: Path) -> bool:
        """Copy a run to `folder` atomically. Return False if the run is missing or `folder` exists."""
        ...

    def publish(self, key: str, folder: Path) -> None:
        """Store the finished run of a folder atomically; an earlier run of the same name is kept."""
        ...


def is_address(text: str) -> bool:
    """Return whether text is the address of a store, not a path."""
    return "://" in text


def open_store(location: str) -> Store:
    """Return the store at a path or an address.

    Raises:
        ConfigError: fsspec, or what it needs for this kind of address, is not installed.
    """
    return ObjectStore(location) if is_address(location) else FolderStore(Path(location))


class FolderStore(Store):
    """Runs in a folder, each as a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @override
    def exists(self, key: str) -> bool:
        return (self.path / key).is_dir()

    @override
    def fetch(self, key: str, folder: Path) -> bool:
        # False as well if the folder is there already
        return self.exists(key) and copy_atomically(self.path / key, folder)

    @override
    def publish(self, key: str, folder: Path) -> None:
        copy_atomically(folder, self.path / key)


class ObjectStore(Store):
    """Runs in an object store, each as an archive."""

    def __init__(self, address: str) -> None:
        """Find the file system of an address.

        Raises:
            ConfigError: fsspec, or what it needs for this kind of address, is not installed.
        """
        try:
            url_to_fs: Any = import_module("fsspec.core").url_to_fs
        except ImportError:
            raise ConfigError(
                f"a store such as {address} must be reached by the package `fsspec`, got none; "
                "pip install 'emu-numerics[remote]'"
            ) from None
        try:
            system: tuple[Any, str] = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"the address of a store must be of a kind that fsspec reaches here, got {address}: {error}"
            ) from None
        self.address, (self._files, self._root) = address, system

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}.zip"

    @override
    def exists(self, key: str) -> bool:
        return bool(self._call(self._files.exists, self._path(key)))

    @override
    def fetch(self, key: str, folder: Path) -> bool:
        # a folder that is here is complete, because it appears atomically
        if folder.is_dir() or not self.exists(key):
            return False
        unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
        content = io.BytesIO(self._call(self._files.cat_file, self._path(key)))
        try:
            with zipfile.ZipFile(content) as archive:
                archive.extractall(unfinished)  # writes nothing outside, and checks the CRC of each file
            # the archive is unpacked beside the folder, so the files are moved by links
            return copy_atomically(unfinished, folder)
        except OSError as error:
            raise unwritable(folder, error) from None
        except _DAMAGED as error:
            reason = str(error) or type(error).__name__
            raise ConfigError(
                f"a run in a store must be a sound archive, got {reason} in {self.address}/{key}.zip; delete it"
            ) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    @override
    def publish(self, key: str, folder: Path) -> None:
        # two workers may both find nothing and write: either archive is complete, and of the same run
        if self.exists(key):
            return
        # in memory, because an object appears with one request, complete or not at all
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # 1 is the fastest
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(file, file.relative_to(folder).as_posix())
        self._call(self._files.makedirs, self._root, exist_ok=True)
        self._call(self._files.pipe_file, self._path(key), content.getvalue())

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Return what a function of the file system returns; any error of it becomes a ConfigError."""
        try:
            return function(*arguments, **options)
        except Exception as error:  # each kind of store raises errors of its own
            raise ConfigError(
                f"the store must be reachable, got {type(error).__name__} from {self.address}: {error}; check address "
                "and credentials. What is finished stays"
            ) from error
